"""The graph, and the neighbours of a node, as plain arrays, at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from livegnn.graph.native_graph import NativeGraph
from livegnn.types import DoubleArray, EdgeType, FloatArray, Ids, IntArray, Keys, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, Int64, Shaped, UInt32


@dataclass(frozen=True)
class Snapshot:
    """All nodes and edges of a graph, in the layout of PyG.

    ids: node type -> the user's ids, [nodes].
    x: node type -> features, float32 [nodes, channels]; row i belongs to node ``ids[i]``.
    edge_index: edge type -> int64 [2, edges]; row 0 the sources, row 1 the targets, as positions in `ids`.
    weight: edge type -> float32 [edges], all ones if the edges carry no weight.
    edge_attr: edge type -> features of the edges, float32 [edges, channels].
    key: edge type that keeps parallel edges -> their keys, uint32 [edges]; parallel edges are then adjacent,
    in the order of their keys.
    An undirected edge is listed in both directions.
    """

    ids: "Mapping[NodeType, Shaped[Ids, '_']]"
    x: "Mapping[NodeType, Float32[FloatArray, '_ _']]"
    edge_index: "Mapping[EdgeType, Int64[IntArray, '2 _']]"
    weight: "Mapping[EdgeType, Float32[FloatArray, '_']]"
    edge_attr: "Mapping[EdgeType, Float32[FloatArray, '_ _']]" = field(default_factory=dict)
    key: "Mapping[EdgeType, UInt32[Keys, '_']]" = field(default_factory=dict)


class Neighbors(NamedTuple):
    """The neighbours of a node: their ids, and the weights, times and features (`edge_attr`, [ids, channels])
    of the edges, if the edge type has them; `key` if it keeps parallel edges."""

    ids: "Shaped[Ids, 'neighbors']"
    weight: "Float32[FloatArray, 'neighbors'] | None"
    time: "Float64[DoubleArray, 'neighbors'] | None"
    edge_attr: "Float32[FloatArray, 'neighbors channels'] | None"
    key: "UInt32[Keys, 'neighbors'] | None" = None


def in_order_of_keys(snapshot: Snapshot) -> Snapshot:
    """The same snapshot, with the edges of types that have keys sorted by source, target and key."""
    edge_index, weight = dict(snapshot.edge_index), dict(snapshot.weight)
    edge_attr, key = dict(snapshot.edge_attr), dict(snapshot.key)
    for name, keys in snapshot.key.items():
        source, target = edge_index[name]
        order = np.lexsort((keys, target, source))
        edge_index[name], weight[name] = edge_index[name][:, order], weight[name][order]
        edge_attr[name], key[name] = edge_attr[name][order], keys[order]
    return replace(snapshot, edge_index=edge_index, weight=weight, edge_attr=edge_attr, key=key)


def take_snapshot(graph: NativeGraph) -> Snapshot:
    """The snapshot of a graph. The caller must hold `Graph.writer`."""
    native = graph.native
    ids, x, edge_index, weight, edge_attr, position, keys = {}, {}, {}, {}, {}, {}, {}
    for index, name in enumerate(graph.schema.node_types):
        nodes = native.indices(index)
        ids[name] = graph.node_ids.to_user_ids(native.ids_of(index, nodes))
        x[name] = native.features(index, nodes)
        position[name] = np.zeros(native.capacity(index), dtype=np.int64)
        position[name][nodes] = np.arange(len(nodes))
    for index, (edge_type, edges) in enumerate(graph.schema.edge_types.items()):
        source, target, weights, edge_attr[edge_type], key = native.coo(index)
        edge_index[edge_type] = np.stack([position[edge_type[0]][source], position[edge_type[2]][target]])
        weight[edge_type] = weights if edges.weighted else np.ones(len(source), dtype=np.float32)
        if edges.duplicates == "keep":
            keys[edge_type] = key
    return in_order_of_keys(Snapshot(ids, x, edge_index, weight, edge_attr, keys))
