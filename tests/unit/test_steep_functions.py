"""Steep functions of small differences between sums: they magnify whatever rounding leaves in a sum."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

from livegnn import Engine, Events, Graph, Model
from livegnn.oracle.exactness import judge
from wild import Steep

NODES, WIDTH = 40, 4
MODES = ("eager", "lazy")
FUNCTIONS = ("direction", "logarithm", "power mean", "coefficient of variation")


class Direction(nn.Module):
    """From the mean of the neighbours to the node; none where both are one."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = pyg.SimpleConv("mean")

    def forward(self, x, edge_index):
        return F.normalize(x - self.mean(x, edge_index), dim=-1)


def rows(rng: np.random.Generator, count: int, centre: float = 5.0) -> np.ndarray:
    return rng.normal(centre, 1, (count, WIDTH)).astype(np.float32)


@pytest.mark.parametrize("mode", MODES)
def test_a_node_whose_one_neighbour_is_itself_is_where_its_mean_is(mode: str) -> None:
    rng = np.random.default_rng(1)
    others = np.arange(1, 20)
    src, dst = np.append(others, 0), np.zeros(20, dtype=np.int64)
    graph = Graph.from_edges(src, dst, x=rows(rng, NODES))
    engine = Engine(graph, Model.from_pyg(Direction(), in_channels=WIDTH), threads=1, mode=mode)
    for node in (*others, *others):  # each leaves its rounding in the sum
        engine.apply(Events().set_features(node, rows(rng, 1)))
    engine.predict([0])
    for node in others:
        engine.apply(Events().remove_edges(node, 0))
    engine.apply(Events().set_features(0, rows(rng, 1)))
    assert not engine.predict([0]).any()


@cache
def steep(function: str) -> tuple[nn.Module, Model]:
    torch.manual_seed(0)
    module = Steep(WIDTH, 3, function).eval()
    return module, Model.from_pyg(module, in_channels=WIDTH)


@torch.no_grad()
def computed(module: nn.Module, graph: Graph, dtype: torch.dtype) -> np.ndarray:
    snapshot = graph.snapshot()
    (x,), (edge_index,) = snapshot.x.values(), snapshot.edge_index.values()
    rows: torch.Tensor = module.to(dtype)(torch.from_numpy(x).to(dtype), torch.from_numpy(edge_index))
    return rows.numpy()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("in_degree", [1, 2, 3, 8, 9, 10_000])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_neighbour_changes_of_few_and_of_a_hub(function: str, in_degree: int, mode: str) -> None:
    """The first neighbour is the node itself. Others were there before, and leave their rounding behind."""
    rng = np.random.default_rng(4)
    module, model = steep(function)
    count = in_degree + 12
    graph = Graph.from_edges(np.arange(count), np.zeros(count, dtype=np.int64), x=rows(rng, count))
    engine = Engine(graph, model, threads=1, mode=mode)
    for node in rng.integers(1, count, 40):
        engine.apply(Events().set_features(node, rows(rng, 1)))
    engine.predict([0])
    engine.apply(Events().remove_edges(np.arange(in_degree, count), np.zeros(12, dtype=np.int64)))
    for _ in range(4):
        engine.apply(Events().set_features(rng.integers(in_degree), rows(rng, 1)))
        got, float64 = engine.predict(graph.ids()), computed(module, graph, torch.float64)
        found = judge(got, float64, lambda: computed(module, graph, torch.float32))
        assert found.ok, found


@pytest.mark.parametrize("mode", MODES)
def test_a_direction_has_no_rounding_of_neighbours_that_have_changed(mode: str) -> None:
    """Twelve neighbours, on columns whose mean is a thousand times what they differ by."""
    rng = np.random.default_rng(5)
    x = rows(rng, 13, 1000.0)
    graph = Graph.from_edges(np.arange(1, 13), np.zeros(12, dtype=np.int64), x=x)
    module = Direction()
    engine = Engine(graph, Model.from_pyg(module, in_channels=WIDTH), threads=1, mode=mode)
    for step in range(300):
        engine.apply(Events().set_features(rng.integers(1, 13), rows(rng, 1, 1000.0)))
        got, float64 = engine.predict([0]), computed(module, graph, torch.float64)[:1]
        found = judge(got, float64, lambda: computed(module, graph, torch.float32)[:1])
        assert found.ok, f"batch {step}: {found}"


@cache
def model_of(aggr: str) -> Model:
    torch.manual_seed(0)
    return Model.from_pyg(pyg.SAGEConv(WIDTH, 3, aggr=aggr))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("aggr", ["std", "var"])
def test_the_spread_of_columns_whose_means_are_far_from_0(aggr: str, mode: str) -> None:
    rng = np.random.default_rng(2)
    graph = Graph.from_edges(*rng.integers(0, NODES, (2, 12 * NODES)), x=rows(rng, NODES), parallel="last")
    engine = Engine(graph, model_of(aggr), threads=1, mode=mode)
    parts = []
    for step in range(60):
        src, dst = rng.integers(0, NODES, (2, 2))
        events = Events().set_features(rng.choice(NODES, 2, replace=False), rows(rng, 2))
        engine.apply(events.add_edges(src, dst).remove_edges(*rng.integers(0, NODES, (2, 2))))
        if step % 12 == 11:
            parts.append(engine.verify().part)
    assert max(parts) <= 0.5, parts


def test_neighbours_that_are_alike_have_no_spread() -> None:
    """Of a thousand, around a mean a thousand times as large as what they differ by."""
    rng = np.random.default_rng(3)
    count = 1000
    x = np.full((count + 1, WIDTH), 7.3, dtype=np.float32)
    graph = Graph.from_edges(np.arange(1, count + 1), np.zeros(count, dtype=np.int64), x=x)
    engine = Engine(graph, model_of("std"), threads=1)
    for _ in range(10):
        node = rng.integers(1, count + 1)
        engine.apply(Events().set_features(node, rows(rng, 1)))
        engine.apply(Events().set_features(node, x[:1]))
    assert engine.verify().part <= 1


class Summed(nn.Module):
    """A sum of neighbours, and what reads it."""

    def __init__(self, reads: nn.Module) -> None:
        super().__init__()
        self.sum, self.reads = pyg.SAGEConv(WIDTH, WIDTH, aggr="sum"), reads

    def forward(self, x, edge_index):
        return self.reads(self.sum(x, edge_index))


class Later(nn.Module):
    """A steep function behind another layer."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = pyg.SimpleConv("sum")

    def forward(self, x, edge_index):
        return torch.log1p(self.sum(torch.relu(self.sum(x, edge_index)), edge_index).relu())


@pytest.mark.parametrize(
    ("make", "steep"),
    [
        (lambda: Summed(nn.LayerNorm(WIDTH)), True),
        (lambda: pyg.SAGEConv(WIDTH, 3, normalize=True), True),
        (Direction, True),
        (Later, True),
        (lambda: Summed(nn.ReLU()), False),
        (lambda: pyg.GINConv(nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 3))), False),
    ],
)
def test_nothing_is_left_in_sums_of_few_terms_that_a_steep_function_reads(make, steep: bool) -> None:
    """Bit for bit, those of an engine that was made just now; a gentle function leaves them as they were."""
    torch.manual_seed(0)
    model, rng = Model.from_pyg(make().eval(), in_channels=WIDTH), np.random.default_rng(0)
    target = np.repeat(np.arange(NODES), 6)
    graph = Graph.from_edges(
        rng.integers(0, NODES, target.size), target, x=rows(rng, NODES, 0.0), parallel="last"
    )
    engine = Engine(graph, model, threads=1)
    for _ in range(60):
        graph.apply(Events().set_features(rng.choice(NODES, 2, replace=False), rows(rng, 2, 0.0)))
    again, ids = Engine(Graph.from_state(graph.state()), model, threads=1), graph.ids()
    assert np.array_equal(engine.predict(ids), again.predict(ids)) == steep
