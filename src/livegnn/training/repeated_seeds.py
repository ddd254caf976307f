"""Seeds that occur more than once in a batch, for example if training examples are drawn with replacement.

A subgraph has each node once, but PyG's loaders promise that the seed at position i is node i of the batch.
So a repeated seed becomes several nodes, each with the features and the edges to neighbours of the first.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from livegnn.sampling import HeteroSubgraph
from livegnn.types import EdgeType, IntArray, NodeType


def with_repeated_seeds(sample: HeteroSubgraph, node_type: NodeType) -> HeteroSubgraph:
    """The sample with seed i as node i of `node_type`. Requires: all seeds are of `node_type`."""
    inverse = sample.inverse[node_type]
    hops = sample.num_sampled_nodes[node_type]
    unique, later = hops[0], np.arange(hops[0], len(sample.node[node_type]))
    if len(inverse) == unique:
        return sample
    kept_nodes = np.concatenate([inverse, later])
    # The new position of each node of the sample; for a repeated seed, the first of its positions.
    place = np.concatenate([np.empty(unique, dtype=np.int64), later + len(inverse) - unique])
    place[inverse[::-1]] = np.arange(len(inverse))[::-1]

    out = replace(
        sample,
        node={**sample.node, node_type: sample.node[node_type][kept_nodes]},
        x={name: x[kept_nodes] if name == node_type else x for name, x in sample.x.items()},
        inverse={node_type: np.arange(len(inverse))},
        num_sampled_nodes={**sample.num_sampled_nodes, node_type: [len(inverse), *hops[1:]]},
        row=dict(sample.row),
        col=dict(sample.col),
        num_sampled_edges=dict(sample.num_sampled_edges),
        edge=dict(sample.edge),
        edge_weight=dict(sample.edge_weight),
        time=dict(sample.time),
        edge_attr=dict(sample.edge_attr),
    )
    for edge_type in sample.row:
        source, _, target = edge_type
        if source == node_type:
            out.row[edge_type] = place[out.row[edge_type]]
        if target != node_type or not sample.num_sampled_edges[edge_type]:
            continue
        first_hop, *hops = sample.num_sampled_edges[edge_type]
        col = sample.col[edge_type]
        kept_edges, new_col = _copies(col[:first_hop], inverse, unique)
        out.num_sampled_edges[edge_type] = [len(kept_edges), *hops]
        kept_edges = np.concatenate([kept_edges, np.arange(first_hop, len(col))])
        out.col[edge_type] = np.concatenate([new_col, place[col[first_hop:]]])
        out.row[edge_type] = out.row[edge_type][kept_edges]
        columns: tuple[dict[EdgeType, Any], ...] = (out.edge, out.edge_weight, out.time, out.edge_attr)
        for column in columns:
            if column.get(edge_type) is not None:
                column[edge_type] = column[edge_type][kept_edges]
    return out


def _copies(col: IntArray, inverse: IntArray, unique: int) -> tuple[IntArray, IntArray]:
    """The positions of the first hop's edges, repeated for each seed that they lead to, and these seeds.

    Only this hop draws for seeds, one after the other, so `col` is ascending.
    """
    degree = np.bincount(col, minlength=unique)
    begin = np.cumsum(degree) - degree
    copies = degree[inverse]
    within = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
    return np.repeat(begin[inverse], copies) + within, np.repeat(np.arange(len(inverse)), copies)
