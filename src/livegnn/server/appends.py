"""Appends of concurrent requests: one write of the log, one flush and one change of threads for all."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from livegnn.errors import InputError, LiveGNNError
from livegnn.events import Events
from livegnn.log import Appended
from livegnn.runtime import Runtime
from livegnn.server.entries import GivenEntry

_MOST = 1024  # requests in one write

Reader: TypeAlias = Callable[[], Sequence[GivenEntry]]
"""Reads the entries of a request, with an error in the place of one that cannot be read."""


class LoopEnded(LiveGNNError):
    """Events that come when nothing applies them any more: none is logged."""


class Outcome(NamedTuple):
    """What became of an entry whose first event is at `position` of the body."""

    position: int
    became: Appended | InputError


class _Request(NamedTuple):
    read: Reader
    key: str | None
    answered: "asyncio.Future[list[Outcome]]"


class Appender:
    """Appends what requests bring. Requests that come while the disk is busy wait for the next write.

    Thread-safe; each event loop has requests of its own.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Request]] = WeakKeyDictionary()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="livegnn-append")

    async def append(self, read: Reader, key: str | None) -> list[Outcome]:
        """Appends the entries that `read` returns, and says of each what became of it.

        read: called in another thread. key: as of `Log.append`, for entries that have none of their own; of
        several entries each has a key made of it. Raises what `read` raises, LogError if none was logged, and
        LoopEnded if nothing would apply them.
        """
        loop = asyncio.get_running_loop()
        request = _Request(read, key, loop.create_future())
        waiting = self._waiting.get(loop)
        if waiting is None:
            self._waiting[loop] = [request]
            self._work = loop.create_task(self._write_all(loop))
        else:
            waiting.append(request)
        return await request.answered

    async def _write_all(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting[loop]
        try:
            while waiting:
                group = waiting[:_MOST]
                del waiting[: len(group)]
                outcomes = await loop.run_in_executor(self._writer, self._write, group)
                for request, outcome in zip(group, outcomes, strict=True):
                    if request.answered.done():  # the client has gone
                        continue
                    if isinstance(outcome, BaseException):
                        request.answered.set_exception(outcome)
                    else:
                        request.answered.set_result(outcome)
        finally:
            del self._waiting[loop]

    def _write(self, group: Sequence[_Request]) -> list[list[Outcome] | Exception]:
        """What became of each request: of its entries, or an error of the whole."""
        given = [_read(request.read) for request in group]
        entries: list[Events] = []
        keys: list[str | None] = []
        for request, read in zip(group, given, strict=True):
            if isinstance(read, Exception):
                continue
            for number, one in enumerate(read):
                if isinstance(one.events, Events):
                    entries.append(one.events)
                    keys.append(_key_of(request.key, number, len(read)) if one.key is None else one.key)
        try:
            self._refuse_when_ended()
            stored = iter(self._runtime.append_all(entries, keys))
        except Exception as error:
            return [read if isinstance(read, Exception) else error for read in given]
        return [
            read
            if isinstance(read, Exception)
            else [
                Outcome(one.position, next(stored) if isinstance(one.events, Events) else one.events)
                for one in read
            ]
            for read in given
        ]

    def _refuse_when_ended(self) -> None:
        runtime = self._runtime
        if runtime.failure is not None:
            raise LoopEnded(
                f"events must come while the loop runs, but it ended at event {runtime.seq}: "
                f"{runtime.failure}. They would take effect after a restart alone, so nothing was logged: "
                "send them again then"
            )


def _key_of(key: str | None, number: int, size: int) -> str | None:
    return key if key is None or size == 1 else f"{key} {number}"


def _read(read: Reader) -> Sequence[GivenEntry] | Exception:
    try:
        return read()
    except Exception as error:
        return error
