"""The routes of the Open Inference Protocol, version 2: predictions for clients of KServe and Triton, of any
process that uses the framework.
"""

from typing import Protocol

from fastapi import APIRouter, Request
from fastapi.responses import Response

import livegnn
from livegnn.http.inference_protocol import (
    LENGTH,
    MODEL_PATH,
    VERSION_PATH,
    InferMessage,
    InferRequest,
    PairsRequest,
    describe_server,
    read_infer,
    read_pairs,
)
from livegnn.server.bodies import Limits, off_loop, read_body, to_json
from livegnn.server.query import CheckedRoute, answer_head

FEWER = "ask for fewer ids at once"


class ServedModels(Protocol):
    """The models of a process in the protocol. version: None for any; each method raises
    UnknownPath if there is no such model, or it has another version."""

    def ready(self) -> bool:
        """Whether the process is ready."""

    async def describe(self, name: str, version: str | None) -> Response:
        """The inputs and outputs of a model."""

    async def report_ready(self, name: str, version: str | None) -> Response:
        """200 while a model answers, else 503."""

    async def find(self, name: str, version: str | None) -> None:
        """Raises UnknownPath before the body of a request is read."""

    async def infer(self, name: str, version: str | None, asked: InferRequest) -> Response:
        """The rows of all requested outputs."""


class ServedEdgeOutputs(Protocol):
    """Edge outputs in the protocol, each with the name of a model, which `ServedModels` knows too."""

    def scores_pairs(self, name: str) -> bool:
        """Whether a name is that of an edge output."""

    async def score(self, name: str, version: str | None, asked: PairsRequest) -> Response:
        """The scores of pairs."""


def create_inference_routes(
    models: ServedModels, limits: Limits, edge_outputs: ServedEdgeOutputs | None = None
) -> APIRouter:
    """All routes below /v2. edge_outputs: those of the models, if the process scores edges."""
    router = APIRouter(route_class=CheckedRoute)

    @router.get("/v2")
    def describe_process() -> Response:
        """The server's name, version and extensions."""
        return to_json(describe_server(livegnn.__version__))

    @router.get("/v2/health/live")
    def report_live() -> Response:
        """200 while the process answers."""
        return to_json({"live": True})

    @router.get("/v2/health/ready")
    def report_ready() -> Response:
        """200 while the server is ready, as of /healthz."""
        ready = models.ready()
        return to_json({"ready": ready}, 200 if ready else 503)

    @router.get(MODEL_PATH)
    @router.get(VERSION_PATH)
    async def describe_model(name: str, version: str | None = None) -> Response:
        """A model's inputs and outputs. Its version is its digest."""
        return await models.describe(name, version)

    @router.get(MODEL_PATH + "/ready")
    @router.get(VERSION_PATH + "/ready")
    async def report_model_ready(name: str, version: str | None = None) -> Response:
        """200 while a model follows the graph."""
        return await models.report_ready(name, version)

    @router.post(MODEL_PATH + "/infer")
    @router.post(VERSION_PATH + "/infer")
    async def infer(request: Request, name: str, version: str | None = None) -> Response:
        """Predictions of nodes, all outputs of one state of the graph; or scores of pairs of nodes."""
        await models.find(name, version)
        body = await read_body(request, limits.objects, FEWER)
        length = request.headers.get(LENGTH)
        if edge_outputs is not None and edge_outputs.scores_pairs(name):
            pairs = await off_loop(len(body), lambda: read_pairs(body, length, limits.objects))
            return await edge_outputs.score(name, version, pairs)
        asked = await off_loop(len(body), lambda: read_infer(body, length, limits.objects))
        return await models.infer(name, version, asked)

    answer_head(router)
    return router


def answer_ready(name: str, *, ready: bool) -> Response:
    """200 or 503 for a model."""
    return to_json({"name": name, "ready": ready}, 200 if ready else 503)


def to_response(answer: InferMessage) -> Response:
    """An answer of the protocol, for the framework."""
    return Response(answer.body, headers=answer.headers())
