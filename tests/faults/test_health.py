"""Health tells the truth: under every fault, health says 503 and names what is wrong, and 200 without it.

`FAULTS` is the table: each makes one thing wrong and, where that can be, right again.
"""

import asyncio
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import apsw
import httpx
import numpy as np
import pytest

import livegnn.log.sqlite.sequence
import livegnn.runtime.log_watch
import livegnn.runtime.loop
from faulty_disk import FaultyDisk
from livegnn import DiskFullError, Engine, Events
from livegnn.errors import LogError, SourceError
from livegnn.functions.settings import MachineSettings
from livegnn.graph import Graph, GraphDelta, View
from livegnn.log import Batch
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Model, Step
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.snapshots.writer import write_snapshot
from livegnn.types import State
from livegnn.workers import ServingWorker, SqlitePlace
from scraped import scrape
from serving_workers import PLAN
from streams import WIDTH, make_graph, make_model
from waiting import PATIENCE, wait_until


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question writes a probe, and SQLite waits for a lock for a moment."""
    monkeypatch.setattr(livegnn.runtime.log_watch, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(livegnn.runtime.log_watch, "_WAIT_SECONDS", PATIENCE)
    monkeypatch.setattr(livegnn.log.sqlite.sequence, "_BUSY_MILLISECONDS", 5)


class Holding(View):
    """A view whose batches take as long as `held` is locked, and fail if they are to."""

    name = "holding"

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.held = threading.Lock()
        graph.attach(self)

    def prepare(self, change: GraphDelta) -> None:
        with self.held:
            pass


class Fragile(Engine):
    broken = False

    def prepare(self, change: GraphDelta) -> None:
        if self.broken:
            raise RuntimeError("its file is gone")
        super().prepare(change)


class StandIn:
    """A source that has read all but what it says."""

    name, waits, stored, bad, tombstones = "orders", None, 3, 0, 0

    def __init__(self, failure: BaseException | None) -> None:
        self.failure, self.lag = failure, {0: 4}


@dataclass
class World:
    """A server and what can be done to it."""

    runtime: Runtime
    disk: FaultyDisk
    log: SqliteLog
    view: Holding
    engine: Fragile
    building: threading.Lock
    patch: pytest.MonkeyPatch

    def ask(self, path: str, method: str = "GET", json: object = None) -> httpx.Response:
        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=None) as client:
                return await client.request(method, path, json=json)

        return asyncio.run(request())

    def __post_init__(self) -> None:
        self.app = create_app(self.runtime)

    def works(self) -> bool:
        """Whether the loop is at a batch."""
        return self.runtime._round_began is not None

    def check(self, reason: str | None) -> httpx.Response:
        """Health, `livegnn_up` and the runtime say the same: all is well, or this alone is wrong."""
        answer, metrics = self.ask("/healthz"), self.ask("/metrics").text
        found = self.runtime.readiness()
        assert list(answer.json().get("reasons", {})) == ([] if reason is None else [reason]), answer.text
        assert answer.status_code == (200 if reason is None else 503)
        assert (answer.json()["status"] == "ok") is found.ready is (reason is None)
        assert list(found.reasons) == ([] if reason is None else [reason])
        assert scrape(metrics)["livegnn_up"] == (reason is None)
        return answer


Fault = Callable[[World], AbstractContextManager[None]]


@contextmanager
def dead_disk(world: World) -> Iterator[None]:
    world.disk.failing = True
    yield
    world.disk.failing = False


@contextmanager
def full_disk(world: World) -> Iterator[None]:
    world.disk.full = True
    yield
    world.disk.empty()


@contextmanager
def moved_log(world: World) -> Iterator[None]:
    aside = world.log.path.with_name("aside")
    world.log.path.rename(aside)
    answer = world.ask("/v1/events", method="POST", json={"events": [{"event": "add_node", "id": 907}]})
    assert answer.status_code == 503, answer.text
    assert answer.json()["type"] == "/problems/log-moved"
    yield
    aside.rename(world.log.path)


@contextmanager
def removed_log(world: World) -> Iterator[None]:
    """The last write is fresh, and a probe would succeed."""
    world.patch.setattr(livegnn.runtime.log_watch, "FRESH_SECONDS", 1e9)
    world.runtime.wait(world.runtime.append(Events().add_nodes(906)), PATIENCE)
    world.log.path.unlink()
    yield


@contextmanager
def foreign_lock(world: World) -> Iterator[None]:
    other = apsw.Connection(str(world.log.path))
    other.execute("BEGIN IMMEDIATE")
    yield
    other.close()


@contextmanager
def failed_append(world: World) -> Iterator[None]:
    """The append itself says it; the probe that follows hangs, and nobody waits for it."""
    let_go = threading.Event()
    world.patch.setattr(world.log, "probe", let_go.wait)
    world.patch.setattr(livegnn.runtime.log_watch, "_WAIT_SECONDS", 0.0)
    with full_disk(world), pytest.raises(DiskFullError):
        world.runtime.append(Events().add_nodes(905))
    yield
    let_go.set()


@contextmanager
def paused_loop(world: World) -> Iterator[None]:
    """The disk is full when a batch is to be recorded, and probes of the log find room."""

    def refuse(batch: Batch, *rejections: object) -> None:
        raise DiskFullError("no space is left")

    with world.patch.context() as patched:
        patched.setattr(world.log, "record_batch", refuse)
        world.runtime.append(Events().add_nodes(901))
        wait_until(lambda: world.runtime.paused is not None)
        yield
    world.runtime.wait(world.log.last_seq(), PATIENCE)
    wait_until(lambda: world.runtime.paused is None)  # a moment after the batch is visible


@contextmanager
def failed_loop(world: World) -> Iterator[None]:
    world.log.record_batch(Batch(0, 1))  # a batch that is none of the loop's
    world.runtime.append(Events().add_nodes(902))
    wait_until(lambda: world.runtime.failure is not None)
    yield


@contextmanager
def stopped_loop(world: World) -> Iterator[None]:
    world.runtime.stop()
    yield


@contextmanager
def stuck_loop(world: World) -> Iterator[None]:
    with world.view.held, world.patch.context() as patched:
        patched.setattr(livegnn.runtime.loop, "_LONGEST_ROUND", -1.0)
        seq = world.runtime.append(Events().add_nodes(903))
        wait_until(world.works)
        yield
    world.runtime.wait(seq, PATIENCE)


@contextmanager
def long_backlog(world: World) -> Iterator[None]:
    with world.view.held:
        seq = world.runtime.append(Events().add_nodes(list(range(1000, 1200))))
        yield
    world.runtime.wait(seq, PATIENCE)


@contextmanager
def failed_source(world: World) -> Iterator[None]:
    world.runtime.sources["orders"] = StandIn(SourceError("the topic is gone"))
    yield
    world.runtime.sources["orders"] = StandIn(None)


@contextmanager
def missing_predictor(world: World) -> Iterator[None]:
    world.engine.broken = True
    with world.building:
        seq = world.runtime.append(Events().add_nodes(904))
        wait_until(lambda: "engine" in world.runtime.views.missing)
        yield
    world.runtime.wait(seq, PATIENCE)
    wait_until(lambda: not world.runtime.views.missing)


FAULTS: dict[str, tuple[Fault, str, bool]] = {
    "dead disk": (dead_disk, "log", True),
    "full disk": (full_disk, "log", True),
    "moved log": (moved_log, "log", True),
    "removed log": (removed_log, "log", False),
    "foreign lock": (foreign_lock, "log", True),
    "failed append": (failed_append, "log", False),
    "paused loop": (paused_loop, "loop", True),
    "failed loop": (failed_loop, "loop", False),
    "stopped loop": (stopped_loop, "loop", False),
    "stuck loop": (stuck_loop, "loop", True),
    "long backlog": (long_backlog, "backlog", True),
    "failed source": (failed_source, "source orders", True),
    "missing predictor": (missing_predictor, "predictor", True),
}
"""By name: the fault, what health must name, and whether it can end."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[World]:
    disk = FaultyDisk(f"health {request.node.name}")
    log, graph, building = SqliteLog(tmp_path / "events.db", vfs=disk.name), make_graph(), threading.Lock()
    engine, view = Fragile(graph, make_model(), threads=1), Holding(graph)

    def make(graph: Graph, state: State | None) -> Engine:
        with building:
            return Engine(graph, make_model(), threads=1)

    factories = {"engine": make, "holding": lambda graph, state: Holding(graph)}
    runtime = Runtime(
        log, graph, engine, view, max_waiting_events=100, when_view_fails="rebuild", factories=factories
    )
    runtime.start()
    yield World(runtime, disk, log, view, engine, building, monkeypatch)
    disk.empty()
    disk.failing = False
    runtime.stop()
    log.close()


@pytest.mark.parametrize("name", FAULTS)
def test_health_tells_the_truth_under_every_fault(world: World, name: str) -> None:
    fault, reason, ends = FAULTS[name]
    world.check(None)
    with fault(world):
        world.check(reason)
    if ends:
        world.check(None)


def test_health_and_metrics_answer_while_the_log_cannot_be_read(world: World) -> None:
    """Something else writes over the file that the server has open: an append finds it, or the loop."""
    world.runtime.wait(world.runtime.append(Events().add_nodes(908)), PATIENCE)
    with world.log.path.open("r+b") as file:
        file.write(bytes(4096))
    os.truncate(f"{world.log.path}-wal", 0)
    answer = world.ask("/v1/events", method="POST", json={"events": [{"event": "add_node", "id": 909}]})
    assert answer.status_code in (500, 503), answer.text
    health, metrics = world.ask("/healthz"), world.ask("/metrics")
    assert health.status_code == 503
    assert set(health.json()["reasons"]) <= {"log", "loop"}
    known = health.json()["log_seq"]  # the last that was read, unless a read has found it out
    assert known in (None, 1)
    assert metrics.status_code == 200
    assert scrape(metrics.text)["livegnn_up"] == 0
    assert re.search(r"^livegnn_log_seq (1\.0|NaN)$", metrics.text, re.MULTILINE)


def test_a_log_that_was_cut_short_stays_not_ready(world: World) -> None:
    """No event comes by: it is found by whoever asks."""
    world.runtime.wait(world.runtime.append(Events().add_nodes(908)), PATIENCE)
    with closing(apsw.Connection(str(world.log.path))) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = world.log.path.read_bytes()
    os.truncate(world.log.path, 4096)
    for _ in range(2):
        health = world.ask("/healthz")
        assert health.status_code == 503
        assert "bytes off its end" in health.json()["reasons"]["log"]
        answer = world.ask("/v1/events", method="POST", json={"events": [{"event": "add_node", "id": 909}]})
        assert answer.status_code in (500, 503)
        assert "bytes off its end" in answer.text
        with world.log.path.open("r+b") as file:
            file.write(whole)


def test_what_the_server_goes_on_without_is_said(world: World) -> None:
    world.view.failure = "the store does not answer"
    answer = world.check(None)
    assert answer.json()["side_failures"] == {world.view.name: "the store does not answer"}
    world.view.failure = None
    assert "side_failures" not in world.check(None).json()


def nothing_wrong(directory: Path) -> MachineSettings:
    write_snapshot(make_graph(), str(directory / "snapshot"), seq=5)
    make_model().save(directory / "model.lgnn")
    return MachineSettings(
        str(directory / "snapshot"), str(directory / "model.lgnn"), place="threads", workers=1
    )


def wrong_model(directory: Path) -> MachineSettings:
    """A model of other features than the snapshot has."""
    settings = nothing_wrong(directory)
    wide = {"weight": np.ones((2, WIDTH + 1), np.float32)}
    steps = (Step("linear", ("x",), "out", {"weight": "weight"}),)
    inputs = {"x": Input("node", WIDTH + 1)}
    Model(inputs, steps, wide, output="out", layers=("x", "out")).save(settings.model)
    return settings


def no_model(directory: Path) -> MachineSettings:
    settings = nothing_wrong(directory)
    Path(settings.model).write_bytes(b"something else")
    return settings


def no_snapshot(directory: Path) -> MachineSettings:
    return replace(nothing_wrong(directory), snapshot=str(directory / "none"))


def no_bucket(directory: Path) -> MachineSettings:
    return replace(nothing_wrong(directory), snapshot="s3://none/snapshot")


FUNCTION_FAULTS = [wrong_model, no_model, no_snapshot, no_bucket]


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("fault", [None, *FUNCTION_FAULTS])
def test_a_function_is_ready_when_a_predictor_has_opened(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[Path], MachineSettings] | None,
    stages: int,
) -> None:
    with socket.socket() as nobody:  # bound, and not listening: every connection is refused
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
        settings = replace((fault or nothing_wrong)(tmp_path), sampling_workers=stages - 1)

        async def ask() -> None:
            node = settings.open()
            try:
                assert not node.readiness.ready
                said = "has not opened"
                while "has not opened" in said:  # it tries while somebody asks
                    answer = await node.report_health()
                    content = json.loads(answer.body)
                    said = " ".join(content.get("reasons", {}).values())
                metrics = (await node.report_metrics()).body.decode()
                assert scrape(metrics)["livegnn_function_up"] == (fault is None)
                assert (answer.status, content["status"]) == (
                    (200, "ok") if fault is None else (503, "not ready")
                )
                assert (said == "") is (fault is None), said
                if fault is None and stages == 1:
                    assert content["stages"]["predict"]["idle"] == 1
                    os.rename(settings.snapshot, tmp_path / "elsewhere")
                    assert (await node.report_health()).status == 200
            finally:
                await node.close()
            answer = await node.report_health()
            assert (answer.status, json.loads(answer.body)["reasons"]) == (503, {"node": "it stops"})

        asyncio.run(ask())


def test_a_function_gets_ready_when_what_was_missing_is_there(tmp_path: Path) -> None:
    settings = nothing_wrong(tmp_path)
    Path(settings.snapshot).rename(tmp_path / "elsewhere")

    async def ask() -> None:
        node = settings.open()
        try:
            while not (reasons := json.loads((await node.report_health()).body)["reasons"]):
                pass
            assert list(reasons) == ["predict"]
            os.rename(tmp_path / "elsewhere", settings.snapshot)
            while (await node.report_health()).status != 200:
                pass
        finally:
            await node.close()

    asyncio.run(ask())


def test_a_serving_worker_that_cannot_read_its_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteLog(tmp_path / "events.db").close()
    worker = ServingWorker(SqlitePlace(tmp_path / "events.db"), PLAN, 0)
    assert list(worker.readiness().reasons) == ["worker", "samples"]
    worker.start()
    try:
        wait_until(lambda: list(worker.readiness().reasons) == ["samples"])
        broken = LogError("the streams are away")

        def fail() -> bool:
            raise broken

        with monkeypatch.context() as patched:
            patched.setattr(worker, "follow", fail)
            wait_until(lambda: worker.readiness().reasons.get("streams") == str(broken))
        wait_until(lambda: list(worker.readiness().reasons) == ["samples"])
    finally:
        worker.stop()
    assert worker.readiness().reasons["worker"] == "the serving worker was stopped"
