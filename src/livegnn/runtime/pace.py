"""How many events a batch takes, so that events are visible within an objective, and as many as possible.

With nothing behind it a batch begins at once, with whatever waits. A larger one costs less for each event
and keeps the events that come meanwhile waiting for longer. So:

    all that waits          if it can be visible before the oldest event has waited for the objective
    the most that can be    if the rest then is in time too, or if that costs next to nothing
    the most a second       if not: the objective is missed, and this makes up for it soonest

Invariants: a size is at least 1. It never grows beyond twice what was measured, so that the first backlog is
no leap. Boundaries are recorded in the log, so a replay asks nothing of this. Thread safety: the loop alone
chooses and learns; figures may be read by any thread.
"""

from collections.abc import Callable
from typing import Final

from livegnn.arguments import check_int, check_positive
from livegnn.runtime.batch_cost import BatchCost

_SURE: Final = 2.33  # standard deviations: 99 of 100 batches are shorter
_NEARLY: Final = 0.95  # of the most events a second
_TRIED: Final = 3  # objectives that a batch may take so that one of twice the size is tried
_GROWTH: Final = 2  # times the largest batch that was measured


class Pace:
    """Chooses the sizes of batches of at most `most` events.

    freshness_ms: the objective, from append to visible; None: each batch takes up to `most` of what waits.
    Raises InputError if a setting makes no sense.
    """

    def __init__(self, most: int, freshness_ms: float | None = None) -> None:
        self.most = check_int(most, "max_batch_events", 1)
        if freshness_ms is not None:
            check_positive(freshness_ms, "freshness_ms, in milliseconds or None,")
        self.objective = None if freshness_ms is None else freshness_ms / 1000
        """In seconds, None if there is none."""
        self.cost = BatchCost(self.most)
        self.predicted_seconds = self.measured_seconds = 0.0  # of the last batch
        self._known = 1

    def choose(self, waiting: int, age: Callable[[], float]) -> int:
        """The events that the next batch takes at most, of those `waiting`; `age` says for how many seconds
        the oldest of them has waited.
        """
        if self.objective is None or waiting < 1:
            return self.most
        limit, waited = min(waiting, self.most, _GROWTH * self._known), age()
        in_time = self.cost.largest(limit, self.objective - waited, _SURE)
        if in_time == limit:
            return limit
        quickest = self._find_quickest(limit, self.objective)
        if in_time:
            rest = waiting - in_time
            seconds = self.cost.seconds(in_time, _SURE) + self.cost.seconds(rest, _SURE)
            # The oldest of the rest has waited for less; events come evenly, as far as anybody knows.
            if seconds <= self.objective - waited * rest / waiting or self._loses_little(in_time, quickest):
                return in_time
        return quickest

    def _find_quickest(self, limit: int, objective: float) -> int:
        """The batch with the most events a second. What was never measured is tried, as the rate may fall and
        rise again: a batch of a few events may miss all hubs, one of thousands shares what they cost.
        """
        if limit > self._known and self.cost.seconds(self._known) <= _TRIED * objective:
            return limit
        return self.cost.quickest(limit)

    def _loses_little(self, size: int, quickest: int) -> bool:
        return size * self.cost.seconds(quickest) >= _NEARLY * quickest * self.cost.seconds(size)

    def learn(self, events: int, seconds: float) -> None:
        """Takes in that a batch of `events` took `seconds`."""
        self.predicted_seconds, self.measured_seconds = self.cost.seconds(events), seconds
        self._known = max(self._known, events)
        self.cost.learn(events, seconds)

    @property
    def size(self) -> int:
        """The largest batch under steady load: an event may wait for one batch, and is in the next."""
        if self.objective is None:
            return self.most
        limit = min(self.most, _GROWTH * self._known)
        in_time = max(1, self.cost.largest(limit, self.objective / 2, _SURE))
        return min(in_time, self.cost.quickest(limit))

    @property
    def rate(self) -> float:
        """The most events a second, as far as can be hoped."""
        return self.cost.rate(self.most)
