"""Imported formulas round as the framework's do: nothing large is added that has to go again."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from gate import EXPLORING
from livegnn import Engine, Graph, Model
from livegnn.oracle.exactness import judge

NODES, WIDTH, EDGE_WIDTH = 60, 4, 3
SMALL = np.arange(NODES // 2)


class One(nn.Module):
    """A convolution alone."""

    def __init__(self, conv: nn.Module, *, features: bool = False) -> None:
        super().__init__()
        self.conv, self.features = conv, features

    def forward(self, x, edge_index, edge_attr=None):
        return self.conv(x, edge_index, edge_attr) if self.features else self.conv(x, edge_index)


class Clamped(pyg.MessagePassing):
    """Extremes of rows and constants, on edges and on nodes."""

    def __init__(self, limit: float) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.lin, self.limit = nn.Linear(WIDTH, 5), limit

    def forward(self, x, edge_index):
        h = self.lin(x).clamp(-self.limit, self.limit)
        return self.propagate(edge_index, h=h) + torch.maximum(h, torch.full_like(h, -self.limit))

    def message(self, h_i, h_j):
        return torch.minimum(h_i * h_j, torch.full_like(h_j, self.limit))


def difference(module: nn.Module, x: np.ndarray, edge_index: np.ndarray, *edge_attr: np.ndarray):
    """What the judge says of the small nodes' predictions."""
    module = module.eval()
    model = Model.from_pyg(module, in_channels=WIDTH, edge_channels=EDGE_WIDTH if edge_attr else 0)
    columns = {"edge_attr": edge_attr[0]} if edge_attr else {}
    engine = Engine(Graph.from_edges(*edge_index, x=x, **columns), model)
    given = [torch.from_numpy(array) for array in (x, edge_index, *edge_attr)]
    with torch.no_grad():
        single = module(*given).numpy()
        given = [array.double() if array.is_floating_point() else array for array in given]
        exact = copy.deepcopy(module).double()(*given).numpy()
    return judge(engine.predict(SMALL), exact[SMALL], single[SMALL])


def large_to_small(rng: np.random.Generator) -> np.ndarray:
    """Edges from the large nodes to the small ones."""
    source = rng.integers(NODES // 2, NODES, 300)
    return np.unique(np.stack([source, rng.integers(0, NODES // 2, 300)]), axis=1)


@pytest.mark.parametrize(
    ("heads", "size"),
    [
        (heads, size)
        for i, heads in enumerate([1, 2])
        for j, size in enumerate([1.0, 1e4, 1e6, 1e9])
        if EXPLORING or (i + j) % 2 == 1
    ],
)
def test_beta_of_transformer_conv(heads, size, rng):
    """Where the gate lets the root through alone, nothing of the large neighbours is left."""
    torch.manual_seed(0)
    conv = pyg.TransformerConv(WIDTH, 3, heads=heads, beta=True)
    with torch.no_grad():  # the gate follows a channel of the small nodes, some of which close it
        conv.lin_beta.weight.zero_()
        conv.lin_beta.weight[0, 3 * heads] = 100.0
    x = rng.standard_normal((NODES, WIDTH)).astype(np.float32)
    x[NODES // 2 :] *= np.float32(size)
    with torch.no_grad():
        small = conv.lin_skip(torch.from_numpy(x[SMALL]))[:, 0]
        conv.lin_skip.bias[0] += max(0.0, 1.0 - float(small.max()))  # one at least opens it
        open_gate = conv.lin_skip(torch.from_numpy(x))[:, 0].numpy() > 0.5
    x[SMALL[~open_gate[SMALL]]] = x[SMALL[open_gate[SMALL]][0]]
    found = difference(One(conv), x, large_to_small(rng))
    assert found.ok, found


@pytest.mark.parametrize(
    ("middle", "separate"),
    [
        (middle, bool(j))
        for i, middle in enumerate([0.0, 1e3, 1e6])
        for j in range(2)
        if EXPLORING or (i + j) % 2 == 0
    ],
)
def test_gaussians_far_from_zero(middle, separate, rng):
    torch.manual_seed(0)
    conv = pyg.GMMConv(WIDTH, 5, EDGE_WIDTH, kernel_size=2, separate_gaussians=separate)
    with torch.no_grad():
        conv.mu += middle
        conv.sigma.copy_(0.5 + torch.rand_like(conv.sigma))
    edge_index = large_to_small(rng)
    edge_attr = (middle + rng.standard_normal((edge_index.shape[1], EDGE_WIDTH))).astype(np.float32)
    x = rng.standard_normal((NODES, WIDTH)).astype(np.float32)
    found = difference(One(conv, features=True), x, edge_index, edge_attr)
    assert found.ok, found


@pytest.mark.parametrize("limit", [0.5, 1e4, 1e10, 1e30])
def test_limits_that_nothing_reaches(limit, rng):
    torch.manual_seed(0)
    x = rng.standard_normal((NODES, WIDTH)).astype(np.float32)
    found = difference(Clamped(limit), x, large_to_small(rng))
    assert found.ok, found
