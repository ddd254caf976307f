"""From a trained PyG module to a `Model`.

The module's ``forward`` is traced with torch.fx: layers that `LAYERS` knows stay whole, everything else is
followed down to the functions and methods that it calls. Each becomes a few steps. At the end the module and
the model are run on a small graph and must agree, so that nothing that tracing cannot see goes wrong
unnoticed.
"""

import contextlib
import copy
import inspect
import operator
import traceback
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import fx, nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model.adapters import hetero, operations
from livegnn.model.adapters.inputs import bind, make_inputs, takes_features, told_widths
from livegnn.model.adapters.layers import LAYERS
from livegnn.model.adapters.message_passing import decompose
from livegnn.model.adapters.operations import IN_PLACE_FUNCTIONS, METHODS, Operation
from livegnn.model.adapters.probe import compare
from livegnn.model.adapters.proposed import Proposals, import_proposed
from livegnn.model.adapters.relational import name_relations
from livegnn.model.adapters.tape import (
    EDGE_ATTR,
    EDGE_WEIGHT,
    EdgeRows,
    Edges,
    EdgeWeights,
    RelationNumbers,
    RelationRows,
    Rows,
    Source,
    Tape,
    Weight,
    X,
    sources_of,
)
from livegnn.model.model import Model
from livegnn.model.proposal import Proposer
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType, NodeType
from livegnn.wording import kind_of

FUNCTIONS = {**operations.FUNCTIONS, **hetero.HETERO_FUNCTIONS}
_ADVICE = "build that part of the model from steps (docs/models.md), or train without it"
_LEAF_PACKAGES = ("torch_geometric.nn.norm", "torch_geometric.nn.aggr", "torch_geometric.nn.pool")


def read(
    module: object,
    *,
    node_type: NodeType,
    edge_type: EdgeType,
    relations: Sequence[EdgeType] | None,
    metadata: hetero.Metadata | None,
    output_type: NodeType | None,
    edge_weight: bool | Collection[EdgeType] | None,
    in_channels: int | Mapping[NodeType, int] | None,
    edge_channels: int | Mapping[EdgeType, int] | None,
    proposer: Proposer | None = None,
    allow_code: bool = False,
) -> Model:
    """Imports a module; `Model.from_pyg` says how."""
    if not isinstance(module, nn.Module):
        raise ModelError(f"must be a torch.nn.Module, got {kind_of(module)}: {_instead_of(module)}")
    _check_initialized(module)
    module = _copy(module)
    if metadata is None:
        if output_type is not None or not isinstance(edge_weight, bool | None):
            raise ModelError("output_type and edge types with weights are for modules with metadata=...")
        edge_types = name_relations(relations, node_type) if relations is not None else (edge_type,)
        values: Mapping[str, object] = make_inputs(node_type, edge_types, relations is not None)
        takes_weights = edge_weight
    else:
        if relations is not None or (node_type, edge_type) != (DEFAULT_NODE_TYPE, DEFAULT_EDGE_TYPE):
            raise ModelError("metadata names all types: leave out node_type, edge_type and relations")
        metadata = hetero.check_metadata(metadata, module)
        values = hetero.make_inputs(metadata, module, edge_weight, edge_channels)
        takes_weights = edge_weight if isinstance(edge_weight, bool | None) else True
    inputs = bind(module, values, takes_weights, takes_features(edge_channels))
    sources = sources_of(inputs.values())
    told = told_widths("in_channels", in_channels, sources, X) | told_widths(
        "edge_channels", edge_channels, sources, EDGE_ATTR
    )
    walk = _Walk(sources, told, weight_assumed=edge_weight is None)
    if proposer is not None:
        walk.proposals = Proposals(proposer, allow_code)
    output = walk.trace(module, "", copy.deepcopy(inputs))
    if metadata is not None:
        output = hetero.choose_output(output, output_type)
    if not isinstance(output, Rows) or isinstance(output, EdgeRows):
        raise ModelError(
            f"{type(module).__name__} must return one tensor with a row per node, got {_in_words(output)}"
        )
    try:
        model = walk.tape.finish(output)
    except ModelError as error:
        if not (names := _not_finite(module)):
            raise
        raise ModelError(f"{error}. Parameters and buffers that are not: {names}") from None
    widths = walk.tape.input_widths()
    if len(widths) < len(sources):
        widths = _read_in_vain(module, inputs, sources) | widths
    of_places = {sources[n].place: width for n, width in widths.items() if sources[n].column != EDGE_WEIGHT}
    compare(model, module, inputs, of_places, _ADVICE)
    return model


def _instead_of(given: object) -> str:
    if isinstance(given, Mapping):
        return "weights alone are no model, so load them into its module and pass that"
    if hasattr(given, "edge_index") or hasattr(given, "edge_types") or hasattr(given, "schema"):
        return "pass the trained module; Graph.from_pyg(data) imports the graph"
    return "pass the trained module itself"


class _Proxy(fx.Proxy):  # type: ignore[misc]
    """Keeps ``a += b`` in place. With torch.fx alone it is ``a = a + b``, which changes no other ``a``."""

    def __iadd__(self, other: object) -> object:
        return self.tracer.create_proxy("call_function", operator.iadd, (self, other), {})

    def __isub__(self, other: object) -> object:
        return self.tracer.create_proxy("call_function", operator.isub, (self, other), {})

    def __imul__(self, other: object) -> object:
        return self.tracer.create_proxy("call_function", operator.imul, (self, other), {})

    def __itruediv__(self, other: object) -> object:
        return self.tracer.create_proxy("call_function", operator.itruediv, (self, other), {})


class _Tracer(fx.Tracer):  # type: ignore[misc]
    """Follows a module down to the layers that are imported, or refused, as a whole."""

    def __init__(self) -> None:
        super().__init__(autowrap_functions=tuple(hetero.HETERO_FUNCTIONS))

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        whole = isinstance(m, pyg.MessagePassing) or type(m) in LAYERS
        return (
            whole
            or m.__module__.startswith(_LEAF_PACKAGES)
            or bool(super().is_leaf_module(m, module_qualified_name))
        )

    def call_module(
        self, m: nn.Module, forward: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        dicts = any(isinstance(argument, Mapping) for argument in (*args, *kwargs.values()))
        if dicts and self.is_leaf_module(m, ""):
            raise ModelError(
                f"{_at(m, _join('', self.path_of_module(m)))} is not supported: it takes dicts of all types; "
                f"use HeteroConv with a convolution for each edge type, or {_ADVICE}"
            )
        return super().call_module(m, forward, args, kwargs)


class _Call(nn.Module):  # type: ignore[misc]
    """Calls a module with the given inputs alone, so that all its other parameters keep their defaults.

    Dicts stay dicts, of placeholders, since code loops over them. given: placeholder -> what it stands for.
    """

    def __init__(self, module: nn.Module, inputs: Mapping[str, object], tracer: fx.Tracer) -> None:
        super().__init__()
        self.module = module
        self.given: dict[str, object] = {}
        self._inputs = inputs
        self._tracer = tracer

    def forward(self) -> object:
        arguments = {name: self._placeholder(name, value) for name, value in self._inputs.items()}
        if len(arguments) == 1:
            return self.module(*arguments.values())
        return self.module(**arguments)

    def _placeholder(self, name: str, value: object) -> object:
        if isinstance(value, Mapping):
            return {key: self._placeholder(f"{name}[{key!r}]", part) for key, part in value.items()}
        self.given[name] = value
        return self._tracer.create_proxy("placeholder", name, (), {})


class _Walk:
    """A walk through the traced modules, in the order in which they compute."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        widths: Mapping[str, int],
        *,
        weight_assumed: bool,
        everything: bool = False,
    ) -> None:
        """everything: what the output does not depend on is imported too, where that is possible."""
        self.tape = Tape(
            sources,
            weight_assumed,
            lambda part, path, x: self.call(part, path, {"x": x}),
            widths=dict(widths),
        )
        self.proposals: Proposals | None = None
        self._everything = everything

    def call(self, module: nn.Module, path: str, given: Mapping[str, object]) -> Rows:
        """Imports a layer of a layer (GINConv has one), applied to x."""
        place = self.tape.place
        result = (
            self._layer(module, path, (given["x"],), {})
            if _is_whole(module)
            else self.trace(module, path, given)
        )
        self.tape.place = place
        if not isinstance(result, Rows):
            raise ModelError(
                f"{_at(module, path)} must return one tensor with a row per node, got {_in_words(result)}"
            )
        return result

    def trace(self, module: nn.Module, path: str, inputs: Mapping[str, object]) -> object:
        """Imports a module from the inside. inputs: parameter of its ``forward`` -> value."""
        tracer = _Tracer()
        root = _Call(module, inputs, tracer)
        try:
            graph = tracer.trace(root)
        except ModelError:
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1].name
            raise ModelError(
                f"{_at(module, path)} cannot be traced; its forward depends on values, or does what torch.fx "
                f"cannot follow ({type(error).__name__} in {where!r}: {error}): {_ADVICE}"
            ) from error
        values: dict[fx.Node, object] = {}
        needed = _needed(graph, root)
        for node in graph.nodes:
            if node.op == "placeholder":
                values[node] = root.given[node.target]
            elif node.op == "output":
                return fx.node.map_arg(node.args[0], values.__getitem__)
            elif node in needed:
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = self._each_relation(node, root, path, args, kwargs)
            elif self._everything:
                with contextlib.suppress(ModelError, KeyError):
                    args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                    values[node] = self._each_relation(node, root, path, args, kwargs)
        raise ModelError(f"{_at(module, path)} returns nothing")

    def _each_relation(
        self,
        node: fx.Node,
        root: nn.Module,
        path: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        """Imports one node of the graph; if it is applied to edges of several types, once for each type."""
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, RelationRows)]
        whole = node.op == "call_module" and isinstance(
            root.get_submodule(str(node.target)), pyg.MessagePassing
        )
        if whole or not given:
            return self._node(node, root, path, args, kwargs)
        parts = []
        for i in range(len(given[0].parts)):
            one = [value.parts[i] if isinstance(value, RelationRows) else value for value in args]
            named = {
                name: value.parts[i] if isinstance(value, RelationRows) else value
                for name, value in kwargs.items()
            }
            part = self._node(node, root, path, tuple(one), named)
            assert isinstance(part, Rows)
            parts.append(part)
        return RelationRows(tuple(parts))

    def _node(
        self,
        node: fx.Node,
        root: nn.Module,
        path: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        if node.op == "get_attr":
            found = _attribute(root, str(node.target))
            return Weight(_join(path, str(node.target)), found) if isinstance(found, torch.Tensor) else found
        if node.op == "call_module":
            return self._layer(
                root.get_submodule(str(node.target)), _join(path, str(node.target)), args, kwargs
            )
        self.tape.place = _join(path, node.name.removeprefix("module_"))
        in_place = node.op == "call_function" and node.target in IN_PLACE_FUNCTIONS
        operation: Operation | None
        if node.op == "call_function":
            operation = IN_PLACE_FUNCTIONS.get(node.target) or FUNCTIONS.get(node.target)
        else:
            method = str(node.target)
            in_place = method.endswith("_") and method.removesuffix("_") in METHODS
            operation = METHODS.get(method.removesuffix("_") if in_place else method)
        where = f"the operation {_name(node)!r} in {_place(node, path)}"
        if operation is None:
            raise ModelError(f"{where} is not supported: {_ADVICE}")
        kwargs = dict(kwargs)
        in_place = bool(kwargs.pop("inplace", False)) or in_place
        try:
            bound = inspect.signature(operation).bind(self.tape, *args, **kwargs)
            result = operation(*bound.args, **bound.kwargs)
        except (ModelError, TypeError) as error:
            raise ModelError(f"{where} cannot be imported: {error}") from None
        if in_place and isinstance(args[0], Rows):
            args[0].name = result.name
            return args[0]
        return result

    def _layer(
        self, layer: nn.Module, path: str, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> Rows:
        where = _at(layer, path)
        write = LAYERS.get(type(layer))
        if write is None and not isinstance(layer, pyg.MessagePassing):
            raise ModelError(f"{where} is not supported: {_ADVICE}")
        if _has_hooks(layer):
            raise ModelError(f"{where} has hooks, which cannot be imported: remove them first")
        self.tape.place = path or type(layer).__name__
        try:
            bound = inspect.signature(type(layer).forward).bind(layer, *args, **kwargs)
            given = {name: value for name, value in bound.arguments.items() if name != "self"}
            if write is None:
                return self._unknown(layer, path or type(layer).__name__, given)
            return write(self.tape, layer, path or type(layer).__name__, given)
        except (ModelError, TypeError) as error:
            raise ModelError(f"{where} cannot be imported: {error}") from None

    def _unknown(self, layer: pyg.MessagePassing, path: str, given: Mapping[str, object]) -> Rows:
        """A convolution without importer: followed as it runs, or else proposed."""
        written, consumed = len(self.tape.steps), len(self.tape.consumed)
        try:
            return decompose(self.tape, layer, path, given, LAYERS, self._layer)
        except ModelError as error:
            if self.proposals is None:
                raise
            del self.tape.steps[written:], self.tape.consumed[consumed:]
            try:
                return import_proposed(self.tape, layer, path, given, self.proposals)
            except ModelError as refused:
                raise ModelError(f"{error}\nThe proposer did not help: {refused}") from None


def _copy(module: nn.Module) -> nn.Module:
    """The module as it predicts: in evaluation mode and float32, with no graph cached from earlier calls."""
    try:
        module = copy.deepcopy(getattr(module, "_orig_mod", module))
    except Exception as error:
        raise ModelError(f"{type(module).__name__} cannot be copied: {error}") from error
    for part in module.modules():
        for name in vars(part):
            if name.startswith("_cached_"):
                setattr(part, name, None)
    return module.to("cpu", torch.float32).eval().requires_grad_(False)


def _read_in_vain(
    module: nn.Module, inputs: Mapping[str, object], sources: Mapping[str, Source]
) -> dict[str, int]:
    """The widths of inputs, also of those that the module reads for nothing that the output depends on."""
    walk = _Walk(sources, {}, weight_assumed=False, everything=True)
    walk.trace(module, "", copy.deepcopy(dict(inputs)))
    return walk.tape.input_widths()


def _check_initialized(module: nn.Module) -> None:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if nn.parameter.is_lazy(tensor):
            raise ModelError(
                f"the parameter {name!r} has no shape and no values yet: run the module once on your graph, "
                "or load its trained weights"
            )


def _not_finite(module: nn.Module) -> str:
    named = (*module.named_parameters(), *module.named_buffers())
    return ", ".join(repr(name) for name, tensor in named if not bool(tensor.isfinite().all()))


def _is_whole(module: nn.Module) -> bool:
    return bool(_Tracer().is_leaf_module(module, ""))


def _needed(graph: fx.Graph, root: nn.Module) -> set[fx.Node]:
    """The nodes on which the output depends, and those that work in place: they change values of others."""
    needed: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in needed or _works_in_place(node, root):
            needed.update((node, *node.all_input_nodes))
    return needed


def _works_in_place(node: fx.Node, root: nn.Module) -> bool:
    if node.op == "call_module":
        return bool(getattr(root.get_submodule(str(node.target)), "inplace", False))
    name = _name(node)
    return (
        bool(node.kwargs.get("inplace", False))
        or node.target in IN_PLACE_FUNCTIONS
        or name == "setitem"
        or (node.op in ("call_method", "call_function") and name.endswith("_") and not name.endswith("__"))
    )


def _attribute(root: nn.Module, target: str) -> object:
    found: object = root
    for part in target.split("."):
        found = getattr(found, part)
    return found


def _has_hooks(layer: nn.Module) -> bool:
    names = [name for name in vars(layer) if name.endswith(("_forward_hooks", "_forward_pre_hooks"))]
    return any(getattr(layer, name) for name in names)


def _join(path: str, target: str) -> str:
    """A name inside the module at `path`, without the wrapper around it."""
    inner = "" if target == "module" else target.removeprefix("module.")
    return ".".join(part for part in (path, inner) if part)


def _name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _at(module: nn.Module, path: str) -> str:
    return f"{type(module).__name__} at {path!r}" if path else type(module).__name__


def _place(node: fx.Node, path: str) -> str:
    stack = list(node.meta.get("nn_module_stack", {}).values())
    inner = _join(path, str(stack[-1][0])) if stack else path
    return f"the forward of {inner!r}" if inner else "the module's forward"


def _in_words(value: object) -> str:
    if isinstance(value, EdgeRows | RelationRows):
        return "one with a row per edge"
    return "its edges" if isinstance(value, Edges | EdgeWeights | RelationNumbers) else type(value).__name__
