"""The logs of commands that run long: real processes, and what they write to standard error."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
from test_worker_commands import write_deployment as write_workers

import loopback
from livegnn.http.keys import create_key
from livegnn.snapshots.writer import write_snapshot
from ports import closed_port, free_port
from serving import write_deployment
from streams import WIDTH, make_graph, make_model
from waiting import PATIENCE, REQUEST_SECONDS, wait_until

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.]+: .+")
SECRET_KEY, ACCESS_KEY = "Zm9yIHRlc3RzIG9ubHksIG5vdCBhIGtleQ", "AKIAONLYFORTESTS"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_SESSION_TOKEN": "a-token-of-a-session",
    "AWS_ALLOW_HTTP": "true",
    "AWS_REGION": "nowhere-1",
}


class Process:
    """A command whose standard error is read while it runs."""

    def __init__(self, *words: object, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "livegnn", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.lines: list[str] = []
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def address(self) -> str:
        """The address at which it listens, from its standard output."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "http://" in line, (line, self.lines)
        return line.split()[-1]

    def end(self, sent: int = signal.SIGTERM) -> int:
        """Ends it, if it has not ended; all its lines are there then."""
        if self.process.returncode is None:
            self.process.send_signal(sent)
            assert self.process.stdout is not None
            assert self.process.stderr is not None
            with self.process.stdout, self.process.stderr:
                self.process.stdout.read()
                self.process.wait(PATIENCE)
                self._reader.join()
        return int(self.process.returncode)

    def records(self) -> list[dict[str, object]]:
        """The lines as JSON."""
        found = [json.loads(line) for line in self.lines]
        for one in found:
            assert {"time", "level", "logger", "message"} <= one.keys()
            assert one["time"].endswith("Z")
        return found

    def wait_for(self, text: str) -> None:
        """Returns when a line has this text."""
        wait_until(lambda: any(text in line for line in list(self.lines)), f"the line {text!r}")


@contextmanager
def running(*words: object, **environment: str) -> Iterator[Process]:
    process = Process(*words, **environment)
    try:
        yield process
    finally:
        process.end(signal.SIGKILL)


def messages(records: list[dict[str, object]], logger: str) -> list[str]:
    return [str(one["message"]) for one in records if one["logger"] == f"livegnn.{logger}"]


def write_events(address: str, count: int, headers: dict[str, str]) -> int:
    seq = 0
    with loopback.Client(base_url=address, headers=headers) as client:
        for value in range(count):
            events = [{"event": "set_features", "id": 1, "x": [float(value)] * WIDTH}]
            answer = client.post(
                f"/v1/events?wait=true&timeout={REQUEST_SECONDS}", json={"events": events * 50}
            )
            assert answer.status_code == 200, answer.text
            seq = answer.json()["seq"]
    return int(seq)


def test_a_server_says_how_it_starts_works_and_ends_and_no_secret(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path, every_events=100)
    content = deployment.read_text(encoding="utf-8") + 'keys = "keys.json"\n'
    content += '[snapshots]\nurl = "s3://bucket/graph"\ninterval = 0.1\n'
    deployment.write_text(content, encoding="utf-8")
    key = create_key(tmp_path / "keys.json", "operator", ["admin"])
    wrong = "lgk_" + "w" * 43
    headers = {"authorization": f"Bearer {key}"}
    words = ("serve", deployment, "--log-json", "--log-level", "debug")
    store = {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{closed_port()}"}
    with running(*words, **store) as server:
        address = server.address()
        server.wait_for("ready, ")
        for given in ({}, {"authorization": f"Bearer {wrong}"}):
            assert loopback.get(f"{address}/v1/predictions?ids=1", headers=given).status_code == 401
        seq = write_events(address, 5, headers)
        model = (tmp_path / "model.lgnn").read_bytes()
        body = {**headers, "content-type": "application/octet-stream"}
        assert loopback.put(f"{address}/v1/models/second", content=model, headers=body).status_code == 202
        server.wait_for("the model 'second' follows")
        for method, path, sent in (
            ("PUT", "/v1/serving", {"model": "second"}),
            ("POST", "/v1/serving/rollback", None),
        ):
            answer = httpx.request(
                method, address + path, json=sent, headers=headers, timeout=REQUEST_SECONDS
            )
            assert answer.status_code == 200, answer.text
        server.wait_for("a checkpoint at event ")
        server.wait_for("no snapshot was written to")
        assert server.end() == 0
        records = server.records()
        said = "\n".join(server.lines)
    for secret in (key, wrong, ACCESS_KEY, SECRET_KEY, CREDENTIALS["AWS_SESSION_TOKEN"]):
        assert secret not in said
    assert messages(records, "runtime.recovery")[0].startswith("starts from the first graph")
    recovered = next(one for one in records if str(one["message"]).startswith("recovered at event 0"))
    assert (recovered["event"], recovered["events"]) == (0, 0)
    listens, ready = (
        next(place for place, one in enumerate(records) if str(one["message"]).startswith(text))
        for text in ("listens at", "ready, ")
    )
    assert listens < ready
    assert records[listens]["address"] == address
    checkpoint = next(one for one in records if str(one["message"]).startswith("a checkpoint at"))
    assert 100 <= checkpoint["event"] <= seq
    assert checkpoint["seconds"] >= 0
    assert checkpoint["bytes"] > 1000
    asked = [(one["by"], one["model"]) for one in records if "by" in one]
    assert asked == [
        ("the key operator", "second"),
        ("the key operator", "second"),
        ("the key operator", "engine"),
    ]
    switches = [(one["model"], one["previous"]) for one in records if "previous" in one]
    assert switches == [("second", "engine"), ("engine", "second")]
    assert [one.split(" at")[0].split(" after")[0] for one in messages(records, "runtime.loop")[-2:]] == [
        "stops",
        "stopped",
    ]
    with running("serve", deployment, "--log-level", "info", **store) as server:
        server.address()
        server.wait_for("ready, ")
        server.end()
        assert all(LINE.fullmatch(line) for line in server.lines), server.lines
        assert any(f"starts from the checkpoint {tmp_path}" in line for line in server.lines)
        assert any(f"recovered at event {seq}: replayed 0 events" in line for line in server.lines)


def test_events_after_the_checkpoint_are_counted_in_the_log_of_a_start(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path, every_events=100_000)
    with running("serve", deployment, "--log-json") as server:
        write_events(server.address(), 2, {})
        server.end(signal.SIGKILL)
    with running("serve", deployment, LIVEGNN_LOG_JSON="1") as server:
        server.address()
        server.end()
        recovered = next(one for one in server.records() if str(one["message"]).startswith("recovered"))
        assert (recovered["event"], recovered["events"]) == (100, 100)


def test_the_address_of_the_command_replaces_that_of_the_file(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path)
    content = deployment.read_text(encoding="utf-8").replace(
        "port = 0", f'host = "::1"\nport = {closed_port()}'
    )
    deployment.write_text(content, encoding="utf-8")
    port = free_port()
    with running("serve", deployment, "--host", "127.0.0.1", "--port", port) as server:
        assert server.address() == f"http://127.0.0.1:{port}"
    for host in ("0.0.0.0", "::"):
        with running("serve", deployment, "--host", host, "--port", 0) as server:
            assert server.end(0) == 1
            (line,) = server.lines
            assert line.startswith(f"error: host is '{host}', where other machines may send requests"), line
    create_key(tmp_path / "keys.json", "reader", ["read"])
    deployment.write_text(content + 'keys = "keys.json"\n', encoding="utf-8")
    with running("serve", deployment, "--host", "0.0.0.0", "--port", 0) as server:
        assert server.address().startswith("http://0.0.0.0:")
    with running("serve", deployment, "--port", 65536) as server:
        assert server.end(0) == 1
        assert server.lines == ["error: port must be from 0 to 65535, got 65536"]


def test_an_error_that_ends_a_command_is_a_line_of_json(tmp_path: Path) -> None:
    for words, status in (
        (("serve", tmp_path / "none.toml"), 1),
        (("worker", "sample", tmp_path / "none.toml", 0), 1),
        (("worker", "serve", tmp_path / "none.toml", 0), 1),
        (("worker", "front", tmp_path / "none.toml", "http://127.0.0.1:1"), 1),
        (("cluster", "up", tmp_path / "none.toml"), 1),
        (("function", "serve", "--snapshot", "x", "--model", "y", "--place", "clouds"), 1),
        (("demo", "--headless", "--speed", "0"), 1),
    ):
        with running(*words, "--log-json", "--log-level", "error") as process:
            assert process.end(0) == status
            (record,) = process.records()
            assert (record["level"], record["logger"]) == ("error", "livegnn"), words
    with running("serve", tmp_path / "none.toml", "--log-level", "loud") as process:
        assert process.end(0) == 2


def test_workers_and_their_front_end_say_what_they_do(tmp_path: Path) -> None:
    deployment = write_workers(tmp_path)
    with running("serve", deployment) as server:
        address = server.address()
        events = [{"event": "add_node", "id": id, "x": [1.0] * WIDTH} for id in range(5)]
        assert loopback.post(f"{address}/v1/events", json={"events": events}).status_code == 200
        sampling, serving = (
            [Process("worker", kind, deployment, number, "--log-json") for number in (0, 1)]
            for kind in ("sample", "serve")
        )
        try:
            places = [worker.address() for worker in serving]
            for worker in serving:
                worker.wait_for("ready, ")
            with running("worker", "front", deployment, *places, "--port", 0, "--log-json") as front:
                front.address()
                front.wait_for("ready, ")
                assert front.end() == 0
                assert messages(front.records(), "cli")[-1] == "the front end stopped"
        finally:
            for worker in (*sampling, *serving):
                worker.end()
        for number, worker in enumerate(serving):
            said = messages(worker.records(), "cli")
            assert said[0] == f"serving worker {number} listens at {places[number]}"
            assert said[-1] == f"serving worker {number} stopped"
        for number, worker in enumerate(sampling):
            said = messages(worker.records(), "cli")
            assert said == [
                f"sampling worker {number} runs from event 0 on",
                f"sampling worker {number} stopped at event 5",
            ]
            (checkpoint,) = (
                one for one in worker.records() if one["logger"] == "livegnn.workers.checkpoints"
            )
            assert (checkpoint["event"], checkpoint["bytes"] > 100) == (5, True)


def function_words(folder: Path, snapshot: str) -> tuple[object, ...]:
    make_model().save(folder / "model.lgnn")
    opened = ("--snapshot", snapshot, "--model", folder / "model.lgnn", "--workers", 1)
    return ("function", "serve", *opened, "--port", 0, "--log-json")


def test_a_function_and_its_workers_write_one_log(tmp_path: Path) -> None:
    write_snapshot(make_graph(), str(tmp_path / "snapshot"), seq=5)
    with running(*function_words(tmp_path, str(tmp_path / "snapshot"))) as node:
        address = node.address()
        node.wait_for("not ready yet: predict: it has not opened a predictor yet")
        assert loopback.post(f"{address}/v1/predictions", json={"ids": [3]}).status_code == 200
        node.wait_for("ready, ")
        assert node.end() == 0
        assert messages(node.records(), "functions.stage")[0].startswith("worker 0 started in ")
        assert messages(node.records(), "cli")[-1] == "the node stopped"


class RefusingStore(ThreadingHTTPServer):
    """Refuses each request as S3 does, with the credentials that it has received in the body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refusing)
        Thread(target=self.serve_forever, daemon=True).start()


class _Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        given = f"{self.headers.get('authorization')} {self.headers.get('x-amz-security-token')}"
        assert ACCESS_KEY in given
        body = f"""<?xml version="1.0"?><Error><Code>InvalidAccessKeyId</Code><Message>It is none.</Message>
<AWSAccessKeyId>{ACCESS_KEY}</AWSAccessKeyId><StringToSign>{given}</StringToSign></Error>""".encode()
        self.send_response(403)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Writes nothing."""


@pytest.mark.parametrize("place", ["processes", "threads"])
@pytest.mark.parametrize("answers", [False, True], ids=["no store", "a store that refuses"])
def test_a_function_never_shows_the_keys_of_its_store(tmp_path: Path, place: str, answers: bool) -> None:
    words = (*function_words(tmp_path, "s3://bucket/graph"), "--place", place, "--log-level", "debug")
    with ExitStack() as opened:
        port = opened.enter_context(RefusingStore()).server_port if answers else closed_port()
        endpoint = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        node = opened.enter_context(running(*words, **CREDENTIALS, **endpoint))
        answer = loopback.post(f"{node.address()}/v1/predictions", json={"ids": [3], "timeout": 60})
        assert answer.status_code == 503
        node.wait_for("worker 0: ")
        node.end()
    records, said = node.records(), "\n".join(node.lines) + answer.text
    assert any(one["level"] == "warning" for one in records)
    assert ("InvalidAccessKeyId" in said) is answers
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        assert CREDENTIALS[name] not in said
