"""Importing a module: what it is called with, found or told; then it is read and lowered.

The face of it is `Model.from_pyg`.
"""

import inspect
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from torch import nn

from livegnn.errors import ModelError
from livegnn.model.importer.arguments import Found, find_arguments
from livegnn.model.importer.assembly import assemble
from livegnn.model.importer.export import call_once, export_module, leaves, unwrap
from livegnn.model.importer.reader import Program, read
from livegnn.model.importer.widths import discover
from livegnn.model.model import Model
from livegnn.types import EdgeType, NodeType
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

    from livegnn.graph import Graph, Schema

Metadata = tuple[Sequence[NodeType], Sequence[EdgeType]]
"""Node types and edge types, as ``HeteroData.metadata()`` gives them."""
Key = tuple[str, NodeType | EdgeType]
"""A width that is to be known: ("x", node type) or ("edge_attr", edge type)."""


def import_exported(module: object, data: object = None, **settings: Any) -> Model:
    """`import_module`, of which nothing but `ModelError` comes out."""
    try:
        return import_module(module, data, **settings)
    except ModelError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ModelError(f"{type(module).__name__} cannot be imported ({what})") from error


def import_module(
    module: object,
    data: "Data | HeteroData | Schema | Graph | None" = None,
    *,
    inputs: Mapping[str, object] | None,
    method: str,
    output: str | None,
    node_type: NodeType,
    edge_type: EdgeType,
    relations: Sequence[EdgeType] | None,
    metadata: Metadata | None,
    output_type: NodeType | None,
    edge_weight: bool | Collection[EdgeType] | None,
    in_channels: int | Mapping[NodeType, int] | None,
    edge_channels: int | Mapping[EdgeType, int] | None,
) -> Model:
    """The model of a module; `Model.from_pyg` says what the arguments are."""
    if not isinstance(module, nn.Module):
        raise ModelError(f"must be a torch.nn.Module, got {kind_of(module)}: {_instead_of(module)}")
    inner = unwrap(module, method)
    known = getattr(data, "schema", data)
    if known is None:
        types = _Types(inner, node_type, edge_type, relations, metadata, method)
        schema = types.describe(edge_weight, in_channels, edge_channels)
        found = types.find(schema, inputs)
    else:
        if metadata is not None:
            raise ModelError("data tells the types: leave out metadata")
        found = find_arguments(inner, known, method, _with_relations(inputs, relations))
    program = read_program(inner, found, method)
    return assemble(program, relations=_to_edge_types(relations), output=output, output_type=output_type)


def read_program(module: nn.Module, found: Found, method: str) -> Program:
    """What a module computes, called with what was found."""
    return read(
        export_module(module, found.positional, found.arguments, method=method, parameters=found.parameters)
    )


def _instead_of(given: object) -> str:
    if isinstance(given, Mapping):
        return "weights alone are no model, so load them into its module and pass that"
    if hasattr(given, "edge_index") or hasattr(given, "edge_types") or hasattr(given, "schema"):
        return "pass the trained module; Graph.from_pyg(data) imports the graph"
    return "pass the trained module itself"


def _with_relations(
    inputs: Mapping[str, object] | None, relations: Sequence[EdgeType] | None
) -> Mapping[str, object] | None:
    if relations is None:
        return inputs
    return {"edge_type": ("edge",), **(inputs or {})}


def _to_edge_types(given: Collection[Sequence[str]] | None) -> tuple[EdgeType, ...] | None:
    """Edge types as tuples, from whatever holds three names."""
    if given is None:
        return None
    for edge_type in given:
        if len(edge_type) != 3 or isinstance(edge_type, str):
            raise ModelError(f"edge types must be (source type, relation, target type), got {edge_type!r}")
    return tuple((source, relation, target) for source, relation, target in given)


@dataclass(frozen=True)
class _Edges:
    """What the edges of one type carry, as a schema says it."""

    weighted: bool
    features: int


@dataclass(frozen=True)
class _Described:
    """The types of a graph that there is none of yet, as a schema has them."""

    node_types: Mapping[NodeType, int]
    edge_types: Mapping[EdgeType, _Edges]


class _Types:
    """The types of nodes and edges that a module without data is for, and how wide its inputs are."""

    def __init__(
        self,
        module: nn.Module,
        node_type: NodeType,
        edge_type: EdgeType,
        relations: Sequence[EdgeType] | None,
        metadata: Metadata | None,
        method: str,
    ) -> None:
        self.module, self.method, self.relations = module, method, _to_edge_types(relations)
        if metadata is not None:
            self.nodes, edges = list(metadata[0]), _to_edge_types(metadata[1])
            self.edges = list(edges or ())
            self._check_convolutions()
        else:
            self.nodes = (
                list(dict.fromkeys((edge_type[0], edge_type[2]))) if relations is None else [node_type]
            )
            self.edges = [edge_type] if relations is None else [(node_type, "relation", node_type)]
        for edge in self.edges:
            for end in (edge[0], edge[2]):
                if end not in self.nodes:
                    raise ModelError(
                        f"metadata has the edge type {edge}, but of its node types, "
                        f"{', '.join(map(repr, self.nodes)) or 'none'}, none is {end!r}"
                    )
        for relation in self.relations or ():
            if (relation[0], relation[2]) != (node_type, node_type):
                raise ModelError(
                    f"relations must be edge types that join {node_type!r} nodes (node_type), got {relation}"
                )

    def _check_convolutions(self) -> None:
        for name, part in self.module.named_modules():
            for edge in _convolutions(part):
                if edge not in self.edges:
                    raise ModelError(
                        f"HeteroConv at {name!r} has a convolution for {edge}, which metadata lacks: name it "
                        "there, even if the graph has no such edges yet"
                    )

    def describe(
        self,
        edge_weight: bool | Collection[EdgeType] | None,
        in_channels: int | Mapping[NodeType, int] | None,
        edge_channels: int | Mapping[EdgeType, int] | None,
    ) -> "dict[Key, int | bool | None]":
        """What is known of each input: ``("x", type)`` and ``("edge_attr", type)`` -> width, None if unknown;
        ``("edge_weight", type)`` -> whether the module is called with it."""
        parameters = inspect.signature(getattr(self.module, self.method)).parameters
        takes = {name.removesuffix("_dict") for name in parameters}
        needs = {n.removesuffix("_dict") for n, p in parameters.items() if p.default is p.empty}
        known: dict[Key, int | bool | None] = {}
        for node in self.nodes:
            known["x", node] = _told("in_channels", in_channels, node, self.nodes)
        made_for = dict(self._made_for_features())
        for edge in self.edges:
            width = _told("edge_channels", edge_channels, edge, self.edges)
            if edge_channels is None and ("edge_attr" in needs or made_for.get(edge)):
                known["edge_attr", edge] = None
            elif width:
                known["edge_attr", edge] = width
            weighted = edge_weight if isinstance(edge_weight, bool | None) else edge in edge_weight
            several = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
            known["edge_weight", edge] = bool(weighted) if several else weighted is not False
        for name, said in (("edge_weight", edge_weight is True), ("edge_attr", bool(edge_channels))):
            several = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
            if said and name not in takes and not several:
                raise ModelError(f"{type(self.module).__name__}.{self.method} takes no {name}")
        return known

    def _made_for_features(self) -> Iterator[tuple[EdgeType, bool]]:
        """Which edge types have a layer that was made for features of edges."""
        by_type = [
            (edge, conv) for part in self.module.modules() for edge, conv in _convolutions(part).items()
        ]
        for edge in self.edges:
            layers = [conv for kind, conv in by_type if kind == edge] if by_type else [self.module]
            yield edge, any(getattr(one, "edge_dim", None) for layer in layers for one in layer.modules())

    def find(self, known: "Mapping[Key, int | bool | None]", inputs: Mapping[str, object] | None) -> Found:
        """The module's arguments, with the widths that it takes."""
        inputs = _with_relations(inputs, self.relations)
        unknown = [key for key, width in known.items() if width is None]

        def arguments(widths: Mapping[Hashable, int]) -> Found:
            full = {key: widths.get(key, given) for key, given in known.items()}
            schema = _Described(
                {node: int(full["x", node] or 0) for node in self.nodes},
                {
                    edge: _Edges(bool(full["edge_weight", edge]), int(full.get(("edge_attr", edge)) or 0))
                    for edge in self.edges
                },
            )
            return find_arguments(self.module, schema, self.method, inputs)

        if not unknown:
            return arguments({})

        def call(widths: Mapping[Hashable, int]) -> object:
            found = arguments(widths)
            return call_once(self.module, found.positional, found.arguments, self.method, found.parameters)

        try:
            widths = discover(unknown, call)
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(f"{type(self.module).__name__}.{self.method} fails: {error}") from error
        found = arguments({**dict.fromkeys(unknown, 1), **widths})
        read = {one.name.partition(":")[0] for one in leaves([found.positional, found.arguments])}
        for column, name in (("x", "in_channels"), ("edge_attr", "edge_channels")):
            lacking = [key[1] for key in unknown if key[0] == column and key not in widths]
            if lacking and column in read:
                raise ModelError(
                    f"no layer tells how wide {column} of {', '.join(map(repr, lacking))} is: "
                    f"give {name}, or data"
                )
        return found


def _convolutions(part: nn.Module) -> dict[EdgeType, nn.Module]:
    """The convolutions of a HeteroConv by edge type."""
    convs = getattr(part, "convs", None)
    if type(part).__name__ != "HeteroConv" or convs is None:
        return {}
    return {cast("EdgeType", tuple(edge)): conv for edge, conv in convs.items()}


def _told(
    parameter: str,
    told: "int | Mapping[NodeType, int] | Mapping[EdgeType, int] | None",
    key: object,
    keys: Sequence[object],
) -> int | None:
    """The width that the caller tells for one type."""
    if not isinstance(told, Mapping):
        return told
    for one in told:
        if one not in keys:
            raise ModelError(f"{parameter} must name {', '.join(map(repr, keys))}; got {one!r}")
    return cast("Mapping[object, int]", told).get(key)
