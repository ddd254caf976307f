"""Operators that the reader takes: each after a convolution, by the engine and in torch."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.utils import degree, scatter

import livegnn as lg
from gate import draws
from livegnn.errors import ModelError

WIDTH = 4
Function = Callable[[Tensor], Tensor]


class After(nn.Module):
    """Functions of the rows that a convolution makes, side by side."""

    def __init__(self, *functions: Function) -> None:
        super().__init__()
        self.conv, self.functions = pyg.SAGEConv(WIDTH, WIDTH), functions
        self.parts = nn.ModuleList([one for one in functions if isinstance(one, nn.Module)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv(x, edge_index)
        return torch.cat([function(h).flatten(1) for function in self.functions], dim=1)


def data() -> Data:
    random = torch.Generator().manual_seed(1)
    ends = torch.unique(torch.randint(9, (2, 30), generator=random), dim=1)
    return Data(2 * torch.randn(9, WIDTH, generator=random), ends)


class Convolved(nn.Module):
    """A convolution over the channels of each row, as two rows of twelve."""

    def __init__(self, **settings: object) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 3, **settings)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x.view(-1, 2, 2).repeat(1, 1, 6)).flatten(1)


def of_small(function: Function) -> Function:
    return lambda x: function(x / 10)


def of_sizes(function: Function) -> Function:
    return lambda x: function(x.abs() + 1)


def of_two(function: Callable[[Tensor, Tensor], Tensor]) -> Function:
    return lambda x: function(x, x.roll(1, 1))


PLAIN = (
    *(torch.tan, torch.atan, torch.sinh, torch.cosh, torch.asinh, torch.exp2, torch.erfc),
    *(torch.trunc, torch.frac, torch.square, torch.celu, torch.sinc),
)
PAIRS = (torch.atan2, torch.hypot, torch.fmax, torch.fmin, torch.fmod, torch.logaddexp)
FUNCTIONS: dict[str, Function] = {
    **{function.__name__: function for function in PLAIN},
    **{
        f"{function.__name__} of a few": of_small(function)
        for function in (torch.asin, torch.acos, torch.atanh)
    },
    **{
        f"{function.__name__} of sizes": of_sizes(function)
        for function in (torch.acosh, torch.log2, torch.log10)
    },
    **{function.__name__: of_two(function) for function in PAIRS},
    "fmax with NaN": lambda x: torch.fmax(x.log(), x.roll(1, 1)),
    "fmin with NaN": lambda x: torch.fmin(x, x.roll(1, 1).log()),
    "min of channels": lambda x: x.view(-1, 2, 2).min(1).values,
    "max of channels": lambda x: x.view(-1, 2, 2).max(2).values,
    "division, truncated": lambda x: torch.div(x, 0.7, rounding_mode="trunc"),
    "and": lambda x: (x > 0) & (x.long() != 1),
    "exclusive or": lambda x: (x > 0) ^ (x < 1),
    "logic of numbers": lambda x: torch.logical_xor(x.long(), x > 0).logical_or(x.long().logical_not()),
    "running sum": lambda x: x.view(-1, 2, 2).cumsum(2).flatten(1).cumsum(1),
    "roll": lambda x: x.roll(1, 1),
    "group norm": nn.GroupNorm(2, WIDTH),
    "group norm of two axes": lambda x: F.group_norm(x.view(-1, 2, 2), 1, torch.tensor([2.0, 3.0]).to(x)),
    "convolution": Convolved(kernel_size=3),
    "convolution, padding": Convolved(kernel_size=3, padding=2, bias=False),
    "convolution, stride, dilation": Convolved(kernel_size=2, stride=3, dilation=2),
}


AT_ONCE = draws(9, 1)
"""Operators in one module: an import takes longer than all of them."""


@pytest.mark.parametrize("first", range(0, len(FUNCTIONS), AT_ONCE), ids=lambda first: [*FUNCTIONS][first])
def test_an_operator_says_what_torch_says(first: int) -> None:
    torch.manual_seed(0)
    names = [*FUNCTIONS][first : first + AT_ONCE]
    module, graph = After(*(FUNCTIONS[name] for name in names)).eval(), data()
    engine = lg.Engine(lg.Graph.from_pyg(graph), lg.Model.from_pyg(module, graph))
    with torch.no_grad():
        expected = module.double()(graph.x.double(), graph.edge_index).reshape(9, -1)
    np.testing.assert_allclose(
        engine.predict(range(9)), expected, rtol=1e-4, atol=1e-5, err_msg=f"side by side: {names}"
    )


DIVISORS = (3.0, 7.0, 41.0, 49.0, -41.0, 0.1, 8.0, 1e7)
STEEP: dict[str, Function] = {
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "int": lambda x: x.long().float(),
    "at least one": lambda x: x >= 1,
    "one": lambda x: x == 1,
    "floor of a sum": lambda x: torch.floor(x + 1),
    "floor of a part": lambda x: torch.floor(torch.relu(x)),
    "remainder": lambda x: x.remainder(1),
}


class Quotients(nn.Module):
    """Steep functions of columns divided by a number each, and by all numbers of a row."""

    def forward(self, x: Tensor, edge_index: Tensor) -> dict[str, Tensor]:
        h = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        columns = list(zip(h.unbind(1), DIVISORS, strict=True))
        by_number = torch.stack([column / divisor for column, divisor in columns], 1)
        truncated = [torch.div(column, divisor, rounding_mode="trunc") for column, divisor in columns]
        found = {name: function(by_number).float() for name, function in STEEP.items()}
        of_rows = {
            f"{name}, a row": function(h / torch.tensor(DIVISORS)).float() for name, function in STEEP.items()
        }
        return {**found, **of_rows, "truncated": torch.stack(truncated, 1)}


def test_a_quotient_is_what_a_division_says() -> None:
    # A product with the inverse is one bit less where the quotient is whole, and a floor makes one of it.
    times = torch.tensor([-1023.0, -5.0, -1.0, 0.0, 1.0, 2.0, 3.0, 7.0, 41.0, 1021.0]).unsqueeze(1)
    x = times * torch.tensor(DIVISORS)
    module, loops = Quotients().eval(), torch.arange(10).repeat(2, 1)
    graph = Data(x, loops)
    engine = lg.Engine(lg.Graph.from_pyg(graph), lg.Model.from_pyg(module, graph))
    for name, expected in module(x, loops).items():
        np.testing.assert_array_equal(engine.predict(range(10), output=name), expected, err_msg=name)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.cumsum(0), "order of the rows"),
        (lambda x: x.sort(1).values, "sorted"),
        (lambda x: x.long() & 1, "use comparisons, or a remainder"),
        (lambda x: torch.bincount(x.long().abs()[:, 0], minlength=x.size(0)).unsqueeze(1), "utils.degree"),
        (lambda x: x.T.unsqueeze(0).cumsum(2)[0].T, "order of the rows"),
        (lambda x: F.conv1d(x.T.unsqueeze(0), torch.ones(1, WIDTH, 1).to(x))[0].T, "convolution"),
    ],
    ids=["rows", "sorted", "bits", "counted", "rows in another axis", "convolution over rows"],
)
def test_what_reaches_over_rows_is_refused(function: Function, reason: str) -> None:
    module = After(function)
    with pytest.raises(ModelError, match=reason):
        lg.Model.from_pyg(module, data())


class Normalised(nn.Module):
    """A sum whose weights are made of the degrees of both ends, and 0 where they are infinite."""

    def __init__(self, weigh: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.weigh = weigh

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        out, into = (degree(ends, len(x)) for ends in (source, target))
        weight = self.weigh(out[source], into[target])
        weight = weight.masked_fill(weight == float("inf"), 0)
        return scatter(weight[:, None] * x[source], target, 0, dim_size=len(x))


@pytest.mark.parametrize(
    "weigh",
    [
        lambda out, into: 1 / (out * into).sqrt(),
        lambda out, into: (out * into).pow(-0.5),
        lambda out, into: 1 / (out * into),
        lambda out, into: 1 / (out + into - 2),
    ],
)
def test_weights_of_both_degrees_are_made_on_edges(weigh: Callable[[Tensor, Tensor], Tensor]) -> None:
    given, module = data(), Normalised(weigh)
    graph = lg.Graph.from_pyg(given)
    engine = lg.Engine(graph, lg.Model.from_pyg(module, given))
    for events in (lg.Events(), lg.Events().add_edges([0, 1], [8, 8]), lg.Events().remove_nodes([8])):
        engine.apply(events)
        now = graph.snapshot()
        x, edge_index = (
            torch.from_numpy(now.x["node"]),
            torch.from_numpy(now.edge_index["node", "to", "node"]),
        )
        np.testing.assert_allclose(
            engine.predict(graph.ids()), module(x, edge_index.long()), rtol=1e-5, atol=1e-5
        )
        assert engine.verify().ok
