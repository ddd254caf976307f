"""Checkpoints beside the loop: what is in them, what the loop does meanwhile, what can go wrong."""

import errno
import faulthandler
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gate import draws
from held_checkpoints import Held, TellingLog
from histograms import DegreeHistogram
from livegnn import Engine, EngineOptions, Events, Graph, LogError, checkpoint
from livegnn.graph import View
from livegnn.inference.options import EngineSettings
from livegnn.log import Batch, Rejection
from livegnn.runtime import CheckpointPolicy, Runtime, checkpoints, list_checkpoints
from livegnn.types import State
from owned import names_in
from processes import children
from streams import WIDTH, make_arrays, make_graph, make_model, make_stream
from waiting import PATIENCE

MODEL = make_model()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TellingLog]:
    log = TellingLog(tmp_path / "events.db")
    yield log
    log.close()


class Setting:
    """A runtime on the small example, with checkpoints every ten events, and a view that holds them up."""

    def __init__(self, log: TellingLog, directory: Path, graph: Graph | None = None, **options: Any) -> None:
        self.log, self.graph = log, make_graph() if graph is None else graph
        self.policy = CheckpointPolicy(directory / "checkpoints", every_events=10)
        self.engine = Engine(self.graph, MODEL, **({"threads": 2} | options))
        self.degrees = DegreeHistogram(self.graph)
        self.held = Held(self.graph, directory=directory)
        if self.graph.forkable:  # then it is saved first of all in the child, so hold that
            save = self.graph.state
            self.graph.state = lambda: (self.held.wait(), save())[1]  # type: ignore[method-assign]
        self.runtime = Runtime(
            log, self.graph, self.held, self.engine, self.degrees, checkpoints=self.policy, max_batch_events=4
        )

    @property
    def failed(self) -> int:
        return self.runtime.statistics.failed_checkpoint_seconds.count

    @property
    def seqs(self) -> list[int]:
        return [checkpoint.read(path).seq for path in list_checkpoints(self.policy.directory)]

    def apply(self, *entries: Events) -> None:
        """Returns when they are visible."""
        for events in entries:
            seq = self.runtime.append(events)
        self.runtime.wait(seq, timeout=PATIENCE)

    def wait(self) -> None:
        """Until the checkpoint that is written has ended."""
        ended = self.log.ended.acquire(timeout=PATIENCE)
        if not ended:
            faulthandler.dump_traceback(file=sys.__stderr__)  # where the other threads are
        assert ended


def value_of(number: float, count: int = 1) -> Events:
    return Events().set_features(np.arange(count), np.full((count, WIDTH), number))


def frozen(state: State) -> dict[str, object]:
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in state.arrays.items()} | {
        "meta": dict(state.meta)
    }


def replayed(log: TellingLog, graph: Graph, up_to: int, *, after: int = 0) -> None:
    for batch in log.batches(after):
        if batch.seq > up_to:
            return
        entries = log.entries(batch.after, up_to=batch.seq)
        graph.apply(Events.concatenate(entry.events for entry in entries), seq=batch.seq)


def make(kind: str, directory: Path) -> tuple[Graph, EngineSettings]:
    if kind == "text":
        return make_graph(text=True), {}
    if kind == "graph in files":
        return Graph.from_edges(**make_arrays(), features_dir=directory), {}  # type: ignore[arg-type]
    if kind == "engine in files":
        return make_graph(), {"state_dir": directory}
    if kind == "lazy":
        return make_graph(), {"mode": "lazy"}
    return make_graph(), {}


@pytest.mark.parametrize("kind", ["eager", "lazy", "text", "graph in files", "engine in files"])
def test_it_is_bit_for_bit_what_was_there_at_its_event_while_batches_go_on(
    log: TellingLog, tmp_path: Path, kind: str
) -> None:
    graph, options = make(kind, tmp_path / "files")
    ours = Setting(log, tmp_path, graph, **options)
    ours.runtime.start()
    graph, options = make(kind, tmp_path / "files")
    engine, degrees = Engine(graph, MODEL, EngineOptions(**options), threads=1), DegreeHistogram(graph)
    stream, seq = make_stream(120, seed=7, text=kind == "text"), 0
    for part in range(3):
        entries = stream[part * 40 : part * 40 + 40]
        ours.apply(*entries[:20])
        with ours.held.hold():
            before = ours.runtime.seq
            ours.apply(*entries[20:])  # the loop goes on
            assert ours.runtime.seq > before
        ours.wait()
        saved = checkpoint.read(list_checkpoints(ours.policy.directory)[0])
        assert seq < saved.seq < ours.runtime.seq
        replayed(log, graph, saved.seq, after=seq)
        seq = saved.seq
        for name, expected in (
            ("graph", graph.state()),
            ("engine", engine.state()),
            ("degrees", degrees.state()),
        ):
            assert frozen(saved.states[name]) == frozen(expected), name
    ours.runtime.stop()
    replayed(log, graph, log.last_seq(), after=seq)
    assert frozen(ours.engine.state()) == frozen(engine.state())
    assert ours.failed == 0


def test_one_is_written_at_a_time_and_the_next_when_that_has_ended(log: TellingLog, tmp_path: Path) -> None:
    ours = Setting(log, tmp_path)
    ours.runtime.start()
    ours.apply(value_of(1, 10))
    with ours.held.hold() as first:
        ours.apply(*(value_of(number, 10) for number in range(5)))  # one would be due after each
        assert ours.seqs == []
    ours.wait()
    assert ours.seqs == [10]
    with ours.held.hold() as second:  # nothing has to happen for it
        assert second != first
    ours.wait()
    assert ours.seqs == [60, 10]
    ours.runtime.stop()
    assert (ours.seqs, ours.failed) == ([60, 10], 0)


def test_a_killed_process_costs_a_checkpoint_and_nothing_else(
    log: TellingLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Setting(log, tmp_path)
    ours.runtime.start()
    ours.apply(value_of(1, 10))
    with ours.held.hold() as process:
        os.kill(process, signal.SIGKILL)
        ours.wait()
    assert (names_in(ours.policy.directory), ours.failed) == ([], 1)
    assert "no checkpoint at event 10: the process that writes it was ended by SIGKILL" in caplog.text
    ours.apply(value_of(2, 9))
    ours.apply(value_of(3))
    with ours.held.hold():
        pass
    ours.wait()
    assert ours.seqs == [20]
    ours.runtime.stop()


class Failing(View):
    """In a forked process, `state` does what a test says."""

    name = "failing"

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.process, self.act = os.getpid(), lambda: None
        graph.attach(self)

    def state(self) -> State | None:
        if os.getpid() != self.process:
            self.act()
        return None


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def fill_disk() -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    os.fsync = refuse  # of that process alone


def raise_error() -> None:
    raise ValueError("no state\ntoday")


def leave() -> None:
    os._exit(3)


def fail_far_below() -> None:
    raise SystemExit(5)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (limit_files, "File too large"),
        (fill_disk, "No space left on device"),
        (raise_error, r"ValueError('no state\ntoday')"),
        (leave, "the process that writes it was ended"),
        (fail_far_below, "SystemExit(5)"),
    ],
)
def test_what_fails_there_is_told_and_counted_and_the_next_is_tried(
    log: TellingLog,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    act: Callable[[], None],
    said: str,
) -> None:
    graph = make_graph()
    failing = Failing(graph)
    policy = CheckpointPolicy(tmp_path / "c", every_events=1)
    runtime = Runtime(log, graph, Engine(graph, MODEL, threads=2), failing, checkpoints=policy)
    runtime.start()
    failing.act = act
    runtime.wait(runtime.append(value_of(1)), PATIENCE)
    assert log.ended.acquire(timeout=PATIENCE)
    assert names_in(policy.directory) == []
    assert runtime.statistics.failed_checkpoint_seconds.count == 1
    (record,) = caplog.records
    assert record.getMessage().startswith("no checkpoint at event 1: ")
    assert said in record.getMessage()
    assert len(record.getMessage().splitlines()) == 1
    assert runtime.side_failures == {"checkpoint": record.getMessage()}
    failing.act = lambda: None
    runtime.wait(runtime.append(value_of(1)), PATIENCE)
    assert log.ended.acquire(timeout=PATIENCE)
    assert [checkpoint.read(path).seq for path in list_checkpoints(policy.directory)] == [2]
    assert runtime.side_failures == {}
    runtime.stop()


def test_a_process_that_hangs_is_killed_and_the_loop_writes_the_next(
    log: TellingLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PATIENCE", 0.2)
    others = children()
    ours = Setting(log, tmp_path)
    ours.runtime.start()
    ours.apply(value_of(1, 10))  # the process waits at the pipe, or is killed on its way there
    ours.wait()
    assert children() <= others
    assert "gave no sign of life for 0.2 seconds, and was killed; the loop writes the next" in caplog.text
    ours.apply(value_of(2, 10))
    ours.apply(value_of(2))  # comes after what the loop wrote
    assert (ours.seqs, ours.failed) == ([20], 1)
    ours.runtime.stop()


def test_stop_ends_what_is_being_written_and_writes_the_last_itself(
    log: TellingLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Setting(log, tmp_path)
    ours.runtime.start()
    ours.apply(value_of(1, 10))
    with ours.held.hold() as process:
        ours.runtime.stop()
        assert process not in children()
    assert names_in(ours.policy.directory) == ["checkpoint-00000000000000000010.lgck"]
    assert (ours.seqs, ours.failed, caplog.text) == ([10], 0, "")


def test_a_loop_that_fails_leaves_no_process(
    log: TellingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = children()
    ours = Setting(log, tmp_path)
    ours.runtime.start()
    ours.apply(value_of(1, 10))

    def fail(batch: Batch, rejection: Rejection | None = None) -> None:
        raise ValueError("the log is broken")

    with ours.held.hold():
        monkeypatch.setattr(log, "record_batch", fail)
        ours.runtime.append(value_of(2))
        ours.wait()
    ours.runtime.stop()
    assert isinstance(ours.runtime.failure, ValueError)
    assert children() <= others
    assert names_in(ours.policy.directory) == []


def test_many_leave_no_descriptors_and_no_processes_while_others_read(
    log: TellingLog, tmp_path: Path
) -> None:
    others = children()
    graph = make_graph(text=True)
    engine, degrees = Engine(graph, MODEL, mode="lazy", threads=2), DegreeHistogram(graph)
    policy = CheckpointPolicy(tmp_path / "c", every_events=1)
    runtime = Runtime(log, graph, engine, degrees, checkpoints=policy)
    runtime.start()
    done, names = threading.Event(), np.array([f"n{number}" for number in range(40)])
    count = draws(3, 16)

    def read() -> None:
        while not done.is_set():
            runtime.predict(names)
            graph.contains(np.tile(names, 10))
            runtime.read(lambda: degrees.counts)
            _ = engine.work, graph.memory()

    def write() -> None:
        events = Events().set_features(["n1"], np.full((1, WIDTH), runtime.seq))
        runtime.wait(runtime.append(events), PATIENCE)
        assert log.ended.acquire(timeout=PATIENCE)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        write()
        gc.collect()  # what other tests have left open
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(count - 1):
            write()
        assert len(os.listdir("/proc/self/fd")) <= before
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert children() <= others
    statistics = runtime.statistics
    assert (statistics.checkpoint_seconds.count, statistics.failed_checkpoint_seconds.count) == (count, 0)
    runtime.stop()


def test_the_process_keeps_no_file_of_its_parent(log: TellingLog, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    def look() -> None:
        targets = {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
        seen.write_text(
            "\n".join(target for target in targets if str(tmp_path) in target or "socket" in target),
            encoding="utf-8",
        )

    graph = make_graph()
    failing = Failing(graph)
    failing.act = look
    runtime = Runtime(log, graph, failing, checkpoints=CheckpointPolicy(tmp_path / "c", every_events=1))
    runtime.start()
    assert any(
        str(tmp_path) in os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
    )
    runtime.wait(runtime.append(value_of(1)), PATIENCE)
    assert log.ended.acquire(timeout=PATIENCE)
    runtime.stop()
    assert seen.read_text(encoding="utf-8") == ""


def test_a_checkpoint_is_named_when_the_log_is_synced(
    log: TellingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Setting(log, tmp_path)
    ours.runtime.start()
    named: list[list[int]] = []
    sync = log.sync
    monkeypatch.setattr(log, "sync", lambda: (named.append(ours.seqs), sync()))
    ours.apply(value_of(1, 10))
    with ours.held.hold():
        assert named == []
    ours.wait()
    assert (named, ours.seqs) == ([[]], [10])
    ours.runtime.stop()


def test_without_beside_the_loop_writes_it(log: TellingLog, tmp_path: Path) -> None:
    graph = make_graph()
    failing = Failing(graph)
    failing.act = leave
    policy = CheckpointPolicy(tmp_path / "c", every_events=1, beside=False)
    runtime = Runtime(log, graph, failing, checkpoints=policy)
    runtime.start()
    for _ in range(2):  # what is visible after a checkpoint
        runtime.wait(runtime.append(value_of(1)), PATIENCE)
    runtime.stop()
    assert runtime.statistics.failed_checkpoint_seconds.count == 0
    assert [checkpoint.read(path).seq for path in list_checkpoints(policy.directory)] == [2, 1]


def test_where_no_process_can_be_forked_the_loop_writes_it(
    log: TellingLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(checkpoints, "ForkedProcess", refuse)
    ours = Setting(log, tmp_path)
    ours.runtime.start()
    for _ in range(2):  # what is visible after a checkpoint
        ours.apply(value_of(1, 10))
    assert ours.seqs[-1] == 10
    assert ours.failed == 0
    assert "the loop writes the checkpoint at event 10 itself: [Errno 12]" in caplog.text
    ours.runtime.stop()


def test_events_are_counted_from_the_last_checkpoint_across_restarts(tmp_path: Path) -> None:
    """A server that is killed after 30 events, again and again, writes one after 50."""
    seqs: list[int] = []
    for _ in range(4):
        log = TellingLog(tmp_path / "events.db")
        graph = make_graph()
        policy = CheckpointPolicy(tmp_path / "c", every_events=50)
        runtime = Runtime(log, graph, checkpoints=policy)
        runtime.append(value_of(1, 30))
        while runtime.step():
            pass
        seqs = [checkpoint.read(path).seq for path in list_checkpoints(policy.directory)]
        log.close()
        if seqs:
            break
    assert seqs == [60]


def test_a_start_whose_replay_was_long_writes_one_without_new_events(tmp_path: Path) -> None:
    log = TellingLog(tmp_path / "events.db")
    runtime = Runtime(log, make_graph())
    runtime.append(value_of(1, 30))
    runtime.step()
    log.close()
    log = TellingLog(tmp_path / "events.db")
    policy = CheckpointPolicy(tmp_path / "c", every_events=20)
    runtime = Runtime(log, make_graph(), checkpoints=policy)
    assert not runtime.step()
    assert [checkpoint.read(path).seq for path in list_checkpoints(policy.directory)] == [30]
    log.close()


def test_a_log_that_cannot_be_synced_gives_no_name(
    log: TellingLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Setting(log, tmp_path)
    ours.runtime.start()

    def fail() -> None:
        raise LogError("the disk of the log has failed")

    with monkeypatch.context() as broken:
        broken.setattr(log, "sync", fail)
        ours.apply(value_of(1, 10))
        with ours.held.hold():
            pass
        ours.wait()
    assert names_in(ours.policy.directory) == []
    assert "no checkpoint at event 10: the disk of the log has failed" in caplog.text
    ours.runtime.stop()  # which tries again
    assert (ours.seqs, ours.failed) == ([10], 1)
