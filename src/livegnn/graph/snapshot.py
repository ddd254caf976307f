"""The graph as plain arrays, at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from livegnn.types import EdgeType, FloatArray, Ids, IntArray, Keys, NodeType


@dataclass(frozen=True)
class Snapshot:
    """All nodes and edges of a graph, as PyG would hold them.

    ids: node type -> the user's ids, [nodes].
    x: node type -> features, float32 [nodes, channels]; row i belongs to node ``ids[i]``.
    edge_index: edge type -> int64 [2, edges]; row 0 the sources, row 1 the targets, as positions in `ids`.
    weight: edge type -> float32 [edges], all ones if the edges carry no weight.
    edge_attr: edge type -> features of the edges, float32 [edges, channels].
    key: edge type that keeps parallel edges -> their keys, uint32 [edges]; there the edges of a pair of nodes
    follow each other in the order of their keys.
    An undirected graph lists both directions of an edge.
    """

    ids: Mapping[NodeType, Ids]
    x: Mapping[NodeType, FloatArray]
    edge_index: Mapping[EdgeType, IntArray]
    weight: Mapping[EdgeType, FloatArray]
    edge_attr: Mapping[EdgeType, FloatArray] = field(default_factory=dict)
    key: Mapping[EdgeType, Keys] = field(default_factory=dict)


def in_order_of_keys(snapshot: Snapshot) -> Snapshot:
    """The same, with the edges of types that have keys in the order of their ends and keys."""
    edge_index, weight = dict(snapshot.edge_index), dict(snapshot.weight)
    edge_attr, key = dict(snapshot.edge_attr), dict(snapshot.key)
    for name, keys in snapshot.key.items():
        source, target = edge_index[name]
        order = np.lexsort((keys, target, source))
        edge_index[name], weight[name] = edge_index[name][:, order], weight[name][order]
        edge_attr[name], key[name] = edge_attr[name][order], keys[order]
    return replace(snapshot, edge_index=edge_index, weight=weight, edge_attr=edge_attr, key=key)
