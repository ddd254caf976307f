"""A serving worker whose sampling workers are dead says so once events wait for them, and not before."""

import random
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
import loopback
from gate import draws
from livegnn.errors import LogError
from livegnn.presampling import Presampler
from livegnn.runtime import Runtime
from livegnn.workers import SamplingWorker, ServingWorker, SqlitePlace, WorkerPlan, progress, resize
from livegnn.workers.app import create_serving_app
from livegnn.workers.front import create_front
from livegnn.workers.progress import SILENT_SECONDS, Progress
from scraped import scrape
from served import served
from waiting import wait_until
from worker_cluster import LATEST, SCHEMA, Cluster, running

WORKERS = 2
LATE = int(SILENT_SECONDS)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=draws(4, 100), deadline=None)
def test_workers_that_leave_events_waiting_are_named_and_no_others(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, rng = tmp_path_factory.mktemp("cluster"), random.Random(seed)
    plan = WorkerPlan(SCHEMA, LATEST, WORKERS, 1, seed=seed)
    view = Presampler(lg.Graph(SCHEMA), LATEST, seed=seed)
    with running(folder, view) as runtime, ExitStack() as opened:
        cluster = Cluster(folder, plan, rng)
        opened.callback(cluster.close)
        found = opened.enter_context(closing(Progress(cluster.place, 0, WORKERS)))
        dead: dict[int, int] = {}  # since when events wait for it; 0 while none does
        for second in range(1, 90):
            happened = rng.random()
            if happened < 0.12:
                add(runtime, rng.randrange(9))
                dead = {worker: since or second for worker, since in dead.items()}
            elif happened < 0.2:
                worker = rng.randrange(WORKERS)
                if worker in dead:
                    del dead[worker]
                    cluster.sampling[worker] = cluster.make(worker)
                else:
                    dead[worker] = 0
                    cluster.settle()
                    cluster.sampling.pop(worker).close()
            if happened < 0.2:
                cluster.settle()
            found.look_if_due(second, dict.fromkeys(range(WORKERS), 0))
            silent = {worker for worker, since in dead.items() if since and second - since >= LATE}
            told = found.reasons().get("sampling", "")
            assert {worker for worker in range(WORKERS) if f"worker {worker} has" in told} == silent, second
            for worker, seconds in found.silent.items():
                assert seconds == (second - dead[worker] if dead.get(worker) else 0)


def test_a_reader_that_was_stopped_sees_no_silence_of_that_time(tmp_path: Path) -> None:
    plan = WorkerPlan(SCHEMA, LATEST)
    view = Presampler(lg.Graph(SCHEMA), LATEST, seed=1)
    with running(tmp_path, view) as runtime, closing(Cluster(tmp_path, plan, random.Random(1))) as cluster:
        cluster.settle()
        cluster.sampling.pop(0).close()
        add(runtime, 1)
        with closing(Progress(cluster.place, 0, 1)) as found:
            for now in (0.0, 1.0, 1.9, 3600.0):
                found.look_if_due(now, {0: 0})
            assert found.silent[0] == 2 * progress.LOOK_SECONDS


def test_a_log_that_cannot_be_read_is_a_reason_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = WorkerPlan(SCHEMA, LATEST)
    with running(tmp_path, Presampler(lg.Graph(SCHEMA), LATEST, seed=1)):
        place = SqlitePlace(tmp_path / "events.db")
        with closing(Cluster(tmp_path, plan, random.Random(1))), closing(Progress(place, 0, 1)) as found:
            with monkeypatch.context() as patch:
                patch.setattr(SqlitePlace, "end", failing)
                found.look_if_due(1.0, {0: 0})
            assert "the log is away" in found.reasons()["log"]
            found.look_if_due(2.0, {0: 0})
            assert not found.reasons()


def failing(place: SqlitePlace) -> None:
    raise LogError("the log is away")


def test_workers_that_have_handed_over_are_not_missed_until_events_wait(tmp_path: Path) -> None:
    one, two = (WorkerPlan(SCHEMA, LATEST, number, 1, seed=1) for number in (1, 2))
    view = Presampler(lg.Graph(SCHEMA), LATEST, seed=1)
    with running(tmp_path, view) as runtime, closing(Cluster(tmp_path, one, random.Random(1))) as cluster:
        seq = add(runtime, 1)
        cluster.settle()
        with pytest.raises(lg.errors.TimeoutExpired):
            resize(cluster.place, two, timeout=0)
        serving = cluster.serving[0, 0]
        cluster.settle()  # the worker of before has ended, and nobody has taken over
        assert cluster.sampling[0].ended
        for now in range(2 * LATE):
            serving._progress.look_if_due(now, serving._whole)
        assert "sampling" not in serving.readiness().reasons
        add(runtime, 2)
        for now in range(2 * LATE, 4 * LATE):
            serving._progress.look_if_due(now, serving._whole)
        told = serving.readiness().reasons["sampling"]
        assert all(f"sampling worker {worker} has" in told for worker in range(2)), told
        assert f"events {seq + 1} to {seq + 1} of the log" in told


def test_a_serving_worker_of_dead_sampling_workers_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(progress, "SILENT_SECONDS", 0.05)
    plan = WorkerPlan(SCHEMA, LATEST, seed=1)
    view = Presampler(lg.Graph(SCHEMA), LATEST, seed=1)
    with running(tmp_path, view) as runtime, ExitStack() as opened:
        cluster = Cluster(tmp_path, plan, random.Random(1))
        opened.callback(cluster.close)
        cluster.serving.pop((0, 0)).stop()
        serving = cluster.serving[0, 0] = ServingWorker(cluster.place, plan, 0)
        serving.start()
        follow(cluster.sampling[0], serving, add(runtime, 1))
        address = opened.enter_context(served(create_serving_app(serving)))
        front = opened.enter_context(served(create_front(plan, [[address]])))
        metric = 'livegnn_sampling_silent_seconds{worker="0"}'
        seen = scrape(loopback.get(address + "/metrics").text)
        assert (seen[metric], seen["livegnn_up"]) == (0, 1)
        cluster.sampling.pop(0).close()
        seq = add(runtime, 2)
        wait_until(lambda: loopback.get(address + "/readyz").status_code == 503)
        answer = loopback.get(address + "/readyz").json()
        assert "sampling worker 0 has recorded no step for" in answer["reasons"]["sampling"]
        seen = scrape(loopback.get(address + "/metrics").text)
        assert (seen["livegnn_up"], seen[metric] > 0) == (0, True)
        wait_until(lambda: loopback.get(front + "/readyz").status_code == 503)
        body = {"ids": [1], "min_seq": 0}
        assert loopback.post(front + "/v1/samples", json=body).json()["seq"] == answer["seq"] < seq
        cluster.sampling[0] = cluster.make(0)
        follow(cluster.sampling[0], serving, seq)
        assert loopback.get(address + "/readyz").json() == {
            "worker": serving.worker,
            "seq": seq,
            "memory_bytes": serving.memory(),
        }


def add(runtime: Runtime, user: int) -> int:
    seq = runtime.append(lg.Events().add_nodes([user], np.ones((1, 1)), node_type="user"))
    runtime.wait(seq)
    return seq


def follow(sampling: SamplingWorker, serving: ServingWorker, seq: int) -> None:
    """Takes steps until the serving worker is ready, and shows event `seq`."""

    def shows() -> bool:
        sampling.step()
        return serving.readiness().ready and serving.seq == seq

    wait_until(shows)
