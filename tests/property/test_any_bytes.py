"""Whatever bytes a stranger sends: a request is refused or answered, a message is stored or a bad one, and
what comes with it is stored."""

import ast
import asyncio
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import orjson
import pytest
from fastapi import FastAPI
from hypothesis import example, given, settings
from hypothesis import strategies as st

import livegnn
from gate import draws
from livegnn import Engine, InputError
from livegnn.connectors.kafka import KafkaTopic
from livegnn.connectors.kafka_partitions import Arrived
from livegnn.errors import LONGEST_MESSAGE
from livegnn.functions.bodies import read_asked
from livegnn.http.inference_protocol import read_infer
from livegnn.http.small_reads import read_wanted
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.server.bodies import Limits
from livegnn.wording import quoted
from streams import make_graph, make_model

DEEP = b"[" * 1000 + b"]" * 1000
OBJECTS = b'{"a":' * 1000 + b"1" + b"}" * 1000
TOO_DEEP = b"[" * 100_000 + b"]" * 100_000
PLAIN = b'{"event":"set_features","id":1,"x":[1,2,3,4]}'

ROUTES = [
    ("POST", "/v1/events", "application/json"),
    ("POST", "/v1/events?partial=true", "application/json"),
    ("POST", "/v1/events", "application/x-ndjson"),
    ("POST", "/v1/events?partial=true", "application/x-ndjson"),
    ("POST", "/v1/predictions", "application/json"),
    ("POST", "/v1/samples", "application/json"),
    ("POST", "/v1/what-if", "application/json"),
    ("POST", "/v1/candidates", "application/json"),
    ("PUT", "/v1/models/other", "application/octet-stream"),
    ("PUT", "/v1/serving", "application/json"),
]
VALUES = [
    DEEP,
    OBJECTS,
    TOO_DEEP,
    b"null",
    b"true",
    b"NaN",
    b"1e999",
    b"-1",
    b"9" * 5000,
    b'"\\ud800"',
    b'"\\u0000"',
    b'"\xff"',
    b'"' + b"x" * 5000 + b'"',
    b"[[],{}]",
    b"{}",
    b'{"a":1,"a":2}',
]
FIELDS = [
    b"events",
    b"ids",
    b"event",
    b"id",
    b"x",
    b"src",
    b"dst",
    b"edge_type",
    b"node_type",
    b"key",
    b"weight",
]
FIELDS += [
    b"nodes",
    b"k",
    b"idempotency_key",
    b"min_seq",
    b"timeout",
    b"output",
    b"model",
    b"\\u0061",
    b"other",
]

values = st.sampled_from(VALUES) | st.sampled_from(
    [b"1", b'"add_edge"', b'"set_features"', b'"add_node"', b"[1]"]
)
objects = st.lists(st.tuples(st.sampled_from(FIELDS), values), max_size=4).map(
    lambda pairs: b"{" + b",".join(b'"%b":%b' % pair for pair in pairs) + b"}"
)
records = objects | st.sampled_from([PLAIN, b'{"event":"add_node","id":%b}' % DEEP, *VALUES])
bodies = st.one_of(
    st.binary(max_size=40),
    values,
    objects,
    st.lists(records, max_size=3).map(b"\n".join),
    st.lists(records, max_size=3).map(lambda them: b'{"events":[%b]}' % b",".join(them)),
    st.lists(values, max_size=3).map(lambda them: b'{"ids":[%b]}' % b",".join(them)),
    st.lists(records, max_size=2).map(lambda them: b'{"ids":[1],"events":[%b]}' % b",".join(them)),
    st.tuples(records, st.integers(0, 60)).map(lambda cut: cut[0][: cut[1]]),
)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    log = SqliteLog(tmp_path_factory.mktemp("log") / "log.db")
    graph = make_graph()
    one = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    yield one
    log.close()


@pytest.fixture(scope="module")
def app(runtime: Runtime) -> FastAPI:
    return create_app(runtime)


@contextmanager
def room_of_a_server() -> Iterator[None]:
    """As many frames as Python has room for by default; a run of the tests has more."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 900)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def ask(app: FastAPI, method: str, path: str, body: bytes, kind: str) -> httpx.Response:
    async def call() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, content=body, headers={"content-type": kind})

    with room_of_a_server():
        return asyncio.run(call())


@settings(max_examples=draws(60, 3000))
@given(st.sampled_from(ROUTES), bodies)
@example(ROUTES[0], b'{"events":[%b]}' % DEEP)
@example(ROUTES[0], b'{"events":%b}' % OBJECTS)
@example(ROUTES[1], b'{"events":[{"event":"add_node","id":%b}]}' % DEEP)
@example(ROUTES[2], b'{"event":"add_node","id":%b}' % DEEP)
@example(ROUTES[3], b'{"event":"add_node","id":1,"idempotency_key":%b}' % OBJECTS)
@example(ROUTES[4], b'{"ids":%b}' % DEEP)
@example(ROUTES[4], b'{"ids":[1],"min_seq":%b}' % OBJECTS)
@example(ROUTES[5], b'{"ids":[%b]}' % OBJECTS)
@example(ROUTES[6], b'{"events":[{"event":%b}],"ids":[]}' % DEEP)
@example(ROUTES[6], b'{"events":[],"ids":%b}' % OBJECTS)
@example(ROUTES[8], b'{"model":%b}' % DEEP)
@example(ROUTES[8], DEEP)
def test_a_request_is_answered_or_refused_shortly(
    app: FastAPI, route: tuple[str, str, str], body: bytes
) -> None:
    method, path, kind = route
    answer = ask(app, method, path, body, kind)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        problem = answer.json()
        assert problem["status"] == answer.status_code
        for each in (problem, *(one["problem"] for one in problem.get("refused", ()))):
            assert 0 < len(each["detail"]) <= LONGEST_MESSAGE


@settings(max_examples=draws(40, 2000))
@given(st.one_of(st.text(max_size=30), bodies.map(lambda body: body.decode("latin-1"))))
@example(DEEP.decode())
def test_what_stands_in_an_address_is_refused_shortly(app: FastAPI, text: str) -> None:
    async def call() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            said = text[:2000].encode(errors="surrogatepass")
            return [
                await client.get("/v1/predictions", params={"ids": said}),
                await client.get("/v1/neighbors", params={"id": said}),
                await client.get("/v1/predictions", params={"ids": "1", "min_seq": said}),
            ]

    for answer in asyncio.run(call()):
        assert answer.status_code < 500, answer.text


@settings(max_examples=draws(40, 2000))
@given(bodies)
@example(b'{"ids":%b}' % DEEP)
@example(b'{"ids":[%b]}' % OBJECTS)
@example(b'{"ids":%b}' % TOO_DEEP)
def test_workers_and_functions_refuse_shortly(body: bytes) -> None:
    with room_of_a_server(), suppress(InputError):  # whose messages are short
        read_wanted(body)
        read_asked(body)
    with room_of_a_server(), suppress(InputError):
        read_infer(body, None, Limits().objects)


@settings(max_examples=draws(40, 2000))
@given(st.lists(st.none() | bodies, min_size=1, max_size=3))
@example([b'{"event":"add_node","id":%b}' % DEEP])
@example([DEEP, OBJECTS, TOO_DEEP])
def test_whatever_a_message_is_those_beside_it_are_stored(
    runtime: Runtime, values: list[bytes | None]
) -> None:
    source = KafkaTopic(runtime, "127.0.0.1:1", "topic", settings={"socket.timeout.ms": 1000})
    position = runtime.log.position("topic", 0)
    first = 0 if position is None else position + 1
    source._partitions._next = {0: first}
    group = [Arrived(0, first + at, value) for at, value in enumerate([PLAIN, *values, PLAIN])]
    known, end = len(runtime.log.bad_messages()), runtime.log.last_seq()
    try:
        with room_of_a_server():
            assert source._store(group)
    finally:
        source.stop()
    assert runtime.log.position("topic", 0) == first + len(group) - 1
    assert runtime.log.last_seq() >= end + 2
    bad = runtime.log.bad_messages()[known:]
    assert [one.offset for one in bad] == sorted(
        {one.offset for one in bad} - {first, first + len(group) - 1}
    )
    assert all(one[1:3] == ("topic", 0) and 0 < len(one.reason) <= LONGEST_MESSAGE for one in bad)


def test_a_reader_that_fails_makes_one_bad_message(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    check = Runtime.check

    def fail(self: Runtime, events: livegnn.Events) -> livegnn.Events:
        if len(events) == 2:
            raise RecursionError("too deep")
        return check(self, events)

    monkeypatch.setattr(Runtime, "check", fail)
    known = len(runtime.log.bad_messages())
    test_whatever_a_message_is_those_beside_it_are_stored.hypothesis.inner_test(
        runtime, [PLAIN + b"\n" + PLAIN, PLAIN]
    )
    (bad,) = runtime.log.bad_messages()[known:]
    assert "RecursionError: too deep" in bad.reason


nested = st.recursive(
    st.none() | st.integers() | st.text() | st.binary() | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=draws(30, 3000))
@given(nested, st.integers(10, 200))
def test_what_is_quoted_is_short(value: object, longest: int) -> None:
    text = quoted(value, longest)
    assert 0 < len(text) <= longest
    whole = repr(value) if abs(value if isinstance(value, int) else 0) < 10**50 else ""
    if 0 < len(whole) <= longest and whole.count("[") + whole.count("{") + whole.count("(") < 6:
        assert text == whole


def test_what_is_long_or_deep_is_quoted_up_to_a_point() -> None:
    assert quoted(orjson.loads(DEEP)) == "[" * 6 + "[...]" + "]" * 6
    assert quoted(orjson.loads(OBJECTS)) == "{'a': " * 6 + "{...}" + "}" * 6
    assert quoted(10**5000) == "an integer of 16,610 bits"
    assert quoted(["x" * 10**6] * 1000) == "['" + "x" * 115 + "..."
    assert quoted([0] * 10**6) == "[" + "0, " * 38 + "0,..."


STRANGERS = [
    "events",
    "server",
    "arguments.py",
    "connectors/kafka.py",
    "functions/bodies.py",
    "workers/app.py",
    "workers/inference.py",
    "workers/front_inference.py",
    "http/guard.py",
    "http/inference_protocol.py",
    "http/strict_json.py",
]
STRANGERS += [f"log/{name}.py" for name in ("arguments", "idempotency", "kafka/message")]
OWN = {
    "name",
    "key.name",
    "MAGIC",
    "_KEY",
    "begin",
    "near[0]",
    "self.name",
    "__name__",
    "host",
    "histogram.total",
}
"""What is shown whole: names of our own, or an operator's."""


def test_what_strangers_send_is_shown_by_quoted_alone() -> None:
    root = Path(livegnn.__file__).parent
    files = [file for place in STRANGERS for file in (sorted((root / place).glob("*.py")) or [root / place])]
    assert len(files) > 25
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            shown = isinstance(node, ast.FormattedValue) and node.conversion == ord("r")
            called = isinstance(node, ast.Call) and ast.unparse(node.func) in ("repr", "ascii")
            if shown or called:
                what = ast.unparse(node.value if isinstance(node, ast.FormattedValue) else node)
                assert what in OWN or what == "repr(float(value))", f"{file.name}: {what}"
