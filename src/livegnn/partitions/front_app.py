"""A front of a graph in parts over HTTP: the requests for predictions that its server answers too, from the
parts themselves.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import Response
from prometheus_client.core import Metric

from livegnn.errors import InputError
from livegnn.http.guard import Access
from livegnn.http.metrics import gauge
from livegnn.partitions.front import PartsFront
from livegnn.server.bodies import Limits, media_type_of, off_loop, read_body, to_json
from livegnn.server.query import CheckedRoute, MinSeq, Timeout, parse_ids, split_ids
from livegnn.server.read_app import ReadApplication, make_application
from livegnn.server.requests import check_number, check_width, describe_predictions, read_wanted

if TYPE_CHECKING:
    from jaxtyping import Int64

    from livegnn.types import IntArray

_FEWER = "ask for fewer ids at once, or raise largest_json_bytes of the server"
_MODEL = "engine"  # its name at the server


def create_front_app(
    front: PartsFront,
    limits: Limits = Limits(),  # noqa: B008
    access: Access | None = None,
) -> ReadApplication:
    """The front as an ASGI application. limits: of requests and answers. access: the clients to admit; None
    admits every request."""

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        following = asyncio.create_task(front.follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    def collect() -> Iterator[Metric]:
        yield gauge("up", "1 while all parts answer", front.find_readiness().ready)
        yield gauge("seq", "Last event that answers reflect", front.seq)
        answering = {str(part): answers for part, answers in front.answering().items()}
        yield gauge("answering_parts", "1 for a part that answers", answering, "part")

    app = make_application(
        "LiveGNN front of parts", _routes(front, limits), None, collect, lifespan=run, access=access
    )
    app.state.find_readiness = front.find_readiness
    return app


def _routes(front: PartsFront, limits: Limits) -> APIRouter:
    router = APIRouter(route_class=CheckedRoute)

    @router.get("/v1/predictions")
    async def read_predictions(
        ids: Annotated[list[str], Query()],
        min_seq: MinSeq = 0,
        timeout: Timeout = 10.0,
        output: str | None = None,
        model: str | None = None,
    ) -> Response:
        wanted = cast("Int64[IntArray, 'ids']", parse_ids(False, split_ids(ids)))
        _refuse_model(model)
        return await predict(wanted, min_seq, timeout, output)

    @router.post("/v1/predictions")
    async def request_predictions(request: Request) -> Response:
        body, media_type = await read_body(request, limits.objects, _FEWER), media_type_of(request)
        ids, wanted = await off_loop(len(body), lambda: read_wanted(False, body, media_type, limits))
        _refuse_model(wanted.model)
        return await predict(
            cast("Int64[IntArray, 'ids']", ids), wanted.min_seq, wanted.timeout, wanted.output
        )

    async def predict(
        ids: "Int64[IntArray, 'ids']", min_seq: int, timeout: float, output: str | None
    ) -> Response:
        check_number(len(ids), limits.ids)
        outputs = front.outputs
        name = next(iter(outputs)) if output is None else output
        if name in outputs:  # else the parts refuse it
            check_width(len(ids), outputs[name].width, limits)
        found = await front.predict(ids, min_seq=min_seq, timeout=timeout, output=output)
        return to_json(describe_predictions(found, ids))

    @router.get("/readyz")
    async def report_health() -> Response:
        readiness = front.find_readiness()
        content: dict[str, object] = {
            "status": "ok" if readiness.ready else "not ready",
            "seq": front.seq,
            "parts": list(front.answering().values()),
        }
        if not readiness.ready:
            content["reasons"] = readiness.reasons
        return to_json(content, 200 if readiness.ready else 503)

    return router


def _refuse_model(name: str | None) -> None:
    """Raises InputError for another model than that of the parts."""
    if name not in (None, _MODEL):
        raise InputError(f"model must be one of {_MODEL}, got {name!r}")
