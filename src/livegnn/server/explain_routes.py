"""The routes that say why a value moved: the prediction of a node, or the score of an edge."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel, Field

from livegnn.errors import TimeoutExpired
from livegnn.events.chunk import to_edge_type
from livegnn.inference.explanation import EdgeExplanation, Explanation, NeighborShare, Shares
from livegnn.runtime import Runtime
from livegnn.server.bodies import Limits, receive, to_json
from livegnn.server.edge_score_routes import EDGE_SCORES, GivenNumbers, refuse_stray
from livegnn.server.feed import Feed
from livegnn.server.query import LARGEST_SEQ, Since, Timeout, parse_id
from livegnn.server.requests import EdgeOutputRequest, NodeId, body_of, ids_of
from livegnn.types import EdgeType

EXPLAIN_EDGE: Final = f"{EDGE_SCORES}/explain"
_AT_ONCE: Final = 2  # so that threads are left for fast answers
_SMALLER: Final = "one edge takes no more"


class EventShareAnswer(BaseModel):
    """The part of a change that is due to one event; `ids` is the node, or the ends of the edge."""

    seq: int
    event: str
    type: str | list[str]
    ids: list[NodeId]
    share: list[float]


class NeighborShareAnswer(BaseModel):
    """The part of a change that is due to one neighbour; `edge_type` is null for the node itself."""

    edge_type: list[str] | None
    id: NodeId
    share: list[float]
    reverse: bool


class EndShareAnswer(NeighborShareAnswer):
    """The part of a score's change that is due to one neighbour of an end, "source" or "target"."""

    end: str


class ExplainAnswer(BaseModel):
    """The movement of a prediction from `since` to `seq`; `before` is null if the node was not there."""

    seq: int
    id: NodeId
    since: int
    before: list[float] | None
    after: list[float]
    events: list[EventShareAnswer]
    neighbors: list[NeighborShareAnswer]


class ExplainEdgeRequest(EdgeOutputRequest):
    """An edge, or a pair of nodes with the columns of its edge, and the event after which the movement of its
    score begins."""

    source: NodeId
    target: NodeId
    since: int = Field(ge=0, le=LARGEST_SEQ, strict=True, description="the event after which it begins")
    existing: bool = Field(False, strict=True, description="whether this is an edge of the graph")
    key: int | None = Field(None, strict=True, description="an existing edge: which of parallel ones")
    edge_attr: GivenNumbers | None = Field(None, description="of a pair, if the edge output reads it")
    edge_weight: float | None = Field(None, strict=True, description="of a pair, if the edge output reads it")


class ExplainEdgeAnswer(BaseModel):
    """The movement of a score from `since` to `seq`; `before` is null if the edge was not there. key: of an
    edge of a type that keeps parallel ones. edge_share: the part that is due to the edge itself."""

    seq: int
    source: NodeId
    target: NodeId
    key: int | None
    output: str
    since: int
    before: list[float] | None
    after: list[float]
    events: list[EventShareAnswer]
    neighbors: list[EndShareAnswer]
    edge_share: list[float]


class _Asked:
    """A checked request. Raises InputError."""

    def __init__(self, runtime: Runtime, asked: ExplainEdgeRequest) -> None:
        self._asked = asked
        self.min_seq, self.timeout = asked.min_seq, asked.timeout
        ids_of(runtime.graph.schema.text_ids, [asked.source, asked.target])
        self._edge_type: EdgeType | None = None
        if asked.edge_type is not None:
            self._edge_type = to_edge_type(asked.edge_type)  # type: ignore[arg-type]
        refuse_stray(
            asked.existing,
            {"key": asked.key, "edge_attr": asked.edge_attr, "edge_weight": asked.edge_weight},
        )

    def explain(self, runtime: Runtime) -> EdgeExplanation:
        """Raises what the methods of the engine raise."""
        asked = self._asked
        engine = runtime.models.find_engine(asked.model)
        explain: Callable[..., EdgeExplanation]
        if asked.existing:
            explain = partial(engine.explain_edge, key=asked.key)
        else:
            explain = partial(engine.explain_score, edge_attr=asked.edge_attr, edge_weight=asked.edge_weight)
        return explain(
            asked.source,
            asked.target,
            since=asked.since,
            output=asked.output,
            edge_type=self._edge_type,
            timeout=asked.timeout,
        )


def add_explain_routes(router: APIRouter, runtime: Runtime, feed: Feed, limits: Limits) -> None:
    """Adds the routes."""
    explaining = asyncio.Semaphore(_AT_ONCE)

    async def take_turn(explain: Callable[[], Response], timeout: float) -> Response:
        try:
            async with asyncio.timeout(timeout):
                await explaining.acquire()
        except TimeoutError:
            raise TimeoutExpired(
                f"{_AT_ONCE} predictions are explained at a time, and none was finished in {timeout} "
                "seconds: try again, or give it a longer timeout"
            ) from None
        try:
            return await run_in_threadpool(explain)
        finally:
            explaining.release()

    @router.get("/v1/nodes/{id:node_id}/explain", responses={200: {"model": ExplainAnswer}})
    @router.get("/v1/explain", responses={200: {"model": ExplainAnswer}})
    async def explain_prediction(id: str, since: Since, timeout: Timeout = 10.0) -> Response:
        """Through which events, and which neighbours, a node's prediction moved, each with its share."""
        node = parse_id(runtime.graph.schema.text_ids, id)
        return await take_turn(
            lambda: _answer_node(runtime.engine.explain(node, since=since, timeout=timeout)), timeout
        )

    @router.post(
        EXPLAIN_EDGE,
        responses={200: {"model": ExplainEdgeAnswer}},
        openapi_extra=body_of(ExplainEdgeRequest),
    )
    async def explain_edge_score(request: Request) -> Response:
        """Through which events, and which neighbours of both ends, an edge's score moved, each with its
        share."""
        asked = await receive(
            request, ExplainEdgeRequest, limits, _SMALLER, lambda given: _Asked(runtime, given)
        )
        await feed.wait(asked.min_seq, asked.timeout)
        return await take_turn(lambda: _answer_edge(asked.explain(runtime)), asked.timeout)


def _answer_node(explanation: Explanation) -> Response:
    neighbors = [_describe_neighbor(one) for one in explanation.neighbors]
    return to_json({"id": explanation.id, **_describe(explanation), "neighbors": neighbors})


def _answer_edge(explanation: EdgeExplanation) -> Response:
    neighbors = [{**_describe_neighbor(one), "end": one.end} for one in explanation.neighbors]
    return to_json(
        {
            "source": explanation.source,
            "target": explanation.target,
            "key": explanation.key,
            "output": explanation.output,
            **_describe(explanation),
            "neighbors": neighbors,
            "edge_share": explanation.edge_share,
        }
    )


def _describe(shares: Shares) -> dict[str, object]:
    return {
        "seq": shares.seq,
        "since": shares.since,
        "before": shares.before,
        "after": shares.after,
        "events": [
            {"seq": one.seq, "event": one.kind, "type": one.type, "ids": one.ids, "share": one.share}
            for one in shares.events
        ],
    }


def _describe_neighbor(one: NeighborShare) -> dict[str, object]:
    return {"edge_type": one.edge_type, "id": one.id, "share": one.share, "reverse": one.reverse}
