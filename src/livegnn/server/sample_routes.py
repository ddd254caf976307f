"""The route that returns predictions on samples together with their samples."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel

from livegnn.runtime import Runtime
from livegnn.server.bodies import Limits, media_type_of, off_loop, read_body
from livegnn.server.feed import Feed
from livegnn.server.requests import (
    NodeId,
    PredictionAnswer,
    PredictionRequest,
    answer_predictions,
    body_of,
    check_count,
    read_wanted,
)

if TYPE_CHECKING:
    from livegnn.sampling import HeteroSubgraph


class SampledEdgesAnswer(BaseModel):
    """Edges of one type: edge i leads from `row[i]` to `col[i]`, positions in `nodes` of the two types."""

    edge_type: list[str]
    row: list[int]
    col: list[int]


class SampleAnswer(BaseModel):
    """The sample of a prediction: ids by node type, the requested node first, and the edges."""

    nodes: dict[str, list[NodeId]]
    edges: list[SampledEdgesAnswer]


class SampledPredictionAnswer(PredictionAnswer):
    """Predictions, and the sample of each."""

    samples: list[SampleAnswer]


def add_sample_routes(router: APIRouter, runtime: Runtime, feed: Feed, limits: Limits) -> None:
    """Adds the route."""

    @router.post(
        "/v1/samples",
        responses={200: {"model": SampledPredictionAnswer}},
        openapi_extra=body_of(PredictionRequest),
    )
    async def sample_and_predict(request: Request) -> Response:
        """Predictions of a model that answers from samples, with the sample of each node."""
        body = await read_body(request, limits.objects, "ask for fewer samples at once")
        media_type = media_type_of(request)
        ids, wanted = await off_loop(
            len(body), lambda: read_wanted(runtime.graph.schema.text_ids, body, media_type, limits)
        )
        check_count(runtime, len(ids), limits.samples, limits, wanted.output, wanted.model)
        await feed.wait(wanted.min_seq, wanted.timeout)

        def answer() -> Response:
            prediction = runtime.predict_with_samples(ids, output=wanted.output, model=wanted.model)
            samples = [describe(sample) for sample in prediction.samples]
            return answer_predictions(runtime, prediction, ids, samples=samples)

        return await run_in_threadpool(answer)


def describe(sample: "HeteroSubgraph") -> Mapping[str, object]:
    """A sample as JSON has it."""
    return {
        # Numbers become JSON as they are; text has to become strings of Python first.
        "nodes": {name: ids.tolist() if ids.dtype.kind == "U" else ids for name, ids in sample.node.items()},
        "edges": [
            {"edge_type": list(name), "row": row, "col": sample.col[name]} for name, row in sample.row.items()
        ],
    }
