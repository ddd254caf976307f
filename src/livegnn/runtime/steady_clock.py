"""A clock of which durations are made, that nobody can set back."""

import threading
from collections.abc import Callable

import livegnn._core as _core


class SteadyClock:
    """What `clock` says, but never less than before: where it goes back, time goes on from there.

    So what is due after some seconds is never due in a year, because a clock was set. Thread-safe.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = self._now = clock()

    def __call__(self) -> float:
        return _core.holding(self._lock, self._read)

    def _read(self) -> float:
        last, self._last = self._last, self._clock()
        self._now += max(0.0, self._last - last)
        return self._now
