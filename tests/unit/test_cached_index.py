"""Records of the index that stand with cached features, and the rounds that they save."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from memory_snapshot import MemorySnapshot, MemorySource
from test_sampled_forward import GCN, steps_of
from test_serverless_subgraph import KEPT, make_graph

from gate import some
from livegnn import Engine, Graph
from livegnn.oracle.exactness import judge
from livegnn.remote.predictor import SnapshotPredictor
from livegnn.remote.shared_memory import MemoryFile, SharedMemory
from livegnn.snapshots.objects import Objects
from livegnn.snapshots.snapshot_source import SnapshotSource
from livegnn.snapshots.stores import open_store
from livegnn.snapshots.writer import write_snapshot


@pytest.mark.parametrize(
    ("name", "form", "limit"), some(product(KEPT, ["replace", "keep", "undirected"], [None, 6000]))
)
def test_predictions_are_those_without_a_cache(
    name: str, form: str, limit: int | None, rng: np.random.Generator
) -> None:
    undirected, duplicates = form == "undirected", "replace" if form == "undirected" else form
    graph = make_graph(int(rng.integers(100)), degree=2, duplicates=duplicates, undirected=undirected)
    with_cache, without = (
        SnapshotPredictor(MemorySource(MemorySnapshot(graph)), KEPT[name], memory_limit=limit, cache=cache)
        for cache in (True, False)
    )
    for _ in range(20):
        ids = rng.choice(graph.ids(), int(rng.integers(1, 4)))
        assert with_cache.predict(ids).tobytes() == without.predict(ids).tobytes()


@pytest.mark.parametrize("name", ["gcn", "three layers"])
def test_a_record_is_fetched_once(name: str, rng: np.random.Generator) -> None:
    graph = make_graph(4)
    snapshot = MemorySnapshot(graph)
    predictor = SnapshotPredictor(MemorySource(snapshot), KEPT[name])
    for _ in range(10):
        predictor.predict(rng.choice(graph.ids(), 3))
    predictor.predict(graph.ids())
    assert set(snapshot.known.values()) == {1}


class Rounds(Objects):
    """Counts how often a request waits for the store."""

    count = 0

    def read(self, asked):
        type(self).count += 1
        return super().read(asked)


def rounds_of(work: Callable[[], object]) -> int:
    before = Rounds.count
    work()
    return Rounds.count - before


def test_a_warm_request_waits_for_one_round_a_hop_and_a_cold_border_for_one_more(tmp_path: Path) -> None:
    """Node 0 reads 1 and 2, which read 3 and 4; node 9 reads 1 and 8, which reads 5."""
    ends = [(1, 0), (2, 0), (3, 1), (4, 2), (1, 9), (8, 9), (5, 8)]
    graph = Graph.from_edges(*np.array(ends).T, x=np.eye(10, 3, dtype=np.float32), num_nodes=10)
    write_snapshot(graph, str(tmp_path), directions=("in",))
    model = steps_of(GCN, GCN)
    objects = Rounds(open_store(str(tmp_path)), gap=0)
    plain = SnapshotPredictor(SnapshotSource(objects), model, cache=False)
    predictor = SnapshotPredictor(SnapshotSource(objects), model)
    engine = Engine(graph, model)
    assert rounds_of(lambda: plain.predict([0])) == 6, "index and lists of two hops, degrees, features"
    rows = []
    cold = rounds_of(lambda: rows.append(predictor.predict([0])))
    assert cold == 4 + 2, "the last two, degrees and features, at once"
    assert rounds_of(lambda: rows.append(predictor.predict([0]))) == 2, "the lists of two hops"
    assert rounds_of(lambda: rows.append(predictor.predict([9]))) == 4 + 2, "9 and 8 are new"
    assert rounds_of(lambda: rows.append(predictor.predict([9, 0]))) == 2
    assert judge(rows[0], engine.predict([0])).ok
    assert rows[1].tobytes() == rows[0].tobytes() == plain.predict([0]).tobytes()
    assert rows[2].tobytes() == plain.predict([9]).tobytes()


@pytest.mark.parametrize("shared", [False, True])
def test_records_of_another_layout_are_not_used(shared: bool) -> None:
    """The same graph, written anew elsewhere: the index says other places."""
    graph, model = make_graph(3), KEPT["gcn"]
    source = MemorySource(MemorySnapshot(graph))
    predictor = SnapshotPredictor(source, model)
    behind = SnapshotPredictor(MemorySource(source.current), model)
    file = MemoryFile(64 << 20)
    for each in (predictor, behind) if shared else ():
        each.share(SharedMemory(file.fd))
    ids = graph.ids()[:20]
    expected = predictor.predict(ids)
    source.latest = MemorySnapshot(graph, place=1000)
    predictor.refresh()
    assert predictor.predict(ids).tobytes() == expected.tobytes()
    # A subgraph from a worker that has not seen it yet is of the same graph.
    for id_ in graph.ids():
        assert predictor.infer(behind.sample([id_])).tobytes() == behind.predict([id_]).tobytes()
    assert predictor.predict(graph.ids()).tobytes() == behind.predict(graph.ids()).tobytes()
    file.close()


def test_what_was_sampled_elsewhere_is_noted() -> None:
    graph, model = make_graph(3), KEPT["gcn"]
    snapshots = [MemorySnapshot(graph) for _ in range(2)]
    sampler, computer = (SnapshotPredictor(MemorySource(each), model) for each in snapshots)
    for id_ in graph.ids():
        computer.infer(sampler.sample([id_]))
    assert not snapshots[1].known, "the subgraph says all that entries need"
    computer.predict(graph.ids())
    assert not snapshots[1].known
