"""Features of nodes that earlier requests have fetched, as many as fit into a number of bytes.

An entry is a row number, its features, the degree of the node, and numbers that its owner notes with it.
Entries of the smallest degree go first, because the neighbourhoods of other requests reach them least often
(FaaS-GNN, section 4.3), and only as many as must.

Features lie in a mapping of their own, whose pages are given back to the system when what they held is
evicted. Invariants of a table: slots 0 to n - 1 are in use; `keys` are their row numbers, sorted, and `slots`
where each of them lies.

Thread safety: none; whoever has the cache lets one thread at a time use it.
"""

import mmap
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from livegnn.types import DoubleArray, FloatArray, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Float64, Int64
    from numpy.typing import NDArray

_BLOCK = 4096  # rows that are moved at once: they need memory of their own meanwhile
_EMPTY = np.zeros(0, np.int64)


class FeatureCache:
    """Features by node type and row number. widths: of the features of each node type. notes: how many
    numbers are noted with an entry, where there are any.

    Numbers are of one snapshot: `clear` the cache before it is asked for those of another.
    """

    def __init__(self, widths: Mapping[NodeType, int], notes: Mapping[NodeType, int] | None = None) -> None:
        self._tables = {name: _Table(width, (notes or {}).get(name, 0)) for name, width in widths.items()}

    def __len__(self) -> int:
        """The number of entries."""
        return sum(len(table) for table in self._tables.values())

    @property
    def bytes(self) -> int:
        """Of all entries, with their places in the index."""
        return sum(len(table) * table.entry_bytes for table in self._tables.values())

    def read(
        self, node_type: NodeType, rows: "Int64[IntArray, 'rows']", out: "Float32[FloatArray, 'rows width']"
    ) -> "Bool[NDArray[np.bool_], 'rows']":
        """Writes the features of those nodes that are there into their rows of `out`, anything into the other
        rows, and says which are there."""
        table = self._tables[node_type]
        slots = table.find(rows)
        found: NDArray[np.bool_] = slots >= 0
        if found.any():
            # In one pass, without a copy on the way; rows that are not there become those of slot 0.
            np.take(table.features, np.maximum(slots, 0), axis=0, out=out, mode="clip")
        return found

    def read_notes(
        self, node_type: NodeType, rows: "Int64[IntArray, 'rows']"
    ) -> "tuple[Bool[NDArray[np.bool_], 'rows'], Float64[DoubleArray, 'rows notes']]":
        """Which nodes are there, and the numbers that are noted with them; any numbers for the others."""
        table = self._tables.get(node_type)
        if table is None or not len(table):
            return np.zeros(len(rows), np.bool_), np.zeros((len(rows), 0 if table is None else table.noted))
        slots = table.find(rows)
        return slots >= 0, table.notes[np.maximum(slots, 0)]

    def insert(
        self,
        node_type: NodeType,
        rows: "Int64[IntArray, 'rows']",
        features: "Float32[FloatArray, 'nodes width']",
        at: "Int64[IntArray, 'rows']",
        degrees: "Int64[IntArray, 'rows']",
        notes: "Float64[DoubleArray, 'rows notes'] | None" = None,
        *,
        most_bytes: int,
    ) -> int:
        """Adds entries, and keeps as many of all as fit into `most_bytes`: those of the greatest degrees, of
        equal ones those that were there. Returns how many were evicted.

        features: those of node i at ``features[at[i]]``. notes: None where nothing is noted. A node that is
        there, or was given before, is left as it is.
        """
        table = self._tables[node_type]
        unique, first = np.unique(rows, return_index=True)
        first = first[table.find(unique) < 0]
        need = self.bytes + len(first) * table.entry_bytes - most_bytes
        if need > 0:
            dropped, refused = self._smallest(need, {}, degrees[first], table.entry_bytes)
            self._drop(dropped)
            first = np.delete(first, refused)
        else:
            dropped = {}
        noted = np.zeros((len(rows), 0)) if notes is None else notes
        table.append(rows[first], features, at[first], degrees[first], noted[first])
        return sum(map(len, dropped.values()))

    def evict(self, most_bytes: int, keep: "Mapping[NodeType, Int64[IntArray, '_']]") -> int:
        """Removes as few entries as need be until all fit into `most_bytes`, those of the smallest degrees
        first. Returns how many.

        keep: row numbers that stay; if they are too many by themselves, only the others go.
        """
        need = self.bytes - most_bytes
        if need <= 0:
            return 0
        dropped, _ = self._smallest(need, keep, _EMPTY, 1)
        self._drop(dropped)
        return sum(map(len, dropped.values()))

    def clear(self) -> None:
        """Removes all entries, and gives their memory back."""
        self._tables = {name: _Table(table.width, table.noted) for name, table in self._tables.items()}

    def _drop(self, slots: Mapping[NodeType, IntArray]) -> None:
        for name, each in slots.items():
            self._tables[name].drop(each)

    def _smallest(
        self,
        need: int,
        keep: Mapping[NodeType, IntArray],
        newcomers: IntArray,
        newcomer_bytes: int,
    ) -> tuple[dict[NodeType, IntArray], IntArray]:
        """The fewest entries of the smallest degrees that take `need` bytes, or all that may go: slots by
        node type, and positions among `newcomers`, the degrees of entries to come, which go first."""
        slots, degrees, sizes = [], [newcomers], [np.full(len(newcomers), newcomer_bytes)]
        for name, table in self._tables.items():
            here = np.arange(len(table))
            kept = table.find(np.asarray(keep[name])) if name in keep else _EMPTY
            if len(kept):
                stays = np.zeros(len(table), np.bool_)
                stays[kept[kept >= 0]] = True
                here = here[~stays]
            slots.append(here)
            degrees.append(table.degree[here])
            sizes.append(np.full(len(here), table.entry_bytes))
        degree, size = np.concatenate(degrees), np.concatenate(sizes)
        count = min(len(size), -(-need // int(size.min()))) if len(size) else 0
        lowest = np.arange(len(size))
        if count < len(size):
            lowest = np.sort(np.argpartition(degree, count)[:count])
        lowest = lowest[np.argsort(degree[lowest], kind="stable")]
        count = int(np.searchsorted(np.cumsum(size[lowest]), need)) + 1
        chosen = np.sort(lowest[:count])
        bounds = np.cumsum([len(newcomers), *map(len, slots)])
        parts = np.split(chosen, np.searchsorted(chosen, bounds))
        found = {
            name: here[part - begin]
            for name, here, part, begin in zip(self._tables, slots, parts[1:], bounds, strict=False)
        }
        return found, parts[0]


class _Table:
    """The entries of one node type."""

    def __init__(self, width: int, noted: int) -> None:
        self.width, self.noted = width, noted
        self.notes = np.zeros((0, noted))
        self.row, self.degree = _EMPTY, _EMPTY
        self._keys, self._slots = _EMPTY, np.zeros(0, np.int32)
        self._map = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._used = mmap.PAGESIZE  # bytes that may have been written, in whole pages
        self.features = self._view()

    def __len__(self) -> int:
        return len(self.row)

    @property
    def entry_bytes(self) -> int:
        own = self.row.itemsize + self.degree.itemsize + 8 + self._slots.itemsize
        return 4 * self.width + own + self.notes.itemsize * self.noted

    def find(self, rows: IntArray) -> IntArray:
        """The slot of each row number, -1 where there is none."""
        if not len(self._keys):
            return np.full(len(rows), -1, np.int64)
        at = np.minimum(np.searchsorted(self._keys, rows), len(self._keys) - 1)
        return np.where(self._keys[at] == rows, self._slots[at], -1).astype(np.int64)

    def append(
        self,
        rows: IntArray,
        features: FloatArray,
        chosen: IntArray,
        degrees: IntArray,
        notes: DoubleArray,
    ) -> None:
        """Adds entries for `rows`, sorted, whose features are those at `chosen`. Requires: none is there."""
        before = len(self)
        self._resize(before + len(rows))
        for begin in range(0, len(chosen), _BLOCK):
            block = chosen[begin : begin + _BLOCK]
            self.features[before + begin : before + begin + len(block)] = features[block]
        self.row = np.concatenate([self.row, rows])
        self.degree = np.concatenate([self.degree, degrees])
        self.notes = np.concatenate([self.notes, notes])
        at = np.searchsorted(self._keys, rows)
        self._keys = np.insert(self._keys, at, rows)
        self._slots = np.insert(self._slots, at, np.arange(before, len(self), dtype=np.int32))

    def drop(self, slots: IntArray) -> None:
        """Removes entries, and moves the last ones to where they were. slots: each once."""
        if not len(slots):
            return
        left = len(self) - len(slots)
        gone = np.zeros(len(self), np.bool_)
        gone[slots] = True
        holes = np.flatnonzero(gone[:left])
        movers = left + np.flatnonzero(~gone[left:])
        for begin in range(0, len(holes), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            self.features[holes[block]] = self.features[movers[block]]
        self.row[holes], self.degree[holes] = self.row[movers], self.degree[movers]
        self.row, self.degree = self.row[:left].copy(), self.degree[:left].copy()
        self.notes[holes] = self.notes[movers]
        self.notes = self.notes[:left].copy()
        stays = ~gone[self._slots]
        self._keys, kept = self._keys[stays], self._slots[stays]
        moved = np.arange(len(gone), dtype=np.int32)
        moved[movers] = holes
        self._slots = moved[kept]
        self._resize(left)

    def _resize(self, entries: int) -> None:
        """Makes room for so many entries, or gives back what lies behind them. Pages that were never written
        take no memory, so the mapping grows in large steps."""
        size = max(4 * self.width * entries, mmap.PAGESIZE)
        if size > len(self._map):
            self._grow(size)
        else:
            used = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            if used < self._used:
                self._map.madvise(mmap.MADV_DONTNEED, used, self._used - used)
        self._used = min(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE, len(self._map))

    def _grow(self, size: int) -> None:
        if not self._remap(size + size // 4) and not self._remap(size):
            raise MemoryError(f"no memory for {size} bytes of features in the cache")

    def _remap(self, size: int) -> bool:
        """Whether the system has made the mapping this large; if not, it is as before."""
        del self.features  # a mapping with a view of it cannot be resized
        try:
            self._map.resize(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        except OSError:
            return False
        else:
            return True
        finally:
            self.features = self._view()

    def _view(self) -> FloatArray:
        """All of the mapping, as rows."""
        entries = len(self._map) // (4 * self.width) if self.width else 2**31
        return np.frombuffer(self._map, np.float32, entries * self.width).reshape(entries, self.width)
