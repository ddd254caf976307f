"""Small requests that are answered without the framework, against an application that parses all of them."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from typing import NamedTuple

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from asgi_requests import Request, answer, contents
from gate import draws
from livegnn import Engine, Events
from livegnn.http.guard import Access, Guard
from livegnn.http.keys import KeyFile, KeyLimits, create_key
from livegnn.http.request_counts import CountedApplication, RequestCounts
from livegnn.http.small_reads import ImmediateReads, SmallReads, answer_parsed
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.server.app import ServerApplication
from livegnn.server.bodies import Limits
from livegnn.workers.app import create_routes, create_serving_app
from served import served
from serving_workers import NODES, PLAN, Setting
from streams import WIDTH, make_graph, make_model

MINE = np.flatnonzero(PLAN.serving_worker_of(np.arange(NODES)) == 0).tolist()


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with ExitStack() as opened:
        yield Setting(tmp_path_factory.mktemp("workers"), opened)


def text(ids: list[int], **more: object) -> bytes:
    return json.dumps({"ids": ids, **more}).encode()


def small(body: bytes, *headers: tuple[bytes, bytes]) -> Request:
    return Request("/v1/predictions", [body], (b"content-length", b"%d" % len(body)), *headers)


TEXTS = st.one_of(
    st.just(text(MINE[:1])),
    st.sampled_from(
        [
            text(MINE[:2], min_seq=1),
            text(MINE[:1], min_seq=2**62, timeout=0.001),
            text(MINE[:1], min_seq=True),
            text([1], more=1),
            b'{"ids": [1], "ids": [1]}',
            b"[",
            b"{}",
            b"",
        ]
    ),
    st.lists(st.sampled_from([*MINE, 0, 1, 2, -1, NODES, 2**63]), max_size=20).map(text),
)
HEADERS = st.sampled_from(
    [
        (b"content-type", b"application/json"),
        (b"content-type", b"application/json; charset=UTF-8"),
        (b"content-type", b"text/plain"),
        (b"content-encoding", b"gzip"),
        (b"content-encoding", b"identity"),
        (b"accept", b"*/*"),
    ]
)


@st.composite
def some_requests(draw: st.DrawFn) -> Request:
    body = draw(TEXTS)
    place = draw(st.integers(0, len(body)))
    pieces = draw(st.sampled_from([[body], [body[:place], body[place:]], [body, b""]]))
    sized = draw(st.sampled_from([True, True, True, False]))
    return Request(
        draw(st.sampled_from(["/v1/predictions", "/v1/predictions", "/v1/samples", "/v1/health", "/"])),
        pieces,
        *([(b"content-length", b"%d" % len(body))] * sized),
        *draw(st.lists(HEADERS, max_size=2)),
        query=draw(st.sampled_from(["", "", "", "ids=1"])),
        method=draw(st.sampled_from(["POST", "POST", "POST", "GET", "PUT"])),
    )


@settings(deadline=None, max_examples=draws(40, 2000))
@given(some_requests())
def test_both_ways_give_one_answer(setting: Setting, request_: Request) -> None:
    worker = setting.workers[0]
    assert answer(create_serving_app(worker), request_) == answer(create_routes(worker), request_), request_


@pytest.fixture(scope="module", params=[False, True], ids=["integers", "texts"])
def runtime(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    log = SqliteLog(tmp_path_factory.mktemp("server") / "events.db")
    graph = make_graph(text=request.param)
    running = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    names = [*(f"node {id}" for id in range(4)), "4"] if request.param else list(range(5))
    rows = np.random.default_rng(1).normal(size=(5, WIDTH)) * 10.0 ** np.arange(-20, 30, 10)[:, None]
    running.append(Events().add_nodes(np.array(names), rows.astype(np.float32)))
    while running.step():
        pass
    yield running
    log.close()


application = cache(lambda runtime, limits: create_app(runtime, limits=limits))

NUMBERS, NAMES = st.sampled_from([0, 1, 4, 9]), st.sampled_from(["node 1", "node 9", "a\0"])
IDS = st.lists(NUMBERS | NAMES, max_size=18)


@settings(deadline=None, max_examples=draws(40, 2000))
@given(
    IDS.map(text)
    | st.builds(text, IDS, min_seq=st.integers(-1, 2))
    | TEXTS
    | st.just(text([1]) + b" " * 1100),
    st.sampled_from([Limits(), Limits(numbers=20), Limits(objects=1024), Limits(ids=2)]),
)
def test_a_server_gives_one_answer_both_ways(runtime: Runtime, body: bytes, limits: Limits) -> None:
    app = application(runtime, limits)
    assert isinstance(app, ServerApplication)
    request_ = small(body.replace(b"4611686018427387904", b"1"))  # which would be waited for
    assert contents(answer(app, request_)) == contents(answer(app.answer, request_))


PARAMETERS = st.one_of(
    st.lists(st.sampled_from(["0", "1", "4", "9", "node%201", "-1", "01", "", "é"]), max_size=18).map(
        lambda ids: "ids=" + ",".join(ids)
    ),
    st.sampled_from(
        [
            "",
            "ids",
            "ids=1&ids=2",
            "ids=1&min_seq=0",
            "ids=1&min_seq=1",
            "ids=1&min_seq=x",
            "ids=1&a=2",
            "ids=+1",
        ]
    ),
)


@settings(deadline=None, max_examples=draws(30, 1000))
@given(PARAMETERS, st.sampled_from([Limits(), Limits(numbers=20), Limits(ids=2)]))
def test_a_server_gives_one_answer_to_parameters_both_ways(
    runtime: Runtime, parameters: str, limits: Limits
) -> None:
    app = application(runtime, limits)
    assert isinstance(app, ServerApplication)
    request_ = Request("/v1/predictions", [b""], method="GET", query=parameters)
    assert contents(answer(app, request_)) == contents(answer(app.answer, request_))


class Layers(NamedTuple):
    """A guarded application, and the reads in front of it; counts of each; keys by their names."""

    guarded: ASGIApp
    immediate: ASGIApp
    counts: tuple[RequestCounts, RequestCounts]
    keys: dict[str, str]


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Layers:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    keys = {"read": create_key(path, "read", ["read"]), "admin": create_key(path, "admin", ["admin"])}
    keys["write"] = create_key(path, "write", ["write"])
    keys["limited"] = create_key(path, "limited", ["read"], KeyLimits(requests=10**15))
    keys["unknown"] = "lgk_" + "a" * 43

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    answers = {"/v1/predictions": lambda request, parameters: request if parameters else None}
    first, second = RequestCounts(), RequestCounts()
    guard = Guard(
        SmallReads(refuse, answers, get_paths=answers), Access(KeyFile(path), requests_per_address=1)
    )
    counted = [CountedApplication(guard, one, list(answers)) for one in (first, second)]
    return Layers(counted[0], ImmediateReads(counted[1], answers, guard, second), (first, second), keys)


@settings(deadline=None, max_examples=draws(80, 3000))
@given(
    st.lists(st.sampled_from(["a", "localhost", "localhost:80", "127.0.0.1", "evil.example"]), max_size=2),
    st.lists(
        st.tuples(
            st.sampled_from(["Bearer ", "bearer ", "Bearer  ", "Basic ", ""]),
            st.sampled_from(["read", "read", "admin", "write", "limited", "unknown"]),
            st.sampled_from(["", " "]),
        ),
        max_size=2,
    ),
    st.sampled_from([None, None, None, "http://localhost", "https://evil.example"]),
    st.sampled_from(["GET", "GET", "GET", "HEAD", "POST"]),
    st.sampled_from(["/v1/predictions", "/v1/other"]),
    st.sampled_from(["ids=1", "ids=1", "", "x" * 5000]),
)
def test_reads_before_the_guard_are_answered_as_behind_it(
    layers: Layers,
    hosts: list[str],
    given_keys: list[tuple[str, str, str]],
    origin: str | None,
    method: str,
    path: str,
    query: str,
) -> None:
    headers = [(b"host", host.encode()) for host in hosts]
    headers += [
        (b"authorization", f"{kind}{layers.keys[name]}{end}".encode()) for kind, name, end in given_keys
    ]
    headers += [] if origin is None else [(b"origin", origin.encode())]
    request_ = Request(path, [b""], method=method, query=query)
    request_.scope["headers"] = headers
    assert answer(layers.immediate, request_) == answer(layers.guarded, request_)
    counted = [{labels: one.count for labels, one in each.times().items()} for each in layers.counts]
    assert counted[0] == counted[1]


def test_an_address_at_its_limit_is_refused_reads_too(layers: Layers) -> None:
    """As is each request beyond the limit: an answer at once takes a place of the address for no time."""
    request_ = Request("/v1/predictions", [b""], method="GET", query="ids=1")
    key = f"Bearer {layers.keys['read']}".encode()
    request_.scope["headers"] = [(b"host", b"localhost"), (b"authorization", key)]

    async def run() -> list[int]:
        statuses: list[int] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                if len(statuses) == 1:  # while the first is being answered
                    await layers.immediate(dict(request_.scope), held, send)

        async def held() -> Message:
            return {"type": "http.request", "body": b""}

        await layers.guarded({**request_.scope, "query_string": b""}, held, send)
        await layers.immediate(dict(request_.scope), held, send)
        return statuses

    assert asyncio.run(run()) == [404, 429, 200]


@pytest.mark.parametrize("way", ["body", "parameters"])
def test_a_small_read_does_not_reach_the_framework_of_a_server(
    runtime: Runtime, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(runtime)
    assert isinstance(app, ServerApplication)
    texts = runtime.graph.schema.text_ids
    if way == "body":
        request_ = small(json.dumps({"ids": ["node 1", "node 3"] if texts else [1, 3]}).encode())
    else:
        request_ = Request("/v1/predictions", [b""], method="GET", query="ids=4" if texts else "ids=1,3")
    expected = contents(answer(app.answer, request_))
    monkeypatch.setattr(ServerApplication, "answer", None)
    assert contents(answer(create_app(runtime), request_)) == expected
    assert expected[0]["status"] == 200


@pytest.mark.parametrize("path", ["/v1/predictions", "/v1/samples"])
def test_a_small_request_does_not_reach_the_framework(
    setting: Setting, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = setting.workers[0]
    body = text(MINE[:2], min_seq=1)
    request_ = Request(path, [body], (b"content-length", b"%d" % len(body)))
    expected = answer(create_routes(worker), request_)
    app = create_serving_app(worker)
    monkeypatch.setattr(app.small_reads, "_app", None)
    assert answer(app, request_) == expected
    assert expected[0]["status"] == 200


def test_a_small_request_over_a_connection_does_not_reach_the_framework(setting: Setting) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError(scope)

    app = SmallReads(refuse, {"/sum": answer_parsed(lambda wanted: {"ids": wanted.ids})})
    with served(app) as address:
        answer = httpx.post(f"{address}/sum", json={"ids": [1, 2]})
    assert (answer.status_code, answer.json()) == (200, {"ids": [1, 2]})


def test_an_unforeseen_failure_is_reported(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(setting.workers[0], "predict", fail)
    for app in (create_serving_app(setting.workers[0]), create_routes(setting.workers[0])):
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": text(MINE[:1])}

        async def send(message: Message, sent: list[Message] = sent) -> None:
            sent.append(message)

        with pytest.raises(MemoryError):  # which the server logs
            asyncio.run(app(dict(small(text(MINE[:1])).scope), receive, send))  # type: ignore[arg-type]
        assert sent[0]["status"] == 500
