"""Appends of concurrent requests: one write of the log, one flush and one change of threads for all."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from weakref import WeakKeyDictionary

from livegnn.errors import LiveGNNError
from livegnn.events import Events
from livegnn.log import Appended
from livegnn.runtime import Runtime

_MOST = 1024  # requests in one write


class LoopEnded(LiveGNNError):
    """Events that come when nothing applies them any more: none is logged."""


class _Request(NamedTuple):
    read: Callable[[], Events]
    key: str | None
    answered: "asyncio.Future[Appended]"


class Appender:
    """Appends what requests bring. Requests that come while the disk is busy wait for the next write.

    Thread-safe; each event loop has requests of its own.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Request]] = WeakKeyDictionary()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="livegnn-append")

    async def append(self, read: Callable[[], Events], key: str | None) -> Appended:
        """Appends the events that `read` returns, which runs in another thread; key: as of `Log.append`.

        Raises what `read` and `Runtime.append` raise, and LoopEnded where nothing would apply the events.
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

    def _write(self, group: Sequence[_Request]) -> list[Appended | Exception]:
        """What became of each request: its entry, or an error."""
        events = [_read(request.read) for request in group]
        good = [
            (one, request.key) for one, request in zip(events, group, strict=True) if isinstance(one, Events)
        ]
        try:
            self._refuse_when_ended()
            stored = iter(self._runtime.append_all([one for one, _ in good], [key for _, key in good]))
        except Exception as error:
            return [error if isinstance(one, Events) else one for one in events]
        return [next(stored) if isinstance(one, Events) else one for one in events]

    def _refuse_when_ended(self) -> None:
        runtime = self._runtime
        if runtime.failure is not None:
            raise LoopEnded(
                f"events must come while the loop runs, but it ended at event {runtime.seq}: "
                f"{runtime.failure}. They would take effect after a restart alone, so nothing was logged: "
                "send them again then"
            )


def _read(read: Callable[[], Events]) -> Events | Exception:
    try:
        return read()
    except Exception as error:
        return error
