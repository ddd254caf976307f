"""One cache of several workers beside a dictionary; what each may read of it, and how large it may be."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_snapshot import MemorySnapshot, MemorySource
from test_feature_cache import NOTES, WIDTHS, Oracle, features_of, notes_of
from test_feature_cache import step as own_step
from test_sampled_forward import MODELS
from test_serverless_predictor import always
from test_serverless_subgraph import is_exact, make_graph

import sharing_workers
from livegnn import Engine, Events
from livegnn.oracle.exactness import judge
from livegnn.remote.feature_cache import FeatureCache
from livegnn.remote.predictor import SnapshotPredictor
from livegnn.remote.shared_memory import MemoryFile, SharedMemory
from sharing_workers import Process, Sharer

SIZE = 64 << 20
WORKERS = 3

step = st.tuples(st.integers(0, WORKERS - 1), own_step)


@pytest.fixture
def file() -> Iterator[MemoryFile]:
    made = MemoryFile(SIZE)
    yield made
    made.close()


def share(predictor: SnapshotPredictor, file: MemoryFile) -> SnapshotPredictor:
    predictor.share(SharedMemory(file.fd))
    return predictor


@settings(max_examples=200, deadline=None)
@given(st.lists(step, max_size=16), st.integers(0, 2**31))
def test_workers_in_turn_do_what_one_dictionary_does(steps: list[tuple], seed: int) -> None:
    random = np.random.default_rng(seed)
    oracle, rooms = Oracle(), [0] * WORKERS
    with ExitStack() as stack:
        file = MemoryFile(SIZE)
        stack.callback(file.close)
        memories = [SharedMemory(file.fd) for _ in range(WORKERS)]
        caches = [FeatureCache(WIDTHS, NOTES, memory, "tests") for memory in memories]
        for memory, cache in zip(memories, caches, strict=True):
            stack.callback(memory.close)
            cache.show("snapshot")
        for version, (worker, (what, node_type, numbers, room)) in enumerate(steps):
            cache = caches[worker]
            if what == "clear":
                cache.leave(room)
                rooms[worker] = room
            elif what == "evict":
                rooms[worker] = room
                evicted = cache.evict(room, {node_type: np.array(numbers, np.int64)})
                kept = {(node_type, row) for row in numbers}
                assert evicted == oracle.follow(cache, sum(rooms), kept)
            else:
                rooms[worker] = room
                numbers = list(dict.fromkeys(numbers))
                degrees = random.integers(0, 6, len(numbers))
                for row, degree in zip(numbers, degrees.tolist(), strict=True):
                    oracle.entries.setdefault((node_type, row), (degree, version))
                cache.insert(
                    node_type,
                    np.array(numbers, np.int64),
                    features_of(node_type, numbers, version),
                    np.arange(len(numbers)),
                    degrees,
                    notes_of(node_type, degrees.tolist(), version),
                    room=room,
                )
                oracle.follow(cache, sum(rooms), set())
            for each in caches:
                oracle.check(each)
            assert caches[0].exceeds(rooms[0]) == (oracle.bytes > sum(rooms))


def test_threads_and_processes_read_what_others_wrote(file: MemoryFile) -> None:
    processes = [Process(file, seed) for seed in range(2)]
    sharers = [Sharer(file.fd, seed) for seed in range(2, 4)]
    for process in processes:
        process.begin(300)

    def run(sharer: Sharer) -> None:
        for _ in range(300):
            sharer.step()

    threads = [threading.Thread(target=run, args=(sharer,)) for sharer in sharers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [process.end() for process in processes]
    for process in processes:
        process.kill()
    assert [each["wrong"] for each in found] == [[], []]
    assert [sharer.wrong for sharer in sharers] == [[], []]
    assert all(each["hits"] for each in found)


def test_whoever_dies_while_rows_move_leaves_nothing_that_is_believed(file: MemoryFile) -> None:
    other = Sharer(file.fd, 1)
    process = Process(file, 0)
    process.begin(-1)
    assert process.process.wait() == -signal.SIGSEGV
    process.kill()
    file.release_of_ended()
    rows = np.arange(sharing_workers.ROWS)
    for name, width in sharing_workers.WIDTHS.items():
        assert not other.cache.read(name, rows, np.zeros((len(rows), width), np.float32)).any()
        assert not other.cache.read_notes(name, rows)[0].any()
    for _ in range(30):
        other.step()
    assert other.hits
    assert not other.wrong


def test_workers_on_another_snapshot_have_nothing_in_common(file: MemoryFile) -> None:
    old, new = Sharer(file.fd, 0, version=1), Sharer(file.fd, 0, version=1)
    for _ in range(20):
        old.step()
        new.step()
    before = new.hits
    assert before
    new.version = 2
    new.cache.show("snapshot/2")
    assert old.cache.shows_another()
    assert len(old.cache) == old.cache.bytes == 0
    hits = old.hits
    for _ in range(20):
        old.step()
        new.step()
    assert old.hits == hits
    assert new.hits > before
    assert not old.wrong
    assert not new.wrong


def test_a_worker_that_ended_leaves_no_room_and_the_last_one_no_memory(file: MemoryFile) -> None:
    first, second = Sharer(file.fd, 0), Sharer(file.fd, 1)
    rows = np.arange(sharing_workers.ROWS)
    first.cache.leave(200_000)
    second.cache.leave(100_000)
    given = sharing_workers.features_of(rows, 16, 0), rows, rows, sharing_workers.notes_of(rows, 2, 0)
    second.cache.insert("user", rows, *given, room=100_000)
    assert 250_000 < second.cache.bytes <= 300_000
    assert file.bytes > 250_000
    first.memory.close()
    second.cache.evict(100_000, {})
    assert 90_000 < second.cache.bytes <= 100_000
    assert file.bytes < 220_000
    second.memory.close()
    file.release_of_ended()
    assert file.bytes == 0
    third = Sharer(file.fd, 1)
    for _ in range(10):
        third.step()
    assert third.hits
    assert not third.wrong


def test_a_worker_that_was_killed_leaves_no_room(file: MemoryFile) -> None:
    other = Sharer(file.fd, 0)
    process = Process(file, 1)
    process.begin(10)
    process.end()
    assert other.memory.left_by_others
    process.kill()
    file.release_of_ended()
    assert other.memory.left_by_others == 0


def test_a_worker_that_is_stopped_with_the_lock_stops_nobody(file: MemoryFile) -> None:
    holder, other = Sharer(file.fd, 0), Sharer(file.fd, 1)
    for _ in range(5):
        other.step()
    rows, out = np.arange(50), np.zeros((50, 16), np.float32)
    with holder.memory.changing():
        assert not other.cache.read("user", rows, out).any()
        assert other.cache.evict(0, {}) == 0
    assert other.cache.read("user", rows, out).any()


# -- predictors


@pytest.mark.parametrize("limit", [None, 10**6, 6000, 1])
@pytest.mark.parametrize("name", ["gcn", "three layers", "sage, norm and skip"])
def test_predictors_that_share_say_bit_by_bit_what_one_without_a_cache_says(
    name: str, limit: int | None, file: MemoryFile, rng: np.random.Generator
) -> None:
    graph = make_graph(1)
    snapshot = MemorySnapshot(graph)
    alone = SnapshotPredictor(MemorySource(MemorySnapshot(graph)), MODELS[name], cache=False)
    workers = [
        share(SnapshotPredictor(MemorySource(snapshot), MODELS[name], memory_limit=limit), file)
        for _ in range(3)
    ]
    for _ in range(40):
        ids = rng.choice(graph.ids(), int(rng.integers(0, 4)))
        worker = workers[int(rng.integers(3))]
        assert worker.predict(ids).tobytes() == alone.predict(ids).tobytes()
        if limit is not None:
            assert worker.describe()["cache_bytes"] <= 3 * limit
    if limit is None:
        assert set(snapshot.rows.values()) == {1}, "no row is fetched by two workers"


def test_what_takes_more_than_predicted_takes_it_from_its_own_room(file: MemoryFile) -> None:
    graph, model = make_graph(3, nodes=300, degree=6), MODELS["gcn"]
    engine = Engine(graph, model)
    wrong, right = (
        share(SnapshotPredictor(MemorySource(MemorySnapshot(graph)), model, memory_model=memory), file)
        for memory in (always(1, model), always(4000, model))
    )
    for id_ in graph.ids().tolist():
        right.predict([id_], memory_limit=12_000)
        assert is_exact(wrong.predict([id_], memory_limit=12_000), engine, [id_])
        assert wrong.describe()["cache_bytes"] <= 24_000
    assert wrong.describe()["predicted_too_low"] > 0


def test_a_newer_snapshot_is_everybodys(file: MemoryFile, rng: np.random.Generator) -> None:
    graph, model = make_graph(5), MODELS["gcn"]
    source = MemorySource(MemorySnapshot(graph, seq=1))
    first, second = (share(SnapshotPredictor(source, model), file) for _ in range(2))
    never = share(SnapshotPredictor(MemorySource(source.current), model, refresh_seconds=None), file)
    old = [worker.predict([0, 7]) for worker in (first, second, never)][-1]
    x = rng.standard_normal((len(graph.ids()), 3)).astype(np.float32)
    graph.apply(Events().set_features(graph.ids(), x).add_edges([14, 21], [0, 0], weight=[1.0, 2.0]))
    source.latest = MemorySnapshot(graph, seq=2)
    first.refresh()
    new = Engine(graph, model).predict([0, 7])
    assert judge(first.predict([0, 7]), new).ok
    assert judge(second.predict([0, 7]), new).ok, "who finds a newer one in the cache looks for it"
    assert max(source.latest.rows.values()) == 1
    assert never.predict([0, 7]).tobytes() == old.tobytes()
    assert judge(first.predict([0, 7]), new).ok


def test_models_of_other_tables_take_turns(file: MemoryFile) -> None:
    graph = make_graph(2)
    expected = {name: Engine(graph, MODELS[name]).predict([0, 7]) for name in ("gcn", "three layers")}
    workers = {
        name: share(SnapshotPredictor(MemorySource(MemorySnapshot(graph)), MODELS[name]), file)
        for name in expected
    }
    for name in ["gcn", "three layers", "gcn", "gcn", "three layers"]:
        assert judge(workers[name].predict([0, 7]), expected[name]).ok


def test_memory_that_is_too_small_is_not_shared(caplog: pytest.LogCaptureFixture) -> None:
    file = MemoryFile(70_000)
    predictor = share(SnapshotPredictor(MemorySource(MemorySnapshot(make_graph(1))), MODELS["gcn"]), file)
    predictor.predict([0])
    assert predictor.describe()["cache_entries"]
    assert file.bytes <= 1 << 16
    assert "keeps features by itself" in caplog.text
    file.close()
