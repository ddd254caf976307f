"""Appends of concurrent requests: one write of the log, one flush and one change of threads for all."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import NamedTuple, TypeAlias

from livegnn.errors import InputError, LogError
from livegnn.events import Events
from livegnn.events.builder import JoinedEvents
from livegnn.http.refusals import LoopEnded
from livegnn.http.small_reads import end_turn
from livegnn.log import Appended, Origin
from livegnn.log.idempotency import part_key
from livegnn.runtime import Runtime
from livegnn.runtime.intake import try_check
from livegnn.server.entries import GivenEntry, PlainBody, join_entries

_MOST = 1024  # requests in one write
_TURNS = 8  # of the event loop, at most, while requests are added in each
_WAIT_SECONDS = 0.001
_JOINED_BYTES = 65_536  # of bodies that are read together

Reader: TypeAlias = Callable[[], Sequence[GivenEntry]]
"""Reads the entries of a request, with an error instead of one that cannot be read."""


class Outcome(NamedTuple):
    """The result of an entry whose first event is at `position` of the body."""

    position: int
    became: Appended | InputError


class _Request(NamedTuple):
    read: Reader
    key: str | None
    arrived: float
    plain: PlainBody | None
    origin: Origin | None
    answered: "asyncio.Future[list[Outcome]]"


class _Queue:
    """The requests of one event loop that wait for a write. Belongs to that loop.

    work: the task that writes them, which asyncio does not keep; None if none wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.work: asyncio.Task[None] | None = None
        self._waiting: list[_Request] = []
        self._last = 0  # requests of the last write
        self._enough: asyncio.Future[None] | None = None

    def put(self, request: _Request) -> None:
        """Adds a request."""
        self._waiting.append(request)
        if self._enough is not None and self._are_enough():
            _end(self._enough)

    async def take(self) -> list[_Request]:
        """The requests of the next write; none if none wait.

        A write costs nearly as much for one request as for dozens. So requests that are being received, and
        those that the answers to the last group bring, share it: it begins after a turn of the event loop in
        which none was added, and when half as many as last time are there, or after a millisecond or two.
        """
        for _ in range(_TURNS):
            count = len(self._waiting)
            if not 0 < count < _MOST:
                break
            await end_turn()
            if len(self._waiting) == count:
                break
        if self._waiting and not self._are_enough():
            self._enough = self.loop.create_future()
            timer = self.loop.call_later(_WAIT_SECONDS, _end, self._enough)
            await self._enough
            self._enough = None
            timer.cancel()
        group = self._waiting[:_MOST]
        del self._waiting[: len(group)]
        self._last = len(group) or self._last
        return group

    def _are_enough(self) -> bool:
        return len(self._waiting) >= self._last // 2

    def end(self) -> None:
        """The task has ended, perhaps because the loop ends."""
        self.work = self._enough = None
        self._waiting.clear()


def _end(wait: "asyncio.Future[None]") -> None:
    if not wait.done():
        wait.set_result(None)


class _Here(threading.local):
    """The queue of a thread's event loop, for which asyncio would ask the system each time."""

    queue: _Queue | None = None


class Appender:
    """Appends the entries of requests. Requests that arrive while the disk is busy wait for the next write.

    Thread-safe; each event loop has requests of its own.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="livegnn-append")
        self._here = _Here()

    def append(
        self,
        read: Reader,
        key: str | None,
        arrived: float,
        plain: PlainBody | None = None,
        origin: Origin | None = None,
    ) -> "asyncio.Future[list[Outcome]]":
        """Appends the entries that `read` returns. Returns the results of each, when they are there.

        read: called in another thread, unless `plain` is given, which says the same. arrived: when the
        request did, by `perf_counter`. key: as of `Log.append`, for entries that have none of their own: for
        the first of them, and those after it have keys made of it. If the first is refused, because the key
        was sent with other events before, all are. origin: as of `Log.append_all`, of a request that is one
        entry, without a key.
        To await it raises the errors of `read`, LogError if none was logged, or only those up to the first
        with a key, and LoopEnded if nothing would apply them.
        """
        queue = self._here.queue
        if queue is None or not queue.loop.is_running():
            queue = self._here.queue = _Queue(asyncio.get_running_loop())
        request = _Request(read, key, arrived, plain, origin, queue.loop.create_future())
        queue.put(request)
        if queue.work is None:
            queue.work = queue.loop.create_task(self._write_all(queue))
        return request.answered

    async def _write_all(self, queue: _Queue) -> None:
        try:
            while group := await queue.take():
                outcomes = await queue.loop.run_in_executor(self._writer, self._write, group)
                for request, outcome in zip(group, outcomes, strict=True):
                    if request.answered.done():  # the client has disconnected
                        continue
                    if isinstance(outcome, BaseException):
                        request.answered.set_exception(outcome)
                    else:
                        request.answered.set_result(outcome)
        finally:
            queue.end()

    def _write(self, group: Sequence[_Request]) -> list[list[Outcome] | Exception]:
        """The result of each request: of its entries, or an error of the whole."""
        given = self._read_all(group)
        parts = [one for one in given if not isinstance(one, Exception)]
        try:
            self._refuse_when_ended()
            self._append([(one, at) for one in parts for at in one.first])
        except Exception as error:
            return [
                one if isinstance(one, Exception) else error
                for one in given
                for _ in range(1 if isinstance(one, Exception) else len(one.arrivals))
            ]
        unfinished = self._append_later([one for one in parts if one.later and not one.is_refused()])
        results: list[list[Outcome] | Exception] = []
        for one in given:
            if isinstance(one, Exception):
                results.append(one)
            elif one in unfinished:
                results.append(unfinished[one])
            else:
                results += one.results()
        return results

    def _read_all(self, group: Sequence[_Request]) -> list["_Part | Exception"]:
        """The parts of a group, in its order: neighbouring requests of the usual form are one."""
        given: list[_Part | Exception] = []
        begin = 0
        while begin < len(group):
            end = _end_of_plain(group, begin) if self._runtime.log.takes_joined else begin
            joined, count = _join(group[begin:end], self._runtime)
            if joined is not None:
                given.append(joined)
            else:
                given += map(self._read, group[begin : begin + count])
            begin += count
        return given

    def _read(self, request: _Request) -> "_Keyed | Exception":
        try:
            return _Keyed(request, self._runtime)
        except Exception as error:
            return error

    def _append_later(self, requests: Sequence["_Part"]) -> dict["_Part", Exception]:
        """Appends the entries after those with the keys of requests. Returns the error of each request of
        which these were not logged; the others of its group stand."""
        try:
            self._append([(one, at) for one in requests for at in one.later], admitted=True)
        except LogError as error:
            told = LogError(
                f"{error}. The first entries of the request were logged, the others were not: send all of "
                "them again with the same key, and only the others are appended"
            )
            return dict.fromkeys(requests, told)
        return {}

    def _append(self, places: Sequence[tuple["_Part", int]], *, admitted: bool = False) -> None:
        """Appends entries of requests, each by its place in the request."""
        if places:
            entries = [one.entries[at] for one, at in places]
            keys = [one.keys[at] for one, at in places]
            origins = [one.origin for one, _ in places]
            now = perf_counter()
            ages = [now - arrived for one, _ in places for arrived in one.arrivals]
            logged = self._runtime.append_all(entries, keys, origins, admitted=admitted, ages=ages)
            for (one, at), became in zip(places, logged, strict=True):
                one.became[at] = became

    def _refuse_when_ended(self) -> None:
        runtime = self._runtime
        if runtime.failure is not None:
            raise LoopEnded(
                f"events must be sent while the loop runs, but it ended at event {runtime.seq}: "
                f"{runtime.failure}. They would take effect only after a restart, so nothing was logged: "
                "send them again then"
            )


class _Part:
    """Some entries of a group, each with its key.

    entries, keys: by place; became: the results of those that have one. arrivals: when the requests arrived,
    for each entry. first, later: places of the entries that are appended at once, and of those after them.
    origin: of the only entry.
    """

    def __init__(self, arrivals: Sequence[float], origin: Origin | None = None) -> None:
        self.arrivals, self.origin = arrivals, origin
        self.entries: dict[int, Events] = {}
        self.keys: dict[int, str | None] = {}
        self.became: dict[int, Appended | InputError] = {}
        self.first: list[int] = []
        self.later: list[int] = []

    def is_refused(self) -> bool:
        """Whether what was appended at once was refused, so that the later entries do not count."""
        return False

    def results(self) -> list[list[Outcome]]:
        """The results of the entries of each request."""
        raise NotImplementedError


class _Joined(_Part):
    """Requests with one entry each, and no keys, which are logged together."""

    def __init__(self, events: JoinedEvents, arrivals: Sequence[float]) -> None:
        super().__init__(arrivals)
        self._events = self.entries[0] = events
        self.keys[0] = None
        self.first.append(0)

    def results(self) -> list[list[Outcome]]:
        became = self.became[0]
        assert isinstance(became, Appended)  # only a key, or events that were not checked, can be refused
        events = self._events
        appended = map(Appended, events.ends(became.seq), events.sizes)
        return [[Outcome(0, one)] for one in appended]


def _end_of_plain(group: Sequence[_Request], begin: int) -> int:
    """The end of the requests from `begin` on that may be of one form, and are not too large to be joined."""
    first, size = group[begin].plain, 0
    for at in range(begin, len(group)):
        plain = group[at].plain
        if plain is None or first is None or plain[1:] != first[1:] or size > _JOINED_BYTES:
            return at
        size += len(plain.content)
    return len(group)


def _join(group: Sequence[_Request], runtime: Runtime) -> tuple[_Joined | None, int]:
    """The first of some requests, and how many these are. None for requests that must be read one by one: the
    first is not of the usual form, or one of them is refused.
    """
    bodies = [one.plain for one in group if one.plain is not None]
    events, sizes = join_entries(bodies) if bodies else (Events(), [])
    if not sizes:
        return None, 1
    try:
        checked = runtime.check(events)
    except InputError:
        return None, len(sizes)
    joined = JoinedEvents(checked, checked.schema, sizes)
    return _Joined(joined, [one.arrived for one in group[: len(sizes)]]), len(sizes)


class _Keyed(_Part):
    """The entries of one request.

    first, later: places of the entries up to the one that carries the key of the request, and of those after
    it, which count only if that one does.
    """

    def __init__(self, request: _Request, runtime: Runtime) -> None:
        super().__init__((request.arrived,), request.origin)
        key = request.key
        self._given = given = request.read()
        if request.origin is not None and (len(given) != 1 or given[0].key is not None or key is not None):
            raise InputError(
                "events with a position must be one entry without idempotency keys, got keys or several "
                "entries: leave the keys out, because the position says what was sent"
            )
        self._carrier: int | None = None
        for at, one in enumerate(given):
            events = try_check(runtime, one.events)
            if isinstance(events, InputError):  # it carries no key
                self.became[at] = events
                continue
            self.entries[at], self.keys[at] = events, one.key
            if one.key is None and key is not None:
                self.keys[at] = key if self._carrier is None else part_key(key, at)
                self._carrier = at if self._carrier is None else self._carrier
        last = len(given) if self._carrier is None else self._carrier
        self.first = [at for at in self.entries if at <= last]
        self.later = [at for at in self.entries if at > last]

    def is_refused(self) -> bool:
        """Whether the key of the request was sent with other events before."""
        return self._carrier is not None and isinstance(self.became[self._carrier], InputError)

    def results(self) -> list[list[Outcome]]:
        return [self._outcomes()]

    def _outcomes(self) -> list[Outcome]:
        """The result of each entry."""
        refused = None if self._carrier is None else self.became[self._carrier]
        return [
            Outcome(one.position, self.became.get(at) or _given(refused))
            for at, one in enumerate(self._given)
        ]


def _given(refused: Appended | InputError | None) -> Appended | InputError:
    assert refused is not None  # else the entry would have been appended
    return refused
