"""The benchmarks' graphs have the numbers that they promise, and their streams follow the protocol."""

import numpy as np
import pytest

from graphs import SHAPES, SyntheticGraph, make, make_stream

SMALL = ["arxiv", "arxiv-tenth", "tolokers", "communities-tiny", "tiny"]


def codes(graph: SyntheticGraph) -> np.ndarray:
    src, dst = graph.src, graph.dst
    if graph.undirected:
        src, dst = np.minimum(src, dst), np.maximum(src, dst)
    return src * graph.num_nodes + dst


def test_shapes_have_the_published_numbers() -> None:
    published = {
        "arxiv": (169_343, 1_166_243, 128, 40),
        "reddit": (232_965, 114_615_892, 602, 41),
        "products": (2_449_029, 123_718_280, 100, 47),
        "tolokers": (11_758, 1_038_000, 10, 2),
    }
    for name, numbers in published.items():
        shape = SHAPES[name]
        assert (shape.nodes, shape.directed_edges, shape.features, shape.classes) == numbers


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_a_graph_is_simple_and_of_the_promised_size(name: str, symmetric: bool) -> None:
    graph = make(name, symmetric=symmetric)
    assert graph.num_edges == (SHAPES[name].edges if symmetric else SHAPES[name].directed_edges)
    assert min(graph.src.min(), graph.dst.min()) >= 0
    assert max(graph.src.max(), graph.dst.max()) < graph.num_nodes == SHAPES[name].nodes
    assert (graph.src != graph.dst).all()
    assert len(np.unique(codes(graph))) == graph.num_edges


def test_arxiv_has_hubs_and_no_edge_in_both_directions() -> None:
    graph = make("arxiv")
    received, made = (np.bincount(ends, minlength=graph.num_nodes) for ends in (graph.dst, graph.src))
    assert 10_000 < received.max() < 16_000
    assert 300 < made.max() < 600
    symmetric = make("arxiv", symmetric=True)
    assert len(np.unique(codes(symmetric))) == graph.num_edges
    # Power-law tail: between in-degree 30 and 3,000 the survival function falls by about 2 / 0.82 decades.
    fall = np.log10((received >= 30).sum() / (received >= 3_000).sum())
    assert 2.0 < fall < 2.9


def test_edges_stay_in_their_communities() -> None:
    """In a graph with communities a label spreads to most neighbours; drawn again, edges cross at random."""
    graph, shape = make("communities-tiny", symmetric=True), SHAPES["communities-tiny"]
    rank = np.argsort(np.random.default_rng([0, 0]).permutation(shape.nodes))  # as drawn by `make`
    community = rank % shape.communities
    stays = (community[graph.src] == community[graph.dst]).mean()
    assert 0.87 < stays < 0.93
    degrees = np.bincount(np.concatenate([graph.src, graph.dst]), minlength=shape.nodes)
    mean = np.bincount(community, weights=degrees) / np.bincount(community)
    assert mean.max() < 1.5 * mean.min()
    assert degrees.max() > 4 * degrees.mean()


def test_a_mutual_shape_lists_both_directions() -> None:
    graph = make("tolokers")
    assert np.isin(graph.dst * graph.num_nodes + graph.src, codes(graph)).all()


def test_graph_and_stream_depend_on_the_seed_alone() -> None:
    first, again, other = make("tiny"), make("tiny"), make("tiny", seed=1)
    for column in ("src", "dst", "x"):
        assert np.array_equal(getattr(first, column), getattr(again, column))
    assert not np.array_equal(first.src, other.src)
    streams = [make_stream(graph, seed=seed) for graph, seed in [(first, 0), (again, 0), (first, 1)]]
    for column in ("start_src", "kind", "add_src", "remove_dst", "ids", "x"):
        assert np.array_equal(getattr(streams[0], column), getattr(streams[1], column))
    assert not np.array_equal(streams[0].kind, streams[2].kind)


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_stream_follows_the_protocol(symmetric: bool) -> None:
    graph = make("tiny", symmetric=symmetric)
    stream = make_stream(graph)
    n = graph.num_nodes
    start = stream.start_src * n + stream.start_dst
    assert len(start) == graph.num_edges - graph.num_edges // 10
    assert np.bincount(stream.kind).tolist() == [graph.num_edges // 10] * 3
    added, removed = stream.add_src * n + stream.add_dst, stream.remove_src * n + stream.remove_dst
    assert sorted([*start, *added]) == sorted(graph.src * n + graph.dst)
    assert np.isin(removed, start).all()
    assert len(np.unique(removed)) == len(removed)
    assert len(np.unique(stream.ids)) == len(stream.ids)


def test_batches_cut_the_stream_without_losing_an_event() -> None:
    stream = make_stream(make("tiny"))
    batches = list(stream.batches(7, len(stream) // 7))
    assert all(len(batch.add_src) + len(batch.remove_src) + len(batch.ids) == 7 for batch in batches)
    for column in ("add_src", "add_dst", "remove_src", "remove_dst", "ids", "x"):
        whole = getattr(stream, column)
        parts = np.concatenate([getattr(batch, column) for batch in batches])
        assert np.array_equal(whole[: len(parts)], parts)
    with pytest.raises(ValueError, match="make it longer"):
        next(stream.batches(7, len(stream)))


def test_a_stream_longer_than_the_nodes_visits_each_node_again() -> None:
    graph = make("tolokers", symmetric=True)
    stream = make_stream(graph, 60_000)
    visits = np.bincount(stream.ids, minlength=graph.num_nodes)
    assert set(np.unique(visits)) == {1, 2}
    with pytest.raises(ValueError, match="at most"):
        make_stream(graph, 200_000)
    assert len(make_stream(graph, 199_998, held_back=0.2)) == 199_998


def test_unknown_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="shape must be one of arxiv"):
        make("arxive")
