"""The front end of serving workers: sends each seed to the worker that has it.

It divides the ids of a request, asks each worker for its part, and puts the answers together; its `seq` is
the least of theirs.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle

import httpx
import numpy as np
import orjson
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response

from livegnn.errors import InputError, TimeoutExpired
from livegnn.server.bodies import to_json
from livegnn.server.query import CheckedRoute
from livegnn.workers.app import ids_of, make_application, read_request
from livegnn.workers.plan import WorkerPlan

_SECONDS = 5.0  # beyond what a request may wait


def create_front(plan: WorkerPlan, workers: Sequence[Sequence[str]]) -> FastAPI:
    """The front end as an ASGI application.

    workers: for each serving worker of the plan the addresses of its replicas, such as
    ``"http://10.0.0.7:8000"``; they are asked in turn, and where one does not answer the next one. Raises
    InputError.
    """
    if len(workers) != plan.serving_workers or not all(workers):
        raise InputError(
            f"workers must have addresses for each of {plan.serving_workers} serving workers, got {workers!r}"
        )
    for address in (one for several in workers for one in several):
        _check_address(address)
    front = _Front(plan, workers)

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        async with front.client:
            yield

    router = APIRouter(route_class=CheckedRoute)

    @router.post("/v1/predictions")
    async def predict(request: Request) -> Response:
        return await front.forward(request, "/v1/predictions")

    @router.post("/v1/samples")
    async def sample(request: Request) -> Response:
        return await front.forward(request, "/v1/samples")

    return make_application("LiveGNN front end", router, run)


def _check_address(address: str) -> None:
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise InputError(f"an address must be such as 'http://10.0.0.7:8000', got {address!r}")


class _Front:
    """Belongs to the event loop of the server."""

    def __init__(self, plan: WorkerPlan, workers: Sequence[Sequence[str]]) -> None:
        self._plan, self._workers = plan, workers
        self._turns = [cycle(range(len(several))) for several in workers]
        self.client = httpx.AsyncClient(limits=httpx.Limits(max_connections=None))

    async def forward(self, request: Request, path: str) -> Response:
        """The answer to a request whose answers have columns with a row for each id."""
        wanted = await read_request(request)
        ids = ids_of(wanted)
        owners = self._plan.serving_worker_of(ids)
        places = [np.flatnonzero(owners == worker) for worker in range(self._plan.serving_workers)]
        asked = [worker for worker, place in enumerate(places) if len(place)] or [0]
        given = wanted.model_dump(exclude_defaults=True)
        answers = await asyncio.gather(
            *(
                self._ask(
                    worker,
                    path,
                    orjson.dumps({**given, "ids": ids[places[worker]].tolist()}),
                    wanted.timeout + _SECONDS,
                )
                for worker in asked
            )
        )
        for answer in answers:
            if answer.status_code != httpx.codes.OK or len(answers) == 1:
                return Response(answer.content, answer.status_code, media_type="application/json")
        parts = [orjson.loads(answer.content) for answer in answers]
        whole: dict[str, object] = {"seq": min(part["seq"] for part in parts), "ids": ids}
        for column in parts[0].keys() - whole.keys():
            rows: list[object] = [None] * len(ids)
            for worker, part in zip(asked, parts, strict=True):
                for place, row in zip(places[worker].tolist(), part[column], strict=True):
                    rows[place] = row
            whole[column] = rows
        return to_json(whole)

    async def _ask(self, worker: int, path: str, body: bytes, timeout: float) -> httpx.Response:
        """The answer of a replica. Raises TimeoutExpired if none answers."""
        several = self._workers[worker]
        first, failure = next(self._turns[worker]), ""
        for place in range(len(several)):
            try:
                return await self.client.post(
                    several[(first + place) % len(several)] + path,
                    content=body,
                    headers={"content-type": "application/json"},
                    timeout=timeout,
                )
            except httpx.TransportError as error:
                failure = repr(error)
        raise TimeoutExpired(f"expected serving worker {worker} at {', '.join(several)}, got {failure}")
