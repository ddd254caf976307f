"""A serving worker over HTTP, and the front end that sends each seed to the worker that has it.

A worker answers the requests for predictions and for samples that a server with a graph answers too, for
its own seeds. The front end divides the ids of a request, asks each worker for its part, and puts the answers
together; its `seq` is the least of theirs.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from typing import TYPE_CHECKING, cast

import numpy as np
import orjson
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response

import livegnn
from livegnn.errors import InputError, LiveGNNError, TimeoutExpired
from livegnn.events.chunk import to_ids
from livegnn.server.bodies import media_type_of, parse, read_body, to_json
from livegnn.server.failures import answer_error
from livegnn.server.requests import PredictionRequest
from livegnn.server.sample_routes import describe
from livegnn.types import IntArray
from livegnn.workers.plan import WorkerPlan
from livegnn.workers.serving import ServingWorker

if TYPE_CHECKING:
    import httpx

_FEW = 8  # predictions that are computed in the loop of the server: a tenth of a millisecond each at most


def create_serving_app(worker: ServingWorker) -> FastAPI:
    """The serving worker as an ASGI application; the caller starts and stops the worker."""
    app = _application("LiveGNN serving worker")

    @app.post("/v1/predictions")
    async def predict(request: Request) -> Response:
        wanted = await _read(request)
        ids = _ids_of(wanted)
        if wanted.min_seq <= worker.seq and len(ids) <= _FEW and worker.failure is None:
            found = worker.predict(ids, output=wanted.output)
        else:
            found = await run_in_threadpool(
                lambda: worker.predict(
                    ids, min_seq=wanted.min_seq, timeout=wanted.timeout, output=wanted.output
                )
            )
        return to_json({"seq": found.seq, "ids": ids, "predictions": found.values})

    @app.post("/v1/samples")
    async def sample(request: Request) -> Response:
        wanted = await _read(request)
        ids = _ids_of(wanted)
        seq = await run_in_threadpool(worker.wait, wanted.min_seq, wanted.timeout)
        samples = await run_in_threadpool(
            lambda: [describe(worker.sample(ids[at : at + 1])) for at in range(len(ids))]
        )
        return to_json({"seq": seq, "ids": ids, "samples": samples})

    @app.get("/v1/health")
    async def health() -> Response:
        failure = worker.failure
        state: dict[str, object] = {"seq": worker.seq, "memory_bytes": worker.memory()}
        if failure is not None:
            state["failure"] = str(failure)
        return to_json(state, 200 if failure is None else 503)

    return app


def create_front(plan: WorkerPlan, workers: Sequence[Sequence[str]]) -> FastAPI:
    """A front end for serving workers, as an ASGI application. Needs `httpx`: `livegnn[cluster]`.

    workers: for each serving worker of the plan the addresses of its replicas, such as
    ``"http://10.0.0.7:8000"``; they are asked in turn, and where one does not answer the next one. Raises
    InputError.
    """
    if len(workers) != plan.serving_workers or not all(workers):
        raise InputError(
            f"workers must have addresses for each of {plan.serving_workers} serving workers, got {workers!r}"
        )
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise InputError("a front end needs httpx: pip install 'livegnn[cluster]'") from error
    turns = [cycle(range(len(several))) for several in workers]
    client: list[httpx.AsyncClient] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as opened:
            client.append(opened)
            yield
            client.clear()

    app = _application("LiveGNN front end", lifespan)

    async def ask(worker: int, path: str, body: bytes, timeout: float) -> "httpx.Response":
        several = workers[worker]
        first = next(turns[worker])
        for place in range(len(several)):
            address = several[(first + place) % len(several)]
            try:
                return await client[0].post(
                    address + path,
                    content=body,
                    headers={"content-type": "application/json"},
                    timeout=timeout + 5,
                )
            except httpx.TransportError as error:
                failure = error
        raise TimeoutExpired(f"expected serving worker {worker} at {several}, got {failure!r}")

    async def forward(request: Request, path: str, column: str) -> Response:
        wanted = await _read(request)
        ids = _ids_of(wanted)
        owners = plan.serving_worker_of(ids)
        places = [np.flatnonzero(owners == worker) for worker in range(plan.serving_workers)]
        asked = [worker for worker, place in enumerate(places) if len(place)] or [0]
        bodies = [
            orjson.dumps({**wanted.model_dump(exclude_none=True), "ids": ids[places[worker]].tolist()})
            for worker in asked
        ]
        answers = await asyncio.gather(
            *(ask(worker, path, body, wanted.timeout) for worker, body in zip(asked, bodies, strict=True))
        )
        for answer in answers:
            if answer.status_code != 200:
                return Response(answer.content, answer.status_code, media_type="application/json")
        if len(answers) == 1:
            return Response(answers[0].content, media_type="application/json")
        parts = [orjson.loads(answer.content) for answer in answers]
        rows: list[object] = [None] * len(ids)
        for worker, part in zip(asked, parts, strict=True):
            for place, row in zip(places[worker].tolist(), part[column], strict=True):
                rows[place] = row
        return to_json({"seq": min(part["seq"] for part in parts), "ids": ids, column: rows})

    @app.post("/v1/predictions")
    async def predict(request: Request) -> Response:
        return await forward(request, "/v1/predictions", "predictions")

    @app.post("/v1/samples")
    async def sample(request: Request) -> Response:
        return await forward(request, "/v1/samples", "samples")

    return app


def _application(title: str, lifespan: object = None) -> FastAPI:
    app = FastAPI(
        title=title,
        version=livegnn.__version__,
        lifespan=lifespan,  # type: ignore[arg-type]
        docs_url=None,
        redoc_url=None,
    )
    app.add_exception_handler(LiveGNNError, answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    return app


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems: Sequence[Mapping[str, object]] = error.errors()
    said = "; ".join(f"{problem['loc']}: {problem['msg']}" for problem in problems)
    return await answer_error(request, InputError(said))


async def _read(request: Request) -> PredictionRequest:
    wanted = parse(PredictionRequest, await read_body(request), media_type_of(request))
    if wanted.model is not None:
        raise InputError(f"a serving worker has one model, got a request for {wanted.model!r}")
    return wanted


def _ids_of(wanted: PredictionRequest) -> IntArray:
    ids = to_ids(list(wanted.ids), "ids") if wanted.ids else np.empty(0, np.int64)  # type: ignore[arg-type]
    if ids.dtype.kind == "U":
        raise InputError(f"ids must be integers, got {wanted.ids[0]!r}")
    return cast("IntArray", ids)
