"""The routes of the Open Inference Protocol, version 2: predictions for clients of KServe and Triton."""

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

import livegnn
from livegnn.http.refusals import UnknownPath
from livegnn.runtime import ModelState, Runtime
from livegnn.server.bodies import Limits, off_loop, read_body, to_json
from livegnn.server.feed import Feed
from livegnn.server.inference_protocol import LENGTH, InferRequest, read_infer, write_infer
from livegnn.server.query import CheckedRoute, answer_head
from livegnn.server.requests import check_listed, check_number, ids_of
from livegnn.types import FloatArray
from livegnn.wording import quoted

_MODEL = "/v2/models/{name}"
_VERSION = _MODEL + "/versions/{version}"
_FEWER = "ask for fewer ids at once"


def create_inference_routes(runtime: Runtime, feed: Feed, limits: Limits) -> APIRouter:
    """All routes below /v2."""
    router = APIRouter(route_class=CheckedRoute)

    @router.get("/v2")
    def describe_server() -> Response:
        """The server's name, version and extensions."""
        return to_json(
            {"name": "livegnn", "version": livegnn.__version__, "extensions": ["binary_tensor_data"]}
        )

    @router.get("/v2/health/live")
    def report_live() -> Response:
        """200 while the process answers."""
        return to_json({"live": True})

    @router.get("/v2/health/ready")
    def report_ready() -> Response:
        """200 while the server is ready, as of /healthz."""
        readiness = runtime.readiness()
        return to_json({"ready": readiness.ready}, 200 if readiness.ready else 503)

    @router.get(_MODEL)
    @router.get(_VERSION)
    def describe_model(name: str, version: str | None = None) -> Response:
        """A model's inputs and outputs. Its version is its digest."""
        return to_json(_describe(runtime, find(runtime, name, version)))

    @router.get(_MODEL + "/ready")
    @router.get(_VERSION + "/ready")
    def report_model_ready(name: str, version: str | None = None) -> Response:
        """200 while a model follows the graph."""
        ready = find(runtime, name, version).phase == "following" and runtime.readiness().ready
        return to_json({"name": name, "ready": ready}, 200 if ready else 503)

    @router.post(_MODEL + "/infer")
    @router.post(_VERSION + "/infer")
    async def infer(request: Request, name: str, version: str | None = None) -> Response:
        """Predictions of nodes, all outputs of one state of the graph."""
        state = find(runtime, name, version)
        body = await read_body(request, limits.objects, _FEWER)
        length = request.headers.get(LENGTH)
        asked = await off_loop(len(body), lambda: read_infer(body, length, limits))
        await feed.wait(asked.min_seq, asked.timeout)
        return await run_in_threadpool(answer_infer, runtime, state, asked, limits)

    answer_head(router)
    return router


def _describe(runtime: Runtime, state: ModelState) -> dict[str, object]:
    model, text = runtime.models.find(state.name).model, runtime.graph.schema.text_ids
    outputs = [(output, model.width(value)) for output, value in model.outputs.items()]
    return {
        "name": state.name,
        "versions": [state.digest],
        "platform": "livegnn",
        "inputs": [{"name": "ids", "datatype": "BYTES" if text else "INT64", "shape": [-1]}],
        "outputs": [{"name": name, "datatype": "FP32", "shape": [-1, width]} for name, width in outputs],
    }


def find(runtime: Runtime, name: str, version: str | None) -> ModelState:
    """Raises UnknownPath if there is no such model, or the version is not its digest."""
    state = next((one for one in runtime.models.states() if one.name == name), None)
    if state is None:
        raise UnknownPath(f"there is no model {quoted(name)}: there are {', '.join(runtime.models.names)}")
    if version not in (None, state.digest):
        raise UnknownPath(f"the version of {name} is {state.digest}, got {quoted(version)}")
    return state


def answer_infer(runtime: Runtime, state: ModelState, asked: InferRequest, limits: Limits) -> Response:
    """The rows of all requested outputs, from one state of the graph."""
    ids = ids_of(runtime, asked.ids)
    predictor = runtime.models.find(state.name)
    widths = {name: predictor.model.width(value) for name, value in predictor.model.outputs.items()}
    names = list(widths if asked.outputs is None else asked.outputs)
    for name in names:
        predictor.outputs.find(name)  # raises for an unknown one
    check_number(len(ids), limits.ids)
    check_listed(runtime, len(ids), sum(widths[name] for name in names), limits, "ids", _FEWER)

    def predict() -> dict[str, FloatArray]:
        model = runtime.models.find(state.name)
        return {name: model.predict(ids, output=name) for name in names}

    seq, rows = runtime.read(predict)
    answer = write_infer(asked, state.name, state.digest, seq, rows)
    return Response(answer.body, headers=answer.headers)
