"""Exports a module as a program for any number of nodes and edges, without changing the module."""

import inspect
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import sympy
import torch
from torch import fx, nn
from torch.export import Dim, ExportedProgram, export
from torch.nn.parameter import is_lazy
from torch.nn.utils import stateless
from torch.utils import _pytree as pytree
from torch_geometric.data import Data, HeteroData

from livegnn.errors import ModelError
from livegnn.importers.expressions.expressions import Atom, kind_of
from livegnn.importers.program.copying import copy_module
from livegnn.importers.program.decompositions import decompose
from livegnn.importers.program.failures import ADVICE, UNTRACED, CallFails, explain_failure, refuse_assertions
from livegnn.importers.program.tracing import (
    GROUPED,
    NODES,
    Detaching,
    catching_tests,
    counting_nodes,
    keeping_symbols,
    running_hooks,
    tracing,
)

_LOCK = threading.Lock()
"""Held while tracing, which temporarily replaces functions of torch and PyG."""

_WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}


@dataclass(frozen=True)
class Given:
    """A tensor that the module is called with: a row for each row of an atom, or the ends of its edges.

    channels: a row's shape. ends: [2, edges] whole numbers. parameter: it is not an argument but a parameter
    of the module with a row for each node. count: it is the number of rows instead of the rows. group: it is
    the group of each node, to which these edges join it.
    """

    name: str
    atom: Atom
    channels: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    ends: bool = False
    parameter: bool = False
    count: bool = False
    group: Atom | None = None


@dataclass(frozen=True)
class Record:
    """PyG data as an argument. fields: (type, or None if there is one of each; name) -> the field."""

    fields: Mapping[tuple[object, str], object]

    def to_data(self) -> object:
        """The ``Data`` or ``HeteroData`` with these fields."""
        if all(key is None for key, _ in self.fields):
            return Data(**{name: value for (_, name), value in self.fields.items()})
        data = HeteroData()
        for (key, name), value in self.fields.items():
            data[key][name] = value
        return data


def keyed(fields: Mapping[tuple[object, str], object]) -> list[tuple[pytree.KeyEntry, object]]:
    """Returns the fields with paths: PyTorch 2.6 needs them where a module holds a record."""
    return [(pytree.MappingKey(key), value) for key, value in fields.items()]


pytree.register_pytree_node(
    Record,
    lambda one: (list(one.fields.values()), tuple(one.fields)),
    lambda values, keys: Record(dict(zip(keys, values, strict=True))),
    flatten_with_keys_fn=lambda one: (keyed(one.fields), tuple(one.fields)),
)

Arguments: TypeAlias = object
"""`Given` for an argument with rows; any other value; or dicts and lists of these."""


def leaves(arguments: Arguments) -> list[Given]:
    """The `Given` objects in the arguments, in order; some occur more than once."""
    return [one for one in pytree.tree_leaves(arguments) if isinstance(one, Given)]


def fill(arguments: Arguments, tensors: Iterator[object]) -> object:
    """The arguments, with `Given` replaced by tensors."""
    filled = pytree.tree_map(lambda one: next(tensors) if isinstance(one, Given) else one, arguments)
    return pytree.tree_map(
        lambda one: one.to_data() if isinstance(one, Record) else one,
        filled,
        is_leaf=lambda one: isinstance(one, Record),
    )


def inputs_of(parameters: Sequence[Given], arguments: Arguments) -> list[Given]:
    """The tensors that a module is called with, each once: parameters, then in the order of the call."""
    inputs = {one.name: one for one in leaves(arguments) if not one.count}
    counted = {one.atom for one in (*parameters, *inputs.values())}
    for one in leaves(arguments):
        if one.atom not in counted:  # only the number of its rows is known
            inputs[one.name] = Given(one.name, one.atom, (0,), torch.float32)
    return [*parameters, *inputs.values()]


@dataclass(frozen=True)
class MethodCall:
    """A call of a module. args, kwargs: the method's arguments (`Arguments`). parameters: those of the module
    with a row for each node.
    """

    args: Sequence[object]
    kwargs: Mapping[str, object]
    method: str = "forward"
    parameters: Sequence[Given] = ()

    @property
    def given(self) -> list[Given]:
        """The tensors in the arguments, some more than once."""
        return leaves((self.args, self.kwargs))

    @property
    def inputs(self) -> list[Given]:
        """The tensors of the call, each once: parameters, then in the order of the arguments."""
        return inputs_of(self.parameters, (self.args, self.kwargs))


_Filled: TypeAlias = tuple[Sequence[object], Mapping[str, object]]


class _Flat(nn.Module):
    """A copy of a module that takes a flat list of tensors, some of which replace parameters."""

    def __init__(self, module: nn.Module, call: MethodCall) -> None:
        super().__init__()
        self.module, self.called, self.given = copy_module(module), call, call.inputs

    def forward(self, *tensors: torch.Tensor) -> object:
        named = dict(zip([one.name for one in self.given], tensors, strict=True))
        sizes = {one.atom: named[one.name].shape[1 if one.ends else 0] for one in self.given}
        nodes = {one.atom for one in self.given if one.atom.source is None} | set(_ends_of(self.given))
        nodes -= set(groups_of(self.given)) - set(_ends_of(self.given))
        NODES[:] = [sizes[one] for one in nodes if len(nodes) == 1 and one in sizes]
        GROUPED[:] = groups_of(self.given)
        called, method = self.called, self.called.method
        rows = [sizes[one.atom] if one.count else named[one.name] for one in called.given]
        args, kwargs = cast("_Filled", fill((called.args, called.kwargs), iter(rows)))
        replaced = {one.name: named[one.name] for one in called.parameters}
        with stateless._reparametrize_module(self.module, replaced):
            # not its forward: the module's own hooks and __call__ are a part of its computation
            call = self.module if method == "forward" else getattr(self.module, method)
            return _changed_columns(call(*args, **kwargs), [id(one) for one in tensors])


def _changed_columns(result: object, given: Sequence[int]) -> object:
    """The tensors that a module put into a ``Data`` that it returns, by name; any other result as it is.

    given: the ids of the tensors that it was called with.
    """
    if not isinstance(result, Data):
        return result
    tensors = ((name, one) for name, one in result.to_dict().items() if isinstance(one, torch.Tensor))
    return {name: one for name, one in tensors if id(one) not in given} or result


@dataclass(frozen=True)
class Exported:
    """A program, its decomposed graph, and the meaning of its tensors in the order of its arguments."""

    program: ExportedProgram
    graph: fx.Graph
    given: Sequence[Given]
    module_name: str


def export_module(module: nn.Module, call: MethodCall) -> Exported:
    """Traces a copy of a module in evaluation mode. Raises `ModelError` with the reason if that fails."""
    module = unwrap(module, call.method)
    name = f"{type(module).__name__}.{call.method}"
    with _LOCK, tracing(), counting_nodes():
        flat = _Flat(module, call)
        tensors, shapes = _examples(flat.given)
        try:
            with running_hooks(flat), catching_tests() as tests:
                program = _export(flat.eval(), tensors, shapes, tests)
            refuse_assertions(program, name)
            _refuse_conditions(program, flat.given)
            if tests:
                raise ModelError(f"{name}: {tests[0]}: {ADVICE['data-dependent']}")
            graph = decompose(program, own=True)
        except ModelError:
            raise
        except Exception as error:
            own = _own_failure(flat, tensors)
            if own is not None:
                sizes = ", ".join(
                    f"{n.name} {list(t.shape)}" for n, t in zip(flat.given, tensors, strict=True)
                )
                called = f"{name} fails when it is called with {sizes}"
                raise CallFails(f"{called}: {explain_failure(own, module)}") from own
            raise ModelError(f"{name} cannot be traced: {explain_failure(error, module)}") from error
    return Exported(program, graph, flat.given, name)


def _export(
    flat: _Flat, tensors: Sequence[torch.Tensor], shapes: Sequence[dict[int, Dim]], tests: list[str]
) -> ExportedProgram:
    """Traces it; once more with symbols in place of whole numbers that are taken out of tensors, and with
    ``tensor.detach()`` in place of ``tensor.data``.

    tests: those of `catching_tests`; they begin again with the second trace.
    """

    def trace() -> ExportedProgram:
        return export(flat, tuple(tensors), dynamic_shapes=(tuple(shapes),), strict=False)

    try:
        return trace()
    except Exception as error:
        if "Could not extract specialized integer" not in str(error) and UNTRACED not in str(error):
            raise
        before, tests[:] = list(tests), []
        with keeping_symbols(flat.module), Detaching():
            try:
                return trace()
            except Exception:
                tests[:] = before
                raise error from None


def _own_failure(flat: _Flat, tensors: Sequence[torch.Tensor]) -> Exception | None:
    """The exception that a module raises without being traced; None if it raises none."""
    try:
        flat(*(one.clone() for one in tensors))
    except Exception as error:
        return error
    return None


def decompose_program(program: ExportedProgram, given: Sequence[Given], name: str) -> Exported:
    """Decomposes a program that was exported elsewhere. given: its inputs without constants, in order."""
    with _LOCK, tracing():
        try:
            return Exported(program, decompose(program), given, name)
        except Exception as error:
            said = " ".join(str(error).split())[:400] or type(error).__name__
            raise ModelError(f"{name} has an operator that cannot be taken apart: {said}") from error


def call_with(
    module: nn.Module,
    call: MethodCall,
    tensors: Sequence[torch.Tensor] | None = None,
    *,
    edges: int | None = None,
) -> object:
    """Calls a copy of a module with copies of tensors in place of `Given`, since it may change its arguments.

    tensors: by default of a small random graph. edges: the number of edges of each type in it.
    """
    with _LOCK, tracing():
        flat = _Flat(module, call)
        return flat(*([one.clone() for one in tensors] if tensors else _examples(flat.given, edges)[0]))


@contextmanager
def calling(
    module: nn.Module, method_call: MethodCall, more: Collection[str] = ()
) -> Iterator[tuple[nn.Module, Callable[[], object]]]:
    """Yields a copy of a module, and a function that calls it on a small random graph, as `call_with` does.

    more: the rows of these names are drawn last, so that all others are the same as in a call without them;
    if they are not floats, they are 0 and 1 in turn.
    """
    with _LOCK, tracing():
        flat = _Flat(module, method_call)

        def call() -> object:
            given = sorted(flat.given, key=lambda one: one.name.partition(":")[0] in more)
            drawn = {one.name: tensor for one, tensor in zip(given, _examples(given)[0], strict=True)}
            for one in given:
                if one.name.partition(":")[0] in more and not one.dtype.is_floating_point:
                    in_turn = alternating(drawn[one.name].numel())
                    drawn[one.name] = in_turn.to(one.dtype).reshape(drawn[one.name].shape)
            return flat(*(drawn[one.name] for one in flat.given))

        yield flat.module, call


def alternating(number: int) -> torch.Tensor:
    """Returns 0 and 1 in turn. number: the number of values."""
    return torch.arange(number) % 2


def signature_of(module: nn.Module, method: str) -> inspect.Signature:
    """The arguments of a method; those of ``forward`` may be named by the module's own ``__call__``."""
    if method == "forward" and type(module).__call__ is not nn.Module.__call__:
        own = inspect.signature(module)
        if any(one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in own.parameters.values()):
            return own
    return inspect.signature(getattr(module, method))


def has_own_call(module: nn.Module) -> bool:
    """Whether a call does more than to call ``forward``: hooks are registered, or ``__call__`` is another."""
    return _has_hooks(module) or type(module).__call__ is not nn.Module.__call__


def _has_hooks(module: nn.Module) -> bool:
    return any(held for name, held in vars(module).items() if name.startswith("_forward") and held)


def unwrap(module: nn.Module, method: str = "forward") -> nn.Module:
    """The module inside wrappers for distribution or compilation.

    Raises `ModelError` if it cannot be traced, or has no such method.
    """
    while type(module).__name__ in _WRAPPERS:
        if _has_hooks(module):
            raise ModelError(
                f"{type(module).__name__} has hooks, which the module that it wraps does not run: "
                "register them on the module that it wraps"
            )
        module = getattr(module, _WRAPPERS[type(module).__name__])
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise ModelError(
                f"{path or 'module'} is a torch.jit.ScriptModule, which holds no Python to trace: give the "
                "module that was scripted"
            )
    if not callable(getattr(module, method, None)):
        raise ModelError(f"{type(module).__name__} has no method {method!r}: give one that it has")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            takes = signature_of(module, method).parameters.values()
            needed = [
                f"data.{one.name}" for one in takes if one.default is one.empty and one.kind not in _STARS
            ]
            raise ModelError(
                f"{name} has no shape yet: call the module once on a graph first, as in "
                f"{'module' if method == 'forward' else f'module.{method}'}({', '.join(needed)})"
            )
        try:
            kind_of(tensor.dtype)
        except ModelError as error:
            raise ModelError(f"{name}: {error}, as with module.float()") from None
    return module


_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_PRIMES = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)


def _examples(
    given: Sequence[Given], edges: int | None = None
) -> tuple[list[torch.Tensor], list[dict[int, Dim]]]:
    """Tensors to trace with, and their dynamic dimensions; all tensors of an atom share one."""
    atoms = list(dict.fromkeys([*_ends_of(given), *(one.atom for one in given), *groups_of(given)]))
    sizes = {atom: _PRIMES[i % len(_PRIMES)] + 90 * (i // len(_PRIMES)) for i, atom in enumerate(atoms)}
    if edges is not None:
        sizes |= {atom: edges for atom in atoms if atom.source is not None}
    dims = {atom: Dim(f"rows_{i}", min=2, max=2**40) for i, atom in enumerate(atoms)}
    random = torch.Generator().manual_seed(0)
    tensors, shapes = [], []
    for one in given:
        rows = sizes[one.atom]
        shapes.append({1 if one.ends else 0: dims[one.atom]})
        if one.ends:
            ends = [torch.randint(sizes[end], (rows,), generator=random) for end in _ends_of([one])]
            tensors.append(torch.stack(ends))
        elif one.group is not None and one.group.target is not None:
            groups = sizes[one.group.target]  # the last of them has members, so that their number is known
            tensors.append(torch.randint(groups, (rows,), generator=random))
            tensors[-1][-1:] = groups - 1
        elif one.dtype.is_floating_point:
            tensors.append(torch.rand(rows, *one.channels, generator=random, dtype=one.dtype))
        else:
            tensors.append(torch.zeros(rows, *one.channels, dtype=one.dtype))
    return tensors, shapes


def _ends_of(given: Sequence[Given]) -> Iterator[Atom]:
    for one in given:
        for end in (one.atom.source, one.atom.target):
            if end is not None:
                yield end


def groups_of(given: Sequence[Given]) -> list[Atom]:
    """The groups whose numbers are given."""
    joining = (one.group for one in given)
    return [one.target for one in joining if one is not None and one.target is not None]


def _refuse_conditions(program: ExportedProgram, given: Sequence[Given]) -> None:
    """Raises `ModelError` if a computation depends on sizes; tracing records such conditions as guards."""
    held = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    rows: dict[Atom, sympy.Expr] = {}
    same: dict[sympy.Expr, sympy.Expr] = {}
    environment: Any = None
    for name, one in zip(program.graph_signature.user_inputs, given, strict=True):
        tensor = held[str(name)]
        size = tensor.shape[1 if one.ends else 0]
        if isinstance(size, torch.SymInt):
            environment = size.node.shape_env
            same[size.node.expr] = rows.setdefault(one.atom, size.node.expr)
    for guard in environment.guards if environment is not None else ():
        if environment.replace(guard.expr).subs(same) != sympy.true:
            raise ModelError(
                f"a size decides what it does: it was read where {guard.expr} (sizes of its arguments), and "
                "a change of the graph may end that: leave the test out, or choose with torch.where"
            )


def symbolic(size: object) -> sympy.Expr:
    """A size of the program as an expression of its symbols."""
    node = getattr(size, "node", None)
    return sympy.sympify(size if node is None else node.expr)
