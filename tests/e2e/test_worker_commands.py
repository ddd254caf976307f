"""`livegnn worker` beside `livegnn serve`: each a process, from one deployment file."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

import loopback
from livegnn import Events, Graph, Schema, checkpoint
from livegnn.cli import app
from livegnn.deployment import Deployment
from livegnn.deployment.workers import open_sampling, plan_workers
from livegnn.errors import InputError, ModelError
from livegnn.log.consumers import read_positions
from livegnn.workers import SqlitePlace
from logging_state import kept_logging
from ray_cluster import ray_processes
from serving import Server
from streams import WIDTH, make_model
from waiting import PATIENCE, REQUEST_SECONDS
from worker_commands import DEPLOYMENT, NODES, Process, check_answers, write_deployment


def test_a_log_is_kept_for_workers_that_were_never_started(tmp_path: Path) -> None:
    path = write_deployment(tmp_path)
    kept = '[checkpoint]\ndirectory = "kept"\nevery_events = 1\n'
    path.write_text(
        DEPLOYMENT.replace('"events.db"', '"events.db"\nkeep = "since_checkpoint"') + kept, encoding="utf-8"
    )
    deployment = Deployment.read(path)
    for turn in range(4):
        runtime = deployment.open()
        for at in range(3):
            ids = np.arange(3) + 9 * turn + 3 * at
            runtime.append(Events().add_nodes(ids, np.ones((3, WIDTH))))
            runtime.step()
        runtime.stop()
        runtime.log.close()
    worker = open_sampling(deployment, 0)
    while worker.step():
        pass
    assert worker.seq == 36
    worker.close()
    place = SqlitePlace(tmp_path / "events.db")
    place.forget("sampling-1")  # as if there were fewer workers now
    runtime = deployment.open()
    assert "sampling-1" not in read_positions(tmp_path / "events.db")
    runtime.stop()
    runtime.log.close()


@pytest.mark.xdist_group("ray")
def test_a_cluster_answers_as_the_server_does(tmp_path: Path) -> None:
    """All workers from one command, which end with a checkpoint. What dies: test_cluster_kills."""
    path = write_deployment(tmp_path)
    path.write_text(
        path.read_text(encoding="utf-8").replace("sampling = 2\nserving = 2", "sampling = 1\nserving = 1"),
        encoding="utf-8",
    )
    with ray_processes() as processes, Server(path) as server:
        running = Process("up", path, "--port", 0, app="cluster", environment=processes.environment)
        front = running.line.split()[-1]
        seq = check_answers(server.address, front)
        assert {address[-8:] for address in processes.listening()} == {"0100007F"}  # 127.0.0.1
        workers = loopback.get(front + "/v1/workers").json()["workers"]
        assert sorted(worker["kind"] for worker in workers) == ["sampling", "serving"]
        more = {"serving_worker": 0, "replicas": 1}
        assert loopback.post(front + "/v1/replicas", json=more).json() == more
        answer = loopback.post(front + "/v1/replicas", json={"serving_worker": 0, "replicas": 2})
        assert (answer.status_code, "replicas" in answer.text) == (400, True)
        assert loopback.post(front + "/v1/checkpoint").json() == {"seq": seq}
        assert running.stop() == 0
    assert [one.name for one in (tmp_path / "workers").glob("*.checkpoint")] == ["sampling-0.checkpoint"]


def change_numbers(path: Path, sampling: int, serving: int, *options: str) -> str:
    """Calls `livegnn worker resize` with these numbers in the file; returns what it says."""
    text = DEPLOYMENT.replace("sampling = 2", f"sampling = {sampling}")
    path.write_text(text.replace("serving = 2", f"serving = {serving}"), encoding="utf-8")
    result = CliRunner().invoke(app, ["worker", "resize", str(path), "--timeout", str(PATIENCE), *options])
    assert result.exit_code == 0, result.output or result.exception
    return result.output


@pytest.mark.explored
def test_workers_answer_as_the_server_does_while_their_numbers_change(tmp_path: Path) -> None:
    path = write_deployment(tmp_path)
    rng = np.random.default_rng(4)
    running: dict[str, Process] = {}
    with Server(path) as server:

        def append(events: Events) -> int:
            kind = {"content-type": "application/x-ndjson"}
            lines = events.to_json_lines()
            return int(
                loopback.post(server.address + "/v1/events", content=lines, headers=kind).json()["seq"]
            )

        def begin_front(serving: int) -> str:
            addresses = [running[f"serve {number}"].line.split()[-1] for number in range(serving)]
            running[f"front {serving}"] = Process("front", path, *addresses, "--port", 0)
            return running[f"front {serving}"].line.split()[-1]

        def check(front: str, seq: int) -> None:
            wanted = {"ids": list(range(NODES)), "min_seq": seq, "timeout": REQUEST_SECONDS}
            answers = [
                loopback.post(address + "/v1/predictions", json=wanted).json()
                for address in (server.address, front)
            ]
            assert answers[0]["predictions"] == answers[1]["predictions"]

        try:
            for number in range(2):
                running[f"sample {number}"] = Process("sample", path, number)
                running[f"serve {number}"] = Process("serve", path, number)
            old = begin_front(2)
            check_answers(server.address, old)
            path.write_text(DEPLOYMENT.replace("serving = 2", "serving = 3"), encoding="utf-8")
            running["serve 2"] = Process("serve", path, 2)
            assert "call again with --finish" in change_numbers(path, 2, 3)
            new = begin_front(3)
            seq = append(Events().add_edges(*rng.integers(0, NODES, (2, 50))))
            check(old, seq)
            check(new, seq)
            assert "in effect: 2 sampling and 3 serving workers" in change_numbers(path, 2, 3, "--finish")
            assert "in effect: 1 sampling and 3 serving workers" in change_numbers(path, 1, 3)
            assert running["sample 1"].process.wait(PATIENCE) == 0
            seq = append(Events().add_edges(*rng.integers(0, NODES, (2, 50))))
            check(new, seq)
            with ThreadPoolExecutor() as pool:  # a request that waits ends with its worker
                body = {"ids": [0], "min_seq": seq + 1, "timeout": REQUEST_SECONDS}
                number = plan_workers(Deployment.read(path)).serving_worker_of([0])[0]
                url = running[f"serve {number}"].line.split()[-1]
                waiting = pool.submit(loopback.post, url + "/v1/predictions", json=body)
                while not waiting.running():
                    pass
                codes = {name: process.stop() for name, process in running.items()}
                assert (
                    isinstance(waiting.exception(), httpx.TransportError)
                    or waiting.result().status_code == 503
                )
        finally:
            for process in running.values():
                process.stop()
    assert codes == dict.fromkeys(running, 0)
    assert (tmp_path / "workers" / "sampling-0.checkpoint").exists()


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    path = write_deployment(tmp_path)
    path.write_text(DEPLOYMENT.partition("[workers]")[0], encoding="utf-8")
    assert_refused(path, InputError, r"workers need a section \[workers\]")
    write_deployment(tmp_path)
    make_model().save(tmp_path / "model.lgnn")
    assert_refused(path, ModelError, "must carry the query")
    write_deployment(tmp_path)
    graph = Graph(Schema({"node": WIDTH}))
    graph.apply(Events().add_nodes([1]))
    checkpoint.write(tmp_path / "graph.checkpoint", {"graph": graph.state()}, 0)
    assert_refused(path, InputError, "must be empty, because workers know what the log says alone")


def assert_refused(path: Path, kind: type[Exception], message: str) -> None:
    with kept_logging():
        result = CliRunner().invoke(app, ["worker", "sample", str(path), "0"])
    with pytest.raises(kind, match=message):
        raise result.exception or AssertionError(result.output)
