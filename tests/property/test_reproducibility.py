"""The same batches give the same bits: whatever the number of threads, and through a restart."""

from itertools import product

import numpy as np
import pytest

from gate import some
from livegnn import Engine, Events, Graph, checkpoint
from livegnn.types import State
from modules import Design, make

NODES, WIDTH = 3000, 32


def bits(state: State) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in state.arrays.items()}


def make_graph(rng: np.random.Generator, *, undirected: bool) -> Graph:
    hubs = rng.zipf(1.6, 12000) % NODES
    return Graph.from_edges(
        rng.integers(0, NODES, 12000),
        hubs,
        x=rng.standard_normal((NODES, WIDTH)).astype(np.float32),
        weight=rng.random(12000).astype(np.float32),
        undirected=undirected,
        parallel="last",
    )


def make_batches(rng: np.random.Generator, count: int) -> list[Events]:
    """Batches that reach hundreds of nodes, so that a second thread has work; nodes come and go."""
    batches = []
    for i in range(count):
        n = int(rng.integers(50, 400))
        ids = rng.choice(NODES, 3 * n, replace=False)
        new = NODES + i * 10 + np.arange(10)
        x = rng.standard_normal((n, WIDTH)).astype(np.float32)
        events = Events().add_nodes(new, x[:10]).add_edges(new, ids[:10], weight=rng.random(10))
        events.set_features(ids[:n], x).add_edges(ids[:n], ids[n : 2 * n], weight=rng.random(n))
        events.remove_edges(ids[n : 2 * n], ids[2 * n :])
        if i % 3 == 2:
            events.remove_nodes(NODES + (i - 1) * 10 + np.arange(5))
        batches.append(events)
    return batches


@pytest.mark.parametrize(
    ("kind", "undirected"),
    some(product(["gcn", "sage mean", "sage max", "graph add", "gin"], [False, True])),
)
def test_threads_do_not_show(rng, kind, undirected):
    seed = int(rng.integers(2**32))
    _, model = make(Design(kind, width=WIDTH, hidden=24, norm="layer"))
    states = []
    for threads in (1, 2, 3):
        again = np.random.default_rng(seed)
        engine = Engine(make_graph(again, undirected=undirected), model, threads=threads)
        affected = [engine.apply(events).affected for events in make_batches(again, 6)]
        states.append((bits(engine.graph.state()), bits(engine.state())))
    assert max(affected) > 500
    assert states[0] == states[1] == states[2]
    assert engine.verify().ok


@pytest.mark.parametrize("kind", ["gcn", "sage mean", "sage max", "graph mean"])
def test_a_restart_does_not_show(rng, tmp_path, kind):
    _, model = make(Design(kind, width=WIDTH, hidden=24, weighted=kind in ("gcn", "graph mean")))
    engine = Engine(make_graph(rng, undirected=kind == "gcn"), model)
    batches = make_batches(rng, 9)
    for events in batches[:4]:
        engine.apply(events)
    path = tmp_path / "state.checkpoint"
    checkpoint.write(path, {"graph": engine.graph.state(), "engine": engine.state()}, engine.seq)
    kept = checkpoint.read(path)
    graph = Graph.from_state(kept.states["graph"])
    restored = Engine(graph, model, state=kept.states["engine"], threads=1)
    assert restored.seq == engine.seq
    for events in batches[4:]:
        ours, theirs = engine.apply(events), restored.apply(events)
        np.testing.assert_array_equal(ours.changed, theirs.changed)
    assert bits(engine.graph.state()) == bits(restored.graph.state())
    assert bits(engine.state()) == bits(restored.state())


def test_a_row_does_not_depend_on_its_batch(rng):
    """A prediction that a batch of one computes has the bits that a batch of a thousand gives it."""
    _, model = make(Design("sage mean", width=WIDTH, depth=1))
    x = rng.standard_normal((NODES, WIDTH)).astype(np.float32)
    new = rng.standard_normal((NODES, WIDTH)).astype(np.float32)
    together = Engine(Graph.from_edges([], [], x=x), model)
    together.apply(Events().set_features(np.arange(NODES), new))
    alone = Engine(Graph.from_edges([], [], x=x), model)
    for id in range(0, NODES, 97):
        alone.apply(Events().set_features(id, new[id]))
        np.testing.assert_array_equal(alone.predict([id]), together.predict([id]))
