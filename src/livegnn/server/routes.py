"""The routes: what each takes, what it answers. Every answer carries the sequence number that it reflects."""

from functools import partial
from typing import Annotated, Literal, NamedTuple

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from livegnn.errors import InputError, shortened
from livegnn.events import Events
from livegnn.events.chunk import to_edge_type
from livegnn.graph import Neighbors
from livegnn.graph.division import refuse_divided
from livegnn.http.keys import KeyFile
from livegnn.http.metrics import CONTENT_TYPE, Metrics
from livegnn.http.request_counts import RequestCounts
from livegnn.runtime import Runtime, SinkStand, Source
from livegnn.server.append_requests import AppendRequests
from livegnn.server.bodies import Limits, listed, media_type_of, off_loop, parse, read_body, to_json
from livegnn.server.bulk_routes import add_bulk_routes
from livegnn.server.candidate_routes import add_candidate_routes
from livegnn.server.chosen_changes import ChosenChanges
from livegnn.server.edge_score_routes import add_edge_score_routes
from livegnn.server.event_routes import add_event_routes
from livegnn.server.explain_routes import add_explain_routes
from livegnn.server.feed import Feed
from livegnn.server.metrics import collect
from livegnn.server.model_routes import add_model_routes
from livegnn.server.query import (
    CheckedRoute,
    LastEvent,
    MinSeq,
    NumberAsWritten,
    Timeout,
    answer_head,
    parse_id,
    parse_ids,
    split_ids,
)
from livegnn.server.requests import (
    MODEL,
    OUTPUT,
    GivenEvents,
    GivenIds,
    NodeId,
    PredictionAnswer,
    PredictionRequest,
    answer_predictions,
    body_of,
    check_count,
    check_listed,
    ids_of,
    read_wanted,
)
from livegnn.server.sample_routes import add_sample_routes
from livegnn.server.schema_routes import add_schema_routes
from livegnn.texts import Texts
from livegnn.types import EdgeType, Ids

_FEW = 256  # ids that are answered in the event loop, some milliseconds at most
_FEWER = "ask for fewer ids at once, or raise largest_json_bytes of the server"
_FEWER_CHANGED = "ask with changed set to false, or raise largest_answer_numbers of the server"
_FEWER_NEIGHBORS = "raise largest_answer_numbers of the server, or read them in Python, with graph.neighbors"


class WhatIfRequest(BaseModel):
    """Events that have not happened, and the nodes to predict as if they had."""

    model_config = ConfigDict(extra="forbid")
    events: GivenEvents
    ids: GivenIds
    output: StrictStr | None = Field(None, description=OUTPUT)
    model: StrictStr | None = Field(None, description=MODEL)
    changed: bool = Field(True, strict=True, description="whether to list the nodes that would change")


class WhatIfAnswer(PredictionAnswer):
    """Beside the predictions, all nodes whose prediction would be another, and how many these are.

    changed: null if they are not asked for.
    """

    changed: list[NodeId] | None
    num_changed: int


class NeighborsAnswer(BaseModel):
    """Neighbours of a node; weights and times if the edges carry them, keys if parallel edges are kept."""

    seq: int
    id: NodeId
    ids: list[NodeId]
    weight: list[float] | None
    time: list[float] | None
    key: list[int] | None


_FOLLOWED = "ids with commas between them, or several times: only changes of these nodes"
_THRESHOLD = "only predictions of which a column has moved by more than this since you received them"


class _Choice(NamedTuple):
    """An output and a model; None for the first output, and for the serving model."""

    output: str | None
    model: str | None


def create_routes(
    runtime: Runtime,
    feed: Feed,
    appends: AppendRequests,
    limits: Limits,
    counts: RequestCounts,
    keys: KeyFile | None = None,
) -> APIRouter:
    """All routes of the API. limits: of requests and answers. counts: of requests, for metrics. keys: of
    clients, for health."""
    router = APIRouter(route_class=CheckedRoute)
    graph, metrics = runtime.graph, Metrics(partial(collect, runtime, feed), counts)
    add_event_routes(router, runtime, appends, limits)
    add_model_routes(router, runtime, limits, keys)
    add_sample_routes(router, runtime, feed, limits)
    add_edge_score_routes(router, runtime, feed, limits)
    add_candidate_routes(router, runtime, feed, limits)
    add_explain_routes(router, runtime, feed, limits)
    add_schema_routes(router, runtime, limits)
    add_bulk_routes(router, runtime, feed)

    @router.get("/v1/predictions", responses={200: {"model": PredictionAnswer}})
    async def read_predictions(
        ids: Annotated[list[str], Query(description="ids with commas between them, or several times")],
        min_seq: MinSeq = 0,
        timeout: Timeout = 10.0,
        output: Annotated[str | None, Query(description=OUTPUT)] = None,
        model: Annotated[str | None, Query(description=MODEL)] = None,
    ) -> Response:
        """Predictions for nodes."""
        wanted = parse_ids(graph.schema.text_ids, split_ids(ids))
        return await predict(wanted, min_seq, timeout, _Choice(output, model))

    @router.post(
        "/v1/predictions",
        responses={200: {"model": PredictionAnswer}},
        openapi_extra=body_of(PredictionRequest),
    )
    async def request_predictions(request: Request) -> Response:
        """Predictions for many nodes, or for ids that hold commas."""
        body, media_type = await read_body(request, limits.objects, _FEWER), media_type_of(request)

        ids, wanted = await off_loop(
            len(body), lambda: read_wanted(graph.schema.text_ids, body, media_type, limits)
        )
        return await predict(ids, wanted.min_seq, wanted.timeout, _Choice(wanted.output, wanted.model))

    async def predict(ids: Ids | Texts, min_seq: int, timeout: float, chosen: _Choice) -> Response:
        check_count(runtime, len(ids), limits.ids, limits, *chosen)
        await feed.wait(min_seq, timeout)
        few = len(ids) <= _FEW
        prediction = runtime.predict_at_once(ids, output=chosen.output, model=chosen.model) if few else None
        if prediction is None:  # the event loop may not wait
            return await run_in_threadpool(
                lambda: answer_predictions(runtime, runtime.predict(ids, **chosen._asdict()), ids)
            )
        return answer_predictions(runtime, prediction, ids)

    @router.post(
        "/v1/what-if", responses={200: {"model": WhatIfAnswer}}, openapi_extra=body_of(WhatIfRequest)
    )
    async def ask_what_if(request: Request) -> Response:
        """Predictions as if events had happened; nothing is kept."""
        body, media_type = await read_body(request, limits.objects, _FEWER), media_type_of(request)

        def answer() -> Response:
            asked = parse(WhatIfRequest, body, media_type, limits.objects)
            events = Events.from_records(asked.events)  # type: ignore[arg-type]
            ids = ids_of(graph.schema.text_ids, asked.ids)
            check_count(runtime, len(ids), limits.ids, limits, asked.output, asked.model)
            asked.events.clear()
            supposed = runtime.what_if(
                events,
                ids,
                output=asked.output,
                model=asked.model,
                lists=partial(_lists_changed, runtime, asked.changed, limits),
            )
            return to_json(
                {
                    "seq": supposed.seq,
                    "ids": listed(ids),
                    "predictions": supposed.values,
                    "changed": listed(supposed.changed) if asked.changed else None,
                    "num_changed": supposed.num_changed,
                }
            )

        return await run_in_threadpool(answer)

    @router.get("/v1/changes", responses={200: {"content": {"text/event-stream": {}}}})
    async def follow_changes(
        ids: Annotated[list[str], Query(default_factory=list, description=_FOLLOWED)],
        last_event_id: LastEvent = None,
        threshold: Annotated[float | None, NumberAsWritten, Query(ge=0, description=_THRESHOLD)] = None,
    ) -> StreamingResponse:
        """Server-sent events: `ready`, then a `change` for each batch; `lagged` if you read too slowly.

        With `Last-Event-ID`, the changes since are sent first, if they are kept; otherwise `ready` says how
        many events you missed.
        """
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        told = feed.follow(last_event_id, _choose(runtime, ids, threshold, limits))
        return StreamingResponse(told, media_type="text/event-stream", headers=headers)

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
        node = parse_id(graph.schema.text_ids, id)
        type_ = None if edge_type is None else to_edge_type(edge_type.split(","))  # type: ignore[arg-type]
        await feed.wait(min_seq, timeout)

        def answer() -> Response:
            seq, neighbors = runtime.read(lambda: _read_neighbors(runtime, node, type_, direction, limits))
            return to_json(
                {
                    "seq": seq,
                    "id": node,
                    "ids": listed(neighbors.ids),
                    "weight": neighbors.weight,
                    "key": neighbors.key,
                    "time": neighbors.time,
                }
            )

        return await run_in_threadpool(answer)

    @router.get("/livez")
    def report_live() -> Response:
        """200 while the process answers."""
        return to_json({"status": "ok"})

    @router.get("/readyz")
    @router.get("/healthz")
    def report_health() -> Response:
        """200 while events are taken and become visible, and predictions are there; 503 with why not."""
        readiness = runtime.readiness()
        state = "ok" if readiness.ready else "not ready"
        if not runtime.running:
            state = "stopped" if runtime.failure is None else "failed"
        elif runtime.paused is not None:
            state = "paused"
        content: dict[str, object] = {"status": state, "seq": runtime.seq, "log_seq": runtime.log_seq}
        if not readiness.ready:
            content["reasons"] = {name: shortened(reason) for name, reason in readiness.reasons.items()}
        if missing := runtime.views.missing:
            content["missing_views"] = {name: shortened(reason) for name, reason in missing.items()}
        if runtime.sources:
            content["sources"] = {name: _stand(source) for name, source in dict(runtime.sources).items()}
        if runtime.sinks:
            content["sinks"] = {name: _stand_of(sink) for name, sink in dict(runtime.sinks).items()}
        if (quality := runtime.quality) is not None:
            failed = {} if quality.failure is None else {"reason": shortened(quality.failure)}
            content["quality"] = {"status": "failed" if failed else "ok", **failed}
        failures = {name: shortened(reason) for name, reason in runtime.side_failures.items()}
        if keys is not None and keys.problem is not None:
            failures["keys"] = "their file cannot be read, and they stay as they were: the log has the reason"
        if failures:
            content["side_failures"] = failures
        if (held := runtime.held_expiry) is not None:
            content["held_expiry"] = held._asdict()
        return to_json(content, status=200 if readiness.ready else 503)

    @router.get("/metrics", response_class=PlainTextResponse)
    def report_metrics() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(metrics.render(), headers={"content-type": CONTENT_TYPE})

    answer_head(router)
    return router


def _choose(
    runtime: Runtime, ids: list[str], threshold: float | None, limits: Limits
) -> ChosenChanges | None:
    """The changes that a client has chosen; None for all. Raises InputError, and TooLargeError."""
    if not ids:
        if threshold is not None:
            raise InputError("threshold needs ids, the nodes to compare, got none: add ids=")
        return None
    wanted = parse_ids(runtime.graph.schema.text_ids, split_ids(ids))
    check_count(runtime, len(wanted), limits.ids, limits, None, None)
    return ChosenChanges(wanted.tolist(), threshold)


def _lists_changed(runtime: Runtime, wanted: bool, limits: Limits, count: int) -> bool:
    """Whether an answer lists the nodes that would change. Raises TooLargeError if these are too many."""
    if wanted:
        check_listed(runtime, count, 0, limits, "changed nodes", _FEWER_CHANGED)
    return wanted


def _read_neighbors(
    runtime: Runtime, node: int | str, edge_type: EdgeType | None, direction: str, limits: Limits
) -> Neighbors:
    """The neighbours of a node. Raises TooLargeError, before any is read, if these are too many."""
    graph = runtime.graph
    refuse_divided(graph, "neighbors")
    count = int(graph.degree([node], edge_type=edge_type, direction=direction)[0])
    edges = list(graph.schema.edge_types.values())[graph.edge_type_index(edge_type)]
    # Features are read, though not shown.
    carried = edges.weighted + edges.timed + (edges.duplicates == "keep") + edges.edge_dim
    check_listed(runtime, count, carried, limits, "neighbours", _FEWER_NEIGHBORS)
    return graph.neighbors(node, edge_type=edge_type, direction=direction)


def _stand(source: Source) -> dict[str, object]:
    """The state of a source, for /healthz."""
    stand: dict[str, object] = {"status": "ok", "lag": sum(source.lag.values())}
    reason = source.waits if source.failure is None else str(source.failure)
    if reason is not None:
        stand |= {"status": "waits" if source.failure is None else "failed", "reason": shortened(reason)}
    return stand


def _stand_of(sink: SinkStand) -> dict[str, object]:
    """The state of a sink, for /healthz."""
    stand: dict[str, object] = {"status": "ok", "lag": sink.lag, "oldest_seconds": sink.oldest_age}
    if (reason := sink.waits) is not None:
        stand |= {"status": "waits", "reason": shortened(reason)}
    return stand
