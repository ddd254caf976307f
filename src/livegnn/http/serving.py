"""Serves an ASGI application over HTTP at a bound socket, until it is stopped.

granian (Rust, hyper) reads and writes the connections in a thread of its own, and calls the application in
the event loop of the thread that calls `HttpServer.run`. It bounds the size of a head and the time for one,
refuses two lengths, and waits in `send` for a client that reads slowly.

A stop has three steps: nothing more is accepted, and `on_stop` ends the answers without an end; open requests
have `grace` seconds, those whose clients read nothing one second (`unread`); then they are cancelled, and
connections that are still open are left to the end of the process. Thread safety: `stop` may be called from
any thread; `run` once.
"""

import asyncio
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from granian._granian import SocketHolder
from granian.asgi import LifespanProtocol
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings, HTTP2Settings
from granian.log import LogLevels
from granian.server.embed import Server

from livegnn.errors import LiveGNNError
from livegnn.http.listening import BACKLOG
from livegnn.http.problems import problem_of, write
from livegnn.http.refusals import BodyTooSlow, ProcessStops
from livegnn.http.slow_bodies import Bodies, Body
from livegnn.http.tls import Tls
from livegnn.http.unread import WHOLE, Buffers, Sending

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import FrameType

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

GRACE_SECONDS: Final = 5.0
_HEAD_SECONDS: Final = 10.0
_LARGEST_HEAD: Final = 1 << 16
_TURN_SECONDS: Final = 0.0002
_LAST_SECONDS: Final = 1.0  # for answers to requests that were cancelled
_LOOK_SECONDS: Final = 0.1
_CLOSED_SECONDS: Final = 0.002
_MOST_STREAMS: Final = 32  # requests of a connection of HTTP/2 at once: each may keep some pieces unread
_OTHER_FILES: Final = 128  # that are no connections
_MOST_FILES: Final = 1 << 16
_NO_LOGGING: Final = {"incremental": True, "formatters": {}, "handlers": {}, "loggers": {}}
"""For `logging.config`: granian may set the level of its logger, and change nothing else."""


class HttpServer:
    """A server of `app`, which takes over `listener`.

    grace: seconds for open requests after `stop`. on_stop: called in the event loop when a stop begins.
    tls: None for plain HTTP.
    """

    def __init__(
        self,
        app: "ASGIApp",
        listener: socket.socket,
        *,
        grace: float = GRACE_SECONDS,
        on_stop: Callable[[], None] | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._app, self._listener, self._grace, self._on_stop = app, listener, grace, on_stop
        self._tls, self._port = tls, listener.getsockname()[1]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = self._hurried = self._ends = False
        self._asked = asyncio.Event()
        self._open: set[asyncio.Task[object]] = set()
        self._bodies = Bodies()
        self._sending = Sending(time.monotonic)
        self._unread: set[asyncio.Task[object]] = set()  # that were cancelled because nobody reads

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Serves until `stop`, or until `until`, which is called ten times a second, returns True.

        In the main thread SIGINT and SIGTERM stop the server too, and a second one ends the wait for open
        requests; their handlers of before are called at the end. Raises LiveGNNError if the application does
        not start.
        """
        caught: list[int] = []
        with (
            self._signals(caught),
            _short_turns(),
            asyncio.Runner(loop_factory=_loop_factory()) as runner,
        ):
            runner.run(self._serve(until))
        for number in reversed(caught):
            signal.raise_signal(number)

    def stop(self) -> None:
        """Begins the stop; `run` returns when it has ended. Again does nothing."""
        self._stopped = True
        if (loop := self._loop) is not None:
            try:
                loop.call_soon_threadsafe(self._asked.set)
            except RuntimeError:  # it has ended
                return

    @contextmanager
    def _signals(self, caught: list[int]) -> Iterator[None]:
        """Notes signals in `caught`, where they can be. The handlers are not the loop's: uvloop would keep a
        signal that arrives before it runs until the next one arrives."""

        def note(number: int, frame: "FrameType | None") -> None:
            self._hurried = bool(caught)
            caught.append(number)
            self.stop()

        try:
            before = {number: signal.signal(number, note) for number in _SIGNALS}
        except ValueError:  # not the main thread
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def _serve(self, until: Callable[[], bool] | None) -> None:
        self._loop = asyncio.get_running_loop()
        if self._stopped:
            self._listener.close()
            return
        lifespan = LifespanProtocol(self._app)
        await lifespan.startup()
        if lifespan.interrupt:
            raise LiveGNNError(f"the application must start, got {lifespan.exc!r}") from lifespan.exc
        listening = self._listener.fileno()
        which = os.fstat(listening)
        granian = _Granian(self._answer, self._listener, self._tls)
        try:
            serving = asyncio.create_task(granian.serve())
            await self._wait(serving, until)
            granian.stop()
            if self._on_stop is not None:
                self._on_stop()
            await self._drain(serving)
        finally:
            await _closed(listening, which)
            await lifespan.shutdown()

    async def _answer(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        # With the loop, because asyncio would ask the system for this process to find it.
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._open.add(task)
        body: Body | None = None
        begun = in_parts = False

        def note(message: "Message") -> "Awaitable[None]":
            nonlocal begun, in_parts
            begun = True
            in_parts = in_parts or message.get("more_body", False) or len(message.get("body", b"")) > WHOLE
            return self._sending.send(message, send, task) if in_parts else send(message)

        def take() -> "Awaitable[Message]":
            nonlocal body
            if body is None:
                body = Body(receive, task)
            return receive() if body.ended else self._bodies.receive(body)

        try:
            await self._app(scope, take, note)
        except asyncio.CancelledError:
            late = body is not None and body.late
            if not (self._ends or late or task in self._unread):
                raise
            if not begun:  # else the connection is closed before the end of the answer, which its client sees
                await _refuse(BodyTooSlow() if late else ProcessStops(), scope, send)
        finally:
            self._open.discard(task)
            self._unread.discard(task)
            if body is not None:
                self._bodies.forget(body)

    async def _wait(self, serving: "asyncio.Task[None]", until: Callable[[], bool] | None) -> None:
        """Returns when a stop begins. Raises the error that ends the server before."""
        asked = asyncio.create_task(self._asked.wait())
        while not asked.done():
            await asyncio.wait([serving, asked], timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
                raise LiveGNNError("the server must run until it is stopped, got an end")
            self._bodies.end_late(asyncio.get_running_loop().time())
            if self._stopped or (until is not None and until()):
                self._asked.set()

    async def _drain(self, serving: "asyncio.Task[None]") -> None:
        """Waits for open requests, then cancels them; unread answers are cancelled before."""
        ends, buffers = time.monotonic() + self._grace, Buffers(self._port, time.monotonic)
        while not serving.done() and not self._hurried and time.monotonic() < ends:
            await asyncio.wait([serving], timeout=_LOOK_SECONDS)
            for task in self._sending.unread() - self._unread:
                self._unread.add(task)
                task.cancel()
            if buffers.stand_still() and not self._open:
                break
        self._ends = True
        for task in list(self._open):
            task.cancel()
        if not serving.done():
            # Not cancelled here: granian reports the end of its connections to it, perhaps a moment later.
            await asyncio.wait([serving], timeout=_LAST_SECONDS if self._open else _LOOK_SECONDS)


@contextmanager
def _short_turns() -> Iterator[None]:
    """In the main thread, threads of this process have shorter turns of the interpreter meanwhile.

    The event loop has the interpreter nearly always while clients send requests as fast as they can. A thread
    that writes the log, or applies a batch, needs it dozens of times, and waits for a whole turn each time.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


async def _closed(file: int, which: os.stat_result) -> None:
    """Waits until the socket that had this number is closed: granian does so a moment after its end.

    On a busy machine the moment may be long, so the socket then refuses connections while it is open.
    """
    ends = time.monotonic() + _LAST_SECONDS
    with suppress(OSError):  # it is closed
        while os.path.samestat(os.fstat(file), which) and time.monotonic() < ends:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(_CLOSED_SECONDS)
        with socket.socket(fileno=os.dup(file)) as listener:
            if os.path.samestat(os.fstat(listener.fileno()), which):
                listener.shutdown(socket.SHUT_RDWR)


async def _refuse(why: Exception, scope: "Scope", send: "Send") -> None:
    """Answers a request that was not finished when the server stopped waiting for it."""
    problem = problem_of(why)
    body, told = write(problem, scope["path"])
    told["content-length"] = str(len(body))
    headers = [(name.encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class _Granian(Server):
    """granian with a socket of ours: its own would share a port with another server without a word."""

    def __init__(self, app: "ASGIApp", listener: socket.socket, tls: Tls | None) -> None:
        super().__init__(
            app,
            interface=Interfaces.ASGINL,
            http=HTTPModes.auto if tls is not None and tls.http2 else HTTPModes.http1,
            websockets=False,
            backlog=BACKLOG,
            backpressure=_most_connections(),  # of connections; further ones wait
            http1_settings=HTTP1Settings(
                header_read_timeout=int(_HEAD_SECONDS * 1000), max_buffer_size=_LARGEST_HEAD
            ),
            http2_settings=HTTP2Settings(
                max_headers_size=_LARGEST_HEAD, max_concurrent_streams=_MOST_STREAMS
            ),
            ssl_cert=None if tls is None else tls.certificate,
            ssl_key=None if tls is None else tls.key,
            ssl_protocol_min=SSLProtocols.tls12,
            ssl_ca=None if tls is None else tls.clients,
            ssl_client_verify=tls is not None and tls.clients is not None,
            log_level=LogLevels.error,  # a warning says at each start that this way to run is experimental
            log_dictconfig=_NO_LOGGING,
        )
        self._listener = listener

    def stop(self) -> None:
        """Accepts nothing more; `serve` returns when all connections have ended."""
        self.interrupt_signal = True
        self.main_loop_interrupt.set()

    def _init_shared_socket(self) -> None:
        """Called by granian, which closes the socket."""
        holder = SocketHolder(self._listener.detach(), False, BACKLOG)  # type: ignore[call-arg]  # an old stub
        self._shd, self._ssp = holder, None  # type: ignore[assignment]  # of an attribute without a type


def _most_connections() -> int:
    """Raises the limit of open files of this process as far as it may: idle connections are files too."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(_OTHER_FILES, most - _OTHER_FILES)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    if sys.platform == "win32":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop
