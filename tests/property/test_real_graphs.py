"""Random streams on real graphs, hubs of thousands included: exact after each batch for every convolution."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from gate import draws, some
from livegnn import Engine, Events, Graph
from livegnn.types import DEFAULT_EDGE_TYPE
from mirror import assert_close, judge_layers
from modules import CONVOLUTIONS, WEIGHTED, Design, Stack, make

DATA = Path(__file__).parents[1] / "data"
CHANNELS = 64


def read_cora() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sources, targets, and features projected to fewer channels at random, so that it is quick."""
    data = np.load(DATA / "cora.npz")
    nodes, words = data["x_shape"]
    x = np.zeros((nodes, words), dtype=np.float32)
    rows = np.repeat(np.arange(nodes), np.diff(data["x_indptr"]))
    x[rows, data["x_indices"].astype(np.int64)] = data["x_values"]
    projection = np.random.default_rng(0).standard_normal((words, CHANNELS)) / np.sqrt(CHANNELS)
    return data["src"].astype(np.int64), data["dst"].astype(np.int64), (x @ projection).astype(np.float32)


def read_tolokers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    data = np.load(DATA / "tolokers.npz")
    src, dst = data["edges"].astype(np.int64).T
    return src, dst, data["x"].astype(np.float32)


def make_batch(
    rng: np.random.Generator, engine: Engine, new: np.ndarray, *, weighted: bool, size: int
) -> Events:
    """A few events of every kind, in random order; the last of them remove nodes, hubs by preference."""
    graph = engine.graph
    ids = graph.ids()
    x = graph.features(ids)
    snapshot = graph.snapshot()
    edges = ids[snapshot.edge_index[DEFAULT_EDGE_TYPE]]

    def add(events: Events) -> None:
        events.add_edges(*rng.choice(ids, (2, size)), weight=rng.random(size) if weighted else None)

    def remove(events: Events) -> None:
        events.remove_edges(*edges[:, rng.integers(0, edges.shape[1], size)])

    def re_weight(events: Events) -> None:
        chosen = edges[:, rng.integers(0, edges.shape[1], size)]
        events.add_edges(*chosen, weight=rng.random(size) if weighted else None)

    def change(events: Events) -> None:
        chosen = rng.choice(ids, size)
        events.set_features(chosen, x[rng.permutation(len(x))[:size]] * rng.uniform(0.5, 2, (size, 1)))

    def come(events: Events) -> None:
        events.add_nodes(new, x[: len(new)]).add_edges(rng.choice(ids, len(new)), new)

    events = Events()
    for write in rng.permutation(np.array([add, remove, re_weight, change, come], dtype=object)):
        write(events)
    popular = np.unique(rng.choice(edges[1], 2))
    return events.remove_nodes(popular)


def assert_exact(engine: Engine, module: Stack | None) -> None:
    snapshot = engine.graph.snapshot()
    for layer, found in enumerate(judge_layers(engine)):
        assert found.ok, f"layer {layer}: {found}"
    if module is not None:
        assert_close(engine.embeddings(-1), module.run(snapshot), snapshot.x["node"], "PyG")


@pytest.mark.parametrize(("kind", "undirected", "size"), some(product(CONVOLUTIONS, [False, True], [1, 30])))
def test_streams_on_cora(rng, kind, undirected, size):
    src, dst, x = read_cora()
    weighted = kind in WEIGHTED
    depth = 1 + list(CONVOLUTIONS).index(kind) % 4
    design = Design(kind, depth=depth, weighted=weighted, width=CHANNELS, hidden=16, out=7, norm="layer")
    module, model = make(design)
    weight = rng.random(len(src)).astype(np.float32) if weighted else None
    engine = Engine(
        Graph.from_edges(src, dst, x=x, weight=weight, undirected=undirected, parallel="last"),
        model,
        threads=2,
    )
    for batch in range(draws(2, 6)):
        new = 10_000 + batch * 3 + np.arange(3)
        engine.apply(make_batch(rng, engine, new, weighted=weighted, size=size))
        assert_exact(engine, module)
    engine.graph.native.check()


@pytest.mark.explored
@pytest.mark.parametrize("kind", ["gcn", "sage max", "gin", "sage mean", "graph add"][: draws(2, 5)])
def test_streams_on_tolokers(rng, kind):
    src, dst, x = read_tolokers()
    module, model = make(Design(kind, width=x.shape[1], hidden=8, out=2))
    engine = Engine(Graph.from_edges(src, dst, x=x, undirected=True), model, threads=2)
    for batch in range(draws(2, 3)):
        new = 20_000 + batch * 3 + np.arange(3)
        engine.apply(make_batch(rng, engine, new, weighted=False, size=20))
        assert_exact(engine, module)
    engine.graph.native.check()
