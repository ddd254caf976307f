"""Records of the index that are kept with cached features: the position of a node's lists, and their sums.

A prediction first reads the record of the index for each node whose lists it reads; for a node at its border,
it reads the degree, which is in that record, too. In a table of lists these records lie far apart: a request
that has all features in the cache would still read the whole table, in one more round for each hop.

    note of a node     [ 1 | record ][ 0 | ...... ]     for each kind of lists: whether it is known, and it

Records are of one layout of one snapshot, as the features are. Thread safety: that of the cache.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from livegnn.network.hops import Reads
from livegnn.remote.feature_cache import FeatureCache
from livegnn.remote.subgraph import Known, Lists, Neighborhood, receiver_of
from livegnn.schema import Schema
from livegnn.snapshots.records import index_type
from livegnn.types import IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Int64, UInt8
    from numpy.typing import NDArray

    from livegnn.snapshots.records import Octets


class NotedIndex:
    """reads: what predictions read. widths: of the features of the node types that are cached. schema: of the
    snapshot."""

    def __init__(self, reads: Reads, widths: Mapping[NodeType, int], schema: Schema) -> None:
        self._begins: dict[Lists, int] = {}
        self._types: dict[Lists, np.dtype[np.void]] = {}
        self.sizes = {name: 0 for name, width in widths.items() if width}
        """The number of bytes that a cache has to note with an entry."""
        self.first: dict[NodeType, Lists] = {}
        """The lists whose lengths decide how long an entry stays."""
        for lists in dict.fromkeys([*reads.lists, *reads.degrees]):
            name = receiver_of(lists)
            self._types[lists] = index_type(schema.edge_types[lists[0]])
            if lists in reads.lists:
                self.first.setdefault(name, lists)
            if name in self.sizes:
                self._begins[lists] = self.sizes[name]
                self.sizes[name] += 1 + self._types[lists].itemsize

    def find(self, cache: FeatureCache, lists: Lists, rows: "Int64[IntArray, 'rows']") -> Known:
        """The nodes whose records the cache has, and the records."""
        type_ = self._types[lists]
        begin = self._begins.get(lists)
        if begin is None:
            return Known(np.zeros(len(rows), np.bool_), np.zeros(len(rows), type_))
        there, notes = cache.read_notes(receiver_of(lists), rows)
        there &= notes[:, begin] == 1
        records = np.ascontiguousarray(notes[:, begin + 1 : begin + 1 + type_.itemsize])
        return Known(there, records.view(type_).reshape(-1))

    def unknown(
        self, found: Neighborhood, name: NodeType, at: "Int64[IntArray, 'nodes']"
    ) -> "Int64[IntArray, 'unknown']":
        """The nodes at these positions that have no record yet by which entries are kept, or noted."""
        if name not in self.first:
            return at[:0]  # nothing that the model reads ends there
        known = found.degree[name][at] >= 0
        lists = self.first[name]
        if lists in self._begins:
            known &= found.index[lists].there[at] if lists in found.index else False
        return at[~known]

    def of(
        self, found: Neighborhood, name: NodeType, at: "Int64[IntArray, 'nodes']"
    ) -> "UInt8[Octets, 'nodes bytes']":
        """The notes for the nodes at these positions."""
        notes: NDArray[np.uint8] = np.zeros((len(at), self.sizes.get(name, 0)), np.uint8)
        for lists, begin in self._begins.items():
            if receiver_of(lists) == name and lists in found.index:
                there, records = found.index[lists]
                notes[:, begin] = there[at]
                some = records[at].view(np.uint8).reshape(len(at), records.dtype.itemsize)
                notes[:, begin + 1 : begin + 1 + some.shape[1]] = some
        return notes
