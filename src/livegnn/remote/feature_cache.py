"""Features of nodes that earlier requests have fetched, as many as fit into a number of bytes.

An entry is a row number, its features, the degree of the node, and bytes that its owner notes with it.
Entries of the smallest degree are evicted first, because the neighbourhoods of other requests reach them
least often (FaaS-GNN, section 4.3), and only as many as necessary.

    worker 1: limit - what its request takes ─┐
    worker 2: limit                           ├─► room for the one cache
    worker 3: limit - what its request takes ─┘

Entries lie in memory of one predictor, or in memory that it shares with other workers of its machine
(`SharedMemory`): then no row is fetched by each worker, or kept twice. Invariants: the memory holds rows of
the snapshot that it names; a worker with another snapshot reads nothing and changes nothing. All entries
together take at most the memory that the workers leave; a worker that has ended leaves nothing. A worker that
finds an unfinished change trusts none of the contents.

Thread safety: a `FeatureCache` belongs to one thread; those of other threads and processes, in the same
memory, may be used meanwhile. A worker that waits for the lock too long continues as if it were empty.
"""

import errno
import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

import numpy as np

from livegnn._core import RowCache
from livegnn.types import FloatArray, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Int64, UInt8
    from numpy.typing import NDArray

    from livegnn.remote.shared_memory import SharedMemory

_LAYOUT: Final = 2  # of the memory: one that says another has nothing for us
_LEAST: Final = 64  # entries of a node type
_MOST_ROOM: Final = 1 << 50  # bytes: where there is no limit
_STATE: Final = 2  # numbers of a node type


class _OwnMemory:
    """A replacement of `SharedMemory` for a cache of a single worker: no lock is waited for."""

    left_by_others: Final = 0

    def __init__(self) -> None:
        self.shown = bytes(32)

    def leave(self, room: int) -> None:
        """Does nothing: no other worker uses this cache."""

    def reading(self) -> AbstractContextManager[bool]:
        return nullcontext(True)

    changing = reading

    def restart(self, shown: bytes) -> None:
        self.shown = shown


class FeatureCache:
    """widths: of the features of each node type. notes: the number of bytes noted with an entry, for types
    that have notes. memory: where entries lie; None: in memory of this process. owner: names everything else
    that decides the notes; caches of different owners share no entry. Raises OSError if the memory has no
    space for all node types.

    The `room` of methods is the memory that this worker leaves to the cache.
    """

    def __init__(
        self,
        widths: Mapping[NodeType, int],
        notes: Mapping[NodeType, int] | None = None,
        memory: "SharedMemory | None" = None,
        owner: str = "",
    ) -> None:
        self._noted = dict(notes or {})
        types = [(width, self._noted.get(name, 0)) for name, width in widths.items()]
        self._types = {name: number for number, name in enumerate(widths)}
        self._kind = [_LAYOUT, owner, list(widths.items()), list(self._noted.items())]
        self._shown = bytes(32)
        self._memory: SharedMemory | _OwnMemory = _OwnMemory() if memory is None else memory
        if memory is None:
            self._rows = RowCache(types)
            return
        self._rows = RowCache(types, memory.columns, memory.states(_STATE * len(types)))
        if min(map(self._rows.most, range(len(types))), default=_LEAST) < _LEAST:
            raise OSError(errno.ENOSPC, f"{memory.size} bytes have no space for {len(types)} tables")

    def __len__(self) -> int:
        """The number of entries."""
        return 0 if self.shows_another() else len(self._rows)

    @property
    def bytes(self) -> int:
        """Bytes of all entries, with their places in the index."""
        return 0 if self.shows_another() else self._rows.bytes()

    def entry_bytes(self, node_type: NodeType) -> int:
        """The bytes of one entry."""
        return self._rows.entry_bytes(self._types[node_type])

    def show(self, identity: str) -> None:
        """Row numbers are those of this snapshot from now on. Entries of another snapshot are removed."""
        self._shown = hashlib.sha256(json.dumps([identity, *self._kind]).encode()).digest()
        if self.shows_another():
            with self._memory.changing() as held:
                if held:
                    self._rows.clear()
                    self._memory.restart(self._shown)

    def shows_another(self) -> bool:
        """Whether another predictor has made it show another snapshot since."""
        return self._memory.shown != self._shown

    def exceeds(self, room: int) -> bool:
        """Whether there are entries for which there is no room."""
        return len(self) > 0 and self.bytes > self._room_of_all(room)

    def leave(self, room: int) -> None:
        """Says how much room there is until something else is said."""
        self._memory.leave(min(room, _MOST_ROOM))

    def read(
        self, node_type: NodeType, rows: "Int64[IntArray, 'rows']", out: "Float32[FloatArray, 'rows width']"
    ) -> "Bool[NDArray[np.bool_], 'rows']":
        """Writes the features of those nodes that are there into their rows of `out`, anything into the other
        rows, and says which are there."""
        with self._memory.reading() as whole:
            if whole and not self.shows_another():
                return self._rows.read(self._types[node_type], rows, out)
        return np.zeros(len(rows), np.bool_)

    def read_notes(
        self, node_type: NodeType, rows: "Int64[IntArray, 'rows']"
    ) -> "tuple[Bool[NDArray[np.bool_], 'rows'], UInt8[NDArray[np.uint8], 'rows noted']]":
        """The nodes that have an entry, and the bytes that are noted with them; any bytes for the others."""
        with self._memory.reading() as whole:
            if whole and not self.shows_another():
                return self._rows.read_notes(self._types[node_type], rows)
        return np.zeros(len(rows), np.bool_), np.zeros((len(rows), self._noted.get(node_type, 0)), np.uint8)

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
        """Adds entries, and keeps as many of all as there is room for: those of the greatest degrees, of
        equal ones those that were there. Returns how many were evicted.

        rows: each once. features: those of node i at ``features[at[i]]``. notes: None where nothing is noted.
        A node that is there is left as it is.
        """
        self.leave(room)
        if not len(rows) and not self.exceeds(room):
            return 0
        with self._memory.changing() as held:
            if not held or self.shows_another():
                return 0
            given = self._types[node_type], rows, features, at, degrees, notes
            try:
                return self._rows.insert(*given, self._room_of_all(room))
            except MemoryError:
                size = self.bytes + len(rows) * self.entry_bytes(node_type)
                raise MemoryError(f"no memory for {size} bytes of features in the cache") from None

    def evict(self, room: int, keep: "Mapping[NodeType, Int64[IntArray, '_']]") -> int:
        """Removes as few entries as need be until there is room for all, those of the smallest degrees first.
        Returns how many.

        keep: row numbers that stay; if they are too many by themselves, only the others go.
        """
        self.leave(room)
        if not self.exceeds(room):
            return 0
        with self._memory.changing() as held:
            if not held or self.shows_another():
                return 0
            kept = [(self._types[name], rows) for name, rows in keep.items()]
            return self._rows.evict(self._room_of_all(room), kept)

    def _room_of_all(self, room: int) -> int:
        return room + self._memory.left_by_others
