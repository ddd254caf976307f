"""From a trained PyG module to a `Model`.

The module's ``forward`` is traced with torch.fx: layers that `LAYERS` knows stay whole, everything else is
followed down to the functions and methods that it calls. Each becomes a few steps. At the end the module and
the model are run on a small graph and must agree, so that nothing that tracing cannot see goes wrong
unnoticed.
"""

import copy
import inspect
import operator
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import fx, nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model import reference
from livegnn.model.adapters.layers import LAYERS
from livegnn.model.adapters.message_passing import decompose
from livegnn.model.adapters.operations import FUNCTIONS, IN_PLACE_FUNCTIONS, METHODS, Operation
from livegnn.model.adapters.proposed import Proposals, import_proposed
from livegnn.model.adapters.tape import EdgeRows, Edges, EdgeWeights, Rows, Tape, Weight
from livegnn.model.model import Model
from livegnn.model.proposal import Proposer
from livegnn.types import EdgeType, FloatArray, IntArray, NodeType

_ADVICE = "build that part of the model from steps (docs/models.md), or train without it"
_LEAF_PACKAGES = ("torch_geometric.nn.norm", "torch_geometric.nn.aggr", "torch_geometric.nn.pool")
_TOLERANCE = 1e-3


def read(
    module: object,
    *,
    node_type: NodeType,
    edge_type: EdgeType,
    edge_weight: bool | None,
    in_channels: int | None,
    edge_channels: int | None = None,
    proposer: Proposer | None = None,
    allow_code: bool = False,
) -> Model:
    """Imports a module; `Model.from_pyg` says how."""
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"must be a torch.nn.Module, got {type(module).__name__}: pass the trained module itself"
        )
    _check_initialized(module)
    module = _copy(module)
    takes_weight, takes_features = _takes(module, edge_weight, edge_channels)
    inputs: dict[str, object] = {"x": Rows("x"), "edge_index": Edges()}
    if takes_weight:
        inputs["edge_weight"] = EdgeWeights(edge_type)
    if takes_features:
        inputs["edge_attr"] = EdgeRows("edge_attr", edge_type)
    walk = _Walk(
        Tape(node_type, edge_type, edge_weight is None, lambda part, path, x: walk.call(part, path, {"x": x}))
    )
    walk.tape.widths = {
        name: width for name, width in (("x", in_channels), ("edge_attr", edge_channels)) if width
    }
    if proposer is not None:
        walk.proposals = Proposals(proposer, allow_code)
    output = walk.trace(module, "", inputs)
    if not isinstance(output, Rows) or isinstance(output, EdgeRows):
        raise ModelError(
            f"{type(module).__name__} must return one tensor with a row per node, got {_in_words(output)}"
        )
    model = walk.tape.finish(output, in_channels, edge_channels)
    _compare(model, module, takes_weight, edge_channels or 1 if takes_features else None)
    return model


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

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        whole = isinstance(m, pyg.MessagePassing) or type(m) in LAYERS
        return (
            whole
            or m.__module__.startswith(_LEAF_PACKAGES)
            or bool(super().is_leaf_module(m, module_qualified_name))
        )


class _Call(nn.Module):  # type: ignore[misc]
    """Calls a module with the given inputs alone, so that all its other parameters keep their defaults."""

    def __init__(self, module: nn.Module, names: tuple[str, ...], positional: bool) -> None:
        super().__init__()
        self.module = module
        self._names = names
        self._positional = positional

    def forward(self, x: object, edge_index: object, edge_weight: object, edge_attr: object) -> object:
        given = {"x": x, "edge_index": edge_index, "edge_weight": edge_weight, "edge_attr": edge_attr}
        if self._positional:
            return self.module(x)
        return self.module(**{name: given[name] for name in self._names})


class _Walk:
    """A walk through the traced modules, in the order in which they compute."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.proposals: Proposals | None = None

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
        root = _Call(module, tuple(inputs), positional=len(inputs) == 1)
        try:
            graph = _Tracer().trace(root)
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
                values[node] = inputs.get(node.target)
            elif node.op == "output":
                return fx.node.map_arg(node.args[0], values.__getitem__)
            elif node in needed:
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = self._node(node, root, path, args, kwargs)
        raise ModelError(f"{_at(module, path)} returns nothing")

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


def _takes(module: nn.Module, edge_weight: bool | None, edge_channels: int | None) -> tuple[bool, bool]:
    """Whether the module is to be called with edge weights, and with edge features.

    Raises `ModelError` if it needs other inputs.
    """
    parameters = inspect.signature(module.forward).parameters
    if isinstance(module, pyg.Sequential):
        accepted, required = set(module.signature.param_dict), set(module.signature.param_dict)
    else:
        accepted = set(parameters)
        required = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
    others = sorted(required - {"x", "edge_index", "edge_weight", "edge_attr"})
    if others or not {"x", "edge_index"} <= accepted:
        raise ModelError(
            f"{type(module).__name__}.forward must take x, edge_index and perhaps edge_weight and edge_attr, "
            f"got ({', '.join(accepted)}): wrap it in a module that does"
        )
    features = None if edge_channels is None else edge_channels > 0
    for parameter, name, value in (
        ("edge_weight", "edge_weight", edge_weight),
        ("edge_attr", "edge_channels", features),
    ):
        if value is True and parameter not in accepted:
            forbidden = "True" if name == parameter else "given"
            raise ModelError(
                f"{type(module).__name__}.forward takes no {parameter}, so {name} must not be {forbidden}"
            )
        if value is False and parameter in required:
            forbidden = "False" if name == parameter else "0"
            raise ModelError(
                f"{type(module).__name__}.forward needs {parameter}, so {name} must not be {forbidden}"
            )
    if features is None:
        features = "edge_attr" in required or any(map(_reads_features, module.modules()))
    return "edge_weight" in accepted and edge_weight is not False, "edge_attr" in accepted and features


def _reads_features(part: nn.Module) -> bool:
    """Whether a layer cannot do, or was not trained, without features of edges."""
    return isinstance(part, pyg.GINEConv | pyg.GMMConv) or getattr(part, "edge_dim", None) is not None


def _check_initialized(module: nn.Module) -> None:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if nn.parameter.is_lazy(tensor):
            raise ModelError(
                f"the parameter {name!r} has no shape and no values yet: run the module once on your graph, "
                "or load its trained weights"
            )


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
    if isinstance(value, EdgeRows):
        return "one with a row per edge"
    return "its edges" if isinstance(value, Edges | EdgeWeights) else type(value).__name__


@dataclass(frozen=True)
class _Probe:
    x: Mapping[NodeType, FloatArray]
    edge_index: Mapping[EdgeType, IntArray]
    weight: Mapping[EdgeType, FloatArray]
    edge_attr: Mapping[EdgeType, FloatArray] = field(default_factory=dict)


def _compare(model: Model, module: nn.Module, takes_weight: bool, edge_channels: int | None) -> None:
    """Raises `ModelError` if model and module differ on a small graph with isolated nodes and a self-loop.

    edge_channels: None if the module is called without features of edges, else how many they have if the
    model, which reads none of them, does not tell.
    """
    random = np.random.default_rng(0)
    edges = np.unique(np.concatenate([random.integers(0, 12, (2, 40)), [[3], [3]]], axis=1), axis=1)
    x = random.standard_normal((16, model.width("x")), dtype=np.float32)
    weight = random.random(int(edges.shape[1]), dtype=np.float32) + np.float32(0.5)
    given = {"x": torch.from_numpy(x), "edge_index": torch.from_numpy(edges)}
    if takes_weight:
        given["edge_weight"] = torch.from_numpy(weight)
    if edge_channels is not None:
        if "edge_attr" in model.edge_inputs:
            edge_channels = model.edge_inputs["edge_attr"].width
        features = random.standard_normal((int(edges.shape[1]), edge_channels), dtype=np.float32)
        given["edge_attr"] = torch.from_numpy(features)
    try:
        with torch.no_grad():
            expected = module(**given).numpy()
    except Exception as error:
        raise ModelError(f"{type(module).__name__} fails on a graph of 16 nodes: {error}") from error
    edge_type = model.edge_types[0] if model.edge_types else ("", "", "")
    attributes = {} if edge_channels is None else {edge_type: given["edge_attr"].numpy()}
    probe = _Probe({model.node_type("x"): x}, {edge_type: edges}, {edge_type: weight}, attributes)
    got = reference.compute(model, probe)[model.output]
    scale = float(np.abs(expected).max(initial=0))
    difference = float(np.abs(got - expected).max()) if got.shape == expected.shape else np.inf
    if not difference <= _TOLERANCE * max(scale, 1e-6):
        raise ModelError(
            f"the imported model differs from {type(module).__name__} by {difference:.3g} on a small graph "
            f"with values up to {scale:.3g}: its forward does what tracing cannot see, such as a type test; "
            f"{_ADVICE}"
        )
