"""What workers do when something that they keep was lost, altered, or is of something else."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import FileFormatError, LogError
from livegnn.log.sqlite import SqliteLog
from livegnn.log.streams import Record
from livegnn.presampling import Presampler
from livegnn.runtime import Runtime
from livegnn.workers import SamplingWorker, ServingWorker, SqlitePlace, WorkerPlan
from livegnn.workers.messages import REQUEST, requests_of

EDGE = ("node", "to", "node")
SCHEMA = lg.Schema({"node": 1}, {EDGE: lg.EdgeSchema(timed=True)})
QUERY = lg.Query("node").hop(EDGE, 3, by="latest").hop(EDGE, 3, by="latest")
PLAN = WorkerPlan(SCHEMA, QUERY, sampling_workers=2)
NODES = 10


class Setting:
    """A log in `folder` that grows, and two sampling workers of it."""

    def __init__(self, folder: Path, seed: int = 0, schema: lg.Schema = SCHEMA) -> None:
        self.folder, self.rng = folder, np.random.default_rng(seed)
        log = SqliteLog(folder / "events.db")
        self.view = Presampler(lg.Graph(schema), QUERY)
        self.runtime = Runtime(log, self.view.graph, self.view)
        self.runtime.start()
        self.time = self.runtime.append(lg.Events().add_nodes(np.arange(NODES), np.ones((NODES, 1))))

    def append(self, times: int = 1) -> int:
        for _ in range(times):
            self.time += 1
            ends = self.rng.integers(0, NODES, 2)
            events = lg.Events().add_edges(ends[:1], ends[1:], time=[float(self.time)])
            seq = self.runtime.append(events)
            self.runtime.wait(seq)
        return seq

    def make(self, worker: int, plan: WorkerPlan = PLAN) -> SamplingWorker:
        place = SqlitePlace(self.folder / "events.db")
        return SamplingWorker(place, plan, worker, self.folder / "workers", checkpoint_every=4)

    def work(self, times: int = 10) -> None:
        """Both workers take what comes, and end."""
        workers = [self.make(0), self.make(1)]
        for _ in range(times):
            self.append()
            for worker in workers:
                worker.step()
        for worker in workers:
            worker.close()

    def check(self) -> None:
        """Samples are right, whatever was lost."""
        workers = [self.make(0), self.make(1)]
        serving = ServingWorker(SqlitePlace(self.folder / "events.db"), PLAN, 0)
        serving.begin()
        seq = self.append()
        while serving.seq < seq:
            assert any([*(worker.step() for worker in workers), serving.follow()])
        for node in range(NODES):
            ours, theirs = serving.sample([node]), self.view.sample([node])
            assert sorted(ours.node["node"]) == sorted(theirs.node["node"])
            assert sorted(ours.time[EDGE]) == sorted(theirs.time[EDGE])
        serving.stop()
        for worker in workers:
            worker.close()

    def close(self) -> None:
        self.runtime.stop()
        self.runtime.log.close()


def streams(folder: Path) -> Path:
    return folder / "events.db-streams"


def newest(folder: Path) -> Path:
    return folder / "workers" / "sampling-0.checkpoint"


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("damage", ["altered", "cut", "empty", "gone"])
def test_the_checkpoint_before_takes_the_place_of_a_damaged_one(setting: Setting, damage: str) -> None:
    setting.work(20)
    path = newest(setting.folder)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"altered": content, "cut": content[:-40], "empty": b""}[damage])
    setting.check()


def test_two_damaged_checkpoints_are_told_with_what_helps(setting: Setting) -> None:
    setting.work(20)
    for path in (setting.folder / "workers").glob("sampling-0.*"):
        path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(FileFormatError, match="Stop all workers, remove their checkpoints"):
        setting.make(0)
    shutil.rmtree(streams(setting.folder))
    shutil.rmtree(setting.folder / "workers")
    setting.check()


@pytest.mark.parametrize("saved", [True, False])
def test_a_log_that_was_begun_anew_is_refused(tmp_path: Path, saved: bool) -> None:
    first = Setting(tmp_path)
    first.work(10 if saved else 2)
    first.close()
    assert newest(tmp_path).exists() == saved
    for path in tmp_path.glob("events.db*"):
        if path != streams(tmp_path):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    second = Setting(tmp_path, seed=1)
    second.append(30)
    with pytest.raises(LogError, match=r"got another one: it was started again.* Stop all workers"):
        second.make(0)
    second.close()


def test_references_that_were_lost_are_told(setting: Setting) -> None:
    setting.work(20)
    for path in streams(setting.folder).glob("*references-0*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    def work() -> None:
        with closing(setting.make(0)) as worker:
            for _ in range(3):
                setting.append()
                worker.step()

    with pytest.raises(LogError, match="Stop all workers, remove their checkpoints"):
        work()


def test_a_worker_that_another_has_replaced_writes_no_checkpoint(setting: Setting) -> None:
    setting.append(3)
    old = setting.make(0)
    assert old.step()
    old.close()
    new = setting.make(0)
    setting.append(3)
    while new.step():
        pass
    new.save()
    content = newest(setting.folder).read_bytes()
    with pytest.raises(LogError, match="another may have its place"):
        old.save()
    assert newest(setting.folder).read_bytes() == content
    new.close()


def test_a_request_that_nobody_can_have_written_is_passed_over(setting: Setting) -> None:
    setting.work(3)
    place = SqlitePlace(setting.folder / "events.db")
    stream = place.write(requests_of(0, 0, 0), 0)
    stream.append_all([Record(REQUEST, payload) for payload in (b"", b"no", b"9" * 40, b"-1", b"\xff")])
    stream.close()
    setting.check()


def test_a_log_of_another_graph_is_refused(tmp_path: Path) -> None:
    other = lg.Schema({"node": 1}, {EDGE: lg.EdgeSchema(timed=True)}, auto_add={"node": (0.0,)})
    setting = Setting(tmp_path, schema=other)
    setting.append()
    worker = setting.make(0)
    with pytest.raises(LogError, match="auto_add of 'node' must be"):
        worker.step()
    worker.close()
    setting.close()


def test_a_disk_that_is_full_costs_a_checkpoint_and_no_more(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = newest(setting.folder)
    blocked.mkdir(parents=True)  # no file can take its place
    with pytest.raises(FileFormatError):
        setting.make(0)
    blocked.rmdir()
    worker = setting.make(0)
    blocked.mkdir()
    (blocked / "file").touch()
    for _ in range(10):
        setting.append()
        assert worker.step()
    assert "no checkpoint of sampling worker 0" in caplog.text
    worker.close()
    shutil.rmtree(blocked)
    setting.check()
