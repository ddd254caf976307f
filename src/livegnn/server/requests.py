"""The parts of requests for predictions, and their answers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import numpy as np
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StrictInt, StrictStr, WithJsonSchema

from livegnn.errors import InputError, TooLargeError
from livegnn.events.chunk import to_ids, to_texts
from livegnn.runtime import Prediction, Runtime
from livegnn.runtime.predictions import SampledPrediction
from livegnn.server.bodies import Limits, parse, to_json
from livegnn.server.query import LARGEST_SEQ
from livegnn.texts import Texts
from livegnn.types import Ids
from livegnn.wording import quoted

if TYPE_CHECKING:
    from jaxtyping import Shaped

NodeId = StrictInt | StrictStr
TEXT_NUMBERS = 128
"""A text id in an answer counts as this number of numbers, since it may have 1,024 characters."""
_WIDEST = 1000  # channels that an output may well have: few ids are not looked into


def _check_ids(value: object) -> object:
    """Refuses a value that is not a list of integers and texts, by its first wrong element: an error for each
    would be very many times the list."""
    if not isinstance(value, list):
        raise ValueError("expected a list of integers or texts")  # noqa: TRY004 (pydantic's)
    if not set(map(type, value)) <= {int, str}:
        at = next(at for at, id in enumerate(value) if type(id) not in (int, str))
        raise ValueError(f"expected integers or texts, got {quoted(value[at])} at position {at}")
    return value


_IDS_SCHEMA = {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}
GivenIds: TypeAlias = Annotated[list[NodeId], PlainValidator(_check_ids), WithJsonSchema(_IDS_SCHEMA)]
"""The ids of a request."""


def _check_events(value: object) -> object:
    if not isinstance(value, list):
        raise ValueError("expected a list of events")  # noqa: TRY004 (pydantic's)
    return value  # its reader refuses items that are not events


GivenEvents: TypeAlias = Annotated[
    list[dict[str, object]],
    PlainValidator(_check_events),
    WithJsonSchema({"type": "array", "items": {"type": "object"}}),
]
"""The events that a request supposes."""

OUTPUT = "the name of one of the model's outputs; the first one if it is left out"
MODEL = "the name of a model; the one that serves if it is left out"


class WaitingRequest(BaseModel):
    """The event that the answer must show."""

    model_config = ConfigDict(extra="forbid")
    min_seq: int = Field(
        0, ge=0, le=LARGEST_SEQ, strict=True, description="answer when this event is visible"
    )
    timeout: float = Field(10.0, gt=0, le=300, strict=True, description="seconds to wait for min_seq at most")


class EdgeOutputRequest(WaitingRequest):
    """An edge output of a model."""

    edge_type: list[StrictStr] | None = Field(
        None, max_length=3, description="source type, relation, target type"
    )
    output: StrictStr | None = Field(
        None, description="the name of an edge output; the only one of these edges if it is left out"
    )
    model: StrictStr | None = Field(None, description=MODEL)


class PredictionRequest(WaitingRequest):
    """The requested nodes, and the event that the answer must show."""

    ids: GivenIds
    output: StrictStr | None = Field(None, description=OUTPUT)
    model: StrictStr | None = Field(None, description=MODEL)


class PredictionAnswer(BaseModel):
    """Row i of `predictions` is the model's output for `ids[i]`. stale: set when the loop has failed."""

    seq: int
    ids: list[NodeId]
    predictions: list[list[float]]
    stale: bool | None = None


def body_of(type_: type[BaseModel]) -> dict[str, object]:
    """The OpenAPI description of a route whose body is read as `type_`."""
    content = {"application/json": {"schema": type_.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


def ids_of(text_ids: bool, ids: Sequence[int | str]) -> "Shaped[Ids, 'ids'] | Texts":
    """Ids as the graph has them, with texts or integers. Raises `InputError` for those of the other kind."""
    if not ids:
        return np.empty(0, np.str_) if text_ids else np.empty(0, np.int64)
    all_text = all(type(id) is str for id in ids)
    values = to_texts(cast("list[str]", ids)) if all_text else to_ids(cast("list[int]", ids), "ids")
    if (values.dtype.kind == "U") != text_ids:
        raise InputError(
            f"ids must be {'text' if text_ids else 'integers'} in this graph, got {quoted(ids[0])}"
        )
    return values


def read_wanted(
    text_ids: bool, body: bytes, media_type: str, limits: Limits
) -> "tuple[Shaped[Ids, 'ids'] | Texts, PredictionRequest]":
    """The ids of a request, and the rest of it. Raises InputError."""
    wanted = parse(PredictionRequest, body, media_type, limits.objects)
    ids = ids_of(text_ids, wanted.ids)
    wanted.ids.clear()
    return ids, wanted


def describe_predictions(
    prediction: Prediction | SampledPrediction, ids: "Shaped[Ids, 'ids'] | Texts"
) -> dict[str, object]:
    """The content of the answer to a request."""
    return {"seq": prediction.seq, "ids": ids.tolist(), "predictions": prediction.values}


def answer_predictions(
    runtime: Runtime,
    prediction: Prediction | SampledPrediction,
    ids: "Shaped[Ids, 'ids'] | Texts",
    **more: object,
) -> Response:
    """The answer to a request, with `more` of its fields."""
    content = {**describe_predictions(prediction, ids), **more}
    return to_json(content if runtime.failure is None else {**content, "stale": True})


def answer_small(runtime: Runtime, request: bytes, parameters: bool, limits: Limits) -> bytes | None:
    """The answer to a small request (`livegnn.http.small_reads`), if its predictions can be read at once."""
    if runtime.failure is not None:
        return None
    return runtime.answer_at_once(request, parameters=parameters, most_numbers=limits.numbers)


def check_listed(runtime: Runtime, count: int, beside: int, limits: Limits, what: str, way: str) -> None:
    """Raises TooLargeError for more ids than have room in an answer, with `beside` numbers for each.

    what: they are. way: how to ask for less.
    """
    each = beside + (TEXT_NUMBERS if runtime.graph.schema.text_ids else 1)
    if count * each > limits.numbers:
        raise TooLargeError(
            f"an answer may have {limits.numbers:,} numbers at most, so {limits.numbers // each:,} {what} "
            f"here, got {count:,}: {way}"
        )


def check_number(count: int, most: int) -> None:
    """Raises TooLargeError for more ids than a request may have."""
    if count > most:
        raise TooLargeError(f"a request may have {most:,} ids at most, got {count:,}: send several")


def check_count(
    runtime: Runtime, count: int, most: int, limits: Limits, output: str | None, model: str | None
) -> None:
    """Raises TooLargeError for more ids than `most`, or than have room in an answer; InputError."""
    check_number(count, most)
    if count * _WIDEST <= limits.numbers:
        return
    predictor = runtime.models.find(model)
    check_width(count, predictor.model.width(predictor.outputs.find(output).value), limits)


def check_width(count: int, width: int, limits: Limits) -> None:
    """Raises TooLargeError for more ids than have room in an answer with rows of this width."""
    if count * width > limits.numbers:
        raise TooLargeError(
            f"an answer may have {limits.numbers:,} numbers at most, got {count:,} ids with {width:,} each: "
            f"ask for {max(1, limits.numbers // width):,} ids at once"
        )
