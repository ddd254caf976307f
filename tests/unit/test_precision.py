"""What float32 cannot say is refused with its line; whole numbers and casts that it can say are imported."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import degree

from livegnn import Engine, Graph, Model, ModelError

NODES = 9
RNG = np.random.default_rng(1)
SOURCE, TARGET = RNG.integers(0, NODES, (2, 30))
X = np.column_stack([1.7e9 + RNG.integers(0, 10**6, NODES), RNG.standard_normal(NODES)]).astype(np.float32)


def cosine(x, edge_index):
    return torch.cos(x[:, :1].double() * 0.001).float()


def spread(x, edge_index):
    return x.double().std(dim=1, keepdim=True).float() * x[:, 1:]


def sum_in_double(x, edge_index):
    return (x.sum(1, keepdim=True, dtype=torch.float64) - x[:, :1].double()).float()


def compared_in_double(x, edge_index):
    return (x[:, 1:].double() > 0.1).float()


def hashed(x, edge_index):
    return ((x[:, :1].long() * 1000003) % 97).float()


def hashed_degree(x, edge_index):
    number = degree(edge_index[1], x.shape[0], dtype=torch.long)
    return (number * 2654435761 % 1000)[:, None].float() * x[:, 1:]


def powers(x, edge_index):
    return (x[:, :1].long() ** 2 % 13).float()


def shifted(x, edge_index):
    return ((x[:, :1].long() + 2654435761) % 64).float()


def summed(x, edge_index):
    numbers = x[:, 0].long()
    return (numbers.new_zeros(len(x)).index_add(0, edge_index[1], numbers[edge_index[0]]) % 7)[
        :, None
    ].float()


def shares(x, edge_index):
    return torch.div(x[:, :1].long() * 3, 7, rounding_mode="floor").float() - x[:, :1] * 3 / 7


REFUSED = {
    cosine: "mul is computed in float64",
    spread: "computed in float64",
    sum_in_double: "sum is computed in float64|computed in float64",
    compared_in_double: "gt is computed in float64",
    hashed: r"remainder takes the last digits .*because of a product",
    hashed_degree: "remainder takes the last digits .*because of (a product|2,654,435,761)",
    powers: "remainder takes the last digits .*because of a product",
    shifted: "remainder takes the last digits .*because of 2,654,435,761",
    summed: "remainder takes the last digits .*because of a (scatter|index)_add",
    shares: "div takes the last digits|floor_divide takes the last digits",
}


def moved(x, edge_index):
    return x.double()[:, 1:].contiguous().float() + x[:, 1:].to(torch.float64).view(-1, 1).float()


def parity(x, edge_index):
    return (degree(edge_index[1], x.shape[0], dtype=torch.long) % 2)[:, None].float() * x[:, 1:]


def kinds(x, edge_index):
    return nn.functional.one_hot((x[:, 0] % 4).long() + 1, 6).float()


def weekdays(x, edge_index):
    return (x[:, 1:].mul(1000).long() % 7).float()


def counted_tests(x, edge_index):
    return ((x > 0).sum(1, keepdim=True) % 2).float()


def squares(x, edge_index):
    return ((x[:, 1:] * 100).long() ** 2).float()


IMPORTED = (squares, moved, parity, kinds, weekdays, counted_tests)


class Layer(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function, self.conv = function, pyg.SimpleConv("sum")

    def forward(self, x, edge_index):
        return self.conv(self.function(x, edge_index), edge_index)


@pytest.mark.parametrize("function", REFUSED)
def test_what_float32_cannot_say_is_refused_with_its_line(function):
    with pytest.raises(ModelError, match=REFUSED[function]):
        Model.from_pyg(Layer(function), in_channels=2)


@pytest.mark.parametrize("function", IMPORTED)
def test_what_float32_can_say_is_imported(function):
    module = Layer(function)
    graph = Graph.from_edges(SOURCE, TARGET, x=X, parallel="keep")
    got = Engine(graph, Model.from_pyg(module, in_channels=2)).predict(range(NODES))
    expected = module(torch.from_numpy(X), torch.from_numpy(np.stack([SOURCE, TARGET])))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_module_in_float64_is_imported():
    module = Layer(lambda x, edge_index: torch.cos(x)).double()
    module.weight = nn.Parameter(torch.ones(2, dtype=torch.float64))
    module.function = lambda x, edge_index: torch.cos(x) * module.weight
    assert Model.from_pyg(module, in_channels=2).inputs
