"""The routes that append events, and those that show entries that were refused, and append them again."""

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Annotated, NamedTuple, cast

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel

from livegnn.errors import InputError, LiveGNNError, TimeoutExpired
from livegnn.events import Events
from livegnn.expiry import HeldExpiry
from livegnn.http.problems import PROBLEM_JSON, Problem, problem_of, problem_of_refusal
from livegnn.http.refusals import NotVisible
from livegnn.log import BadMessage, Rejection
from livegnn.runtime import Runtime
from livegnn.server.appends import Appender, Outcome
from livegnn.server.bodies import (
    ARROW_TYPE,
    LINE_TYPES,
    Limits,
    answer_model,
    media_type_of,
    read_body,
    to_json,
)
from livegnn.server.entries import GivenEntry, read_each_event, read_entries
from livegnn.server.feed import Feed
from livegnn.server.query import AsWritten, Seq, Timeout
from livegnn.server.rejections import list_page

_MOST_REJECTIONS = 1000

AppendHandler = Callable[[Request], Awaitable[Response]]


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


def add_event_routes(router: APIRouter, runtime: Runtime, feed: Feed, limits: Limits) -> AppendHandler:
    """Adds the routes; returns the one for events, for requests without parameters."""
    appender = Appender(runtime)

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
    ) -> Response:
        """Append events, as one entry of the log: they become visible together or not at all.

        JSON with a list `events`, JSON lines, or a stream of Arrow. If `wait` is set, an entry that is
        refused when it is applied (an unknown node) is answered with 409, one that is not applied in time
        with 202. If `partial` is set, each event is an entry of its own, and the answer lists those that were
        refused. A request with the header `Idempotency-Key` takes effect once, however often it is sent, and
        has one answer. An
        event with a field `idempotency_key` is an entry of its own with that key.
        """
        arrived = perf_counter()
        runtime.admit()  # before the body is read: what is pushed back costs as little as can be
        body = await read_body(request, limits.body, "send the events in parts")
        media_type = media_type_of(request)
        key = _key_of(request)
        if partial:
            outcomes = await appender.append(
                lambda: read_each_event(body, media_type, limits.objects), key, arrived
            )
        else:
            outcomes = await appender.append(lambda: read_whole(body, media_type), key, arrived)
        if partial or len(outcomes) > 1:
            return await answer_each(outcomes, wait, timeout)
        ((_, outcome),) = outcomes
        if isinstance(outcome, InputError):
            raise outcome
        seq, size, again = outcome
        status = "logged"
        if wait and size:
            try:
                await feed.wait(seq, timeout)
                rejection = await run_in_threadpool(runtime.rejection, seq)
            except LiveGNNError as error:
                # With any error, the events are in the log: an answer as if they were not would double them.
                return to_json({"seq": seq, "status": "logged", "problem": _not_visible(seq, error)}, 202)
            if rejection is not None:
                return _to_refusal(problem_of_refusal(rejection.error, rejection.message), seq=seq)
            status = "applied"
        answer = Response(b'{"seq":%d,"status":"%b"}' % (seq, status.encode()), media_type="application/json")
        if again:
            answer.headers["idempotent-replayed"] = "true"
        return answer

    def read_whole(body: bytes, media_type: str) -> list[GivenEntry]:
        """The entries of a body of which none is logged if one can never be applied."""
        entries = read_entries(body, media_type, limits.objects)
        if len(entries) == 1:
            return entries
        return [one._replace(events=runtime.check(cast("Events", one.events))) for one in entries]

    async def answer_each(outcomes: Sequence[Outcome], wait: bool, timeout: float) -> Response:
        """The answer for several entries; what takes as long as there are many is done in another thread."""
        became = await run_in_threadpool(_sort, outcomes)
        if became.refused and not became.logged:
            return await run_in_threadpool(_refuse_all, became)
        seq = max(became.logged) if became.logged else runtime.log.last_seq()
        answer: dict[str, object] = {"seq": seq, "status": "logged"}
        status = 200
        rejections: Sequence[Rejection] = ()
        if wait and became.logged:
            try:
                await feed.wait(seq, timeout)
                first = min(became.logged) - 1
                rejections = await run_in_threadpool(runtime.log.rejections, first, up_to=seq)
            except LiveGNNError as error:
                status, answer["problem"] = 202, _not_visible(seq, error)
            else:
                answer["status"] = "applied"
        return await run_in_threadpool(_to_answer, answer, status, became, rejections)

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
            return _to_refusal(problem_of_refusal(refused.error, message), seq=again)
        return to_json({"seq": again, "status": "logged"})

    @router.post("/v1/expiry/confirm", responses={200: {"model": _HELD_EXPIRY}})
    def confirm_expiry() -> Response:
        """Let the expiry that waits happen: `/healthz` shows it as `held_expiry`."""
        return to_json({"seq": runtime.seq, **runtime.confirm_expiry()._asdict()})

    return append_events


class _Became(NamedTuple):
    """The positions of events by the number of their entry; what was refused, by position; whether all that
    was logged had been logged before.
    """

    logged: dict[int, list[int]]
    refused: dict[int, dict[str, object]]
    again: bool


def _sort(outcomes: Sequence[Outcome]) -> _Became:
    logged: dict[int, list[int]] = {}
    refused: dict[int, dict[str, object]] = {}
    again = True
    for position, result in outcomes:
        if isinstance(result, InputError):
            refused[position] = {"position": position, "problem": problem_of(result).members()}
        else:
            logged.setdefault(result.seq, []).append(position)
            again = again and result.again
    return _Became(logged, refused, again)


def _to_answer(
    answer: dict[str, object], status: int, became: _Became, rejections: Sequence[Rejection]
) -> Response:
    refused = dict(became.refused)
    for seq, kind, message in rejections:
        problem = problem_of_refusal(kind, message).members()
        for position in became.logged.get(seq, ()):
            refused[position] = {"position": position, "seq": seq, "problem": problem}
    answer["refused"] = _in_order(refused)
    response = to_json(answer, status)
    if became.logged and became.again:
        response.headers["idempotent-replayed"] = "true"
    return response


def _refuse_all(became: _Became) -> Response:
    """The answer if none of the events was logged."""
    none = InputError(f"none of the events was logged: refused says why, for {len(became.refused):,}")
    return _to_refusal(problem_of(none), refused=_in_order(became.refused))


def _in_order(refused: dict[int, dict[str, object]]) -> list[dict[str, object]]:
    return [refused[position] for position in sorted(refused)]


def _to_refusal(problem: Problem, **more: object) -> Response:
    return to_json({**problem.members(), **more}, problem.status, media_type=PROBLEM_JSON)


def _not_visible(seq: int, error: LiveGNNError) -> dict[str, object]:
    turn = "in its turn" if isinstance(error, TimeoutExpired) else "after a restart"
    why = NotVisible(
        f"event {seq} is in the log and takes effect {turn}: do not send it again, ask with min_seq={seq} "
        f"({error})"
    )
    return problem_of(why).members()


def _key_of(request: Request) -> str | None:
    """The idempotency key of a request. Raises InputError if there are several."""
    keys = request.headers.getlist("idempotency-key")
    if len(keys) > 1:
        raise InputError(f"a request must have one header Idempotency-Key, got {len(keys)}")
    return keys[0].strip(" \t") if keys else None  # what is around the value is not of it (RFC 9110, 5.5)
