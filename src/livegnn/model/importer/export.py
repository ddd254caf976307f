"""A module as an exported program with any number of nodes and edges; the module itself stays as it is."""

import builtins
import copy
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch_geometric
from torch import nn
from torch.export import Dim, ExportedProgram, export
from torch.nn.parameter import is_lazy
from torch_geometric.nn.dense import HeteroLinear
from torch_geometric.utils import num_nodes

from livegnn.errors import ModelError
from livegnn.model.importer.expressions import Atom, kind_of

_LOCK = threading.Lock()
"""Tracing replaces functions of torch's and PyG's for as long as it lasts."""

_WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}


@dataclass(frozen=True)
class Given:
    """A tensor that the module is called with: a row for each row of an atom, or the ends of its edges.

    channels: a row's shape. ends: [2, edges] whole numbers. parameter: instead of an argument, the parameter
    of the module that has a row for each node. count: instead of the rows, how many there are.
    """

    name: str
    atom: Atom
    channels: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    ends: bool = False
    parameter: bool = False
    count: bool = False


Arguments: TypeAlias = object
"""`Given` where the module is called with rows; other values as they are; dicts and lists of these."""


def leaves(arguments: Arguments) -> Iterator[Given]:
    """The rows that a module is called with, in order."""
    if isinstance(arguments, Given):
        yield arguments
    elif isinstance(arguments, Mapping):
        for value in arguments.values():
            yield from leaves(value)
    elif isinstance(arguments, list | tuple):
        for value in arguments:
            yield from leaves(value)


def fill(arguments: Arguments, tensors: Iterator[object]) -> object:
    """The arguments with tensors in the place of `Given`."""
    if isinstance(arguments, Given):
        return next(tensors)
    if isinstance(arguments, Mapping):
        return {key: fill(value, tensors) for key, value in arguments.items()}
    if isinstance(arguments, list | tuple):
        return type(arguments)(fill(value, tensors) for value in arguments)
    return arguments


class _Method(nn.Module):
    """A module called by one of its methods."""

    def __init__(self, module: nn.Module, method: str) -> None:
        super().__init__()
        self.module, self.method = module, method

    def forward(self, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        return getattr(self.module, self.method)(*args, **kwargs)


class _Flat(nn.Module):
    """A module called with tensors one after the other, some of them in the place of parameters."""

    def __init__(self, method: _Method, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        super().__init__()
        self.call, self.args, self.kwargs = method, list(args), dict(kwargs)
        self.given = unique((*leaves(self.args), *leaves(self.kwargs)))

    def forward(self, *tensors: torch.Tensor) -> object:
        found = {given.name: tensor for given, tensor in zip(self.parameters_given, tensors, strict=False)}
        replaced = {f"module.{name}": tensor for name, tensor in found.items()}
        by_name = dict(zip([one.name for one in self.given], tensors[len(found) :], strict=True))
        sizes = {
            one.atom: tensor.shape[1 if one.ends else 0]
            for one, tensor in zip((*self.parameters_given, *self.given), tensors, strict=True)
        }
        _NODES[:] = [size for one, size in sizes.items() if one.source is None]
        numbered = [
            sizes[one.atom] if one.count else by_name[one.name]
            for one in (*leaves(self.args), *leaves(self.kwargs))
        ]
        rows = iter(numbered)
        args = fill(self.args, rows)
        kwargs = fill(self.kwargs, rows)
        if not replaced:
            return self.call(args, kwargs)
        return torch.func.functional_call(self.call, replaced, (args, kwargs), strict=False)

    parameters_given: Sequence[Given] = ()


def unique(given: Sequence[Given]) -> list[Given]:
    """Each tensor once, without the numbers of rows."""
    return list({one.name: one for one in given if not one.count}.values())


@dataclass(frozen=True)
class Exported:
    """The program, and what its tensors are, in the order of its arguments."""

    program: ExportedProgram
    given: Sequence[Given]
    module_name: str


def export_module(
    module: nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    method: str = "forward",
    parameters: Sequence[Given] = (),
) -> Exported:
    """Traces a copy of a module in evaluation mode.

    args, kwargs: what the method is called with (`Arguments`). parameters: those with a row for each node.
    Raises `ModelError` with what stands in the way.
    """
    module = unwrap(module, method)
    name = f"{type(module).__name__}.{method}"
    with _LOCK, _tracing(), _counting_nodes():
        flat = _Flat(_Method(copy_module(module), method), args, kwargs)
        flat.parameters_given = list(parameters)
        given = [*parameters, *flat.given]
        tensors, shapes = _examples(given)
        try:
            program = export(flat.eval(), tuple(tensors), dynamic_shapes=(tuple(shapes),), strict=False)
            program = program.run_decompositions()
        except Exception as error:
            raise ModelError(f"{name} cannot be traced: {_explain(error)}") from error
    return Exported(program, given, name)


def call_with(
    module: nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    method: str,
    parameters: Sequence[Given],
    tensors: Sequence[torch.Tensor] | None = None,
) -> object:
    """Calls a copy of a module with tensors in the place of `Given`, by default on a small random graph."""
    with _LOCK, _tracing():
        flat = _Flat(_Method(copy_module(module), method), args, kwargs)
        flat.parameters_given = list(parameters)
        return flat(*(tensors or _examples([*parameters, *flat.given])[0]))


def unwrap(module: nn.Module, method: str = "forward") -> nn.Module:
    """The module that others wrap, to distribute it or compiled.

    Raises `ModelError` if it cannot be traced, or has no such method.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(
            "a torch.jit.ScriptModule holds no Python to trace: give the module that was scripted"
        )
    if not isinstance(module, nn.Module):
        raise ModelError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    while type(module).__name__ in _WRAPPERS:
        module = getattr(module, _WRAPPERS[type(module).__name__])
    if not callable(getattr(module, method, None)):
        raise ModelError(f"{type(module).__name__} has no method {method!r}: give one that it has")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise ModelError(f"{name} has no shape yet: call the module once on a graph first")
        try:
            kind_of(tensor.dtype)
        except ModelError as error:
            raise ModelError(f"{name}: {error}") from None
    return module


def copy_module(module: nn.Module) -> nn.Module:
    """On the CPU, in evaluation mode, and without what layers have kept of a graph."""
    try:
        copied = copy.deepcopy(module)
    except Exception as error:
        raise ModelError(f"{type(module).__name__} cannot be copied: {error}") from error
    for part in copied.modules():
        for attribute in vars(part):
            if attribute.startswith("_cached_"):
                setattr(part, attribute, None)
    return copied.cpu().eval().requires_grad_(False)


@contextmanager
def _tracing() -> Iterator[None]:
    """PyG as it can be traced: kernels that it has no formula for, by the formulas that they stand for."""
    backend, length = torch_geometric.backend, builtins.len
    segments, linear = backend.use_segment_matmul, HeteroLinear.forward
    backend.use_segment_matmul = False
    HeteroLinear.forward = _hetero_linear

    def symbolic_length(of: Any) -> int:
        """Of a tensor, its first size as a symbol, which `len` makes a number of."""
        return of.shape[0] if isinstance(of, torch.Tensor) and of.dim() else length(of)

    builtins.len = symbolic_length  # for other threads the same
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        backend.use_segment_matmul, HeteroLinear.forward = segments, linear
        builtins.len = length


_NODES: list[object] = []
"""How many nodes of each type there are in the call that is traced."""


@contextmanager
def _counting_nodes() -> Iterator[None]:
    """PyG's functions that are not told how many nodes there are: all, instead of one more than the last that
    has an edge. Where that makes a difference, the import's final check sees it.
    """
    counted = num_nodes.maybe_num_nodes
    named = [one for name, one in sys.modules.items() if name.startswith("torch_geometric")]
    users = [one for one in named if getattr(one, "maybe_num_nodes", None) is counted]

    def count(edge_index: object, num_nodes: object = None) -> object:
        return _NODES[0] if num_nodes is None and len(_NODES) == 1 else counted(edge_index, num_nodes)

    try:
        for user in users:
            user.maybe_num_nodes = count  # type: ignore[attr-defined]
        yield
    finally:
        _NODES.clear()
        for user in users:
            user.maybe_num_nodes = counted  # type: ignore[attr-defined]


def _hetero_linear(self: HeteroLinear, x: torch.Tensor, type_vec: torch.Tensor) -> torch.Tensor:
    result = torch.einsum("ni,nio->no", x, self.weight[type_vec])
    return result if self.bias is None else result + self.bias[type_vec]


_PRIMES = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)


def _examples(given: Sequence[Given]) -> tuple[list[torch.Tensor], list[dict[int, Dim]]]:
    """Tensors to trace with, and a dimension for each atom that all its rows share."""
    atoms = list(dict.fromkeys([*_ends_of(given), *(one.atom for one in given)]))
    sizes = {atom: _PRIMES[i % len(_PRIMES)] + 90 * (i // len(_PRIMES)) for i, atom in enumerate(atoms)}
    dims = {atom: Dim(f"rows_{i}", min=2, max=2**40) for i, atom in enumerate(atoms)}
    random = torch.Generator().manual_seed(0)
    tensors, shapes = [], []
    for one in given:
        rows = sizes[one.atom]
        if one.ends:
            assert one.atom.source is not None
            assert one.atom.target is not None
            pair = [
                torch.randint(sizes[end], (rows,), generator=random)
                for end in (one.atom.source, one.atom.target)
            ]
            tensors.append(torch.stack(pair))
            shapes.append({1: dims[one.atom]})
            continue
        shapes.append({0: dims[one.atom]})
        if one.dtype.is_floating_point:
            tensors.append(torch.rand(rows, *one.channels, generator=random, dtype=one.dtype))
        else:
            tensors.append(torch.zeros(rows, *one.channels, dtype=one.dtype))
    return tensors, shapes


def _ends_of(given: Sequence[Given]) -> Iterator[Atom]:
    for one in given:
        for end in (one.atom.source, one.atom.target):
            if end is not None:
                yield end


def _explain(error: Exception) -> str:
    """The first lines of what torch says, and what to do where that is known."""
    text = str(error) or type(error).__name__
    said = " ".join(text.strip().split("\n\n")[0].split())[:400]
    for mark, advice in _ADVICE.items():
        if mark in text:
            return f"{advice} ({said})"
    return said


_ADVICE: Mapping[str, str] = {
    "data-dependent": (
        "the way of its computation, or a size, depends on data: give what is fixed as an argument, and "
        "choose with torch.where"
    ),
    "Constraints violated": "it works for one number of nodes or edges alone: a size decides what it does",
    "torch._dynamo.exc": "it calls what cannot be traced",
}
