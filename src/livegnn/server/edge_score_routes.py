"""The route that scores edges: those of the graph, pairs of nodes, and edges as if events had added them."""

from collections.abc import Callable, Mapping
from typing import Annotated, Final, TypeAlias, TypeVar

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel, Field, PlainValidator, WithJsonSchema

import livegnn._core as _core
from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.events.chunk import to_edge_type
from livegnn.http.small_reads import MOST_SMALL
from livegnn.inference.edge_pairs import EdgeSettings, OutputSettings, PairSettings
from livegnn.inference.predictions import Prediction
from livegnn.inference.supposed_scores import MostOfRequest
from livegnn.presampling import Predictor, SampledEngine
from livegnn.runtime import Runtime
from livegnn.server.bodies import (
    JSON_TYPE,
    Limits,
    parse,
    receive,
    to_json,
)
from livegnn.server.feed import Feed
from livegnn.server.requests import (
    EdgeOutputRequest,
    GivenEvents,
    GivenIds,
    body_of,
    check_number,
    check_width,
    ids_of,
)
from livegnn.texts import Texts
from livegnn.types import EdgeType, FloatArray, Ids
from livegnn.wording import quoted

_Read = TypeVar("_Read")

EDGE_SCORES: Final = "/v1/edge-scores"
_FEW = 256  # edges that are scored in the event loop
_FEWER = "ask for fewer edges at once, or raise largest_json_bytes of the server"


def _check_numbers(value: object) -> object:
    """Refuses a value that is not a list of numbers, by its first wrong element."""
    if not isinstance(value, list):
        raise ValueError("expected a list of numbers")  # noqa: TRY004 (pydantic's)
    if not set(map(type, value)) <= {int, float}:
        at = next(at for at, one in enumerate(value) if type(one) not in (int, float))
        raise ValueError(f"expected numbers, got {quoted(value[at])} at position {at}")
    return value


def _check_rows(value: object) -> object:
    """Refuses a value that is not a list of rows of one width, by its first wrong row."""
    if not isinstance(value, list) or not set(map(type, value)) <= {list}:
        raise ValueError("expected a list of lists of numbers")
    for at, row in enumerate(value):
        if len(row) != len(value[0]):
            raise ValueError(f"expected rows of {len(value[0])} numbers, got {len(row)} in row {at}")
        _check_numbers(row)
    return value


GivenNumbers: TypeAlias = Annotated[
    list[float],
    PlainValidator(_check_numbers),
    WithJsonSchema({"type": "array", "items": {"type": "number"}}),
]
"""Numbers of a request."""
_Rows: TypeAlias = Annotated[
    list[list[float]],
    PlainValidator(_check_rows),
    WithJsonSchema({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}),
]


class EdgeScoreRequest(EdgeOutputRequest):
    """The edges sources[i] -> targets[i]: of the graph (`existing`), or pairs with the given columns."""

    sources: GivenIds
    targets: GivenIds
    existing: bool = Field(
        False, strict=True, description="whether these are edges of the graph, with their own columns"
    )
    key: GivenNumbers | None = Field(None, description="existing edges: which of parallel ones")
    edge_attr: _Rows | None = Field(None, description="a row for each pair, if the edge output reads it")
    edge_weight: GivenNumbers | None = Field(
        None, description="a number for each pair, if the edge output reads it"
    )
    events: GivenEvents | None = Field(None, description="score the pairs as if these had happened")


class EdgeScoreAnswer(BaseModel):
    """Row i of `scores` is the edge output for sources[i] -> targets[i]. stale: set when the loop has
    failed."""

    seq: int
    scores: list[list[float]]
    stale: bool | None = None


def refuse_stray(existing: bool, given: Mapping[str, object]) -> None:
    """Raises InputError for a field that edges of the graph, or pairs of nodes, do not have.

    existing: whether these are edges of the graph. given: the fields, None for those that are left out.
    """
    for name in ("edge_attr", "edge_weight", "events") if existing else ("key",):
        if given.get(name) is not None:
            kind = "existing edges have their own columns" if existing else "pairs have no keys"
            raise InputError(
                f"{kind}, got {name}: leave it out, or set existing to {str(not existing).lower()}"
            )


class _Asked:
    """A checked request. Raises InputError, and TooLargeError."""

    def __init__(self, runtime: Runtime, asked: EdgeScoreRequest, limits: Limits) -> None:
        self.min_seq, self.timeout = asked.min_seq, asked.timeout
        text_ids = runtime.graph.schema.text_ids
        self.sources: Ids | Texts = ids_of(text_ids, asked.sources)
        self.targets: Ids | Texts = ids_of(text_ids, asked.targets)
        self.model, self.existing = asked.model, asked.existing
        edge_type: EdgeType | None = None
        if asked.edge_type is not None:
            edge_type = to_edge_type(asked.edge_type)  # type: ignore[arg-type]
        self.events = None if asked.events is None else Events.from_records(asked.events)  # type: ignore[arg-type]
        columns = {"key": asked.key, "edge_attr": asked.edge_attr, "edge_weight": asked.edge_weight}
        refuse_stray(asked.existing, {**columns, "events": self.events})
        chosen = OutputSettings(output=asked.output, edge_type=edge_type)
        self._edges = EdgeSettings(key=asked.key, **chosen)
        self._pairs = PairSettings(edge_attr=asked.edge_attr, edge_weight=asked.edge_weight, **chosen)
        if len(self.sources) != len(self.targets):
            raise InputError(
                "sources and targets must be of the same length, got "
                f"{len(self.sources)} and {len(self.targets)}"
            )
        check_number(len(self.sources), limits.ids)
        model = runtime.models.find(self.model)
        scores = model.edge_outputs.find(asked.output, edge_type).scores
        check_width(len(self.sources), scores.width, limits)

    def read_apart(self, model: Predictor) -> Prediction | None:
        """The rows, and the event that they reflect, if they are read without the lock of readers."""
        if isinstance(model, SampledEngine) or self.events is not None:
            return None
        if self.existing:
            return model.predict_edges_apart(self.sources, self.targets, **self._edges)
        return model.score_apart(self.sources, self.targets, **self._pairs)

    def read(self, model: Predictor) -> FloatArray:
        """The rows. Raises what the model's methods raise."""
        if isinstance(model, SampledEngine):
            self._refuse_unsampled(model)
            return model.score(self.sources, self.targets, **self._pairs)
        if self.existing:
            return model.predict_edges(self.sources, self.targets, **self._edges)
        scorer = model if self.events is None else model.what_if(self.events)
        return scorer.score(self.sources, self.targets, **self._pairs)

    def read_at_once(self, model: Predictor) -> FloatArray | None:
        """The rows, or None if they cannot be read at once."""
        if isinstance(model, SampledEngine):
            return None
        if self.existing:
            return model.predict_edges_at_once(self.sources, self.targets, **self._edges)
        return model.score_at_once(self.sources, self.targets, **self._pairs)

    def suppose_at_once(self, model: Predictor) -> FloatArray | None:
        """The rows after the events, or None if they cannot be computed at once."""
        assert self.events is not None
        if isinstance(model, SampledEngine):
            return None
        return model.score_after_at_once(self.events, self.sources, self.targets, **self._pairs)

    def _refuse_unsampled(self, model: SampledEngine) -> None:
        if self.existing or self.events is not None:
            raise InputError(
                f"{'existing edges' if self.existing else 'edges as if events had happened'} are scored by "
                f"models that keep rows, got {quoted(model.name)}, which answers from samples: give "
                "edge_attr and edge_weight of the pairs, or ask a model of another mode"
            )


def add_edge_score_routes(router: APIRouter, runtime: Runtime, feed: Feed, limits: Limits) -> None:
    """Adds the route."""

    @router.post(
        EDGE_SCORES,
        responses={200: {"model": EdgeScoreAnswer}},
        openapi_extra=body_of(EdgeScoreRequest),
    )
    async def score_edges(request: Request) -> Response:
        """Scores of edges of the graph, or of pairs of nodes, also as if events had happened."""
        asked = await receive(
            request, EdgeScoreRequest, limits, _FEWER, lambda given: _Asked(runtime, given, limits)
        )
        await feed.wait(asked.min_seq, asked.timeout)
        find = runtime.models.find
        if asked.events is None and len(asked.sources) <= _FEW:
            found = runtime.read_at_once(lambda: asked.read_at_once(find(asked.model)))
            if found is not None and found[1] is not None:
                return _answer(runtime, found[0], found[1])

        def answer() -> Response:
            if asked.events is None:
                return _answer(runtime, *_read(runtime, asked))
            runtime.check(asked.events)

            def suppose() -> Response:
                return _answer(runtime, runtime.graph.seq, asked.read(find(asked.model)))

            return _core.holding(runtime.graph.writer, suppose)

        return await run_in_threadpool(answer)


def _read(runtime: Runtime, asked: _Asked) -> tuple[int, FloatArray]:
    """The rows, and the event that they reflect."""
    apart = asked.read_apart(runtime.models.find(asked.model))
    return read_scores(runtime, asked.model, asked.read) if apart is None else apart


def read_scores(runtime: Runtime, name: str | None, read: Callable[[Predictor], _Read]) -> tuple[int, _Read]:
    """The result of `read` with a model, and the event that it reflects, with the lock of readers."""
    find = runtime.models.find
    if isinstance(find(name), SampledEngine):
        # Samples take long: others wait for them only if a batch was applied meanwhile.
        seq, model = runtime.read(lambda: find(name))
        scores = read(model)
        if runtime.read(lambda: None)[0] == seq:
            return seq, scores
    return runtime.read(lambda: read(find(name)))


def answer_small_scores(runtime: Runtime, request: bytes, parameters: bool, limits: Limits) -> bytes | None:
    """The answer to a small request (`livegnn.http.small_reads`), if its scores can be read at once."""
    if parameters or runtime.failure is not None:
        return None
    usual = _answer_usual(runtime, request, limits) if limits.ids >= MOST_SMALL else None
    if usual is not None:
        return usual
    given = parse(EdgeScoreRequest, request, JSON_TYPE, limits.objects)
    if max(len(given.sources), len(given.events or ())) > MOST_SMALL:
        return None
    asked, find = _Asked(runtime, given, limits), runtime.models.find
    if asked.events is not None:
        runtime.check(asked.events)
        found = runtime.read_at_once(lambda: asked.suppose_at_once(find(asked.model)))
    else:
        found = runtime.read_at_once(lambda: asked.read_at_once(find(asked.model)))
    if found is None or found[1] is None or found[0] < given.min_seq:
        return None
    return bytes(_answer(runtime, found[0], found[1]).body)


def _answer_usual(runtime: Runtime, request: bytes, limits: Limits) -> bytes | None:
    """The answer to a request of the usual form, which the native core reads."""
    most = MostOfRequest(limits.objects, limits.numbers)

    def answer() -> bytes | None:
        scorer = runtime.models.find(None)
        return scorer.answer_scores_at_once(request, runtime.graph.core.seq, most)

    found = runtime.read_at_once(answer)
    return None if found is None else found[1]


def _answer(runtime: Runtime, seq: int, scores: FloatArray) -> Response:
    stale = {} if runtime.failure is None else {"stale": True}
    return to_json({"seq": seq, "scores": scores, **stale})
