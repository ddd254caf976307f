"""Features of nodes that earlier requests have fetched, as many as fit into a number of bytes.

An entry is a row number, its features, the degree of the node, and bytes that its owner notes with it.
Entries of the smallest degree are evicted first, because the neighbourhoods of other requests reach them
least often (FaaS-GNN, section 4.3), and only as many as necessary.

A predictor has a cache of its own, `FeatureCache`, or one in common with other workers of its machine,
`SharedFeatureCache`. It does not know which: `CachedFeatures` is what it asks of both.

Thread safety: none; whoever has the cache lets one thread at a time use it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from livegnn.remote.feature_table import STATE, FeatureTable, MakeColumn, OwnColumn
from livegnn.types import FloatArray, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Int64, UInt8
    from numpy.typing import NDArray

_EMPTY = np.zeros(0, np.int64)


class CachedFeatures(Protocol):
    """What a predictor asks of a cache. room: the bytes that the predictor leaves to it."""

    def __len__(self) -> int:
        """The number of entries."""

    @property
    def bytes(self) -> int:
        """Of all entries, with their places in the index."""

    def show(self, identity: str) -> None:
        """Row numbers are those of this snapshot from now on. What is of another one goes."""

    def shows_another(self) -> bool:
        """Whether another predictor has made it show another snapshot since."""

    def exceeds(self, room: int) -> bool:
        """Whether there are entries for which there is no room."""

    def leave(self, room: int) -> None:
        """Says how much room there is until something else is said."""

    def read(
        self, node_type: NodeType, rows: "Int64[IntArray, 'rows']", out: "Float32[FloatArray, 'rows width']"
    ) -> "Bool[NDArray[np.bool_], 'rows']":
        """Writes the features of those nodes that are there into their rows of `out`, anything into the other
        rows, and says which are there."""

    def read_notes(
        self, node_type: NodeType, rows: "Int64[IntArray, 'rows']"
    ) -> "tuple[Bool[NDArray[np.bool_], 'rows'], UInt8[NDArray[np.uint8], 'rows noted']]":
        """Which nodes are there, and the bytes that are noted with them; any bytes for the others."""

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

    def evict(self, room: int, keep: "Mapping[NodeType, Int64[IntArray, '_']]") -> int:
        """Removes as few entries as need be until there is room for all, those of the smallest degrees first.
        Returns how many.

        keep: row numbers that stay; if they are too many by themselves, only the others go.
        """


class FeatureCache:
    """`CachedFeatures` of one predictor; room is all that they may take. widths: of the features of each node
    type. notes: how many bytes are noted with an entry, where there are any. make, states: where the tables
    lie, by default in memory of this process."""

    def __init__(
        self,
        widths: Mapping[NodeType, int],
        notes: Mapping[NodeType, int] | None = None,
        make: MakeColumn = OwnColumn,
        states: "Int64[IntArray, 'types 3'] | None" = None,
    ) -> None:
        if states is None:
            states = np.zeros((len(widths), STATE), np.int64)
        self._tables = {
            name: FeatureTable(width, (notes or {}).get(name, 0), make, state)
            for (name, width), state in zip(widths.items(), states, strict=True)
        }
        self._shown: str | None = None

    def __len__(self) -> int:
        return sum(len(table) for table in self._tables.values())

    @property
    def bytes(self) -> int:
        return sum(len(table) * table.entry_bytes for table in self._tables.values())

    def entries(self, node_type: NodeType) -> int:
        """Of one node type."""
        return len(self._tables[node_type])

    def noted(self, node_type: NodeType) -> int:
        """How many bytes are noted with each entry of a node type."""
        return self._tables[node_type].noted if node_type in self._tables else 0

    def show(self, identity: str) -> None:
        if identity != self._shown:
            self.clear()
            self._shown = identity

    def shows_another(self) -> bool:
        return False

    def exceeds(self, room: int) -> bool:
        return len(self) > 0 and self.bytes > room

    def leave(self, room: int) -> None:
        """Nobody else wants to know."""

    def read(
        self, node_type: NodeType, rows: "Int64[IntArray, 'rows']", out: "Float32[FloatArray, 'rows width']"
    ) -> "Bool[NDArray[np.bool_], 'rows']":
        table = self._tables[node_type]
        slots = table.find(rows)
        found: NDArray[np.bool_] = slots >= 0
        if found.any() and table.width:
            # In one pass, without a copy on the way; rows that are not there become those of slot 0.
            np.take(table.features, np.maximum(slots, 0), axis=0, out=out, mode="clip")
        return found

    def read_notes(
        self, node_type: NodeType, rows: "Int64[IntArray, 'rows']"
    ) -> "tuple[Bool[NDArray[np.bool_], 'rows'], UInt8[NDArray[np.uint8], 'rows noted']]":
        table = self._tables.get(node_type)
        if table is None or not len(table):
            return np.zeros(len(rows), np.bool_), np.zeros((len(rows), self.noted(node_type)), np.uint8)
        slots = table.find(rows)
        return slots >= 0, table.notes.take(np.maximum(slots, 0), axis=0)

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
        table = self._tables[node_type]
        new = np.flatnonzero(table.find(rows) < 0)
        need = self.bytes + len(new) * table.entry_bytes - room
        dropped: dict[NodeType, IntArray] = {}
        if need > 0:
            dropped, refused = self._smallest(need, {}, degrees[new], table.entry_bytes)
            self._drop(dropped)
            new = np.delete(new, refused)
        if len(new):
            noted = np.zeros((len(rows), 0), np.uint8) if notes is None else notes
            table.append(rows[new], features, at[new], degrees[new], noted[new])
        return sum(map(len, dropped.values()))

    def evict(self, room: int, keep: "Mapping[NodeType, Int64[IntArray, '_']]") -> int:
        need = self.bytes - room
        if need <= 0:
            return 0
        dropped, _ = self._smallest(need, keep, _EMPTY, 1)
        self._drop(dropped)
        return sum(map(len, dropped.values()))

    def clear(self) -> None:
        """Removes all entries, and gives their memory back."""
        for table in self._tables.values():
            table.clear()

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
