"""Workers that are threads of this process: for a platform that starts and ends whole processes itself."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from livegnn.functions.bodies import Answer
from livegnn.functions.function import Function, Predictor, answer, confine, join_memory, least_room
from livegnn.functions.worker_host import WorkerDied
from livegnn.http.problems import problem_of
from livegnn.remote.memory_limit import LEAST_ROOM, check_memory, memory_left

if TYPE_CHECKING:
    from livegnn.remote.shared_memory import MemoryFile


T = TypeVar("T")

_PREDICTOR = 4 << 20  # bytes of one, with its data of the snapshot


class ThreadHost:
    """Opens the function here, for each worker separately. A thread cannot be killed, and has no limit of its
    own: the function's `memory` is that of this process, which its workers divide, and which the starter of
    the process limits. memory: the memory that workers share. checks: whether a limit that is too small is
    refused."""

    def __init__(
        self, function: Function, *, memory: "MemoryFile | None" = None, checks: bool = False
    ) -> None:
        self._function, self._memory, self._checks = function, memory, checks
        self._room: int | None = None
        self._dividing = threading.Lock()

    async def launch(self, number: int) -> "ThreadWorker":
        """Opens the function. Raises WorkerDied."""
        thread = _Thread(f"livegnn-worker-{number}")
        try:
            opened, leave, room = await asyncio.wrap_future(thread.submit(self._open))
        except BaseException as error:
            thread.end()
            if isinstance(error, Exception):
                reason = f"expected a worker to be ready, got {error}"
                raise WorkerDied(reason, problem_of(error)) from error
            raise
        return ThreadWorker(thread, self._function, opened, leave, room)

    def _open(self) -> tuple[Predictor, Callable[[], None], int | None]:
        """A predictor, a function to call at its end, and its room."""
        opened, file = self._function.open(), self._memory
        memory = None if file is None else join_memory(opened, file.fd)
        room = self._divide(opened)
        confine(opened, self._function, room)

        def leave() -> None:
            if file is not None and memory is not None:
                memory.close()
                file.release_of_ended()

        return opened, leave, room

    def _divide(self, opened: Predictor) -> int | None:
        """The room of each worker. A check of a limit opens one predictor, and requires room for all
        workers, as much for each. A running machine refuses nothing any more."""
        function = self._function
        with self._dividing:
            if self._room is None and function.memory is not None:
                needed = least_room(opened, function.stage) + _PREDICTOR
                if self._checks:
                    check_memory(function.memory, function.workers * needed)
                left = memory_left(function.memory)
                self._room = max(left // function.workers - _PREDICTOR, LEAST_ROOM // 2)
            return self._room

    async def close(self) -> None:
        """Nothing is left."""


class ThreadWorker:
    """A predictor and the one thread that it belongs to."""

    def __init__(
        self,
        thread: "_Thread",
        function: Function,
        opened: Predictor,
        leave: Callable[[], None],
        room: int | None,
    ) -> None:
        self._thread, self._function, self._opened, self._leave = thread, function, opened, leave
        self._room = room
        self._ended = asyncio.Event()

    async def call(self, body: bytes) -> Answer:
        """The answer of the worker."""
        work = partial(answer, self._opened, self._function.stage, body, self._room)
        return await asyncio.wrap_future(self._thread.submit(work))

    async def ended(self) -> str:
        """Returns when the worker has received the order to end."""
        await self._ended.wait()
        return "was stopped"

    async def stop(self) -> None:
        """Ends the thread, after the call in hand."""
        left = self._thread.submit(self._leave)
        self._thread.end()
        await asyncio.wrap_future(left)
        self._ended.set()

    async def kill(self) -> None:
        """Ends the thread after the call in hand, without waiting for it."""
        self._thread.submit(self._leave)
        self._thread.end()
        self._ended.set()


class _Thread:
    """Runs one call after another. The process ends without it, during any call: threads of an executor would
    be waited for, and a predictor that opens slowly would delay the end."""

    def __init__(self, name: str) -> None:
        self._works: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Will have what `work` returns, or raises."""
        future: Future[T] = Future()

        def do() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._works.put(do)
        return future

    def end(self) -> None:
        """After the works so far."""
        self._works.put(None)

    def _run(self) -> None:
        while (do := self._works.get()) is not None:
            do()
