"""The routes that append events, and those that show entries that were refused, and append them again."""

from time import perf_counter
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel

from livegnn.errors import InputError
from livegnn.expiry import HeldExpiry
from livegnn.http.problems import problem_of_refusal
from livegnn.log import BadMessage, Origin, Rejection
from livegnn.log.idempotency import CLIENT, LONGEST_SOURCE, client_origin
from livegnn.runtime import Runtime
from livegnn.server.append_requests import AppendRequests, GivenBody, to_refusal
from livegnn.server.bodies import (
    ARROW_TYPE,
    LINE_TYPES,
    Limits,
    answer_model,
    media_type_of,
    read_body,
    to_json,
)
from livegnn.server.query import LARGEST_SEQ, AsWritten, Seq, Timeout
from livegnn.server.rejections import list_page
from livegnn.wording import quoted

_MOST_REJECTIONS = 1000
_LONGEST_SOURCE = LONGEST_SOURCE - len(CLIENT)
Source: TypeAlias = Annotated[
    str,
    Query(min_length=1, max_length=_LONGEST_SOURCE, description="name that the client gave its stream"),
]


class ProblemAnswer(BaseModel):
    """A failure, as of RFC 9457: the page of its kind, the title of its kind, the status, and its details."""

    type: str
    title: str
    status: int
    detail: str


class RefusedEvent(BaseModel):
    """Why an event was refused. position: of the event in the body, from 0; seq: of its entry, if any."""

    position: int
    seq: int | None = None
    problem: ProblemAnswer


class AppendAnswer(BaseModel):
    """The sequence number of the last event appended, and what became of the events.

    status: "logged", or with `wait` "applied". refused: with `partial`, the events that were not appended, or
    not applied. problem: with `wait`, why "logged" events are not visible yet.
    """

    seq: int
    status: str
    refused: list[RefusedEvent] | None = None
    problem: ProblemAnswer | None = None


_REJECTION = answer_model(
    "RejectionAnswer",
    Rejection,
    "An entry that was refused when it was applied: the error, and the first of its `num_events` events,\n"
    "all if there is room for them.",
    events=list[dict[str, object]],
    num_events=int,
)
_BAD_MESSAGE = answer_model(
    "BadMessageAnswer",
    BadMessage,
    "A message of a source that is not events: its place, and its first bytes as text.",
    payload=str,
)
_HELD_EXPIRY = answer_model(
    "HeldExpiryAnswer",
    HeldExpiry,
    "At time `now`, `edges` of the `of` edges with a time to live would expire.",
    seq=int,
)


class PositionAnswer(BaseModel):
    """The last position of a client's stream in the log, null if there is none."""

    seq: int
    position: int | None


class ForgottenAnswer(BaseModel):
    """The number of forgotten entries or messages."""

    seq: int
    forgotten: int


class RejectionsAnswer(BaseModel):
    """Entries that were refused, and messages that could not be read, each in order."""

    seq: int
    rejections: list[_REJECTION]  # type: ignore[valid-type]
    bad_messages: list[_BAD_MESSAGE]  # type: ignore[valid-type]


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
            ARROW_TYPE: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


def add_event_routes(router: APIRouter, runtime: Runtime, appends: AppendRequests, limits: Limits) -> None:
    """Adds the routes."""

    @router.post(
        "/v1/events",
        responses={
            200: {"model": AppendAnswer},
            202: {"description": "In the log and not visible yet: do not send it again"},
            409: {"description": "In the log, and refused when it was applied"},
            429: {"description": "Too many events wait: send it again after `retry-after` seconds"},
        },
        openapi_extra=_EVENTS_BODY,
    )
    async def append_events(
        request: Request,
        wait: Annotated[bool, Query(description="answer when the events are visible")] = False,
        partial: Annotated[
            bool, Query(description="each event by itself: bad ones do not stop the others")
        ] = False,
        timeout: Timeout = 10.0,
        source: Source | None = None,
        position: Annotated[
            int | None,
            AsWritten,
            Query(ge=0, le=LARGEST_SEQ, description="of the last of these events in its stream, `source`"),
        ] = None,
    ) -> Response:
        """Append events, as one entry of the log: they become visible together or not at all.

        JSON with a list `events`, JSON lines, or a stream of Arrow. If `wait` is set, an entry that is
        refused when it is applied (an unknown node) is answered with 409, one that is not applied in time
        with 202. If `partial` is set, each event is an entry of its own, and the answer lists those that were
        refused. A request with the header `Idempotency-Key` takes effect once, however often it is sent, and
        has one answer. An
        event with a field `idempotency_key` is an entry of its own with that key. If `source` and `position`
        are set, the events take effect if the position is after the last one of the stream in the log.
        """
        arrived = perf_counter()
        runtime.admit()  # before the body is read: what is pushed back costs as little as can be
        body = await read_body(request, limits.body, "send the events in parts")
        origin = _origin_of(source, position, partial=partial)
        given = GivenBody(body, media_type_of(request), _key_of(request), arrived, origin)
        outcomes = await appends.append(given, partial=partial)
        return await appends.answer(outcomes, partial=partial, wait=timeout if wait else None)

    @router.get("/v1/events/position", responses={200: {"model": PositionAnswer}})
    def find_position(source: Source) -> Response:
        """The position of the last events of a stream that are in the log: go on after it."""
        stream, partition, _, _ = client_origin(source, 0)
        position = runtime.log.position(stream, partition)
        return to_json({"seq": runtime.seq, "position": position})

    @router.get("/v1/rejections", responses={200: {"model": RejectionsAnswer}})
    def list_rejections(
        after: Seq = 0,
        bad_after: Seq = 0,
        limit: Annotated[int, AsWritten, Query(ge=1, le=_MOST_REJECTIONS)] = 100,
    ) -> Response:
        """Entries that were refused when they were applied, and messages of sources that are not events."""
        messages = runtime.log.bad_messages(bad_after, most=limit)
        bad = [message._asdict() | {"payload": message.text} for message in messages]
        page = list_page(runtime.log, after, limit)
        return to_json({"seq": runtime.seq, "rejections": page, "bad_messages": bad})

    @router.delete("/v1/rejections", responses={200: {"model": ForgottenAnswer}})
    def forget_rejections(up_to: Seq) -> Response:
        """Forget entries that were refused, up to an event."""
        return to_json({"seq": runtime.seq, "forgotten": runtime.log.forget_rejections(up_to)})

    @router.delete("/v1/bad-messages", responses={200: {"model": ForgottenAnswer}})
    def forget_bad_messages(source: str, partition: Seq, up_to: Seq) -> Response:
        """Forget messages of a partition that are not events, up to an offset."""
        forgotten = runtime.log.forget_bad_messages(source, partition, up_to)
        return to_json({"seq": runtime.seq, "forgotten": forgotten})

    @router.post(
        "/v1/rejections/{seq}/retry",
        responses={200: {"model": AppendAnswer}, 409: {"description": "The new entry was refused too"}},
    )
    def retry_rejection(
        seq: Annotated[int, AsWritten],
        any_time: Annotated[bool, Query(description="however late the events' times are")] = False,
    ) -> Response:
        """Append the events of a refused entry again, as a new entry; asked again, it appends nothing, and
        answers with 409 if the new entry was refused as well.
        """
        again = runtime.retry(seq, any_time=any_time)
        refused = runtime.rejection(again)
        if refused is not None:
            message = f"{refused.message} (retry entry {again}, as which entry {seq} was appended again)"
            return to_refusal(problem_of_refusal(refused.error, message), seq=again)
        return to_json({"seq": again, "status": "logged"})

    @router.post("/v1/expiry/confirm", responses={200: {"model": _HELD_EXPIRY}})
    def confirm_expiry() -> Response:
        """Let the expiry that waits happen: `/healthz` shows it as `held_expiry`."""
        return to_json({"seq": runtime.seq, **runtime.confirm_expiry()._asdict()})


def _origin_of(source: str | None, position: int | None, *, partial: bool) -> Origin | None:
    """The place of a request's events in a client's stream. Raises InputError for half of one."""
    if source is None and position is None:
        return None
    if source is None or position is None or partial:
        raise InputError(
            "source and position must be given together, and without partial, got source="
            f"{quoted(source)}, position={position}, partial={partial}"
        )
    return client_origin(source, position)


def _key_of(request: Request) -> str | None:
    """The idempotency key of a request. Raises InputError if there are several."""
    keys = request.headers.getlist("idempotency-key")
    if len(keys) > 1:
        raise InputError(f"a request must have one header Idempotency-Key, got {len(keys)}")
    return keys[0].strip(" \t") if keys else None  # what is around the value is not of it (RFC 9110, 5.5)
