"""Clients of HTTP/2 that do harm: their connection ends, or costs little; others are served meanwhile."""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from starlette.types import Receive, Scope, Send

from http_2 import (
    BEGIN,
    CANCEL,
    CONTINUATION,
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    REFUSED,
    RESET,
    SETTINGS,
    WINDOW,
    Frames,
    connected,
    field,
    frame,
    head,
    requests,
    setting,
)
from livegnn.http.guard import Access, Guard
from livegnn.http.serving import _MOST_STREAMS
from livegnn.http.tls import Tls
from served import place_of, served
from waiting import wait_until

LARGE = 1 << 20
OK = b"\x88"  # the status 200 in a head
PER_ADDRESS = 70  # two connections of requests, and some


class Server:
    """open: requests whose answer has not ended. most: how many of these there were at once."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        signed = authority.issue_cert("127.0.0.1")
        signed.cert_chain_pems[0].write_to_path(folder / "c.pem")
        signed.private_key_pem.write_to_path(folder / "k.pem")
        self.tls = Tls(folder / "c.pem", folder / "k.pem", http2=True)
        self.context = ssl.create_default_context()
        authority.configure_trust(self.context)
        self.place = ("", 0)
        self.begun = self.open = self.most = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        self.begun, self.open = self.begun + 1, self.open + 1
        self.most = max(self.most, self.open)
        try:
            if scope["path"] == "/wait":
                while (await receive())["type"] != "http.disconnect":
                    pass
                return
            body = bytes(LARGE if scope["path"] == "/large" else 2)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})
        finally:
            self.open -= 1

    def serves(self) -> bool:
        """Whether another client is answered."""
        with connected(self.place, self.context) as connection:
            connection.sendall(BEGIN + frame(SETTINGS, 0, 0, b"") + requests(b"/small", [0]))
            heads = (content for kind, _, content in Frames(connection) if kind == HEADERS)
            return next(heads, b"").startswith(OK)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    guard = Guard(server, Access(hosts=["localhost"], requests_per_address=PER_ADDRESS))
    with served(guard, tls=server.tls, grace=0.1) as address:
        server.place = place_of(address)
        yield server


def begin(path: bytes | None = None, streams: int = 0) -> bytes:
    asked = b"" if path is None else requests(path, range(streams))
    return BEGIN + frame(SETTINGS, 0, 0, b"") + asked


def test_a_connection_has_some_requests_at_once_and_others_are_refused(server: Server) -> None:
    with connected(server.place, server.context) as connection:
        connection.sendall(begin(b"/wait", 1000))
        refused = 0
        for kind, _, content in Frames(connection):
            refused += kind == RESET and int.from_bytes(content, "big") == REFUSED
            if refused == 1000 - _MOST_STREAMS:
                break
        wait_until(lambda: server.begun == _MOST_STREAMS)
        assert server.serves()
    wait_until(lambda: server.open == 0)  # the client is gone
    assert server.most <= _MOST_STREAMS + 1


def flood(connection: ssl.SSLSocket, piece: bytes, times: int) -> list[bytes]:
    """Sends until the server ends the connection; what it says to that, without the times if it does not."""
    with suppress(ConnectionError, ssl.SSLError):
        for _ in range(times):
            connection.sendall(piece)
    return [content for kind, _, content in Frames(connection) if kind == GOAWAY]


@pytest.mark.parametrize("path", [b"/small", b"/wait", b"/large"])
def test_requests_that_are_taken_back_at_once_end_the_connection(server: Server, path: bytes) -> None:
    with connected(server.place, server.context) as connection:
        connection.sendall(begin())
        with suppress(ConnectionError, ssl.SSLError):
            for at in range(0, 100_000, 100):
                pairs = (
                    requests(path, [n]) + frame(RESET, 0, 2 * n + 1, CANCEL) for n in range(at, at + 100)
                )
                connection.sendall(b"".join(pairs))
        ends = [content for kind, _, content in Frames(connection) if kind == GOAWAY]
        assert ends[0].endswith(b"too_many_resets")
    assert server.serves()
    assert server.begun < 1000
    wait_until(lambda: server.open == 0)


@pytest.mark.parametrize("piece", [b"", field(b"a", b"b" * 100) * 100], ids=["empty", "fields"])
def test_a_head_without_an_end_ends_the_connection(server: Server, piece: bytes) -> None:
    with connected(server.place, server.context) as connection:
        connection.sendall(begin() + frame(HEADERS, END_STREAM, 1, head(b"/small")))
        ends = flood(connection, frame(CONTINUATION, 0, 1, piece) * 100, 10_000)
        assert ends[0].endswith(b"too_many_continuations")
    assert server.serves()
    assert server.begun == 1


def test_an_answer_that_is_not_read_is_an_open_request(server: Server) -> None:
    """So clients that open no window are counted, and their answers are bounded."""
    closed = BEGIN + setting(WINDOW, 0) + requests(b"/large", range(_MOST_STREAMS))
    with (
        connected(server.place, server.context) as one,
        connected(server.place, server.context) as two,
        connected(server.place, server.context) as three,
    ):
        for connection in (one, two, three):
            connection.sendall(closed)
        wait_until(lambda: server.open == PER_ADDRESS)
        assert not server.serves()  # of the same address
    wait_until(lambda: server.open == 0)
    assert server.serves()
    assert server.most == PER_ADDRESS


def test_settings_without_end_are_taken_one_by_one(server: Server) -> None:
    with connected(server.place, server.context) as connection:
        connection.sendall(begin())
        connection.sendall(setting(WINDOW, 1) * 20_000)
        assert server.serves()
        connection.sendall(setting(WINDOW, 65_535) + requests(b"/small", [0]))
        assert any(kind == DATA for kind, stream, _ in Frames(connection) if stream == 1)
