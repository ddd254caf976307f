"""The application, and running it until a signal is received."""

import asyncio
import gc
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import livegnn
from livegnn.http.guard import Access, Guard
from livegnn.http.listening import address_of, exit_at_sigterm
from livegnn.http.listening import listen as listen
from livegnn.http.refusals import ProcessStops
from livegnn.http.request_counts import CountedApplication, RequestCounts
from livegnn.http.serving import GRACE_SECONDS, HttpServer
from livegnn.http.small_reads import MOST_SMALL, ImmediateReads, SmallReads
from livegnn.http.tls import Tls
from livegnn.runtime import Runtime
from livegnn.server import api_page
from livegnn.server.append_requests import AppendRequests
from livegnn.server.bodies import Limits
from livegnn.server.edge_score_routes import EDGE_SCORES, answer_small_scores
from livegnn.server.failures import add_failures, answer_error
from livegnn.server.feed import Feed
from livegnn.server.inference import RuntimeModels
from livegnn.server.inference_routes import create_inference_routes
from livegnn.server.openapi import describe_failures
from livegnn.server.requests import answer_small
from livegnn.server.routes import create_routes
from livegnn.server.small_appends import EVENTS, ImmediateAppends, SmallAppends
from livegnn.server.small_infers import SmallInfers

_PREDICTIONS = "/v1/predictions"
_COLLECTED_TOGETHER = 5_000  # new objects of Python


def create_app(
    runtime: Runtime,
    *,
    dashboard: Path | None = None,
    limits: Limits = Limits(),  # noqa: B008
    access: Access | None = None,
) -> FastAPI:
    """The server as an ASGI application; the caller starts and stops the runtime.

    dashboard: a directory of static files to serve at `/`, below everything else. limits: of requests and
    answers. access: the clients to admit; None admits every request.
    """
    feed, counts = Feed(runtime), RequestCounts()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        feed.close()

    app = ServerApplication(
        title="LiveGNN",
        version=livegnn.__version__,
        description="Predictions of a graph neural network that stay exact while the graph changes.",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.feed = feed
    appends = AppendRequests(runtime, feed, limits)
    router = create_routes(runtime, feed, appends, limits, counts, None if access is None else access.keys)
    app.runtime = runtime

    def answer(request: bytes, parameters: bool) -> bytes | None:
        return answer_small(runtime, request, parameters, limits)

    def answer_scores(request: bytes, parameters: bool) -> bytes | None:
        return answer_small_scores(runtime, request, parameters, limits)

    answers = {_PREDICTIONS: answer} if limits.ids >= MOST_SMALL else {}
    models = RuntimeModels(runtime, feed, limits)
    small_infers = SmallInfers(app.answer, runtime, models.find_digest, limits)
    small_appends = SmallAppends(small_infers, runtime, appends, limits)
    small_reads = SmallReads(
        small_appends, {**answers, EDGE_SCORES: answer_scores}, limits.objects, get_paths=answers
    )
    guard = None if access is None else Guard(small_reads, access)
    routers = (router, create_inference_routes(models, limits, models))
    add_failures(app, *routers)
    for one in routers:
        app.include_router(one)

    paths = [route.path for route in app.state.routes if "{" not in route.path]
    others = CountedApplication(guard or small_reads, counts, paths)
    app.counted = ImmediateReads(others, answers, guard, counts)
    app.appends = ImmediateAppends(others, small_appends, guard, counts)

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    def show_routes() -> Response:
        return HTMLResponse(api_page.render(app.openapi()))

    if dashboard is not None:
        app.mount("/", StaticFiles(directory=dashboard, html=True), name="dashboard")
    return app


class ServerApplication(FastAPI):
    """FastAPI behind the count of requests, the guard, and the small requests that it never receives.

    counted: answers all requests, and is the way to `answer`; appends: those to the path of the events.
    """

    runtime: Runtime
    counted: ASGIApp
    appends: ASGIApp
    stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.appends if scope.get("path") == EVENTS else self.counted)(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Called by FastAPI for `/openapi.json`; the same document each time."""
        return self.openapi_schema or describe_failures(super().openapi())

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The answer to a request that was admitted, and is not answered as a small read."""
        if self.runtime.failure is not None:
            send = _mark_stale(send)
        begun = False

        def note(message: Message) -> Awaitable[None]:
            nonlocal begun
            begun = True
            return send(message)

        try:
            await super().__call__(scope, receive, note)
        except asyncio.CancelledError:
            if not self.stopping or begun:
                raise
            await (await answer_error(Request(scope), ProcessStops()))(scope, receive, send)


def _mark_stale(send: Send) -> Send:
    """Says in the head of an answer that the loop has ended, so that graph and predictions do not change."""

    async def mark(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (b"livegnn-stale", b"true")]
        await send(message)

    return mark


def serve(
    app: FastAPI,
    listener: socket.socket,
    *,
    until_failure: bool = True,
    ready: Callable[[str], None] | None = None,
    tls: Tls | None = None,
) -> None:
    """Serves `app`, which `create_app` made, until SIGINT or SIGTERM.

    listener: a socket of `listen`. until_failure: whether to end, too, when the runtime's loop has failed.
    ready: called with the address before the first request. tls: None for plain HTTP. Ends with SystemExit
    after SIGTERM, so that the caller's `finally` runs.
    """
    if threading.current_thread() is threading.main_thread():
        exit_at_sigterm()
    # Present objects stay. Looking through them for cycles, which a large body makes Python do, would stop
    # all threads for tens of milliseconds each time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_TOGETHER)  # else each look goes through the requests that are being answered
    if ready is not None:
        ready(address_of(listener, "http" if tls is None else "https"))
    server = server_of(app, listener, tls=tls)
    if until_failure and isinstance(app, ServerApplication):
        runtime = app.runtime
        server.run(until=lambda: runtime.failure is not None)
    else:
        server.run()


def server_of(
    app: FastAPI, listener: socket.socket, grace: float = GRACE_SECONDS, tls: Tls | None = None
) -> HttpServer:
    """The server of `app`, which `create_app` made. It ends the change feeds when it begins to stop: it would
    wait for them for ever."""

    def end_feeds() -> None:
        if isinstance(app, ServerApplication):
            app.stopping = True
        app.state.feed.close()

    return HttpServer(app, listener, grace=grace, on_stop=end_feeds, tls=tls)
