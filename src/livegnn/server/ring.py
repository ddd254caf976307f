"""A list whose oldest items are dropped when it has too many bytes. Each reader keeps its own position in it,
so that a slow reader costs nothing.
"""

from collections import deque
from typing import Generic, NamedTuple, TypeVar

_Item = TypeVar("_Item")


class _Kept(NamedTuple, Generic[_Item]):
    seq: int
    item: _Item
    nbytes: int
    needed_before: int


class Ring(Generic[_Item]):
    """The latest items, each with the event that it is of, in order. The newest item is kept however large it
    is. Thread safety: the caller holds a lock.

    capacity: bytes of all items. floor: the event after which nothing has been dropped.
    """

    def __init__(self, capacity: int, floor: int) -> None:
        self._capacity, self.floor = capacity, floor
        self._kept: deque[_Kept[_Item]] = deque()
        self.nbytes = 0
        self.begin = 0
        """The position of the oldest item."""

    @property
    def end(self) -> int:
        """The position that the next item will have."""
        return self.begin + len(self._kept)

    def append(self, seq: int, item: _Item, nbytes: int, needed_before: int | None = None) -> None:
        """Adds an item, and drops the oldest ones for which there is no room.

        needed_before: a reader that knows an earlier event than this needs the item; by default `seq`.
        """
        self._kept.append(_Kept(seq, item, nbytes, seq if needed_before is None else needed_before))
        self.nbytes += nbytes
        while self.nbytes > self._capacity and len(self._kept) > 1:
            self._drop()

    def at(self, position: int) -> tuple[int, _Item]:
        """An item and its event. Requires: begin <= position < end."""
        kept = self._kept[position - self.begin]
        return kept.seq, kept.item

    def after(self, seq: int) -> int:
        """The position of the first item of an event after `seq`."""
        position = self.end
        for kept in reversed(self._kept):
            if kept.seq <= seq:
                break
            position -= 1
        return position

    def clear(self, floor: int) -> None:
        """Drops everything, and counts as one more dropped item: something up to event `floor` is unknown."""
        while self._kept:
            self._drop()
        self.floor = max(self.floor, floor)
        self.begin += 1

    def _drop(self) -> None:
        dropped = self._kept.popleft()
        self.nbytes -= dropped.nbytes
        self.floor = max(self.floor, dropped.needed_before)
        self.begin += 1
