"""What a module is called with: values of the model in the place of its parameters; widths that are told."""

import inspect
from collections.abc import Mapping

from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model.adapters.arguments import reads_features
from livegnn.model.adapters.tape import (
    EDGE_ATTR,
    EDGE_WEIGHT,
    EdgeRows,
    Edges,
    EdgeWeights,
    Place,
    RelationNumbers,
    RelationRows,
    Rows,
    Source,
    X,
    input_name,
)
from livegnn.types import EdgeType, NodeType


def make_inputs(node_type: NodeType, edge_types: tuple[EdgeType, ...], relational: bool) -> dict[str, object]:
    """What the module's parameters stand for, where all nodes are of one type."""
    values: dict[str, object] = {X: Rows(X, node_type), "edge_index": Edges(edge_types)}
    if not relational:
        weights, features = EdgeWeights(edge_types), EdgeRows(EDGE_ATTR, edge_types[0])
        return {**values, EDGE_WEIGHT: weights, EDGE_ATTR: features}
    return {
        **values,
        "edge_type": RelationNumbers(edge_types),
        EDGE_WEIGHT: EdgeWeights(edge_types, tuple(input_name(EDGE_WEIGHT, e) for e in edge_types)),
        EDGE_ATTR: RelationRows(tuple(EdgeRows(input_name(EDGE_ATTR, e), e) for e in edge_types)),
    }


def takes_features(edge_channels: int | Mapping[EdgeType, int] | None) -> bool | None:
    """Whether the caller says that the module is called with features of edges."""
    if isinstance(edge_channels, Mapping):
        return any(edge_channels.values())
    return None if edge_channels is None else edge_channels > 0


def told_widths(
    parameter: str,
    told: int | Mapping[NodeType, int] | Mapping[EdgeType, int] | None,
    sources: Mapping[str, Source],
    column: str,
) -> dict[str, int]:
    """The widths of inputs that the caller tells: of all of a kind, or of each type's."""
    names: dict[Place, str] = {s.place: name for name, s in sources.items() if s.column == column}
    if not isinstance(told, Mapping):
        return dict.fromkeys(names.values(), told) if told else {}
    widths: dict[Place, int] = {place: width for place, width in told.items() if width}
    for place in widths:
        if place not in names:
            what = "node types" if column == X else "edge types with edge_attr"
            raise ModelError(f"{parameter} must name {what}, {', '.join(map(repr, names))}; got {place!r}")
    return {names[place]: width for place, width in widths.items()}


def bind(
    module: nn.Module, values: Mapping[str, object], edge_weight: bool | None, features: bool | None
) -> dict[str, object]:
    """What the module is called with. Raises `ModelError` if it needs other inputs.

    values: ``x``, ``edge_index`` and others; a dict of them may be a parameter whose name ends with _dict.
    edge_weight, features: whether it is called with these, if the caller says.
    """
    accepted, required = _parameters(module)
    names = {
        name: f"{name}_dict" if isinstance(value, Mapping) and f"{name}_dict" in accepted else name
        for name, value in values.items()
    }
    others = sorted(required - set(names.values()))
    where = f"{type(module).__name__}.forward"
    if others == ["edge_type"]:
        raise ModelError(
            f"{where} takes edge_type: say with relations=[...] which edge types of the graph the numbers "
            "stand for"
        )
    if others or not {names[X], names["edge_index"]} <= set(accepted):
        several = isinstance(values[X], Mapping)
        x, edges, weights, attr = (
            f"{name}_dict" if several else name for name in (X, "edge_index", EDGE_WEIGHT, EDGE_ATTR)
        )
        lacks_metadata = not several and "x_dict" in accepted
        advice = "name its types with metadata=..." if lacks_metadata else "wrap it in a module that does"
        raise ModelError(
            f"{where} must take {x}, {edges} and perhaps {weights} and {attr}, got ({', '.join(accepted)}): "
            f"{advice}"
        )
    if "edge_type" in names and "edge_type" not in accepted:
        raise ModelError(f"{where} takes no edge_type, so relations must not be given")
    for column, parameter, said, yes, no in (
        (EDGE_WEIGHT, "edge_weight", edge_weight, "True", "False"),
        (EDGE_ATTR, "edge_channels", features, "given", "0"),
    ):
        if said is True and names[column] not in accepted:
            raise ModelError(f"{where} takes no {names[column]}, so {parameter} must not be {yes}")
        if said is False and names[column] in required:
            raise ModelError(f"{where} needs {names[column]}, so {parameter} must not be {no}")
    if features is None:
        features = names[EDGE_ATTR] in required or any(map(reads_features, module.modules()))
    if edge_weight is None and isinstance(module, pyg.HeteroConv):
        edge_weight = False  # HeteroConv takes all that its convolutions take, and they differ
    left_out = {name for name, given in ((EDGE_WEIGHT, edge_weight), (EDGE_ATTR, features)) if given is False}
    return {
        name: values[value] for value, name in names.items() if name in accepted and value not in left_out
    }


def _parameters(module: nn.Module) -> tuple[list[str], set[str]]:
    """The parameters of the module's ``forward``, and those without a default."""
    if isinstance(module, pyg.Sequential):
        return list(module.signature.param_dict), set(module.signature.param_dict)
    if isinstance(module, pyg.HeteroConv):
        names = [f"{name}_dict" for name in (X, "edge_index", EDGE_WEIGHT, EDGE_ATTR)]
        return names, set(names[:2])
    parameters = inspect.signature(module.forward).parameters
    return list(parameters), {name for name, given in parameters.items() if given.default is given.empty}
