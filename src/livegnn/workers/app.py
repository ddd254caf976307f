"""A serving worker over HTTP: the requests for predictions and for samples that a server with a graph answers
too, for the worker's own seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response

import livegnn
from livegnn.errors import InputError, LiveGNNError
from livegnn.events.chunk import to_ids
from livegnn.server.bodies import media_type_of, parse, read_body, to_json
from livegnn.server.failures import answer_error
from livegnn.server.requests import PredictionRequest
from livegnn.server.sample_routes import describe
from livegnn.types import IntArray
from livegnn.workers.serving import ServingWorker

if TYPE_CHECKING:
    from jaxtyping import Int64

Lifespan: TypeAlias = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_FEW = 8  # predictions that are computed in the loop of the server: a tenth of a millisecond each at most


def create_serving_app(worker: ServingWorker) -> FastAPI:
    """The serving worker as an ASGI application; the caller starts and stops the worker."""
    app = make_application("LiveGNN serving worker")

    @app.post("/v1/predictions")
    async def predict(request: Request) -> Response:
        wanted = await read_request(request)
        ids = ids_of(wanted)
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
        wanted = await read_request(request)
        ids = ids_of(wanted)
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


def make_application(title: str, lifespan: "Lifespan | None" = None) -> FastAPI:
    """An application that answers errors as a server does."""
    app = FastAPI(
        title=title,
        version=livegnn.__version__,
        lifespan=lifespan,
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


async def read_request(request: Request) -> PredictionRequest:
    """The body of a request. Raises InputError."""
    wanted = parse(PredictionRequest, await read_body(request), media_type_of(request))
    if wanted.model is not None:
        raise InputError(f"a serving worker has one model, got a request for {wanted.model!r}")
    return wanted


def ids_of(wanted: PredictionRequest) -> "Int64[IntArray, 'ids']":
    """The seeds that are asked for. Raises InputError for text."""
    ids = to_ids(list(wanted.ids), "ids") if wanted.ids else np.empty(0, np.int64)  # type: ignore[arg-type]
    if ids.dtype.kind == "U":
        raise InputError(f"ids must be integers, got {wanted.ids[0]!r}")
    return cast("IntArray", ids)
