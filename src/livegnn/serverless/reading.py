"""What a prediction asks of a snapshot."""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from livegnn.graph.schema import Schema
from livegnn.inference.degrees import Degrees
from livegnn.query import Direction
from livegnn.types import Array, DoubleArray, EdgeType, FloatArray, Ids, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, Int64, Shaped


class Neighbors(NamedTuple):
    """Lists of neighbours in CSR form: that of node i is at positions ``offsets[i]`` to ``offsets[i + 1]``.

    offsets: int64 [nodes + 1]. rows: int64 [neighbours], the row numbers of the nodes at the other end.
    weight, time: float32, float64 [neighbours], None if the edge type has none. edge_attr: features of the
    edges, float32 [neighbours, channels], None if it has none.
    """

    offsets: "Int64[IntArray, 'offsets']"
    rows: "Int64[IntArray, 'neighbors']"
    weight: "Float32[FloatArray, 'neighbors'] | None"
    time: "Float64[DoubleArray, 'neighbors'] | None"
    edge_attr: "Float32[FloatArray, 'neighbors channels'] | None"


class Snapshot(Protocol):
    """A graph at one moment, of which parts can be read. Nodes of a type are numbered by rows.

    seq: the sequence number of the log up to which it shows the graph. Any number of threads may read one.
    All methods raise `SnapshotError`, and `SnapshotReplacedError` if a newer snapshot has taken its place.
    """

    @property
    def seq(self) -> int: ...

    @property
    def schema(self) -> Schema: ...

    def rows_of(self, ids: "Shaped[Array, 'nodes']", node_type: NodeType) -> "Int64[IntArray, 'nodes']":
        """The row numbers of nodes, -1 for ids that are not there."""
        ...

    def ids_of(self, rows: "Int64[IntArray, 'nodes']", node_type: NodeType) -> "Shaped[Ids, 'nodes']":
        """The ids of rows."""
        ...

    def degrees(
        self, edge_type: EdgeType, rows: "Int64[IntArray, 'nodes']", direction: Direction = "in"
    ) -> Degrees:
        """The degrees of nodes at the end that the direction names."""
        ...

    def neighbors(
        self, edge_type: EdgeType, rows: "Int64[IntArray, 'nodes']", direction: Direction = "in"
    ) -> Neighbors:
        """The whole lists of nodes, in the order in which the graph lists them."""
        ...

    def features(
        self, node_type: NodeType, rows: "Int64[IntArray, 'nodes']"
    ) -> "Float32[FloatArray, 'nodes channels']":
        """The features of nodes."""
        ...
