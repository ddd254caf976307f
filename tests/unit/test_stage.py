"""Stages on real workers: processes that are killed, hang, grow and do not start; threads."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from functions import (
    ENVIRONMENT,
    FAIL,
    GROW,
    HANG,
    KILL,
    PRINT,
    ROOM,
    GraphPredictor,
    asked,
    body,
    expected,
    function,
    message,
)
from livegnn.errors import InputError, TimeoutExpired
from livegnn.functions.bodies import Answer
from livegnn.functions.function import Function
from livegnn.functions.function import answer as answer_of
from livegnn.functions.machine import Machine
from livegnn.functions.processes import ProcessHost
from livegnn.functions.scheduler import Limits, Policy
from livegnn.functions.stage import Stage, WorkersFailed
from livegnn.functions.threads import ThreadHost
from livegnn.functions.worker_host import WorkerDied
from livegnn.http.refusals import ProcessStops
from processes import children, runs
from scraped import scrape
from streams import make_model
from waiting import PATIENCE, until


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE):
            await work()

    asyncio.run(limited())


def processes(directory: Path, stage: str = "predict", **settings: object) -> ProcessHost:
    return ProcessHost(function(directory, stage, **settings), environment=ENVIRONMENT)


def rows(answer: Answer) -> np.ndarray:
    assert answer.status == 200, answer
    return np.array(json.loads(answer.body)["predictions"])


def test_a_burst_is_answered_by_as_many_workers_as_there_may_be(tmp_path) -> None:
    async def work() -> None:
        stage = Stage(processes(tmp_path), Limits(2))
        answers = await asyncio.gather(*(stage.call(message(id, id + 1)) for id in range(12)))
        for id, answer in enumerate(answers):
            assert np.allclose(rows(answer), expected(id, id + 1), atol=1e-5)
            assert len(asked(tmp_path, id)) == (1 if id == 0 else 2)  # itself, and as a second id
        assert stage.scheduler.workers == stage.figures.launched == 2
        assert stage.figures.answered == 12
        await stage.close()
        assert (stage.figures.died, stage.figures.stopped) == (0, 2)

    run(work)


def test_one_request_after_the_other_needs_one_worker(tmp_path) -> None:
    async def work() -> None:
        stage = Stage(processes(tmp_path), Limits(4))
        for id in (3, 3, 3):
            await stage.call(message(id))
        assert stage.figures.launched == 1
        assert len(set(asked(tmp_path, 3))) == 1
        await stage.close()

    run(work)


def test_workers_that_are_idle_for_long_end(tmp_path) -> None:
    async def work() -> None:
        stage = Stage(processes(tmp_path), Limits(2, keep_alive=0.05))
        assert (await stage.call(message(5))).status == 200
        await until(lambda: stage.scheduler.workers == 0)
        (process,) = asked(tmp_path, 5)
        await until(lambda: not runs(process))
        assert (await stage.call(message(5))).status == 200
        assert stage.figures.launched == 2
        await stage.close()
        assert stage.figures.died == 0

    run(work)


def test_a_request_whose_workers_die_fails_and_others_are_answered(tmp_path) -> None:
    async def work() -> None:
        stage = Stage(processes(tmp_path), Limits(1))
        deadly = asyncio.create_task(stage.call(message(KILL)))
        others = [asyncio.create_task(stage.call(message(id))) for id in range(5)]
        with pytest.raises(WorkersFailed, match="signal 9"):
            await deadly
        for id, other in enumerate(others):
            assert np.allclose(rows(await other), expected(id), atol=1e-5)
            assert len(asked(tmp_path, id)) == 1
        assert len(set(asked(tmp_path, KILL))) == 2
        await stage.close()

    run(work)


def test_a_worker_that_dies_idle_is_missed(tmp_path) -> None:
    async def work() -> None:
        stage = Stage(processes(tmp_path), Limits(1))
        await stage.call(message(1))
        os.kill(int(asked(tmp_path, 1)[0]), signal.SIGKILL)
        await until(lambda: stage.scheduler.workers == 0)
        assert (await stage.call(message(2))).status == 200
        assert stage.figures.launched == 2
        await stage.close()

    run(work)


def test_a_worker_that_hangs_is_killed(tmp_path) -> None:
    async def work() -> None:
        stage = Stage(processes(tmp_path), Limits(1), seconds=PATIENCE)
        assert (await stage.call(message(2))).status == 200  # it has begun, and loaded what it needs
        stage._seconds = 2.0
        hanging = asyncio.create_task(stage.call(message(HANG)))
        other = asyncio.create_task(stage.call(message(1)))
        with pytest.raises(TimeoutExpired, match="within 2 seconds"):
            await hanging
        stage._seconds = PATIENCE  # of a fresh worker
        assert (await other).status == 200
        assert len(asked(tmp_path, HANG)) == 1
        await stage.close()

    run(work)


def test_a_request_that_nobody_waits_for_is_withdrawn(tmp_path) -> None:
    async def work() -> None:
        stage = Stage(processes(tmp_path), Limits(1))
        running = asyncio.create_task(stage.call(message(HANG)))
        await until(lambda: bool(asked(tmp_path, HANG)))
        waiting = asyncio.create_task(stage.call(message(4)))
        await asyncio.sleep(0)
        assert (stage.scheduler.requests, stage.scheduler.waiting) == (2, 1)
        for one in (waiting, running):
            one.cancel()
            with pytest.raises(asyncio.CancelledError):
                await one
        assert (stage.scheduler.requests, stage.scheduler.waiting) == (1, 0)
        (tmp_path / "go on").touch()
        assert (await stage.call(message(5))).status == 200
        assert asked(tmp_path, 4) == []
        await stage.close()

    run(work)


def test_what_one_stage_sends_may_have_no_room_in_the_next(tmp_path) -> None:
    """The worker says so, and takes the next one."""

    async def work() -> None:
        stage = Stage(processes(tmp_path, "infer", memory=200 * 2**20), Limits(1))
        sampled = answer_of(GraphPredictor(str(tmp_path)), "sample", message(3))
        for large in (bytes(300 * 2**20), bytes(400 * 2**20)):
            failed = await stage.call(large)
            assert (failed.status, json.loads(failed.body)["type"]) == (500, "/problems/out-of-memory")
            assert np.allclose(rows(await stage.call(sampled.body)), expected(3), atol=1e-5)
        assert (stage.figures.launched, stage.figures.died) == (1, 0)
        await stage.close()

    run(work)


def test_memory_is_limited_and_the_worker_lives_on(tmp_path) -> None:
    async def work() -> None:
        stage = Stage(processes(tmp_path, memory=10**9), Limits(1))
        failed = await stage.call(message(GROW))
        assert failed.status == 500
        assert json.loads(failed.body)["type"] == "/problems/out-of-memory"
        assert "needs more memory" in json.loads(failed.body)["detail"]
        assert np.allclose(rows(await stage.call(message(1))), expected(1), atol=1e-5)
        told = json.loads((await stage.call(message(ROOM))).body)["detail"]
        assert 0 < int(told.removeprefix("room ")) < 10**9
        assert stage.figures.launched == 1
        await stage.close()
        small = Stage(processes(tmp_path, memory=10**6), Limits(1))
        with pytest.raises(WorkersFailed, match="memory must be at least"):
            await small.call(message(1))
        await small.close()

    run(work)


def test_workers_that_do_not_start_are_tried_again_and_requests_fail(tmp_path) -> None:
    async def work() -> None:
        host = ProcessHost(
            Function("functions:refuse", {"directory": str(tmp_path)}), environment=ENVIRONMENT
        )
        stage = Stage(host, Limits(3))
        calls = [asyncio.create_task(stage.call(message(id))) for id in range(2)]
        for call in calls:
            with pytest.raises(WorkersFailed, match=r"could not begin: Invalid input: .* there is none"):
                await call
        assert stage.scheduler.workers == stage.scheduler.requests == 0
        assert len(list(tmp_path.glob("try-*"))) >= 3
        (tmp_path / "open").touch()
        assert (await stage.call(message(2))).status == 200
        await stage.close()

    run(work)


@pytest.mark.parametrize("place", ["processes", "threads"])
def test_workers_that_find_no_store_are_not_waited_for(place, tmp_path, caplog, capfd) -> None:
    async def work() -> None:
        opened = Function("functions:find_no_store", {"directory": str(tmp_path)})
        host = ThreadHost(opened) if place == "threads" else ProcessHost(opened, environment=ENVIRONMENT)
        node = Machine({"predict": Stage(host, Limits(1))}, concurrency=2)
        found = await node.predict(body(1))
        problem = json.loads(found.body)
        assert (found.status, problem["type"]) == (503, "/problems/store-unavailable"), problem
        assert "the store does not answer" in problem["detail"]
        assert found.headers()["retry-after"] == "1"
        assert len(list(tmp_path.glob("try-*"))) == 1, "the start has asked long enough"
        (record,) = caplog.records
        assert "the store does not answer" in record.getMessage()
        assert "Traceback" not in capfd.readouterr().err
        (tmp_path / "open").touch()
        assert (await node.predict(body(2))).status == 200
        await node.close()

    run(work)


def test_a_command_that_is_not_there_fails() -> None:
    async def work() -> None:
        with pytest.raises(InputError, match="seconds"):
            ProcessHost(Function("functions:GraphPredictor"), seconds=0.0)
        host = ProcessHost(Function("no_module:GraphPredictor"), environment=ENVIRONMENT)
        with pytest.raises(WorkerDied, match="no_module"):
            await host.launch(0)

    run(work)


def test_what_a_worker_prints_does_not_disturb(tmp_path, capfd) -> None:
    async def work() -> None:
        stage = Stage(processes(tmp_path), Limits(1))
        assert (await stage.call(message(1, PRINT))).status == 200
        assert np.allclose(rows(await stage.call(message(2))), expected(2), atol=1e-5)
        await stage.close()

    run(work)
    assert "this goes to standard error" in capfd.readouterr().err


def test_sigterm_ends_a_worker_after_the_request_in_hand(tmp_path) -> None:
    async def work() -> None:
        worker = await processes(tmp_path).launch(0)
        call = asyncio.create_task(worker.call(message(HANG, 3)))
        await until(lambda: bool(asked(tmp_path, HANG)))
        os.kill(worker.pid, signal.SIGTERM)
        (tmp_path / "go on").touch()
        assert (await call).status == 200
        assert await worker.ended() == "ended with status 0"
        idle = await processes(tmp_path).launch(1)
        os.kill(idle.pid, signal.SIGTERM)
        assert await idle.ended() == "ended with status 0"
        with pytest.raises(WorkerDied):
            await idle.call(message(1))

    run(work)


def test_closing_answers_what_is_here_and_refuses_the_rest(tmp_path) -> None:
    async def work() -> None:
        stage = Stage(processes(tmp_path), Limits(1))
        calls = [asyncio.create_task(stage.call(message(id))) for id in range(3)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(stage.close(PATIENCE))
        await asyncio.sleep(0)
        with pytest.raises(ProcessStops):
            await stage.call(message(9))
        for call in calls:
            assert (await call).status == 200
        await closing

        hurried = Stage(processes(tmp_path), Limits(1))
        call = asyncio.create_task(hurried.call(message(HANG)))
        await until(lambda: bool(asked(tmp_path, HANG)))
        await hurried.close(0.01)
        with pytest.raises(ProcessStops, match="the process stops"):
            await call
        (process,) = asked(tmp_path, HANG)
        assert not runs(process)

    run(work)


def test_closing_while_a_worker_starts_leaves_no_process(tmp_path) -> None:
    async def work() -> None:
        before = children()
        stage = Stage(processes(tmp_path), Limits(1))
        call = asyncio.create_task(stage.call(message(1)))
        await until(lambda: children() - before)
        await stage.close()
        with pytest.raises(ProcessStops, match="the process stops"):
            await call
        assert not children() - before
        assert asked(tmp_path, 1) == []

    run(work)


def test_a_worker_that_is_not_ready_in_time_is_killed(tmp_path) -> None:
    async def work() -> None:
        before = children()
        host = ProcessHost(function(tmp_path), environment=ENVIRONMENT, seconds=0.001)
        with pytest.raises(WorkerDied, match=r"ready within 0\.001 seconds"):
            await host.launch(0)
        assert not children() - before

    run(work)


@pytest.mark.parametrize("policy", Policy)
def test_threads_are_workers_too(tmp_path, policy) -> None:
    async def work() -> None:
        stage = Stage(ThreadHost(function(tmp_path)), Limits(2), policy)
        answers = await asyncio.gather(*(stage.call(message(id)) for id in range(6)))
        for id, answer in enumerate(answers):
            assert np.allclose(rows(answer), expected(id), atol=1e-5)
        assert (await stage.call(message(FAIL))).status == 500
        await stage.close()

    run(work)


def test_two_stages_scale_apart(tmp_path) -> None:
    async def work() -> None:
        stages = {
            "sample": Stage(processes(tmp_path, "sample"), Limits(2)),
            "infer": Stage(processes(tmp_path, "infer"), Limits(1)),
        }
        node = Machine(stages, concurrency=8)
        answers = await asyncio.gather(*(node.predict(body(id, min_seq=7)) for id in range(8)))
        for id, answer in enumerate(answers):
            assert np.allclose(rows(answer), expected(id), atol=1e-5)
        assert [stage.scheduler.workers for stage in stages.values()] == [2, 1]
        (tmp_path / "replaced").touch()
        assert np.allclose(rows(await node.predict(body(20))), expected(20), atol=1e-5)
        assert len(asked(tmp_path, 20)) == 2, "sampled again"
        for number in range(3):
            (tmp_path / f"replaced {number}").touch()
        replaced = await node.predict(body(21))
        assert (replaced.status, replaced.headers()["retry-after"]) == (503, "1")
        assert json.loads(replaced.body)["type"] == "/problems/snapshot-replaced"
        unknown = await node.predict(body(1_000))
        assert unknown.status == 404
        assert [stage.figures.answered for stage in stages.values()] == [14, 13]
        await until(lambda: stages["sample"].scheduler.starting == 0)  # that no request has needed
        health = json.loads((await node.report_health()).body)
        assert health["stages"]["sample"] == {
            "requests": 0,
            "waiting": 0,
            "workers": 2,
            "idle": 2,
            "starting": 0,
        }
        await node.close()
        assert (await node.report_health()).status == 503
        late = await node.predict(body(1))
        assert (late.status, late.headers()["retry-after"]) == (503, "1")
        assert json.loads(late.body)["type"] == "/problems/process-stops"

    run(work)


def test_a_node_refuses_more_than_it_takes_and_what_comes_too_late(tmp_path) -> None:
    async def work() -> None:
        stage = Stage(processes(tmp_path), Limits(1))
        node = Machine({"predict": stage}, concurrency=2)
        hanging = asyncio.create_task(node.predict(body(HANG)))
        late = asyncio.create_task(node.predict(body(1, timeout=0.05)))
        await asyncio.sleep(0)
        refused = await node.predict(body(2))
        assert (refused.status, refused.headers()["retry-after"]) == (429, "1")
        assert (await node.predict(b"{}")).status == 400
        answer = await late
        assert (answer.status, json.loads(answer.body)["type"]) == (503, "/problems/timeout")
        (tmp_path / "go on").touch()
        assert (await hanging).status == 200
        text = (await node.report_metrics()).body.decode()
        found = scrape(text)
        assert found["livegnn_function_refused_total"] == 1
        assert found['livegnn_function_answered_total{stage="predict"}'] == 1
        assert found['livegnn_function_starting_seconds_count{stage="predict"}'] == 1
        await node.close()

    run(work)


def test_a_worker_loads_little() -> None:
    code = (
        "import sys, livegnn.functions.worker, livegnn.functions.stage\n"
        "print(*{'torch', 'pandas', 'starlette', 'fastapi', 'pydantic', 'granian'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == ""


def test_a_node_loads_what_shows_metrics_when_they_are_asked_for(tmp_path) -> None:
    code = """
import asyncio, sys
import livegnn.functions.app
from livegnn.functions.settings import MachineSettings
async def work():
    node = MachineSettings(snapshot="none", model=sys.argv[1]).open()
    print("prometheus_client" in sys.modules)
    assert b"livegnn_function_up 0.0" in (await node.report_metrics()).body
    print("prometheus_client" in sys.modules)
    await node.close()
asyncio.run(work())
"""
    make_model().save(tmp_path / "model.lgnn")
    command = [sys.executable, "-c", code, str(tmp_path / "model.lgnn")]
    told = subprocess.check_output(command, text=True).split()
    assert told == ["False", "True"]
