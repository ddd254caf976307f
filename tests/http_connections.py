"""HTTP connections in memory, and requests as servers see them: in pieces, several at once, malformed."""

import asyncio
import itertools
import json
import re
from collections.abc import Awaitable, Callable
from typing import cast

import numpy as np
import uvicorn
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from livegnn.workers.relay import RelayProtocol
from serving_workers import NODES, PLAN

MINE = np.flatnonzero(PLAN.serving_worker_of(np.arange(NODES)) == 0).tolist()
JSON = "content-type: application/json"


class MemoryTransport(asyncio.Transport):
    """A connection in memory: bytes come by `receive`, and are kept while the protocol does not read."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.written, self._waiting, self._reads, self._closing = b"", b"", True, False
        self._protocol = protocol
        protocol.connection_made(self)

    def receive(self, data: bytes) -> None:
        self._waiting += data
        if self._reads and self._waiting and not self._closing:
            data, self._waiting = self._waiting, b""
            self._protocol.data_received(data)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self.written += data

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True
        asyncio.get_running_loop().call_soon(self.receive, b"")

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


async def answer_all(protocol: HttpToolsProtocol) -> None:
    """Waits until all requests are answered whose bytes have come."""
    still = 0
    while still < 5:  # rounds of the loop, for what tasks leave to it
        await asyncio.sleep(0)
        still += 1
        waits_for_more = protocol.cycle is not None and protocol.cycle.more_body and not protocol.pipeline
        if protocol.tasks and not waits_for_more:
            await asyncio.wait(protocol.tasks)
            still = 0
        while isinstance(protocol, RelayProtocol) and protocol.under_way:
            await asyncio.sleep(0)
            still = 0


async def nothing() -> None:
    """Nobody has to be waited for."""


def answers(
    config: uvicorn.Config,
    pieces: list[bytes],
    ends_at: int = -1,
    waits: bool = True,
    ready: Callable[[], Awaitable[None]] = nothing,
) -> bytes:
    """What a server writes to a connection where these bytes come, each piece when all before it is answered.

    ends_at: before which piece the server is told to end. waits: False if no piece waits. ready: returns when
    the application is.
    """

    async def run() -> bytes:
        async with config.app.router.lifespan_context(config.app):  # type: ignore[union-attr]
            await ready()
            return await connect()

    async def connect() -> bytes:
        state = ServerState()
        state.default_headers = [(b"server", b"a")]
        protocol = cast("type[HttpToolsProtocol]", config.http_protocol_class)(config, state, {})
        transport = MemoryTransport(protocol)
        for number, piece in enumerate(pieces):
            if number == ends_at:
                protocol.shutdown()
            transport.receive(piece)
            if waits:
                await answer_all(protocol)
        await answer_all(protocol)
        transport.close()
        if state.tasks:
            await asyncio.wait(state.tasks)
        if protocol.timeout_keep_alive_task is not None:
            protocol.timeout_keep_alive_task.cancel()
        return transport.written

    return asyncio.run(run())


def request(body: bytes, *lines: str, path: str = "/v1/predictions", method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: localhost", *lines, "", ""]).encode() + body


def sized(body: bytes, *lines: str, **more: str) -> bytes:
    return request(body, *lines, f"Content-Length: {len(body)}", **more)


def body(ids: list[int], **more: object) -> bytes:
    return json.dumps({"ids": ids, **more}).encode()


def cut_at(pieces: list[bytes], places: list[int]) -> list[bytes]:
    """The same pieces, cut at these places of the whole as well."""
    ends = sorted({*itertools.accumulate(map(len, pieces)), *places})
    whole = b"".join(pieces)
    return [whole[begin:end] for begin, end in itertools.pairwise([0, *ends])]


TEXTS = st.one_of(
    st.just(body(MINE[:1])),
    st.sampled_from([body(MINE[:2], min_seq=1), body([1], more=1), b'{"ids": [1], "ids": [1]}', b"[", b"{}"]),
    st.lists(st.sampled_from([*MINE, 0, 1, 2, -1, NODES, 2**63]), max_size=20).map(body),
)
PLACES = st.sampled_from(
    ["/v1/predictions"] * 5 + ["/v1/samples", "/v1/predictions?ids=1", "/v1/health", "/"]
)
LINES = st.sampled_from(
    [
        "Content-Type: application/json; charset=UTF-8",
        "content-type: text/plain",
        "accept: */*",
        "connection: keep-alive",
        "expect: 100-continue",
        "content-encoding: gzip",
        f"x-one: {'y' * 5000}",
        "x-one: POST /v1/predictions HTTP/1.1",
    ]
)
KINDS = st.sampled_from(["whole"] * 6 + ["chunked", "nothing", "get", "twice", "newlines", "close"])


@st.composite
def some_requests(draw: st.DrawFn) -> bytes:
    if draw(st.booleans()):
        return sized(body(MINE[: draw(st.integers(1, 3))]), JSON)
    text, path = draw(TEXTS), draw(PLACES)
    lines = [JSON] * draw(st.booleans()) + draw(st.lists(LINES, max_size=2) | st.just([]))
    kind = draw(KINDS)
    match kind:
        case "chunked":
            chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)
            return request(chunk, *lines, "transfer-encoding: chunked", path=path)
        case "nothing":
            return request(b"", *lines, path=path)
        case "get":
            return request(b"", *lines, path="/v1/health", method="GET")
        case "twice":
            return sized(text, *lines, f"content-length: {len(text)}", path=path)
        case "newlines":
            return sized(text, *lines, path=path).replace(b"\r\n", b"\n")
        case "close":
            return sized(text, *lines, "connection: close", path=path)
    return sized(text, *lines, path=path)


def cut(data: bytes, near: list[int], anywhere: list[int]) -> list[bytes]:
    """Pieces that end near an empty line or a beginning, or anywhere."""
    marks = [found.end() for found in re.finditer(rb"\r\n\r\n|(?=POST)", data)]
    places = [marks[one // 3 % len(marks)] + one % 3 - 1 for one in near if marks] + anywhere
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(at) if end > begin]
