"""Sizes that follow from the last node with an edge, as in ``int(edge_index.max()) + 1``."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import scatter, softmax

from livegnn.errors import ModelError
from livegnn.model import Model
from livegnn.oracle import reference
from modules import fill

N = 4


class Attention(nn.Module):
    """A softmax over in-edges of a number of nodes that it finds by itself."""

    def __init__(self, count) -> None:
        super().__init__()
        self.lin, self.att, self.count = nn.Linear(N, N), nn.Linear(2 * N, 1), count

    def forward(self, x, edge_index):
        source, target = edge_index
        h = self.lin(x)
        logits = self.att(torch.cat([h[source], h[target]], dim=-1)).squeeze(-1)
        alpha = softmax(logits, target, num_nodes=self.count(edge_index))
        return torch.zeros_like(h).index_add_(0, target, alpha[:, None] * h[source])


@pytest.mark.parametrize(
    "count",
    [
        lambda edge_index: None,
        lambda edge_index: int(edge_index.max()) + 1,
        lambda edge_index: edge_index[1].max().item() + 1,
    ],
    ids=["none", "int", "item"],
)
def test_a_softmax_over_the_nodes_up_to_the_last_with_an_edge(count):
    module = fill(Attention(count), 1).eval()
    model = Model.from_pyg(module)
    random = np.random.default_rng(0)
    x, ends = random.standard_normal((9, N)).astype(np.float32), random.integers(0, 6, (2, 14))
    kind = ("node", "to", "node")
    graph = reference.GraphArrays({"node": x}, {kind: ends}, {kind: np.ones(14, np.float32)}, {})
    with torch.no_grad():
        expected = copy.deepcopy(module).double()(torch.from_numpy(x).double(), torch.from_numpy(ends))
    got = reference.compute(model, graph)[model.output]
    np.testing.assert_allclose(got, expected.numpy(), rtol=0, atol=1e-6)


class Summed(nn.Module):
    def __init__(self, after) -> None:
        super().__init__()
        self.conv, self.after = pyg.SAGEConv(N, N), after

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return self.after(scatter(h[edge_index[0]], edge_index[1], dim=0), h, edge_index)


def test_rows_up_to_the_last_node_may_be_gathered_by_its_edges():
    model = Model.from_pyg(Summed(lambda rows, h, e: rows[e[1]] - h[e[0]]).eval())
    assert list(model.edge_outputs) == ["output"]


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (lambda rows, h, e: rows, r"no rows for the last nodes.*num_nodes=x\.size\(0\)"),
        (lambda rows, h, e: h * len(rows), "the number of nodes is computed with"),
        (lambda rows, h, e: h + int(e.max()), "the number of nodes is computed with|depends on data"),
    ],
)
def test_numbers_of_nodes_that_differ_are_refused(after, message):
    with pytest.raises(ModelError, match=rf"(?s)Summed\.forward.*({message})"):
        Model.from_pyg(Summed(after).eval())


def test_int_is_as_before_after_an_import():
    Model.from_pyg(Attention(lambda edge_index: int(edge_index.max()) + 1).eval())
    assert "int" not in globals()
    assert not hasattr(softmax, "int")
