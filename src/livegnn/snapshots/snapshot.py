"""The snapshot of a manifest, read from its store on request.

Thread safety: any thread may call. It keeps only the row numbers of deltas, the ids that deltas have changed,
and the fences of the ids.
"""

from collections.abc import Collection
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np

from livegnn.arguments import is_incoming
from livegnn.errors import FileFormatError, InputError, ObjectMissingError, SnapshotReplacedError
from livegnn.graph import EdgeSchema, Schema
from livegnn.inference import Degrees
from livegnn.snapshots import records
from livegnn.snapshots.layered_tables import Checked, LayeredTables, Place, in_order
from livegnn.snapshots.manifest import Kind, Manifest, TableKey, read_newest_manifest
from livegnn.snapshots.node_rows import NodeRows
from livegnn.snapshots.objects import Objects
from livegnn.types import DoubleArray, EdgeType, FloatArray, Ids, IntArray, Keys, NodeType

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float32, Float64, Int64, Shaped, UInt32
    from numpy.typing import NDArray

_COLUMNS = ("weight", "time", "edge_attr", "key")

P = ParamSpec("P")
T = TypeVar("T")


def _or_replaced(
    method: "Callable[Concatenate[Snapshot, P], T]",
) -> "Callable[Concatenate[Snapshot, P], T]":
    """Distinguishes an object that collection removed from a lost one."""

    @wraps(method)
    def call(self: "Snapshot", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except ObjectMissingError as error:
            self._refuse_replaced(error)
            raise

    return call


class Neighbors(NamedTuple):
    """The neighbours of some rows, one row after the other: those of row i from `offsets[i]` up to
    `offsets[i + 1]`, by their rows, in the order of the graph; and the columns that the edge type has.
    """

    offsets: "Int64[IntArray, 'rows+1']"
    rows: "Int64[IntArray, 'entries']"
    weight: "Float32[FloatArray, 'entries'] | None" = None
    time: "Float64[DoubleArray, 'entries'] | None" = None
    edge_attr: "Float32[FloatArray, 'entries channels'] | None" = None
    key: "UInt32[Keys, 'entries'] | None" = None

    def loops_by_key(self, rows: "Int64[IntArray, 'nodes']") -> "Neighbors":
        """The same lists, of these nodes, with the parallel loops of each in the order of their keys: a layer
        that adds loops keeps the last one, and a list is in the order in which its edges were added and
        removed."""
        if self.key is None:
            return self
        segment = np.repeat(np.arange(len(rows)), np.diff(self.offsets))
        at = np.flatnonzero(rows[segment] == self.rows)
        ordered = at[np.lexsort((self.key[at], segment[at]))]
        if np.array_equal(at, ordered):
            return self
        place = np.arange(len(segment))
        place[at] = ordered
        columns = {name: column for name in _COLUMNS if (column := getattr(self, name)) is not None}
        return self._replace(**{name: column[place] for name, column in columns.items()})


class Snapshot:
    """A graph at one event, in a store. Opening reads the lists of rows that deltas have changed.

    seq: the event up to which it shows everything. All methods raise `UnknownTypeError` for a type that it
    does not have, and `SnapshotError` if it cannot be read: `SnapshotReplacedError` if objects were removed
    because a newer snapshot replaced it.
    """

    @_or_replaced
    def _open(self) -> None:
        self._layers = LayeredTables(self.objects, self.manifest)
        self._nodes = [
            NodeRows(self._layers, i, text=self.schema.text_ids) for i in range(len(self.schema.node_types))
        ]

    def __init__(self, objects: Objects, manifest: Manifest) -> None:
        self.objects = objects
        self.manifest = manifest
        self.seq = manifest.seq
        self.schema = Schema.from_json(manifest.schema)
        self._node_types = list(self.schema.node_types)
        self._edge_types = list(self.schema.edge_types)
        self._check_tables()
        self._open()

    def _check_tables(self) -> None:
        """A row that no layer has is a row without a node, so the base must have all tables."""
        base, *deltas = self.manifest.layers or (None,)
        needed = {TableKey("ids", i) for i in range(len(self._node_types))}
        needed |= {
            TableKey("features", i) for i, width in enumerate(self.schema.node_types.values()) if width
        }
        needed |= {
            TableKey("both", i) for i, edges in enumerate(self.schema.edge_types.values()) if edges.undirected
        }
        needed = needed.union(*(layer.tables for layer in deltas))
        present = set() if base is None else set(base.tables)
        if missing := sorted(map(str, needed - present)):
            raise FileFormatError(
                f"the base of {self.manifest.path} in {self.objects.url} must have the tables "
                f"{', '.join(missing)}, it has none such: write the snapshot again"
            )

    @property
    def confined(self) -> bool:
        """Whether memory is limited, so that it is read in one thread at a time."""
        return self.objects.confined

    @property
    def identity(self) -> str:
        """Names what it shows: the writer, and the event up to which it wrote."""
        return f"{self.manifest.chain}/{self.seq}"

    @property
    def layout(self) -> str:
        """Names where all of it lies: its identity, and the generation of its manifest."""
        return f"{self.identity}/{self.manifest.generation}"

    @property
    def bytes(self) -> int:
        """The memory that it takes."""
        return self._layers.bytes + sum(nodes.bytes for nodes in self._nodes)

    @_or_replaced
    def rows_of(
        self, ids: "Shaped[Ids, 'ids']", node_type: NodeType | None = None
    ) -> "Int64[IntArray, 'ids']":
        """The rows of nodes; -1 where there is no such node."""
        return self._nodes[self.schema.node_type_index(node_type)].rows_of(np.asarray(ids))

    @_or_replaced
    def ids_of(
        self, rows: "Int64[IntArray, 'rows']", node_type: NodeType | None = None
    ) -> "Shaped[Ids, 'rows']":
        """The ids of nodes; -1, or an empty text, where a row has no node."""
        return self._nodes[self.schema.node_type_index(node_type)].ids_of(_rows(rows))

    @_or_replaced
    def features(
        self, node_type: NodeType | None, rows: "Int64[IntArray, 'rows']"
    ) -> "Float32[FloatArray, 'rows channels']":
        """The features of nodes."""
        index = self.schema.node_type_index(node_type)
        rows = _rows(rows)
        width = self.schema.node_types[self._node_types[index]]
        if not width:
            return np.empty((len(rows), 0), dtype=np.float32)
        places = self._layers.locate(TableKey("features", index), rows)
        self._refuse_unknown(rows, places)
        stored = self._layers.read_records("records", 4 * width + records.SEAL, places, len(rows))
        return np.ascontiguousarray(stored[:, : -records.SEAL]).view("<f4")

    @_or_replaced
    def degrees(
        self, edge_type: EdgeType | None, rows: "Int64[IntArray, 'rows']", direction: str = "in"
    ) -> Degrees:
        """The number of edges of each of these nodes, loops among them, and the sums of their weights."""
        return records.degrees_of(self.index(edge_type, rows, direction))

    @_or_replaced
    def index(
        self,
        edge_type: EdgeType | None,
        rows: "Int64[IntArray, 'rows']",
        direction: str = "in",
    ) -> "Shaped[NDArray[np.void], 'rows']":
        """The positions and sums of the lists of these nodes: records of `records.index_type`."""
        rows = _rows(rows)
        key, edges = self._lists(edge_type, direction)
        return self._read_index(edges, self._places(key, rows), len(rows))

    @_or_replaced
    def neighbors(
        self,
        edge_type: EdgeType | None,
        rows: "Int64[IntArray, 'rows']",
        direction: str = "in",
        *,
        columns: Collection[str] | None = None,
        index: "Shaped[NDArray[np.void], 'rows'] | None" = None,
    ) -> Neighbors:
        """The lists of neighbours of nodes. columns: which of `weight`, `time`, `edge_attr` and `key` to
        read; by default all that the edge type has. index: what `index` returned for these rows; None: it is
        read.
        """
        _check_columns(columns)
        rows = _rows(rows)
        key, edges = self._lists(edge_type, direction)
        places = self._places(key, rows)
        if index is None:
            index = self._read_index(edges, places, len(rows))
        counts = index["count"].astype(np.int64)
        begins = index["begin"].astype(np.int64)
        types = {
            name: type_
            for name, type_ in records.columns_of(edges).items()
            if name == "neighbors" or columns is None or name in columns
        }
        asked: list[Checked] = []
        for name, type_ in types.items():
            asked += self._layers.read_lists(
                name, type_.itemsize, places, begins, counts, index[f"crc32_{name}"]
            )
        stored = self._layers.read(asked)
        read: dict[str, NDArray[np.generic]] = {}
        for i, (name, type_) in enumerate(types.items()):
            parts = stored[i * len(places) : (i + 1) * len(places)]
            data = in_order(places, parts, counts * type_.itemsize)
            read[name] = data.view(type_.base).reshape(-1, *type_.shape)
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(counts, out=offsets[1:])
        neighbors = read.pop("neighbors").astype(np.int64)
        return Neighbors(offsets, neighbors, **cast("dict[str, NDArray[np.float32]]", read))  # type: ignore[arg-type]

    def _places(self, key: TableKey, rows: IntArray) -> list[Place]:
        """The places of the records of the index."""
        name = self._edge_types[key.type][0 if key.kind == "out" else 2]
        most, _ = self.manifest.nodes[self._node_types.index(name)]
        if len(rows) and not 0 <= rows.min() <= rows.max() < most:
            wrong = rows[(rows < 0) | (rows >= most)][0]
            raise InputError(f"rows must be those of nodes, as rows_of returns them, got {wrong}")
        return self._layers.locate(key, rows)

    def _read_index(self, edges: EdgeSchema, places: list[Place], count: int) -> "NDArray[np.void]":
        type_ = records.index_type(edges)
        stored = self._layers.read_records("index", type_.itemsize, places, count)
        return stored.reshape(-1).view(type_)

    # -- types

    def _lists(self, edge_type: EdgeType | None, direction: str) -> tuple[TableKey, EdgeSchema]:
        index = self.schema.edge_type_index(edge_type)
        edge_type = self._edge_types[index]
        edges = self.schema.edge_types[edge_type]
        kind: Kind = "in" if is_incoming(direction) else "out"
        key = TableKey("both" if edges.undirected else kind, index)
        if key not in self._layers:
            raise InputError(
                f"the snapshot in {self.objects.url} has no lists of {edge_type!r} in direction {kind!r}: "
                "write it with them (directions)"
            )
        return key, edges

    def _refuse_unknown(self, rows: IntArray, places: list[Place]) -> None:
        if sum(len(place.asked) for place in places) != len(rows):
            located = np.zeros(len(rows), dtype=np.bool_)
            for place in places:
                located[place.asked] = True
            raise InputError(f"rows must be those of nodes, as rows_of returns them, got {rows[~located][0]}")

    def _refuse_replaced(self, error: ObjectMissingError) -> None:
        if read_newest_manifest(self.objects, self.manifest.generation) is not None:
            raise SnapshotReplacedError(
                f"the snapshot {self.manifest.generation} in {self.objects.url} was replaced by a newer one, "
                "and collected: begin again with the newest"
            ) from error


def _check_columns(columns: object) -> None:
    listed = isinstance(columns, Collection) and not isinstance(columns, str)
    if columns is not None and not (
        listed and all(name in _COLUMNS for name in cast("Collection[str]", columns))
    ):
        raise InputError(f"columns must be some of {', '.join(map(repr, _COLUMNS))}, got {columns!r}")


def _rows(rows: "Int64[IntArray, 'rows']") -> IntArray:
    listed = np.asarray(rows)
    if listed.ndim != 1 or (listed.dtype.kind not in "iu" and len(listed)):
        raise InputError(f"rows must be a list of integers, got {listed.dtype} {list(listed.shape)}")
    return np.ascontiguousarray(listed, dtype=np.int64)
