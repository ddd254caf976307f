"""The oracle computes on an imported model what PyG computes on the module itself."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

from gate import draws
from livegnn.graph.snapshot import Snapshot
from livegnn.model import Model
from livegnn.oracle import reference
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE
from modules import cases

CHANNELS = 5
"""Width of the features in these tests."""


def make_snapshot(seed: int, num_nodes: int, num_edges: int) -> Snapshot:
    """A random graph: some self-loops, some isolated nodes, weights of which some are 0."""
    random = np.random.default_rng(seed)
    edge_index = random.integers(0, max(1, num_nodes - num_nodes // 4), (2, num_edges))
    edge_index = np.unique(edge_index, axis=1)
    weight = random.uniform(0, 2, edge_index.shape[1]) * (random.random(edge_index.shape[1]) < 0.9)
    return Snapshot(
        ids={DEFAULT_NODE_TYPE: np.arange(num_nodes)},
        x={DEFAULT_NODE_TYPE: random.standard_normal((num_nodes, CHANNELS), dtype=np.float32)},
        edge_index={DEFAULT_EDGE_TYPE: edge_index},
        weight={DEFAULT_EDGE_TYPE: weight.astype(np.float32)},
    )


GRAPHS = [make_snapshot(seed, 1 + 2 * seed, 7 * seed) for seed in range(10)]
ACTIVATIONS = ["relu", "leaky_relu", "elu", "gelu", "sigmoid", "tanh", "silu", None]
"""Names in torch.nn.functional."""


def randomize(module: nn.Module, seed: int) -> nn.Module:
    """Fills every parameter and statistic, so that none is the 0 or 1 it started as."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
        for name, buffer in module.named_buffers():
            if name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
            elif name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator))
    return module


def run(module: nn.Module, snapshot: Snapshot, weighted: bool) -> np.ndarray:
    """The module's own answer, in float64 and evaluation mode."""
    arguments = [
        torch.from_numpy(snapshot.x[DEFAULT_NODE_TYPE]).double(),
        torch.from_numpy(snapshot.edge_index[DEFAULT_EDGE_TYPE]),
    ]
    if weighted:
        arguments.append(torch.from_numpy(snapshot.weight[DEFAULT_EDGE_TYPE]).double())
    with torch.no_grad():
        return copy.deepcopy(module).double().eval()(*arguments).numpy()


def check(module: nn.Module, *, weighted: bool = False, seed: int = 0) -> Model:
    """Imports the module and compares the oracle with it."""
    randomize(module, seed)
    model = Model.from_pyg(module, edge_weight=weighted)
    check_graphs(model, module, weighted)
    assert model.layers[0] == "x"
    assert model.layers[-1] == model.output
    return model


def check_graphs(model: Model, module: nn.Module, weighted: bool) -> None:
    for snapshot in GRAPHS:
        expected = run(module, snapshot, weighted)
        values = reference.compute(model, snapshot)
        scale = max(1e-3, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(values[model.output], expected, rtol=0, atol=1e-5 * scale)


class Stack(nn.Module):
    """Convolutions one after the other, with an activation between them; weights for those that take them."""

    def __init__(self, convolutions: list[nn.Module], activation: str | None, weighted: bool) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convolutions)
        self.activation = activation
        self.weighted = weighted

    def forward(self, x, edge_index, edge_weight=None):
        for i, conv in enumerate(self.convs):
            if i and self.activation:
                x = getattr(F, self.activation)(x)
            if i:
                x = F.dropout(x, p=0.5, training=self.training)
            x = conv(x, edge_index, edge_weight) if self.weighted else conv(x, edge_index)
        return x


def widths(depth: int) -> list[tuple[int, int]]:
    """Input and output width of each layer."""
    sizes = [CHANNELS, 7, 3, 6, 4]
    return list(pairwise(sizes[: depth + 1]))


@cases(
    depth=[1, 2, 3, 4],
    activation=ACTIVATIONS,
    normalize=[False, True],
    improved=[False, True],
    self_loops=[False, True],
    bias=[False, True],
    weighted=[False, True],
)
def test_gcn_conv(depth, activation, normalize, improved, self_loops, bias, weighted):
    convolutions = [
        pyg.GCNConv(
            i, o, normalize=normalize, improved=improved, add_self_loops=self_loops and normalize, bias=bias
        )
        for i, o in widths(depth)
    ]
    model = check(Stack(convolutions, activation, weighted), weighted=weighted)
    assert len(model.layers) == depth + 1


@cases(
    depth=[1, 2, 3, 4],
    activation=ACTIVATIONS,
    aggr=["mean", "sum", "add", "max", "min"],
    root_weight=[False, True],
    normalize=[False, True],
    project=[False, True],
    bias=[False, True],
)
def test_sage_conv(depth, activation, aggr, root_weight, normalize, project, bias):
    convolutions = [
        pyg.SAGEConv(
            i, o, aggr=aggr, root_weight=root_weight, normalize=normalize, project=project, bias=bias
        )
        for i, o in widths(depth)
    ]
    model = check(Stack(convolutions, activation, weighted=False))
    assert len(model.layers) == depth + 1


@cases(
    depth=[1, 2, 3, 4],
    activation=ACTIVATIONS,
    aggr=["add", "sum", "mean", "max", "min"],
    bias=[False, True],
    weighted=[False, True],
)
def test_graph_conv(depth, activation, aggr, bias, weighted):
    convolutions = [pyg.GraphConv(i, o, aggr=aggr, bias=bias) for i, o in widths(depth)]
    check(Stack(convolutions, activation, weighted), weighted=weighted)


@cases(
    depth=[1, 2, 3, 4],
    activation=ACTIVATIONS,
    eps=[0.0, 0.3, -1.0],
    train_eps=[False, True],
    network=["linear", "sequential", "mlp", "mlp without norm"],
)
def test_gin_conv(depth, activation, eps, train_eps, network):
    def make(i: int, o: int) -> nn.Module:
        if network == "linear":
            return nn.Linear(i, o)
        if network == "sequential":
            return nn.Sequential(nn.Linear(i, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, o))
        return pyg.MLP([i, 8, o], norm="batch_norm" if network == "mlp" else None, dropout=0.3)

    convolutions = [pyg.GINConv(make(i, o), eps=eps, train_eps=train_eps) for i, o in widths(depth)]
    check(Stack(convolutions, activation, weighted=False))


@cases(
    count=draws(2, 12),
    kind=[pyg.GCN, pyg.GraphSAGE, pyg.GIN],
    depth=[1, 2, 3, 4],
    out_channels=[None, 3],
    act=["relu", "elu", "leaky_relu", "PReLU", "tanh", torch.relu, None],
    act_first=[False, True],
    norm=[None, "BatchNorm", "LayerNorm"],
    jk=[None, "last", "cat", "max"],
    weighted=[False, True],
)
def test_ready_made_models(kind, depth, out_channels, act, act_first, norm, jk, weighted):
    module = kind(
        CHANNELS,
        6,
        depth,
        out_channels,
        dropout=0.5,
        act=act,
        act_first=act_first,
        norm=norm,
        norm_kwargs={"mode": "node"} if norm == "LayerNorm" else None,
        jk=jk,
    )
    model = check(module, weighted=weighted)
    assert model.width(model.output) == (out_channels or 6)


# Without Hypothesis: it seeds Python's random numbers, and PyG's Sequential names its generated code by them.
@pytest.mark.parametrize("weighted", [False, True])
def test_sequential(weighted):
    with_weight = ", edge_weight" if weighted else ""
    module = pyg.Sequential(
        f"x, edge_index{with_weight}",
        [
            (nn.Dropout(0.2), "x -> x"),
            (pyg.GCNConv(CHANNELS, 6), f"x, edge_index{with_weight} -> x1"),
            nn.ReLU(inplace=True),
            (pyg.SAGEConv(6, 6), "x1, edge_index -> x2"),
            (nn.LayerNorm(6), "x2 -> x2"),
            (lambda x1, x2: [x1, x2], "x1, x2 -> xs"),
            (pyg.JumpingKnowledge("cat", 6, num_layers=2), "xs -> x"),
            nn.Linear(12, 3),
            nn.LogSoftmax(dim=-1),
        ],
    )
    check(module, weighted=weighted)


class Everything(nn.Module):
    """What people write by hand: skips, concatenation, scaling, parameters, in-place work, shared layers."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(CHANNELS, 6), nn.PReLU())
        self.first = pyg.SAGEConv((6, 6), 6)
        self.second = pyg.GraphConv(6, 6, aggr="mean")
        self.norm = pyg.BatchNorm(6)
        self.alpha = nn.Parameter(torch.ones(1))
        self.gate = nn.Parameter(torch.ones(6))
        self.matrix = nn.Parameter(torch.ones(18, 6))
        self.activation = nn.ReLU(inplace=True)
        self.register_buffer("offset", torch.tensor(0.25))
        self.head = pyg.Linear(12, 4)

    def forward(self, x, edge_index, edge_weight):
        h = self.encoder(x)
        h.sum(dim=0)  # of no consequence
        before = h.clone()
        a = self.first((h, h), edge_index)
        same = a
        self.activation(a)
        a += h * 0.5
        b = self.norm(self.second(same, edge_index, edge_weight)).relu_()
        b = self.gate * b / 2 + self.alpha * before - 1
        b = 3 - b + self.offset
        c = self.second(-b, edge_index, edge_weight=edge_weight).sigmoid()
        joined = torch.cat([a, b.mul(c), torch.maximum(b, c.minimum(a)).detach()], dim=1)
        d = F.normalize(joined @ self.matrix, p=2, dim=-1)
        d = d.sub(before).add(same, alpha=2)
        e = F.linear(d, self.first.lin_r.weight)
        return F.softmax(self.head(torch.cat((d, e), -1)), dim=1)


@cases(
    count=draws(1, 12),
    seed=[0, 1, 2, 3],
)
def test_module_written_by_hand(seed):
    check(Everything(), weighted=True, seed=seed)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "gelu", "silu", "sigmoid", "tanh"])
def test_activations_as_functions_methods_and_layers(name):
    layers = {
        "relu": nn.ReLU(),
        "leaky_relu": nn.LeakyReLU(0.3),
        "elu": nn.ELU(0.7),
        "gelu": nn.GELU("tanh"),
        "silu": nn.SiLU(),
        "sigmoid": nn.Sigmoid(),
        "tanh": nn.Tanh(),
    }

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.SAGEConv(CHANNELS, 4)
            self.layer = layers[name]

        def forward(self, x, edge_index):
            h = getattr(F, name)(self.conv(x, edge_index))
            return self.layer((getattr(h, name)() if hasattr(torch.Tensor, name) else h) - 0.5)

    check(Net())


def test_a_layer_alone_and_a_module_without_convolution():
    check(pyg.GCNConv(CHANNELS, 3), weighted=True)

    class OnlyFeatures(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(CHANNELS, 3)

        def forward(self, x, edge_index):
            return self.linear(x).log_softmax(dim=-1)

    check(OnlyFeatures())


def test_a_module_that_takes_weights_is_called_with_them():
    module = randomize(pyg.GCN(CHANNELS, 4, 2, 3), 1)
    check_graphs(Model.from_pyg(module), module, weighted=True)


@cases(
    count=2,
    weighted=[False, True],
)
def test_improved_gcn_depends_on_whether_weights_are_given(weighted):
    module = pyg.GCN(CHANNELS, 4, 2, 3, improved=True)
    randomize(module, 3)
    model = Model.from_pyg(module, edge_weight=weighted)
    check_graphs(model, module, weighted)
