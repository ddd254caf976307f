"""What float32 cannot say is refused with its line, or guarded; what it can say is imported."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import degree

from livegnn import Engine, Events, Graph, InputError, Model, ModelError

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


def divided_by_a_tenth(x, edge_index):
    return (x.double() / 0.1).floor().float()


def differences(x, edge_index):
    return (x.sigmoid().double() * 0.1 - x.tanh().double() * 0.3).float()


def reciprocals_of_products(x, edge_index):
    return (1 / (x.double() * x.double())).float()


def levels(x, edge_index):
    return degree(edge_index[1], x.shape[0])[:, None].double().log2().float().floor() * x


def hashed_degree(x, edge_index):
    number = degree(edge_index[1], x.shape[0], dtype=torch.long)
    return (number * 2654435761 % 1000)[:, None].float() * x[:, 1:]


def shifted(x, edge_index):
    return ((x[:, :1].long() + 2654435761) % 64).float()


def summed(x, edge_index):
    numbers = x[:, 0].long()
    return (numbers.new_zeros(len(x)).index_add(0, edge_index[1], numbers[edge_index[0]]) % 7)[
        :, None
    ].float()


def counted_remainders(x, edge_index):
    return (x.long() * 1000003 % 97 > 5).sum(1, keepdim=True).float()


def large_numbers_compared(x, edge_index):
    return (x[:, :1].long() * 3 > x[:, 1:].long() * 5).float()


def bytes_of_any_size(x, edge_index):
    return (x[:, :1].to(torch.uint8) * 2).float()


REFUSED = {
    cosine: "cos is computed in float64",
    spread: "computed in float64",
    sum_in_double: "sum is computed in float64",
    compared_in_double: "gt is computed in float64",
    divided_by_a_tenth: "floor is computed in float64 here, .*rounded .div in float64.",
    differences: "sub is computed in float64 here, .*nearly opposite",
    reciprocals_of_products: "reciprocal is computed in float64 .*may not reach as far",
    levels: "floor takes digits .*log2 in float64",
    hashed_degree: "remainder takes the last digits .*because of (a product|2,654,435,761)",
    shifted: "the whole number 2654435761 meets rows of a graph",
    summed: r"remainder takes the last digits .*because of a sum along edges",
    counted_remainders: "sum reads whole numbers that may be too large .*because of a product",
    large_numbers_compared: "gt takes the last digits of whole numbers .*because of a product",
    bytes_of_any_size: "numbers become torch.uint8",
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


def scaled_by_degrees(x, edge_index):
    number = degree(edge_index[1], x.shape[0])[:, None].double()
    inverse = number.pow(-0.5)
    inverse = inverse.masked_fill(inverse == float("inf"), 0)
    return torch.cat([x * inverse.float(), (number + 1).log().float(), x / number.clamp(min=1).float()], 1)


def products_in_double(x, edge_index):
    return (x.double() * x[:, 1:].double()).float().floor()


def halves_in_double(x, edge_index):
    return torch.where(x.double() > 0.5, x.double().floor(), -x.double()).float()


def bytes_of_tests(x, edge_index):
    return ((x > 0).to(torch.uint8) * 2 + 1).float()


def hours(x, edge_index):
    return (x[:, :1].long() // 3600).float()


def small_hashes(x, edge_index):
    return ((x[:, 1:] * 4).long().clamp(-100, 100) * 1003 % 97).float()


def parts_of_none(x, edge_index):
    return 1 / (x[:, 1:] / 100).long().float()


IMPORTED = (
    *(squares, moved, parity, kinds, weekdays, counted_tests, scaled_by_degrees, products_in_double),
    *(halves_in_double, bytes_of_tests, hours, small_hashes, parts_of_none),
)


def hashed(x, edge_index):
    return ((x.long() * 1000003) % 97).float()


def powers(x, edge_index):
    return (x.long() ** 2 % 13).float()


def shares(x, edge_index):
    return torch.div(x.long() * 3, 7, rounding_mode="floor").float() - x * 3 / 7


def differences_of_products(x, edge_index):
    return (x.long() * 1000003 - x.long() * 1000002).float()


def parts(x, edge_index):
    return torch.div(x.long(), 7, rounding_mode="trunc").float()


def looked_up(x, edge_index):
    place = x[:, 0].long() * 5 + x[:, 1].long()
    return torch.linspace(0, 1, 30)[place.clamp(0, 29)][:, None] * x


def compared(x, edge_index):
    code = x[:, :1].long() * 10 + x[:, 1:].long()
    return torch.where((code == 12) | ~(code > 3).view(-1, 1), 1.0, x * (code != 7))


GUARDED = {
    hashed: 16,
    powers: 4000,
    shares: 5_000_000,
    differences_of_products: 16,
    parts: 16_000_000,
    looked_up: 5,
    compared: 4,
}
"""Functions of whole numbers -> a number of which every digit counts that float32 has."""
LARGE = 40_000_001.0


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


@pytest.mark.parametrize("function", GUARDED)
def test_whole_numbers_are_right_or_not_numbers(function):
    module, most = Layer(function), GUARDED[function]
    x = np.column_stack([RNG.integers(-most, most + 1, NODES), RNG.integers(0, 5, NODES)]).astype(np.float32)
    model = Model.from_pyg(module, in_channels=2)
    engine = Engine(Graph.from_edges(SOURCE, TARGET, x=x, parallel="keep"), model, non_finite="allow")
    edges = torch.from_numpy(np.stack([SOURCE, TARGET]))
    np.testing.assert_allclose(
        engine.predict(range(NODES)), module(torch.from_numpy(x), edges), rtol=1e-4, atol=1e-4
    )
    engine.apply(Events().add_nodes([0], np.array([[LARGE, -LARGE]])))
    x[0] = LARGE, -LARGE
    got, expected = engine.predict(range(NODES)), module(torch.from_numpy(x), edges).numpy()
    right = np.isclose(got, expected, rtol=1e-4, atol=1e-4)
    assert (right | np.isnan(got)).all()


def test_an_event_with_too_large_a_whole_number_is_refused():
    engine = Engine(
        Graph.from_edges(SOURCE, TARGET, x=np.ones((NODES, 2)), parallel="keep"),
        Model.from_pyg(Layer(hashed), in_channels=2),
    )
    with pytest.raises(InputError, match="infinite or not a number"):
        engine.apply(Events().add_nodes([int(SOURCE[0])], np.array([[LARGE, 0]])))
