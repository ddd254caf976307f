"""The health of a node of functions: red for as long as requests would fail, and no longer."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from functions import WholePredictor, body, message
from livegnn.errors import (
    FileFormatError,
    LiveGNNError,
    ObjectDamagedError,
    ObjectMissingError,
    SnapshotError,
    StoreUnavailableError,
)
from livegnn.functions.bodies import Answer
from livegnn.functions.function import answer
from livegnn.functions.machine import Machine
from livegnn.functions.scheduler import Limits
from livegnn.functions.settings import MachineSettings
from livegnn.functions.stage import Stage
from livegnn.functions.worker_host import WorkerDied
from livegnn.snapshots.writer import write_snapshot
from scraped import scrape
from streams import make_graph, make_model
from waiting import PATIENCE, until

FINE = (200, {"status": "ok"})


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE):
            await work()

    asyncio.run(limited())


class Predictor(WholePredictor):
    """Fails with `failure` for ids, and with `gone` in a check."""

    failure: Exception | None = None
    gone: Exception | None = None

    def predict(self, ids, *, memory_limit):
        if self.failure is not None and len(ids):
            raise self.failure
        return super().predict(ids, memory_limit=memory_limit)

    def check(self) -> None:
        if self.gone is not None:
            raise self.gone


class Worker:
    """A worker in this task. going: while it is clear, requests for ids are not answered."""

    def __init__(self, predictor: Predictor, going: asyncio.Event) -> None:
        self.predictor, self.going, self._end = predictor, going, asyncio.Event()

    async def call(self, body: bytes) -> Answer:
        await self.going.wait()
        return answer(self.predictor, "predict", body)

    async def ended(self) -> str:
        await self._end.wait()
        return "ended"

    async def stop(self) -> None:
        self._end.set()

    kill = stop


class Host:
    """Starts workers, or fails to while `failure` is a text."""

    def __init__(self) -> None:
        self.predictor, self.going, self.failure = Predictor(), asyncio.Event(), ""
        self.going.set()

    async def launch(self, number: int) -> Worker:
        if self.failure:
            raise WorkerDied(self.failure)
        return Worker(self.predictor, self.going)

    async def close(self) -> None:
        """Nothing is left."""


async def health(node: Machine) -> tuple[int, dict[str, object]]:
    """Status of the health, and its status and reasons."""
    found = await node.report_health()
    content = json.loads(found.body)
    return found.status, {name: content[name] for name in ("status", "reasons") if name in content}


async def up(node: Machine) -> float:
    return scrape((await node.report_metrics()).body.decode())["livegnn_function_up"]


def test_a_node_whose_warm_workers_answer_is_ready_after_a_failed_start() -> None:
    async def work() -> None:
        for asks in (True, False):  # a request, or nothing but requests for its health
            host = Host()
            stage = Stage(host, Limits(2))
            node = Machine({"predict": stage}, concurrency=4)
            assert (await node.predict(body(1))).status == 200
            host.failure = "there is no room"
            host.going.clear()
            both = [asyncio.create_task(node.predict(body(id))) for id in (1, 2)]
            await until(lambda stage=stage: stage.figures.died == 1)
            assert node.readiness.reasons == {"predict": "there is no room"}
            assert await up(node) == 0
            host.going.set()
            for one in both:
                assert (await one).status == 200
            if asks:
                assert (await node.predict(body(3))).status == 200
                assert await up(node) == 1
            assert await health(node) == FINE
            assert await up(node) == 1
            await node.close()

    run(work)


@pytest.mark.parametrize(
    "kind", [SnapshotError, ObjectMissingError, ObjectDamagedError, StoreUnavailableError, FileFormatError]
)
def test_a_node_whose_snapshot_cannot_be_read_is_not_ready(kind: type[LiveGNNError]) -> None:
    async def work() -> None:
        host = Host()
        node = Machine({"predict": Stage(host, Limits(1))}, concurrency=4)
        assert (await node.predict(body(1))).status == 200
        host.predictor.failure = host.predictor.gone = kind("the data are away")
        assert (await node.predict(body(1))).status >= 500
        for _ in range(2):
            status, found = await health(node)
            assert (status, "the data are away" in found["reasons"]["predict"]) == (503, True)
            assert await up(node) == 0
        host.predictor.gone = None  # a part of the snapshot fails, and other requests are answered
        assert await health(node) == FINE
        assert (await node.predict(body(1))).status >= 500
        assert await up(node) == 0
        host.predictor.failure = None
        assert (await node.predict(body(1))).status == 200
        assert await up(node) == 1
        await node.close()

    run(work)


def test_errors_of_one_request_leave_a_node_ready() -> None:
    async def work() -> None:
        host = Host()
        stage = Stage(host, Limits(1))
        for error in (RuntimeError("a mistake"), MemoryError("large")):
            host.predictor.failure = error
            assert (await stage.call(message(1))).status == 500
            assert stage.trouble is None
        await stage.close()

    run(work)


@pytest.mark.parametrize("refresh", [None, 0.001])
def test_a_node_is_not_ready_while_its_snapshot_is_deleted(tmp_path: Path, refresh: float | None) -> None:
    make_model().save(tmp_path / "model.lgnn")

    async def work() -> None:
        place = tmp_path / "snapshot"
        write_snapshot(make_graph(), str(place))
        shutil.copytree(place, tmp_path / "kept")
        settings = MachineSettings(
            snapshot=str(place), model=tmp_path / "model.lgnn", place="threads", refresh=refresh
        )
        node = settings.open()
        try:
            assert await health(node) == FINE
            shutil.rmtree(place)
            assert (await node.predict(body(1))).status == 500
            for _ in range(2):
                status, found = await health(node)
                assert (status, found["status"], list(found["reasons"])) == (503, "not ready", ["predict"])
            shutil.copytree(tmp_path / "kept", place)
            assert await health(node) == FINE
            assert (await node.predict(body(1))).status == 200
        finally:
            await node.close()

    run(work)


LAMBDA = """
import json, shutil, sys
from livegnn.functions.lambda_handler import handler

def ask(path):
    found = handler({"httpMethod": "GET", "path": path}, None)
    return found["statusCode"], json.loads(found["body"])

READY = ("/readyz", "/v1/health", "/prod/readyz", "/v2/health/ready")
before = [ask(path) for path in ("/livez", *READY)]
shutil.rmtree(sys.argv[1])
print(json.dumps([before, [ask(path) for path in ("/livez", *READY)]]))
"""


def test_a_handler_of_events_reports_its_health(tmp_path: Path) -> None:
    make_model().save(tmp_path / "model.lgnn")
    write_snapshot(make_graph(), str(tmp_path / "snapshot"))
    variables = {
        "LIVEGNN_SNAPSHOT": str(tmp_path / "snapshot"),
        "LIVEGNN_MODEL": str(tmp_path / "model.lgnn"),
    }
    command = [sys.executable, "-c", LAMBDA, variables["LIVEGNN_SNAPSHOT"]]
    told = subprocess.check_output(command, text=True, env={**os.environ, **variables})
    before, after = json.loads(told)
    assert [status for status, _ in before] == [200] * 5
    assert before[0][1] == {"status": "ok"}
    assert [status for status, _ in after] == [200, 503, 503, 503, 503]
    assert "found none" in after[1][1]["reasons"]["predict"]
