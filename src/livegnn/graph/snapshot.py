"""The graph as plain arrays, at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from livegnn.types import EdgeType, FloatArray, Ids, IntArray, NodeType


@dataclass(frozen=True)
class Snapshot:
    """All nodes and edges of a graph, as PyG would hold them.

    ids: node type -> the user's ids, [nodes].
    x: node type -> features, float32 [nodes, channels]; row i belongs to node ``ids[i]``.
    edge_index: edge type -> int64 [2, edges]; row 0 the sources, row 1 the targets, as positions in `ids`.
    weight: edge type -> float32 [edges], all ones if the edges carry no weight.
    edge_attr: edge type -> features of the edges, float32 [edges, channels].
    An undirected graph lists both directions of an edge.
    """

    ids: Mapping[NodeType, Ids]
    x: Mapping[NodeType, FloatArray]
    edge_index: Mapping[EdgeType, IntArray]
    weight: Mapping[EdgeType, FloatArray]
    edge_attr: Mapping[EdgeType, FloatArray] = field(default_factory=dict)
