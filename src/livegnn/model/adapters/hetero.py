"""Modules over several types of nodes and edges, as PyG calls them: with dicts, from a type to its tensor.

HeteroConv and the modules that ``to_hetero`` makes are ordinary code over such dicts, and are traced like any
other; what HeteroConv does with several edge types that reach one node type is an operation of its own.
"""

from collections.abc import Collection, Mapping, Sequence

from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.nn.conv import hetero_conv

from livegnn.errors import ModelError
from livegnn.model.adapters import operations
from livegnn.model.adapters.arguments import reads_features
from livegnn.model.adapters.operations import Operation, rows
from livegnn.model.adapters.tape import (
    EDGE_ATTR,
    EDGE_WEIGHT,
    EdgeRows,
    Edges,
    EdgeWeights,
    Rows,
    Tape,
    X,
    input_name,
)
from livegnn.types import EdgeType, NodeType

Metadata = tuple[Sequence[NodeType], Sequence[EdgeType]]
"""Node types and edge types, as ``HeteroData.metadata()`` gives them."""


def check_metadata(metadata: Metadata, module: nn.Module) -> Metadata:
    """The metadata, if they fit together and name all that the module's layers are for."""
    node_types, edge_types = list(metadata[0]), to_edge_types(metadata[1])
    for edge_type in edge_types:
        for end in (edge_type[0], edge_type[2]):
            if end not in node_types:
                raise ModelError(
                    f"metadata has the edge type {edge_type}, but of its node types, "
                    f"{', '.join(map(repr, node_types)) or 'none'}, none is {end!r}"
                )
    for name, part in module.named_modules():
        if not isinstance(part, pyg.HeteroConv):
            continue
        unknown = [edge_type for edge_type in part.convs.keys() if edge_type not in edge_types]  # noqa: SIM118
        if unknown:
            raise ModelError(
                f"HeteroConv at {name!r} has a convolution for {unknown[0]}, which metadata lacks: name it "
                "there, even if the graph has no such edges yet"
            )
    return node_types, edge_types


def to_edge_types(given: Collection[Sequence[str]]) -> tuple[EdgeType, ...]:
    """Edge types as tuples, from whatever holds three names."""
    for edge_type in given:
        if len(edge_type) != 3 or isinstance(edge_type, str):
            raise ModelError(f"edge types must be (source type, relation, target type), got {edge_type!r}")
    return tuple((source, relation, target) for source, relation, target in given)


def make_inputs(
    metadata: Metadata,
    module: nn.Module,
    edge_weight: bool | Collection[EdgeType] | None,
    edge_channels: int | Mapping[EdgeType, int] | None,
) -> dict[str, dict[object, object]]:
    """What the module's parameters stand for.

    edge_weight: the edge types whose weights it is given. edge_channels: those whose features; if nobody
    says, those whose convolution in a HeteroConv was made for features, or all where there is no HeteroConv.
    """
    node_types, edge_types = metadata
    weighted = edge_types if isinstance(edge_weight, bool | None) else to_edge_types(edge_weight)
    _check_named("edge_weight", weighted, edge_types)
    featured = edge_types
    if isinstance(edge_channels, Mapping):
        featured = [edge_type for edge_type, width in edge_channels.items() if width]
        _check_named("edge_channels", to_edge_types(edge_channels), edge_types)
    elif edge_channels is None:
        parts = [part for part in module.modules() if isinstance(part, pyg.HeteroConv)]
        read = {e for part in parts for e, conv in part.convs.items() if reads_features(conv)}
        featured = [edge_type for edge_type in edge_types if edge_type in read or not parts]
    return {
        X: {node_type: Rows(input_name(X, node_type), node_type) for node_type in node_types},
        "edge_index": {edge_type: Edges((edge_type,)) for edge_type in edge_types},
        EDGE_WEIGHT: {e: EdgeWeights((e,), (input_name(EDGE_WEIGHT, e),)) for e in weighted},
        EDGE_ATTR: {e: EdgeRows(input_name(EDGE_ATTR, e), e) for e in featured},
    }


def _check_named(parameter: str, named: Collection[EdgeType], edge_types: Collection[EdgeType]) -> None:
    for edge_type in named:
        if edge_type not in edge_types:
            raise ModelError(f"{parameter} must name edge types of metadata, got {edge_type!r}")


def choose_output(output: object, output_type: NodeType | None) -> object:
    """What the module returns for the nodes to be predicted, from a dict or the only tensor."""
    if not isinstance(output, Mapping):
        if output_type is not None and isinstance(output, Rows) and output.place != output_type:
            raise ModelError(
                f"the module returns rows of {output.place!r} nodes, so output_type must not be "
                f"{output_type!r}"
            )
        return output
    if output_type is None and len(output) > 1:
        raise ModelError(
            f"the module returns rows of {', '.join(map(repr, output))}: say with output_type=... whose rows "
            "are the prediction"
        )
    if output_type is None:
        return next(iter(output.values()), None)
    if output_type not in output:
        raise ModelError(
            f"output_type must be one of the node types that the module returns rows of, "
            f"{', '.join(map(repr, output))}; got {output_type!r}"
        )
    return output[output_type]


def group(tape: Tape, xs: Sequence[object], aggr: object) -> Rows:
    """What the convolutions of HeteroConv say of the nodes of one type: together, or alone if it is one."""
    parts = [rows(x) for x in xs]
    if aggr not in ("sum", "mean", "min", "max", "cat"):
        stacks = ", which stacks edge types along a dimension of their own: train it with 'cat'"
        raise ModelError(
            "HeteroConv's aggr must be 'sum', 'mean', 'min', 'max' or 'cat', "
            f"got {aggr!r}{stacks if aggr is None else ''}"
        )
    if aggr == "cat":
        return operations.concat(tape, parts, dim=-1)
    together = {"min": operations.minimum, "max": operations.maximum}.get(str(aggr), operations.add)
    out, *others = parts
    for other in others:
        out = together(tape, out, other)
    return operations.multiply(tape, out, 1 / len(parts)) if aggr == "mean" and others else out


HETERO_FUNCTIONS: dict[object, Operation] = {hetero_conv.group: group}
