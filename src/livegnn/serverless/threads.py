"""Workers that are threads of this process: for a platform that starts and ends whole processes itself."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from livegnn.serverless.bodies import Answer
from livegnn.serverless.function import Function, Predictor, answer
from livegnn.serverless.hosts import WorkerDied


class ThreadHost:
    """Opens the function here, for each worker anew. A thread cannot be killed, and its memory is not limited
    by itself: the platform limits that of the process.
    """

    def __init__(self, function: Function) -> None:
        self._function = function

    async def launch(self, number: int) -> "ThreadWorker":
        """Opens the function. Raises WorkerDied."""
        thread = ThreadPoolExecutor(1, f"livegnn-worker-{number}")
        try:
            opened = await asyncio.get_running_loop().run_in_executor(thread, self._function.open)
        except BaseException as error:
            thread.shutdown(wait=False)
            if isinstance(error, Exception):
                reason = f"expected a worker to be ready, got {error}"
                raise WorkerDied(reason, type(error).__name__) from error
            raise
        return ThreadWorker(thread, self._function, opened)

    async def close(self) -> None:
        """Nothing is left."""


class ThreadWorker:
    """A predictor and the one thread that it belongs to."""

    def __init__(self, thread: ThreadPoolExecutor, function: Function, opened: Predictor) -> None:
        self._thread, self._function, self._opened = thread, function, opened
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
        await asyncio.to_thread(self._thread.shutdown)
        self._ended.set()

    async def kill(self) -> None:
        """Ends the thread after the call in hand, without waiting for it."""
        self._thread.shutdown(wait=False)
        self._ended.set()
