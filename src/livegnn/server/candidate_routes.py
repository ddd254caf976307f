"""The route that answers the best partners of nodes."""

from typing import Final

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel, Field

from livegnn.errors import TooLargeError
from livegnn.events.chunk import to_edge_type
from livegnn.inference.candidates import MOST_CANDIDATES, CandidateSettings
from livegnn.runtime import Runtime
from livegnn.server.bodies import (
    Limits,
    receive,
    to_json,
)
from livegnn.server.edge_score_routes import GivenNumbers
from livegnn.server.feed import Feed
from livegnn.server.requests import EdgeOutputRequest, GivenIds, NodeId, body_of, check_listed, ids_of
from livegnn.texts import Texts
from livegnn.types import EdgeType, Ids

CANDIDATES: Final = "/v1/candidates"
_FEWER: Final = "ask for the candidates of fewer nodes at once, or raise largest_json_bytes of the server"
_MOST_NODES: Final = 256
"""Of a request: each scans all codes, some milliseconds in a graph of a million nodes."""


class CandidateRequest(EdgeOutputRequest):
    """The nodes, as sources of edges, and how many candidates of each are wanted."""

    nodes: GivenIds
    k: int = Field(10, ge=1, le=MOST_CANDIDATES, strict=True, description="the most candidates of a node")
    exclude_existing: bool = Field(
        True, strict=True, description="whether to leave out targets to which an edge leads already"
    )
    edge_attr: GivenNumbers | None = Field(
        None, description="the features of all these edges, if the edge output reads them"
    )
    edge_weight: float | None = Field(
        None, strict=True, description="the weight of all these edges, if the edge output reads it"
    )


class NodeCandidates(BaseModel):
    """The candidates of a node, best first. seq: the event that they reflect."""

    node: NodeId
    seq: int
    ids: list[NodeId]
    scores: list[float]


class CandidateAnswer(BaseModel):
    """An element for each node of the request, in its order. seq: the least of theirs. stale: set when the
    loop has failed."""

    seq: int
    candidates: list[NodeCandidates]
    stale: bool | None = None


class _Asked:
    """A checked request. Raises InputError, and TooLargeError."""

    def __init__(self, runtime: Runtime, asked: CandidateRequest, limits: Limits) -> None:
        self.min_seq, self.timeout = asked.min_seq, asked.timeout
        self.nodes: Ids | Texts = ids_of(runtime.graph.schema.text_ids, asked.nodes)
        self.k, self._model = asked.k, asked.model
        edge_type: EdgeType | None = None
        if asked.edge_type is not None:
            edge_type = to_edge_type(asked.edge_type)  # type: ignore[arg-type]
        self._settings = CandidateSettings(
            output=asked.output,
            edge_type=edge_type,
            exclude_existing=asked.exclude_existing,
            edge_attr=asked.edge_attr,
            edge_weight=asked.edge_weight,
        )
        if len(asked.nodes) > _MOST_NODES:
            raise TooLargeError(
                f"a request may have {_MOST_NODES} nodes at most, got {len(asked.nodes):,}: send several"
            )
        way = "ask for fewer nodes at once, or for fewer candidates of each"
        check_listed(runtime, len(asked.nodes) * asked.k, 1, limits, "candidates", way)

    def answer(self, runtime: Runtime) -> Response:
        engine = runtime.models.find_engine(self._model)
        seq = runtime.graph.seq
        found = engine.candidates_of_each(self.nodes, self.k, **self._settings)
        candidates = [
            {"node": node, "seq": one.seq, "ids": one.ids.tolist(), "scores": one.scores}
            for node, one in zip(self.nodes.tolist(), found, strict=True)
        ]
        stale = {} if runtime.failure is None else {"stale": True}
        return to_json(
            {"seq": min((one.seq for one in found), default=seq), "candidates": candidates, **stale}
        )


def add_candidate_routes(router: APIRouter, runtime: Runtime, feed: Feed, limits: Limits) -> None:
    """Adds the route."""

    @router.post(
        CANDIDATES,
        responses={200: {"model": CandidateAnswer}},
        openapi_extra=body_of(CandidateRequest),
    )
    async def find_candidates(request: Request) -> Response:
        """The targets with the highest scores for each of some nodes, as edges that need not exist."""
        asked = await receive(
            request, CandidateRequest, limits, _FEWER, lambda given: _Asked(runtime, given, limits)
        )
        await feed.wait(asked.min_seq, asked.timeout)
        return await run_in_threadpool(asked.answer, runtime)
