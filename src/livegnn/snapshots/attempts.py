"""When an operation on a store is tried again, and when it is given up.

    failed ── pause ── failed ── longer pause ── ... ── failed, and for `patience` no thread had an answer
                                                         └─► StoreUnavailableError

Patience counts from the last answer of the store to any thread: a store that refuses every second request
serves the others meanwhile, and a refused request may succeed next. A budget for each operation limits that,
so that a store which refuses nearly all is not tried for ever.

Thread safety: a `StoreHealth` is shared by all threads, an `Attempts` belongs to one operation in one thread.
"""

import random
import time
from collections.abc import Callable

from livegnn.backoff import Backoff
from livegnn.errors import StoreUnavailableError

_PAUSES = Backoff(0.05, 2.0)
_ANSWERING_SECONDS = 2.0  # after its last answer a store is taken for one that answers, so pauses stay short
_TRIES_EACH, _TRIES_MORE = 4, 64
_jitter = random.SystemRandom()


class StoreHealth:
    """The time of a store's last answer, to any thread. clock: in seconds, as `time.monotonic`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.answered_at = -float("inf")

    def note_answer(self) -> None:
        """The store has answered a thread just now. Either of two threads may be the last to say so."""
        self.answered_at = self.clock()


class Attempts:
    """The attempts of one operation, which begins now.

    health: of the store. patience: seconds. parts: the number of parts of the operation that are tried
    separately, each four times in the mean, and 64 times more in all. sleep: how it waits.
    """

    def __init__(
        self, health: StoreHealth, patience: float, *, parts: int = 1, sleep: Callable[[float], None]
    ) -> None:
        self._health, self._patience, self._sleep = health, patience, sleep
        self._began = health.clock()
        self._left = _TRIES_EACH * parts + _TRIES_MORE
        self._pauses = _PAUSES.pauses()

    def wait(self, error: StoreUnavailableError, parts: int = 1) -> None:
        """Waits until the operation, of which this number of parts have failed, may be tried again.

        Raises `StoreUnavailableError` when patience or the budget has ended.
        """
        now, answered_at = self._health.clock(), self._health.answered_at
        self._left -= parts
        answers = now - answered_at < _ANSWERING_SECONDS
        longer = next(self._pauses)
        pause = _PAUSES.first if answers else longer
        if now + pause > max(self._began, answered_at) + self._patience:
            raise StoreUnavailableError(
                f"{error}; asked again for {self._patience:g} seconds: see whether the store can be "
                "reached, and try again"
            ) from error
        if self._left < 0:
            raise StoreUnavailableError(
                f"{error}; the store answers some requests and refuses most: send fewer at once, or later"
            ) from error
        self._sleep(pause * (0.5 + 0.5 * _jitter.random()))
