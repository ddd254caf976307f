"""The newest events of the log, in memory, so that whoever keeps up with it does not ask the broker for them.

Thread safety: none, the log's lock protects it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from livegnn.log.kafka.ordered_writes import Taken

_KEPT_EVENTS: Final = 1 << 19
"""So many are there at least, once that many came, and twice as many at most."""


class RecentEvents:
    """What was taken last, without a gap."""

    def __init__(self) -> None:
        self._taken: list[Taken] = []
        self._ends: list[int] = []  # the last event of each

    def add(self, taken: Taken) -> None:
        """Adds what was taken after all others."""
        self._taken.append(taken)
        self._ends.append(taken.order.seq)
        if self._ends[-1] - self._ends[0] > 2 * _KEPT_EVENTS:
            first = bisect_right(self._ends, self._ends[-1] - _KEPT_EVENTS)
            del self._taken[:first], self._ends[:first]

    def find(self, after: int, up_to: int) -> Sequence[Taken] | None:
        """What has the events after `after`, up to `up_to` at least; None if not all of them are there."""
        if not self._taken or self._taken[0].order.after > after:
            return None
        first = bisect_right(self._ends, after)
        return self._taken[first : bisect_left(self._ends, up_to) + 1]
