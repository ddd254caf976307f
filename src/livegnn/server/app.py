"""The application, and running it until a signal comes."""

import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles

import livegnn
from livegnn.errors import InputError, LiveGNNError, TimeoutExpired, UnknownNodeError
from livegnn.runtime import Runtime
from livegnn.server.feed import Feed
from livegnn.server.routes import BodyTooLarge, UnknownMediaType, create_router, to_json

_STATUS: dict[type[LiveGNNError], int] = {
    BodyTooLarge: 413,
    UnknownMediaType: 415,
    UnknownNodeError: 404,
    InputError: 400,
    TimeoutExpired: 503,
    LiveGNNError: 500,
}


def create_app(runtime: Runtime, *, dashboard: Path | None = None) -> FastAPI:
    """The server as an ASGI application; the caller starts and stops the runtime.

    dashboard: a directory of static files to serve at `/`, below everything else.
    """
    feed = Feed(runtime)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        feed.close()

    app = FastAPI(
        title="LiveGNN",
        version=livegnn.__version__,
        description="Predictions of a graph neural network that stay exact while the graph changes.",
        lifespan=lifespan,
    )
    app.state.feed = feed
    app.add_exception_handler(LiveGNNError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.include_router(create_router(runtime, feed))
    if dashboard is not None:
        app.mount("/", StaticFiles(directory=dashboard, html=True), name="dashboard")
    return app


async def _answer_error(request: Request, error: Exception) -> Response:
    status = next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
    return to_json({"error": {"type": type(error).__name__, "message": str(error)}}, status)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}, got {problem.get('input')!r}"
        for problem in error.errors()
    ]
    return to_json({"error": {"type": "InputError", "message": "; ".join(problems)[:2000]}}, 400)


class _Server(uvicorn.Server):
    """Ends the change feeds when it is told to stop: it would wait for them for ever."""

    def __init__(self, config: uvicorn.Config, feed: Feed) -> None:
        super().__init__(config)
        self._feed = feed

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._feed.close()
        super().handle_exit(sig, frame)


def serve(app: FastAPI, host: str, port: int, *, ready: Callable[[str], None] = lambda address: None) -> None:
    """Serves `app` until SIGINT or SIGTERM; `ready` is told the address once it accepts connections.

    Port 0 is any free one. Raises OSError if the address cannot be had; ends with SystemExit after SIGTERM,
    so that the caller's `finally` runs.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit)
    with listen(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{listener.getsockname()[1]}")
        config = uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=5)
        _Server(config, app.state.feed).run([listener])


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections at `host`:`port`; port 0 is any free one. Raises OSError."""
    # Named by its protocol, or asyncio would not switch off Nagle's algorithm: 40 ms for every answer.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except BaseException:
        listener.close()
        raise
    return listener


def _exit(sig: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)
