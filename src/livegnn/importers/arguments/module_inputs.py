"""Finds the arguments of a module without data: types and columns from the caller, widths from the module.

The entry point is `ModuleInputs`: the types of nodes and edges, whether edges have weights and features, and
the width of each input, which is found by calling the module (`widths`) if the caller does not give it.
"""

import inspect
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard, TypeVar, cast

from torch import nn
from torch.utils import _pytree as pytree
from torch_geometric.nn import MessagePassing

from livegnn.errors import ModelError
from livegnn.importers.arguments.arguments import ModuleArguments, find_arguments, record_of
from livegnn.importers.arguments.names import NAMES, RELATION, RELATION_OF_PAIRS, meaning_of
from livegnn.importers.arguments.widths import Undiscovered, discover
from livegnn.importers.program.export import call_with, signature_of
from livegnn.importers.program.failures import CallFails, ordered_layer
from livegnn.importers.settings import check_joined
from livegnn.network.call_settings import CallSettings
from livegnn.schema import EdgeSchema, Schema
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType, NodeType

_Kind = TypeVar("_Kind", NodeType, EdgeType)
Key = tuple[str, NodeType | EdgeType]
"""The key of a width: ("x", node type) or ("edge_attr", edge type)."""
_WIDEST = 100_000
WIDTHS = "; say how wide its inputs are with in_channels and edge_channels if it is that"
"""The end of an error about a call that fails, where it may be that."""


def with_relations(
    inputs: Mapping[str, object] | None, relations: Sequence[EdgeType] | None, parameters: Collection[str]
) -> Mapping[str, object] | None:
    """The inputs, with the numbers of relations. parameters: the arguments of the method."""
    if relations is None:
        return inputs
    of_pairs = {RELATION_OF_PAIRS: ("pair",)} if RELATION_OF_PAIRS in parameters else {}
    return {RELATION: ("edge",), **of_pairs, **(inputs or {})}


def check_takes_relations(module: nn.Module, method: str, relations: Sequence[EdgeType] | None) -> None:
    if relations is not None and RELATION not in signature_of(module, method).parameters:
        name = f"{type(module).__name__}.{method}"
        raise ModelError(f"{name} takes no edge_type, so relations must not be given")


class _Described(Schema):
    """The caller's description of a graph. asked_for: the module is called with all of its columns."""

    asked_for = True


class ModuleInputs:
    """The types of nodes and edges of a module without data, and the widths of its inputs.

    edges: how many edges of each type there are in the calls that find the widths.
    """

    def __init__(self, module: nn.Module, settings: CallSettings, edges: int | None = None) -> None:
        self.module, self.settings, self.number_of_edges = module, settings, edges
        self.name = f"{type(module).__name__}.{settings.method}"
        self.parameters = signature_of(module, settings.method).parameters
        self.inputs = {
            **self._columns_of_pairs(),
            **(with_relations(settings.inputs, settings.relations, self.parameters) or {}),
        }
        self.has_record = record_of(module, settings.method, settings.inputs) is not None
        self.typed = any(map(convolutions_of, module.modules()))
        self._check_given()
        node_type, edge_type, metadata = settings.node_type, settings.edge_type, settings.metadata
        self.unknown: list[tuple[str, str, str, str]] = []
        if metadata is not None:
            self.nodes, self.edges = list(metadata[0]), list(metadata[1])
            self._check_convolutions()
        elif settings.relations is None:
            self.nodes, self.edges = list(dict.fromkeys((edge_type[0], edge_type[2]))), [edge_type]
        else:
            self.nodes, self.edges = [node_type], [(node_type, "relation", node_type)]
        for edge in self.edges:
            for end in (edge[0], edge[2]):
                if end not in self.nodes:
                    raise ModelError(
                        f"metadata has the edge type {edge}, but of its node types, "
                        f"{', '.join(map(repr, self.nodes)) or 'none'}, none is {end!r}"
                    )
        check_joined(settings.relations or (), node_type)
        self.known = self._describe()

    def _columns_of_pairs(self) -> dict[str, object]:
        """Features of pairs that the method needs: they are as wide as those of edges."""
        width = self.settings.edge_channels
        wide = width if isinstance(width, int) and width else None
        return {
            name: ("pair", wide)
            for name, one in self.parameters.items()
            if meaning_of(name) == "edge_label_attr" and one.default is one.empty
        }

    def _check_given(self) -> None:
        """Raises `ModelError` if the keywords do not fit each other or the method's parameters."""
        settings, default = self.settings, (DEFAULT_NODE_TYPE, DEFAULT_EDGE_TYPE)
        named = (settings.node_type, settings.edge_type) != default or settings.relations is not None
        if settings.metadata is not None and named:
            raise ModelError("metadata names all types: leave out node_type, edge_type and relations")
        dicts = any(one.endswith("_dict") for one in self.parameters)
        if settings.metadata is None and (dicts or self.typed):
            raise ModelError(
                f"{self.name} is for several types of nodes or edges: name its types with metadata=, or data"
            )
        numbered = self.parameters.get(RELATION)
        needed = numbered is not None and numbered.default is numbered.empty
        if settings.relations is None and needed and RELATION not in (settings.inputs or {}):
            raise ModelError(
                f"{self.name} takes edge_type: say with relations=... what its numbers stand for, or with "
                f"inputs={{{RELATION!r}: ('edge', int)}} that they are a column of the edges"
            )
        check_takes_relations(self.module, settings.method, settings.relations)

    def _check_convolutions(self) -> None:
        for name, part in self.module.named_modules():
            for edge in convolutions_of(part):
                if edge not in self.edges:
                    raise ModelError(
                        f"HeteroConv at {name!r} has a convolution for {edge}, which metadata lacks: name it "
                        "there, even if the graph has no such edges yet"
                    )

    def _describe(self) -> "dict[Key, int | bool | None]":
        """The known facts of each input: ``("x", type)`` and ``("edge_attr", type)`` -> width, None if
        unknown; ``("edge_weight", type)`` -> whether the module is called with it."""
        edge_weight, edge_channels = self.settings.edge_weight, self.settings.edge_channels
        any_keyword = any(one.kind is one.VAR_KEYWORD for one in self.parameters.values())
        several = any_keyword or bool(convolutions_of(self.module))
        says_weights = "edge_weight" in pytree.tree_leaves(dict(self.settings.inputs or {}))
        needs = self._needs()
        self._check_columns(needs, several=several or self.has_record)
        known: dict[Key, int | bool | None] = {}
        for node in self.nodes:
            known["x", node] = _width_of("in_channels", self.settings.in_channels, node, self.nodes)
        made_for = dict(self._made_for_features())
        for edge in self.edges:
            width = _width_of("edge_channels", edge_channels, edge, self.edges)
            needed = "edge_attr" in needs and not self.typed
            if edge_channels is None and (needed or made_for.get(edge)):
                known["edge_attr", edge] = None
            elif width:
                known["edge_attr", edge] = width
            weighted = edge_weight if isinstance(edge_weight, bool | None) else edge in edge_weight
            if weighted is None:
                weighted = says_weights or not (several or self._is_number_by_default("edge_weight"))
            known["edge_weight", edge] = weighted
        return known

    def _is_number_by_default(self, meaning: str) -> bool:
        """Whether an argument has this meaning, and without rows is one number for all of them."""
        defaults = [p.default for n, p in self.parameters.items() if NAMES.get(n) == meaning]
        return any(isinstance(default, int | float) for default in defaults)

    def _needs(self) -> set[str]:
        """The meanings of the arguments that must be given."""
        names = {n.removesuffix("_dict") for n, p in self.parameters.items() if p.default is p.empty}
        return {NAMES.get(name, name) for name in names}

    def _check_columns(self, needs: Collection[str], *, several: bool) -> None:
        """Raises `ModelError` if the method does not take the given weights or features of edges, or if an
        edge type does not exist."""
        edge_weight, edge_channels = self.settings.edge_weight, self.settings.edge_channels
        names = {name.removesuffix("_dict") for name in self.parameters}
        takes = {NAMES.get(name, name) if name.startswith("edge_") else name for name in names} | set(needs)
        if not isinstance(edge_weight, bool | None):
            for kind in edge_weight:
                if kind not in self.edges:
                    raise ModelError(f"edge_weight must name edge types of metadata, got {kind}")
        for column, keyword, given, no in (
            ("edge_weight", "edge_weight", edge_weight, False),
            ("edge_attr", "edge_channels", edge_channels, 0),
        ):
            if given and column not in takes and not several:
                raise ModelError(f"{self.name} takes no {column}, so {keyword} must not be {given}")
            if given is not None and not given and column in needs:
                raise ModelError(f"{self.name} needs {column}, so {keyword} must not be {no}")

    def _made_for_features(
        self, is_made: Callable[[nn.Module], bool] = lambda layer: bool(getattr(layer, "edge_dim", None))
    ) -> Iterator[tuple[EdgeType, bool]]:
        """For each edge type, whether one of its layers was made for features of edges."""
        by_type = [
            (edge, conv) for part in self.module.modules() for edge, conv in convolutions_of(part).items()
        ]
        for edge in self.edges:
            layers = [conv for kind, conv in by_type if kind == edge] if by_type else [self.module]
            yield edge, any(is_made(one) for layer in layers for one in layer.modules())

    def find(self) -> ModuleArguments:
        """The module's arguments, with their widths."""
        lacking = self._lacking()
        if lacking:
            before = list(self.unknown)
            try:
                found = self._find()
                self.call(found)
            except Exception:  # it needs features, or fails with them too, and then that error is raised
                self.unknown = before
                self.known |= dict.fromkeys(lacking)
            else:
                return found
        return self._find()

    def _lacking(self) -> "list[Key]":
        """Features of edges that it is called without, and that the messages of a layer need."""
        if "edge_attr" in self.inputs or self.settings.edge_channels is not None:
            return []
        needed = self._made_for_features(_needs_features)
        keys: list[Key] = [("edge_attr", edge) for edge, needs in needed if needs or self.has_record]
        return [key for key in keys if key not in self.known]

    def call(self, found: ModuleArguments) -> object:
        return call_with(self.module, found.call, edges=self.number_of_edges)

    def _arguments(self, described: _Described, inputs: Mapping[str, object]) -> ModuleArguments:
        method, by_name, groups = self.settings.method, self.settings.by_name, self.settings.groups
        return find_arguments(self.module, described, method, inputs, by_name=by_name, groups=groups)

    def _find(self) -> ModuleArguments:
        known = self.known
        unknown = [key for key, width in known.items() if width is None]
        asked = {name: rows for name, rows in self.inputs.items() if _is_asked(rows)}
        unknown += [("inputs", name) for name in asked]

        def arguments(widths: Mapping[Hashable, int]) -> ModuleArguments:
            filled = {
                name: tuple(widths.get(("inputs", name), 1) if part is None else part for part in rows)
                for name, rows in asked.items()
            }
            full = {key: widths.get(key, given) for key, given in known.items()}
            described = _Described(
                {node: int(full["x", node] or 0) for node in self.nodes},
                {
                    edge: EdgeSchema(
                        weighted=bool(full["edge_weight", edge]),
                        edge_dim=int(full.get(("edge_attr", edge)) or 0),
                    )
                    for edge in self.edges
                },
            )
            inputs = {**self.inputs, **filled}
            return self._arguments(described, inputs)

        if not unknown:
            return arguments({})

        def call(widths: Mapping[Hashable, int]) -> object:
            return self.call(arguments(widths))

        sizes = {size for one in self.module.parameters() for size in one.shape}
        for part in self.module.modules():
            held = (
                size for size in vars(part).values() if isinstance(size, int) and not isinstance(size, bool)
            )
            sizes.update(size for size in held if 0 < size < _WIDEST)
        try:
            widths = discover(unknown, call, sizes)
        except Undiscovered as failed:
            error = failed.__cause__
            what = ordered_layer(self.module) or (
                f"{type(error).__name__}: {error}".rstrip(": ")
                + self._advice(failed.unsure, arguments(dict.fromkeys(unknown, 1)))
            )
            raise CallFails(f"{self.name} fails: {what}") from error
        found = arguments({**dict.fromkeys(unknown, 1), **widths})
        inputs_read = {one.name.partition(":")[0] for one in found.call.given}
        columns = [("x", "in_channels"), ("edge_attr", "edge_channels")]
        for column, name in columns:
            if isinstance(self.inputs.get(column), tuple):
                continue  # the caller says how wide the rows are
            lacking = [key[1] for key in unknown if key[0] == column and key not in widths]
            self.unknown += [(f"{column}:{one}", column, str(one), name) for one in lacking]
        if len(self.nodes) == len(self.edges) == 1:
            self.check_widths(inputs_read)
        return found

    def _advice(self, unsure: Collection[Hashable], found: ModuleArguments) -> str:
        """Returns advice for a call that fails, if the width of an input is uncertain; else nothing."""
        given = {one.name.partition(":")[0] for one in found.call.given}
        return WIDTHS if any(isinstance(key, tuple) and key[0] in given for key in unsure) else ""

    def check_widths(self, read: Collection[str]) -> None:
        """Raises `ModelError` if the width of one of these inputs is unknown."""
        for full, column, one, name in self.unknown:
            if column in read or full in read:
                raise ModelError(f"no layer fixes the width of {column} of {one!r}: give {name}=..., or data")


def called_with(
    module: nn.Module, settings: CallSettings, more: Mapping[str, object], edges: int | None = None
) -> ModuleArguments | None:
    """Returns the arguments with `more` inputs, if the module can be called so, without data; else None.

    A width that is None, as in ``("node", None)``, is found as others are.
    """
    inputs = {**(settings.inputs or {}), **more}
    try:
        declared = ModuleInputs(module, replace(settings, inputs=inputs), edges)
        found = declared.find()
        declared.call(found)
    except Exception:
        return None
    return found


def _is_asked(rows: object) -> TypeGuard[tuple[object, ...]]:
    return isinstance(rows, tuple) and len(rows) > 1 and any(part is None for part in rows[1:])


def _needs_features(layer: nn.Module) -> bool:
    """Whether the messages of a layer read features of edges, and always do."""
    if not isinstance(layer, MessagePassing):
        return False
    features = inspect.signature(layer.message).parameters.get("edge_attr")
    return features is not None and features.default is features.empty and "None" not in str(features)


def convolutions_of(part: nn.Module) -> dict[EdgeType, nn.Module]:
    """The convolutions of a HeteroConv by edge type."""
    convs = getattr(part, "convs", None)
    if type(part).__name__ != "HeteroConv" or convs is None:
        return {}
    return {cast("EdgeType", tuple(edge)): conv for edge, conv in convs.items()}


def _width_of(
    parameter: str, widths: int | Mapping[_Kind, int] | None, key: _Kind, keys: Sequence[_Kind]
) -> int | None:
    """The width that the caller gives for one type."""
    if not isinstance(widths, Mapping):
        return widths
    for one in widths:
        if one not in keys:
            raise ModelError(f"{parameter} must name {', '.join(map(repr, keys))}; got {one!r}")
    return cast("Mapping[object, int]", widths).get(key)
