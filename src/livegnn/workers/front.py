"""The front end of serving workers: sends each seed to the worker that has it.

It divides the ids of a request, sends each worker its part, and joins the answers; its `seq` is the least of
theirs.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import aiohttp
import orjson
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from prometheus_client.core import Metric

from livegnn.errors import InputError
from livegnn.http.guard import Access
from livegnn.http.metrics import gauge
from livegnn.http.tls import Tls
from livegnn.server.bodies import to_json
from livegnn.server.query import CheckedRoute
from livegnn.server.read_app import make_application
from livegnn.types import IntArray
from livegnn.workers.app import read_request
from livegnn.workers.front_inference import FrontModel
from livegnn.workers.inference import seeds_of
from livegnn.workers.plan import WorkerPlan
from livegnn.workers.replicas import Addresses, Body, KeyKeeper, Question, Replicas, Reply, check_addresses

_KEEP_SECONDS: Final = 4.0  # a connection that is not used; a worker ends it after five


def create_front(
    plan: WorkerPlan,
    workers: Addresses | Callable[[], Addresses],
    access: Access | None = None,
    tls: Tls | None = None,
) -> FastAPI:
    """The front end as an ASGI application.

    workers: for each serving worker of the plan the addresses of its replicas, such as
    ``"http://10.0.0.7:8000"``; requests are sent to them in turn, and to the next if one does not answer. Or
    a function that returns their present addresses, which is called in a thread each second: then a request
    to a worker without an answering replica waits for one, for its `timeout`. access: the clients to admit;
    None admits every request. Workers receive a client's key, and decide for themselves. tls: the certificate
    that is shown to workers which ask for one; their own is checked with the authorities of the system, or
    those of SSL_CERT_FILE. Raises InputError.
    """
    if not callable(workers):
        check_addresses(plan, workers)
        if not all(workers):
            raise InputError(f"each serving worker must have an address, got {workers!r}")
    replicas = Replicas(plan, workers)

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=_connections(tls)) as replicas.session:
            following = asyncio.create_task(replicas.follow())
            try:
                yield
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    router = APIRouter(route_class=CheckedRoute)

    @router.post("/v1/predictions")
    async def predict(request: Request) -> Response:
        return await _forward(replicas, request, "/v1/predictions")

    @router.post("/v1/samples")
    async def sample(request: Request) -> Response:
        return await _forward(replicas, request, "/v1/samples")

    @router.get("/readyz")
    @router.get("/v1/health")
    async def health() -> Response:
        readiness = replicas.find_readiness()
        content: dict[str, object] = {"workers": replicas.answering()}
        if not readiness.ready:
            content["reasons"] = readiness.reasons
        return to_json(content, 200 if readiness.ready else 503)

    def collect() -> Iterator[Metric]:
        yield gauge("up", "1 while a replica of each worker is ready", replicas.find_readiness().ready)
        counts = {str(worker): len(addresses) for worker, addresses in enumerate(replicas.answering())}
        yield gauge("answering_replicas", "Replicas of a serving worker that are ready", counts, "worker")

    model = FrontModel(replicas, replicas.find_readiness)
    app = make_application(
        "LiveGNN front end", router, model, collect, lifespan=run, around=KeyKeeper, access=access
    )
    app.state.find_readiness = replicas.find_readiness
    return app


def _connections(tls: Tls | None) -> aiohttp.TCPConnector:
    """Connections to workers."""
    trusted = ssl.create_default_context()
    if tls is not None:
        trusted.load_cert_chain(tls.certificate, tls.key)
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_SECONDS, ssl=trusted)


async def _forward(replicas: Replicas, request: Request, path: str) -> Response:
    """The answer to a request whose answers have columns with a row for each id."""
    wanted = await read_request(request)
    ids = seeds_of(wanted.ids)
    given = wanted.model_dump(exclude_defaults=True)
    # Without either of the two a worker has nothing to wait for, and answers small requests at once.
    waits = bool(given.keys() & {"min_seq", "timeout"})

    def ask_for(some: IntArray) -> Question:
        def write(seconds: float | None) -> Body:
            told = {} if seconds is None else {"timeout": seconds}
            body = orjson.dumps({**given, "ids": some.tolist(), **told})
            return body, {"content-type": "application/json"}

        return Question(path, len(some), waits, write)

    places, replies = await replicas.divide(ids, ask_for, wanted.timeout)
    for reply in replies:
        if reply.status != HTTPStatus.OK or len(replies) == 1:
            return reply.pass_on()
    try:
        return to_json(_joined(ids, [place.tolist() for place in places], replies))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise replicas.misunderstood(error) from error


def _joined(ids: IntArray, places: Sequence[Sequence[int]], replies: Sequence[Reply]) -> dict[str, object]:
    """One answer of those of several workers. places: for each, the positions of its ids among `ids`."""
    parts = [orjson.loads(reply.content) for reply in replies]
    whole: dict[str, object] = {"seq": min(part["seq"] for part in parts), "ids": ids}
    for column in parts[0].keys() - whole.keys():
        rows: list[object] = [None] * len(ids)
        for own, part in zip(places, parts, strict=True):
            for place, row in zip(own, part[column], strict=True):
                rows[place] = row
        whole[column] = rows
    return whole
