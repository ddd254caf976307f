"""Predictions from snapshots: cached features, memory that is short, snapshots that are replaced."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from memory_snapshot import MemorySnapshot, MemorySource
from model_examples import EDGES, make_sage
from test_sampled_forward import MODELS, steps_of, typed_graph, typed_model
from test_serverless_subgraph import is_exact, make_graph

import streams
from functions import answer_to
from livegnn import EdgeSchema, Engine, Events, Graph, InputError, ModelError, Query, Schema, UnknownNodeError
from livegnn.errors import FileFormatError, SnapshotReplacedError
from livegnn.model import Propagate
from livegnn.oracle.exactness import judge
from livegnn.presampling import SampledEngine
from livegnn.remote.memory_model import MemoryModel
from livegnn.remote.predictor import SnapshotPredictor
from livegnn.snapshots.compaction import collect
from livegnn.snapshots.objects import open_objects
from livegnn.snapshots.snapshot_source import SnapshotSource
from livegnn.snapshots.writer import write_snapshot


def make_predictor(graph: Graph, model=None, **options) -> tuple[SnapshotPredictor, MemorySnapshot]:
    snapshot = MemorySnapshot(graph)
    return SnapshotPredictor(MemorySource(snapshot), model or MODELS["gcn"], **options), snapshot


def always(predicted: int, model, counts: int = 5) -> MemoryModel:
    """Says the same of every request."""
    return MemoryModel(
        model=model.digest,
        limit=predicted,
        error=0.0,
        mean=np.zeros(counts),
        scale=np.ones(counts),
        weights=np.zeros(2 * counts),
        offset=float(np.log(predicted)),
    )


@pytest.mark.parametrize("limit", [None, 10**6, 6000, 1])
@pytest.mark.parametrize("name", ["gcn", "three layers", "sage, norm and skip"])
def test_it_says_what_the_engine_says_however_little_memory_there_is(
    name: str, limit: int | None, rng: np.random.Generator
) -> None:
    graph = make_graph(1)
    engine = Engine(graph, MODELS[name])
    predictor, _ = make_predictor(graph, MODELS[name], memory_limit=limit)
    for _ in range(30):
        ids = rng.choice(graph.ids(), int(rng.integers(0, 4)))
        assert is_exact(predictor.predict(ids), engine, ids)
        if limit is not None:
            assert predictor.describe()["cache_bytes"] <= limit


def test_features_are_fetched_once_and_topology_every_time() -> None:
    graph = make_graph(1)
    predictor, snapshot = make_predictor(graph)
    first = predictor.predict([0, 7])
    lists = snapshot.lists.copy()
    assert max(snapshot.rows.values()) == 1
    assert predictor.describe()["features_reused"] == 0
    second = predictor.predict([0, 7])
    assert first.tobytes() == second.tobytes()
    assert max(snapshot.rows.values()) == 1
    assert snapshot.lists == dict.fromkeys(lists, 2)
    told = predictor.describe()
    assert told["features_reused"] == len(snapshot.rows) == told["cache_entries"]
    assert told["features_read"] == 2 * len(snapshot.rows)
    assert told["feature_bytes_fetched"] == 12 * len(snapshot.rows)
    assert told["requests"] == 2


def test_without_a_cache_everything_is_fetched_again() -> None:
    predictor, snapshot = make_predictor(make_graph(1), cache=False)
    for _ in range(2):
        predictor.predict([0, 7])
    assert set(snapshot.rows.values()) == {2}
    assert predictor.describe()["cache_entries"] == 0


def test_entries_of_the_smallest_degrees_go_first_and_no_more_than_must() -> None:
    """Node 0 reads nodes 1 to 5, of in-degrees 1 to 5; its own is 5."""
    graph = Graph(Schema({"node": 3}, {EDGES: EdgeSchema()}))
    graph.apply(Events().add_nodes(range(30), x=np.eye(30, 3, dtype=np.float32)))
    ends = [(source, 0) for source in range(1, 6)]
    ends += [(10 + k, node) for node in range(1, 6) for k in range(node)]
    graph.apply(Events().add_edges(*np.array(ends).T))
    model = steps_of(Propagate(EDGES))
    entry, predicted = 4 * 3 + 32 + 25, 10**6
    memory = always(predicted, model, counts=3)
    predictor, snapshot = make_predictor(graph, model, memory_limit=10**8, memory_model=memory)
    predictor.predict([0])
    assert {row for _, _, row in snapshot.known} == {0, 1, 2, 3, 4, 5}
    predictor.predict([9], memory_limit=predicted + 3 * entry)
    snapshot.rows.clear()
    predictor.predict([0])
    assert {row for _, row in snapshot.rows} == {1, 2, 3}


def test_a_prediction_that_is_too_low_drops_the_cache_and_runs_again(rng: np.random.Generator) -> None:
    graph = make_graph(3, nodes=300, degree=6)
    model = MODELS["gcn"]
    engine = Engine(graph, model)
    # It says that a request takes nothing, so the cache is never made smaller before one.
    predictor, snapshot = make_predictor(graph, model, memory_model=always(1, model))
    ids = graph.ids().tolist()
    for id_ in ids[:40]:
        predictor.predict([id_])
    full = predictor.describe()["cache_bytes"]
    snapshot.rows.clear()
    rows = predictor.predict(ids[:1], memory_limit=full)
    assert is_exact(rows, engine, ids[:1])
    assert predictor.describe()["predicted_too_low"] == 1
    assert len(snapshot.rows) > 1  # it fetched what the cache had
    assert predictor.describe()["cache_entries"] <= len(snapshot.rows)
    limited, _ = make_predictor(graph, model, memory_limit=8000, memory_model=always(1, model))
    for id_ in ids[:40]:
        assert is_exact(limited.predict([id_]), engine, [id_])
        assert limited.describe()["cache_bytes"] + limited.describe()["working_bytes"] <= 8000
    assert 0 < limited.describe()["predicted_too_low"] < 40
    right, _ = make_predictor(graph, model, memory_limit=10**8, memory_model=always(10**6, model))
    for id_ in ids[:40]:
        right.predict([id_])
    assert right.describe()["predicted_too_low"] == 0


def test_no_memory_is_an_error_only_without_a_cache() -> None:
    """The store's reader runs out of memory as long as anything is cached, and then always."""
    graph = make_graph(4)
    predictor, snapshot = make_predictor(graph)
    expected = predictor.predict([0])
    real, short = snapshot.features, [True]

    def features(node_type, rows):
        if short[0] and predictor.describe()["cache_entries"]:
            raise MemoryError
        return real(node_type, rows)

    snapshot.features = features
    assert predictor.predict([0, 7, 14])[0].tobytes() == expected[0].tobytes()
    assert predictor.describe()["predicted_too_low"] == 1

    def never(node_type, rows):
        raise MemoryError

    snapshot.features = never
    predictor.account.predicted_too_low = 0
    with pytest.raises(MemoryError):
        predictor.predict([21, 28, 35])
    snapshot.features = real
    assert predictor.predict([0])[0].tobytes() == expected[0].tobytes()


def test_a_snapshot_that_is_replaced_begins_the_request_again(rng: np.random.Generator) -> None:
    graph = make_graph(5)
    engine = Engine(graph, MODELS["gcn"])
    old = MemorySnapshot(graph, seq=1)
    source = MemorySource(old)
    predictor = SnapshotPredictor(source, MODELS["gcn"], refresh_seconds=None)
    before = predictor.predict([0, 7])
    x = rng.standard_normal((len(graph.ids()), 3)).astype(np.float32)
    graph.apply(Events().set_features(graph.ids(), x).add_edges([14, 21], [0, 0], weight=[1.0, 2.0]))
    source.latest = MemorySnapshot(graph, seq=2)
    assert predictor.predict([0, 7]).tobytes() == before.tobytes()

    def gone(node_type, rows):
        raise SnapshotReplacedError("collected")

    old.features = gone  # in the middle of the request: its lists were read before
    rows = predictor.predict([0, 7, 21, 28])
    assert judge(rows, engine.predict([0, 7, 21, 28])).ok
    assert predictor.describe()["seq"] == 2
    assert predictor.describe()["snapshots"] == 2


def test_a_newer_snapshot_is_looked_for(rng: np.random.Generator) -> None:
    graph = make_graph(5)
    source = MemorySource(MemorySnapshot(graph, seq=1))
    predictor = SnapshotPredictor(source, MODELS["gcn"], refresh_seconds=0)
    predictor.predict([0])
    graph.apply(Events().set_features([0], np.ones((1, 3), np.float32)))
    source.latest = MemorySnapshot(graph, seq=2)
    assert judge(predictor.predict([0]), Engine(graph, MODELS["gcn"]).predict([0])).ok
    assert predictor.describe()["seq"] == 2


@pytest.mark.parametrize("drawn", [False, True])
def test_two_workers_say_what_one_says(drawn: bool) -> None:
    graph = make_graph(6)
    query = Query("node").hop(EDGES, 2, direction="in").hop(EDGES, 2, direction="in")
    model = make_sage().with_query(query) if drawn else make_sage()
    alone, _ = make_predictor(graph, model)
    sampler, lists = make_predictor(graph, model)
    computer, rows = make_predictor(graph, model)
    for ids in ([0], [7, 14, 7], []):
        assert computer.infer(sampler.sample(ids)).tobytes() == alone.predict(ids).tobytes()
    assert not lists.rows
    assert not rows.lists


def test_two_workers_of_several_types() -> None:
    graph, model = typed_graph(), typed_model()
    sampler, _ = make_predictor(graph, model, output="item")
    computer, _ = make_predictor(graph, model, output="item")
    rows = computer.infer(sampler.sample([3, 4]))
    assert judge(rows, Engine(graph, model).predict([3, 4], output="item")).ok


def test_a_damaged_subgraph_or_one_of_another_snapshot_is_refused() -> None:
    graph = make_graph(6)
    predictor, _ = make_predictor(graph)
    whole = predictor.sample([0])
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        with pytest.raises(FileFormatError):
            predictor.infer(bytes(damaged))
    for end in (0, 7, 12, 20, len(whole) - 1):
        with pytest.raises(FileFormatError):
            predictor.infer(whole[:end])
    other = SnapshotPredictor(MemorySource(MemorySnapshot(graph, seq=3)), MODELS["gcn"])
    with pytest.raises(SnapshotReplacedError, match="snapshot memory/3, got one of memory/0"):
        other.infer(whole)


def test_a_query_draws_what_its_seed_says() -> None:
    graph = make_graph(7, nodes=80, degree=6)
    query = Query("node").hop(EDGES, 2, direction="in").hop(EDGES, 2, direction="in")
    model = make_sage().with_query(query)
    rows = [make_predictor(graph, model, sample_seed=seed)[0].predict([0, 7]).tobytes() for seed in (1, 1, 2)]
    assert rows[0] == rows[1] != rows[2]


@pytest.mark.parametrize("by", ["uniform", "latest"])
@pytest.mark.parametrize("memory_limit", [None, 20000])
def test_what_a_query_draws_does_not_depend_on_who_else_is_asked_for(
    by: str, memory_limit: int | None, rng: np.random.Generator
) -> None:
    graph = Graph(Schema({"node": 3}, {EDGES: EdgeSchema(timed=True)}))
    events = Events().add_nodes(range(60), rng.normal(size=(60, 3)))
    source, target = rng.integers(0, 60, (2, 900))
    times = rng.permutation(900) // 4  # some are equal
    graph.apply(events.add_edges(source, target, time=times, edge_type=EDGES))
    graph.apply(Events().remove_nodes([3, 9]).add_nodes([9, 3], rng.normal(size=(2, 3))))
    graph.apply(Events().add_edges(source[:99], [9] * 99, time=times[:99], edge_type=EDGES))
    query = Query("node").hop(EDGES, 5, direction="in", by=by).hop(EDGES, 3, direction="in", by=by)
    model = make_sage().with_query(query)
    write_snapshot(graph, objects := open_objects(f"memory://{by} {memory_limit}"))
    predictor = SnapshotPredictor(SnapshotSource(objects), model, memory_limit=memory_limit)
    asked = rng.integers(0, 60, 40)
    together = predictor.predict(asked)
    alone = np.concatenate([predictor.predict([id]) for id in asked.tolist()])
    assert judge(together, alone).ok
    if by == "latest":  # the others are drawn by other numbers
        assert judge(together, SampledEngine(graph, model).predict(asked)).ok


def test_what_does_not_fit_is_refused() -> None:
    graph, model = make_graph(8), MODELS["gcn"]
    predictor, _ = make_predictor(graph)
    with pytest.raises(UnknownNodeError, match=r"got 5$"):
        predictor.predict([0, 5])
    with pytest.raises(InputError, match="memory_limit"):
        predictor.predict([0], memory_limit=0)
    with pytest.raises(InputError, match="of the model that predicts"):
        make_predictor(graph, model, memory_model=always(1, make_sage()))
    with pytest.raises(ModelError, match="reads 3 features of 'user' nodes, the snapshot has no such"):
        make_predictor(graph, replace(typed_model()))
    with pytest.raises(InputError, match="output"):
        make_predictor(graph, model, output="no")
    assert predictor.predict([]).shape == (0, 4)


def test_threads_take_turns(rng: np.random.Generator) -> None:
    graph = make_graph(9)
    expected = Engine(graph, MODELS["gcn"]).predict(graph.ids())
    predictor, _ = make_predictor(graph, memory_limit=9000)
    wrong: list[int] = []

    def ask(first: int) -> None:
        wrong.extend(
            at
            for at in range(first, 40, 4)
            if not judge(predictor.predict([graph.ids()[at]]), expected[at : at + 1]).ok
        )

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert predictor.describe()["requests"] == 40


def test_a_snapshot_that_the_model_does_not_fit_is_not_taken(tmp_path: Path, caplog) -> None:
    """Predictions stay on the one before, whoever looks for a newer one, and say so; until one fits again."""

    def write(width: int, seq: int) -> None:
        graph = Graph.from_edges([0, 1, 2], [1, 2, 0], x=np.eye(3, width, dtype=np.float32) * seq)
        write_snapshot(graph, str(tmp_path), seq=seq)

    model = streams.make_model()
    write(streams.WIDTH, 1)
    predictor = SnapshotPredictor(SnapshotSource(str(tmp_path)), model, refresh_seconds=1e-9)
    rows = predictor.predict([0, 1])
    write(streams.WIDTH + 1, 2)
    for _ in range(3):
        assert predictor.predict([0, 1]).tobytes() == rows.tobytes()
        assert predictor.infer(predictor.sample([0, 1])).tobytes() == rows.tobytes()
    told = predictor.describe()
    assert told["seq"] == 1
    assert "the model reads 4 features of 'node' nodes, the snapshot has 5" in str(told["refused_snapshot"])
    assert len([one for one in caplog.records if "stay on the snapshot 1" in one.message]) == 1
    found = answer_to(predictor, b'{"ids": [0], "min_seq": 2}')
    assert found.status == 503
    assert "that the model fits shows event 1" in found.body.decode()
    assert "the snapshot has 5" in found.body.decode()
    write(streams.WIDTH, 3)
    assert answer_to(predictor, b'{"ids": [0], "min_seq": 3}').status == 200
    assert predictor.describe()["refused_snapshot"] is None
    assert predictor.predict([0, 1]).tobytes() != rows.tobytes()
    write(7, 4)
    with pytest.raises(ModelError, match="the snapshot has 7"):
        SnapshotPredictor(SnapshotSource(str(tmp_path)), model)


def test_a_snapshot_that_was_collected_while_none_fits_is_told(tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path))
    model = streams.make_model()
    for width, seq in ((streams.WIDTH, 1), (9, 2)):
        graph = Graph.from_edges([0, 1, 2], [1, 2, 0], x=np.eye(3, width, dtype=np.float32))
        write_snapshot(graph, objects, seq=seq)
        if seq == 1:
            predictor = SnapshotPredictor(SnapshotSource(str(tmp_path)), model, cache=False)
    collect(objects, 0.0)
    with pytest.raises(ModelError, match="the snapshot has 9"):
        predictor.predict([0])
