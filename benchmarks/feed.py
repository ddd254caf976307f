"""A thread that applies batches at a rate while something else is measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType

from presampling_shapes import Batch


class Feed:
    """Applies `batches` one after the other, `rate` edges a second, or as fast as it can (infinity).

    A context manager. Who falls behind goes on at once, so what comes late is not left out. `applied` and
    `seconds` say afterwards how many edges it was and how long it took; what the thread raised is raised
    again at the end.
    """

    def __init__(self, apply: Callable[[Batch], object], batches: Iterator[Batch], rate: float) -> None:
        self.apply, self.batches, self.rate = apply, batches, rate
        self.applied, self.seconds = 0, 0.0
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def reached(self) -> float:
        """Edges a second."""
        return self.applied / self.seconds if self.seconds else 0.0

    def __enter__(self) -> Feed:
        if self.rate > 0:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self.rate > 0:
            self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        started = time.perf_counter()
        try:
            for batch in self.batches:
                if self._stop.wait(max(0.0, started + self.applied / self.rate - time.perf_counter())):
                    break
                self.apply(batch)
                self.applied += sum(map(len, batch.values()))
        except BaseException as error:
            self._failed = error
        self.seconds = time.perf_counter() - started
