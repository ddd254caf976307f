"""Fronts of parts that a test reads from, each in an event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from livegnn.inference.predictions import Prediction
from livegnn.partitions.front import PartsFront
from waiting import PATIENCE, wait_until


class FrontReader:
    """A front; its functions are called in any thread."""

    def __init__(self, file: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.file, self.front, self._loop = file, PartsFront(file), loop

    def begin(
        self, ids: object, *, min_seq: int = 0, timeout: float = PATIENCE, output: str | None = None
    ) -> "Future[Prediction]":
        read = self.front.predict(np.asarray(ids, np.int64), min_seq=min_seq, timeout=timeout, output=output)
        return asyncio.run_coroutine_threadsafe(read, self._loop)

    def predict(
        self, ids: object, *, min_seq: int = 0, timeout: float = PATIENCE, output: str | None = None
    ) -> Prediction:
        return self.begin(ids, min_seq=min_seq, timeout=timeout, output=output).result(PATIENCE)

    def wait_until_ready(self) -> None:
        wait_until(lambda: self.front.find_readiness().ready, "that all parts answer the front")


@contextmanager
def fronts(file: Path, count: int = 1, *, ready: bool = True) -> Iterator[list[FrontReader]]:
    """So many fronts. ready: whether to wait for all parts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    readers = [FrontReader(file, loop) for _ in range(count)]
    following = [asyncio.run_coroutine_threadsafe(one.front.follow(), loop) for one in readers]
    try:
        for one in readers if ready else ():
            one.wait_until_ready()
        yield readers
    finally:
        for task in following:
            task.cancel()
        loop.call_soon_threadsafe(loop.call_later, 0.1, loop.stop)
        thread.join()
        loop.close()
