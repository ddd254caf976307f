"""A serving worker over HTTP: the requests for predictions and for samples that a server with a graph answers
too, for the worker's own seeds.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from prometheus_client.core import Metric

from livegnn.http.guard import Access
from livegnn.http.metrics import gauge
from livegnn.http.small_reads import Answer, Wanted, answer_parsed
from livegnn.inference.predictions import Prediction
from livegnn.server.bodies import Limits, media_type_of, off_loop, parse, read_body, to_json
from livegnn.server.query import CheckedRoute
from livegnn.server.read_app import ReadApplication, make_application
from livegnn.server.requests import PredictionRequest
from livegnn.server.sample_routes import describe
from livegnn.types import IntArray
from livegnn.workers.inference import WorkerModel, seeds_of
from livegnn.workers.plan import integer_ids
from livegnn.workers.plan_model import refuse_model
from livegnn.workers.serving import ServingWorker
from livegnn.workers.waiting import Waiters

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def create_serving_app(worker: ServingWorker, access: Access | None = None) -> "ReadApplication":
    """The serving worker as an ASGI application; the caller starts and stops the worker. access: the clients
    to admit; None admits every request."""

    def predict(wanted: Wanted) -> dict[str, object] | None:
        shown = worker.shows(wanted.min_seq)
        return _predictions(wanted.ids, worker.predict(wanted.ids)) if shown else None

    def sample(wanted: Wanted) -> dict[str, object] | None:
        shown = worker.shows(wanted.min_seq)
        return _samples(worker, integer_ids(wanted.ids), 0, 0.0, None) if shown else None

    answers = {"/v1/predictions": answer_parsed(predict), "/v1/samples": answer_parsed(sample)}
    return create_routes(worker, answers, access)


def create_routes(
    worker: ServingWorker, answers: Mapping[str, Answer] | None = None, access: Access | None = None
) -> "ReadApplication":
    """The same; answers: of small requests, as `SmallReads` has them."""
    router, waiters = APIRouter(route_class=CheckedRoute), Waiters(worker)

    @router.post("/v1/predictions")
    async def predict(request: Request) -> Response:
        wanted = await read_request(request)
        ids = seeds_of(wanted.ids)
        left = await waiters.wait(wanted.min_seq, wanted.timeout)
        found = await run_in_threadpool(
            lambda: worker.predict(ids, min_seq=wanted.min_seq, timeout=left, output=wanted.output)
        )
        return to_json(_predictions(ids, found))

    @router.post("/v1/samples")
    async def sample(request: Request) -> Response:
        wanted = await read_request(request)
        ids = seeds_of(wanted.ids)
        left = await waiters.wait(wanted.min_seq, wanted.timeout)
        return to_json(await run_in_threadpool(_samples, worker, ids, wanted.min_seq, left, wanted.output))

    @router.get("/readyz")
    @router.get("/v1/health")
    async def health() -> Response:
        readiness = worker.readiness()
        state: dict[str, object] = {
            "worker": worker.worker,
            "seq": worker.seq,
            "memory_bytes": worker.memory(),
        }
        if not readiness.ready:
            state["reasons"] = readiness.reasons
        return to_json(state, 200 if readiness.ready else 503)

    def collect() -> Iterator[Metric]:
        yield gauge("up", "1 while the worker answers and follows the graph", worker.readiness().ready)
        yield gauge("seq", "Last event that answers reflect", worker.seq)
        silent = {str(number): seconds for number, seconds in worker.silent_seconds().items()}
        described = "How long a sampling worker has taken none of the events that wait for it"
        yield gauge("sampling_silent_seconds", described, silent, "worker")
        yield gauge("memory_bytes", "Memory of a part", {"samples": worker.memory()}, "part")

    model = WorkerModel(worker, waiters)
    app = make_application("LiveGNN serving worker", router, model, collect, answers=answers, access=access)
    app.state.waiters = waiters
    return app


def _predictions(ids: "ArrayLike", found: Prediction) -> dict[str, object]:
    return {"seq": found.seq, "ids": ids, "predictions": found.values}


def _samples(
    worker: ServingWorker, ids: Sequence[int] | IntArray, min_seq: int, timeout: float, output: str | None
) -> dict[str, object]:
    """Samples, and what a worker with a model predicts on them."""
    if worker.model is None and output is None:
        seq = worker.wait(min_seq, timeout)
        samples = [worker.sample(ids[at : at + 1], attributes=False) for at in range(len(ids))]
        return {"seq": seq, "ids": ids, "samples": [describe(sample) for sample in samples]}
    found, samples = worker.predict_with_samples(ids, min_seq=min_seq, timeout=timeout, output=output)
    return {**_predictions(ids, found), "samples": [describe(sample) for sample in samples]}


async def read_request(request: Request) -> PredictionRequest:
    """The body of a request. Raises InputError."""
    body = await read_body(request, Limits().objects, "ask for fewer ids at once")
    media_type = media_type_of(request)
    wanted = await off_loop(len(body), lambda: parse(PredictionRequest, body, media_type))
    refuse_model(wanted.model)
    return wanted
