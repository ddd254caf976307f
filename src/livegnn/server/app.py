"""The application, and running it until a signal is received."""

import asyncio
import gc
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import livegnn
from livegnn.errors import InputError, LiveGNNError
from livegnn.http import keys
from livegnn.http.guard import Access, Guard, unknown_origin
from livegnn.http.listening import address_of, exit_at_sigterm
from livegnn.http.listening import listen as listen
from livegnn.http.problems import PROBLEM_JSON, is_page, problem_of
from livegnn.http.refusals import ProcessStops
from livegnn.http.request_counts import CountedApplication, RequestCounts
from livegnn.http.serving import GRACE_SECONDS, HttpServer
from livegnn.http.small_reads import MOST_SMALL, SmallReads
from livegnn.http.tls import Tls
from livegnn.runtime import Runtime
from livegnn.server import api_page
from livegnn.server.bodies import Limits
from livegnn.server.event_routes import AppendHandler
from livegnn.server.failures import add_failures, answer_error, answer_nobody
from livegnn.server.feed import Feed
from livegnn.server.inference import RuntimeModels
from livegnn.server.inference_routes import create_inference_routes
from livegnn.server.openapi import describe_failures
from livegnn.server.requests import answer_small
from livegnn.server.routes import create_routes
from livegnn.server.small_infers import SmallInfers
from livegnn.wording import quoted

_EVENTS, _PREDICTIONS = "/v1/events", "/v1/predictions"
_READING_POSTS = (_PREDICTIONS, "/v1/what-if", "/v1/samples")
_HEALTH = ("/healthz", "/livez", "/readyz", "/v2/health/live", "/v2/health/ready")


def scope_of(method: str, path: str) -> keys.Scope | None:
    """The scope that a request needs, None if it needs none: see docs/security.md."""
    gets = method in ("GET", "HEAD")
    if path in _HEALTH or (gets and is_page(path)):
        return None
    reads = path in _READING_POSTS or (path.startswith("/v2/models/") and path.endswith("/infer"))
    if gets or (method == "POST" and reads):
        return "read"
    return "write" if (method, path) == ("POST", _EVENTS) else "admin"


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
    routes = create_routes(runtime, feed, limits, counts, None if access is None else access.keys)
    app.append_events, app.runtime = routes.append_events, runtime

    def answer(request: bytes, parameters: bool) -> bytes | None:
        return answer_small(runtime, request, parameters, limits)

    answers = {_PREDICTIONS: answer} if limits.ids >= MOST_SMALL else {}
    models = RuntimeModels(runtime, feed, limits)
    small_infers = SmallInfers(app.answer, runtime, models.find_digest, limits)
    admitted: ASGIApp = SmallReads(small_infers, answers, limits.objects, get_paths=answers)
    if access is not None:
        admitted = Guard(admitted, access, scope_of)
        if access.origins:  # outside, because a preflight has no key
            admitted = _Preflights(
                admitted,
                list(access.origins),
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=["*"],
            )
    routers = (routes.router, create_inference_routes(models, limits))
    add_failures(app, *routers)
    for router in routers:
        app.include_router(router)

    paths = [route.path for route in app.state.routes if "{" not in route.path]
    app.counted = CountedApplication(admitted, counts, paths)

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    def show_routes() -> Response:
        return HTMLResponse(api_page.render(app.openapi()))

    if dashboard is not None:
        app.mount("/", StaticFiles(directory=dashboard, html=True), name="dashboard")
    return app


class ServerApplication(FastAPI):
    """FastAPI; events without parameters go past it, because it would take three quarters of their time.

    counted: answers all requests, and is the way to `answer`.
    """

    append_events: AppendHandler
    runtime: Runtime
    counted: ASGIApp
    stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.counted(scope, receive, send)

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

        path = scope.get("path")
        appends = path == _EVENTS and scope.get("method") == "POST" and not scope.get("query_string")
        try:
            await (self._append if appends else super().__call__)(scope, receive, note)
        except asyncio.CancelledError:
            if not self.stopping or begun:
                raise
            await (await answer_error(Request(scope), ProcessStops()))(scope, receive, send)

    async def _append(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            answer = await self.append_events(request)
        except LiveGNNError as error:
            answer = await answer_error(request, error)
        except ClientDisconnect as error:
            answer = await answer_nobody(request, error)
        except Exception as error:
            await (await answer_error(request, error))(scope, receive, send)
            raise
        await answer(scope, receive, send)


class _Preflights(CORSMiddleware):
    """Answers the preflight requests of listed pages; others with a problem."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Called by Starlette."""
        answer = super().preflight_response(request_headers)
        if answer.status_code == HTTPStatus.OK:
            return answer
        origin, told = request_headers["origin"], bytes(answer.body).decode()
        refusal = InputError(f"pages of {quoted(origin)} may not send this request: {told}")
        problem = problem_of(refusal if self.is_allowed_origin(origin) else unknown_origin(origin))
        return Response(problem.encode(), problem.status, {"vary": "Origin"}, PROBLEM_JSON)


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
