"""Replaces layers that cannot be read by decompositions from a proposer (`proposer`).

While the module is exported, a custom operator replaces such a layer; its result is read as an input with
rows of nodes. Lowering writes the steps of a proposal there. A proposal is used only if it passes
verification and computes the same as the layer on small graphs.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch_geometric.nn import MessagePassing

from livegnn.errors import ModelError
from livegnn.importers.assembly import Assembled, Part
from livegnn.importers.expressions.expressions import Atom, Expression, edge_type_of
from livegnn.importers.expressions.properties import is_of_edges, strip
from livegnn.importers.program.copying import copy_module
from livegnn.importers.program.failures import line_of
from livegnn.importers.proposals.proposer import propose
from livegnn.importers.reading.operators import OPERATORS, Call
from livegnn.importers.reading.values import ROWS, Piece, Value
from livegnn.importers.rules.self_loops import is_weight
from livegnn.importers.writing.lowering import Lowering
from livegnn.network.model import Model
from livegnn.network.proposer import ConvolutionRequest, Proposer
from livegnn.types import FloatArray, IntArray

_METHODS = ("forward", "edge_update", "message", "aggregate", "update")


@dataclass(frozen=True)
class Proposals:
    """The proposer, and whether source code from it may be executed, without a sandbox."""

    proposer: Proposer
    allow_code: bool = False

    def __post_init__(self) -> None:
        if not callable(self.proposer):
            raise ModelError(
                f"proposer must be a function of a ConvolutionRequest and of feedback, got {self.proposer!r}"
            )


@dataclass(frozen=True)
class LayerCall:
    """A module's call of one of its layers, on a small graph. channels: of the result."""

    layer: nn.Module
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    channels: int


@dataclass(frozen=True)
class Cut:
    """A layer whose result is read as an input. roles: the meaning of its tensors, in order: ``"x"``,
    ``"edge_index"``, ``"weight"`` or ``"edge_attr"``.
    """

    path: str
    name: str
    x: Expression
    edges: Atom
    roles: Sequence[str]
    columns: Mapping[str, Expression]


@dataclass
class Cuts:
    """A module without some of its layers. proposals: replaces these layers; None: nothing does, to test
    whether the rest of the module can be read.
    """

    calls: Mapping[str, LayerCall]
    proposals: Proposals | None = None
    cuts: list[Cut] = field(default_factory=list)

    def without(self, module: nn.Module, paths: Collection[str]) -> nn.Module:
        """A copy of a module in which custom operators replace the layers at these paths."""
        copied = copy_module(module)
        for path in paths:
            copied.get_submodule(path).forward = _opaque(f"{id(self)}:{path}", self.calls[path].channels)
        return copied

    def __enter__(self) -> "Cuts":
        _OPEN[str(id(self))] = self
        return self

    def __exit__(self, *error: object) -> None:
        del _OPEN[str(id(self))]

    def take_out(self, call: Call, of: Value, tensors: Sequence[Value], path: str, width: int) -> Value:
        """Reads the result of a layer as an input with rows of nodes. of: rows of the same nodes."""
        if self.proposals is None:
            (piece,) = of.pieces
            edge = next((p.atom for v in tensors for p in v.pieces if is_of_edges(p.atom)), None)
            if piece.atom is None or edge is None:
                raise ModelError("a layer is not called with rows of nodes and edges")
            self.cuts.append(Cut(path, f"proposed:{len(self.cuts)}", piece.row, edge, (), {}))
            result = call.make.input(self.cuts[-1].name, piece.atom, (width,), "float")
            return Value((Piece(piece.atom, piece.mask, result),), ((ROWS,), (width,)))
        roles: list[str] = []
        rows: dict[Expression, Value] = {}
        edges: list[Atom] = []
        columns: dict[str, Expression] = {}
        for value in tensors:
            if len(value.pieces) != 1 or (atom := value.pieces[0].atom) is None:
                raise ModelError(f"a layer can be proposed for rows of nodes and edges, got {value.axes}")
            row = value.pieces[0].row
            if value.kind == "id":
                ends = [call.make.reshape(call.make.end(atom, i), (1,)) for i in (0, 1)]
                if row is not call.make.concat(ends, 0):
                    raise ModelError("a layer can be proposed for the edges of the graph alone")
                roles.append("edge_index")
                edges.append(atom)
            elif not is_of_edges(atom):
                roles.append("x")
                rows[row] = value
            else:
                if strip(row).op != "input" or not value.pieces[0].mask.is_number(1):
                    raise ModelError("a layer can be proposed for features of the module's own input alone")
                roles.append("weight" if is_weight(row) else "edge_attr")
                columns[roles[-1]] = row
        if len(rows) != 1:
            raise ModelError(f"a layer can be proposed for one value of nodes, got {len(rows)}")
        ((row, x),) = rows.items()
        atom = x.pieces[0].atom
        if len(edges) != 1 or edges[0].source is not atom or edges[0].target is not atom:
            raise ModelError("a layer can be proposed for edges between nodes of one type")
        assert atom is not None
        cut = Cut(path, f"proposed:{len(self.cuts)}", row, edges[0], roles, columns)
        self.cuts.append(cut)
        result = call.make.input(cut.name, atom, (width,), "float")
        return Value((Piece(atom, x.pieces[0].mask, result),), ((ROWS,), (width,)))

    def parts(self) -> list[Part]:
        """The replacement of each layer, for lowering."""
        return [Part(cut.name, cut.x, self._fill(cut)) for cut in self.cuts]

    def _fill(self, cut: Cut) -> Callable[[Lowering, str], str]:
        def write(lowering: Lowering, x: str) -> str:
            if self.proposals is None:
                zeros = torch.zeros(self.calls[cut.path].channels)
                return lowering.steps.write("constant", (x,), cut.path or cut.name, {"row": zeros})
            return _splice(lowering, _ask(cut, self.calls[cut.path], self.proposals), cut, x)

        return write


_OPEN: dict[str, Cuts] = {}
"""The modules that are being read, by the number in the keys of their operators."""


@torch.library.custom_op(  # type: ignore[untyped-decorator]
    "livegnn::proposed", mutates_args=(), schema="(Tensor of, Tensor[] tensors, str key, int width) -> Tensor"
)
def _proposed(of: torch.Tensor, tensors: list[torch.Tensor], key: str, width: int) -> torch.Tensor:
    return of.new_zeros((of.shape[0], width))


@_proposed.register_fake  # type: ignore[untyped-decorator]
def _fake(of: torch.Tensor, tensors: list[torch.Tensor], key: str, width: int) -> torch.Tensor:
    return of.new_empty((of.shape[0], width))


def _read(call: Call, of: Value, tensors: Sequence[Value], key: str, width: int) -> Value:
    number, _, path = key.partition(":")
    return _OPEN[number].take_out(call, of, tensors, path, width)


OPERATORS["livegnn.proposed"] = _read


def _opaque(key: str, width: int) -> Callable[..., object]:
    def forward(*args: object, **kwargs: object) -> object:
        tensors = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        first = args[0] if args else next(iter(kwargs.values()))
        of = (
            first[-1]
            if isinstance(first, tuple | list) and isinstance(first[-1], torch.Tensor)
            else tensors[0]
        )
        return torch.ops.livegnn.proposed(of, tensors, key, width)

    return forward


def import_proposed(
    module: nn.Module,
    read: Callable[[nn.Module, Cuts | None], Assembled],
    run: Callable[[nn.Module], object],
    proposals: Proposals,
) -> Assembled:
    """Imports a module that may have layers that cannot be read.

    read: reads and lowers a module. run: calls one on a small graph. Raises `ModelError` with the reason, and
    why no proposal helped.
    """
    try:
        return read(module, None)
    except ModelError as error:
        calls = _record(module, run)
        if not calls:
            raise
        wanted = list(calls)
        for path in [*calls][: len(calls) if len(calls) > 1 else 0]:
            others = [one for one in wanted if one != path]
            try:
                with Cuts(calls) as cuts:
                    read(cuts.without(module, others), cuts)
                wanted = others
            except Exception:
                continue
        try:
            with Cuts(calls, proposals) as cuts:
                return read(cuts.without(module, wanted), cuts)
        except ModelError as refused:
            text = f"{_with_line(error)}\nThe proposer did not help: {_with_line(refused)}"
            raise ModelError(text) from refused.__cause__ or error.__cause__


def _with_line(error: ModelError) -> str:
    """The message of an error, with the line of the user's code."""
    place = "" if error.__cause__ is None else line_of(error.__cause__)
    return f"{place}: {error}" if place and place not in str(error) else str(error)


class _Recorder:
    """Records the calls of layers by their paths. All copies of a module share one recorder."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.calls: dict[str, LayerCall] = {}

    def __deepcopy__(self, memo: object) -> "_Recorder":
        return self

    def recording(self, path: str, forward: Callable[..., object]) -> Callable[..., object]:
        """A layer's forward that records its calls."""

        def record(*args: object, **kwargs: object) -> object:
            result = forward(*args, **kwargs)
            if isinstance(result, torch.Tensor) and result.dim() == 2:
                layer = self.module.get_submodule(path)
                self.calls[path] = LayerCall(layer, args, kwargs, int(result.shape[1]))
            return result

        return record


def _record(module: nn.Module, run: Callable[[nn.Module], object]) -> dict[str, LayerCall]:
    """The call of each convolution that is not part of another one; the module itself may be one."""
    copied, recorder = copy_module(module), _Recorder(module)
    paths = [path for path, part in copied.named_modules() if isinstance(part, MessagePassing)]
    outer = [
        path
        for path in paths
        if not any(path.startswith(f"{one}.") or not one for one in paths if one != path)
    ]

    for path in outer:
        layer = copied.get_submodule(path)
        layer.forward = recorder.recording(path, layer.forward)
    run(copied)
    return recorder.calls


def _ask(cut: Cut, call: LayerCall, proposals: Proposals) -> Model:
    """A model of one layer from a proposal."""
    (channels,) = cut.x.shape or (1,)
    features = cut.columns.get("edge_attr")
    edge_dim = 0 if features is None else int(np.prod(features.shape))
    layer = copy_module(call.layer).float()
    flat, spec = pytree.tree_flatten((call.args, dict(call.kwargs)))
    places = [i for i, one in enumerate(flat) if isinstance(one, torch.Tensor)]

    def reference(
        x: FloatArray, edge_index: IntArray, weight: FloatArray | None, edge_attr: FloatArray | None
    ) -> FloatArray:
        count = np.asarray(edge_index).shape[1]
        arrays = {
            "x": np.asarray(x, np.float32),
            "edge_index": np.asarray(edge_index, np.int64),
            "weight": np.ones(count, np.float32) if weight is None else np.asarray(weight, np.float32),
            "edge_attr": np.zeros((count, edge_dim), np.float32) if edge_attr is None else edge_attr,
        }
        given = list(flat)
        for place, role in zip(places, cut.roles, strict=True):
            tensor = torch.from_numpy(arrays[role])
            given[place] = (
                tensor if role == "edge_index" else tensor.reshape(len(tensor), *flat[place].shape[1:])
            )
        args, kwargs = pytree.tree_unflatten(given, spec)
        with torch.no_grad():
            found: FloatArray = layer(*args, **kwargs).numpy()
        return found

    request = ConvolutionRequest(
        name=cut.path or type(call.layer).__name__,
        source=_source(call.layer),
        in_channels=channels,
        out_channels=call.channels,
        parameters={
            name: tensor.detach().float().numpy()
            for name, tensor in (*layer.named_parameters(), *layer.named_buffers())
        },
        edge_dim=edge_dim,
    )
    convolution = propose(request, proposals.proposer, reference, allow_code=proposals.allow_code)
    return Model.from_convolutions(
        [convolution],
        channels,
        edge_type=edge_type_of(cut.edges),
        edge_dim=edge_dim,
        verify=False,
    )


def _splice(lowering: Lowering, model: Model, cut: Cut, x: str) -> str:
    """Writes the steps of a model of one layer, with the value x as its input; returns the result's name."""
    names = {"x": x}
    for name in model.edge_inputs:
        if name not in cut.columns:
            raise ModelError(f"the proposal reads the edges' {name}, which the layer is not given")
        names[name] = lowering.value(cut.columns[name])
    for step in model.steps:
        attrs = dict(step.attrs)
        wanted = f"{cut.path}.{step.output}" if cut.path else step.output
        if step.op == "call":
            attrs["function"] = wanted
            lowering.functions[wanted] = model.functions[step.text("function")]
        tensors = {role: torch.from_numpy(model.tensors[name].copy()) for role, name in step.tensors.items()}
        inputs = [names[name] for name in step.inputs]
        names[step.output] = lowering.steps.write(step.op, inputs, wanted, tensors, attrs)
    return names[model.output]


def _source(layer: nn.Module) -> str:
    """The source of the layer's own methods, without those inherited from PyG's ``MessagePassing``."""
    found = []
    for name in _METHODS:
        method = getattr(type(layer), name, None)
        if method is None or method is getattr(MessagePassing, name, None):
            continue
        try:
            found.append(inspect.getsource(method))
        except (OSError, TypeError):
            found.append(f"# {name}: its source is not at hand")
    return "\n".join(found)
