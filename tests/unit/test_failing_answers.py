"""Failing answers have one form in every process: server, worker, front end, function and Lambda."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from fastapi import FastAPI

import loopback
from functions import ENVIRONMENT, FAIL, KILL, body, function, message
from livegnn import Engine
from livegnn.errors import LONGEST_MESSAGE, OverloadedError
from livegnn.functions.app import Application
from livegnn.functions.bodies import Answer, answer_error
from livegnn.functions.machine import Machine
from livegnn.functions.processes import ProcessHost
from livegnn.functions.scheduler import Limits
from livegnn.functions.stage import Stage
from livegnn.functions.threads import ThreadHost
from livegnn.http import refusals
from livegnn.http.guard import Access
from livegnn.http.keys import KeyFile, create_key
from livegnn.http.problems import PAGES, PROBLEMS, find_page
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.workers.front import create_front
from served import served
from serving_workers import PLAN, Setting
from streams import make_graph, make_model

KINDS = {kind.name: kind for kind in PROBLEMS.values()}


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    content: bytes


Ask = Callable[..., Reply]
"""Method, path, body and headers of a request to a process."""

JSON = {"content-type": "application/json"}


def reply_of(answer: httpx.Response) -> Reply:
    return Reply(answer.status_code, answer.headers, answer.content)


def ask_application(app: object, run: Callable[..., httpx.Response] = asyncio.run) -> Ask:
    """run: of a runner, for an application that belongs to one event loop."""

    def ask(method: str, path: str, content: bytes = b"", **headers: str) -> Reply:
        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(method, path, content=content, headers={**JSON, **headers})

        return reply_of(run(request()))

    return ask


def ask_address(address: str) -> Ask:
    def ask(method: str, path: str, content: bytes = b"", **headers: str) -> Reply:
        return reply_of(
            loopback.request(method, address + path, content=content, headers={**JSON, **headers})
        )

    return ask


class Handler:
    """A process with the handler of a Lambda: lines of JSON in and out."""

    PROGRAM = (
        "import json, sys\n"
        "from livegnn.functions.lambda_handler import handler\n"
        "for line in sys.stdin: print(json.dumps(handler(json.loads(line), None)), flush=True)"
    )

    def __init__(self, directory: Path) -> None:
        variables = {"SNAPSHOT": str(directory), "MODEL": "none", "FUNCTION": "functions:open_snapshot"}
        named = {f"LIVEGNN_{name}": value for name, value in variables.items()}
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **ENVIRONMENT, **named},
        )

    def __call__(self, method: str, path: str, content: bytes = b"", **headers: str) -> Reply:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        path, _, query = path.partition("?")
        http = {"requestContext": {"http": {"method": method}}, "rawPath": path, "rawQueryString": query}
        event = http | {"body": content.decode(), "headers": headers}
        self.process.stdin.write(json.dumps(event).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return Reply(answer["statusCode"], answer["headers"], answer["body"].encode())

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def function_application(directory: Path) -> Application:
    return Application(Machine({"predict": Stage(ThreadHost(function(directory)), Limits(1))}, concurrency=1))


PROCESSES = ("server", "worker", "front end", "function", "lambda")


@pytest.fixture(scope="module")
def asks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ask]]:
    folder = tmp_path_factory.mktemp("processes")
    with ExitStack() as opened:
        setting = Setting(folder, opened)
        front = opened.enter_context(served(create_front(PLAN, [[it] for it in setting.addresses])))
        log = SqliteLog(folder / "server.db")
        opened.callback(log.close)
        graph = make_graph()
        app = create_app(Runtime(log, graph, Engine(graph, make_model(), threads=1)))
        node = function_application(folder)
        runner = opened.enter_context(asyncio.Runner())
        opened.callback(lambda: runner.run(node._machine.close()))
        handler = Handler(folder)
        opened.callback(handler.end)
        yield {
            "server": ask_application(app),
            "worker": ask_address(setting.addresses[0]),
            "front end": ask_address(front),
            "function": ask_application(node, runner.run),
            "lambda": handler,
        }


def check(reply: Reply, name: str, *, more: frozenset[str] = frozenset()) -> dict[str, object]:
    """Checks that an answer is a problem of this kind and nothing else; returns it."""
    assert reply.headers["content-type"] == "application/problem+json", reply
    problem: dict[str, object] = json.loads(reply.content)
    assert problem.keys() == {"type", "title", "status", "detail"} | more
    kind = KINDS[name]
    assert (problem["type"], problem["title"]) == (f"/problems/{name}", kind.title), problem
    assert reply.status == problem["status"] == kind.status
    assert 0 < len(str(problem["detail"])) <= LONGEST_MESSAGE
    if kind.retry_after is None:
        assert "retry-after" not in reply.headers
    else:
        assert int(reply.headers["retry-after"]) >= 1
    return problem


FAILURES = [
    ("GET", "/nowhere", b"", {}, "unknown-path"),
    ("GET", "/problems/none", b"", {}, "unknown-path"),
    ("DELETE", "/v1/predictions", b"", {}, "unknown-method"),
    ("PUT", "/problems", b"", {}, "unknown-method"),
    ("POST", "/v1/predictions", b"{", {}, "invalid-input"),
    ("POST", "/v1/predictions", b'{"ids": ["a"]}', {}, "invalid-input"),
    ("POST", "/v1/predictions", b'{"ids": [1], "min_seq": -1}', {}, "invalid-input"),
    ("POST", "/v1/predictions?foo=1", b'{"ids": []}', {}, "invalid-input"),
    ("GET", "/problems?foo=1", b"", {}, "invalid-input"),
    ("POST", "/v1/predictions", b'{"ids": [10004]}', {}, "unknown-node"),
    ("POST", "/v1/predictions", b'{"ids": [0], "min_seq": 1000000, "timeout": 0.2}', {}, "timeout"),
    ("POST", "/v1/predictions", b"ids", {"content-type": "text/plain"}, "unknown-media-type"),
    ("POST", "/v1/predictions", b'{"ids": [%b0]}' % (b"0," * 2**20), {}, "body-too-large"),
]


@pytest.mark.parametrize("process", PROCESSES)
def test_every_process_answers_failures_in_one_form(asks: dict[str, Ask], process: str) -> None:
    ask = asks[process]
    for method, path, content, headers, name in FAILURES:
        if process == "lambda" and name == "unknown-media-type":  # events have none that matter
            continue
        if process == "worker" and name == "unknown-node":
            owned = PLAN.serving_worker_of(range(10_000, 10_100)).tolist()
            content = b'{"ids": [%d]}' % (10_000 + owned.index(0))
        reply = ask(method, path, content, **headers)
        check(reply, name)
        assert ("allow" in reply.headers) == (name == "unknown-method"), reply.headers


INFER = "/v2/models/engine/infer"
TENSOR = {"name": "ids", "shape": [1], "datatype": "INT64", "data": [10_004]}
LATE = {"min_seq": 1_000_000, "timeout": 1}


@pytest.mark.parametrize("process", PROCESSES)
def test_errors_of_the_protocol_are_texts(asks: dict[str, Ask], process: str) -> None:
    ask = asks[process]
    owned = PLAN.serving_worker_of(range(10_000, 10_100)).tolist()
    unknown, nothing = {**TENSOR, "data": [10_000 + owned.index(0)]}, {**TENSOR, "shape": [0], "data": []}
    for method, path, content, status in (
        ("POST", INFER, {"inputs": [unknown]}, 404),
        ("POST", INFER, {"inputs": [unknown], "more": 1}, 400),
        ("POST", INFER, {"inputs": [{**TENSOR, "datatype": "BYTES", "data": ["a"]}]}, 400),
        ("POST", INFER, {"inputs": [{**unknown, "data": [0]}], "parameters": LATE}, 503),
        ("POST", INFER, {"inputs": [unknown], "outputs": [{"name": "none"}]}, 400),
        ("POST", "/v2/models/other/infer", {"inputs": [unknown]}, 404),
        (
            "POST",
            "/v2/models/engine/versions/none/infer",
            {"inputs": [nothing]},
            404,
        ),
        ("GET", "/v2/models/other", None, 404),
        ("GET", "/v2/models/engine/versions/none", None, 404),
        ("GET", "/v2/models/engine/versions/none/ready", None, 404),
        ("GET", INFER, None, 405),
        ("GET", "/v2/nothing", None, 404),
    ):
        reply = ask(method, path, b"" if content is None else json.dumps(content).encode())
        assert (reply.status, json.loads(reply.content).keys()) == (status, {"error"}), (path, reply)
        assert reply.headers["content-type"] == "application/json"
        assert ("allow" in reply.headers) == (status == 405)
    compressed = ask("POST", INFER, b"x", **{"content-encoding": "gzip"})
    assert (compressed.status, "must not be compressed" in compressed.content.decode()) == (415, True)


@pytest.mark.parametrize("process", PROCESSES)
def test_every_process_has_the_pages(asks: dict[str, Ask], process: str) -> None:
    ask = asks[process]
    names = KINDS if process == "server" else ("unknown-path", "unforeseen")
    for path in (PAGES, *(f"{PAGES}/{name}" for name in names)):
        reply = ask("GET", path)
        assert (reply.status, reply.headers["content-type"]) == (200, "text/plain; charset=utf-8")
        assert reply.content.decode() == find_page(path)
    if process != "server":  # its server leaves out the body
        for path in (PAGES, "/nowhere"):
            assert ask("HEAD", path).content == b""


def test_a_stage_of_a_gateway_may_have_the_name_of_a_protocol(asks: dict[str, Ask]) -> None:
    ask = asks["lambda"]
    check(ask("POST", "/v2/v1/predictions", b"{"), "invalid-input")
    assert json.loads(ask("GET", "/v2/v2/models/other").content).keys() == {"error"}
    assert ask("GET", "/v2/v2/models/engine").status == ask("GET", "/prod/v2").status == 200


def test_a_stage_of_a_gateway_may_stand_before_a_page(asks: dict[str, Ask]) -> None:
    assert asks["lambda"]("GET", "/prod/problems/overloaded").content.decode() == KINDS["overloaded"].page


def test_a_mistake_of_the_program_is_a_problem(asks: dict[str, Ask], tmp_path: Path) -> None:
    for process in ("function", "lambda"):
        problem = check(asks[process]("POST", "/v1/predictions", body(FAIL)), "unforeseen")
        assert "RuntimeError: the predictor has a mistake" in str(problem["detail"])
    broken = function_application(tmp_path)
    broken._machine.report_metrics = None  # type: ignore[assignment,method-assign]
    check(ask_application(broken)("GET", "/metrics"), "unforeseen")


async def receive_late() -> dict[str, object]:
    raise asyncio.CancelledError


def stopped(app: object, path: str) -> Reply:
    """The answer to a request that is cancelled, because its process stops."""
    sent: list[dict] = []

    async def send(message: dict) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    asyncio.run(app({**scope, "http_version": "1.1"}, receive_late, send))  # type: ignore[operator]
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Reply(sent[0]["status"], headers, sent[1]["body"])


def make_server(directory: Path, **access: object) -> tuple[FastAPI, Runtime]:
    graph = make_graph()
    runtime = Runtime(SqliteLog(directory / "events.db"), graph, Engine(graph, make_model(), threads=1))
    return create_app(runtime, access=Access(**access) if access else None), runtime


def test_a_process_that_stops_says_so(tmp_path: Path) -> None:
    server, _ = make_server(tmp_path)
    server.stopping = True  # type: ignore[attr-defined]
    for path in ("/v1/events", "/v1/predictions"):
        check(stopped(server, path), "process-stops")
    application = function_application(tmp_path)
    application._stops = True
    check(stopped(application, "/v1/predictions"), "process-stops")

    async def stop_stages() -> list[Reply]:
        machine = application._machine
        await machine.close()
        answers = [
            await machine.predict(body(1)),
            *await asyncio.gather(*map(refused_by, machine.stages.values())),
        ]
        return [Reply(one.status, one.headers(), one.body) for one in answers]

    async def refused_by(stage: Stage) -> Answer:
        with pytest.raises(refusals.ProcessStops) as raised:
            await stage.call(message(1))
        return answer_error(raised.value)

    for reply in asyncio.run(stop_stages()):
        check(reply, "process-stops")


def test_a_body_that_is_cut_is_not_answered_as_if_it_were_whole(tmp_path: Path) -> None:
    application, sent = function_application(tmp_path), []
    half = [{"type": "http.request", "body": body(1)[:3], "more_body": True}, {"type": "http.disconnect"}]

    async def ask() -> None:
        async def receive() -> dict[str, object]:
            return half.pop(0)

        async def send(message: dict) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "headers": [], "query_string": b""}
        await application({**scope, "path": "/v1/predictions"}, receive, send)

    asyncio.run(ask())
    assert (half, application._reading, sent[0]["status"]) == ([], set(), 400)
    assert ("/v1/predictions", "POST", "400") in application._machine.counts.times()


def test_a_shed_request_has_one_status(tmp_path: Path) -> None:
    server, runtime = make_server(tmp_path)

    def refuse(room_timeout: float = 0.0) -> None:
        raise OverloadedError("too many events wait", retry_after=2.0)

    runtime.admit = refuse  # type: ignore[method-assign]
    reply = ask_application(server)("POST", "/v1/events", b'{"events": []}')
    check(reply, "overloaded")
    assert reply.headers["retry-after"] == "2"
    application = function_application(tmp_path)
    application._machine.requests = application._machine.concurrency
    check(ask_application(application)("POST", "/v1/predictions", body(1)), "overloaded")


def test_workers_that_are_processes_answer_in_the_form_too(tmp_path: Path) -> None:
    async def ask() -> list[Reply]:
        host = ProcessHost(function(tmp_path), environment=ENVIRONMENT)
        machine = Machine({"predict": Stage(host, Limits(1))}, concurrency=2)
        answers = [await machine.predict(body(*ids)) for ids in ((10_004,), (FAIL,), (KILL,))]
        await machine.close()
        return [Reply(one.status, one.headers(), one.body) for one in answers]

    for reply, name in zip(asyncio.run(ask()), ("unknown-node", "unforeseen", "workers-failed"), strict=True):
        check(reply, name)


def test_the_guard_answers_in_the_form_too(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    reader = create_key(keys, "client", ["read"])
    server, _ = make_server(tmp_path, keys=KeyFile(keys), origins=["https://listed.example"])
    ask = ask_application(server)
    for headers, name in (
        ({}, "key-missing"),
        ({"authorization": "Bearer none"}, "key-unknown"),
        ({"authorization": f"Bearer {reader}"}, "key-forbids"),
        ({"host": "strange.example"}, "unknown-host"),
        ({"origin": "https://strange.example"}, "unknown-origin"),
    ):
        reply = ask("POST", "/v1/events", b'{"events": []}', **headers)
        problem = check(reply, name)
        assert ("www-authenticate" in reply.headers) == (reply.status == 401)
        protocol = ask("PUT", "/v2/models/engine", **headers)
        assert (protocol.status, json.loads(protocol.content).keys()) == (reply.status, {"error"})
        assert ask("HEAD", "/v1/predictions", **{**headers, "host": "strange.example"}).content == b""
        assert str(problem["detail"])
    assert ask("GET", PAGES).status == ask("GET", f"{PAGES}/key-missing").status == 200
    asked = {"access-control-request-method": "GET"}
    check(ask("OPTIONS", "/v1/events", origin="https://strange.example", **asked), "unknown-origin")
    odd = {"access-control-request-method": "ODD"}
    check(ask("OPTIONS", "/v1/events", origin="https://listed.example", **odd), "invalid-input")


def test_appends_name_the_events_that_are_refused(tmp_path: Path) -> None:
    server, runtime = make_server(tmp_path)
    ask = ask_application(server)
    bad, good = {"event": "fly"}, {"event": "add_node", "id": 900}
    events = json.dumps({"events": [bad, good]}).encode()
    check(ask("POST", "/v1/events", events), "invalid-input")
    partly = ask("POST", "/v1/events?partial=true", events)
    content = json.loads(partly.content)
    assert (partly.status, partly.headers["content-type"]) == (200, "application/json")
    assert content.keys() == {"seq", "status", "refused"}
    (refused,) = content["refused"]
    assert refused.keys() == {"position", "problem"}
    assert refused["problem"].keys() == {"type", "title", "status", "detail"}
    none = ask("POST", "/v1/events?partial=true", json.dumps({"events": [bad]}).encode())
    check(none, "invalid-input", more=frozenset({"refused"}))
    later = ask("POST", "/v1/events?wait=true&partial=true&timeout=0.01", events)
    content = json.loads(later.content)
    assert (later.status, content["problem"]["type"], content["problem"]["status"]) == (
        202,
        "/problems/not-visible",
        202,
    )
    runtime.start()
    missing = json.dumps({"events": [{"event": "remove_node", "id": 998}]}).encode()
    reply = ask("POST", "/v1/events?wait=true", missing)
    problem = json.loads(reply.content)
    assert (reply.status, reply.headers["content-type"]) == (409, "application/problem+json")
    assert problem.keys() == {"type", "title", "status", "detail", "seq"}
    assert (problem["type"], problem["status"]) == ("/problems/unknown-node", 409)
    runtime.stop()
