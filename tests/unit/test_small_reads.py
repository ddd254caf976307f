"""Small requests that are answered without the framework, against an application that parses all of them."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gate import draws
from livegnn import Engine, Events
from livegnn.http.small_reads import SmallReads, answer_parsed
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


class Request:
    """A request as a server hands it to an application: its body in pieces."""

    def __init__(self, path: str, pieces: list[bytes], *headers: tuple[bytes, bytes], **more: str) -> None:
        self.pieces = pieces
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 9),
            "method": more.get("method", "POST"),
            "path": path,
            "raw_path": path.encode(),
            "query_string": more.get("query", "").encode(),
            "headers": [(b"host", b"a"), *headers],
        }

    def __repr__(self) -> str:
        return f"{self.scope} {self.pieces}"


def answer(app: ASGIApp, request: Request) -> list[Message]:
    """The messages of an answer."""
    waiting: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": at + 1 < len(request.pieces)}
        for at, piece in enumerate(request.pieces)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append({**message, "headers": sorted(message.get("headers", ()))})

    asyncio.run(app(dict(request.scope), receive, send))  # type: ignore[arg-type]
    return sent


def contents(sent: list[Message]) -> list[Message]:
    """The messages of an answer; JSON as its contents, because numbers are written in more than one way."""
    body = b"".join(message.get("body", b"") for message in sent)
    start = {**sent[0], "headers": [one for one in sent[0]["headers"] if one[0] != b"content-length"]}
    assert (b"content-length", b"%d" % len(body)) in sent[0]["headers"]
    return [start, {"body": json.loads(body)}]


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


@settings(deadline=None, max_examples=draws(150, 2000))
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


@settings(deadline=None, max_examples=draws(150, 2000))
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


@settings(deadline=None, max_examples=draws(100, 1000))
@given(PARAMETERS, st.sampled_from([Limits(), Limits(numbers=20), Limits(ids=2)]))
def test_a_server_gives_one_answer_to_parameters_both_ways(
    runtime: Runtime, parameters: str, limits: Limits
) -> None:
    app = application(runtime, limits)
    assert isinstance(app, ServerApplication)
    request_ = Request("/v1/predictions", [b""], method="GET", query=parameters)
    assert contents(answer(app, request_)) == contents(answer(app.answer, request_))


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
