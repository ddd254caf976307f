"""A disk that is full at random moments, for the log and for checkpoints, and has space again."""

import random
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from faulty_disk import FaultyDisk
from faulty_world import FIRST_SEED, History, check_bits, replay, seed_shown
from livegnn import DiskFullError, Engine, Events
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, list_checkpoints, restore
from streams import make_graph, make_model, make_stream
from waiting import PATIENCE

TIMES = 6  # that the disk is full
WRITERS = 3


class Writers:
    """Threads that append until `stop`, each entry with a key, again and again while there is no space."""

    def __init__(self, runtime: Runtime, seed: int, history: History) -> None:
        self.runtime, self.history, self.stopping = runtime, history, False
        self.threads = [threading.Thread(target=self._write, args=(seed, n)) for n in range(WRITERS)]
        for thread in self.threads:
            thread.start()

    def _write(self, seed: int, number: int) -> None:
        try:
            for at, events in enumerate(make_stream(3000, seed=100 * seed + number)):
                if self.stopping:
                    return
                self._append(f"{number}/{at}", events)
        except BaseException as error:
            self.history.fail(error)

    def _append(self, key: str, events: Events) -> None:
        self.history.send(key, events)
        while True:
            try:
                seq = self.runtime.append(events, key=key)
            except DiskFullError:
                continue
            self.history.tell(key, seq)
            self.runtime.wait(seq - 200 if seq > 200 else 0, PATIENCE)
            return

    def stop(self) -> None:
        self.stopping = True
        for thread in self.threads:
            thread.join(PATIENCE)
        assert self.history.failures == []


def fail_a_checkpoint(runtime: Runtime, disk: FaultyDisk, history: History) -> None:
    """There is no space for the next one, while the log has some."""
    failed = runtime.statistics.failed_checkpoint_seconds
    before, disk.full_for_files = failed.count, True
    while failed.count == before:
        history.wait_for(len(history.told) + 1)


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 1))
def test_what_was_acknowledged_stays_and_the_rest_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, beside: bool
) -> None:
    draw, history = random.Random(seed), History()
    disk = FaultyDisk(f"full {seed} {beside}")
    policy = CheckpointPolicy(tmp_path / "checkpoints", every_events=40, beside=beside)
    with seed_shown(seed), disk.has_files(monkeypatch):
        with closing(SqliteLog(tmp_path / "events.db", vfs=disk.name)) as log:
            graph = make_graph()
            runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1), checkpoints=policy)
            runtime.start()
            writers = Writers(runtime, seed, history)
            try:
                for _ in range(TIMES):
                    history.wait_for(len(history.told) + draw.randrange(1, 30))
                    if draw.random() < 0.3:
                        fail_a_checkpoint(runtime, disk, history)
                    else:
                        while disk.refused.acquire(blocking=False):
                            pass
                        disk.room = draw.randrange(40)
                        assert disk.refused.acquire(timeout=PATIENCE), "somebody must write"
                    assert runtime.failure is None
                    disk.empty()
                    if draw.random() < 0.5:
                        runtime.wait(history.last(), PATIENCE)
            finally:
                disk.empty()
                writers.stop()
            assert history.told.keys() == history.sent.keys()
            runtime.wait(history.last(), PATIENCE)
            history.check(log)
            check_bits(runtime.engine, replay(log))
            runtime.stop()
            assert runtime.paused is None
        with closing(SqliteLog(tmp_path / "events.db")) as log:
            make = {"engine": Engine.factory(make_model(), threads=1)}
            graph, views = restore(make, make_graph, directory=policy.directory, log=log)
            assert graph.seq == history.last() == log.last_batch_seq()
            engine = views["engine"]
            assert isinstance(engine, Engine)
            check_bits(engine, replay(log))
        assert 1 <= len(list_checkpoints(policy.directory)) <= 2
        assert not list(policy.directory.glob("*.partial"))


def test_a_batch_that_cannot_be_recorded_is_not_visible(tmp_path: Path) -> None:
    disk = FaultyDisk("full for a batch")
    with closing(SqliteLog(tmp_path / "events.db", vfs=disk.name)) as log:
        graph = make_graph()
        runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
        before = graph.neighbors(1, direction="out").ids.tolist()
        seq = runtime.append(Events().add_nodes(1000).add_edges(1, 1000))
        disk.room = 0
        with pytest.raises(DiskFullError):
            runtime.step()
        disk.empty()
        assert runtime.seq == graph.seq == 0
        assert graph.neighbors(1, direction="out").ids.tolist() == before
        assert runtime.step()
        assert runtime.seq == graph.seq == log.last_batch_seq() == seq
        assert 1000 in graph.neighbors(1, direction="out").ids
        check_bits(runtime.engine, replay(log))


def test_a_batch_that_was_recorded_although_the_disk_says_no_is_ours(tmp_path: Path) -> None:
    """The disk is full when SQLite copies what it has committed into its file: the commit stands, the call
    fails. With an entry to blame in it, what waits is recorded in other parts when it is tried again.
    """
    disk, stood = FaultyDisk("full after a commit"), 0
    with closing(SqliteLog(tmp_path / "events.db", vfs=disk.name)) as log:
        graph = make_graph()
        runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
        log._boundaries.execute("PRAGMA wal_autocheckpoint = 1")
        for room in range(10):
            before = runtime.append(Events().add_nodes(1000 + room)) - 1
            runtime.append(Events().remove_nodes(5000 + room))
            last = runtime.append(Events().add_edges(1, 1000 + room))
            disk.room = room
            with suppress(DiskFullError):
                runtime.step()
                before = last  # nothing was refused
            stood += log.last_batch_seq() > before
            assert runtime.seq == graph.seq == log.last_batch_seq()
            disk.empty()
            while runtime.step():
                pass
            assert runtime.seq == graph.seq == log.last_batch_seq() == last
        check_bits(runtime.engine, replay(log))
        runtime.stop()
    assert stood
