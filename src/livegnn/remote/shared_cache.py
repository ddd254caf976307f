"""One cache of features for all workers of a machine: no row is fetched by each, and none is kept twice.

    worker 1: limit - what its request takes ─┐
    worker 2: limit                           ├─► room for the one cache
    worker 3: limit - what its request takes ─┘

Tables are those of a private cache, in `SharedMemory`. Invariants: what is in memory is of the snapshot that
it says; whoever has another one reads nothing and changes nothing. All entries together take no more than the
workers leave, each of them its limit less what its request takes; a worker that has ended leaves nothing. Who
finds a change unfinished takes nothing for true.

Thread safety: a `SharedFeatureCache` belongs to one thread; those of other threads and processes may be used
meanwhile. A worker that waits for the lock too long goes on as if the cache were empty.
"""

import errno
import hashlib
import json
import mmap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from livegnn.remote.feature_cache import FeatureCache
from livegnn.remote.feature_table import PLACES, STATE, Column, entry_bytes
from livegnn.remote.shared_memory import HEAD, SharedMemory
from livegnn.types import FloatArray, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Int64, UInt8
    from numpy.typing import DTypeLike, NDArray

_COLUMNS = 5  # of a table
_LEAST = 64  # entries of one
_MOST_ROOM = 1 << 50  # bytes: where there is no limit


class SharedFeatureCache:
    """`CachedFeatures` in the memory of several workers; room is what one of them leaves.

    widths, notes: as `FeatureCache` takes them. owner: names what else decides what is noted; those of
    another owner have nothing in common. Raises OSError if so many tables have no space in the memory.
    """

    def __init__(
        self, memory: SharedMemory, widths: Mapping[NodeType, int], notes: Mapping[NodeType, int], owner: str
    ) -> None:
        self._memory = memory
        self._kind = [owner, list(widths.items()), list(notes.items())]
        self._shown = bytes(32)
        layout = _Layout(memory, widths, notes)
        self._most = layout.most
        self._cache = FeatureCache(widths, notes, layout.make, memory.states(len(widths), STATE))

    def __len__(self) -> int:
        return len(self._cache) if self._memory.shown == self._shown else 0

    @property
    def bytes(self) -> int:
        return self._cache.bytes if self._memory.shown == self._shown else 0

    def show(self, identity: str) -> None:
        self._shown = hashlib.sha256(json.dumps([identity, *self._kind]).encode()).digest()
        if self.shows_another():
            with self._memory.changing() as held:
                if held:
                    self._memory.restart(self._shown)

    def shows_another(self) -> bool:
        return self._memory.shown != self._shown

    def exceeds(self, room: int) -> bool:
        return len(self) > 0 and self.bytes > self._room_of_all(room)

    def leave(self, room: int) -> None:
        self._memory.leave(min(room, _MOST_ROOM))

    def read(
        self, node_type: NodeType, rows: "Int64[IntArray, 'rows']", out: "Float32[FloatArray, 'rows width']"
    ) -> "Bool[NDArray[np.bool_], 'rows']":
        with self._reading() as there:
            return self._cache.read(node_type, rows, out) if there else np.zeros(len(rows), np.bool_)

    def read_notes(
        self, node_type: NodeType, rows: "Int64[IntArray, 'rows']"
    ) -> "tuple[Bool[NDArray[np.bool_], 'rows'], UInt8[NDArray[np.uint8], 'rows noted']]":
        with self._reading() as there:
            if there:
                return self._cache.read_notes(node_type, rows)
        return np.zeros(len(rows), np.bool_), np.zeros((len(rows), self._cache.noted(node_type)), np.uint8)

    def insert(
        self,
        node_type: NodeType,
        rows: "Int64[IntArray, 'rows']",
        features: "Float32[FloatArray, 'nodes width']",
        at: "Int64[IntArray, 'rows']",
        degrees: "Int64[IntArray, 'rows']",
        notes: "UInt8[NDArray[np.uint8], 'rows noted'] | None" = None,
        *,
        room: int,
    ) -> int:
        self.leave(room)
        if not len(rows):
            return 0
        with self._changing() as there:
            if not there or self._cache.entries(node_type) + len(rows) > self._most[node_type]:
                return 0
            most = self._room_of_all(room)
            return self._cache.insert(node_type, rows, features, at, degrees, notes, room=most)

    def evict(self, room: int, keep: "Mapping[NodeType, Int64[IntArray, '_']]") -> int:
        self.leave(room)
        if not self.exceeds(room):
            return 0
        with self._changing() as there:
            return self._cache.evict(self._room_of_all(room), keep) if there else 0

    def _room_of_all(self, room: int) -> int:
        return room + self._memory.left_by_others

    @contextmanager
    def _reading(self) -> Iterator[bool]:
        with self._memory.reading() as held:
            yield held and not self.shows_another()

    @contextmanager
    def _changing(self) -> Iterator[bool]:
        with self._memory.changing() as held:
            yield held and not self.shows_another()


class _Layout:
    """Where the columns of all tables lie, one behind the other. Each table may fill an equal part of the
    memory. most: how many entries each may have. Raises OSError if that is next to nothing."""

    def __init__(
        self, memory: SharedMemory, widths: Mapping[NodeType, int], notes: Mapping[NodeType, int]
    ) -> None:
        self._map, self._end = memory.map, HEAD
        part = (memory.size - HEAD) // max(len(widths), 1) - _COLUMNS * mmap.PAGESIZE
        self.most = {
            name: min(max(part, 0) // entry_bytes(width, notes.get(name, 0)), 2**31 // PLACES - 1)
            for name, width in widths.items()
        }
        if min(self.most.values(), default=_LEAST) < _LEAST:
            raise OSError(errno.ENOSPC, f"{memory.size} bytes have no space for {len(widths)} tables")
        self._rows = [most for most in self.most.values() for _ in range(_COLUMNS)]

    def make(self, type_: "DTypeLike", shape: tuple[int, ...], each: int) -> Column:
        """The next column."""
        column = _SharedColumn(self._map, self._end, self._rows.pop(0) * each, type_, shape)
        self._end = column.end
        return column


class _SharedColumn:
    """A column of fixed length in memory that processes share. It begins and ends with pages."""

    def __init__(
        self, memory: mmap.mmap, begin: int, rows: int, type_: "DTypeLike", shape: tuple[int, ...]
    ) -> None:
        self._map, self._begin, self._rows = memory, begin, rows
        self.array: NDArray[np.generic] = np.ndarray((rows, *shape), type_, memory, begin)
        self._row_bytes = self.array.itemsize * prod(shape)
        self.end = _in_pages(begin + self._row_bytes * rows)

    def reserve(self, rows: int) -> None:
        if rows > self._rows:
            raise MemoryError(f"expected at most {self._rows} rows of a column, got {rows}")

    def release(self, rows: int) -> None:
        begin = _in_pages(self._begin + self._row_bytes * rows)
        if begin < self.end:
            self._map.madvise(mmap.MADV_REMOVE, begin, self.end - begin)


def _in_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
