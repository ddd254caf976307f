"""The routes: what each takes, what it answers. Every answer carries the sequence number that it reflects."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Literal, NamedTuple, TypeVar

import numpy as np
import orjson
from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from livegnn.errors import InputError, LiveGNNError, TimeoutExpired, shortened
from livegnn.events import Events
from livegnn.events.chunk import to_edge_type, to_ids
from livegnn.events.repeated_keys import repeated_key
from livegnn.inference.explanation import Explanation
from livegnn.runtime import Prediction, Runtime
from livegnn.server import metrics
from livegnn.server.appends import Appender
from livegnn.server.feed import Feed
from livegnn.server.query import INTEGER, CheckedRoute, answer_head, parse_id, parse_ids, split_ids
from livegnn.types import JSON, Ids

LARGEST_BODY = 64 * 2**20
_LARGEST_SEQ = 2**63 - 1
_EXPLAINED_AT_ONCE = 2  # so that threads are left for what is answered fast
LINE_TYPES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def _as_written(form: "re.Pattern[str]", what: str) -> BeforeValidator:
    """Refuses what is a number to Python alone, such as " 1", "+1", "1_0" and "01"."""

    def check(text: object) -> object:
        if isinstance(text, str) and not form.fullmatch(text):
            raise ValueError(f"expected {what} as JSON has it, without spaces, +, _ and leading zeros")
        return text

    return BeforeValidator(check)


Timeout = Annotated[
    float,
    _as_written(_NUMBER, "a number"),
    Query(gt=0, le=300, description="seconds to wait at most"),
]
MinSeq = Annotated[
    int,
    _as_written(INTEGER, "an integer"),
    Query(ge=0, le=_LARGEST_SEQ, description="answer when this event is visible: read your own writes"),
]
Since = Annotated[
    int,
    _as_written(INTEGER, "an integer"),
    Query(ge=0, le=_LARGEST_SEQ, description="the event after which the movement begins"),
]
NodeId = StrictInt | StrictStr


class BodyTooLarge(InputError):
    """A request body above the limit."""


class UnknownMediaType(InputError):
    """A body that is neither JSON nor, if it is one of events, JSON lines."""


_OUTPUT = "the name of one of the model's outputs; the first one if it is left out"


class PredictionRequest(BaseModel):
    """Which nodes, and how fresh."""

    model_config = ConfigDict(extra="forbid")
    ids: list[NodeId]
    min_seq: int = Field(
        0, ge=0, le=_LARGEST_SEQ, strict=True, description="answer when this event is visible"
    )
    timeout: float = Field(10.0, gt=0, le=300, strict=True, description="seconds to wait for min_seq at most")
    output: StrictStr | None = Field(None, description=_OUTPUT)


class WhatIfRequest(BaseModel):
    """Events that have not happened, and the nodes to predict as if they had."""

    model_config = ConfigDict(extra="forbid")
    events: list[dict[str, object]]
    ids: list[NodeId]
    output: StrictStr | None = Field(None, description=_OUTPUT)


class AppendAnswer(BaseModel):
    """The sequence number of the last event appended."""

    seq: int


class PredictionAnswer(BaseModel):
    """Row i of `predictions` is the model's output for `ids[i]`. stale: set when the loop has failed."""

    seq: int
    ids: list[NodeId]
    predictions: list[list[float]]
    stale: bool | None = None


class WhatIfAnswer(PredictionAnswer):
    """Beside the predictions, all nodes whose prediction would be another."""

    changed: list[NodeId]


class NeighborsAnswer(BaseModel):
    """Neighbours of a node; weights and times if the edges carry them, keys if parallel edges are kept."""

    seq: int
    id: NodeId
    ids: list[NodeId]
    weight: list[float] | None
    time: list[float] | None
    key: list[int] | None


class EventShareAnswer(BaseModel):
    """What a prediction moved with one event; `ids` is the node, or the ends of the edge."""

    seq: int
    event: str
    type: str | list[str]
    ids: list[NodeId]
    share: list[float]


class NeighborShareAnswer(BaseModel):
    """What a prediction moved with one neighbour; `edge_type` is null for the node itself."""

    edge_type: list[str] | None
    id: NodeId
    share: list[float]
    reverse: bool


class ExplainAnswer(BaseModel):
    """The movement of a prediction from `since` to `seq`; `before` is null if the node was not there."""

    seq: int
    id: NodeId
    since: int
    before: list[float] | None
    after: list[float]
    events: list[EventShareAnswer]
    neighbors: list[NeighborShareAnswer]


_EVENTS_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["events"],
                    "properties": {"events": {"type": "array", "items": {"type": "object"}}},
                },
                "example": {"events": [{"event": "add_edge", "src": 1, "dst": 2}]},
            },
            LINE_TYPES[0]: {"schema": {"type": "string"}, "example": '{"event": "remove_node", "id": 3}\n'},
        },
    }
}


_Body = TypeVar("_Body", bound=BaseModel)


def _body_of(type_: type[BaseModel]) -> dict[str, object]:
    """What OpenAPI says of a route whose body is read as `type_`."""
    content = {"application/json": {"schema": type_.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


class Routes(NamedTuple):
    """The routes of the API, and the one for events by itself."""

    router: APIRouter
    append_events: Callable[[Request], Awaitable[Response]]


def create_routes(runtime: Runtime, feed: Feed) -> Routes:
    """All routes of the API."""
    router = APIRouter(route_class=CheckedRoute)
    graph = runtime.graph
    explaining = asyncio.Semaphore(_EXPLAINED_AT_ONCE)
    appender = Appender(runtime)

    @router.post(
        "/v1/events",
        responses={
            200: {"model": AppendAnswer},
            202: {"description": "In the log and not visible yet: do not send it again"},
            409: {"description": "In the log, and refused when its turn came"},
        },
        openapi_extra=_EVENTS_BODY,
    )
    async def append_events(
        request: Request,
        wait: Annotated[bool, Query(description="answer when the events are visible")] = False,
        timeout: Timeout = 10.0,
    ) -> Response:
        """Append events, as one entry of the log: they become visible together or not at all.

        JSON with a list `events`, or JSON lines. If `wait` is set, an entry that is refused when its turn
        comes (an unknown node) is answered with 409, one whose turn has not come with 202. A request with the
        header `Idempotency-Key` takes effect once, however often it is sent, and has one answer.
        """
        body, media_type = await _read_body(request), _media_type(request)
        key = request.headers.get("idempotency-key")
        seq, size, again = await appender.append(lambda: _parse_events(body, media_type), key)
        headers = {"idempotent-replayed": "true"} if again else None
        if not wait or not size:
            return Response(b'{"seq":%d}' % seq, media_type="application/json", headers=headers)
        try:
            await feed.wait(seq, timeout)
            rejection = await run_in_threadpool(runtime.rejection, seq)
        except LiveGNNError as error:
            # Whatever it is, the events are in the log: an answer as if they were not would double them.
            return _to_answer(seq, "NotVisible", _say_logged(seq, error), 202)
        if rejection is not None:
            return _to_answer(seq, rejection.error, rejection.message, 409)
        return Response(b'{"seq":%d}' % seq, media_type="application/json", headers=headers)

    @router.get("/v1/predictions", responses={200: {"model": PredictionAnswer}})
    async def read_predictions(
        ids: Annotated[list[str], Query(description="ids with commas between them, or several times")],
        min_seq: MinSeq = 0,
        timeout: Timeout = 10.0,
        output: Annotated[str | None, Query(description=_OUTPUT)] = None,
    ) -> Response:
        """Predictions for nodes."""
        wanted = parse_ids(graph, split_ids(ids))
        return await predict(wanted, min_seq, timeout, output)

    @router.post(
        "/v1/predictions",
        responses={200: {"model": PredictionAnswer}},
        openapi_extra=_body_of(PredictionRequest),
    )
    async def request_predictions(request: Request) -> Response:
        """Predictions for many nodes, or for ids that hold commas."""
        wanted = _parse(PredictionRequest, await _read_body(request), _media_type(request))
        return await predict(_to_ids(runtime, wanted.ids), wanted.min_seq, wanted.timeout, wanted.output)

    async def predict(ids: Ids, min_seq: int, timeout: float, output: str | None) -> Response:
        await feed.wait(min_seq, timeout)
        prediction = runtime.predict_at_once(ids, output=output)
        if prediction is None:  # the event loop waits for nobody
            return await run_in_threadpool(_predict, runtime, ids, output)
        return _describe(runtime, prediction, ids)

    @router.post(
        "/v1/what-if", responses={200: {"model": WhatIfAnswer}}, openapi_extra=_body_of(WhatIfRequest)
    )
    async def ask_what_if(request: Request) -> Response:
        """Predictions as if events had happened; nothing is kept."""
        body, media_type = await _read_body(request), _media_type(request)

        def answer() -> Response:
            asked = _parse(WhatIfRequest, body, media_type)
            events = Events.from_records(asked.events)  # type: ignore[arg-type]
            ids = _to_ids(runtime, asked.ids)
            supposed = runtime.what_if(events, ids, output=asked.output)
            return to_json(
                {
                    "seq": supposed.seq,
                    "ids": ids.tolist(),
                    "predictions": supposed.values,
                    "changed": supposed.changed.tolist(),
                }
            )

        return await run_in_threadpool(answer)

    @router.get("/v1/changes", responses={200: {"content": {"text/event-stream": {}}}})
    async def follow_changes() -> StreamingResponse:
        """Server-sent events: `ready`, then a `change` for each batch; `lagged` if you read too slowly."""
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(feed.follow(), media_type="text/event-stream", headers=headers)

    @router.get("/v1/nodes/{id:node_id}/neighbors", responses={200: {"model": NeighborsAnswer}})
    @router.get("/v1/neighbors", responses={200: {"model": NeighborsAnswer}})
    async def list_neighbors(
        id: str,
        direction: Literal["in", "out"] = "in",
        edge_type: Annotated[str | None, Query(description="source type,relation,target type")] = None,
        min_seq: MinSeq = 0,
        timeout: Timeout = 10.0,
    ) -> Response:
        """The neighbours that point at a node, or that it points at."""
        node = parse_id(graph, id)
        type_ = None if edge_type is None else to_edge_type(edge_type.split(","))  # type: ignore[arg-type]
        await feed.wait(min_seq, timeout)

        def answer() -> Response:
            seq, found = runtime.read(lambda: graph.neighbors(node, edge_type=type_, direction=direction))
            return to_json(
                {
                    "seq": seq,
                    "id": node,
                    "ids": found.ids.tolist(),
                    "weight": found.weight,
                    "key": found.key,
                    "time": found.time,
                }
            )

        return await run_in_threadpool(answer)

    @router.get("/v1/nodes/{id:node_id}/explain", responses={200: {"model": ExplainAnswer}})
    @router.get("/v1/explain", responses={200: {"model": ExplainAnswer}})
    async def explain_prediction(id: str, since: Since, timeout: Timeout = 10.0) -> Response:
        """Through which events, and which neighbours, a node's prediction moved, each with its share."""
        node = parse_id(graph, id)
        try:
            async with asyncio.timeout(timeout):
                await explaining.acquire()
        except TimeoutError:
            raise TimeoutExpired(
                f"{_EXPLAINED_AT_ONCE} predictions are explained at a time, and none was finished in "
                f"{timeout} seconds: try again, or give it a longer timeout"
            ) from None
        try:
            return await run_in_threadpool(
                lambda: _describe_explanation(runtime.engine.explain(node, since=since, timeout=timeout))
            )
        finally:
            explaining.release()

    @router.get("/healthz")
    def report_health() -> Response:
        """200 while the loop runs, 503 when it has failed or stopped, or waits for space on a disk."""
        state = "ok" if runtime.running else "stopped"
        if (reason := runtime.failure or runtime.paused) is not None:
            state = "paused" if runtime.failure is None else "failed"
        content: dict[str, object] = {"status": state, "seq": runtime.seq, "log_seq": runtime.log.last_seq()}
        if reason is not None:
            content["reason"] = shortened(str(reason))
        return to_json(content, status=200 if state == "ok" else 503)

    @router.get("/metrics")
    def report_metrics() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(metrics.render(runtime, feed), headers={"content-type": metrics.CONTENT_TYPE})

    answer_head(router)
    return Routes(router, append_events)


def to_json(content: dict[str, object], status: int = 200) -> Response:
    """`content` as JSON, arrays included."""
    text = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(text, status_code=status, media_type="application/json")


def _describe_explanation(found: Explanation) -> Response:
    return to_json(
        {
            "seq": found.seq,
            "id": found.id,
            "since": found.since,
            "before": found.before,
            "after": found.after,
            "events": [
                {"seq": one.seq, "event": one.kind, "type": one.type, "ids": one.ids, "share": one.share}
                for one in found.events
            ],
            "neighbors": [
                {"edge_type": one.edge_type, "id": one.id, "share": one.share, "reverse": one.reverse}
                for one in found.neighbors
            ],
        }
    )


def _predict(runtime: Runtime, ids: Ids, output: str | None) -> Response:
    return _describe(runtime, runtime.predict(ids, output=output), ids)


def _describe(runtime: Runtime, prediction: Prediction, ids: Ids) -> Response:
    content: dict[str, object] = {
        "seq": prediction.seq,
        "ids": ids.tolist(),
        "predictions": prediction.values,
    }
    if runtime.failure is not None:
        content["stale"] = True
    return to_json(content)


async def _read_body(request: Request) -> bytes:
    """The whole body. Raises BodyTooLarge before more than the limit is in memory."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_BODY:
            raise BodyTooLarge(f"a body must be at most {LARGEST_BODY} bytes, got more: send it in parts")
        parts.append(part)
    return b"".join(parts)


def _to_answer(seq: int, kind: str, message: str, status: int) -> Response:
    """An error of events that are in the log."""
    return to_json({"seq": seq, "error": {"type": kind, "message": message}}, status)


def _say_logged(seq: int, error: LiveGNNError) -> str:
    turn = "in its turn" if isinstance(error, TimeoutExpired) else "after a restart"
    return (
        f"event {seq} is in the log and takes effect {turn}: do not send it again, ask with min_seq={seq} "
        f"({error})"
    )


def _parse_events(body: bytes, media_type: str) -> Events:
    if media_type in LINE_TYPES:
        return Events.from_json_lines(body)
    if media_type != "application/json":
        raise UnknownMediaType(f"events must come as application/json or {LINE_TYPES[0]}, got {media_type!r}")
    content = _parse_json(body)
    if not isinstance(content, dict) or set(content) != {"events"}:
        got = ", ".join(content) if isinstance(content, dict) else type(content).__name__
        raise InputError(f"the body must be an object with the one field 'events', got {got or 'none'}")
    return Events.from_records(content["events"])  # type: ignore[arg-type]


def _parse(type_: type[_Body], body: bytes, media_type: str) -> _Body:
    """The body as what a route takes. Raises InputError, or RequestValidationError for its parts."""
    if media_type != "application/json":
        raise UnknownMediaType(f"the body must come as application/json, got {media_type!r}")
    try:
        return type_.model_validate(_parse_json(body))
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(problems) from error


def _parse_json(body: bytes) -> JSON:
    try:
        content: JSON = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InputError(f"the body must be JSON, got {body[:60]!r}: {error}") from error
    if (key := repeated_key(body, content)) is not None:
        raise InputError(f"each object of the body must have a field once, got {key!r} twice")
    return content


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()


def _to_ids(runtime: Runtime, ids: Sequence[int | str]) -> Ids:
    text = runtime.graph.schema.text_ids
    if not ids:
        return np.empty(0, np.str_) if text else np.empty(0, np.int64)
    values = to_ids(list(ids), "ids")  # type: ignore[arg-type]
    if (values.dtype.kind == "U") != text:
        raise InputError(f"ids must be {'text' if text else 'integers'} in this graph, got {ids[0]!r}")
    return values
