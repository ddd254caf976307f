"""Requests that wait until a serving worker shows an event. They wait in the event loop: threads are few, and
one client could keep them all.

Thread safety: belongs to the event loop of the server.
"""

import asyncio
import time
from typing import Final

from livegnn.errors import TimeoutExpired
from livegnn.workers.serving import ServingWorker

_EVERY_SECONDS: Final = 0.002  # as often as a worker without news looks for some


class Waiters:
    """The requests to `worker` that wait. One task looks at the worker for all of them."""

    def __init__(self, worker: ServingWorker) -> None:
        self._worker = worker
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._watch: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, min_seq: int, timeout: float) -> float:
        """Returns when the worker shows event `min_seq`, or has ended: the seconds that are left of
        `timeout`. Raises TimeoutExpired."""
        if self._is_over(min_seq):
            return timeout
        deadline = time.monotonic() + timeout
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = min_seq
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._look())
        try:
            await asyncio.wait_for(future, timeout)
        except TimeoutError as error:
            raise TimeoutExpired(
                f"expected event {min_seq} within {round(timeout, 3):g} seconds, got as far as "
                f"{self._worker.seq}"
            ) from error
        finally:
            self._waiting.pop(future, None)
        return max(0.0, deadline - time.monotonic())

    def _is_over(self, min_seq: int) -> bool:
        return self._worker.failure is not None or self._worker.shows(min_seq)

    async def _look(self) -> None:
        while self._waiting:
            for future, min_seq in list(self._waiting.items()):
                if not future.done() and self._is_over(min_seq):
                    future.set_result(None)
            await asyncio.sleep(_EVERY_SECONDS)
