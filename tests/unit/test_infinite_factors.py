"""A factor of the target that is infinite gives what a sum of infinite messages gives: infinity or NaN."""

import numpy as np
import pytest
import torch
from torch_geometric import nn as pyg
from torch_geometric.utils import degree, remove_self_loops

from livegnn import Engine, Events, Graph, Model

X = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
SOURCE, TARGET = np.array([0, 1, 0, 1, 2, 4, 2]), np.array([1, 0, 2, 3, 3, 5, 4])


class Normed(pyg.MessagePassing):
    """Messages times a function of the degrees of both ends, as many write it by hand."""

    def __init__(self, factor, message) -> None:
        super().__init__(aggr="add")
        self.factor, self.does = factor, message

    def forward(self, x, edge_index):
        edge_index, _ = remove_self_loops(edge_index)
        return self.propagate(edge_index, x=self.does(x), ends=edge_index, size=(x.size(0), x.size(0)))

    def message(self, x_j, ends, size_i):
        return self.factor(ends, size_i)[:, None] * x_j


def roots(ends, nodes):
    root = degree(ends[0], nodes).pow(-0.5)
    return root[ends[0]] * root[ends[1]]


def inverse_roots(ends, nodes):
    return degree(ends[0], nodes).rsqrt()[ends[1]]


def shares(ends, nodes):
    return 1 / degree(ends[0], nodes)[ends[1]]


def of_arriving(ends, nodes):
    return degree(ends[1], nodes).pow(-1.0)[ends[1]]


CASES = {
    "both signs": (roots, lambda x: x),
    "zeros": (shares, torch.relu),
    "one sign": (inverse_roots, lambda x: -torch.exp(x)),
}


@pytest.mark.parametrize("case", CASES)
def test_degrees_of_zero_give_what_the_module_gives(case):
    module = Normed(*CASES[case])
    graph = Graph.from_edges(SOURCE, TARGET, x=X)
    engine = Engine(graph, Model.from_pyg(module, in_channels=3), non_finite="allow")
    edges = list(zip(SOURCE.tolist(), TARGET.tolist(), strict=True))

    def agree() -> None:
        expected = module(torch.from_numpy(X), torch.tensor(edges).T)
        np.testing.assert_allclose(engine.predict(np.arange(6)), expected, rtol=1e-4, atol=1e-5)

    agree()
    for gone, new in (((2, 3), (3, 5)), ((0, 2), (5, 0)), ((3, 5), (2, 5))):
        engine.apply(Events().remove_edges([gone[0]], [gone[1]]).add_edges([new[0]], [new[1]]))
        edges.remove(gone)
        edges.append(new)
        agree()


def test_what_is_finite_wherever_messages_arrive_costs_no_second_sum():
    steps = Model.from_pyg(Normed(of_arriving, lambda x: x), in_channels=3).steps
    assert [one.op for one in steps].count("propagate") == 1
