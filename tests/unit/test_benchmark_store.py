"""The store's benchmark: its contestants hold what a dict holds and draw by weight; its tables add up."""

from collections import Counter

import numpy as np
import pytest

from contest import BATCH, make_edges, make_stream
from contestants import Contestant, StoreBench, SumTable, load

NODES = 40
PEERS = ["CsrPeer", "HashMapPeer", "BlockStorePeer"]
Graph = dict[tuple[int, int], float]


@pytest.fixture(scope="module")
def native() -> StoreBench:
    """Built on first use, which takes half a minute."""
    return load()


def random_batch(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    """Distinct edges; few sources, so that lists grow past a block of the key-value store."""
    pairs = rng.choice(4 * 2000, size, replace=False)
    sources, targets = pairs // 2000, pairs % 2000
    weights = rng.random(size, dtype=np.float32) + np.float32(0.1)
    removed = (rng.random(size) < 0.4).astype(np.uint8)
    return sources.astype(np.uint32) * 7, targets.astype(np.uint32), weights, removed


def apply_to_dict(graph: Graph, batch: tuple[np.ndarray, ...]) -> None:
    for source, target, weight, removed in zip(*(column.tolist() for column in batch), strict=True):
        if removed:
            graph.pop((source, target), None)
        else:
            graph[source, target] = weight


def check_lists(contestant: Contestant, graph: Graph, weighted: bool) -> None:
    assert contestant.num_edges == len(graph)
    contestant.check()
    for node in range(NODES):
        ids, weights = contestant.neighbors(node)
        assert len(set(ids.tolist())) == len(ids)
        assert set(ids.tolist()) == {target for source, target in graph if source == node}
        expected = [graph[node, target] if weighted else 1.0 for target in ids.tolist()]
        # A sum of float32 gives a weight back to within what the sum is rounded to.
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-5 * max(sum(expected), 1.0))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", ["LiveStore", *PEERS])
def test_a_contestant_holds_what_a_dict_holds(
    native: StoreBench, rng: np.random.Generator, name: str, weighted: bool, threads: int
) -> None:
    contestant = getattr(native, name)(2000, weighted, threads)
    graph: Graph = {}
    for size in (1, 700, 2500, 1500, 3000, 40, 5000):
        batch = random_batch(rng, size)
        apply_to_dict(graph, batch)
        sources, targets, weights, removed = batch
        contestant.apply(sources, targets, weights if weighted else None, removed, 10_000)
        check_lists(contestant, graph, weighted)
    assert contestant.bytes() >= contestant.bytes_at_rest() >= 4 * len(graph) // 3
    everything = np.array(sorted(graph), np.uint32)
    removed = np.ones(len(everything), np.uint8)
    contestant.apply(everything[:, 0].copy(), everything[:, 1].copy(), None, removed, 1000)
    check_lists(contestant, {}, weighted)


@pytest.mark.parametrize("name", ["LiveStore", *PEERS])
@pytest.mark.parametrize("by_weight", [True, False])
def test_draws_follow_the_weights(native: StoreBench, name: str, by_weight: bool) -> None:
    """Chi-square over a list of 600, three blocks of the key-value store, after weights have changed."""
    rng = np.random.default_rng(5)
    contestant = getattr(native, name)(1000, True, 2)
    targets = rng.permutation(1000)[:600].astype(np.uint32)
    sources = np.full(600, 7, np.uint32)
    for _ in range(3):
        weights = rng.random(600, dtype=np.float32) + np.float32(0.05)
        contestant.apply(sources, targets, weights, None, 1000)
    drawn = contestant.draw(np.full(4000, 7, np.uint32), 25, by_weight, 11)
    assert len(drawn) == 100_000
    share = weights / weights.sum() if by_weight else np.full(600, 1 / 600)
    counts = Counter(drawn.tolist())
    expected = share.astype(float) * len(drawn)
    found = np.array([counts[target] for target in targets.tolist()])
    assert found.sum() == len(drawn)
    chi_square = float(((found - expected) ** 2 / expected).sum())
    assert chi_square < 599 + 4.5 * np.sqrt(2 * 599)  # a chance of about 1 in 100,000
    nobody = contestant.draw(np.array([8], np.uint32), 3, by_weight, 1)
    assert nobody.tolist() == [2**32 - 1] * 3


@pytest.mark.parametrize("name", ["LiveStore", *PEERS])
def test_a_subgraph_has_the_fan_outs_of_each_hop(native: StoreBench, name: str) -> None:
    edges = make_edges("tiny", 1.0)
    contestant = getattr(native, name)(edges.num_nodes, True, 2)
    contestant.apply(edges.sources, edges.targets, edges.weights, None, BATCH)
    present = set(zip(edges.sources.tolist(), edges.targets.tolist(), strict=True))
    degrees = edges.degrees
    seeds = np.arange(0, 300, 30, dtype=np.uint32)
    fan_outs = np.array([4, 2], np.uint32)
    node, row, col, _ = contestant.subgraph(seeds, fan_outs, 3)
    assert node[: len(seeds)].tolist() == seeds.tolist()
    assert len(set(node.tolist())) == len(node)
    pairs = list(zip(node[col].tolist(), node[row].tolist(), strict=True))
    assert set(pairs) <= present
    assert len(set(pairs)) == len(pairs)
    reached = Counter(col.tolist())
    first_hop = len(seeds)
    second_hop = int(row[col < first_hop].max()) + 1
    for i in range(second_hop):
        fan_out = 4 if i < first_hop else 2
        assert reached[i] == min(fan_out, degrees[node[i]])
    assert max(reached) < second_hop


@pytest.mark.parametrize("name", ["LiveStore", *PEERS])
def test_a_reader_beside_batches_loses_nothing(native: StoreBench, name: str) -> None:
    edges = make_edges("arxiv-tenth", 1.0)
    rng = np.random.default_rng(1)
    stream = make_stream(edges, 3 * BATCH, rng)
    contestant = getattr(native, name)(edges.num_nodes, True, 1)
    contestant.apply(edges.sources, edges.targets, edges.weights, None, BATCH)
    seeds = rng.integers(0, edges.num_nodes, 1000, dtype=np.uint32)
    seconds, drawn, applied, calls = contestant.draw_beside_batches(
        *(seeds, 256, 25, True, 3, stream.sources, stream.targets, stream.weights, stream.removed),
        *(BATCH, 0.001, 0.05),
    )
    assert seconds >= 0.05
    assert drawn % 25 == 0
    assert len(calls) > 0
    assert 0 <= applied <= len(stream.sources)
    contestant.check()


def test_a_stream_names_no_edge_twice_in_a_batch_and_brings_back_what_went() -> None:
    edges = make_edges("arxiv-tenth", 1.0)
    stream = make_stream(edges, 2**20, np.random.default_rng(2))
    codes = stream.sources.astype(np.int64) * edges.num_nodes + stream.targets
    present = set((edges.sources.astype(np.int64) * edges.num_nodes + edges.targets).tolist())
    for first in range(0, len(codes), BATCH):
        batch, removed = codes[first : first + BATCH], stream.removed[first : first + BATCH] == 1
        assert len(np.unique(batch)) == len(batch)
        assert set(batch[removed].tolist()) <= present
        present = (present - set(batch[removed].tolist())) | set(batch[~removed].tolist())
    assert len(present) == len(edges) - BATCH // 4  # what the last batch took


@pytest.mark.parametrize("name", ["RunTable", "PaperTable", "CumulativeTable"])
def test_a_table_finds_where_the_running_sum_exceeds(
    native: StoreBench, rng: np.random.Generator, name: str
) -> None:
    table: SumTable = getattr(native, name)()
    weights = (rng.random(70, dtype=np.float32) + np.float32(0.1)).tolist()
    table.assign(np.array(weights, np.float32))
    for _ in range(300):
        i, weight = int(rng.integers(len(weights))), float(np.float32(rng.random() + 0.1))
        match int(rng.integers(3)) if len(weights) > 1 else 0:
            case 0:
                table.append(weight)
                weights.append(weight)
            case 1:
                table.update(i, weight)
                weights[i] = weight
            case _:
                table.remove(i)
                weights[i] = weights[-1]
                weights.pop()
        sums = np.cumsum(weights)
        assert table.total() == pytest.approx(sums[-1], rel=1e-4)
        at = rng.random() * sums[-1] * 0.999
        found = table.find(at)
        assert (sums[found - 1] if found > 0 else 0.0) <= at + 1e-3
        assert sums[found] > at - 1e-3
