"""Importing a module: what it is called with, found or told; reading, lowering, checking."""

import inspect
import traceback
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeVar, cast

from torch import nn

from livegnn.errors import ModelError
from livegnn.model.importer.arguments import Found, find_arguments
from livegnn.model.importer.assembly import RELATION, Assembled, assemble
from livegnn.model.importer.check import check_import
from livegnn.model.importer.copying import keeping_random
from livegnn.model.importer.export import call_with, export_module, leaves, ordered_layer, ordinary, unwrap
from livegnn.model.importer.proposed import Cuts, Proposals, import_proposed
from livegnn.model.importer.reader import read
from livegnn.model.importer.settings import (
    check_channels,
    check_inputs,
    check_joined,
    check_name,
    check_node_type,
    check_output,
    check_output_type,
    check_proposer,
    to_edge_type,
    to_edge_weight,
    to_metadata,
    to_relations,
    to_schema,
)
from livegnn.model.importer.widths import discover
from livegnn.model.model import Model
from livegnn.model.proposal import Proposer
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType, NodeType
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

    from livegnn.graph import Graph, Schema

Metadata = tuple[Sequence[NodeType], Sequence[EdgeType]]
"""Node types and edge types, as ``HeteroData.metadata()`` gives them."""
_Kind = TypeVar("_Kind", NodeType, EdgeType)
Key = tuple[str, NodeType | EdgeType]
"""A width that is to be known: ("x", node type) or ("edge_attr", edge type)."""


def import_module(
    module: object,
    data: "Data | HeteroData | Schema | Graph | None" = None,
    *,
    inputs: Mapping[str, object] | None,
    method: str,
    output: str | Sequence[str] | None,
    node_type: NodeType,
    edge_type: EdgeType,
    relations: Sequence[EdgeType] | None,
    metadata: Metadata | None,
    output_type: NodeType | None,
    edge_weight: Collection[EdgeType] | bool | None,
    in_channels: int | Mapping[NodeType, int] | None,
    edge_channels: int | Mapping[EdgeType, int] | None,
    proposer: Proposer | None = None,
    allow_code: bool = False,
) -> Model:
    """The model of a module; `Model.from_pyg` says what the arguments are.

    Whatever the module does, raises nothing but `ModelError`, with the line of the module where it is known.
    """
    if not isinstance(module, nn.Module):
        raise ModelError(f"must be a torch.nn.Module, got {kind_of(module)}: {_instead_of(module)}")
    check_name(method, "method", "the method that predicts")
    check_inputs(inputs)
    check_output(output)
    check_output_type(output_type)
    known, metadata = to_schema(data, "data"), to_metadata(metadata)
    edge_type, relations = to_edge_type(edge_type, "edge_type"), to_relations(relations)
    check_node_type(node_type, edge_type, alone=all(told is None for told in (relations, metadata, known)))
    edge_weight = to_edge_weight(edge_weight)
    check_channels(in_channels, "in_channels", 1)
    check_channels(edge_channels, "edge_channels", 0)
    check_proposer(proposer)
    name = f"{type(module).__name__}.{method}"
    try:
        with ordinary(), keeping_random():
            inner = unwrap(module, method)
            if known is None:
                types = _Types(inner, node_type, edge_type, relations, metadata, method)
                found = types.find(types.describe(edge_weight, in_channels, edge_channels), inputs)
            else:
                told = {
                    "node_type": node_type != DEFAULT_NODE_TYPE,
                    "edge_type": edge_type != DEFAULT_EDGE_TYPE,
                    "metadata": metadata is not None,
                    "edge_weight": edge_weight is not None,
                    "in_channels": in_channels is not None,
                    "edge_channels": edge_channels is not None,
                }
                _refuse_beside_data(told)
                _check_takes_relations(inner, method, relations)
                found = find_arguments(inner, known, method, _with_relations(inputs, relations))
            reading = Reading(inner, found, method, relations, output, output_type)
            model = reading.model(None if proposer is None else Proposals(proposer, allow_code))
            if known is None:
                types.check_widths({*model.inputs, *model.edge_inputs})
            return model
    except ModelError as error:
        raise ModelError(_with_place(error, module, name, relations)) from error.__cause__
    except Exception as error:
        place = line_of(error)
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        if relations is not None:
            what += _other_numbers(module, len(relations))
        raise ModelError(f"{name} cannot be imported: {place and place + ': '}{what}") from error


@dataclass(frozen=True)
class Reading:
    """A module, what its method is called with, and which of its results is the prediction."""

    module: nn.Module
    found: Found
    method: str
    relations: tuple[EdgeType, ...] | None
    output: str | Sequence[str] | None
    output_type: NodeType | None

    def model(self, proposals: Proposals | None = None) -> Model:
        """The model, checked against the module."""
        if proposals is None:
            made = self.assemble(self.module, None)
        else:
            made = import_proposed(self.module, self.assemble, self.call, proposals)
        check_import(
            made.model,
            self.module,
            self.found,
            self.method,
            columns=made.columns,
            relations=self.relations,
            output=(made.output, made.row_axis),
        )
        return made.model

    def assemble(self, module: nn.Module, cuts: Cuts | None) -> Assembled:
        """What the module computes, as steps. cuts: the layers that are taken out of it."""
        found = self.found
        exported = export_module(
            module, found.positional, found.arguments, method=self.method, parameters=found.parameters
        )
        return assemble(
            read(exported),
            relations=self.relations,
            output=self.output,
            output_type=self.output_type,
            parts=() if cuts is None else cuts.parts(),
        )

    def call(self, module: nn.Module) -> object:
        """Calls a module on a small graph."""
        found = self.found
        return call_with(module, found.positional, found.arguments, self.method, found.parameters)


def _other_numbers(module: nn.Module, relations: int) -> str:
    """Which layers have another number of relations than there are, as errors end."""
    for path, part in module.named_modules():
        number = getattr(part, "num_relations", relations)
        if number != relations:
            return (
                f"; {path or type(part).__name__} has num_relations={number}, and relations are {relations}"
            )
    return ""


def _with_place(error: ModelError, module: nn.Module, name: str, relations: Sequence[EdgeType] | None) -> str:
    """What an error says, with the name of the method and the line of the module."""
    text = str(error)
    place = "" if error.__cause__ is None else line_of(error.__cause__)
    if place and place not in text:
        text = f"{place}: {text}"
    if type(module).__name__ not in text:
        text = f"{name}: {text}"
    if relations is not None and error.__cause__ is not None:
        text += _other_numbers(module, len(relations))
    if "must be finite" in text:
        text = f"{text}; of its parameters and buffers, these are not: {_not_finite(module)}"
    return text


def _not_finite(module: nn.Module) -> str:
    named = (*module.named_parameters(), *module.named_buffers())
    return ", ".join(repr(name) for name, tensor in named if not bool(tensor.isfinite().all()))


_LIBRARIES = ("/torch/", "torch_geometric", "/livegnn/model/", "<")


def line_of(error: BaseException) -> str:
    """The line of the user's that an error went through last, empty if none did."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not any(library in one.filename for library in _LIBRARIES)]
    return f"{PurePath(own[-1].filename).name}:{own[-1].lineno}, {own[-1].line!r}" if own else ""


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


def _refuse_beside_data(told: Mapping[str, bool]) -> None:
    if any(told.values()):
        names = ", ".join(name for name, is_told in told.items() if is_told)
        raise ModelError(f"data tells the types and widths: leave out {names}, or data")


def _check_takes_relations(module: nn.Module, method: str, relations: Sequence[EdgeType] | None) -> None:
    if relations is not None and RELATION not in inspect.signature(getattr(module, method)).parameters:
        name = f"{type(module).__name__}.{method}"
        raise ModelError(f"{name} takes no edge_type, so relations must not be given")


@dataclass(frozen=True)
class _Edges:
    """What the edges of one type carry, as a schema says it."""

    weighted: bool
    features: int


@dataclass(frozen=True)
class _Described:
    """What a schema tells, where there is none. asked_for: the module is called with all that it has."""

    asked_for = True
    node_types: Mapping[NodeType, int]
    edge_types: Mapping[EdgeType, _Edges]


_WIDEST = 100_000


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
        self.module, self.method, self.relations = module, method, relations
        self.parameters = inspect.signature(getattr(module, method)).parameters
        self._check_given(node_type, edge_type, metadata)
        self.unknown: list[tuple[str, str, str, str]] = []
        if metadata is not None:
            self.nodes, self.edges = list(metadata[0]), list(metadata[1])
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
        check_joined(self.relations or (), node_type)

    def _check_given(self, node_type: NodeType, edge_type: EdgeType, metadata: Metadata | None) -> None:
        """Whether the keywords go with each other, and with what the method takes."""
        name = f"{type(self.module).__name__}.{self.method}"
        told = (node_type, edge_type) != (DEFAULT_NODE_TYPE, DEFAULT_EDGE_TYPE) or self.relations is not None
        if metadata is not None and told:
            raise ModelError("metadata names all types: leave out node_type, edge_type and relations")
        dicts = any(one.endswith("_dict") for one in self.parameters)
        if metadata is None and (dicts or any(map(_convolutions, self.module.modules()))):
            raise ModelError(
                f"{name} is for several types of nodes or edges: name its types with metadata=, or data"
            )
        if self.relations is None:
            numbered = self.parameters.get(RELATION)
            if numbered is not None and numbered.default is numbered.empty:
                raise ModelError(f"{name} takes edge_type: say with relations=... what its numbers stand for")
            return
        _check_takes_relations(self.module, self.method, self.relations)

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
        edge_weight: Collection[EdgeType] | bool | None,
        in_channels: int | Mapping[NodeType, int] | None,
        edge_channels: int | Mapping[EdgeType, int] | None,
    ) -> "dict[Key, int | bool | None]":
        """What is known of each input: ``("x", type)`` and ``("edge_attr", type)`` -> width, None if unknown;
        ``("edge_weight", type)`` -> whether the module is called with it."""
        several = any(one.kind is one.VAR_KEYWORD for one in self.parameters.values()) or any(
            map(_convolutions, [self.module])
        )
        takes = {name.removesuffix("_dict") for name in self.parameters}
        needs = {n.removesuffix("_dict") for n, p in self.parameters.items() if p.default is p.empty}
        self._check_columns(edge_weight, edge_channels, takes, needs, several=several)
        known: dict[Key, int | bool | None] = {}
        for node in self.nodes:
            known["x", node] = _told("in_channels", in_channels, node, self.nodes)
        made_for = dict(self._made_for_features())
        typed = any(map(_convolutions, self.module.modules()))
        for edge in self.edges:
            width = _told("edge_channels", edge_channels, edge, self.edges)
            needed = "edge_attr" in needs and not typed
            if edge_channels is None and (needed or made_for.get(edge)):
                known["edge_attr", edge] = None
            elif width:
                known["edge_attr", edge] = width
            weighted = edge_weight if isinstance(edge_weight, bool | None) else edge in edge_weight
            known["edge_weight", edge] = bool(weighted) if several else weighted is not False
        return known

    def _check_columns(
        self,
        edge_weight: Collection[EdgeType] | bool | None,
        edge_channels: int | Mapping[EdgeType, int] | None,
        takes: Collection[str],
        needs: Collection[str],
        *,
        several: bool,
    ) -> None:
        """Whether weights and features of edges are what the method takes, of edge types that there are."""
        name = f"{type(self.module).__name__}.{self.method}"
        if not isinstance(edge_weight, bool | None):
            for kind in edge_weight:
                if kind not in self.edges:
                    raise ModelError(f"edge_weight must name edge types of metadata, got {kind}")
        for column, keyword, given, no in (
            ("edge_weight", "edge_weight", edge_weight, False),
            ("edge_attr", "edge_channels", edge_channels, 0),
        ):
            if given and column not in takes and not several:
                raise ModelError(f"{name} takes no {column}, so {keyword} must not be {given}")
            if given is not None and not given and column in needs:
                raise ModelError(f"{name} needs {column}, so {keyword} must not be {no}")

    def _made_for_features(self) -> Iterator[tuple[EdgeType, bool]]:
        """Which edge types have a layer that was made for features of edges."""
        by_type = [
            (edge, conv) for part in self.module.modules() for edge, conv in _convolutions(part).items()
        ]
        for edge in self.edges:
            layers = [conv for kind, conv in by_type if kind == edge] if by_type else [self.module]
            yield edge, any(_reads_features(one) for layer in layers for one in layer.modules())

    def find(self, known: "Mapping[Key, int | bool | None]", inputs: Mapping[str, object] | None) -> Found:
        """The module's arguments, with the widths that it takes."""
        inputs = _with_relations(inputs, self.relations)
        unknown = [key for key, width in known.items() if width is None]

        def arguments(widths: Mapping[Hashable, int]) -> Found:
            full = {key: widths.get(key, given) for key, given in known.items()}
            described = _Described(
                {node: int(full["x", node] or 0) for node in self.nodes},
                {
                    edge: _Edges(bool(full["edge_weight", edge]), int(full.get(("edge_attr", edge)) or 0))
                    for edge in self.edges
                },
            )
            return find_arguments(self.module, cast("Schema", described), self.method, inputs)

        if not unknown:
            return arguments({})

        def call(widths: Mapping[Hashable, int]) -> object:
            found = arguments(widths)
            return call_with(self.module, found.positional, found.arguments, self.method, found.parameters)

        sizes = {size for one in self.module.parameters() for size in one.shape}
        for part in self.module.modules():
            held = (
                size for size in vars(part).values() if isinstance(size, int) and not isinstance(size, bool)
            )
            sizes.update(size for size in held if 0 < size < _WIDEST)
        try:
            widths = discover(unknown, call, sizes)
        except ModelError:
            raise
        except Exception as error:
            what = ordered_layer(self.module) or (
                f"{type(error).__name__}: {error}".rstrip(": ")
                + "; say how wide its inputs are with in_channels and edge_channels if it is that"
            )
            raise ModelError(f"{type(self.module).__name__}.{self.method} fails: {what}") from error
        found = arguments({**dict.fromkeys(unknown, 1), **widths})
        inputs_read = {one.name.partition(":")[0] for one in leaves([found.positional, found.arguments])}
        for column, name in (("x", "in_channels"), ("edge_attr", "edge_channels")):
            lacking = [key[1] for key in unknown if key[0] == column and key not in widths]
            self.unknown += [(f"{column}:{one}", column, str(one), name) for one in lacking]
        if len(self.nodes) == len(self.edges) == 1:
            self.check_widths(inputs_read)
        return found

    def check_widths(self, read: Collection[str]) -> None:
        """Raises `ModelError` if one of these inputs is as wide as nobody knows."""
        for full, column, one, name in self.unknown:
            if column in read or full in read:
                raise ModelError(
                    f"no layer tells how wide {column} of {one!r} is: say so with {name}=..., or give data"
                )


def _reads_features(layer: nn.Module) -> bool:
    """Whether a layer cannot do, or was not trained, without features of edges."""
    return type(layer).__name__ in ("GINEConv", "GMMConv") or bool(getattr(layer, "edge_dim", None))


def _convolutions(part: nn.Module) -> dict[EdgeType, nn.Module]:
    """The convolutions of a HeteroConv by edge type."""
    convs = getattr(part, "convs", None)
    if type(part).__name__ != "HeteroConv" or convs is None:
        return {}
    return {cast("EdgeType", tuple(edge)): conv for edge, conv in convs.items()}


def _told(
    parameter: str, told: int | Mapping[_Kind, int] | None, key: _Kind, keys: Sequence[_Kind]
) -> int | None:
    """The width that the caller tells for one type."""
    if not isinstance(told, Mapping):
        return told
    for one in told:
        if one not in keys:
            raise ModelError(f"{parameter} must name {', '.join(map(repr, keys))}; got {one!r}")
    return cast("Mapping[object, int]", told).get(key)
