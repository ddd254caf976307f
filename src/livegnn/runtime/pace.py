"""The number of events in a batch, so that events are visible within an objective, and as many as possible.

Without a backlog a batch begins at once, with all waiting events. A larger one costs less for each event, but
the events that are appended meanwhile wait longer. So:

    all that waits          if it can be visible before the oldest event has waited for the objective
    the most that can be    if the rest then is in time too, or if that costs next to nothing
    the most a second       if not: the objective is missed, and this makes up for it soonest

Invariants: a size is at least 1. It never grows beyond twice the largest measured one, so that the first
backlog does not make it jump. Boundaries are recorded in the log, so a replay chooses no sizes. Thread
safety: the loop alone chooses and learns; figures may be read by any thread.
"""

from collections.abc import Callable
from typing import Final

from livegnn.arguments import check_int, check_positive
from livegnn.runtime.batch_cost import BatchCost

_SURE: Final = 2.33  # standard deviations: 99 of 100 batches are shorter
_NEARLY: Final = 0.95  # of the highest rate
_TRIED: Final = 3  # times the objective: a batch that takes at most this lets twice its size be tried
_GROWTH: Final = 2  # times the largest batch that was measured


class Pace:
    """The choice of the sizes of batches of at most `most` events.

    freshness_ms: the objective, from append to visible; None: each batch takes up to `most` of the waiting
    events. Raises InputError if a setting is not valid.
    """

    def __init__(self, most: int, freshness_ms: float | None = None) -> None:
        self.most = check_int(most, "max_batch_events", 1)
        if freshness_ms is not None:
            check_positive(freshness_ms, "freshness_ms, in milliseconds or None,")
        self.objective = None if freshness_ms is None else freshness_ms / 1000
        """The objective in seconds, None if there is none."""
        self.cost = BatchCost(self.most)
        self.predicted_seconds = self.measured_seconds = 0.0  # of the last batch
        self._known = 1

    def choose(self, waiting: int, age: Callable[[], float]) -> int:
        """Returns the most events that the next batch takes, of the `waiting` ones; `age` returns the seconds
        that the oldest of them has waited.
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
            # The oldest of the rest has waited for less; events are assumed to arrive evenly.
            if seconds <= self.objective - waited * rest / waiting or self._loses_little(in_time, quickest):
                return in_time
        return quickest

    def _find_quickest(self, limit: int, objective: float) -> int:
        """Returns the batch with the most events a second. Sizes that were never measured are tried, as the
        rate may fall and rise again: a batch of a few events may miss all hubs, one of thousands shares their
        cost.
        """
        if limit > self._known and self.cost.seconds(self._known) <= _TRIED * objective:
            return limit
        return self.cost.quickest(limit)

    def _loses_little(self, size: int, quickest: int) -> bool:
        return size * self.cost.seconds(quickest) >= _NEARLY * quickest * self.cost.seconds(size)

    def learn(self, events: int, seconds: float) -> None:
        """Updates the cost with a batch of `events` that took `seconds`."""
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
        """The most events a second, by an optimistic estimate."""
        return self.cost.rate(self.most)
