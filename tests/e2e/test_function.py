"""`livegnn function serve` as the process of a container: $PORT, concurrency, SIGTERM."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest

import loopback
from functions import ENVIRONMENT, HANG, KILL, asked, body, expected
from livegnn.cli import main
from livegnn.snapshots.writer import write_snapshot
from ports import free_port
from processes import runs
from scraped import documented_everywhere, scrape, types
from streams import make_graph, make_model
from waiting import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]
JSON = {"content-type": "application/json"}


class Container:
    """The command of an image, with the variables that a platform sets."""

    def __init__(self, folder: Path, *words: str, port: str = "0", opened: tuple[str, ...] = ()) -> None:
        self.folder = folder
        opened = opened or (
            "--snapshot",
            str(folder),
            "--model",
            "none",
            "--opener",
            "functions:open_snapshot",
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "livegnn", "function", "serve", *opened, *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT, "PORT": port},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("a node listens at http://"), line
        self.address = line.split()[-1]

    def post(self, content: bytes, **headers: str) -> httpx.Response:
        url = f"{self.address}/v1/predictions"
        return loopback.post(url, content=content, headers=JSON | headers)

    def until(self, holds: Callable[[], object]) -> None:
        def goes_on() -> object:
            assert self.process.poll() is None
            return holds()

        wait_until(goes_on)

    def __enter__(self) -> "Container":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def in_background(work: object) -> tuple[threading.Thread, list[httpx.Response]]:
    found: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: found.append(work()))  # type: ignore[operator]
    thread.start()
    return thread, found


@pytest.mark.parametrize("words", [("--workers", "1"), ("--place", "threads", "--workers", "1")], ids=len)
def test_it_listens_at_port_and_answers_as_the_server(tmp_path, words) -> None:
    port = free_port()
    with Container(tmp_path, *words, port=str(port)) as container:
        assert container.address == f"http://127.0.0.1:{port}"
        assert not list(tmp_path.glob("*-*")), "nothing is opened before a request comes"
        answer = container.post(body(3, 9, min_seq=7))
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        content = answer.json()
        assert list(content) == ["seq", "ids", "predictions"]
        assert np.allclose(content["predictions"], expected(3, 9), atol=1e-5)

        def refused(answer: httpx.Response) -> tuple[int, str]:
            return answer.status_code, answer.json()["type"]

        assert refused(container.post(b"{")) == (400, "/problems/invalid-input")
        assert refused(container.post(body(40))) == (404, "/problems/unknown-node")
        assert refused(container.post(body(3, min_seq=8))) == (503, "/problems/timeout")
        assert refused(container.post(b"ids=3", **{"content-type": "text/plain"})) == (
            415,
            "/problems/unknown-media-type",
        )
        assert refused(loopback.get(f"{container.address}/v1/models")) == (404, "/problems/unknown-path")
        wrong = loopback.get(f"{container.address}/v1/predictions")
        assert (*refused(wrong), wrong.headers["allow"]) == (405, "/problems/unknown-method", "POST")
        with_parameter = loopback.post(f"{container.address}/v1/predictions?foo=1", content=body(3))
        assert refused(with_parameter) == (400, "/problems/invalid-input")
        assert "takes no parameters, got 'foo'" in with_parameter.json()["detail"]
        assert refused(loopback.get(f"{container.address}/metrics?foo")) == (400, "/problems/invalid-input")
        assert loopback.get(f"{container.address}/livez").json() == {"status": "ok"}
        assert loopback.get(f"{container.address}/readyz").json()["stages"]["predict"]["idle"] == 1
        health = loopback.get(f"{container.address}/v1/health?")
        assert health.json()["stages"]["predict"]["idle"] == 1
        head = loopback.head(f"{container.address}/v1/health")
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) > 0


@pytest.mark.parametrize(
    "words", [(), ("--sampling-workers", "1"), ("--place", "threads"), ("--memory", "300")], ids=" ".join
)
def test_predictions_from_a_snapshot_are_those_of_an_engine(tmp_path, words) -> None:
    graph = make_graph()
    write_snapshot(graph, str(tmp_path / "snapshot"), seq=5)
    make_model().save(tmp_path / "model.lgnn")
    opened = ("--snapshot", str(tmp_path / "snapshot"), "--model", str(tmp_path / "model.lgnn"))
    with Container(tmp_path, "--workers", "1", *words, opened=opened) as container:
        for ids in ([3, 9, 3], [39], []):
            answer = container.post(body(*ids, min_seq=5))
            assert answer.status_code == 200, answer.text
            assert answer.json()["seq"] == 5
            found = np.array(answer.json()["predictions"]).reshape(len(ids), 3)
            assert np.allclose(found, expected(*ids).reshape(found.shape), atol=1e-5)
        assert container.post(body(40)).status_code == 404
        assert container.post(body("n7")).status_code == 400
        metrics = scrape(loopback.get(f"{container.address}/metrics").text)
        stage = "sample" if "--sampling-workers" in words else "predict"
        for name, least in (("requests", 5), ("bytes", 500)):
            assert metrics[f'livegnn_function_store_{name}_total{{stage="{stage}"}}'] > least
        assert metrics[f'livegnn_function_store_retries_total{{stage="{stage}"}}'] == 0
        asked = 'method="POST",route="/v1/predictions",status="200"'
        assert metrics[f"livegnn_http_requests_total{{{asked}}}"] == 3


def test_the_gap_of_the_command_is_that_of_its_workers(tmp_path) -> None:
    """A gap of 0 reads nothing between two ranges, with more requests."""
    write_snapshot(make_graph(), str(tmp_path / "snapshot"))
    make_model().save(tmp_path / "model.lgnn")
    opened = ("--snapshot", str(tmp_path / "snapshot"), "--model", str(tmp_path / "model.lgnn"))
    read = {}
    for gap in ("0", "100000"):
        with Container(tmp_path, "--workers", "1", "--gap", gap, opened=opened) as container:
            assert container.post(body(3)).status_code == 200
            metrics = scrape(loopback.get(f"{container.address}/metrics").text)
            read[gap] = [
                metrics[f'livegnn_function_store_{name}_total{{stage="predict"}}']
                for name in ("requests", "bytes")
            ]
    assert read["0"][0] > read["100000"][0]
    assert read["0"][1] < read["100000"][1]


def test_a_worker_that_opens_for_ever_does_not_hold_up_the_end(tmp_path) -> None:
    """One that is a thread: nobody can end it, and the platform gives ten seconds."""
    opened = ("--snapshot", "none", "--model", "none", "--opener", "functions:open_for_ever")
    with Container(tmp_path, "--place", "threads", "--workers", "1", opened=opened) as container:
        thread, found = in_background(lambda: container.post(body(3)))
        starting = 'livegnn_function_starting_workers{stage="predict"}'
        container.until(lambda: scrape(loopback.get(f"{container.address}/metrics").text)[starting] == 1)
        container.process.send_signal(signal.SIGTERM)
        assert container.process.wait(PATIENCE) == 0
        thread.join()
        assert found[0].status_code == 503


def test_a_body_may_not_be_too_large(tmp_path) -> None:
    with Container(tmp_path, "--workers", "1") as container:
        try:
            answer = container.post(b" " * (64 * 2**20 + 1))
        except httpx.WriteError:
            pass  # it has not waited for the rest
        else:
            assert (answer.status_code, answer.json()["type"]) == (413, "/problems/body-too-large")
        assert container.post(body(3)).status_code == 200


def test_a_client_that_goes_in_the_middle_of_its_body_leaves_no_trace(tmp_path, capfd) -> None:
    counted = 'livegnn_http_requests_total{method="POST",route="/v1/predictions",status="400"}'
    with Container(tmp_path, "--workers", "1") as container:
        address = httpx.URL(container.address)
        with socket.create_connection((address.host, address.port)) as client:
            client.sendall(b"POST /v1/predictions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{")
        container.until(lambda: counted in scrape(loopback.get(f"{container.address}/metrics").text))
        assert container.post(body(3)).status_code == 200
    assert "Traceback" not in capfd.readouterr().err


def test_more_requests_than_its_concurrency_are_refused(tmp_path) -> None:
    with Container(tmp_path, "--workers", "1", "--waiting", "1") as container:
        first = in_background(lambda: container.post(body(HANG)))
        container.until(lambda: asked(tmp_path, HANG))
        second = in_background(lambda: container.post(body(5)))
        health = f"{container.address}/v1/health"
        container.until(lambda: loopback.get(health).json()["requests"] == 2)
        refused = container.post(body(6))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["type"] == "/problems/overloaded"
        (tmp_path / "go on").touch()
        for thread, found in (first, second):
            thread.join()
            assert found[0].status_code == 200
        assert asked(tmp_path, 6) == []


def test_sigterm_answers_what_is_here_and_leaves_nothing(tmp_path) -> None:
    with Container(tmp_path, "--workers", "2") as container:
        container.post(body(3))
        thread, found = in_background(lambda: container.post(body(HANG, 4)))
        container.until(lambda: asked(tmp_path, HANG))
        workers = {*asked(tmp_path, 3), *asked(tmp_path, HANG)}
        container.process.send_signal(signal.SIGTERM)
        address = httpx.URL(container.address)

        def closed() -> bool:
            with socket.socket() as trial:
                return trial.connect_ex((address.host, address.port)) != 0

        container.until(closed)
        (tmp_path / "go on").touch()
        thread.join()
        assert found[0].status_code == 200
        assert container.process.wait(PATIENCE) == 0
        assert not [worker for worker in workers if runs(worker)]


def test_sigterm_refuses_what_does_not_come_or_end_in_time(tmp_path, capfd) -> None:
    """Bodies that are sent by half, and a request that is never answered: each client reads why."""

    def begin(address: httpx.URL) -> socket.socket:
        half = socket.create_connection((address.host, address.port), timeout=PATIENCE)
        lines = (
            "POST /v1/predictions HTTP/1.1",
            "host: localhost",
            "expect: 100-continue",
            "content-length: 1000",
        )
        half.sendall("\r\n".join([*lines, "", ""]).encode() + b'{"ids":')
        assert half.recv(100).startswith(b"HTTP/1.1 100"), "its body is being read"
        return half

    with Container(tmp_path, "--workers", "1") as container:
        thread, found = in_background(lambda: container.post(body(HANG)))
        container.until(lambda: asked(tmp_path, HANG))
        halves = [begin(httpx.URL(container.address)) for _ in range(3)]
        container.process.send_signal(signal.SIGTERM)
        for half in halves:
            with half, half.makefile("rb") as answer:
                head, _, content = answer.read().partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503"), head
            assert b"\r\nretry-after: 1\r\n" in head + b"\r\n"
            assert json.loads(content)["type"] == "/problems/process-stops"
        thread.join()
        assert (found[0].status_code, found[0].headers["retry-after"]) == (503, "1")
        assert found[0].json()["type"] == "/problems/process-stops"
        assert container.process.wait(PATIENCE) == 0
        assert not [worker for worker in asked(tmp_path, HANG) if runs(worker)]
    assert "Traceback" not in capfd.readouterr().err


def test_workers_end_with_a_node_that_is_killed(tmp_path) -> None:
    with Container(tmp_path, "--workers", "1") as container:
        container.post(body(3))
        (worker,) = asked(tmp_path, 3)
        container.process.kill()
        container.process.wait()
        wait_until(lambda: not runs(worker), "the end of a worker")


def test_a_worker_that_dies_costs_one_request(tmp_path) -> None:
    with Container(tmp_path, "--workers", "1") as container:
        failed = container.post(body(KILL))
        assert (failed.status_code, failed.json()["type"]) == (503, "/problems/workers-failed")
        assert failed.headers["retry-after"] == "1"
        assert container.post(body(3)).status_code == 200
        text = loopback.get(f"{container.address}/metrics").text
        assert scrape(text)['livegnn_function_dead_workers_total{stage="predict"}'] == 2
        page = (ROOT / "docs" / "functions.md").read_text(encoding="utf-8")
        shown = set(re.findall(r"^\| `(livegnn_function_\w+)`", page, re.MULTILINE))
        assert shown == set(types(text)) - set(documented_everywhere())


def test_wrong_settings_are_told(monkeypatch, capsys) -> None:
    for words, said in (
        (["--workers", "0"], "workers must be"),
        (["--place", "moon"], "place must be"),
        (["--memory", "0"], "memory, in MiB, must be"),
        (["--memory", "-5"], "got -5"),
        ([], "model must be a model file, found none at y"),
        (
            ["--model", __file__, "--opener", "no.module:open"],
            "opener 'no.module:open' is not installed",
        ),
    ):
        command = ["function", "serve", "--snapshot", "x", "--model", "y", "--port", "0", *words]
        monkeypatch.setattr(sys, "argv", ["livegnn", *command])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr().err
        assert (ended.value.code, said in told, "Traceback" in told) == (1, True, False), told
