"""Pushing producers back before the runtime falls behind without bound.

Appends are refused when more than `high` events wait, until fewer than `low`, half of that, do: producers
that come back at once would else be refused again after each batch. `high` is a number of events, or the
events that the loop applies in some seconds by what batches cost; then it follows that after each batch.

Thread safety: the loop sets the limits; any thread may ask. Of threads that ask at the same time, some may
get the answer of a moment before.
"""

import math
from typing import Final

from livegnn.arguments import check_int, check_positive
from livegnn.errors import OverloadedError
from livegnn.runtime.pace import Pace

WAITING_MS: Final = 10_000.0
"""What may wait by default takes so long: a request that waits for its events waits no longer, either."""

_OBJECTIVES: Final = 25  # what waits may take so many times the objective
_LOW: Final = 0.5
_LONGEST_RETRY: Final = 3600.0


class Admission:
    """Whether events are taken in, for the number of those that wait.

    max_waiting_events: at most so many wait. max_waiting_ms: at most what the loop applies in this time,
    infinite for no limit; None: 25 times the objective of `pace`, if it has one, else `WAITING_MS`, unless
    there is a limit in events. Raises InputError if a setting makes no sense.
    """

    def __init__(
        self, pace: Pace, max_waiting_events: int | None = None, max_waiting_ms: float | None = None
    ) -> None:
        if max_waiting_events is not None:
            check_int(max_waiting_events, "max_waiting_events, None for no limit,", 1)
        if max_waiting_ms is not None:
            check_positive(max_waiting_ms, "max_waiting_ms, in milliseconds or None,")
        self._pace = pace
        self._most_events = math.inf if max_waiting_events is None else max_waiting_events
        self._most_seconds = math.inf
        if max_waiting_ms is not None:
            self._most_seconds = max_waiting_ms / 1000
        elif pace.objective is not None:
            self._most_seconds = _OBJECTIVES * pace.objective
        elif max_waiting_events is None:
            self._most_seconds = WAITING_MS / 1000
        self.limited = min(self._most_events, self._most_seconds) < math.inf
        self.closed = False
        """Whether appends were refused when the last one was asked for."""
        self.refused = 0
        """Appends so far that were refused; near enough, where threads are refused at the same time."""
        self._high = self._most_events
        self._low = _LOW * self._high

    def learn(self) -> None:
        """Sets the limits anew, by what batches cost now."""
        if self._most_seconds < math.inf:
            self._high = max(1.0, min(self._most_events, self._most_seconds * self._pace.rate))
            self._low = _LOW * self._high

    def is_open(self, waiting: int) -> bool:
        """Whether events are taken in while so many wait."""
        if waiting <= self._low:
            self.closed = False
        elif waiting > self._high:
            self.closed = True
        return not self.closed

    def waiting_seconds(self, waiting: int) -> float:
        """How long the loop takes for so many events."""
        return waiting / self._pace.rate

    def refuse(self, waiting: int) -> OverloadedError:
        """The error for an append that comes while so many events wait."""
        self.refused += 1
        retry_after = min(_LONGEST_RETRY, self.waiting_seconds(max(1, waiting - int(self._low))))
        return OverloadedError(
            f"{self.explain(waiting)}. Nothing was logged: append them again in "
            f"{max(1, math.ceil(retry_after))} s",
            retry_after=retry_after,
        )

    def explain(self, waiting: int) -> str:
        """Why events are refused while so many wait."""
        return (
            f"events must come no faster than they are applied: at most {self._high:,.0f} may wait, got "
            f"{waiting:,}"
        )
