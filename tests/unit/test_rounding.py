"""What was large once leaves nothing behind, whatever came and went: in sums, in bounds and in contexts."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn import Engine, Events, Graph, Model
from mirror import frozen

TIME = 1.7e9
LARGEST = np.float32(3e38)


class Network(nn.Module):
    """One layer or two, with what may stand before and behind them."""

    def __init__(self, *convolutions: nn.Module, head: nn.Module | None = None) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(convolutions)
        self.head = head

    def forward(self, x, edge_index):
        for position, convolution in enumerate(self.convolutions):
            x = convolution(x if position == 0 else x.relu(), edge_index)
        return x if self.head is None else self.head(x)


class Weighted(nn.Module):
    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x, edge_index, edge_weight):
        return self.convolution(x, edge_index, edge_weight)


def edges(rng: np.random.Generator, nodes: int, count: int) -> np.ndarray:
    """Both ends of some edges, each once."""
    return np.stack(np.divmod(rng.choice(nodes * nodes, count, replace=False), nodes))


def in_float64(module: nn.Module, graph: Graph, *, weighted: bool = False) -> np.ndarray:
    """What the framework says of the graph as it is, in float64."""
    snapshot = graph.snapshot()
    (x,), (edge_index,) = snapshot.x.values(), snapshot.edge_index.values()
    (weight,) = snapshot.weight.values()
    given = [torch.from_numpy(x.astype(np.float64)), torch.from_numpy(edge_index.copy())]
    if weighted:
        given.append(torch.from_numpy(weight.astype(np.float64)))
    with torch.no_grad():
        out: np.ndarray = module.double()(*given).numpy()
    module.float()
    return out


def worst(module: nn.Module, engine: Engine, *, weighted: bool = False) -> float:
    """The largest difference to the framework in float64, as a part of its channel's scale."""
    expected = in_float64(module, engine.graph, weighted=weighted)
    got = engine.embeddings(-1)
    if not np.isfinite(got).all():
        return float("inf")
    scale = np.abs(expected).max(axis=0)
    found = np.abs(got - expected).max(axis=0)
    return float((found / np.where(scale > 0, scale, 1)).max())


POISONED = {
    "sage": lambda i, o: pyg.SAGEConv(i, o, aggr="sum"),
    "graph": pyg.GraphConv,
    "gin": lambda i, o: pyg.GINConv(nn.Linear(i, o)),
    "agnn": lambda i, o: pyg.AGNNConv(),
}
SETTINGS = {
    "eager": {},
    "lazy": {"mode": "lazy"},
    "aggregates": {"keep": "aggregates"},
    "degree": {"keep_degree": 2},
}


@cache
def poisoned(kind: str, layers: int) -> tuple[nn.Module, Model]:
    torch.manual_seed(0)
    module = Network(*(POISONED[kind](2, 2) for _ in range(layers))).eval()
    return module, Model.from_pyg(module, in_channels=2)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(
    ("kind", "setting"),
    # Attention keeps every row, whatever its degree.
    [(kind, setting) for kind in POISONED for setting in SETTINGS if (kind, setting) != ("agnn", "degree")],
)
def test_what_overflowed_once_does_not_stay(kind, layers, setting):
    module, model = poisoned(kind, layers)
    src, dst = np.array([0, 1, 2, 2]), np.array([2, 2, 3, 1])
    graph = Graph.from_edges(src, dst, x=np.ones((4, 2), np.float32))
    engine = Engine(graph, model, non_finite="allow", **SETTINGS[setting])
    for value in (LARGEST, -LARGEST, LARGEST, np.float32(1)):
        engine.apply(Events().set_features([0, 1], np.full((2, 2), value, np.float32)))
        engine.predict([2])
    assert worst(module, engine) < 1e-5


def stream_of(ids: list[int], rows: list[list[float]]) -> Events:
    return Events().set_features(np.array(ids), np.array(rows, np.float32))


SUMS = {
    "sage": lambda i, o: pyg.SAGEConv(i, o, aggr="sum"),
    "mean": pyg.SAGEConv,
    "gin": lambda i, o: pyg.GINConv(nn.Linear(i, o)),
    "gcn": pyg.GCNConv,
}


@cache
def standardised(kind: str) -> tuple[nn.Module, Model]:
    torch.manual_seed(5)
    module = Network(SUMS[kind](2, 8), SUMS[kind](8, 2)).eval()
    with torch.no_grad():
        for parameter in module.convolutions[0].parameters():
            if parameter.dim() == 2 and parameter.shape[1] == 2:
                parameter /= torch.tensor([TIME, 50.0])
    return module, Model.from_pyg(module)


@pytest.mark.parametrize("spike", [1e5, 1e7])
@pytest.mark.parametrize("kind", SUMS)
def test_a_column_of_small_numbers_beside_one_of_large_ones(kind, spike):
    """Unix time and an amount; the first layer as training on standardised columns leaves it."""
    rng = np.random.default_rng(5)
    module, model = standardised(kind)
    x = np.stack([TIME + rng.uniform(0, 1e6, 60), rng.uniform(1, 100, 60)], axis=1).astype(np.float32)
    graph = Graph.from_edges(*edges(rng, 60, 240), x=x)
    settings = [{}, {"mode": "lazy"}, {"keep": "aggregates"}, {"keep_degree": 3}]
    for setting in settings:
        engine = Engine(Graph.from_state(graph.state()), model, **setting)
        for node in range(20):
            engine.apply(stream_of([node], [[x[node, 0], spike]]))
            engine.predict(np.arange(60))
            engine.apply(stream_of([node], [x[node].tolist()]))
        assert worst(module, engine) < 1e-5, setting


@cache
def falling(kind: str) -> tuple[nn.Module, Model]:
    torch.manual_seed(7)
    module = Network(SUMS[kind](2, 8)).eval()
    return module, Model.from_pyg(module, in_channels=2)


@pytest.mark.parametrize("setting", ["eager", "aggregates", "degree"])
@pytest.mark.parametrize("kind", SUMS)
def test_a_unit_that_falls_hides_nothing(kind, setting):
    """Forty nodes make the second column large, and twenty others, apart from them, round beside it; then one
    batch makes it small. The twenty are not reached, and yet exact: at once, and as the what-if foretold.
    """
    rng = np.random.default_rng(7)
    module, model = falling(kind)
    x = rng.standard_normal((60, 2)).astype(np.float32)
    x[:40, 1] *= 1e6
    ends = np.concatenate([edges(rng, 40, 300), 40 + edges(rng, 20, 120)], axis=1)
    graph = Graph.from_edges(*ends, x=x)
    engine = Engine(graph, model, **SETTINGS[setting])
    apart = np.arange(40, 60)
    for node in (*apart, *apart):
        engine.apply(stream_of([node], [[x[node, 0], 1e5]]))
        engine.apply(stream_of([node], [x[node].tolist()]))
    assert worst(module, engine) < 1e-5
    falls = stream_of([*range(40)], (x[:40] * np.array([1, 1e-6])).tolist())
    foretold = engine.what_if(falls)
    rows, changed = foretold.predict(np.arange(60)), set(foretold.changed.tolist())
    update = engine.apply(falls)
    assert worst(module, engine) < 1e-5
    assert set(update.changed.tolist()) == changed
    assert changed & set(apart.tolist())  # they were rounded anew
    assert engine.predict(np.arange(60)).tobytes() == rows.tobytes()
    assert engine.scrub() <= 1e-6


@pytest.mark.parametrize("setting", ["eager", "aggregates", "degree"])
def test_a_unit_that_falls_as_the_graph_grows(setting):
    """Tables move when they grow. A restored engine's have no room left, and must do as one's that have."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((60, 2)).astype(np.float32) * np.array([1, 1e6], np.float32)
    module = Network(pyg.SAGEConv(2, 8, aggr="sum"))
    model = Model.from_pyg(module.eval(), in_channels=2)
    # Forty nodes become small, and twenty apart from them stay what they are.
    ends = np.concatenate([edges(rng, 40, 300), 40 + edges(rng, 20, 120)], axis=1)
    engine = Engine(Graph.from_edges(*ends, x=x), model, **SETTINGS[setting])
    for node in range(60, 70):
        row = np.float32([[1, 1e6]])
        engine.apply(Events().add_nodes([node], row).add_edges([*range(8)], [node] * 8))
        engine.apply(Events().set_features([node - 60], row))
    restored = Engine(
        Graph.from_state(engine.graph.state()), model, state=engine.state(), **SETTINGS[setting]
    )
    falls = stream_of([*range(40)], (x[:40] * np.array([1, 1e-6])).tolist())
    falls.add_nodes([*range(70, 90)], np.ones((20, 2), np.float32))
    for node in range(70, 90):
        falls.add_edges([*range(8)], [node] * 8)
    for each in (engine, restored):
        scales = each.state().arrays["scales/0"]
        each.apply(falls)
        assert each.state().arrays["scales/0"][1] < scales[1] / 1000  # it did fall
        assert worst(module, each) < 1e-5
    assert frozen(restored.state()) == frozen(engine.state())


def test_gates_behind_a_tanh_beside_a_neighbour_that_stays_large():
    rng = np.random.default_rng(6)
    torch.manual_seed(6)
    module = Network(pyg.ResGatedGraphConv(4, 8), head=nn.Sequential(nn.Tanh(), nn.Linear(8, 2)))
    x = rng.standard_normal((40, 4)).astype(np.float32)
    graph = Graph.from_edges(*edges(rng, 40, 160), x=x)
    engine = Engine(graph, Model.from_pyg(module.eval()))
    engine.apply(stream_of([0], [(x[0] * 1e6).tolist()]))
    for node in range(1, 40):
        engine.apply(stream_of([node], [(x[node] * 1e6).tolist()]))
        engine.apply(stream_of([node], [x[node].tolist()]))
    assert worst(module, engine) < 1e-5


def test_sums_of_weights_that_shrink_step_by_step():
    torch.manual_seed(1)
    module = Weighted(pyg.GCNConv(2, 2))
    x = np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)
    weight = np.full(4, 0.7, np.float32)
    graph = Graph.from_edges([0, 1, 3, 2], [2, 2, 2, 0], x=x, weight=weight)
    engine = Engine(graph, Model.from_pyg(module.eval(), edge_weight=True))
    for value in (1e16, 1e11, 1e6, 10):
        engine.apply(Events().add_edges([0], [2], weight=[value]))
    assert worst(module, engine, weighted=True) < 1e-6
