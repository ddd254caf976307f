"""What a convolution is called with, checked: rows, edges, their weights and features; and its settings."""

from collections.abc import Mapping

import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model.adapters.operations import node_rows
from livegnn.model.adapters.tape import (
    EdgeRows,
    Edges,
    EdgeWeights,
    RelationNumbers,
    RelationRows,
    Rows,
    Tape,
    Weight,
)
from livegnn.model.propagation import Aggregate, Combine, NeighborContext
from livegnn.types import EdgeType

Arguments = Mapping[str, object]
"""The arguments of a layer's call, by the names of its ``forward``."""

Aggregation = tuple[Aggregate, NeighborContext, Combine]

AGGREGATIONS: Mapping[object, Aggregation] = {
    "add": ("sum", "none", "identity"),
    "sum": ("sum", "none", "identity"),
    "mean": ("sum", "count", "divide"),
    "max": ("max", "none", "identity"),
    "min": ("min", "none", "identity"),
}


def check_convolution(layer: pyg.MessagePassing, given: Arguments) -> EdgeType:
    """The edge type along which a convolution works. Raises `ModelError` if it cannot be called like that."""
    edge_type = check_edges(layer, given).edge_type
    x = given["x"]
    ends = x if isinstance(x, tuple | list) and len(x) == 2 else (x, x)
    source_type, _, target_type = edge_type
    for end, what, node_type in zip(ends, ("source", "target"), (source_type, target_type), strict=True):
        if end is None and source_type != target_type:
            raise ModelError(
                f"is given no rows of {node_type!r} nodes for the {what}s of {edge_type}: give it the "
                "pair (x_source, x_target), and keep rows of every node type from layer to layer"
            )
        if isinstance(end, Rows) and node_rows(end).place != node_type:
            raise ModelError(
                f"must be given {node_type!r} rows for the {what}s of {edge_type}, got those of "
                f"{end.place!r} nodes"
            )
    return edge_type


def check_edges(layer: pyg.MessagePassing, given: Arguments) -> Edges:
    """The edges that a convolution sends along. Raises `ModelError` unless they are the graph's own."""
    edges = given["edge_index"]
    if edges is None:
        raise ModelError("is given no edges: name their type in metadata")
    if not isinstance(edges, Edges):
        raise ModelError("must be given the edge_index of the module's own input, not one computed from it")
    for name in ("size", "return_attention_weights"):
        if given.get(name) is not None:
            raise ModelError(f"must be called without {name}, got {given[name]}")
    if layer.flow != "source_to_target":
        raise ModelError(
            f"flow must be 'source_to_target', got {layer.flow!r}: swap the rows of edge_index instead"
        )
    return edges


def check_relations(layer: pyg.MessagePassing, given: Arguments) -> tuple[EdgeType, ...]:
    """The edge types of a relational convolution's relations, in the order of their numbers."""
    check_edges(layer, given)
    numbers = given.get("edge_type")
    if numbers is None:
        raise ModelError(
            "must be given edge_type, the number of each edge's relation: let the module's forward take it, "
            "and say with relations=[...] which edge types of the graph the numbers stand for"
        )
    if not isinstance(numbers, RelationNumbers):
        raise ModelError("must be given the edge_type of the module's own input, not one computed from it")
    if len(numbers.edge_types) != layer.num_relations:
        raise ModelError(
            f"has num_relations={layer.num_relations}, so relations must be as many edge types, got "
            f"{len(numbers.edge_types)}: {', '.join(map(str, numbers.edge_types))}"
        )
    return numbers.edge_types


def is_weighted(given: Arguments) -> bool:
    """Whether a convolution is called with weights. Raises `ModelError` if they are not its edges'."""
    weight, edges = given.get("edge_weight"), given["edge_index"]
    if weight is not None and not isinstance(weight, EdgeWeights):
        raise ModelError("must be given the edge_weight of the module's own input, not one computed from it")
    if weight is not None and isinstance(edges, Edges) and weight.edge_types != edges.edge_types:
        raise ModelError(f"must be given weights of the same edges, got those of {weight.edge_types}")
    return weight is not None


def edge_features(given: Arguments) -> Rows | None:
    """The features of the edges, or what row-wise operations made of them; weights are 1 channel wide."""
    features, edges = given.get("edge_attr"), given["edge_index"]
    if isinstance(features, EdgeWeights):
        features = features.column()
    if isinstance(features, RelationRows) and len(features.parts) == 1:
        features = features.parts[0]
    if features is None:
        return None
    if not isinstance(features, EdgeRows):
        raise ModelError(
            "edge_attr must be the edge_attr of the module's own input, or made of it row by row, "
            f"got {type(features).__name__}"
        )
    if isinstance(edges, Edges) and features.edge_type != edges.edge_type:
        raise ModelError(f"must be given features of the same edges, got those of {features.edge_type}")
    return features


def reads_features(layer: nn.Module) -> bool:
    """Whether a layer cannot do, or was not trained, without features of edges."""
    return isinstance(layer, pyg.GINEConv | pyg.GMMConv) or getattr(layer, "edge_dim", None) is not None


def needed_features(given: Arguments) -> Rows:
    features = edge_features(given)
    if features is None:
        raise ModelError("must be called with edge_attr")
    return features


def aggregation(layer: pyg.MessagePassing) -> Aggregation:
    """How the messages are aggregated. Raises `ModelError` for any way but the sum, mean, min and max."""
    found = AGGREGATIONS.get(layer.aggr if isinstance(layer.aggr, str) else None)
    if found is None:
        raise ModelError(f"aggr must be one of {', '.join(map(repr, AGGREGATIONS))}; got {layer.aggr!r}")
    return found


def source_and_target(tape: Tape, x: object) -> tuple[Rows, Rows | None]:
    """One tensor for both ends of an edge, or PyG's pair (source, target), whose second may be None."""
    one, other = x if isinstance(x, tuple | list) and len(x) == 2 else (x, x)
    source, target = node_rows(one), None if other is None else node_rows(other)
    tape.consumed.append(source.name)
    if target is not None and target.place != source.place:
        tape.consumed.append(target.name)
    return source, target


def both_ends(tape: Tape, x: object) -> tuple[Rows, Rows]:
    """As `source_and_target`, for convolutions that read both."""
    source, target = source_and_target(tape, x)
    if target is None:
        raise ModelError("must be given the rows of the targets too, got None for them")
    return source, target


def write_linear(tape: Tape, layer: nn.Linear | pyg.Linear, path: str, x: Rows, name: str) -> Rows:
    bias = None if layer.bias is None else Weight(f"{path}.bias", layer.bias)
    return tape.write(
        "linear", x, name=name, weights={"weight": Weight(f"{path}.weight", layer.weight), "bias": bias}
    )


def write_bias(tape: Tape, bias: torch.Tensor | None, path: str, x: Rows) -> Rows:
    """Adds a convolution's bias, if it has one."""
    if bias is None:
        return x
    return tape.write("scale_shift", x, name="bias", weights={"shift": Weight(f"{path}.bias", bias)})
