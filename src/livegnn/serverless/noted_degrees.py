"""Degrees of nodes that stand with their cached features.

A prediction reads the degree of each node at its border, and nothing else of that node's lists. In a table of
lists these degrees lie far apart: a request that has all features in the cache would still read the whole
table. Degrees are of one snapshot, as the features are.

Thread safety: that of the cache.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from livegnn.inference.degrees import Degrees
from livegnn.model.hops import Reads
from livegnn.serverless.feature_cache import CachedFeatures
from livegnn.serverless.snapshot import Snapshot
from livegnn.serverless.subgraph import Lists, Neighborhood, receiver_of
from livegnn.types import DoubleArray, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64

_COLUMNS = 4  # of `Degrees`


class NotedDegrees:
    """reads: what predictions read. widths: of the features of the node types that are cached."""

    def __init__(self, reads: Reads, widths: Mapping[NodeType, int]) -> None:
        self._hops = reads.degrees
        self._lists: dict[NodeType, list[Lists]] = {
            name: [lists for lists in reads.degrees if receiver_of(lists) == name]
            for name, width in widths.items()
            if width
        }

    @property
    def counts(self) -> dict[NodeType, int]:
        """How many numbers a cache has to note with an entry."""
        return {name: _COLUMNS * len(lists) for name, lists in self._lists.items()}

    def read(
        self, cache: CachedFeatures, snapshot: Snapshot, lists: Lists, rows: "Int64[IntArray, 'rows']"
    ) -> Degrees:
        """What `Snapshot.degrees` returns; it is asked for those that the cache has not."""
        name = receiver_of(lists)
        if lists not in self._lists.get(name, []):
            return snapshot.degrees(lists[0], rows, lists[1])
        begin = _COLUMNS * self._lists[name].index(lists)
        there, notes = cache.read_notes(name, rows)
        columns = notes[:, begin : begin + _COLUMNS]
        absent = np.flatnonzero(~there | np.isnan(columns[:, 0]))
        if len(absent):
            count, weight, loops, loop_weight = snapshot.degrees(lists[0], rows[absent], lists[1]).columns
            assert loops is not None, "a snapshot tells how many loops there are"
            # Without weights every edge weighs 1.
            columns[absent, 0], columns[absent, 1] = count, count if weight is None else weight
            columns[absent, 2], columns[absent, 3] = loops, loops if loop_weight is None else loop_weight
        count, weight, loops, loop_weight = columns.T
        return Degrees(count.astype(np.int64), weight, loops.astype(np.int64), loop_weight)

    def of(
        self, found: Neighborhood, name: NodeType, at: "Int64[IntArray, 'nodes']"
    ) -> "Float64[DoubleArray, 'nodes notes']":
        """What to note with the nodes at these positions: their degrees, NaN where they are not known."""
        known = self._lists.get(name, [])
        notes = np.full((len(at), _COLUMNS * len(known)), np.nan)
        for number, lists in enumerate(known if found.degrees is not None else []):
            assert found.degrees is not None
            near = at < sum(found.sample.num_sampled_nodes[name][: self._hops[lists] + 1])
            for place, column in enumerate(found.degrees[lists].columns, _COLUMNS * number):
                assert column is not None, "a neighborhood has all columns"
                notes[near, place] = column[at[near]]
        return notes
