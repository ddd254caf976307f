"""Appends without the framework, against the application that parses all requests."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from asgi_requests import Request, answer, contents
from gate import draws
from livegnn import Graph
from livegnn.http.guard import Access
from livegnn.http.keys import KeyFile, KeyLimits, create_key
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.server.app import ServerApplication
from livegnn.server.bodies import Limits

LARGEST = 400


class Served(NamedTuple):
    runtime: Runtime
    app: ServerApplication


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    """Two servers of equal logs."""

    def begin() -> Served:
        log = SqliteLog(tmp_path_factory.mktemp("server") / "events.db")
        runtime = Runtime(log, Graph(), auto_add=["node"])
        app = create_app(runtime, limits=Limits(body=LARGEST, objects=300))
        assert isinstance(app, ServerApplication)
        return Served(runtime, app)

    first, second = begin(), begin()
    with closing(first.runtime.log), closing(second.runtime.log):
        yield first, second


EDGE = {"event": "add_edge", "src": 1, "dst": 2}
BODIES = st.one_of(
    st.integers(0, 5).map(lambda count: json.dumps({"events": [EDGE] * count}).encode()),
    st.integers(1, 5).map(lambda count: (json.dumps(EDGE) + "\n").encode() * count),
    st.sampled_from(["a", "b"]).map(
        lambda key: json.dumps({"events": [EDGE, {**EDGE, "idempotency_key": key}, EDGE]}).encode()
    ),
    st.sampled_from(
        [
            b"",
            b"{",
            b"[]",
            b'{"events": 3}',
            b'{"events": [], "events": []}',
            b'{"events": [{"event": "add_edge", "src": "one", "dst": 2}]}',
            b'{"events": [{"event": "fly"}]}',
            b" " * (LARGEST + 1),
            b" " * 350,
        ]
    ),
)
HEADERS = st.sampled_from(
    [
        (b"content-type", b"application/json"),
        (b"content-type", b"Application/JSON; charset=utf-8"),
        (b"content-type", b"application/x-ndjson"),
        (b"content-type", b"text/plain"),
        (b"content-type", b""),
        (b"content-encoding", b"gzip"),
        (b"content-encoding", b"identity"),
        (b"transfer-encoding", b"chunked"),
        (b"idempotency-key", b"one"),
        (b"idempotency-key", b" two\t"),
        (b"idempotency-key", b""),
        (b"idempotency-key", b"\xff"),
        (b"accept", b"*/*"),
    ]
)


@st.composite
def some_requests(draw: st.DrawFn) -> Request:
    body = draw(BODIES)
    place = draw(st.integers(0, len(body)))
    pieces = draw(st.sampled_from([[body], [body], [body[:place], body[place:]], [body, b""]]))
    sized = draw(st.sampled_from([True, True, True, False]))
    request_ = Request(
        draw(st.sampled_from(["/v1/events", "/v1/events", "/v1/events", "/v1/other"])),
        pieces,
        *([(b"content-length", b"%d" % len(body))] * sized),
        *draw(st.lists(HEADERS, max_size=3)),
        query=draw(st.sampled_from(["", "", "", "partial=true"])),
        method=draw(st.sampled_from(["POST", "POST", "POST", "PUT"])),
    )
    if draw(st.sampled_from([False, False, False, True])):
        request_.cut, request_.pieces = True, [body[:place]]
    return request_


@settings(deadline=None, max_examples=draws(200, 3000))
@given(some_requests())
def test_both_ways_give_one_answer_and_one_log(both: tuple[Served, Served], request_: Request) -> None:
    first, second = both
    got, expected = answer(first.app, request_), answer(second.app.answer, request_)
    assert _shown(got) == _shown(expected), request_
    assert first.runtime.log.last_seq() == second.runtime.log.last_seq(), request_


def _shown(sent: list[Message]) -> list[Message]:
    """An answer to nobody has no body."""
    return contents(sent) if b"".join(message.get("body", b"") for message in sent) else sent


def test_an_append_does_not_reach_the_framework(
    both: tuple[Served, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps({"events": [EDGE]}).encode()
    (served, _) = both
    monkeypatch.setattr(ServerApplication, "answer", None)
    request_ = Request("/v1/events", [body], (b"content-length", b"%d" % len(body)))
    assert answer(create_app(served.runtime), request_)[0]["status"] == 200


@pytest.mark.parametrize("cut", [False, True])
def test_a_body_that_is_shorter_than_its_length_appends_nothing(
    both: tuple[Served, Served], cut: bool
) -> None:
    line = json.dumps(EDGE).encode() + b"\n"
    for served, way in zip(both, (both[0].app, both[1].app.answer), strict=True):
        before = served.runtime.log.last_seq()
        request_ = Request("/v1/events", [line], (b"content-length", b"%d" % (2 * len(line))))
        request_.scope["headers"].append((b"content-type", b"application/x-ndjson"))
        request_.cut = cut
        assert answer(way, request_)[0]["status"] == 400
        assert served.runtime.log.last_seq() == before


def test_a_repeated_request_is_told_that_it_is_one(both: tuple[Served, Served]) -> None:
    body = json.dumps({"events": [EDGE]}).encode()
    headers = (b"content-length", b"%d" % len(body)), (b"idempotency-key", b"again")
    for way in (both[0].app, both[1].app.answer):
        heads = [dict(answer(way, Request("/v1/events", [body], *headers))[0]["headers"]) for _ in range(2)]
        assert [head.get(b"idempotent-replayed") for head in heads] == [None, b"true"]


class Guarded(NamedTuple):
    """Two equal servers, and keys by their names."""

    both: tuple[Served, Served]
    keys: dict[str, str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    keys = {scope: create_key(path, scope, [scope]) for scope in ("read", "write", "admin")}
    keys["limited"] = create_key(path, "limited", ["write"], KeyLimits(requests=10**15))
    keys["unknown"] = "lgk_" + "a" * 43

    def begin() -> Served:
        runtime = Runtime(
            SqliteLog(tmp_path_factory.mktemp("server") / "events.db"), Graph(), auto_add=["node"]
        )
        app = create_app(runtime, access=Access(KeyFile(path), requests_per_address=1))
        assert isinstance(app, ServerApplication)
        return Served(runtime, app)

    both = begin(), begin()
    with ExitStack() as opened:
        for one in both:
            opened.enter_context(closing(one.runtime.log))
        yield Guarded(both, keys)


def post(*headers: tuple[bytes, bytes], body: bytes = json.dumps({"events": [EDGE]}).encode()) -> Request:
    request_ = Request("/v1/events", [body])
    request_.scope["headers"] = [(b"content-length", b"%d" % len(body)), *headers]
    return request_


@settings(deadline=None, max_examples=draws(200, 3000))
@given(
    st.lists(st.sampled_from(["localhost", "localhost:80", "127.0.0.1", "evil.example"]), max_size=2),
    st.lists(
        st.tuples(
            st.sampled_from(["Bearer ", "Bearer ", "bearer ", "Bearer  ", "Basic "]),
            st.sampled_from(["write", "write", "admin", "read", "limited", "unknown"]),
        ),
        max_size=2,
    ),
    st.sampled_from([None, None, None, "http://localhost", "https://evil.example"]),
    st.sampled_from(["POST", "POST", "POST", "PUT"]),
    BODIES,
)
def test_appends_before_the_guard_are_answered_as_behind_it(
    guarded: Guarded,
    hosts: list[str],
    given_keys: list[tuple[str, str]],
    origin: str | None,
    method: str,
    body: bytes,
) -> None:
    headers = [(b"host", host.encode()) for host in hosts]
    headers += [(b"authorization", f"{kind}{guarded.keys[name]}".encode()) for kind, name in given_keys]
    headers += [] if origin is None else [(b"origin", origin.encode())]
    request_ = post(*headers, body=body)
    request_.scope["method"] = method
    first, second = guarded.both
    assert _shown(answer(first.app, request_)) == _shown(answer(second.app.counted, request_))
    assert first.runtime.log.last_seq() == second.runtime.log.last_seq()
    times = [one.app.appends._counts.times() for one in guarded.both]  # type: ignore[attr-defined]
    counted = [{labels: one.count for labels, one in each.items()} for each in times]
    assert counted[0] == counted[1]


def test_an_append_takes_a_place_of_its_address_until_it_is_answered(guarded: Guarded) -> None:
    (served, _) = guarded.both
    key = f"Bearer {guarded.keys['write']}".encode()
    request_ = post((b"host", b"localhost"), (b"authorization", key))
    statuses: list[int] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Message:
        return {"type": "http.request", "body": request_.pieces[0]}

    async def receive_later() -> Message:
        await served.app(dict(request_.scope), receive, send)  # while this one is being received
        return await receive()

    async def run() -> None:
        await served.app(dict(request_.scope), receive, send)  # its host is known from then on
        await served.app(dict(request_.scope), receive_later, send)
        await served.app(dict(request_.scope), receive, send)

    asyncio.run(run())
    assert statuses == [200, 429, 200, 200]
