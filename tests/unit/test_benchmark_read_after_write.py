"""benchmarks/read_after_write.py: a sample should have what LiveGNN's has; what comes late is counted."""

from collections.abc import Mapping
from itertools import islice

import numpy as np
import pytest

from feed import Feed
from livegnn.presampling import Presampler
from livegnn.types import EdgeType
from presampling_shapes import SHAPES, Batch, TimedGraph, events_of, live_graph, make_graph
from read_after_write import Latest, missed, through_the_graph

SMALL = {"BI": 200.0, "INTER": 100.0, "FIN": 100.0, "Taobao": 500.0, "INTER, three hops": 100.0}


def small(name: str) -> TimedGraph:
    return make_graph(name, SHAPES[name].smaller(SMALL[name]))


@pytest.mark.parametrize("name", SHAPES)
def test_the_edges_that_are_expected_are_those_of_a_sample(name: str) -> None:
    graph = small(name)
    live, latest = live_graph(graph), Latest(graph)
    presampler = Presampler(live, graph.query("latest"), seed=1)
    batches = graph.stream(1)
    for _ in range(4):
        for seed in range(0, graph.num_nodes[graph.seed_type], 7):
            times = presampler.sample([seed]).time
            edges, _ = latest.sample(seed)
            assert edges == {(type, int(time)) for type in times for time in times[type]}
        for batch in islice(batches, 100):
            live.apply(events_of(batch))
            ((type, edge),) = batch.items()
            latest.add(type, int(edge.source[0]), int(edge.target[0]), int(edge.time[0]))


@pytest.mark.parametrize("name", SHAPES)
def test_a_graph_that_applied_the_edge_misses_none(name: str) -> None:
    graph = small(name)
    append, sample = through_the_graph(graph, live_graph(graph))
    seeds = range(0, graph.num_nodes[graph.seed_type], 9)
    due, absent, asked = missed(Latest(graph), islice(graph.stream(1), 200), seeds, append, sample)
    assert absent == 0
    assert due >= asked > 0


def test_a_system_that_is_one_edge_behind_misses_that_edge_in_each_sample() -> None:
    graph = small("FIN")
    live_append, sample = through_the_graph(graph, live_graph(graph))
    waiting: list[Batch] = []

    def append(batch: Batch) -> None:
        waiting.append(batch)
        if len(waiting) > 1:
            live_append(waiting.pop(0))

    seeds = range(0, graph.num_nodes[graph.seed_type], 9)
    due, absent, asked = missed(Latest(graph), islice(graph.stream(1), 200), seeds, append, sample)
    # A hub that comes in by the missing edge is missing too, with its own new edges.
    assert due > absent >= asked > 0


def test_a_system_without_updates_misses_all() -> None:
    graph = small("INTER")
    presampler = Presampler(live_graph(graph), graph.query("latest"), seed=1)

    def sample(seed: int) -> Mapping[EdgeType, np.ndarray]:
        return presampler.sample([seed]).time

    seeds = range(0, graph.num_nodes[graph.seed_type], 9)
    due, absent, _ = missed(Latest(graph), islice(graph.stream(1), 200), seeds, lambda batch: None, sample)
    assert due == absent > 0


def test_a_feed_applies_batches_in_order_and_tells_what_failed() -> None:
    graph = small("FIN")
    applied: list[Batch] = []
    with Feed(applied.append, islice(graph.stream(10), 20), float("inf")) as feed:
        feed._thread.join()
    assert feed.applied == 200
    times = np.concatenate([edges.time for batch in applied for edges in batch.values()])
    assert np.array_equal(times, np.arange(times[0], times[0] + 200))

    def refuse(batch: Batch) -> None:
        raise RuntimeError("refused")

    with pytest.raises(RuntimeError, match="refused"), Feed(refuse, graph.stream(10), 1e9) as feed:
        feed._thread.join()
