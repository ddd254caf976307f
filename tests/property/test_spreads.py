"""Spreads and distances of columns whose means are far from 0, against PyG in float64.

A variance that is a difference of two large sums, or a distance whose ends were summed apart, magnifies what
rounding leaves in them: on columns whose mean is thousands of times their standard deviation nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import degree, softmax

from gate import draws, some
from livegnn import Engine, Events, Graph, Model
from livegnn.oracle.exactness import Verification, judge

WIDTH, OUT = 4, 3
BATCHES = draws(36, 200)
MODES = ("eager", "lazy")


class OfNeighbors(nn.Module):
    """Moments of neighbours as people write them, from means over edges."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self.function, self.mean, self.sum = function, pyg.SimpleConv("mean"), pyg.SimpleConv("sum")

    def forward(self, x, edge_index):
        mean = self.mean(x, edge_index)
        if self.function == "distance to the mean":
            return x - mean
        if self.function == "Laplacian":
            return x * self.sum(torch.ones_like(x), edge_index) - self.sum(x, edge_index)
        variance = self.mean(x * x, edge_index) - mean * mean
        if self.function == "variance":
            return variance
        deviation = (variance.relu() + 1e-5).sqrt()
        if self.function == "coefficient of variation":
            return deviation / (mean.abs() + 0.1)
        return (x - mean) / deviation


class Unbiased(pyg.MessagePassing):
    """The deviation whose variance divides by one edge less, from sums."""

    def __init__(self, form: str) -> None:
        super().__init__(aggr="sum")
        self.form = form

    def forward(self, x, edge_index):
        number = degree(edge_index[1], x.size(0)).unsqueeze(-1)
        count, sums = number.clamp(min=1), self.propagate(edge_index, x=x)
        mean = sums / count
        share = {
            "sum * sum / count": lambda: sums * sums / count,
            "sum ** 2 / count": lambda: sums**2 / count,
            "sum * mean": lambda: sums * mean,
            "count * mean * mean": lambda: number * mean * mean,
            "count * mean ** 2": lambda: count * mean**2,
        }[self.form]()
        variance = (self.propagate(edge_index, x=x * x) - share) / (number - 1).clamp(min=1)
        return (variance.relu() + 1e-5).sqrt()

    def message(self, x_j):
        return x_j


UNBIASED = ("sum * sum / count", "sum ** 2 / count", "sum * mean", "count * mean * mean", "count * mean ** 2")


class OfDistances(pyg.MessagePassing):
    """A mean of powers of distances, to the mean of the neighbours or to the target."""

    def __init__(self, power: int, origin: str, *, squared_norm: bool = False) -> None:
        super().__init__(aggr="mean")
        self.power, self.origin, self.squared_norm = power, origin, squared_norm
        self.mean = pyg.SimpleConv("mean")

    def forward(self, x, edge_index):
        origin = x if self.origin == "target" else self.mean(x, edge_index)
        return self.propagate(edge_index, x=x, origin=origin)

    def message(self, x_j, origin_i):
        distance = x_j - origin_i
        if self.squared_norm:
            return distance.pow(2).sum(-1, keepdim=True)
        return (distance, distance * distance, distance * distance * distance)[self.power - 1]


class OfAttention(pyg.MessagePassing):
    """The variance of an attentive mean: of distances from it, or of squares."""

    def __init__(self, *, of_squares: bool) -> None:
        super().__init__(aggr="add")
        self.gate, self.of_squares = nn.Linear(WIDTH, 1), of_squares

    def forward(self, x, edge_index):
        gate = torch.tanh(self.gate(x) * 1e-3)
        mean = self.propagate(edge_index, x=x, gate=gate, origin=torch.zeros_like(x), power=1)
        if self.of_squares:
            squares = self.propagate(edge_index, x=x * x, gate=gate, origin=torch.zeros_like(x), power=1)
            return squares - mean * mean
        return self.propagate(edge_index, x=x, gate=gate, origin=mean, power=2)

    def message(self, x_j, gate_j, origin_i, index, ptr, size_i, power: int):
        weight = softmax(gate_j, index, ptr, size_i)
        if power == 1:
            return weight * x_j
        return weight * (x_j - origin_i) * (x_j - origin_i)


class Normed(nn.Module):
    """Rows of which a norm reads nothing but how their channels differ."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm = conv, nn.LayerNorm(WIDTH)

    def forward(self, x, edge_index):
        return self.norm(self.conv(x, edge_index))


class Shifted(nn.Module):
    """Means over edges, of which a bias takes what they have in common."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv, self.shift = conv, nn.Parameter(torch.zeros(WIDTH))

    def centre(self, centre: float) -> None:
        with torch.no_grad():
            rows = self.conv(torch.full((2, WIDTH), centre), torch.tensor([[0, 1], [1, 0]]))
            self.shift.copy_(-rows[0])

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) + self.shift


SPREADS: dict[str, Callable[[], nn.Module]] = {
    "std": lambda: pyg.SAGEConv(WIDTH, OUT, aggr="std"),
    "var": lambda: pyg.SAGEConv(WIDTH, OUT, aggr="var"),
    "PNA": lambda: pyg.PNAConv(
        WIDTH,
        OUT,
        ["mean", "max", "std", "var"],
        ["identity", "amplification"],
        deg=torch.tensor([1, 4, 9, 4]),
    ),
    **{
        name: lambda name=name: OfNeighbors(name)
        for name in ("variance", "coefficient of variation", "norm over neighbours", "distance to the mean")
    },
    **{f"unbiased, {form}": lambda form=form: Unbiased(form) for form in UNBIASED},
    "squared distances to the mean": lambda: OfDistances(2, "mean"),
    "distances to the target": lambda: OfDistances(1, "target"),
    "squared distances to the target": lambda: OfDistances(2, "target"),
    "cubes of distances to the target": lambda: OfDistances(3, "target"),
    "squared norms": lambda: OfDistances(2, "target", squared_norm=True),
    "attention, distances": lambda: OfAttention(of_squares=False),
    "attention, squares": lambda: OfAttention(of_squares=True),
}
NORMS: dict[str, Callable[[], nn.Module]] = {
    "norm of means": lambda: Normed(pyg.SimpleConv("mean")),
    "norm of sums": lambda: Normed(pyg.SimpleConv("sum")),
    "shifted means": lambda: Shifted(pyg.SAGEConv(WIDTH, WIDTH)),
    "shifted attention": lambda: Shifted(pyg.GATConv(WIDTH, WIDTH, heads=2, concat=False)),
}
CENTRES = (5.0, 1000.0, 10_000.0)
"""Means of columns whose standard deviation is 1."""

DIFFERENCES: dict[str, Callable[[], nn.Module]] = {"Laplacian": lambda: OfNeighbors("Laplacian")}
"""Other small differences of sums that are kept up to date."""


@cache
def module_of(name: str, centre: float) -> nn.Module:
    torch.manual_seed(0)
    module = (SPREADS | DIFFERENCES | NORMS)[name]().eval()
    if isinstance(module, Shifted):
        module.centre(centre)
    return module


@cache
def model_of(name: str, centre: float) -> Model:
    return Model.from_pyg(module_of(name, centre), in_channels=WIDTH)


class Stream:
    """A graph and batches that change features, edges and nodes; what PyG says of it beside."""

    def __init__(self, centre: float, nodes: int, edges: int) -> None:
        self.centre, self.nodes, self.rng = centre, nodes, np.random.default_rng(nodes)
        src, dst = self.rng.integers(0, nodes, (2, edges))
        self.graph = Graph.from_edges(src, dst, x=self._rows(nodes), parallel="last")

    def _rows(self, count: int) -> np.ndarray:
        return self.rng.normal(self.centre, 1, (count, WIDTH)).astype(np.float32)

    def batches(self) -> Iterator[Events]:
        rng, nodes = self.rng, self.nodes
        for step in range(BATCHES):
            events = Events().set_features(rng.choice(nodes, 2, replace=False), self._rows(2))
            events.add_edges(*rng.integers(0, nodes, (2, 2)))
            events.remove_edges(*rng.integers(0, nodes, (2, 2)))
            if step % 6 == 5:  # a node goes, and comes again among others
                events.remove_nodes([node := int(rng.integers(nodes))])
                events.add_nodes([node], self._rows(1)).add_edges(rng.integers(0, nodes, 4), [node] * 4)
            yield events

    def judge(self, name: str, got: np.ndarray) -> Verification:
        snapshot = self.graph.snapshot()
        (x,), (edge_index,) = snapshot.x.values(), snapshot.edge_index.values()

        def computed(dtype: torch.dtype) -> np.ndarray:
            with torch.no_grad():
                rows = module_of(name, self.centre).to(dtype)(
                    torch.from_numpy(x).to(dtype), torch.from_numpy(edge_index)
                )
            return rows.numpy()

        return judge(got, computed(torch.float64), lambda: computed(torch.float32))


def follow(name: str, mode: str, centre: float, most: tuple[int, int] = (13, 400)) -> None:
    """On nodes with few neighbours, and on nodes that have nearly all of the others.

    most: the numbers of these nodes and of their edges.
    """
    for nodes, edges in ((40, 80), most):
        stream = Stream(centre, nodes, edges)
        engine = Engine(stream.graph, model_of(name, centre), threads=1, mode=mode)
        for step, events in enumerate(stream.batches()):
            looks = step % 4 == 3
            after = engine.what_if(events).predict(np.arange(nodes)) if looks else None
            engine.apply(events)
            if after is None:
                continue
            ids = stream.graph.ids()
            for when, got in (("applied", engine.predict(ids)), ("what if", after[ids])):
                found = stream.judge(name, got)
                assert found.ok, f"{nodes} nodes, batch {step}, {when}: {found}"
        verification = engine.verify()
        assert verification.ok, f"{nodes} nodes: {verification}"


@pytest.mark.parametrize(("name", "mode", "centre"), some(product(SPREADS, MODES, CENTRES)))
def test_spreads_are_exact_however_far_means_are_from_0(name: str, mode: str, centre: float) -> None:
    follow(name, mode, centre)


@pytest.mark.parametrize(("name", "mode", "centre"), some(product(NORMS, MODES, CENTRES)))
def test_norms_of_sums_are_exact_however_far_means_are_from_0(name: str, mode: str, centre: float) -> None:
    follow(name, mode, centre, most=(50, 5000))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DIFFERENCES)
def test_other_differences_are_exact_thirty_deviations_from_0(name: str, mode: str) -> None:
    follow(name, mode, 30.0)
