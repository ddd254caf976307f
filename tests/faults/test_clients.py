"""Clients that read slowly, go away, block, or come when no descriptor is free: others are served."""

import itertools
import os
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

import loopback
from faulty_world import History, check_bits, replay
from livegnn import Engine, Events
from livegnn.deployment import Deployment
from livegnn.errors import TimeoutExpired
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Change, Runtime, list_checkpoints
from serving import Server, write_deployment
from streams import WIDTH, make_arrays, make_graph, make_model, make_stream
from waiting import PATIENCE, REQUEST_SECONDS


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    return write_deployment(tmp_path, every_events=100)


@pytest.fixture
def server(deployment: Path, tmp_path: Path) -> Iterator[Server]:
    with (
        open(tmp_path / "stderr", "w", encoding="utf-8") as file,
        Server(deployment, stderr=file.fileno()) as server,
    ):
        yield server


def follow(server: Server) -> socket.socket:
    """A client of the feed with little room for what comes."""
    host, port = server.address.removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((host, int(port)))
    client.sendall(b"GET /v1/changes HTTP/1.1\r\nhost: localhost\r\n\r\n")
    return client


def vanish(client: socket.socket) -> None:
    """Ends a connection as a machine does that is switched off and on."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def append(client: httpx.Client, history: History, key: str, events: Events, **parameters: str) -> None:
    history.send(key, events)
    headers = {"content-type": "application/x-ndjson", "idempotency-key": key}
    content = events.to_json_lines()
    answer = client.post(
        "/v1/events", content=content, headers=headers, params={"timeout": REQUEST_SECONDS, **parameters}
    )
    assert answer.status_code == 200, answer.text
    history.tell(key, answer.json()["seq"])


def check_after_kill(server: Server, deployment: Path, history: History) -> None:
    server.kill()
    runtime = Deployment.read(deployment).open()
    while runtime.step():
        pass
    history.check(runtime.log)
    check_bits(runtime.engine, replay(runtime.log))
    runtime.stop()
    runtime.log.close()


def metric(client: httpx.Client, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


def test_clients_of_the_feed_that_do_not_read_or_go(tmp_path: Path, rng: np.random.Generator) -> None:
    """Each change tells the predictions of thousands of nodes, so that what waits for a client is much."""
    deployment, history = write_deployment(tmp_path, every_events=100), History()
    star = make_arrays(num_nodes=4000, num_edges=1)
    star |= {"src": np.zeros(3999, np.int64), "dst": np.arange(1, 4000), "weight": np.ones(3999, np.float32)}
    np.savez(tmp_path / "graph.npz", **star)
    with Server(deployment) as server, loopback.Client(base_url=server.address) as client:
        slow, numbers = [follow(server) for _ in range(2)], itertools.count()
        while metric(client, "livegnn_feed_dropped_total") == 0:
            assert len(history.told) < 5000, "the slow ones must lose changes, and not hold them for ever"
            going = [follow(server) for _ in range(3)]
            for number in itertools.islice(numbers, 50):
                events = Events().set_features(0, rng.normal(size=WIDTH).astype(np.float32))
                append(client, history, str(number), events, wait="true")
            for one in going:
                vanish(one)
        health = client.get("/healthz").json()
        assert health["status"] == "ok"
        assert health["seq"] == health["log_seq"] == history.last()
        for one in slow:
            vanish(one)
        server.kill()
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        history.check(log)
        assert len(log.entries(0)) == len(history.told)


def test_a_subscriber_that_blocks_or_raises_holds_up_no_append(tmp_path: Path) -> None:
    history, blocked, let_go = History(), threading.Event(), threading.Event()
    told: list[int] = []

    def block(change: Change) -> None:
        blocked.set()
        assert let_go.wait(PATIENCE)

    def fail(change: Change) -> None:
        raise ValueError("a subscriber that fails")

    with closing(SqliteLog(tmp_path / "events.db")) as log:
        graph = make_graph()
        runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1), max_batch_events=8)
        for callback in (fail, block, lambda change: told.append(change.seq)):
            runtime.subscribe(callback)
        runtime.start()
        for number, events in enumerate(make_stream(60)):
            history.send(str(number), events)
            history.tell(str(number), runtime.append(events, key=str(number)))
            assert blocked.wait(PATIENCE)
        with pytest.raises(TimeoutExpired):
            runtime.wait(history.last(), timeout=0)
        assert runtime.predict([1]).seq == runtime.seq < history.last()
        let_go.set()
        runtime.wait(history.last(), PATIENCE)
        runtime.stop()
        ends = [batch.seq for batch in log.batches(0)]
        rejected = {one.seq for one in log.rejections()}
        assert told == [end for end in ends if end not in rejected]
        assert runtime.subscriber_failures == len(told)
        assert runtime.failure is None
        history.check(log)
        check_bits(runtime.engine, replay(log))


def test_no_descriptors_for_a_while(server: Server, deployment: Path, tmp_path: Path) -> None:
    """Those who are there are served; who comes waits or is refused; checkpoints fail, and come later."""
    history, stream = History(), make_stream(300)
    process = server.process.pid
    _, most = resource.prlimit(process, resource.RLIMIT_NOFILE)
    with loopback.Client(base_url=server.address) as client:
        for number in range(20):
            append(client, history, str(number), stream[number], wait="true" if number == 19 else "false")
        used = max(int(one) for one in os.listdir(f"/proc/{process}/fd")) + 1
        before = list_checkpoints(tmp_path / "checkpoints")
        failed = metric(client, "livegnn_failed_checkpoints_total")
        resource.prlimit(process, resource.RLIMIT_NOFILE, (used, most))
        host, port = server.address.removeprefix("http://").split(":")
        coming = []
        for _ in range(20):
            one = socket.socket()
            one.settimeout(PATIENCE)
            with suppress(OSError):
                one.connect((host, int(port)))
            coming.append(one)
        number = 20
        while metric(client, "livegnn_failed_checkpoints_total") == failed:
            append(client, history, str(number), stream[number], wait="true")
            number += 1
        assert client.get("/healthz").json()["status"] == "ok"
        resource.prlimit(process, resource.RLIMIT_NOFILE, (most, most))
        for one in coming:
            with suppress(ConnectionError):
                one.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                assert one.recv(12) in (b"HTTP/1.1 200", b"")  # it was closed when it came
            one.close()
        assert loopback.get(f"{server.address}/healthz").json()["status"] == "ok"
        while list_checkpoints(tmp_path / "checkpoints") in (before, []):
            append(client, history, str(number), stream[number], wait="true")
            number += 1
    assert "Too many open files" in (tmp_path / "stderr").read_text(encoding="utf-8")
    check_after_kill(server, deployment, history)
