"""The entries of one node type in a cache of features: columns, and an index from row numbers to slots.

    slot     0      1      2   ...  n - 1                 index   place  h(row)  +1  +3  +6 ...
    row    [ 17 ]  [ 4 ]  [ 90 ]                                  [ 0: free | -1: gone | slot + 1 ]
    degree, notes, features: as wide as they are

Columns lie in mappings, whose pages are given back to the system when what they held is removed. Where they
lie is not the table's business: in memory of this process (`OwnColumn`), or in memory that processes share.

Invariants: slots 0 to n - 1 are in use. The index has a power of two of places, of which a quarter are free:
a row is found where steps of growing length from its own place lead, before the first free place. `state` has
n, the number of places, and how many of them are gone.

Thread safety: none; whoever has the table lets one writer, or several readers, use it.
"""

import mmap
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np

from livegnn.types import FloatArray, IntArray

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64, UInt8
    from numpy.typing import DTypeLike, NDArray

STATE: Final = 3
"""Numbers of a table's state."""

PLACES: Final = 4
"""Places of the index for each entry, at most."""

_N, _SIZE, _GONE = range(STATE)
_LEAST = 64  # places
_BLOCK = 4096  # rows that are moved at once: they need memory of their own meanwhile
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class Column(Protocol):
    """An array whose first rows are in use."""

    array: "NDArray[np.generic]"

    def reserve(self, rows: int) -> None:
        """Makes room for so many rows. Raises MemoryError, and is as before then."""

    def release(self, rows: int) -> None:
        """Gives back what lies behind so many rows."""


MakeColumn: TypeAlias = "Callable[[DTypeLike, tuple[int, ...], int], Column]"
"""Makes a column of rows of a type and a shape, of which there are so many for each entry at most."""


class OwnColumn:
    """A column in memory of this process. Pages that were never written take none, so it grows in large
    steps."""

    def __init__(self, type_: "DTypeLike", shape: tuple[int, ...], each: int = 1) -> None:
        self._type, self._shape = np.dtype(type_), shape
        self._row_bytes = self._type.itemsize * prod(shape)
        self._map = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.array = self._view()

    def reserve(self, rows: int) -> None:
        size = self._row_bytes * rows
        if size > len(self._map) and not self._remap(size + size // 4) and not self._remap(size):
            raise MemoryError(f"no memory for {size} bytes of features in the cache")

    def release(self, rows: int) -> None:
        used = _in_pages(self._row_bytes * rows)
        if used < len(self._map):
            self._map.madvise(mmap.MADV_DONTNEED, used, len(self._map) - used)

    def _remap(self, size: int) -> bool:
        """Whether the system has made the mapping this large; if not, it is as before."""
        del self.array  # a mapping with a view of it cannot be resized
        try:
            self._map.resize(_in_pages(size))
        except OSError:
            return False
        else:
            return True
        finally:
            self.array = self._view()

    def _view(self) -> "NDArray[np.generic]":
        """All of the mapping, as rows."""
        rows = len(self._map) // self._row_bytes if self._row_bytes else 2**31
        return np.ndarray((rows, *self._shape), self._type, self._map)


class FeatureTable:
    """width: of the features. noted: how many bytes are noted with an entry. make: where columns lie.
    state: where the table's state lies, zeros at first."""

    def __init__(self, width: int, noted: int, make: MakeColumn, state: "Int64[IntArray, '3']") -> None:
        self.width, self.noted = width, noted
        self._state = state
        self._row, self._degree = make(np.int64, (), 1), make(np.int64, (), 1)
        self._notes = make(np.uint8, (noted,), 1)
        self._features = make(np.float32, (width,), 1)
        self._places = make(np.int32, (), PLACES)

    def __len__(self) -> int:
        return int(self._state[_N])

    @property
    def entry_bytes(self) -> int:
        return entry_bytes(self.width, self.noted)

    @property
    def degree(self) -> "Int64[IntArray, 'entries']":
        return _ints(self._degree)[: len(self)]

    @property
    def features(self) -> "Float32[FloatArray, 'entries width']":
        return _floats(self._features)[: len(self)]

    @property
    def notes(self) -> "UInt8[NDArray[np.uint8], 'entries noted']":
        found: NDArray[np.uint8] = self._notes.array[: len(self)]  # type: ignore[assignment]
        return found

    def find(self, rows: "Int64[IntArray, 'rows']") -> "Int64[IntArray, 'rows']":
        """The slot of each row number, -1 where there is none."""
        if not len(self):
            return np.full(len(rows), -1, np.int64)
        at = self._locate(rows)
        return np.where(at < 0, -1, self._index()[at].astype(np.int64) - 1)

    def append(
        self,
        rows: "Int64[IntArray, 'rows']",
        features: "Float32[FloatArray, 'nodes width']",
        chosen: "Int64[IntArray, 'rows']",
        degrees: "Int64[IntArray, 'rows']",
        notes: "UInt8[NDArray[np.uint8], 'rows noted']",
    ) -> None:
        """Adds entries for `rows`, each once, whose features are those at `chosen`. Requires: none is there.
        Raises MemoryError, and has no entry more then."""
        before = len(self)
        after = before + len(rows)
        for column in (self._row, self._degree, self._notes, self._features):
            column.reserve(after)
        taken = after + int(self._state[_GONE])
        if 4 * taken > 3 * int(self._state[_SIZE]):
            self._rebuild(after)
        _copy_rows(features, chosen, _floats(self._features)[before:after])
        _ints(self._row)[before:after] = rows
        _ints(self._degree)[before:after] = degrees
        self._notes.array[before:after] = notes
        self._enter(rows, np.arange(before, after))
        self._state[_N] = after

    def drop(self, slots: "Int64[IntArray, 'slots']") -> None:
        """Removes entries, and moves the last ones to where they were. slots: each once."""
        if not len(slots):
            return
        before = len(self)
        if len(slots) == before:
            self.clear()
            return
        left = before - len(slots)
        gone = np.zeros(before, np.bool_)
        gone[slots] = True
        holes = np.flatnonzero(gone[:left])
        movers = left + np.flatnonzero(~gone[left:])
        row, places = _ints(self._row), self._index()
        moved = self._locate(row[movers])
        places[self._locate(row[slots])] = -1
        places[moved] = holes + 1
        self._state[_GONE] += len(slots)
        for begin in range(0, len(holes), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            self._features.array[holes[block]] = self._features.array[movers[block]]
        for column in (self._row, self._degree, self._notes):
            column.array[holes] = column.array[movers]
        self._state[_N] = left
        for column in (self._row, self._degree, self._notes, self._features):
            column.release(left)
        if 4 * PLACES * left < int(self._state[_SIZE]):
            self._rebuild(left)

    def clear(self) -> None:
        """Removes all entries, and gives their memory back."""
        self._state[:] = 0
        for column in (self._row, self._degree, self._notes, self._features, self._places):
            column.release(0)

    # -- the index

    def _index(self) -> "NDArray[np.int32]":
        places: NDArray[np.int32] = self._places.array[: int(self._state[_SIZE])]  # type: ignore[assignment]
        return places

    def _homes(self, rows: IntArray) -> IntArray:
        """Where the search for each row number begins."""
        bits = int(self._state[_SIZE]).bit_length() - 1
        return ((rows.view(np.uint64) * _SPREAD) >> np.uint64(64 - bits)).view(np.int64)

    def _locate(self, rows: IntArray) -> IntArray:
        """The place of each row number, -1 where there is none."""
        places, row = self._index(), _ints(self._row)
        rows = np.ascontiguousarray(rows)
        at, step = self._homes(rows), 0
        hit, left = _compare(places.take(at), row, rows)
        found, which = np.where(hit, at, -1), left
        while len(left):
            step += 1
            at, rows = (at.take(left) + step) & (len(places) - 1), rows.take(left)
            hit, left = _compare(places.take(at), row, rows)
            got = np.flatnonzero(hit)
            found[which.take(got)] = at.take(got)
            which = which.take(left)
        return found

    def _enter(self, rows: IntArray, slots: IntArray) -> None:
        """Gives places to row numbers that have none."""
        places = self._index()
        marks = (slots + 1).astype(np.int32)
        at, step, reused = self._homes(np.ascontiguousarray(rows)), 0, 0
        while len(at):
            there = places[at]
            free = there <= 0
            places[at[free]] = marks[free]  # of several that want one place, the last gets it
            got = places[at] == marks
            reused += int(np.count_nonzero(got & (there < 0)))
            left = np.flatnonzero(~got)
            step += 1
            at, marks = (at[left] + step) & (len(places) - 1), marks[left]
        self._state[_GONE] -= reused

    def _rebuild(self, entries: int) -> None:
        """Makes the index large enough for so many entries, and enters those that are there anew."""
        size = max(1 << (2 * entries - 1).bit_length(), _LEAST) if entries else _LEAST
        self._places.reserve(size)
        self._state[_SIZE], self._state[_GONE] = size, 0
        self._index()[:] = 0
        self._places.release(size)
        self._enter(_ints(self._row)[: len(self)].copy(), np.arange(len(self)))


def _compare(
    marks: "NDArray[np.int32]", row: IntArray, rows: IntArray
) -> "tuple[NDArray[np.bool_], IntArray]":
    """Which rows are at the slots of these marks, and where to look further for others."""
    # A free place looks like slot 0 here; no row is there, for all that.
    hit = (row.take(marks - 1, mode="clip") == rows) & (marks > 0)
    return hit, np.flatnonzero(~hit & (marks != 0))


def entry_bytes(width: int, noted: int) -> int:
    """Of an entry with its places in the index."""
    return 4 * width + 8 + 8 + noted + 4 * PLACES


def _copy_rows(source: FloatArray, chosen: IntArray, into: FloatArray) -> None:
    """In one pass, without a copy on the way."""
    if into.size:
        np.take(source, chosen, axis=0, out=into, mode="clip")


def _ints(column: Column) -> IntArray:
    array: IntArray = column.array  # type: ignore[assignment]
    return array


def _floats(column: Column) -> FloatArray:
    array: FloatArray = column.array  # type: ignore[assignment]
    return array


def _in_pages(size: int) -> int:
    return max(-(-size // mmap.PAGESIZE), 1) * mmap.PAGESIZE
