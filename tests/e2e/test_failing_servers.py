"""A server whose loop has failed, a second server on the files of a first one, and impatient ends."""

import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import loopback
from serving import Server, write_deployment
from waiting import PATIENCE, REQUEST_SECONDS, wait_until

APPEND = f"/v1/events?wait=true&timeout={REQUEST_SECONDS}"
ADD = {"events": [{"event": "add_node", "id": 900}]}


def fail_the_loop(directory: Path, client: httpx.Client) -> None:
    """Records a batch that is none of the server's, so that its next batch cannot be recorded."""
    with sqlite3.connect(directory / "events.db") as connection:
        connection.execute("INSERT INTO batches VALUES (1, 0)")
    connection.close()
    assert client.post(APPEND, json=ADD).status_code == 202


def start_second(deployment: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "livegnn", "serve", str(deployment)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


@pytest.mark.parametrize("same_port", [False, True])
def test_a_second_server_ends_at_once_and_touches_nothing(tmp_path: Path, same_port: bool) -> None:
    deployment = write_deployment(tmp_path)
    with Server(deployment) as server, loopback.Client(base_url=server.address) as client:
        assert client.post(APPEND, json=ADD).json() == {"seq": 1, "status": "applied"}
        port = server.address.rpartition(":")[2]
        if same_port:
            deployment.write_text(
                deployment.read_text(encoding="utf-8").replace("port = 0", f"port = {port}"), encoding="utf-8"
            )
        before = {path.name: path.read_bytes() for path in tmp_path.glob("events.db*")}
        second = start_second(deployment)
        assert second.returncode == 1
        expected = (
            f"cannot listen at 127.0.0.1 port {port}, "
            if same_port
            else f"one owner, got a second one: process {server.process.pid} runs on it"
        )
        assert expected in second.stderr
        assert "Traceback" not in second.stderr
        assert {path.name: path.read_bytes() for path in tmp_path.glob("events.db*")} == before
        assert client.post(APPEND, json=ADD).json() == {"seq": 2, "status": "applied"}
        assert server.stop() == 0
    with Server(deployment) as server:
        assert loopback.get(server.address + "/healthz").json() == {"status": "ok", "seq": 2, "log_seq": 2}


def test_a_server_whose_loop_fails_ends_with_an_error(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path)
    with Server(deployment, stderr=subprocess.PIPE) as server:
        with loopback.Client(base_url=server.address) as client:
            fail_the_loop(tmp_path, client)
        _, said = server.process.communicate(timeout=PATIENCE)
        assert server.process.returncode == 1
        assert "error: the runtime ended at event 0" in said.splitlines()[-1]


def test_a_server_may_wait_after_its_loop_has_failed(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path)
    deployment.write_text(deployment.read_text(encoding="utf-8") + 'when_failed = "wait"\n', encoding="utf-8")
    with Server(deployment) as server, loopback.Client(base_url=server.address) as client:
        answer = client.get("/v1/predictions?ids=1")
        assert "stale" not in answer.json()
        assert "livegnn-stale" not in answer.headers
        fail_the_loop(tmp_path, client)
        stale = client.get("/v1/predictions?ids=1")
        assert stale.json() == answer.json() | {"stale": True}
        for path in ("/v1/predictions?ids=1", "/v1/nodes/1/neighbors", "/metrics", "/healthz"):
            assert client.get(path).headers["livegnn-stale"] == "true"
        refused = client.post("/v1/events", json=ADD)
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/loop-ended")
        health = client.get("/healthz")
        assert (health.status_code, health.json()["status"], health.json()["seq"]) == (503, "failed", 0)
        assert "does another process run on this log" in health.json()["reasons"]["loop"]


@pytest.mark.parametrize("path", ["/v1/events", "/v1/predictions"])
def test_a_stop_while_a_body_comes_is_clean(tmp_path: Path, path: str) -> None:
    """The client is told, and no traceback is written."""
    server = Server(write_deployment(tmp_path), stderr=subprocess.PIPE)
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        client.sendall(head.encode() + b'content-length: 1000\r\n\r\n{"events": [')
        loopback.get(f"{server.address}/healthz")  # it has been read
        assert server.stop() == 0
        answer = client.recv(10_000)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"the process stops" in answer
    assert server.process.stderr is not None
    assert "Traceback" not in server.process.stderr.read()
    server.process.stderr.close()


HALF_A_REQUEST = b"""POST /v1/events HTTP/1.1\r
host: localhost\r
content-type: application/json\r
content-length: 1000\r
expect: 100-continue\r
\r
"""


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Processes that are started heed SIGINT, which what a shell runs in the background ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_second_interrupt_ends_the_wait_for_a_slow_client(tmp_path: Path) -> None:
    with Server(write_deployment(tmp_path), stderr=subprocess.PIPE) as server:
        host, _, port = server.address.removeprefix("http://").rpartition(":")
        address = host, int(port)
        with socket.create_connection(address) as slow:
            slow.sendall(HALF_A_REQUEST)
            assert slow.recv(1024).startswith(b"HTTP/1.1 100 Continue")
            server.process.send_signal(signal.SIGINT)
            wait_until(lambda: not accepts(address), "that the server takes no connection")
            server.process.send_signal(signal.SIGINT)
            _, said = server.process.communicate(timeout=PATIENCE)
        levels = {line.split()[1] for line in said.splitlines()}
        assert (server.process.returncode, levels) == (130, {"INFO"}), said


def accepts(address: tuple[str, int]) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(address) == 0
