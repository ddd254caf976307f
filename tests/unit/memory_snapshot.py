"""A snapshot in memory, and what was read of it."""

from __future__ import annotations

from collections import Counter

import numpy as np

from livegnn import Graph
from livegnn.errors import SnapshotReplacedError
from livegnn.inference import Degrees
from livegnn.snapshots.records import index_type
from livegnn.snapshots.snapshot import Neighbors


class MemorySnapshot:
    """A graph as plain lists, each in an order of its own. `lists` counts how often the list of a node was
    read, `rows` a row of features, `known` a degree or a record of the index. place: where lists lie."""

    def __init__(self, graph: Graph, seq: int = 0, place: int = 0) -> None:
        self.seq, self.schema, self.identity = seq, graph.schema, f"memory/{seq}"
        self.layout, self.place = f"{self.identity}/{place}", place
        self.graph = graph.snapshot()
        self.lists: Counter[tuple[object, str, int]] = Counter()
        self.rows: Counter[tuple[str, int]] = Counter()
        self.known: Counter[tuple[object, str, int]] = Counter()

    confined = False

    def rows_of(self, ids, node_type):
        place = {each: i for i, each in enumerate(self.graph.ids[node_type].tolist())}
        return np.array([place.get(each, -1) for each in np.asarray(ids).tolist()], np.int64)

    def ids_of(self, rows, node_type):
        return self.graph.ids[node_type][rows]

    def index(self, edge_type, rows, direction="in"):
        """`begin` names the row, which `neighbors` checks."""
        count, weight, loops, loop_weight = self.degrees(edge_type, rows, direction).columns
        records = np.zeros(len(rows), index_type(self.schema.edge_types[edge_type]))
        records["begin"], records["count"], records["loops"] = rows + self.place, count, loops
        if "weight_sum" in records.dtype.names:
            records["weight_sum"], records["loop_weight"] = weight, loop_weight
        return records

    def neighbors(self, edge_type, rows, direction="in", *, index=None):
        assert index is None or index["begin"].tolist() == (rows + self.place).tolist()
        self.lists.update((edge_type, direction, row) for row in rows.tolist())
        return self._lists(edge_type, rows, direction)

    def degrees(self, edge_type, rows, direction="in"):
        self.known.update((edge_type, direction, row) for row in rows.tolist())
        found = self._lists(edge_type, rows, direction)
        own = np.repeat(rows, np.diff(found.offsets))
        loop = (own == found.rows) & (edge_type[0] == edge_type[2])
        weight = np.ones(len(own)) if found.weight is None else found.weight.astype(np.float64)
        cuts = list(zip(found.offsets[:-1], found.offsets[1:], strict=True))
        return Degrees(
            np.diff(found.offsets),
            np.array([weight[a:b].sum() for a, b in cuts]),
            np.array([loop[a:b].sum() for a, b in cuts], np.int64),
            np.array([weight[a:b][loop[a:b]].sum() for a, b in cuts]),
        )

    def features(self, node_type, rows):
        self.rows.update((node_type, row) for row in rows.tolist())
        return self.graph.x[node_type][rows]

    def _lists(self, edge_type, rows, direction):
        source, target = self.graph.edge_index[edge_type]
        own, other = (target, source) if direction == "in" else (source, target)
        places = [_shuffled(np.flatnonzero(own == row), row) for row in rows]
        chosen = np.concatenate([np.zeros(0, np.int64), *places])
        schema = self.schema.edge_types[edge_type]
        return Neighbors(
            np.cumsum([0, *map(len, places)]).astype(np.int64),
            other[chosen].astype(np.int64),
            self.graph.weight[edge_type][chosen] if schema.weighted else None,
            None,
            self.graph.edge_attr[edge_type][chosen] if schema.edge_dim else None,
            self.graph.key[edge_type][chosen] if schema.duplicates == "keep" else None,
        )


def _shuffled(places, row):
    """Always the same order for a row."""
    return np.random.default_rng(row).permutation(places)


class MemorySource:
    """The snapshot that was opened last, and the latest one that there is."""

    def __init__(self, snapshot: MemorySnapshot) -> None:
        self.current = self.latest = snapshot

    read_so_far, retries_so_far, refused = (0, 0), 0, None

    def require(self, check) -> None:
        check(self.current)

    def newest(self) -> MemorySnapshot:
        self.current = self.latest
        return self.current

    def read(self, request):
        try:
            return request(self.current)
        except SnapshotReplacedError:
            return request(self.newest())
