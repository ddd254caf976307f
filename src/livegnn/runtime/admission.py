"""Admission control: appends are refused while too many events wait, so the backlog stays bounded.

Once more than `high` events wait, appends are refused until at most `low`, half of `high`, wait: otherwise
producers that retry at once would be refused again after each batch. `high` is a number of events, or the
events that the loop applies in a given time at the present cost of batches; that one is updated after each
batch.

Thread safety: the loop sets the limits; any thread may call the other methods. If several threads call at the
same time, some may get an answer that is a moment old.
"""

import math
from typing import Final

from livegnn.arguments import check_int, check_positive
from livegnn.errors import OverloadedError
from livegnn.runtime.pace import Pace

WAITING_MS: Final = 10_000.0
"""The default limit, as time to apply the waiting events. A request for its events waits no longer."""

_OBJECTIVES: Final = 25  # times the objective: the time to apply the waiting events
_LOW: Final = 0.5
_LONGEST_RETRY: Final = 3600.0


class Admission:
    """The limit of waiting events, which decides whether appends are accepted.

    max_waiting_events: the most events that may wait. max_waiting_ms: the most time that the loop may need to
    apply them, infinite for no limit; None: 25 times the objective of `pace`, if it has one, else
    `WAITING_MS`, unless there is a limit in events. Raises InputError if a setting is not valid.
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
        """Whether appends were refused at the last check."""
        self.refused = 0
        """The refused appends so far; approximate if threads are refused at the same time."""
        self._high = self._most_events
        self._low = _LOW * self._high

    def learn(self) -> None:
        """Updates the limits from the present cost of batches."""
        if self._most_seconds < math.inf:
            self._high = max(1.0, min(self._most_events, self._most_seconds * self._pace.rate))
            self._low = _LOW * self._high

    def is_open(self, waiting: int) -> bool:
        """Returns whether events are accepted while `waiting` events wait."""
        if waiting <= self._low:
            self.closed = False
        elif waiting > self._high:
            self.closed = True
        return not self.closed

    def waiting_seconds(self, waiting: int) -> float:
        """Returns the seconds that the loop takes for `waiting` events."""
        return waiting / self._pace.rate

    def refuse(self, waiting: int) -> OverloadedError:
        """Counts an append that is refused while `waiting` events wait, and returns its error."""
        self.refused += 1
        retry_after = min(_LONGEST_RETRY, self.waiting_seconds(max(1, waiting - int(self._low))))
        return OverloadedError(
            f"{self.explain(waiting)}. Nothing was logged: append them again in "
            f"{max(1, math.ceil(retry_after))} s",
            retry_after=retry_after,
        )

    def explain(self, waiting: int) -> str:
        """Returns why events are refused while `waiting` events wait."""
        return (
            f"events must be appended no faster than they are applied: at most {self._high:,.0f} may wait, "
            f"got {waiting:,}"
        )
