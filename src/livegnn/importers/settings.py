"""Checks the arguments of calls that import a module or an exported program.

Each function takes one argument of a public call, and raises `ModelError` with the expected value, the actual
one and advice. Functions named ``to_...`` return it in the importer's form. Imports no torch.
"""

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, cast

from livegnn.errors import ModelError
from livegnn.network.call_settings import CallSettings
from livegnn.network.checks import check_width, to_edge_type
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType, NodeType
from livegnn.wording import kind_of, show

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

    from livegnn.graph import Schema

_ROWS = ("node", "edge", "pair")


OLDEST_TORCH = (2, 6)
"""In older versions, `torch.export` fixes the numbers of nodes and edges in many of PyG's operations."""


def check_torch(installed: str | None = None) -> None:
    """Raises `ModelError` if torch is too old to import models. installed: its version, if it is known."""
    try:
        installed = installed or version("torch")
    except PackageNotFoundError:
        return  # the import of torch raises the error
    numbers = re.findall(r"\d+", installed)[:2]
    if tuple(map(int, numbers)) < OLDEST_TORCH:
        raise ModelError(
            f"importing a model needs PyTorch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or newer, got {installed}: "
            "upgrade it, or import the model elsewhere and load the file that Model.save writes: that needs "
            "no torch"
        )


def schema_of(settings: CallSettings) -> "Data | HeteroData | Schema | None":
    """The schema or data with types and widths, if given."""
    return to_schema(settings.data, "data")


def checked(settings: CallSettings) -> CallSettings:
    """The settings with edge types as tuples. Raises `ModelError` for settings that are not valid."""
    check_name(settings.method, "method", "the method that predicts")
    check_inputs(settings.inputs)
    check_groups(settings.groups)
    schema, metadata = schema_of(settings), to_metadata(settings.metadata)
    edge_type, relations = to_edge_type(settings.edge_type, "edge_type"), to_relations(settings.relations)
    alone = relations is None and metadata is None and schema is None
    check_node_type(settings.node_type, edge_type, alone=alone)
    edge_weight = to_edge_weight(settings.edge_weight)
    check_channels(settings.in_channels, "in_channels", 1)
    check_channels(settings.edge_channels, "edge_channels", 0)
    settings = replace(
        settings, metadata=metadata, edge_type=edge_type, relations=relations, edge_weight=edge_weight
    )
    if schema is not None:
        _check_beside_data(settings)
    check_output(settings.output)
    check_output_type(settings.output_type)
    return settings


def _check_beside_data(settings: CallSettings) -> None:
    default = CallSettings()
    names = ("node_type", "edge_type", "metadata", "edge_weight", "in_channels", "edge_channels")
    given = [name for name in names if getattr(settings, name) != getattr(default, name)]
    if given:
        raise ModelError(f"data has the types and widths: leave out {', '.join(given)}, or data")


def check_name(value: object, name: str, of: str) -> None:
    """Raises `ModelError` if a value is not a text. of: the thing that it names."""
    if not isinstance(value, str):
        raise ModelError(f"{name} must be the name of {of}, as text, got {show(value)}")


def check_inputs(value: object) -> None:
    """Raises `ModelError` unless `inputs` is a mapping from names, and numbers of channels are whole."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise ModelError(
            f"inputs must be a dict from arguments to their rows or values, got {show(value)}: write it as "
            "in inputs={'x': ...}"
        )
    for name, spec in value.items():
        if not isinstance(name, str):
            raise ModelError(
                f"inputs must have the names of arguments as keys, as text, got {show(name)}: write it as "
                "in inputs={'x': ...}"
            )
        for one in spec if isinstance(spec, list) else [spec]:
            _check_rows(one, name)


def _check_rows(spec: object, name: str) -> None:
    """Checks the channels of ``("node", channels)``, perhaps with ``int`` or ``bool`` behind them;
    ``("node", "x")`` names a column instead."""
    if not isinstance(spec, tuple) or not spec or not isinstance(spec[0], str) or spec[0] not in _ROWS:
        return
    if any(isinstance(one, str) for one in spec[1:]):
        return
    for channels in spec[1:]:
        if channels not in (int, bool):
            check_width(channels, f"the channels in inputs[{name!r}]", 0)


def check_groups(value: object) -> None:
    """Raises `ModelError` unless `groups` maps arguments, or None, to node types or edge types."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise ModelError(
            f"groups must be a dict from arguments to the types of their groups, got {show(value)}: write it "
            "as in groups={'batch': 'graph'}"
        )
    for name, members in value.items():
        if name is not None and not isinstance(name, str):
            raise ModelError(
                "groups must have names of arguments as keys, or None for all nodes as one group, got "
                f"{show(name)}"
            )
        several = members if isinstance(members, list) and name is None else [members]
        for one in several or [None]:
            kind = isinstance(one, tuple) and len(one) == 3 and all(isinstance(part, str) for part in one)
            if not kind and not isinstance(one, str):
                raise ModelError(
                    f"groups[{name!r}] must be the node type of the groups, or the type of the edges from "
                    f"members to groups, got {show(members)}: write it as in groups={{{name!r}: 'graph'}} or "
                    f"groups={{{name!r}: ('node', 'in', 'graph')}}"
                )


def check_output(value: object) -> None:
    """Raises `ModelError` unless `output` names one result, or several different ones."""
    if value is None or isinstance(value, str):
        return
    if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise ModelError(
            "output must be the name of a result, as text, or a list of such names, the prediction first, "
            f"got {show(value)}: results are named by their keys, or 'output[0]', 'output[1]', ..."
        )
    if not value:
        raise ModelError("output must name at least one result, got none: leave it out for the default")
    if len(set(value)) < len(value):
        raise ModelError(f"output must name different results, got {show(value)}: name each of them once")


def check_output_type(value: object) -> None:
    """Raises `ModelError` unless `output_type` is a name, or None."""
    if value is not None:
        check_name(value, "output_type", "a node type")


def to_relations(value: object) -> tuple[EdgeType, ...] | None:
    """The edge types of numbered relations. Raises `ModelError` unless they are different."""
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise ModelError(
            f"relations must be a list of edge types, the first for the number 0, got {show(value)}: write "
            "them as in [('user', 'likes', 'user'), ('user', 'follows', 'user')]"
        )
    found = tuple(to_edge_type(one, "relations") for one in value)
    if not found:
        raise ModelError(
            "relations must have at least one edge type, got none: leave it out if there is no edge_type"
        )
    if len(set(found)) < len(found):
        raise ModelError(
            f"relations must be different edge types, got {', '.join(map(str, found))}: give each number an "
            "edge type of its own"
        )
    return found


def check_joined(relations: Sequence[EdgeType], node_type: NodeType) -> None:
    """Raises `ModelError` unless all relations join nodes of `node_type`."""
    for one in relations:
        if (one[0], one[2]) != (node_type, node_type):
            raise ModelError(
                f"relations must be edge types that join {node_type!r} nodes (node_type), got {one}: say "
                "with node_type=... which nodes they join"
            )


def check_node_type(value: object, edge_type: EdgeType, *, alone: bool) -> None:
    """Raises `ModelError` unless `node_type` is a name. alone: only it and `edge_type` give the types."""
    check_name(value, "node_type", "the nodes' type")
    ends = (edge_type[0], edge_type[2])
    if alone and value not in (DEFAULT_NODE_TYPE, *ends):
        too = "" if edge_type == DEFAULT_EDGE_TYPE else " as well"
        raise ModelError(
            f"node_type must be one of the types that edge_type joins, {' and '.join(map(repr, ends))}, got "
            f"{value!r}: give edge_type{too}, as in edge_type=({value!r}, 'to', {value!r})"
        )


def to_metadata(value: object) -> tuple[list[NodeType], list[EdgeType]] | None:
    """The node types, at least one, and the edge types. Raises `ModelError`."""
    if value is None:
        return None
    pair = isinstance(value, tuple | list) and len(value) == 2
    if not pair or not all(map(_is_list, cast("Sequence[object]", value))):
        raise ModelError(
            f"metadata must be a pair, a list of node types and one of edge types, got {show(value)}: "
            "HeteroData.metadata() gives it"
        )
    nodes, edges = cast("Sequence[Collection[object]]", value)
    if not nodes:
        raise ModelError(
            "metadata must have at least one node type, got none: name all that the module reads"
        )
    for one in nodes:
        check_name(one, "metadata[0]", "node types")
    return [str(one) for one in nodes], [to_edge_type(one, "metadata[1]") for one in edges]


def to_edge_weight(value: object) -> tuple[EdgeType, ...] | bool | None:
    """Whether edges have weights, or the edge types that have them. Raises `ModelError`."""
    if value is None or isinstance(value, bool):
        return value
    if not _is_list(value) or isinstance(value, Mapping):
        raise ModelError(
            f"edge_weight must be True, False, or a list of the edge types that have weights, got "
            f"{show(value)}"
        )
    return tuple(to_edge_type(one, "edge_weight") for one in cast("Collection[object]", value))


def check_channels(value: object, name: str, least: int) -> None:
    """Raises `ModelError` unless widths, one or one for each type, are whole numbers of at least `least`."""
    if isinstance(value, Mapping):
        for key, width in value.items():
            check_width(width, f"{name}[{show(key)}]", least)
    elif value is not None:
        check_width(value, name, least)


def to_schema(value: object, name: str, *, edges: bool = False) -> "Data | HeteroData | Schema | None":
    """A schema, given as such or by its graph, or PyG data. edges: whether it must have an edge type."""
    known = getattr(value, "schema", value)
    if known is None:
        return None
    of_pyg = _is_pyg(known)
    kinds = getattr(known, "node_types", None), getattr(known, "edge_types", None)
    if not of_pyg and not all(isinstance(one, Mapping) for one in kinds):
        raise ModelError(
            f"{name} must be a Graph, a Schema, or PyG's Data or HeteroData, got {show(value)}: leave it "
            "out if there is none"
        )
    if of_pyg and isinstance(known, sys.modules["torch_geometric.data"].Data):  # it has one type of each
        return cast("Data", known)
    for kind, of, needed in zip(kinds, ("node type", "edge type"), (True, edges), strict=True):
        if needed and not kind:
            raise ModelError(
                f"{name} must have at least one {of}, got {kind_of(value)} without any: give a graph that "
                "has what the module reads, or leave it out"
            )
    return cast("HeteroData | Schema", known)


def _is_pyg(value: object) -> bool:
    """Whether it is PyG data; an object can be so only if PyG is loaded, so this does not import PyG."""
    pyg = sys.modules.get("torch_geometric.data")
    return pyg is not None and isinstance(value, (pyg.Data, pyg.HeteroData))


def _is_list(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes)
