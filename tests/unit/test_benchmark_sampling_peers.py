"""The shapes and the peers of the pre-sampling benchmarks: degrees as promised, samples as LiveGNN's."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from livegnn.presampling import Presampler
from presampling_shapes import SHAPES, TimedGraph, degrees, events_of, live_graph, make_graph
from sampling_peers import FORMS, KuzuSampler

SMALL = {"BI": 200.0, "INTER": 100.0, "FIN": 100.0, "Taobao": 500.0, "INTER, three hops": 100.0}


def small(name: str) -> TimedGraph:
    return make_graph(name, SHAPES[name].smaller(SMALL[name]))


@pytest.mark.parametrize(
    ("count", "mean", "least", "most"),
    [(19_000, 39.2, 0, 8525), (50_000, 95.0, 0, 3632), (100_000, 5.5, 0, 9831), (225_000, 4.78, 2, 3726)],
)
def test_degrees_have_the_mean_and_the_bounds_that_are_asked_for(
    count: int, mean: float, least: int, most: int
) -> None:
    drawn = degrees(count, mean, least, most)
    assert drawn.min() == least
    assert drawn.max() == drawn[0] == most
    assert drawn.mean() == pytest.approx(mean, rel=0.01)
    assert np.all(np.diff(drawn) <= 0)


def test_a_mean_that_no_power_law_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no power law"):
        degrees(100, 50.0, 0, 10)


@pytest.mark.parametrize("name", SHAPES)
def test_a_graph_has_the_ratio_of_its_shape_and_one_clock(name: str) -> None:
    shape, graph = SHAPES[name], small(name)
    nodes = sum(graph.num_nodes.values())
    assert graph.num_edges / nodes == pytest.approx(shape.replays * shape.edges / shape.nodes, rel=0.03)
    times = np.concatenate([edges.time for edges in graph.edges.values()])
    assert np.array_equal(np.sort(times), np.arange(len(times)))
    for (source, _, target), edges in graph.edges.items():
        assert np.all(np.diff(edges.time) > 0)
        assert edges.source.max() < graph.num_nodes[source]
        assert edges.target.max() < graph.num_nodes[target]
    clock = len(times)
    for batch in islice(graph.stream(50), 3):
        later = np.sort(np.concatenate([edges.time for edges in batch.values()]))
        assert np.array_equal(later, np.arange(clock, clock + 50))
        clock += 50


@pytest.mark.parametrize("name", SHAPES)
def test_kuzu_draws_the_latest_neighbors_that_livegnn_draws(name: str) -> None:
    graph = small(name)
    live = live_graph(graph)
    presampler = Presampler(live, graph.query("latest"), seed=1)
    peer = KuzuSampler(graph)
    batches = graph.stream(200)
    for _ in range(2):
        for seed in seeds_of(graph):
            sample = presampler.sample([seed])
            expected = {
                type: dict(zip(ids.tolist(), sample.x[type], strict=True))
                for type, ids in sample.node.items()
            }
            for form in FORMS:
                peer.form = form
                assert_equal(peer.sample(seed), expected)
        batch = next(batches)
        live.apply(events_of(batch))
        peer.append(batch)


def assert_equal(found: object, expected: dict[str, dict[int, np.ndarray]]) -> None:
    assert isinstance(found, dict)
    for type, nodes in expected.items():
        assert set(found[type]) == set(nodes)
        for id, x in nodes.items():
            assert np.array_equal(np.float32(found[type][id]), x)


def seeds_of(graph: TimedGraph) -> list[int]:
    """The largest hub and a few others."""
    degree = graph.out_degrees(graph.hops[0][0])
    return [int(degree.argmax()), 0, int(degree.argmin()), 3]


@pytest.mark.parametrize("form", FORMS)
def test_kuzu_draws_each_neighbor_alike(form: str) -> None:
    """Of 20 neighbours 5: each comes a quarter of the time."""
    graph = small("FIN")
    edge_type, _ = graph.hops[0]
    edges = graph.edges[edge_type]
    star = replace(
        edges, source=np.zeros(20, np.int64), target=np.arange(1, 21), time=np.arange(20, dtype=np.int64)
    )
    graph = replace(graph, edges={edge_type: star}, hops=((edge_type, 5),))
    peer = KuzuSampler(graph, form=form)  # type: ignore[arg-type]
    rounds = 300
    counts = np.zeros(21)
    for _ in range(rounds):
        counts[list(peer.sample(0, "uniform")["Account"])] += 1
    assert counts[0] == rounds
    assert counts[1:].sum() == 5 * rounds
    # Five standard deviations of a binomial law.
    assert np.all(np.abs(counts[1:] - rounds / 4) < 5 * np.sqrt(rounds * 3 / 16))
