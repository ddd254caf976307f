"""RGCNConv, which is told the number of each edge's relation: each is an edge type of the graph.

In PyG all edges lie in one ``edge_index``, and ``edge_type`` numbers their relations. Relation r is the r-th
of the edge types that `Model.from_pyg` is given as ``relations``.
"""

from collections.abc import Sequence

import torch
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model.adapters.arguments import (
    Arguments,
    aggregation,
    check_relations,
    source_and_target,
    write_bias,
)
from livegnn.model.adapters.hetero import to_edge_types
from livegnn.model.adapters.tape import Rows, Tape, Weight
from livegnn.model.propagation import Propagate
from livegnn.types import EdgeType, NodeType


def rgcn_conv(tape: Tape, layer: pyg.RGCNConv, path: str, given: Arguments) -> Rows:
    """RGCNConv and FastRGCNConv: a propagation and a matrix for each relation, and the target's own row."""
    edge_types = check_relations(layer, given)
    if given.get("x") is None:
        raise ModelError(
            "is called with x=None, so it keeps an embedding of each numbered node, and a graph that changes "
            "has no such table: put the embeddings into the features, and call it with x"
        )
    source, target = source_and_target(tape, given["x"])
    if target is None:
        raise ModelError("must be given the rows of the targets too")
    aggregate, context, combine = aggregation(layer)
    parts = []
    fast = isinstance(layer, pyg.FastRGCNConv) and aggregate == "sum"  # multiplies each message by its matrix
    for relation, (edge_type, weight) in enumerate(zip(edge_types, _matrices(layer), strict=True)):
        operators = Propagate(edge_type, (), context, combine, aggregate)
        weights = {"weight": Weight(f"{path}.weight.{relation}", weight.T)}
        out = source if fast else tape.propagate(source, operators)
        out = tape.write("linear", out, name=f"relation_{relation}", weights=weights)
        parts.append(tape.propagate(out, operators) if fast else out)
    if layer.root is not None:
        root = Weight(f"{path}.root.T", layer.root.T)
        parts.append(tape.write("linear", target, name="root", weights={"weight": root}))
    out, *others = parts
    for other in others:
        out = tape.write("add", out, other)
    return write_bias(tape, layer.bias, path, out)


def name_relations(relations: Sequence[EdgeType], node_type: NodeType) -> tuple[EdgeType, ...]:
    """The edge types of the relations. Raises `ModelError` if they cannot be those of `node_type` nodes."""
    edge_types = to_edge_types(relations)
    for edge_type in edge_types:
        if (edge_type[0], edge_type[2]) != (node_type, node_type):
            raise ModelError(
                f"relations must be edge types that join {node_type!r} nodes (node_type), got {edge_type}"
            )
    if not edge_types or len(set(edge_types)) < len(edge_types):
        raise ModelError(f"relations must be different edge types, one at least, got {edge_types}")
    return edge_types


def _matrices(layer: pyg.RGCNConv) -> torch.Tensor:
    """The weights of the relations, [relations, in, out], whichever way the layer is made of fewer."""
    weight: torch.Tensor = layer.weight
    if layer.num_bases is not None:
        return torch.einsum("rb,bio->rio", layer.comp, weight)
    if layer.num_blocks is not None:
        return torch.stack([torch.block_diag(*blocks) for blocks in weight])
    return weight
