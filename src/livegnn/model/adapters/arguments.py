"""What a convolution is called with, checked: rows, edges, their weights and features; and its settings."""

from collections.abc import Mapping

import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model.adapters.operations import node_rows
from livegnn.model.adapters.tape import EdgeRows, Edges, EdgeWeights, Rows, Tape, Weight
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


def check_convolution(layer: pyg.MessagePassing, given: Arguments) -> None:
    if not isinstance(given["edge_index"], Edges):
        raise ModelError("must be given the edge_index of the module's own input, not one computed from it")
    for name in ("size", "return_attention_weights"):
        if given.get(name) is not None:
            raise ModelError(f"must be called without {name}, got {given[name]}")
    if layer.flow != "source_to_target":
        raise ModelError(
            f"flow must be 'source_to_target', got {layer.flow!r}: swap the rows of edge_index instead"
        )


def edges_of(tape: Tape, layer: pyg.MessagePassing, given: Arguments) -> EdgeType:
    """The type of the edges that a convolution is called with."""
    check_convolution(layer, given)
    return tape.edge_type


def is_weighted(given: Arguments) -> bool:
    weight = given.get("edge_weight")
    if weight is not None and not isinstance(weight, EdgeWeights):
        raise ModelError("must be given the edge_weight of the module's own input, not one computed from it")
    return weight is not None


def edge_features(given: Arguments) -> Rows | None:
    """The features of the edges, or what row-wise operations made of them; weights are 1 channel wide."""
    features = given.get("edge_attr")
    if isinstance(features, EdgeWeights):
        return features.column()
    if features is None or isinstance(features, EdgeRows):
        return features
    raise ModelError(
        "edge_attr must be the edge_attr of the module's own input, or made of it row by row, "
        f"got {type(features).__name__}"
    )


def needed_features(given: Arguments) -> Rows:
    features = edge_features(given)
    if features is None:
        raise ModelError("must be called with edge_attr")
    return features


def aggregation(layer: pyg.MessagePassing) -> Aggregation:
    found = AGGREGATIONS.get(layer.aggr if isinstance(layer.aggr, str) else None)
    if found is None:
        raise ModelError(f"aggr must be one of {', '.join(map(repr, AGGREGATIONS))}; got {layer.aggr!r}")
    return found


def source_and_target(tape: Tape, x: object) -> tuple[Rows, Rows | None]:
    """One tensor for both ends of an edge, or PyG's pair (source, target), whose second may be None."""
    source, target = x if isinstance(x, tuple | list) and len(x) == 2 else (x, x)
    tape.consumed.append(node_rows(source).name)
    return node_rows(source), None if target is None else node_rows(target)


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
