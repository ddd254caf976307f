"""What requests for predictions are made of, and how they are answered."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from livegnn.errors import InputError
from livegnn.events.chunk import to_ids
from livegnn.runtime import Runtime
from livegnn.server.query import LARGEST_SEQ
from livegnn.types import Ids
from livegnn.wording import quoted

if TYPE_CHECKING:
    from jaxtyping import Shaped

NodeId = StrictInt | StrictStr


OUTPUT = "the name of one of the model's outputs; the first one if it is left out"
MODEL = "the name of a model; the one that serves if it is left out"


class PredictionRequest(BaseModel):
    """Which nodes, and how fresh."""

    model_config = ConfigDict(extra="forbid")
    ids: list[NodeId]
    min_seq: int = Field(
        0, ge=0, le=LARGEST_SEQ, strict=True, description="answer when this event is visible"
    )
    timeout: float = Field(10.0, gt=0, le=300, strict=True, description="seconds to wait for min_seq at most")
    output: StrictStr | None = Field(None, description=OUTPUT)
    model: StrictStr | None = Field(None, description=MODEL)


class PredictionAnswer(BaseModel):
    """Row i of `predictions` is the model's output for `ids[i]`. stale: set when the loop has failed."""

    seq: int
    ids: list[NodeId]
    predictions: list[list[float]]
    stale: bool | None = None


def body_of(type_: type[BaseModel]) -> dict[str, object]:
    """What OpenAPI says of a route whose body is read as `type_`."""
    content = {"application/json": {"schema": type_.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


def ids_of(runtime: Runtime, ids: Sequence[int | str]) -> "Shaped[Ids, 'ids']":
    """Ids as the graph has them. Raises `InputError` for those of the other kind."""
    text = runtime.graph.schema.text_ids
    if not ids:
        return np.empty(0, np.str_) if text else np.empty(0, np.int64)
    values = to_ids(list(ids), "ids")  # type: ignore[arg-type]
    if (values.dtype.kind == "U") != text:
        raise InputError(f"ids must be {'text' if text else 'integers'} in this graph, got {quoted(ids[0])}")
    return values
