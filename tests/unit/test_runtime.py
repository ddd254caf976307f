"""The loop, in one process: batches, rejections, waiting, subscribers, checkpoints and recovery."""

import gc
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from faulty_disk import FaultyDisk
from livegnn import (
    DiskFullError,
    EdgeSchema,
    Engine,
    Events,
    Graph,
    InputError,
    LiveGNNError,
    LogError,
    Model,
    OverloadedError,
    Schema,
    TimeoutExpired,
    UnknownNodeError,
    UnknownTypeError,
    checkpoint,
)
from livegnn.graph import GraphDelta, View
from livegnn.log import Batch, Rejection
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Propagate, Step
from livegnn.runtime import Change, CheckpointPolicy, Runtime, list_checkpoints, restore
from livegnn.types import State
from owned import names_in
from streams import WIDTH, make_graph, make_model, make_stream
from waiting import PATIENCE

DOCS = Path(__file__).parents[2] / "docs" / "runtime.md"
MODEL = make_model()


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "events.db")
    yield log
    log.close()


def make_runtime(log: SqliteLog, **settings: object) -> Runtime:
    graph = make_graph()
    return Runtime(log, graph, Engine(graph, MODEL, threads=1), **settings)  # type: ignore[arg-type]


def drain(runtime: Runtime) -> None:
    while runtime.step():
        pass


def bits(runtime: Runtime) -> dict[str, bytes]:
    """Everything that graph and engine hold, and every prediction."""
    arrays = {}
    for owner, state in (("graph", runtime.graph.state()), ("engine", runtime.engine.state())):
        arrays |= {f"{owner}/{name}": array.tobytes() for name, array in state.arrays.items()}
    return arrays | {"output": runtime.engine.embeddings(-1).tobytes()}


def test_the_snippet_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Callable[[Graph, Model], list[float]]] = {}
    exec(DOCS.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0], names)
    expected = make_runtime_like(Events().remove_nodes(3)).predict([0])[0].tolist()
    assert names["start"](make_graph(), MODEL) == expected


def test_whole_entries_are_merged_up_to_the_limit(log: SqliteLog) -> None:
    runtime = make_runtime(log, max_batch_events=5)
    for count in (2, 2, 2, 9, 1, 4):
        runtime.append(Events().set_features(np.arange(count), np.ones((count, WIDTH))))
    drain(runtime)
    assert list(log.batches(0)) == [Batch(0, 4), Batch(4, 6), Batch(6, 15), Batch(15, 20)]
    assert runtime.seq == runtime.engine.seq == 20
    assert runtime.statistics.batch_events.total == 20


def test_nodes_that_were_reached_count_even_if_no_prediction_is_another(log: SqliteLog) -> None:
    graph = make_graph()
    mean = Propagate(("node", "to", "node"), neighbor_context="count", combine="divide")
    floor = Model(  # nothing rises above the ReLU, so every prediction is 0
        inputs={"x": Input("node", WIDTH)},
        steps=(
            Step("propagate", ("x",), "mean", attrs=mean.to_attrs()),
            Step("scale_shift", ("mean",), "shifted", {"shift": "far below"}),
            Step("relu", ("shifted",), "out"),
        ),
        tensors={"far below": np.full(WIDTH, -1e6, np.float32)},
        output="out",
        layers=("x", "out"),
    )
    runtime = Runtime(log, graph, Engine(graph, floor, threads=1))
    changes: list[Change] = []
    runtime.subscribe(changes.append)
    source = int(graph.neighbors(0).ids[0])
    runtime.append(Events().set_features(source, np.ones(WIDTH)))
    drain(runtime)
    assert changes[0].affected == graph.degree(source, direction="out")[0]
    assert len(changes[0].ids) == 0
    assert runtime.statistics.affected_nodes.total == changes[0].affected
    assert runtime.statistics.changed_nodes.total == 0


def test_predictions_are_those_of_one_engine_fed_the_same_batches(log: SqliteLog) -> None:
    runtime = make_runtime(log, max_batch_events=30)
    stream = make_stream(60)
    for events in stream:
        runtime.append(events)
    drain(runtime)
    other = make_graph()
    engine = Engine(other, MODEL, threads=1)
    for batch in log.batches(0):
        entries = log.entries(batch.after, up_to=batch.seq)
        engine.apply(Events.concatenate(entry.events for entry in entries), seq=batch.seq)
    assert runtime.engine.embeddings(-1).tobytes() == engine.embeddings(-1).tobytes()
    assert runtime.engine.verify().ok


def test_a_batch_is_recorded_before_it_is_visible(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    before = runtime.engine.predict([0]).tolist()
    seen = []
    record = log.record_batch

    def look_and_record(batch: Batch, *rejections: Rejection) -> None:
        seen.append((runtime.engine.predict([0]).tolist(), runtime.engine.seq))
        record(batch, *rejections)

    log.record_batch = look_and_record  # type: ignore[method-assign]
    runtime.append(Events().set_features(0, np.ones(WIDTH)))
    drain(runtime)
    assert seen == [(before, 0)]
    assert runtime.engine.predict([0]).tolist() != before


def test_a_batch_that_cannot_be_recorded_does_not_become_visible(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    before = bits(runtime)
    runtime.append(Events().set_features(0, np.ones(WIDTH)))
    log.record_batch(Batch(0, 1))  # as another process would
    with pytest.raises(LogError, match="does another process run on this log"):
        runtime.step()
    assert bits(runtime) == before
    assert runtime.seq == runtime.engine.seq == 0


def test_bad_entries_are_rejected_alone(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    good, other = Events().set_features(0, np.ones(WIDTH)), Events().set_features(1, np.ones(WIDTH))
    seqs = [
        runtime.append(events)
        for events in (good, Events().add_edges(1, 2).add_edges(1, 999), other, Events().remove_nodes(998))
    ]
    drain(runtime)
    assert seqs == [1, 3, 4, 5]
    assert list(log.batches(0)) == [Batch(0, 5)]
    assert [(rejection.seq, rejection.error) for rejection in log.rejections()] == [
        (3, "UnknownNodeError"),
        (5, "UnknownNodeError"),
    ]
    assert runtime.rejection(1) is None
    rejection = runtime.rejection(3)
    assert rejection is not None
    assert "999" in rejection.message
    assert runtime.seq == runtime.engine.seq == 5
    expected = make_runtime_like(good, other)
    assert runtime.engine.embeddings(-1).tobytes() == expected.embeddings(-1).tobytes()
    assert runtime.statistics.rejected_entries.count == 2
    assert runtime.statistics.rejected_entries.total == 3


def make_runtime_like(*parts: Events) -> Engine:
    engine = Engine(make_graph(), MODEL, threads=1)
    for events in parts:
        engine.apply(events)
    return engine


@pytest.mark.parametrize(
    ("events", "error", "message"),
    [
        (Events().set_features(0, [1, 2]), InputError, "x must have 4 features for node type 'node', got 2"),
        (Events().set_features(0, [1, 2, 3, np.nan]), InputError, "x must be finite, got nan"),
        (Events().add_edges(0, 1, weight=np.inf), InputError, "weight must be finite, got inf"),
        (Events().add_nodes("a"), InputError, "ids must be integers in this graph, got 'a'"),
        (Events().add_edges(1, "a"), InputError, "ids must be integers in this graph, got 'a'"),
        (Events().add_nodes(1, node_type="item"), UnknownTypeError, "'item'"),
        (Events().add_edges(1, 2, edge_type=("a", "b", "c")), UnknownTypeError, "('a', 'b', 'c')"),
    ],
)
def test_what_can_never_apply_is_refused_before_the_log(
    log: SqliteLog, events: Events, error: type[InputError], message: str
) -> None:
    runtime = make_runtime(log)
    with pytest.raises(error) as raised:
        runtime.append(events)
    assert message in str(raised.value)
    assert log.last_seq() == 0


def test_text_ids(log: SqliteLog) -> None:
    graph = make_graph(text=True)
    runtime = Runtime(log, graph, Engine(graph, MODEL, threads=1))
    changes: list[Change] = []
    runtime.subscribe(changes.append)
    runtime.append(Events().add_nodes("ñ", np.ones(WIDTH)).add_edges("ñ", "n3"))
    drain(runtime)
    assert {"ñ", "n3"} <= set(changes[0].ids.tolist())
    with pytest.raises(InputError, match="ids must be text in this graph, got 5"):
        runtime.append(Events().add_nodes(5))


def test_subscribers_get_every_change_in_order(log: SqliteLog) -> None:
    runtime = make_runtime(log, max_batch_events=20)
    changes: list[Change] = []
    predictions: dict[int, list[float]] = {}

    def fail(change: Change) -> None:
        raise RuntimeError("a subscriber that fails disturbs nobody")

    runtime.subscribe(fail)
    unsubscribe = runtime.subscribe(changes.append)
    before = runtime.engine.embeddings(-1)
    predictions |= dict(zip(runtime.graph.ids().tolist(), before.tolist(), strict=True))
    for events in make_stream(30, seed=5):
        runtime.append(events)
    drain(runtime)
    assert [change.seq for change in changes] == [batch.seq for batch in log.batches(0)]
    for change in changes:
        predictions |= dict(zip(change.ids.tolist(), change.predictions.tolist(), strict=True))
        assert change.seconds >= 0
    now = runtime.graph.ids().tolist()
    assert [predictions[id_] for id_ in now] == runtime.engine.embeddings(-1).tolist()
    unsubscribe()
    unsubscribe()
    runtime.append(Events().set_features(0, np.zeros(WIDTH)))
    drain(runtime)
    assert changes[-1].seq < runtime.seq


def test_the_loop_applies_what_is_appended_and_waiters_see_it(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    assert not runtime.running
    runtime.start()
    assert runtime.running
    for value in range(20):
        seq = runtime.append(Events().set_features(0, np.full(WIDTH, value)))
        assert runtime.wait(seq, timeout=PATIENCE) >= seq
        assert runtime.graph.features([0]).tolist() == [[value] * WIDTH]
        assert runtime.predict([0]).seq >= seq
    runtime.stop()
    runtime.stop()
    assert not runtime.running
    assert runtime.statistics.latency_seconds.count == 20
    with pytest.raises(LiveGNNError, match="event 21 will not be visible"):
        runtime.wait(21)
    with pytest.raises(LiveGNNError, match="can be started once"):
        runtime.start()


def test_waiting_ends_after_the_timeout(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    assert runtime.wait(0, timeout=0) == 0
    with pytest.raises(TimeoutExpired, match="event 1 must be visible within 0 seconds, got to 0"):
        runtime.wait(1, timeout=0)


def test_a_loop_that_fails_tells_those_who_wait(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    runtime.append(Events().add_nodes(100))
    log.record_batch(Batch(0, 1))
    runtime.start()
    with pytest.raises(LiveGNNError, match="will not be visible"):
        runtime.wait(1, timeout=PATIENCE)
    assert isinstance(runtime.failure, LogError)
    runtime.stop()


def test_a_full_disk_pauses_the_loop_until_there_is_space(tmp_path: Path) -> None:
    disk = FaultyDisk("the loop pauses")
    graph = make_graph()
    runtime = Runtime(SqliteLog(tmp_path / "log.db", vfs=disk.name), graph, Engine(graph, make_model()))
    seq = runtime.append(Events().add_nodes(900))
    disk.full = True
    runtime.start()
    for _ in range(2):  # at the second one the first has been noticed
        assert disk.refused.acquire(timeout=PATIENCE)
    assert isinstance(runtime.paused, DiskFullError)
    assert (runtime.running, runtime.failure, runtime.seq) == (True, None, 0)
    with pytest.raises(DiskFullError, match="cannot append"):
        runtime.append(Events().add_nodes(901))
    disk.full = False
    assert runtime.wait(seq, timeout=PATIENCE) == seq
    assert runtime.wait(runtime.append(Events().add_nodes(902)), timeout=PATIENCE) == 2
    assert graph.contains([900, 901, 902]).tolist() == [True, False, True]
    runtime.stop()
    assert runtime.paused is None
    runtime.log.close()


def test_a_paused_loop_can_be_stopped(tmp_path: Path) -> None:
    disk = FaultyDisk("a paused loop stops")
    graph = make_graph()
    runtime = Runtime(SqliteLog(tmp_path / "log.db", vfs=disk.name), graph, Engine(graph, make_model()))
    runtime.append(Events().add_nodes(900))
    disk.full = True
    runtime.start()
    assert disk.refused.acquire(timeout=PATIENCE)
    runtime.stop()
    disk.full = False
    runtime.log.close()


def test_answers_carry_the_sequence_number_that_they_reflect(log: SqliteLog) -> None:
    # A reader without pause beside it: however slow a machine is, nothing is pushed back here.
    runtime = make_runtime(log, max_batch_events=1, max_waiting_events=100)
    expected = {0: runtime.engine.predict([0]).tolist()}
    runtime.subscribe(lambda change: expected.__setitem__(change.seq, runtime.engine.predict([0]).tolist()))
    answers = []
    reading, done = threading.Event(), threading.Event()

    def read() -> None:
        while not done.is_set():
            answers.append(runtime.predict([0]))
            reading.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert reading.wait(PATIENCE)
    runtime.start()
    for value in range(100):
        seq = runtime.append(Events().set_features(0, np.full(WIDTH, value)))
    runtime.wait(seq, timeout=PATIENCE)
    done.set()
    reader.join()
    runtime.stop()
    assert {answer.seq for answer in answers} <= set(expected)
    assert all(answer.values.tolist() == expected[answer.seq] for answer in answers)


def test_what_if_keeps_nothing(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    before = bits(runtime)
    events = Events().set_features(0, np.ones(WIDTH)).remove_nodes(1)
    answer = runtime.what_if(events, [0, 2])
    assert bits(runtime) == before
    engine = make_runtime_like(events)
    assert answer.values.tolist() == engine.predict([0, 2]).tolist()
    assert answer.seq == 0
    assert 0 in answer.changed.tolist()
    with pytest.raises(UnknownNodeError):
        runtime.what_if(Events().remove_nodes(999), [0])
    with pytest.raises(InputError, match="x must be finite"):
        runtime.what_if(Events().set_features(0, np.full(WIDTH, np.nan)), [0])


def test_checkpoints_are_written_when_they_are_due_and_two_are_kept(tmp_path: Path, log: SqliteLog) -> None:
    clock = Clock()
    policy = CheckpointPolicy(tmp_path / "checkpoints", every_events=10, every_seconds=60)
    runtime = make_runtime(log, checkpoints=policy, clock=clock)

    def append(count: int) -> list[int]:
        runtime.append(Events().set_features(np.zeros(count, int), np.ones((count, WIDTH))))
        drain(runtime)
        return [checkpoint.read(path).seq for path in list_checkpoints(policy.directory)]

    assert append(9) == []
    assert append(1) == [10]
    assert append(5) == [10]
    clock.now += 61
    assert not runtime.step()
    assert append(0) == [15, 10]
    clock.now += 61
    assert append(0) == [15, 10]
    assert append(40) == [55, 15]
    append(3)
    runtime.stop()
    assert append(0) == [58, 55]
    assert runtime.statistics.checkpoint_seconds.count == 4


def test_a_checkpoint_that_cannot_be_written_does_not_stop_the_loop(
    tmp_path: Path, log: SqliteLog, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("this is no directory", encoding="utf-8")
    policy = CheckpointPolicy(tmp_path / "file", every_events=1)
    runtime = make_runtime(log, checkpoints=policy)
    runtime.append(Events().add_nodes(100))
    drain(runtime)
    assert runtime.seq == 1
    assert runtime.statistics.checkpoint_seconds.count == 0
    assert runtime.statistics.failed_checkpoint_seconds.count == 1
    warned, record = caplog.records
    assert "no checkpoint can be written" in warned.getMessage()
    assert record.exc_info is None
    assert record.getMessage().startswith("no checkpoint at event 1: ")
    assert "File exists" in record.getMessage()
    assert len(record.getMessage().splitlines()) == 1


def recovered(log: SqliteLog, directory: Path | None, *, text: bool = False) -> Runtime:
    views = {"engine": Engine.factory(MODEL, threads=1)}
    graph, made = restore(views, lambda: make_graph(text=text), directory=directory, log=log)
    return Runtime(log, graph, *made.values())


def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path, log: SqliteLog) -> None:
    runtime = make_runtime(log, checkpoints=CheckpointPolicy(tmp_path / "c"))
    (tmp_path / "c" / "checkpoint-00000000000000000009.lgck.partial").write_bytes(b"half")
    runtime.append(Events().add_nodes(100))
    drain(runtime)
    runtime.stop()
    assert names_in(tmp_path / "c") == ["checkpoint-00000000000000000001.lgck"]


@pytest.mark.parametrize("text", [False, True])
def test_recovery_replays_the_recorded_batches_to_the_same_bits(
    tmp_path: Path, log: SqliteLog, text: bool
) -> None:
    graph = make_graph(text=text)
    policy = CheckpointPolicy(tmp_path, every_events=100)
    engine = Engine(graph, MODEL, threads=1)
    runtime = Runtime(log, graph, engine, max_batch_events=16, checkpoints=policy)
    for position, events in enumerate(make_stream(80, text=text)):
        runtime.append(events)
        if position % 7 == 3:
            runtime.append(Events().remove_nodes("nobody" if text else 10**6))
        if position % 5 == 4:
            drain(runtime)
    drain(runtime)
    expected = bits(runtime)
    newest, older = list_checkpoints(tmp_path)
    assert log.rejections()
    assert bits(recovered(log, tmp_path, text=text)) == expected
    assert bits(recovered(log, None, text=text)) == expected
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    assert bits(recovered(log, tmp_path, text=text)) == expected
    older.write_bytes(older.read_bytes()[:1000])
    assert bits(recovered(log, tmp_path, text=text)) == expected
    after = recovered(log, tmp_path, text=text)
    assert after.seq == runtime.seq
    assert not after.step()


def test_recovery_stops_at_the_last_recorded_batch(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    runtime.append(Events().set_features(0, np.ones(WIDTH)))
    drain(runtime)
    log.append(Events().set_features(0, np.zeros(WIDTH)))
    after = recovered(log, None)
    assert after.seq == 1
    assert bits(after) == bits(runtime)
    drain(after)
    assert after.graph.features([0]).tolist() == [[0] * WIDTH]


def test_a_log_of_another_graph_is_refused(tmp_path: Path, log: SqliteLog) -> None:
    runtime = make_runtime(log)
    runtime.append(Events().remove_nodes(39))
    drain(runtime)
    graph = Graph.from_edges([0], [1], x=np.ones((2, WIDTH)), weight=[1.0])
    with pytest.raises(LogError, match="was applied before, so it must apply again"):
        Runtime(log, graph, Engine(graph, MODEL, threads=1))
    ahead = make_graph()
    ahead.seq = 7
    with pytest.raises(LogError, match="must reach event 7, where the graph is, got one that ends at 1"):
        Runtime(log, ahead, Engine(ahead, MODEL, threads=1))


def value_of(number: float) -> Events:
    return Events().set_features(0, np.full(WIDTH, number))


def keep_history(tmp_path: Path, log: SqliteLog) -> tuple[Path, Path]:
    """A log as it was after 20 events, and checkpoints of after 40, in a history that went on from there."""
    old, checkpoints = tmp_path / "old.db", tmp_path / "checkpoints"
    runtime = make_runtime(log, checkpoints=CheckpointPolicy(checkpoints, every_events=40))
    for number in range(40):
        if number == 20:
            # Python's own SQLite, in this process, would not see that the log is open, and remove its -wal.
            with (
                closing(apsw.Connection(str(log.path))) as source,
                closing(apsw.Connection(str(old))) as target,
                target.backup("main", source, "main") as backup,
            ):
                backup.step()
        runtime.append(value_of(number))
        drain(runtime)
    assert len(list_checkpoints(checkpoints)) == 1
    return old, checkpoints


@pytest.mark.parametrize("applies", [1, 2])
def test_a_graph_that_events_filled_begins_a_log_as_the_refusal_says(tmp_path: Path, applies: int) -> None:
    def fill(**seq: int) -> Graph:
        graph = Graph(Schema({"node": WIDTH}, {("node", "to", "node"): EdgeSchema(weighted=True)}))
        batches = [Events().add_nodes([0, 1], np.ones((2, WIDTH))), Events().add_edges(0, 1, weight=2)]
        for batch in batches if applies == 2 else [batches[0].add_edges(0, 1, weight=2)]:
            graph.apply(batch, **seq)
        return graph

    log = SqliteLog(tmp_path / "events.db")
    with pytest.raises(LogError, match=r"where the graph is, got one that ends at 0: it is not") as refused:
        Runtime(log, fill())
    said = re.search(r"graph\.apply\(events, (\w+)=(\d+)\)", str(refused.value))
    assert said is not None
    cure = {said[1]: int(said[2])}
    for seq in (1, 2):  # a start, and another one
        runtime = Runtime(log, graph := fill(**cure), Engine(graph, make_model()))
        assert runtime.append(Events().add_edges(1, 0, weight=seq)) == seq
        while runtime.step():
            pass
        assert runtime.seq == seq
        assert runtime.engine.verify().ok
    log.close()


def test_checkpoints_of_another_history_are_refused(tmp_path: Path, log: SqliteLog) -> None:
    old, checkpoints = keep_history(tmp_path, log)
    assert recovered(log, checkpoints).seq == 40
    other = SqliteLog(old)
    runtime = recovered(other, None)
    for number in range(20, 60):  # the last event before the checkpoint is the same one
        runtime.append(value_of(number if number == 39 else -number))
        drain(runtime)
    with pytest.raises(LogError, match=r"up to event 40 .* it is not the log of this graph"):
        recovered(other, checkpoints)
    assert recovered(other, None).seq == 60
    other.close()


def test_checkpoints_that_do_not_name_their_history_are_read(tmp_path: Path, log: SqliteLog) -> None:
    _, checkpoints = keep_history(tmp_path, log)
    (path,) = list_checkpoints(checkpoints)
    saved = checkpoint.read(path)
    checkpoint.write(path, {name: saved.states[name] for name in ("graph", "engine")}, saved.seq)
    assert recovered(log, checkpoints).seq == 40


def test_a_log_that_was_continued_beside_its_runtime_is_refused_at_once(
    tmp_path: Path, log: SqliteLog
) -> None:
    """Its entries reach the checkpoint, but its batches do not: the first new one would not fit."""
    old, checkpoints = keep_history(tmp_path, log)
    (path,) = list_checkpoints(checkpoints)
    saved = checkpoint.read(path)
    other = SqliteLog(old)
    for number in range(40):
        other.append(value_of(number))
    with pytest.raises(LogError, match="it is not the log of this graph"):
        recovered(other, checkpoints)
    checkpoint.write(path, {name: saved.states[name] for name in ("graph", "engine")}, saved.seq)
    with pytest.raises(LogError, match="must have a batch that ends at event 40, got none after event 20"):
        recovered(other, checkpoints)
    other.close()


def test_settings_are_checked(log: SqliteLog) -> None:
    for number in (0, 1.5, "all"):
        with pytest.raises(InputError, match="max_batch_events must be an integer of at least 1, got"):
            make_runtime(log, max_batch_events=number)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep": 0}, "keep, a number of checkpoints, must be an integer of at least 1, got 0"),
        ({"beside": "no"}, "beside must be True or False, got 'no'"),
        ({"every_events": 0}, "every_events must be an integer of at least 1, got 0"),
        ({"every_seconds": 0.0}, "every_seconds, None for never, must be a number above 0, got 0.0"),
        ({"directory": "here"}, "directory must be a pathlib.Path, got 'here'"),
    ],
)
def test_a_policy_of_checkpoints_that_makes_no_sense_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        CheckpointPolicy(**{"directory": tmp_path} | settings)


def test_batches_that_the_log_lacks_are_refused_until_the_runtime_stops(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    graph, engine = runtime.graph, runtime.engine
    for apply in (graph.apply, engine.apply):
        with pytest.raises(InputError, match="append of the runtime, or stop it first"):
            apply(Events().add_nodes([801, 802, 803]))
    assert runtime.append(Events().add_nodes(804)) == 1
    runtime.step()
    with pytest.raises(InputError, match="append of the runtime, or stop it first"):
        graph.apply(Events().add_nodes(805))
    assert (runtime.seq, graph.seq, graph.contains([801, 804, 805]).tolist()) == (1, 1, [False, True, False])
    runtime.stop()
    graph.apply(Events().add_nodes(806))
    assert engine.verify().ok


class Unkept(View):
    """Its state cannot be kept, in one way or another."""

    name = "unkept"

    def __init__(self, graph: Graph, state: Callable[[], Any]) -> None:
        super().__init__(graph)
        self.state = state  # type: ignore[method-assign]
        graph.attach(self)


def raise_error() -> State:
    raise ValueError("no state today")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (raise_error, "ValueError('no state today')"),
        (lambda: 5, "state of the view 'unkept' must return a State or None, got 5"),
        (lambda: State({}, {5: np.zeros(2)}), "names of states and arrays to be valid Unicode text, got 5"),
        (lambda: State({}, {"n\ud800": np.zeros(2)}), "to be valid Unicode text, got 'n\\ud800'"),
        (lambda: State(None, {}), "TypeError"),
    ],
)
def test_a_view_that_cannot_be_kept_costs_the_checkpoint_and_not_the_loop(
    tmp_path: Path, log: SqliteLog, caplog: pytest.LogCaptureFixture, state: Callable[[], Any], said: str
) -> None:
    graph = make_graph()
    policy = CheckpointPolicy(tmp_path / "checkpoints", every_events=1)
    runtime = Runtime(log, graph, Unkept(graph, state), checkpoints=policy)
    runtime.append(Events().add_nodes(804))
    runtime.step()
    assert said in caplog.text
    assert (runtime.seq, list_checkpoints(policy.directory)) == (1, [])


def test_a_runtime_that_has_gone_claims_nothing(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    graph = runtime.graph
    del runtime
    gc.collect()
    graph.apply(Events().add_nodes(801))


def test_a_view_with_a_batch_of_its_own_is_not_for_a_runtime(tmp_path: Path, log: SqliteLog) -> None:
    class Own(View):
        name = "own"

        def publish(self, change: GraphDelta) -> None:
            self.graph.apply(Events().add_nodes(900))

    graph = make_graph()
    own = Own(graph)
    graph.attach(own)
    runtime = Runtime(log, graph, own, checkpoints=CheckpointPolicy(tmp_path))
    runtime.append(Events().add_nodes(804))
    with pytest.raises(LiveGNNError, match=r"'own' failed as it published it: .*append of the runtime"):
        runtime.step()
    runtime.stop()
    assert (runtime.seq, graph.seq, log.last_seq()) == (1, 1, 1)


def test_a_runtime_is_made_of_a_graph_and_its_views(log: SqliteLog) -> None:
    graph, engine = make_graph(), Engine(make_graph(), MODEL, threads=1)
    with pytest.raises(InputError, match="expected a view of the runtime's graph, got 'engine' of another"):
        Runtime(log, graph, engine)
    with pytest.raises(InputError, match=r"expected a Graph and its views, got .*Engine, .*Graph"):
        Runtime(log, engine, engine.graph)  # type: ignore[arg-type]
    for settings, message in [
        ({"checkpoints": "here"}, "checkpoints must be None or of the type CheckpointPolicy, got 'here'"),
        ({"expiry": 60.0}, "expiry must be None or of the type ExpiryPolicy, got 60.0"),
        ({"scrub": True}, "scrub must be None or of the type ScrubPolicy, got True"),
        ({"clock": 5}, "clock must be a function of nothing, which says seconds, got 5"),
    ]:
        with pytest.raises(InputError, match=message):
            make_runtime(log, **settings)


def test_a_start_says_how_far_it_is(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = make_runtime(log, max_batch_events=1)
    for value in range(4):
        runtime.append(Events().set_features(1, [float(value)] * WIDTH))
    drain(runtime)
    for seconds, shown in ((1e9, [0]), (0.0, [0, 1, 2, 3])):
        monkeypatch.setattr(sys.modules["livegnn.runtime.replay"], "_LINE_SECONDS", seconds)
        caplog.clear()
        with caplog.at_level("INFO", "livegnn"):
            make_runtime(log)
        *progress, last = [one for one in caplog.records if one.name == "livegnn.runtime.replay"]
        assert [(one.events, one.of) for one in progress] == [(done, 4) for done in shown]
        assert progress[0].getMessage() == "replayed 0 of 4 events after event 0"
        assert (last.event, last.events, last.seconds >= 0) == (4, 4, True)


def test_appends_that_are_refused_or_fail_are_few_lines(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(given: object) -> None:
        raise LogError("the disk does not answer")

    def lines() -> list[tuple[str, int]]:
        said = [one for one in caplog.records if one.name == "livegnn.runtime.intake"]
        return [(one.getMessage().split()[1], one.count) for one in said]

    some = Events().set_features(1, [1.0] * WIDTH)
    for seconds, shown in ((1e9, [1]), (0.0, [1, 1, 1])):
        monkeypatch.setattr("livegnn.runtime.intake._LINE_SECONDS", seconds)
        runtime = make_runtime(log, max_waiting_events=1)
        with monkeypatch.context() as patch, caplog.at_level("INFO", "livegnn"):
            caplog.clear()
            patch.setattr(log.group, "append", fail)
            for _ in range(3):
                with pytest.raises(LogError):
                    runtime.append(some)
            assert lines() == [("failed", count) for count in shown]
        with caplog.at_level("INFO", "livegnn"):
            caplog.clear()
            while not runtime.admission.refused:
                with suppress(OverloadedError):
                    runtime.append(some)
            for _ in range(2):
                with pytest.raises(OverloadedError):
                    runtime.append(some)
            assert lines() == [("refused", count) for count in shown]
        drain(runtime)
