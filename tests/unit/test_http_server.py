"""The server of an ASGI application: requests in pieces, clients that go or do not read, and its stop."""

import asyncio
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import uvloop
from starlette.types import Message, Receive, Scope, Send

from livegnn.errors import LiveGNNError
from livegnn.http.listening import listen
from livegnn.http.serving import HttpServer
from served import place_of, served
from waiting import PATIENCE, wait_until

PART = b"z" * 65536
HEAD = b"%b %b HTTP/1.1\r\nhost: a\r\n%b\r\n"


class Application:
    """Answers each path in its own way, and notes what it sees."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.sent = 0
        self.stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for _ in range(2):
                message = await receive()
                self.seen.append(message["type"])
                await send({"type": f"{message['type']}.complete"})
            return
        await getattr(self, scope["path"].strip("/") or "number")(scope, receive, send)

    async def number(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, b"%d" % self.sent)

    async def fail(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("on purpose")

    async def body(self, scope: Scope, receive: Receive, send: Send) -> None:
        size, more = 0, True
        self.seen.append("body")
        try:
            while more:
                message: Message = await receive()
                size += len(message.get("body", b""))
                more = message.get("more_body", False)
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise
        await answer(send, 200, b"%d" % size)

    async def feed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends for as long as somebody takes it."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while not self.stopping:
                await send({"type": "http.response.body", "body": PART, "more_body": True})
                self.sent += 1
        finally:
            self.seen.append("feed ended")

    async def stuck(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": PART, "more_body": True})
        self.seen.append("stuck")
        await asyncio.Event().wait()

    async def watch(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # the body, which is empty
        self.seen.append("watch")
        self.seen.append((await receive())["type"])


async def answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(app: Application, grace: float = 0.1) -> Iterator[tuple[str, int]]:
    def begin_stop() -> None:
        app.seen.append("stop begins")
        app.stopping = True

    with served(app, grace=grace, on_stop=begin_stop) as address:
        yield place_of(address)


def connect(address: tuple[str, int], data: bytes) -> socket.socket:
    found = socket.create_connection(address, PATIENCE)
    found.sendall(data)
    return found


def ask(address: tuple[str, int], data: bytes) -> bytes:
    """The answer to a request that asks the server to close the connection."""
    with connect(address, data) as connection:
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def get(path: bytes, more: bytes = b"", method: bytes = b"GET") -> bytes:
    return HEAD % (method, path, b"connection: close\r\n" + more)


def status_of(text: bytes) -> int:
    return int(text.split(b" ", 2)[1])


def test_requests_are_answered_whole_in_pieces_and_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    with serving(Application()) as address:
        assert ask(address, get(b"/number")).endswith(b"\r\n\r\n0")
        assert ask(address, get(b"/number", method=b"HEAD")).endswith(b"\r\n\r\n")
        with connect(address, b"") as connection:
            for byte in get(b"/body", b"content-length: 3\r\n", b"POST") + b"abc":
                connection.sendall(bytes([byte]))
            assert connection.recv(1 << 16).endswith(b"\r\n\r\n3")
        chunked = get(b"/body", b"transfer-encoding: chunked\r\n", b"POST")
        assert ask(address, chunked + b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n").endswith(b"\r\n\r\n5")
        assert status_of(ask(address, get(b"/fail"))) == 500
        wait_until(lambda: "on purpose" in caplog.text)  # another thread writes it
        both = HEAD % (b"GET", b"/number", b"") + get(b"/number")
        assert ask(address, both).count(b"200 OK") == 2


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (HEAD % (b"GET", b"/", b"a: " + b"b" * 200_000 + b"\r\n"), 431),
        (HEAD % (b"GET", b"/", b"a: b\r\n" * 200), 431),
        (HEAD % (b"POST", b"/body", b"content-length: 1\r\ncontent-length: 2\r\n") + b"ab", 400),
        (HEAD % (b"POST", b"/body", b"content-length: -1\r\n"), 400),
        (HEAD % (b"GET", b"/", b"a: b\r\n c\r\n"), 400),
        (b"GET /\xff HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
    ],
    ids=["large", "many", "two lengths", "length below 0", "folded", "not ASCII", "nonsense"],
)
def test_heads_that_are_none_are_refused(request_: bytes, status: int) -> None:
    app = Application()
    with serving(app) as address:
        assert status_of(ask(address, request_)) == status
        assert status_of(ask(address, get(b"/number"))) == 200
    assert "body" not in app.seen


def test_a_client_that_does_not_read_is_waited_for() -> None:
    app = Application()
    with serving(app) as address, connect(address, HEAD % (b"GET", b"/feed", b"")):
        counts: list[bytes] = [b"?"]

        def stands() -> bool:
            counts.extend(ask(address, get(b"/number")).rpartition(b"\r\n")[2] for _ in range(20))
            return len(set(counts[-20:])) == 1 and int(counts[-1]) > 0

        wait_until(stands)
        assert int(counts[-1]) * len(PART) < 8 << 20  # buffers of two sockets, and some pieces
    assert app.seen[-2:] == ["feed ended", "lifespan.shutdown"]


def test_an_answer_without_end_whose_client_is_gone_keeps_nobody_out() -> None:
    app = Application()
    with serving(app) as address:
        for _ in range(3):
            with connect(address, HEAD % (b"GET", b"/feed", b"")) as connection:
                connection.recv(1)
        for _ in range(20):
            assert status_of(ask(address, get(b"/number"))) == 200


def test_many_idle_connections_keep_nobody_out() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1 << 16), hard))  # this process has both ends
    with serving(Application()) as address, ExitStack() as opened:
        for _ in range(1300):
            idle = opened.enter_context(connect(address, HEAD % (b"GET", b"/number", b"")))
            assert idle.recv(1 << 16).endswith(b"\r\n\r\n0")
        assert status_of(ask(address, get(b"/number"))) == 200


def test_the_end_of_an_answer_is_not_held_back() -> None:
    with listen("127.0.0.1", 0) as listener, connect(listener.getsockname(), b""):
        accepted, _ = listener.accept()
        with accepted:  # Nagle's algorithm would wait for the client, and it delays what it says by 40 ms
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_client_that_goes_is_seen() -> None:
    app = Application()
    with serving(app) as address:
        with connect(address, HEAD % (b"GET", b"/watch", b"")):
            wait_until(lambda: "watch" in app.seen)
        wait_until(lambda: app.seen[-1] == "http.disconnect")


def test_a_socket_that_is_left_open_refuses_connections_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("livegnn.http.serving._Granian.stop", lambda granian: None)  # as on a busy machine
    with serving(Application()) as address:
        connect(address, b"").close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HT",
        HEAD % (b"GET", b"/number", b""),
        HEAD % (b"POST", b"/body", b"content-length: 9\r\n") + b"abc",
        HEAD % (b"GET", b"/feed", b""),
        HEAD % (b"GET", b"/watch", b""),
        HEAD % (b"GET", b"/stuck", b""),
    ],
    ids=["silent", "half a head", "idle", "half a body", "feed", "waiting", "half an answer"],
)
def test_a_stop_ends_whatever_is_open(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    app = Application()
    with serving(app) as address:
        open_ = connect(address, data)
        begun = next((name for name in ("body", "stuck") if name.encode() in data), "lifespan.startup")
        wait_until(lambda: begun in app.seen)
    assert app.seen[0] == "lifespan.startup"
    assert app.seen[-1] == "lifespan.shutdown"
    assert app.seen.count("stop begins") == 1
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    if b"/body" in data:
        assert status_of(open_.recv(1 << 16)) == 503
    if b"/stuck" in data:  # the client sees that the end is missing
        assert not b"".join(iter(lambda: open_.recv(1 << 16), b"")).endswith(b"0\r\n\r\n")
    open_.close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_an_open_request_has_its_grace() -> None:
    app = Application()
    with serving(app, grace=PATIENCE) as address:
        request = HEAD % (b"POST", b"/body", b"content-length: 6\r\n")
        open_ = connect(address, request + b"abc")
        wait_until(lambda: "body" in app.seen)

        def finish() -> None:
            wait_until(lambda: app.stopping)
            open_.sendall(b"def")

        finishing = threading.Thread(target=finish)
        finishing.start()
    finishing.join()
    assert open_.recv(1 << 16).endswith(b"\r\n\r\n6")
    open_.close()


class Answers(Application):
    """Answers of `size` bytes, in parts or in one; `ended` is set once each was sent, or given up."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.ended = size, threading.Event()

    async def parts(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append("begun")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(0, self.size, len(PART)):
                await send({"type": "http.response.body", "body": PART, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self.ended.set()

    async def whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append("begun")
        try:
            await answer(send, 200, bytes(self.size))
        finally:
            self.ended.set()


@pytest.mark.parametrize("path", [b"/parts", b"/whole"])
def test_a_stop_does_not_wait_for_a_client_that_reads_nothing(path: bytes) -> None:
    app = Answers(64 << 20)
    with serving(app, grace=PATIENCE) as address:
        idle = connect(address, HEAD % (b"GET", path, b""))
        other = connect(address, HEAD % (b"POST", b"/body", b"content-length: 6\r\n") + b"abc")
        wait_until(lambda: {"begun", "body"} <= set(app.seen))

        def finish() -> None:
            wait_until(lambda: app.stopping)
            assert app.ended.wait(PATIENCE)  # for the unread answer, or before
            other.sendall(b"def")

        finishing = threading.Thread(target=finish)
        finishing.start()
    finishing.join()
    assert other.recv(1 << 16).endswith(b"\r\n\r\n6")
    assert app.seen[-1] == "lifespan.shutdown"
    received = b"".join(iter(lambda: idle.recv(1 << 20), b""))
    assert len(received) < app.size
    assert not received.endswith(b"0\r\n\r\n")  # the client sees that the end is missing
    for connection in (idle, other):
        connection.close()


def test_a_stop_waits_for_a_client_that_reads() -> None:
    app, read = Answers(32 << 20), bytearray()
    with serving(app, grace=PATIENCE) as address:
        reader = connect(address, HEAD % (b"GET", b"/parts", b""))
        wait_until(lambda: "begun" in app.seen)

        def finish() -> None:
            wait_until(lambda: app.stopping)
            while part := reader.recv(1 << 16):
                read.extend(part)

        finishing = threading.Thread(target=finish)
        finishing.start()
    finishing.join()
    assert read.endswith(b"0\r\n\r\n")
    assert len(read) > app.size
    reader.close()


@pytest.mark.parametrize("asks", [lambda server: server.stop(), lambda server: None], ids=["stop", "until"])
def test_a_server_that_is_stopped_before_it_runs(asks: Callable[[HttpServer], None]) -> None:
    app = Application()
    server = HttpServer(app, listen("127.0.0.1", 0))
    asks(server)
    server.run(until=lambda: True)
    server.stop()


@pytest.mark.parametrize("moment", ["before the loop", "before it runs", "at the start", "meanwhile"])
def test_a_signal_stops_the_server_whenever_it_arrives(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    after = list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, frame: after.append(number))
    looks = 0

    def arrive(now: str) -> None:
        if now == moment:
            signal.raise_signal(signal.SIGTERM)

    def make_loop() -> asyncio.AbstractEventLoop:
        arrive("before the loop")
        loop = uvloop.new_event_loop()
        arrive("before it runs")
        return loop

    class Starting(Application):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            arrive("at the start")
            await super().__call__(scope, receive, send)

    def look() -> bool:
        nonlocal looks
        looks += 1
        arrive("meanwhile")
        return looks > 100

    monkeypatch.setattr("livegnn.http.serving._loop_factory", lambda: make_loop)
    try:
        HttpServer(Starting(), listen("127.0.0.1", 0)).run(until=look)
        assert signal.getsignal(signal.SIGTERM) is not before
    finally:
        signal.signal(signal.SIGTERM, before)
    assert after == [signal.SIGTERM]  # the handler of before is called at the end, once
    assert looks <= 2


def test_threads_have_short_turns_while_the_main_thread_serves() -> None:
    before, seen = sys.getswitchinterval(), []

    def look() -> bool:
        seen.append(sys.getswitchinterval())
        return True

    HttpServer(Application(), listen("127.0.0.1", 0)).run(look)
    assert seen[0] < before == sys.getswitchinterval()


def test_an_application_that_does_not_start() -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no room"})

    with listen("127.0.0.1", 0) as listener, pytest.raises(LiveGNNError, match="the application must start"):
        HttpServer(refuse, listener).run()
