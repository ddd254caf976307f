"""The application of a process that answers reads alone: a serving worker, or a front end."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeAlias

from fastapi import APIRouter, FastAPI
from fastapi.responses import Response
from prometheus_client.core import Metric

import livegnn
from livegnn.http.guard import Access, Guard
from livegnn.http.metrics import CONTENT_TYPE, Metrics
from livegnn.http.request_counts import CountedApplication, RequestCounts
from livegnn.http.small_reads import Answer, SmallReads
from livegnn.server.bodies import Limits, to_json
from livegnn.server.failures import add_failures
from livegnn.server.inference_routes import ServedModels, create_inference_routes
from livegnn.server.query import answer_head

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

Lifespan: TypeAlias = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def make_application(
    title: str,
    router: APIRouter,
    models: ServedModels | None,
    collect: Callable[[], Iterator[Metric]],
    *,
    lifespan: "Lifespan | None" = None,
    answers: Mapping[str, Answer] | None = None,
    around: "Callable[[ASGIApp], ASGIApp] | None" = None,
    access: Access | None = None,
) -> "ReadApplication":
    """An application of the routes of `router`, which answers errors as a server does, and perhaps of those
    of the Open Inference Protocol.

    models: what these answer for; None without these routes. collect: returns its metrics. answers: of small
    requests. around: makes an application around the routes. access: the clients to admit; None admits every
    request.
    """
    app = ReadApplication(
        title=title,
        version=livegnn.__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )

    @router.get("/livez")
    async def report_live() -> Response:
        return to_json({"status": "ok"})

    counts = RequestCounts()
    metrics = Metrics(collect, counts)

    @router.get("/metrics")
    def report_metrics() -> Response:
        return Response(metrics.render(), headers={"content-type": CONTENT_TYPE})

    answer_head(router)
    routers = [router]
    if models is not None:
        routers.append(create_inference_routes(models, Limits()))
    add_failures(app, *routers)
    for each in routers:
        app.include_router(each)
    others: ASGIApp = app.answer_others if around is None else around(app.answer_others)
    app.small_reads = SmallReads(others, answers or {})
    admitted: ASGIApp = app.small_reads if access is None else Guard(app.small_reads, access)
    app.counted = CountedApplication(admitted, counts, [route.path for route in app.state.routes])
    return app


class ReadApplication(FastAPI):
    """FastAPI behind the count of requests, the guard, and small reads, which it never receives."""

    counted: "ASGIApp"
    small_reads: SmallReads

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        await self.counted(scope, receive, send)

    async def answer_others(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """The answer of the framework."""
        await super().__call__(scope, receive, send)
