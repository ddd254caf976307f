"""Expressions: how a row of a value is computed; each expression exists once.

An expression gives a row for every node, or every edge, of one type (its *atom*), or one row for all. Rows
are implicit; ``shape`` contains only the channels. Equal expressions are one object (`Expressions` makes
them), so identity means equality, and layers share common expressions.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

import numpy as np
import torch

from livegnn.errors import ModelError
from livegnn.importers.expressions import evaluation
from livegnn.types import EdgeType

Shape: TypeAlias = tuple[int, ...]
Attributes: TypeAlias = tuple[object, ...]

COMMUTATIVE = frozenset({"add", "mul", "eq", "ne", "and", "or", "maximum", "minimum"})
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
REDUCTIONS = frozenset({"scatter", "looped", "attend"})
"""Operations that reduce rows of edges to nodes; `self_loops` and `softmaxes` make the last two."""
_OPPOSITES = {"eq": "ne", "ne": "eq"}


@dataclass(frozen=True)
class Atom:
    """All nodes of one type, or all edges of one type, with the atoms of their ends.

    pairs: they are any pairs of these nodes instead of the edges, whose name they have.
    """

    name: str
    source: "Atom | None" = None
    target: "Atom | None" = None
    pairs: bool = False

    def __str__(self) -> str:
        return f"pairs of {self.name}" if self.pairs else self.name


def edge_type_of(atom: Atom) -> EdgeType:
    """The edge type of an atom of edges, or of pairs."""
    assert atom.source is not None
    assert atom.target is not None
    relation = atom.name[len(atom.source.name) + 1 : len(atom.name) - len(atom.target.name) - 1]
    return atom.source.name, relation, atom.target.name


@dataclass(frozen=True, eq=False, slots=True)
class Expression:
    """One operation.

    op: its name. args: its inputs. attrs: its settings. shape: the channels. kind: ``"float"``, ``"int"``,
    ``"bool"``, or ``"id"``: the place of a node in its type, which can only be used as an index. atom: the
    nodes or edges that have its rows; None: one row for all. value: of a constant, float64, int64 or bool.
    number: the expressions are numbered in the order in which they are made.
    """

    op: str
    args: "tuple[Expression, ...]"
    attrs: Attributes
    shape: Shape
    kind: str
    atom: Atom | None
    number: int
    value: torch.Tensor | None = None

    @property
    def refers(self) -> Atom | None:
        """For an id, the nodes (or edges) that it refers to."""
        if self.op == "rows":
            return None if self.attrs else self.atom
        if self.op == "end" and self.atom is not None:
            return self.atom.target if self.attrs[0] else self.atom.source
        if self.op == "group" and isinstance(self.attrs[0], Atom):
            return self.attrs[0].target
        return None

    @property
    def pieces(self) -> "tuple[tuple[Expression, Expression, Expression], ...]":
        """The pieces of a scatter: the message, the index of its targets and the mask of the rows."""
        each = self.args[: 3 * (len(self.args) // 3)]
        return tuple((each[i], each[i + 1], each[i + 2]) for i in range(0, len(each), 3))

    @property
    def axis(self) -> int:
        """The axis of channels along which it works: the first of its settings."""
        axis = self.attrs[0]
        assert isinstance(axis, int)
        return axis

    @property
    def repeated(self) -> torch.Tensor | None:
        """The number that a constant has everywhere; None if it has several, or is not a constant."""
        if self.value is None:
            return None
        first = self.value.reshape(-1)[0]
        return first if bool((self.value == first).all()) else None

    def is_number(self, number: float) -> bool:
        """Whether it is a constant with this number everywhere."""
        return self.value is not None and bool((self.value == number).all())


def walk(
    outputs: Iterable[Expression], *, into: "Callable[[Expression], bool] | None" = None
) -> Iterator[Expression]:
    """Every expression that the outputs need, once, each after its inputs. into: whether the inputs of an
    expression are needed; by default those of all."""
    seen: set[Expression] = set()
    for output in outputs:
        stack = [(output, False)]
        while stack:
            one, done = stack.pop()
            if done:
                yield one
            elif one not in seen:
                seen.add(one)
                stack.append((one, True))
                if into is None or into(one):
                    stack.extend((arg, False) for arg in reversed(one.args))


@dataclass(frozen=True)
class Origin:
    """The place of a computation: the path of a submodule, and the line of the user's code."""

    module: str = ""
    line: str = ""


@dataclass
class Expressions:
    """Makes expressions. An expression of constants becomes a constant, computed by `evaluation`.

    names: constant -> the name of its parameter or buffer. origins: scatter -> its origin; origin: the origin
    of expressions made now.
    """

    _made: dict[object, Expression] = field(default_factory=dict)
    names: dict[Expression, str] = field(default_factory=dict)
    origins: dict[Expression, Origin] = field(default_factory=dict)
    origin: Origin = Origin()

    def make(
        self,
        op: str,
        args: Sequence[Expression] = (),
        attrs: Attributes = (),
        *,
        shape: Sequence[int],
        kind: str = "float",
        atom: Atom | None = None,
    ) -> Expression:
        """The expression with this operation; a constant if all its inputs are."""
        args = tuple(args)
        if args and op != "scatter" and all(arg.value is not None for arg in args):
            values = [arg.value[None] for arg in args if arg.value is not None]
            name = self.names.get(args[0], "") if op in ("permute", "reshape", "slice", "cast") else ""
            return self.constant(evaluation.operate(op, attrs, values)[0], name)
        key = (op, args, attrs, tuple(shape), kind, atom)
        found = self._made.get(key)
        if found is None:
            found = Expression(op, args, attrs, tuple(shape), kind, atom, len(self._made))
            self._made[key] = found
            if op == "scatter":
                self.origins[found] = self.origin
        return found

    def constant(self, value: torch.Tensor | float, name: str = "") -> Expression:
        """One row for all. Equal constants are one expression."""
        tensor = torch.as_tensor(value).detach()
        kind = kind_of(tensor.dtype)
        wide = {"float": torch.float64, "int": torch.int64, "bool": torch.bool}[kind]
        tensor = tensor.to(wide).contiguous()
        shape = tuple(tensor.shape)
        key = ("constant", kind, shape, tensor.numpy().tobytes())
        found = self._made.get(key)
        if found is None:
            found = Expression("constant", (), (), shape, kind, None, len(self._made), tensor)
            self._made[key] = found
        if name:
            self.names.setdefault(found, name)
        return found

    def input(self, name: str, atom: Atom, shape: Sequence[int], kind: str = "float") -> Expression:
        """A column of the graph, with a row for each row of an atom."""
        return self.make("input", attrs=(name,), shape=shape, kind=kind, atom=atom)

    def end(self, edges: Atom, which: int) -> Expression:
        """The source (0) or the target (1) of each edge."""
        return self.make("end", attrs=(which,), shape=(), kind="id", atom=edges)

    def group(self, joining: Atom) -> Expression:
        """The group of each node. joining: the edges from nodes to their groups."""
        return self.make("group", attrs=(joining,), shape=(), kind="id", atom=joining.source)

    def rows(self, atom: Atom, mask: Expression | None = None) -> Expression:
        """The place of each row itself: among all rows of its atom, or among those for which a mask holds."""
        of = () if mask is None or mask.is_number(1) else (mask,)
        return self.make("rows", attrs=of, shape=(), kind="id", atom=atom)

    # Channel by channel

    def elementwise(self, op: str, *args: Expression, attrs: Attributes = ()) -> Expression:
        """One of `evaluation.ELEMENTWISE`; channels broadcast from the right."""
        rank = max(len(arg.shape) for arg in args)
        args = tuple(self.reshape(arg, (1,) * (rank - len(arg.shape)) + arg.shape) for arg in args)
        shape = torch.broadcast_shapes(*(arg.shape for arg in args))
        if (
            op == "where"
            and args[0].value is not None
            and not args[0].is_number(1)
            and not args[0].is_number(0)
        ):
            chosen = self._choose(args[0], *(self.expand(arg, shape) for arg in args[1:]))
            if chosen is not None:
                return chosen
        if any(arg.kind == "id" for arg in args):
            return self._compare_ids(op, args)
        if op in COMMUTATIVE:
            args = tuple(sorted(args, key=lambda arg: arg.number))
        simpler = self._simplify(op, args, tuple(shape))
        if simpler is not None:
            return simpler
        return self.make(op, args, attrs, shape=shape, kind=self._kind(op, args), atom=join(args))

    def _choose(self, condition: Expression, a: Expression, b: Expression) -> Expression | None:
        """A choice by a constant condition that varies along one axis, as a concatenation of slices."""
        varying = [i for i, size in enumerate(condition.shape) if size != 1]
        if len(varying) != 1 or condition.value is None or a.kind != b.kind:
            return None
        axis = varying[0]
        each = condition.value.flatten().tolist()
        return self.concat([self.slice(a if yes else b, axis, i, i + 1) for i, yes in enumerate(each)], axis)

    def _compare_ids(self, op: str, args: tuple[Expression, ...]) -> Expression:
        known = len(args) == 2 and args[0].refers is not None and args[0].refers is args[1].refers
        if op not in ("eq", "ne") or not known:
            raise ModelError(
                "a node's place among the nodes is used as a number, which means something else when the "
                "graph changes: give it as a feature"
            )
        if args[0] is args[1]:
            return self.constant(torch.tensor(op == "eq"))
        args = tuple(sorted(args, key=lambda arg: arg.number))
        return self.make(op, args, shape=(), kind="bool", atom=join(args))

    def _simplify(self, op: str, args: tuple[Expression, ...], shape: Shape) -> Expression | None:
        """Simplifies x + 0, x * 1, x / 1, not not x, and choices and masks that are known."""
        first = args[0]
        if op in ("add", "mul", "div") and len(args) == 2:
            neutral = 0 if op == "add" else 1
            for one, other in (args, args[::-1]) if op != "div" else (args,):
                if other.is_number(neutral) and one.shape == shape and one.kind == self._kind(op, args):
                    return one
        if op == "not":
            if first.op == "not":
                return first.args[0]
            if first.op in _OPPOSITES:
                return self.elementwise(_OPPOSITES[first.op], *first.args)
        if op == "where" and first.value is not None:
            chosen = args[1] if first.is_number(1) else args[2] if first.is_number(0) else first
            if chosen is not first and chosen.kind == self._kind(op, args):
                return self.expand(chosen, shape)
        if op == "and":
            for one, other in (args, args[::-1]):
                if other.is_number(1) and one.shape == shape:
                    return one
                if other.is_number(0) and not other.shape:
                    return other
            if args[0] is args[1]:
                return args[0]
            if {first, args[1]} == {first, self.elementwise("not", first)}:
                return self.constant(torch.zeros(shape, dtype=torch.bool))
        return None

    @staticmethod
    def _kind(op: str, args: Sequence[Expression]) -> str:
        if op in COMPARISONS or op in ("and", "or", "not", "isfinite", "isnan", "isinf"):
            return "bool"
        if op in evaluation.KEEPS_INTEGERS:
            kinds = {arg.kind for arg in args[1:]} if op == "where" else {arg.kind for arg in args}
            return "float" if "float" in kinds else "int" if "int" in kinds else "bool"
        return "float"

    def cast(self, x: Expression, kind: str) -> Expression:
        """Converts to another kind of number. Precision is not part of an expression."""
        if x.kind == kind:
            return x
        if x.kind == "id":
            return self._compare_ids("cast", (x,))
        return self.make("cast", (x,), (kind,), shape=x.shape, kind=kind, atom=x.atom)

    # The channels' places

    def reshape(self, x: Expression, shape: Sequence[int]) -> Expression:
        shape = tuple(shape)
        assert prod(shape) == prod(x.shape), (x.shape, shape)
        if x.op == "reshape":
            x = x.args[0]
        if x.shape == shape:
            return x
        return self.make("reshape", (x,), (shape,), shape=shape, kind=x.kind, atom=x.atom)

    def permute(self, x: Expression, order: Sequence[int]) -> Expression:
        order = tuple(order)
        if order == tuple(range(len(order))):
            return x
        shape = [x.shape[i] for i in order]
        if [i for i in order if x.shape[i] != 1] == [i for i in range(len(order)) if x.shape[i] != 1]:
            return self.reshape(x, shape)
        return self.make("permute", (x,), (order,), shape=shape, kind=x.kind, atom=x.atom)

    def expand(self, x: Expression, shape: Sequence[int]) -> Expression:
        shape = tuple(shape)
        x = self.reshape(x, (1,) * (len(shape) - len(x.shape)) + x.shape)
        if x.shape == shape:
            return x
        if x.op == "expand":
            x = x.args[0]
        return self.make("expand", (x,), (shape,), shape=shape, kind=x.kind, atom=x.atom)

    def slice(self, x: Expression, axis: int, start: int, stop: int, step: int = 1) -> Expression:
        if (start, stop, step) == (0, x.shape[axis], 1):
            return x
        if x.op == "concat" and x.attrs[0] == axis and step == 1:
            offset = 0
            for part in x.args:
                if offset <= start and stop <= offset + part.shape[axis]:
                    return self.slice(part, axis, start - offset, stop - offset)
                offset += part.shape[axis]
        if x.op == "slice" and x.attrs[0] == axis and x.attrs[3] == step == 1:
            assert isinstance(x.attrs[1], int)
            return self.slice(x.args[0], axis, x.attrs[1] + start, x.attrs[1] + stop)
        length = len(range(start, stop, step))
        shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
        if x.op == "expand":
            inner = x.args[0]
            same = inner.shape[axis] == 1
            return self.expand(inner if same else self.slice(inner, axis, start, stop, step), shape)
        return self.make("slice", (x,), (axis, start, stop, step), shape=shape, kind=x.kind, atom=x.atom)

    def select(self, x: Expression, axis: int, place: int) -> Expression:
        one = self.slice(x, axis, place, place + 1)
        return self.reshape(one, x.shape[:axis] + x.shape[axis + 1 :])

    def concat(self, parts: Sequence[Expression], axis: int) -> Expression:
        parts = [part for part in parts if part.shape != (0,)]
        if len(parts) == 1:
            return parts[0]
        size = sum(part.shape[axis] for part in parts)
        shape = (*parts[0].shape[:axis], size, *parts[0].shape[axis + 1 :])
        kinds = {part.kind for part in parts}
        if len(kinds) > 1:
            parts, kinds = [self.cast(part, "float") for part in parts], {"float"}
        return self.make("concat", parts, (axis,), shape=shape, kind=kinds.pop(), atom=join(parts))

    def reduce(self, op: str, x: Expression, axes: Sequence[int], attrs: Attributes = ()) -> Expression:
        """Reduces channels to axes of size one: sums, extrema, products, ``"any"``."""
        axes = tuple(sorted(axes))
        shape = [1 if i in axes else size for i, size in enumerate(x.shape)]
        if x.shape == tuple(shape) and op != "any" and x.kind != "bool":
            return x
        kind = "bool" if op in ("any", "all") else "int" if x.kind == "bool" else x.kind
        return self.make(op, (x,), (axes, *attrs), shape=shape, kind=kind, atom=x.atom)

    def along(self, op: str, x: Expression, axis: int, attrs: Attributes = ()) -> Expression:
        """An operation along channels that keeps the shape: ``"softmax"``, ``"log_softmax"``, ``"flip"``,
        ``"standardize"``."""
        return self.make(op, (x,), (axis, *attrs), shape=x.shape, kind=x.kind, atom=x.atom)

    def matmul(self, a: Expression, b: Expression) -> Expression:
        """Products of matrices in the last two channel axes; ``"linear"`` if b is one matrix for all rows."""
        if b.atom is None and prod(b.shape[:-2]) == 1:
            return self._linear(a, self.reshape(b, b.shape[-2:]))
        if a.atom is None and prod(a.shape[:-2]) == 1 and b.shape[-1] == 1:
            matrix = self.permute(self.reshape(a, a.shape[-2:]), (1, 0))
            result = self._linear(self.reshape(b, b.shape[:-1]), matrix)
            return self.reshape(result, (*result.shape, 1))
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return self.make("matmul", (a, b), shape=(*batch, a.shape[-2], b.shape[-1]), atom=join((a, b)))

    def _linear(self, x: Expression, matrix: Expression) -> Expression:
        if x.shape[:-1] and prod(x.shape[:-1]) == 1:
            row = self._linear(self.reshape(x, x.shape[-1:]), matrix)
            return self.reshape(row, (*x.shape[:-1], row.shape[-1]))
        shape = (*x.shape[:-1], matrix.shape[1])
        return self.make("linear", (x, matrix), shape=shape, atom=x.atom)

    def lookup(self, table: Expression, index: Expression) -> Expression:
        """Rows of a constant table, selected by a whole number in each row."""
        shape = (*index.shape, *table.shape[1:])
        return self.make("lookup", (table, index), shape=shape, kind=table.kind, atom=index.atom)

    # Along edges

    def gather(self, x: Expression, index: Expression) -> Expression:
        """For each row of `index`, the row of `x` at that index."""
        if x.atom is None or index.op == "rows":
            return x
        if x.op == "rows":
            return index
        return self.make("gather", (x, index), shape=x.shape, kind=x.kind, atom=index.atom)

    def scatter(
        self,
        reduce: str,
        pieces: Sequence[tuple[Expression, Expression, Expression]],
        atom: Atom | None,
        base: Expression | None = None,
    ) -> Expression:
        """Reduces the messages of each target; 0 for a target without messages.

        reduce: ``"sum"``, ``"amax"``, ``"amin"``, or ``"last"``, which keeps the base if there are none.
        pieces: (message, index, mask). atom: of the targets; None: all rows are reduced to one.
        """
        kept = [piece for piece in pieces if not piece[2].is_number(0)]
        if not kept and base is None:
            return self.constant(torch.zeros(pieces[0][0].shape, dtype=torch.float64))
        args = [arg for piece in kept for arg in piece] + ([base] if base is not None else [])
        shape, kind = kept[0][0].shape, kept[0][0].kind
        return self.make("scatter", args, (reduce,), shape=shape, kind=kind, atom=atom)

    def with_args(self, one: Expression, args: Sequence[Expression]) -> Expression:
        """The same operation on other arguments of the same shapes."""
        if tuple(args) == one.args:
            return one
        if one.op == "gather":
            return self.gather(*args)
        if one.op == "reshape":
            return self.reshape(args[0], one.shape)
        if one.op in evaluation.ELEMENTWISE:
            return self.elementwise(one.op, *args, attrs=one.attrs)
        if one.op == "slice":
            return self.slice(args[0], *one.attrs)  # type: ignore[arg-type]
        atom = one.atom if one.op in REDUCTIONS else join(args)
        return self.make(one.op, args, one.attrs, shape=one.shape, kind=one.kind, atom=atom)


def join(args: Sequence[Expression]) -> Atom | None:
    """The common atom of several expressions; None if all have one row for all. Raises `ModelError` if the
    atoms differ."""
    atoms = {arg.atom for arg in args} - {None}
    if len(atoms) > 1:
        raise ModelError(
            f"rows of {' and of '.join(sorted(map(str, atoms)))} are put together one by one, which no edge "
            "connects: gather rows of nodes by the ends of edges"
        )
    return atoms.pop() if atoms else None


def kind_of(dtype: torch.dtype) -> str:
    """``"float"``, ``"int"`` or ``"bool"``. Raises `ModelError` for half precision and complex numbers."""
    if dtype in (torch.float32, torch.float64):
        return "float"
    if dtype == torch.bool:
        return "bool"
    if dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        return "int"
    raise ModelError(f"numbers must be float32, float64, integers or bool, got {dtype}: convert the module")


def find_rounded(numbers: torch.Tensor) -> int | None:
    """The first of whole numbers that float32 would round, as it does times in seconds; None if there is
    none.
    """
    whole = numbers.detach().cpu().numpy().reshape(-1)
    lost = whole.astype(np.float32).astype(np.longdouble) != whole.astype(np.longdouble)
    return int(whole[lost][0]) if lost.any() else None


def rewrite(
    make: Expressions, outputs: Sequence[Expression], rule: Callable[..., Expression]
) -> list[Expression]:
    """Rebuilds expressions, from the inputs to the outputs, each by ``rule(old, new arguments)``."""
    new: dict[Expression, Expression] = {}
    for one in walk(outputs):
        make.origin = make.origins.get(one, make.origin)
        new[one] = rule(one, [new[arg] for arg in one.args])
    return [new[one] for one in outputs]
