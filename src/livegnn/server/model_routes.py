"""The routes by which models are deployed, compared, switched to and removed while the server runs."""

import logging
import tempfile
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from livegnn.errors import FileFormatError, InputError, ModelError
from livegnn.http.keys import KeyFile
from livegnn.http.refusals import BodyTooLarge
from livegnn.inference import EngineOptions, Mode
from livegnn.model import Model
from livegnn.runtime import Comparison, ModelState, Runtime, Switch
from livegnn.runtime.comparison import DegreeClass
from livegnn.server.bodies import (
    Limits,
    answer_model,
    media_type_of,
    off_loop,
    parse,
    read_body,
    read_file,
    to_json,
)
from livegnn.server.query import AsWritten, NumberAsWritten
from livegnn.server.requests import body_of
from livegnn.wording import quoted

_Sample: TypeAlias = Annotated[int, AsWritten, Query(ge=1, le=1 << 24, description="nodes, drawn at random")]
_Tolerance: TypeAlias = Annotated[
    float, NumberAsWritten, Query(ge=0, description="differences above this count")
]
_Seed: TypeAlias = Annotated[int, AsWritten, Query(ge=0, description="of the draw")]

_FROM_FILE = "name its file in the deployment"
_logger = logging.getLogger(__name__)

_MODEL = answer_model(
    "ModelAnswer",
    ModelState,
    'A model. phase: "building", "following" the graph, or "failed", for `reason`.',
    phase=str,
)


class ModelsAnswer(BaseModel):
    """All models; `serving` answers where no model is named, `previous` did before."""

    seq: int
    serving: str | None
    previous: str | None
    models: list[_MODEL]  # type: ignore[valid-type]


_DEGREES = answer_model(
    "DegreeClassAnswer",
    DegreeClass,
    "The same of nodes with at least `degree` in-edges, and fewer than twice as many.",
)
_COMPARISON = answer_model(
    "ComparisonAnswer",
    Comparison,
    "How predictions of `second` differ from those of `first`, between events `since` and `seq`.",
    degrees=list[_DEGREES],  # type: ignore[valid-type]
)
_SWITCH = answer_model("SwitchAnswer", Switch, "After event `seq`, `model` answers instead of `previous`.")


class ServingRequest(BaseModel):
    """The name of the model that is to answer."""

    model_config = ConfigDict(extra="forbid")
    model: StrictStr = Field(description="the name of a model that follows the graph")


def add_model_routes(
    router: APIRouter, runtime: Runtime, limits: Limits, keys: KeyFile | None = None
) -> None:
    """Adds the routes. keys: of clients, whose names are logged with the changes that they request."""
    _add_deploying(router, runtime, limits, keys)
    _add_serving(router, runtime, limits, keys)


def _note(request: Request, keys: KeyFile | None, change: str, model: str | None) -> None:
    """Logs a change of the models, with the name of the key that requested it, or else the client."""
    given = request.headers.get("authorization", "").partition(" ")[2].strip()
    key = None if keys is None else keys.find(given.encode("latin-1"))
    client = "an unknown client" if request.client is None else f"the client {request.client.host}"
    by = client if key is None else f"the key {key.name}"
    text = "" if model is None else f" the model {quoted(model)}"
    _logger.info("%s requested to %s%s", by, change, text, extra={"by": by, "model": model})


def _add_deploying(router: APIRouter, runtime: Runtime, limits: Limits, keys: KeyFile | None) -> None:
    models = runtime.models

    @router.get("/v1/models", responses={200: {"model": ModelsAnswer}})
    def list_models() -> Response:
        """All models, and which one answers."""
        states = [state._asdict() for state in models.states()]
        return to_json(
            {"seq": runtime.seq, "serving": models.serving, "previous": models.previous, "models": states}
        )

    @router.put(
        "/v1/models/{name}",
        status_code=202,
        responses={202: {"model": _MODEL}},
        openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": {}}}},
    )
    async def deploy_model(
        name: str,
        request: Request,
        mode: Annotated[
            Literal["eager", "lazy", "presampled"] | None,
            Query(description="of its engine; that of the model that answers if left out"),
        ] = None,
    ) -> Response:
        """Compute a model, whose file is the body, beside the loop; `/v1/models` shows when it follows."""
        if media_type_of(request) != "application/octet-stream":
            raise InputError(
                f"a model must be application/octet-stream, got {quoted(media_type_of(request))}: "
                "send the file that Model.save wrote"
            )
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "model.lgnn"
            await read_file(request, path, limits.model, _FROM_FILE)
            _note(request, keys, "deploy", name)
            return await run_in_threadpool(_deploy, runtime, name, path, limits, mode)

    @router.delete("/v1/models/{name}", responses={200: {"model": ModelsAnswer}})
    def remove_model(name: str, request: Request) -> Response:
        """Take a model off the graph that was deployed and does not answer, or forget one that failed."""
        _note(request, keys, "remove", name)
        models.remove(name)
        return list_models()

    @router.get("/v1/models/{name}/comparison", responses={200: {"model": _COMPARISON}})
    def compare_models(
        name: str,
        first: Annotated[
            str | None, Query(description="the model to compare with; the one that answers if left out")
        ] = None,
        sample: _Sample = 65_536,
        tolerance: _Tolerance = 1e-4,
        seed: _Seed = 0,
    ) -> Response:
        """Compare the predictions of a model with those of another."""
        comparison = models.compare(name, first, sample=sample, tolerance=tolerance, seed=seed)
        return to_json({**comparison._asdict(), "degrees": [each._asdict() for each in comparison.degrees]})


def _add_serving(router: APIRouter, runtime: Runtime, limits: Limits, keys: KeyFile | None) -> None:
    models = runtime.models

    @router.put(
        "/v1/serving",
        responses={200: {"model": _SWITCH}},
        openapi_extra=body_of(ServingRequest),
    )
    async def switch_model(request: Request) -> Response:
        """Let another model answer, from one event on."""
        body, media_type = await read_body(request, limits.objects, "send a name"), media_type_of(request)
        wanted = await off_loop(len(body), lambda: parse(ServingRequest, body, media_type))
        _note(request, keys, "switch to", wanted.model)
        return to_json((await run_in_threadpool(models.switch, wanted.model))._asdict())

    @router.post("/v1/serving/rollback", responses={200: {"model": _SWITCH}})
    def roll_back(request: Request) -> Response:
        """Let the model answer that did before."""
        _note(request, keys, "roll back to", models.previous)
        return to_json(models.roll_back()._asdict())


def _deploy(runtime: Runtime, name: str, path: Path, limits: Limits, mode: Mode | None) -> Response:
    with path.open("rb") as stream:
        header = int.from_bytes(stream.read(8), "little")
    if limits.objects < header <= path.stat().st_size:
        raise BodyTooLarge(
            f"the header of a model's file must be at most {limits.objects:,} bytes, got {header:,}: raise "
            f"largest_json_bytes of the server, or {_FROM_FILE}"
        )
    try:
        model = Model.load(path)
    except FileFormatError as error:
        said = str(error).replace(str(path), "the body")
        raise InputError(f"the body must be a file that Model.save wrote: {said}") from error
    digest = model.digest
    state = _find(runtime, name)
    same = state is not None and state.digest == digest and state.phase != "failed"
    if state is None or not same or not _in_mode(runtime, name, mode):
        predictor = runtime.models.predictor
        options = EngineOptions() if predictor is None else predictor.options
        try:
            runtime.models.deploy(name, model, options if mode is None else options.in_mode(mode), wait=False)
        except ModelError as error:
            raise InputError(f"the model must fit the graph: {error}") from error
        state = _find(runtime, name) or ModelState(name, digest, "building", False, None)
    return to_json(state._asdict(), status=202)


def _in_mode(runtime: Runtime, name: str, mode: Mode | None) -> bool:
    """Whether a model that follows the graph does so in this mode; True while it is being built."""
    state = _find(runtime, name)
    if mode is None or state is None or state.phase != "following":
        return True
    return runtime.models.find(name).options.mode == mode


def _find(runtime: Runtime, name: str) -> ModelState | None:
    return next((state for state in runtime.models.states() if state.name == name), None)
