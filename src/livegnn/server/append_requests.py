"""Requests to append events: from their bodies to their answers."""

from asyncio import Future
from collections.abc import Sequence
from typing import NamedTuple, cast

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from livegnn.errors import InputError, LiveGNNError, TimeoutExpired
from livegnn.events import Events
from livegnn.http.problems import PROBLEM_JSON, Problem, problem_of, problem_of_refusal
from livegnn.http.refusals import NotVisible
from livegnn.log import Origin, Rejection
from livegnn.runtime import Runtime
from livegnn.server.appends import Appender, Outcome
from livegnn.server.bodies import Limits, to_json
from livegnn.server.entries import GivenEntry, PlainBody, read_each_event, read_entries
from livegnn.server.feed import Feed


class GivenBody(NamedTuple):
    """key: the idempotency key of the request. arrived, origin: as of `Appender.append`."""

    content: bytes
    media_type: str
    key: str | None
    arrived: float
    origin: Origin | None = None


class AppendRequests:
    """Appends the events of requests, and makes the answers. Belongs to event loops, as `Appender` does."""

    def __init__(self, runtime: Runtime, feed: Feed, limits: Limits) -> None:
        self._runtime, self._feed, self._limits = runtime, feed, limits
        self._appender = Appender(runtime)

    def append(self, given: GivenBody, *, partial: bool = False) -> Future[list[Outcome]]:
        """Appends the entries of a body. partial: each event is one. As `Appender.append`."""
        plain = None
        if not partial and given.key is None and given.origin is None:
            plain = PlainBody.make(given.content, given.media_type, self._limits.objects)
        return self._appender.append(
            lambda: self._read(given, partial), given.key, given.arrived, plain, given.origin
        )

    def _read(self, given: GivenBody, partial: bool) -> list[GivenEntry]:
        if partial:
            return read_each_event(given.content, given.media_type, self._limits.objects)
        entries = read_entries(given.content, given.media_type, self._limits.objects)
        if len(entries) == 1:
            return entries
        # None is logged if one can never be applied.
        return [one._replace(events=self._runtime.check(cast("Events", one.events))) for one in entries]

    async def answer(
        self, outcomes: Sequence[Outcome], *, partial: bool = False, wait: float | None = None
    ) -> Response:
        """The answer for entries. wait: answer when they are visible, or after this number of seconds;
        None: at once. Raises the error of an entry that is the only one."""
        if partial or len(outcomes) > 1:
            return await self._answer_each(outcomes, wait)
        ((_, outcome),) = outcomes
        if isinstance(outcome, InputError):
            raise outcome
        seq, size, again = outcome
        status = "logged"
        if wait is not None and size:
            try:
                await self._feed.wait(seq, wait)
                rejection = await run_in_threadpool(self._runtime.rejection, seq)
            except LiveGNNError as error:
                # With any error, the events are in the log: an answer as if they were not would double them.
                return to_json({"seq": seq, "status": "logged", "problem": _not_visible(seq, error)}, 202)
            if rejection is not None:
                return to_refusal(problem_of_refusal(rejection.error, rejection.message), seq=seq)
            status = "applied"
        answer = Response(b'{"seq":%d,"status":"%b"}' % (seq, status.encode()), media_type="application/json")
        if again:
            answer.headers["idempotent-replayed"] = "true"
        return answer

    async def _answer_each(self, outcomes: Sequence[Outcome], wait: float | None) -> Response:
        """The answer for several entries; what takes as long as there are many is done in another thread."""
        became = await run_in_threadpool(_sort, outcomes)
        if became.refused and not became.logged:
            return await run_in_threadpool(_refuse_all, became)
        log = self._runtime.log
        seq = max(became.logged) if became.logged else log.last_seq()
        answer: dict[str, object] = {"seq": seq, "status": "logged"}
        status = 200
        rejections: Sequence[Rejection] = ()
        if wait is not None and became.logged:
            try:
                await self._feed.wait(seq, wait)
                rejections = await run_in_threadpool(log.rejections, min(became.logged) - 1, up_to=seq)
            except LiveGNNError as error:
                status, answer["problem"] = 202, _not_visible(seq, error)
            else:
                answer["status"] = "applied"
        return await run_in_threadpool(_to_answer, answer, status, became, rejections)


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
    return to_refusal(problem_of(none), refused=_in_order(became.refused))


def _in_order(refused: dict[int, dict[str, object]]) -> list[dict[str, object]]:
    return [refused[position] for position in sorted(refused)]


def to_refusal(problem: Problem, **more: object) -> Response:
    """The answer for a refusal, with `more` of its members."""
    return to_json({**problem.members(), **more}, problem.status, media_type=PROBLEM_JSON)


def _not_visible(seq: int, error: LiveGNNError) -> dict[str, object]:
    turn = "in its turn" if isinstance(error, TimeoutExpired) else "after a restart"
    why = NotVisible(
        f"event {seq} is in the log and takes effect {turn}: do not send it again, ask with min_seq={seq} "
        f"({error})"
    )
    return problem_of(why).members()
