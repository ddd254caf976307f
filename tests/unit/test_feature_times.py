"""Features with times on every way: refusals, logs, checkpoints, parts, tables, explanations, workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from livegnn import (
    EdgeSchema,
    Engine,
    Events,
    FileFormatError,
    Graph,
    InputError,
    LogError,
    NodeRows,
    Query,
    Schema,
    TableMapping,
    UnknownTypeError,
    checkpoint,
)
from livegnn.log.sqlite import SqliteLog
from livegnn.partitions import LocalPartitions
from livegnn.partitions.sets import SavedSet
from livegnn.partitions.texts import NumberedIds
from livegnn.placement import Owners
from livegnn.runtime import AheadPolicy, CheckpointPolicy, Runtime, list_checkpoints, restore
from livegnn.tables import TableReader
from livegnn.tables.changes import RowChanges, read_changes
from livegnn.tables.files import digest_of
from livegnn.workers import WorkerPlan
from mirror import frozen
from streams import WIDTH, make_model

EDGES = ("node", "to", "node")
MODEL = make_model()
DATA = Path(__file__).parent.parent / "data"


def row(value: float) -> list[float]:
    return [value] * WIDTH


def make_graph(**settings: object) -> Graph:
    schema = Schema({"node": WIDTH}, {EDGES: EdgeSchema(weighted=True)}, timed_features=["node"], **settings)  # type: ignore[arg-type]
    graph = Graph(schema)
    ids = ["a", "b", "c"] if schema.text_ids else [0, 1, 2]
    events = Events().add_nodes(ids, [row(1), row(2), row(3)], time=[10, 20, 30])
    graph.apply(events.add_edges(ids[:2], ids[1:], weight=[1, 2]), seq=0)
    return graph


@pytest.mark.parametrize(
    ("timed", "error", "message"),
    [
        (["other"], UnknownTypeError, "timed_features names node type 'other'"),
        (["bare"], InputError, "types with features, got 'bare', whose width is 0"),
        ("node", InputError, "must be a list of node types, got 'node'"),
        (7, InputError, "must be a list of node types, got 7"),
    ],
)
def test_a_schema_names_types_with_features(timed, error, message):
    with pytest.raises(error, match=message):
        Schema({"node": 2, "bare": 0}, {}, timed_features=timed)


def test_a_schema_without_times_is_written_as_it_was():
    plain = Schema({"node": 2}, {EDGES: EdgeSchema()})
    assert "timed_features" not in plain.to_json()
    timed = Schema({"node": 2}, {EDGES: EdgeSchema()}, timed_features=["node"])
    assert timed != plain
    assert Schema.from_json(timed.to_json()) == timed
    assert Schema.from_json(plain.to_json()) == plain


@pytest.mark.parametrize("time", [np.nan, np.inf, -np.inf])
def test_a_time_must_be_finite(time):
    graph = make_graph()
    before = frozen(graph.state())
    for events in (
        Events().set_features([0, 1], [row(1), row(1)], time=[50, time]),
        Events().add_nodes(9, row(1), time=time),
    ):
        with pytest.raises(InputError, match="time must be finite"):
            events.check()
        with pytest.raises(InputError, match="times of features must be finite, got"):
            graph.apply(events)
    assert frozen(graph.state()) == before


def test_a_time_needs_features_and_a_type_that_has_them():
    with pytest.raises(InputError, match="got it without x"):
        Events().add_nodes(1, time=3.0)
    with pytest.raises(InputError, match="one value for each of the 2 ids, got shape"):
        Events().set_features([1, 2], [row(1), row(2)], time=[1, 2, 3])
    plain = Graph(Schema({"node": WIDTH}, {EDGES: EdgeSchema()}))
    with pytest.raises(InputError, match=r"have no times, got a column 'time'.+timed_features=\['node'\]"):
        plain.apply(Events().add_nodes(0, row(1), time=3.0))
    with pytest.raises(InputError, match="one of timed_features"):
        plain.feature_times([])


def test_other_types_take_no_memory_for_times():
    def bytes_of(timed: bool) -> int:
        graph = Graph(Schema({"node": 1}, {}, timed_features=["node"] if timed else []))
        graph.apply(Events().add_nodes(np.arange(1000), np.ones((1000, 1), np.float32)))
        return graph.memory()["features of node"]

    assert bytes_of(True) - bytes_of(False) >= 8000
    assert bytes_of(False) < 8000


def test_what_if_leaves_late_rows_out():
    engine = Engine(make_graph(), MODEL)
    late, new = (Events().set_features(0, row(9), time=time) for time in (9.0, 10.0))
    assert np.array_equal(engine.what_if(late).predict([0, 1, 2]), engine.predict([0, 1, 2]))
    assert not np.array_equal(engine.what_if(new).predict([1]), engine.predict([1]))
    assert engine.graph.feature_times([0]).tolist() == [10.0]


def test_an_explanation_leaves_late_rows_out():
    engine = Engine(make_graph(auto_add=["node"]), MODEL, history=100)
    engine.apply(Events().set_features(0, row(5), time=8.0))  # late
    engine.apply(Events().set_features(0, row(6), time=11.0))
    engine.apply(Events().set_features([0, 0], [row(7), row(4)], time=[5.0, 12.0]))
    engine.apply(Events().set_features(7, row(7), time=-8.0).add_edges(7, 1))
    engine.apply(Events().set_features(7, row(2), time=-9.0))  # late
    found = engine.explain(1, since=0)
    assert [one.seq for one in found.events] == [2, 4, 6]
    assert np.allclose(found.after, engine.predict([1])[0], rtol=1e-4)


# -- logs and checkpoints


def open_runtime(path: Path) -> tuple[Runtime, SqliteLog]:
    log = SqliteLog(path / "log.db")
    graph, views = restore(
        {"engine": lambda graph, state: Engine(graph, MODEL, threads=1)},
        make_graph,
        directory=path / "checkpoints",
        log=log,
    )
    policy = CheckpointPolicy(path / "checkpoints", every_events=4)
    return Runtime(log, graph, *views.values(), checkpoints=policy), log


def test_a_log_and_its_checkpoints_keep_times(tmp_path: Path):
    runtime, log = open_runtime(tmp_path)
    entries = [
        Events().set_features(0, row(5), time=40.0),
        Events().set_features([0, 1], [row(6), row(6)], time=[39.0, 41.0]),
        Events().set_features(0, row(7), time=40.0),
        Events().remove_nodes(2).add_nodes(2).set_features(2, row(8), time=1.0),
    ]
    for events in entries:
        runtime.append(events)
        runtime.step()
    (saved,) = list_checkpoints(tmp_path / "checkpoints")
    assert checkpoint.read(saved).seq < runtime.seq
    assert runtime.statistics.late_features.total == 1
    after = frozen(runtime.graph.state())
    log.close()  # as a process that is killed: the last events are in no checkpoint
    again, log = open_runtime(tmp_path)
    assert frozen(again.graph.state()) == after
    assert again.graph.feature_times([0, 1, 2]).tolist() == [40.0, 41.0, 1.0]
    log.close()


def test_a_log_of_times_is_for_no_graph_without_them(tmp_path: Path):
    log = SqliteLog(tmp_path / "log.db")
    Runtime(log, make_graph())
    with pytest.raises(LogError, match="timed features of 'node'"):
        Runtime(log, Graph(Schema({"node": WIDTH}, {EDGES: EdgeSchema(weighted=True)})))
    log.close()


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([10.0, 20.0], "time: expected 3 times, as many as ids, got 2"),
        ([10.0, np.nan, 30.0], "time: expected times of nodes up to the latest_time"),
        ([10.0, np.inf, 30.0], "time: expected times of nodes up to the latest_time"),
        ([10.0, 20.0, 31.0], "time: expected times of nodes up to the latest_time"),
        (None, "nodes/node/time: expected an array"),
    ],
)
def test_a_state_with_other_times_is_refused(times, message):
    state = make_graph().state()
    arrays = {name: one for name, one in state.arrays.items() if name != "nodes/node/time"}
    if times is not None:
        arrays["nodes/node/time"] = np.array(times)
    with pytest.raises(FileFormatError, match=message):
        Graph.from_state(state._replace(arrays=arrays))


def test_a_time_far_ahead_is_refused(tmp_path: Path):
    log = SqliteLog(tmp_path / "log.db")
    runtime = Runtime(log, make_graph(), ahead=AheadPolicy(5.0))
    seq = runtime.append(Events().set_features(1, row(4), time=36.0))
    runtime.step()
    rejection = runtime.rejection(seq)
    assert rejection is not None
    assert "got 36.0 for the node 1" in rejection.message
    log.close()


# -- parts


@pytest.mark.parametrize("text", [False, True])
def test_parts_agree_on_late_rows(text: bool, tmp_path: Path):
    alone = Engine(make_graph(text_ids=text), MODEL, threads=1)
    parts = LocalPartitions.from_graph(make_graph(text_ids=text), MODEL, Owners("jump", 2), threads=1)
    ids = ["a", "b", "c"] if text else [0, 1, 2]

    def apply(*entries: Events) -> None:
        for events in entries:
            assert parts.apply(events).late_features == alone.apply(events).late_features
            assert np.array_equal(parts.predict(ids), alone.predict(ids))

    def sets(time: float) -> Events:
        return Events().set_features(ids, [row(time), row(time + 1), row(time + 2)], time=[time] * 3)

    apply(sets(15.0), sets(40.0), sets(39.0), Events().add_edges(ids[2], ids[0]), sets(25.0), sets(41.0))
    parts.write(tmp_path)
    parts.close()
    if text:  # as a process of its own has it, which knows the numbers of texts alone
        saved = SavedSet.find(tmp_path)
        names = saved.restore_names()
        part, _ = saved.restore_part(1, numbers=[names.native.save_nodes(0)[0]], ids=NumberedIds())
        assert part.native.save_feature_times(0).tolist() == names.native.save_feature_times(0).tolist()
    parts = LocalPartitions.from_checkpoint(tmp_path, MODEL, threads=1)
    apply(sets(40.5), sets(41.0))
    joined, _ = parts.join()
    assert joined.feature_times(ids).tolist() == alone.graph.feature_times(ids).tolist()
    parts.close()


# -- tables

TIMED = NodeRows("id", x=["x0", "x1"], time="at", time_unit="ms")


def test_a_table_gives_times():
    schema = Schema({"node": 2}, {}, timed_features=["node"])
    table = pa.table({"id": [1, 2, 1], "x0": [1.0, 2.0, 3.0], "x1": [0.0] * 3, "at": [5000, 6000, 4000]})
    events = TableReader(TableMapping([TIMED]), schema).events(table)
    expected = Events().add_nodes([1, 2, 1], [[1, 0], [2, 0], [3, 0]], time=[5.0, 6.0, 4.0])
    assert events == expected
    graph = Graph(schema)
    assert graph.apply(events).late_features == 1
    assert graph.features([1, 2]).tolist() == [[1.0, 0.0], [2.0, 0.0]]


def test_a_changed_row_gives_its_time_and_removes_no_node():
    """An edge whose time goes back is removed and added again; a node would lose its edges."""
    schema = Schema({"node": 2}, {}, timed_features=["node"])
    entry = NodeRows("id", x=["x0", "x1"], time="at", removes=True)
    old, new = (pa.table({"id": [1], "x0": [x], "x1": [0.0], "at": [at]}) for x, at in ((1.0, 5), (2.0, 4)))
    events = read_changes(TableReader(TableMapping([entry]), schema), RowChanges(["update"], new, old))
    assert events == Events().add_nodes(1, [2.0, 0.0], time=4.0)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"time": "at"}, "time is that of the features, x, got 'at' without x"),
        ({"x": "x", "time_unit": "s"}, "time_unit needs a column of times"),
        ({"x": "x", "time": "at", "time_unit": "year"}, "time_unit must be 'ns'"),
        ({"x": "x", "time": 7}, "time must be the name of a column"),
    ],
)
def test_a_mapping_with_a_wrong_time_is_refused(columns, message):
    with pytest.raises(InputError, match=message):
        NodeRows("id", **columns)


def test_a_mapping_needs_a_type_with_times():
    with pytest.raises(InputError, match=r"features of node type 'node' have no time, got the column 'at'"):
        TableReader(TableMapping([TIMED]), Schema({"node": 2}, {}))


def test_a_file_that_was_loaded_without_times_is_known_again(tmp_path: Path):
    """What was loaded is not loaded again because mappings got more fields; another time is one."""
    path = tmp_path / "nodes.csv"
    path.write_text("id,x\n1,2\n")
    plain = TableMapping([NodeRows("id", x="x")])
    assert "time" not in repr(plain)
    digests = {
        digest_of(path, TableMapping([NodeRows("id", x="x", time=time, time_unit=unit)]), "t")  # type: ignore[arg-type]
        for time, unit in ((None, None), ("at", None), ("at", "ms"), ("then", None))
    }
    assert len(digests) == 4
    assert digest_of(path, plain, "t") in digests


# -- what does not have it


def test_workers_refuse_times():
    schema = Schema({"node": 2}, {EDGES: EdgeSchema()}, timed_features=["node"])
    query = Query.from_num_neighbors(schema, "node", [2])
    with pytest.raises(InputError, match=r"timed_features=\['node'\]: use a Presampler"):
        WorkerPlan(schema=schema, query=query)


# -- files of this version


def test_a_checkpoint_of_version_with_times_loads():
    saved = checkpoint.read(DATA / "timed_features.lgck")
    graph = Graph.from_state(saved.states["graph"])
    assert graph.feature_times([0, 1, 2, 3]).tolist() == [10.0, 25.0, -np.inf, 0.0]
    assert graph.features([0, 1, 2, 3]).tolist() == [[1, 1], [5, 5], [0, 0], [4, 4]]
    assert graph.latest_time == 25.0


def test_a_checkpoint_from_before_times_loads_and_is_written_as_it_was(tmp_path: Path):
    path = DATA / "untimed_features.lgck"
    saved = checkpoint.read(path)
    graph = Graph.from_state(saved.states["graph"])
    assert graph.latest_time == 25.0
    checkpoint.write(tmp_path / "again.lgck", {"graph": graph.state()}, saved.seq)
    assert (tmp_path / "again.lgck").read_bytes() == path.read_bytes()
