"""The cost of a batch beside the batch itself, a lazy engine's marks, and sets of nodes."""

import math

import numpy as np
import pytest

from gate import draws
from livegnn import Engine, Events, Graph, InputError, UnknownNodeError
from livegnn.inference.cost import RECENT, Cost, RecentBatch, estimate_seconds
from modules import WIDTH, Design, make
from streams import make_graph, make_model, make_stream

NODES = 60


def random_graph(rng: np.random.Generator, edges: int) -> tuple[Graph, list[list[int]]]:
    """A graph, and the targets of each node."""
    pairs = rng.choice(NODES**2, edges, replace=False)
    src, dst = divmod(pairs, NODES)
    x = rng.standard_normal((NODES, WIDTH)).astype(np.float32)
    return Graph.from_edges(src, dst, x=x), [dst[src == node].tolist() for node in range(NODES)]


@pytest.mark.parametrize("seed", range(draws(4, 100)))
def test_new_features_and_edges_reach_what_sets_of_nodes_reach(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph, targets = random_graph(rng, int(rng.integers(1, 400)))
    depth = int(rng.integers(1, 4))
    engine = Engine(graph, make(Design("gin", depth=depth, seed=seed))[1], threads=1)
    featured = rng.choice(NODES, int(rng.integers(0, 5)), replace=False)
    source = int(rng.integers(NODES))
    added = rng.permutation(np.setdiff1d(np.arange(NODES), targets[source]))[: int(rng.integers(1, 4))]
    events = Events().set_features(featured, rng.standard_normal((len(featured), WIDTH)))
    events.add_edges(np.full(len(added), source), added)

    reached, messages = set(featured.tolist()), 0
    for _ in range(depth):
        messages += sum(len(targets[node]) for node in reached) + len(added)
        reached |= {target for node in reached for target in targets[node]} | set(added.tolist())
    cost = engine.cost(events)
    assert (cost.predictions, cost.edges, cost.seconds) == (len(reached), messages, None)
    assert cost.rows >= len(reached)


# A lazy engine computes degrees: it marks no neighbours of a node whose degree is the same after the batch.
@pytest.mark.parametrize(
    ("kind", "degrees"), [("gcn", True), ("sage max", False), ("gat", False), ("gatv2", False)]
)
def test_a_batch_reaches_what_a_lazy_engine_marks(kind: str, degrees: bool) -> None:
    engines = [
        Engine(make_graph(), make(Design(kind, depth=3))[1], threads=1, mode=mode)
        for mode in ("lazy", "eager")
    ]
    for events in make_stream(draws(60, 1000)):
        costs = [engine.cost(events) for engine in engines]
        assert costs[0].predictions == costs[1].predictions
        marked, computed = (engine.apply(events) for engine in engines)
        assert computed.num_changed <= costs[1].predictions
        assert engines[1].last_work.affected <= costs[1].predictions
        if not marked.exact:
            assert marked.num_changed <= costs[0].predictions
            assert degrees or marked.num_changed == costs[0].predictions


@pytest.mark.parametrize("keep", ["all", "aggregates"])
def test_a_cost_changes_nothing_and_bounds_the_batch(keep: str) -> None:
    engine, other = (Engine(make_graph(), make_model(), threads=1, keep=keep) for _ in range(2))
    for events in make_stream(draws(60, 1000)):
        cost = engine.cost(events)
        update = engine.apply(events)
        assert update.num_changed <= cost.predictions
        assert (cost.seconds is None) == (update.seq == len(events))
        other.apply(events)
    ids = engine.graph.ids()
    np.testing.assert_array_equal(engine.predict(ids), other.predict(ids))


def test_a_hub_costs_its_edges() -> None:
    x = np.ones((NODES, WIDTH), np.float32)
    graph = Graph.from_edges(np.zeros(NODES - 1, np.int64), np.arange(1, NODES), x=x)
    engine = Engine(graph, make(Design("sage mean", depth=1))[1], threads=1)
    hub, leaf = (engine.cost(Events().set_features(node, x[:1])) for node in (0, 5))
    assert (hub.predictions, hub.edges) == (NODES, NODES - 1)
    assert (leaf.predictions, leaf.edges) == (1, 0)


def test_events_that_would_be_refused_are_refused() -> None:
    engine = Engine(make_graph(), make_model(), threads=1)
    with pytest.raises(UnknownNodeError, match="999"):
        engine.cost(Events().remove_nodes([999]))
    with pytest.raises(InputError, match="Events"):
        engine.cost("events")  # type: ignore[arg-type]


def batch(touched: int, seconds: float) -> RecentBatch:
    return (0, touched, 0, 0), seconds


def test_seconds_are_those_of_batches_of_a_like_size() -> None:
    linear = [batch(10 * size, 1e-3 * size) for size in range(1, RECENT)]
    for touched in (100, 300, 600, 6000):
        estimate = estimate_seconds(linear, touched)
        assert estimate is not None
        assert math.isclose(estimate, touched * 1e-4, rel_tol=1e-6)
    assert estimate_seconds(linear, 0) == 1e-3
    assert estimate_seconds([], 10) is None


def test_a_pause_in_one_batch_does_not_move_the_estimate() -> None:
    batches = [batch(100, 1e-3)] * 9 + [batch(100, 5.0)]
    assert estimate_seconds(batches, 100) == 1e-3


def test_a_cost_is_shown_with_its_numbers() -> None:
    engine = Engine(make_graph(), make_model(), threads=1)
    engine.apply(Events().set_features([1], np.ones((1, 4))))
    cost = engine.cost(Events().set_features([1], np.ones((1, 4))))
    assert isinstance(cost, Cost)
    assert cost.seconds is not None
    assert 0 < cost.seconds < 60
