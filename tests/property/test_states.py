"""Every state can be restored, whatever the settings, and goes on as what it was saved from, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.graph import Neighbors
from livegnn.sampling import sample_neighbors
from mirror import frozen, predictions
from modules import WIDTH, Design, make

EDGES = ("node", "to", "node")


class Stream:
    """Random batches on a graph with one hub, which has nearly all edges."""

    def __init__(self, edges: EdgeSchema, text: bool, seed: int) -> None:
        self.edges, self.text = edges, text
        self.rng = np.random.default_rng(seed)
        self.nodes = np.arange(5)
        self.next = 5

    def name(self, ids: np.ndarray) -> np.ndarray:
        return np.array([f"n{i}" for i in ids]) if self.text else 3 * ids

    def batch(self, size: int) -> Events:
        rng, new = self.rng, np.arange(self.next, self.next + size // 4)
        gone = rng.choice(self.nodes[1:], min(len(self.nodes) - 2, size // 8), replace=False)
        self.next += len(new)
        there = np.setdiff1d(self.nodes, gone)
        self.nodes = np.concatenate([there, new])
        events = Events().add_nodes(self.name(new), rng.standard_normal((len(new), WIDTH)))
        events.remove_nodes(self.name(gone))
        some = rng.choice(self.nodes, size // 8)
        events.set_features(self.name(some), rng.standard_normal((len(some), WIDTH)))
        src, dst = rng.choice(self.nodes, (2, size))
        dst[rng.random(size) < 0.7] = 0
        src[rng.random(size) < 0.1] = 0
        columns: dict[str, Any] = {}
        if self.edges.weighted:
            columns["weight"] = rng.random(size)
        if self.edges.timed:
            columns["time"] = rng.random(size)
        if self.edges.edge_dim:
            columns["edge_attr"] = rng.standard_normal((size, self.edges.edge_dim))
        events.add_edges(self.name(src), self.name(dst), **columns)
        return events.remove_edges(self.name(src[: size // 5]), self.name(dst[: size // 5]))

    def start(self) -> Graph:
        graph = Graph(Schema({"node": WIDTH}, {EDGES: self.edges}, text_ids=self.text))
        x = self.rng.standard_normal((5, WIDTH))
        graph.apply(Events().add_nodes(self.name(self.nodes), x))
        return graph


def scan(neighbors: Neighbors) -> list[object]:
    return [None if column is None else column.tolist() for column in neighbors]


def random_schema(seed: int) -> tuple[EdgeSchema, bool]:
    rng = np.random.default_rng([seed, 1])
    capacity = int(rng.choice([4, 4, 5, 7, 16, 256]))
    weighted, timed = rng.random(2) < 0.5
    return EdgeSchema(
        undirected=bool(rng.random() < 0.4),
        weighted=bool(weighted),
        timed=bool(timed),
        duplicates="add" if weighted and rng.random() < 0.4 else "replace",
        edge_dim=int(rng.choice([0, 2])),
        time_to_live=5.0 if timed and rng.random() < 0.5 else None,
        in_neighbors=bool(rng.random() < 0.8),
        capacity=capacity,
        slack=int(rng.integers(0, capacity // 4 + 1)),
    ), bool(rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(12))
def test_any_graph_is_restored(seed: int) -> None:
    edges, text = random_schema(seed)
    print(edges, "text" if text else "numbers")
    stream = Stream(edges, text, seed)
    graph = stream.start()
    for size in (1500, 900, 40):
        graph.apply(stream.batch(size))
    for size in (700, 40, 3):
        restored = Graph.from_state(graph.state())
        restored.native.check()
        assert frozen(restored.state()) == frozen(graph.state())
        directions = ("in", "out") if edges.in_neighbors else ("out",)
        hub = stream.name(np.array([0]))[0].item()
        for direction in directions:
            assert scan(graph.neighbors(hub, direction=direction)) == scan(
                restored.neighbors(hub, direction=direction)
            )
            drawn = [
                sample_neighbors(one, [hub], 20, direction=direction, seed=size) for one in (graph, restored)
            ]
            assert drawn[0].ids.tolist() == drawn[1].ids.tolist()
        events = stream.batch(size)
        graph.apply(events)
        restored.apply(events)
        assert frozen(restored.state()) == frozen(graph.state())
        graph = restored


def test_a_hub_of_low_capacity_is_restored() -> None:
    count = 60_000
    for weighted in (False, True):
        schema = Schema({"node": 0}, {EDGES: EdgeSchema(weighted=weighted, capacity=4)})
        graph = Graph(schema)
        graph.apply(Events().add_nodes(np.arange(count + 1)))
        columns: dict[str, Any] = {"weight": np.ones(count)} if weighted else {}
        graph.apply(Events().add_edges(np.arange(1, count + 1), np.zeros(count, dtype=np.int64), **columns))
        restored = Graph.from_state(graph.state())
        assert restored.degree(0).tolist() == [count]
        assert frozen(restored.state()) == frozen(graph.state())


SETTINGS: list[dict[str, Any]] = [
    {},
    {"keep": "aggregates"},
    {"keep_degree": 3},
    {"mode": "lazy"},
    {"history": 50},
]


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [
        (kind, chosen)
        for kind in ("gcn", "sage mean", "sage max", "gat")
        for chosen in SETTINGS
        if kind != "gat" or "keep_degree" not in chosen  # which attention cannot have
    ],
    ids=str,
)
def test_any_engine_is_restored(kind: str, chosen: dict[str, Any]) -> None:
    seed = len(kind) + 100 * SETTINGS.index(chosen)
    rng = np.random.default_rng(seed)
    weighted = kind == "gcn"
    capacity = int(rng.choice([4, 6, 256]))
    edges = EdgeSchema(weighted=weighted, timed=bool(rng.random() < 0.5), capacity=capacity)
    stream = Stream(edges, bool(rng.random() < 0.5), seed)
    graph = stream.start()
    model = make(Design(kind))[1]
    engine = Engine(graph, model, threads=1, **chosen)
    for size in (300, 100):
        engine.apply(stream.batch(size))
    for size in (60, 8):
        engine.predict(stream.name(stream.nodes[:5]))
        restored = Engine(Graph.from_state(graph.state()), model, threads=2, state=engine.state(), **chosen)
        assert frozen(restored.state()) == frozen(engine.state())
        assert predictions(restored) == predictions(engine)
        events = stream.batch(size)
        assert restored.apply(events).changed.tolist() == engine.apply(events).changed.tolist()
        assert predictions(restored) == predictions(engine)
        assert frozen(restored.state()) == frozen(engine.state())
        engine, graph = restored, restored.graph
