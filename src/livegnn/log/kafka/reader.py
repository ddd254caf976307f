"""Reads events that are not in memory any more: a follower that begins at an earlier point.

It stays where it is between calls, so that a replay, which asks for one part after the other, reads each
message once. Thread safety: none.
"""

import itertools
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import livegnn._core as _core
from livegnn.errors import LogError
from livegnn.log.kafka.connection import Connection
from livegnn.log.kafka.follower import Follower
from livegnn.log.kafka.history import History, Point
from livegnn.log.kafka.ordered_writes import Taken

_SECONDS: Final = 60.0  # that the broker may take to send more


class Reader:
    """timeout: seconds for which a read may get nothing before it is given up."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self._connection, self._timeout = connection, timeout
        self._follower: Follower | None = None
        self._taken: deque[Taken] = deque()
        self._end = 0

    @property
    def reads(self) -> bool:
        """Whether it has a connection."""
        return self._follower is not None

    def read(self, point: Point, lows: Mapping[int, int], after: int, up_to: int) -> Sequence[Taken]:
        """What was taken from event `after` to `up_to` at least. point: one before, to begin at.

        If it raises it forgets what was read: an interrupt may have lost a part of that.
        """
        return _core.settled(self._read, self.close, point, lows, after, up_to)

    def _read(self, point: Point, lows: Mapping[int, int], after: int, up_to: int) -> Sequence[Taken]:
        known = self._follower is not None and self._follower.lows.keys() >= lows.keys()
        if self._follower is None or not known or not self._covers(after) or self._end < point.seq:
            self.close()
            self._follower = Follower(self._connection, History.at(point), lows)
            self._end = point.seq
        while self._taken and self._taken[0].order.seq <= after:
            self._taken.popleft()
        deadline = time.monotonic() + self._timeout
        while self._end < up_to:
            for taken in self._follower.poll(0.1):
                self._end = taken.order.seq
                if self._end > after:
                    self._taken.append(taken)
                deadline = time.monotonic() + self._timeout
            if time.monotonic() > deadline:
                raise LogError(
                    f"{self._connection.name} must hold events {after + 1} to {up_to}, got those up to "
                    f"{self._end} within {self._timeout:g} seconds: is the broker there?"
                )
        return list(itertools.takewhile(lambda taken: taken.order.after < up_to, self._taken))

    def _covers(self, after: int) -> bool:
        begin = self._taken[0].order.after if self._taken else self._end
        return begin <= after

    def close(self) -> None:
        """Ends the connection, and forgets what was read; again does nothing."""
        follower, self._follower = self._follower, None
        self._taken.clear()
        self._end = 0
        if follower is not None:
            follower.close()


def skim(connection: Connection, history: History, end: int) -> None:
    """Takes into account what the control topic says from where `history` is up to offset `end`."""
    if history.next >= end:
        return
    follower = Follower(connection, history, {})
    try:
        follower.skim_to(end, _SECONDS)
    finally:
        follower.close()
