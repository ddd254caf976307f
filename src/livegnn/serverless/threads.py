"""Workers that are threads of this process: for a platform that starts and ends whole processes itself."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from livegnn.serverless.bodies import Answer
from livegnn.serverless.function import Function, Predictor, answer, join_memory
from livegnn.serverless.hosts import WorkerDied

if TYPE_CHECKING:
    from livegnn.serverless.shared_memory import MemoryFile


class ThreadHost:
    """Opens the function here, for each worker anew. A thread cannot be killed, and its memory is not limited
    by itself: the platform limits that of the process. memory: what workers have in common.
    """

    def __init__(self, function: Function, *, memory: "MemoryFile | None" = None) -> None:
        self._function, self._memory = function, memory

    async def launch(self, number: int) -> "ThreadWorker":
        """Opens the function. Raises WorkerDied."""
        thread = ThreadPoolExecutor(1, f"livegnn-worker-{number}")
        try:
            opened, leave = await asyncio.get_running_loop().run_in_executor(thread, self._open)
        except BaseException as error:
            thread.shutdown(wait=False)
            if isinstance(error, Exception):
                reason = f"expected a worker to be ready, got {error}"
                raise WorkerDied(reason, type(error).__name__) from error
            raise
        return ThreadWorker(thread, self._function, opened, leave)

    def _open(self) -> tuple[Predictor, Callable[[], None]]:
        """A predictor, and what is to be done when it is no longer needed."""
        opened, file = self._function.open(), self._memory
        memory = None if file is None else join_memory(opened, file.fd)

        def leave() -> None:
            if file is not None and memory is not None:
                memory.close()
                file.release_of_ended()

        return opened, leave

    async def close(self) -> None:
        """Nothing is left."""


class ThreadWorker:
    """A predictor and the one thread that it belongs to."""

    def __init__(
        self, thread: ThreadPoolExecutor, function: Function, opened: Predictor, leave: Callable[[], None]
    ) -> None:
        self._thread, self._function, self._opened, self._leave = thread, function, opened, leave
        self._ended = asyncio.Event()

    async def call(self, body: bytes) -> Answer:
        """What the worker answers."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, answer, self._opened, self._function.stage, body)

    async def ended(self) -> str:
        """Returns when the worker was told to end."""
        await self._ended.wait()
        return "was told to end"

    async def stop(self) -> None:
        """Ends the thread, after the call in hand."""
        self._thread.submit(self._leave)
        await asyncio.to_thread(self._thread.shutdown)
        self._ended.set()

    async def kill(self) -> None:
        """Ends the thread after the call in hand, without waiting for it."""
        self._thread.submit(self._leave)
        self._thread.shutdown(wait=False)
        self._ended.set()
