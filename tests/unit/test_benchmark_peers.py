"""The peers of the incremental benchmark compute what PyG computes on the graph as it is now."""

import numpy as np
import pytest
import torch

from graphs import Batch, make, make_stream
from peers import (
    GCN,
    PEERS,
    SAGE,
    Adjacency,
    AffectedRecomputation,
    NeighborhoodRecomputation,
    Ripple,
    make_model,
)


def edges_of(adjacency: Adjacency) -> set[tuple[int, int]]:
    rowptr, col = adjacency.csr()
    rows = np.repeat(np.arange(len(rowptr) - 1), np.diff(rowptr))
    return set(zip(rows.tolist(), col.tolist(), strict=True))


@pytest.mark.parametrize("size", [1, 2, 50])
def test_adjacency_equals_a_set_of_edges(size: int) -> None:
    rng = np.random.default_rng(size)
    n = 12
    pairs = rng.permutation(n * n)
    present, absent = list(pairs[:70]), list(pairs[70:])
    adjacency = Adjacency(n, pairs[:70] // n, pairs[:70] % n)
    for _ in range(200):
        rng.shuffle(present)
        rng.shuffle(absent)
        leaving, present = present[:size], present[size:]
        coming, absent = absent[:size], absent[size:]
        gone, new = np.array(leaving), np.array(coming)
        adjacency.remove(gone // n, gone % n)
        adjacency.add(new // n, new % n)
        present += coming
        absent += leaving
        assert edges_of(adjacency) == {(int(p) // n, int(p) % n) for p in present}
    some = np.array([3, 0, 7])
    lengths, neighbors = adjacency.neighbors(some)
    assert lengths.tolist() == [len(adjacency.neighbors(some[i : i + 1])[1]) for i in range(3)]
    one_by_one = [adjacency.neighbors(some[i : i + 1])[1] for i in range(3)]
    assert neighbors.tolist() == np.concatenate(one_by_one).tolist()


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("size", [1, 10, 150])
def test_peers_equal_pyg_on_the_rebuilt_graph(symmetric: bool, size: int) -> None:
    graph = make("tiny", symmetric=symmetric)
    stream = make_stream(graph, 450)
    model = make_model(graph.num_features, 16, graph.num_classes)
    peers = [peer(model, graph.x, stream.start_src, stream.start_dst, symmetric) for peer in PEERS]
    present = set(zip(stream.start_src.tolist(), stream.start_dst.tolist(), strict=True))
    x = torch.from_numpy(graph.x.copy())
    for batch in stream.batches(size, 450 // size):
        for peer in peers:
            peer.apply(batch)
        present -= set(zip(batch.remove_src.tolist(), batch.remove_dst.tolist(), strict=True))
        present |= set(zip(batch.add_src.tolist(), batch.add_dst.tolist(), strict=True))
        x[batch.ids] = torch.from_numpy(batch.x)
        edge_index = torch.tensor(sorted(present)).t()
        if symmetric:
            edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        with torch.no_grad():
            expected = model(x, edge_index)
        for peer in peers:
            assert (peer.output - expected).abs().max() < 1e-5, peer.name


@pytest.mark.parametrize("kind", [AffectedRecomputation, Ripple])
def test_peers_reach_only_what_a_batch_reaches(kind: type[AffectedRecomputation] | type[Ripple]) -> None:
    # A path 0 -> 1 -> 2 -> 3 -> 4 with one feature changed, then one edge added.
    src = np.arange(4)
    x = np.ones((5, 3), np.float32)
    peer = kind(make_model(3, 4, 2), x, src, src + 1, False)
    none = np.empty(0, np.int64)
    work = peer.apply(Batch(none, none, none, none, np.array([1]), np.zeros((1, 3), np.float32)))
    assert (work.features, work.edge_events, work.affected) == (1, 0, (2, 3))
    work = peer.apply(Batch(np.array([0]), np.array([3]), none, none, none, x[:0]))
    assert (work.features, work.edge_events, work.affected) == (0, 1, (1, 2))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("kind", [SAGE, GCN])
def test_the_neighbourhood_of_a_query_gives_pyg_s_rows(kind: type[SAGE] | type[GCN], symmetric: bool) -> None:
    torch.manual_seed(1)
    graph = make("tiny", symmetric=symmetric)
    stream = make_stream(graph, 90)
    model = kind(graph.num_features, 16, graph.num_classes).eval()
    peer = NeighborhoodRecomputation(model, graph.x, stream.start_src, stream.start_dst, symmetric)
    batch = stream.batch(0, 90)
    peer.apply(batch)
    present = set(zip(stream.start_src.tolist(), stream.start_dst.tolist(), strict=True))
    present -= set(zip(batch.remove_src.tolist(), batch.remove_dst.tolist(), strict=True))
    present |= set(zip(batch.add_src.tolist(), batch.add_dst.tolist(), strict=True))
    edge_index = torch.tensor(sorted(present)).t()
    if symmetric:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    x = torch.from_numpy(graph.x.copy())
    x[batch.ids] = torch.from_numpy(batch.x)
    with torch.no_grad():
        expected = model(x, edge_index)
    for ids in ([7], [250, 3, 9], list(range(graph.num_nodes))):
        got = peer.query(np.array(ids))
        assert (got - expected[ids]).abs().max() < 1e-5
