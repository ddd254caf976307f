"""The source of snapshots: the rows of a live graph, or of PyG's data without a graph.

Row i is the node with the graph's dense index i; a gap that a removed node has left is a row without a node.
Thread safety: any thread may read, also beside a batch, and sees each row before the batch or after it.
"""

import math
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

import livegnn._core as _core
from livegnn.errors import InputError
from livegnn.graph import EdgeSchema, Graph, Schema
from livegnn.graph.construction import column, count_nodes, read_pyg
from livegnn.graph.pyg_fields import taken_fields
from livegnn.snapshots.records import NO_NODE, NO_TEXT, Lists
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType, FloatArray, IntArray, Keys

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64, UInt8, UInt32
    from numpy.typing import NDArray
    from torch_geometric.data import Data, HeteroData

    Rows: TypeAlias = NDArray[np.uint32]


N = TypeVar("N", bound=np.generic)


class GraphRows:
    """The rows of a graph. Types are positions in the schema."""

    def __init__(self, graph: Graph) -> None:
        self.schema = graph.schema
        self._graph = graph
        self._edges = list(graph.schema.edge_types.values())

    def rows(self, node_type: int) -> int:
        """The number of rows, gaps included."""
        return self._graph.native.capacity(node_type)

    def count(self, node_type: int) -> int:
        """The number of nodes."""
        return self._graph.native.num_nodes(node_type)

    def features(
        self, node_type: int, rows: "UInt32[Rows, 'rows']"
    ) -> "Float32[FloatArray, 'rows channels']":
        """The features of nodes; any numbers for a gap."""
        return self._graph.native.features(node_type, rows)

    def ids(self, node_type: int, rows: "UInt32[Rows, 'rows']") -> "Int64[IntArray, 'rows']":
        """The ids of nodes, which are integers; `NO_NODE` for a gap."""
        return self._graph.native.ids_of(node_type, rows)

    def texts(
        self, node_type: int, rows: "UInt32[Rows, 'rows']"
    ) -> "tuple[UInt8[NDArray[np.uint8], '_'], Int64[IntArray, 'rows']]":
        """The ids of nodes, which are texts: their bytes, and how many each has; `NO_TEXT` for a gap."""
        texts = self._graph.node_ids.texts
        assert texts is not None
        with self._graph.pin():
            numbers = self._graph.native.ids_of(node_type, rows)
            used = numbers != NO_NODE
            data, sizes = texts.encode(numbers[used])
        lengths = np.full(len(rows), NO_TEXT, dtype=np.int64)
        lengths[used] = sizes
        return data, lengths

    def degrees(self, edge_type: int, rows: "UInt32[Rows, 'rows']", *, incoming: bool) -> "IntArray":
        """The lengths of the lists of these rows, as far as they are known now."""
        return self._graph.native.degrees(edge_type, rows, incoming)

    def lists(self, edge_type: int, rows: "UInt32[Rows, 'rows']", *, incoming: bool) -> Lists:
        """The neighbours of these rows, in the order of the graph."""
        edges = self._edges[edge_type]
        counts, others, weight, time, x, key = self._graph.native.edges_of(edge_type, rows, not incoming)
        return Lists(
            _offsets(counts),
            others,
            weight if edges.weighted else None,
            time if edges.timed else None,
            key if edges.duplicates == "keep" else None,
            x if edges.edge_dim else None,
        )


class DataRows:
    """The methods of `GraphRows` for PyG's `Data` or `HeteroData`, without a graph. Nodes of each type have
    the ids 0, 1, 2, ...; the neighbours of a node stand in the order in which the edges are listed, parallel
    edges included. An edge type that lists any keeps them apart.

    Reads the fields that `Graph.from_pyg` takes. Raises `InputError` for other data, or for data that names
    a node that is not there.
    """

    def __init__(self, data: "Data | HeteroData") -> None:
        data = taken_fields(data)
        _check_values(data)
        typed = hasattr(data, "node_types")
        stores = [(t, data[t]) for t in data.node_types] if typed else [(DEFAULT_NODE_TYPE, data)]
        links = [(t, data[t]) for t in data.edge_types] if typed else [(DEFAULT_EDGE_TYPE, data)]
        self._counts = [count_nodes(store, name) for name, store in stores]
        self._x = [_column(store, "x", np.float32, 2) for _, store in stores]
        names = [name for name, _ in stores]
        self._links = [_Links(name, store, self._counts, names) for name, store in links]
        self.schema = Schema(
            {name: 0 if x is None else x.shape[1] for name, x in zip(names, self._x, strict=True)},
            {
                name: EdgeSchema(
                    weighted=link.weight is not None,
                    timed=link.time is not None,
                    duplicates="replace" if link.key is None else "keep",
                    edge_dim=0 if link.edge_attr is None else link.edge_attr.shape[1],
                )
                for (name, _), link in zip(links, self._links, strict=True)
            },
        )
        for name, x, count in zip(names, self._x, self._counts, strict=True):
            if x is not None and len(x) != count:
                raise InputError(
                    f"x of {name!r} must have a row for each of {count} nodes, got {len(x)} rows"
                )

    def rows(self, node_type: int) -> int:
        return self._counts[node_type]

    def count(self, node_type: int) -> int:
        return self._counts[node_type]

    def features(
        self, node_type: int, rows: "UInt32[Rows, 'rows']"
    ) -> "Float32[FloatArray, 'rows channels']":
        x = self._x[node_type]
        return np.empty((len(rows), 0), dtype=np.float32) if x is None else x[rows]

    def ids(self, node_type: int, rows: "UInt32[Rows, 'rows']") -> "Int64[IntArray, 'rows']":
        return rows.astype(np.int64)

    def texts(
        self, node_type: int, rows: "UInt32[Rows, 'rows']"
    ) -> "tuple[UInt8[NDArray[np.uint8], '_'], Int64[IntArray, 'rows']]":
        raise InputError("PyG's data have no text ids")

    def degrees(self, edge_type: int, rows: "UInt32[Rows, 'rows']", *, incoming: bool) -> "IntArray":
        ends, _ = self._links[edge_type].order(incoming=incoming)
        return ends[rows.astype(np.int64) + 1] - ends[rows]

    def lists(self, edge_type: int, rows: "UInt32[Rows, 'rows']", *, incoming: bool) -> Lists:
        link = self._links[edge_type]
        ends, order = link.order(incoming=incoming)
        counts = ends[rows.astype(np.int64) + 1] - ends[rows]
        offsets = _offsets(counts)
        at = order[np.repeat(ends[rows] - offsets[:-1], counts) + np.arange(offsets[-1])]
        others = link.edge_index[0 if incoming else 1][at].astype(np.uint32)
        return Lists(
            offsets,
            others,
            None if link.weight is None else link.weight[at],
            None if link.time is None else link.time[at],
            None if link.key is None else link.key[at],
            None if link.edge_attr is None else link.edge_attr[at],
        )


RowSource: TypeAlias = GraphRows | DataRows


class _Links:
    """The edges of one type, as listed, and their order by target or by source."""

    def __init__(self, name: EdgeType, store: "Data", counts: list[int], names: list[str]) -> None:
        ends = [counts[names.index(name[0])], counts[names.index(name[2])]]
        edge_index = _column(store, "edge_index", np.int64, 2)
        if edge_index is None or edge_index.shape[0] != 2:
            raise InputError(f"edge_index of {name!r} must be [2, edges], got another shape or none")
        for side, count in zip(edge_index, ends, strict=True):
            if len(side) and not (side.min() >= 0 and side.max() < count):
                wrong = side[(side < 0) | (side >= count)][0]
                raise InputError(f"edge_index of {name!r} must name nodes below {count}, got {wrong}")
        self.edge_index = edge_index
        self.weight = _column(store, "edge_weight", np.float32, 1)
        self.time = _column(store, "time", np.float64, 1)
        attributes = _column(store, "edge_attr", np.float32, None)
        if attributes is not None and (not attributes.ndim or len(attributes) != edge_index.shape[1]):
            raise InputError(f"edge_attr of {name!r} must have a row for each of {edge_index.shape[1]} edges")
        if attributes is not None:
            attributes = attributes.reshape(len(attributes), math.prod(attributes.shape[1:]))
        self.edge_attr = attributes
        for name_of, values in (("edge_weight", self.weight), ("time", self.time)):
            if values is not None and len(values) != edge_index.shape[1]:
                raise InputError(
                    f"{name_of} of {name!r} must have a number for each of {edge_index.shape[1]} edges"
                )
        self.key = _keys(edge_index, ends[1])
        self._ends = ends
        self._order: dict[bool, tuple[IntArray, IntArray]] = {}

    def order(self, *, incoming: bool) -> tuple[IntArray, IntArray]:
        """The positions at which the edges of each node begin, and the edges in that order."""
        if incoming not in self._order:
            side = self.edge_index[1 if incoming else 0]
            counts = np.bincount(side, minlength=self._ends[1 if incoming else 0])
            self._order = {incoming: (_offsets(counts), np.argsort(side, kind="stable"))}  # one at a time
        return self._order[incoming]


def _keys(edge_index: "Int64[IntArray, '2 edges']", targets: int) -> "UInt32[Keys, 'edges'] | None":
    """The place of each edge among those between the same two nodes; None if there is one at most.
    targets: how many nodes there are where edges end."""
    pair = edge_index[0] * targets + edge_index[1]
    ordered = np.sort(pair)  # a tenth of the time of an order, which most data do not need
    if not (ordered[1:] == ordered[:-1]).any():
        return None
    order = np.argsort(pair, kind="stable")  # parallel edges stay in the order in which they are listed
    key = np.empty(len(order), dtype=np.uint32)
    key[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return key


def _check_values(data: "Data | HeteroData") -> None:
    """Raises `InputError` for values that no graph would take."""
    _, events, _ = read_pyg(data, "keep")
    events.check()
    for chunk in events.chunks:
        if chunk.weight is not None and len(chunk.weight) and np.abs(chunk.weight).max() > _core.MAX_WEIGHT:
            raise InputError(f"weights must be at most 2^96, got {np.abs(chunk.weight).max():g}")


def _column(
    store: "Data", name: str, type_: type[N], dimensions: int | None
) -> "np.ndarray[tuple[int, ...], np.dtype[N]] | None":
    value = column(store, name)
    if value is None:
        return None
    array = np.asarray(value, dtype=type_)
    if dimensions is not None and array.ndim != dimensions:
        raise InputError(f"{name} must have {dimensions} dimensions, got the shape {list(array.shape)}")
    return array


def _offsets(counts: "IntArray") -> IntArray:
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets
