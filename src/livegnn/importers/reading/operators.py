"""ATen's operators on numbers: arithmetic, activations, reductions, products of matrices.

An operator is a small function of `Call` and of ATen's arguments, in ATen's order (`reader` fills in the
defaults, and leaves out arguments about memory); a call with other arguments is refused. `shape_operators`
and `row_operators` contain the other operators.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce as fold
from math import prod
from typing import TypeAlias

import sympy
import torch

from livegnn.errors import ModelError
from livegnn.importers.expressions import evaluation
from livegnn.importers.expressions.expressions import Attributes, Expression, Expressions
from livegnn.importers.reading.values import ROWS, Piece, Space, Value, Values

Number: TypeAlias = float | torch.SymInt
Operand: TypeAlias = Value | Number
Sizes: TypeAlias = Sequence[int | torch.SymInt]


@dataclass(frozen=True)
class Call:
    """The context of an operator's call. shape, kind: those of its result, according to the program."""

    values: Values
    shape: Sizes = ()
    kind: str = ""

    @property
    def make(self) -> Expressions:
        return self.values.make

    def value(self, operand: Operand) -> Value:
        """A tensor; a number becomes a constant tensor."""
        if isinstance(operand, Value):
            return operand
        if isinstance(operand, torch.SymInt):
            return self._count(self.values.size(operand))
        return self.values.constant(torch.tensor(operand, dtype=_PYTHON.get(type(operand))))

    def elementwise(self, op: str, *operands: Operand, attrs: Attributes = ()) -> Value:
        return self.values.elementwise(op, *(self.value(one) for one in operands), attrs=attrs)

    def cast(self, x: Value, kind: str) -> Value:
        return self.values.each(x, lambda row: self.make.cast(row, kind), x.axes)

    def total(self, reduce: str, pieces: Sequence[Piece]) -> Expression:
        """The reduction over all rows."""
        rows = [(one.row, self.make.rows(one.atom), one.mask) for one in pieces if one.atom is not None]
        return self.make.scatter(reduce, rows, None)

    def _count(self, size: sympy.Expr | None) -> Value:
        """A number of nodes or edges, as a value to compute with."""
        if size is not None and size.is_Integer:
            return self.values.constant(float(size))
        space: Space | None = self.values.spaces.get(size)
        if space is not None:
            one = self.make.constant(1.0)
            return self.values.one_row(self.total("sum", [Piece(atom, mask, one) for atom, mask in space]))
        if size is not None and (size.is_Add or size.is_Mul):
            op = "add" if size.is_Add else "mul"
            return fold(lambda a, b: self.elementwise(op, a, b), map(self._count, size.args))
        raise ModelError(f"a size in a computation must be a number of nodes or edges, got {size}")


_PYTHON = {bool: torch.bool, int: torch.int64, float: torch.float64}
Operator: TypeAlias = Callable[..., object]
OPERATORS: dict[str, Operator] = {}
"""Operators by their names in ATen, without the overload."""


def operator(*names: str) -> Callable[[Operator], Operator]:
    """A decorator that adds a function to `OPERATORS`."""

    def put(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return put


# Element by element


def _elementwise(op: str, operands: int) -> Operator:
    def apply(call: Call, *args: Operand) -> Value:
        if len(args) != operands + _SETTINGS.get(op, 0):
            raise ModelError(f"{op} is called in a way that is not known")
        return call.elementwise(op, *args[:operands], attrs=args[operands:])

    return apply


_SETTINGS = {"leaky_relu": 1, "elu": 3, "gelu": 1, "softplus": 2, "clamp": 2}
for _op, (_operands, _) in evaluation.ELEMENTWISE_OPERANDS.items():
    OPERATORS[_op] = _elementwise(_op, _operands)


def _logical(op: str) -> Operator:
    def apply(call: Call, *args: Operand) -> Value:
        if call.kind != "bool":
            raise ModelError(
                "bits of whole numbers are not known: use comparisons, or a remainder: x % 2 for x & 1"
            )
        return call.elementwise(op, *(as_bool(call, call.value(one)) for one in args))

    return apply


for _op, _known in {"and": "and", "or": "or", "xor": "ne", "not": "not"}.items():
    OPERATORS[f"bitwise_{_op}"] = OPERATORS[f"logical_{_op}"] = _logical(_known)
del OPERATORS["and"], OPERATORS["or"]


@operator("add")
def _add(call: Call, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    if isinstance(a, Value) and a.kind == "id" and not isinstance(b, Value) and alpha == 1:
        return _shift(call, a, b)
    return call.elementwise("add", a, b if alpha == 1 else call.elementwise("mul", b, alpha))


@operator("sub")
def _subtract(call: Call, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    b = b if alpha == 1 else call.elementwise("mul", b, alpha)
    return call.elementwise("add", a, call.elementwise("neg", b))


def _shift(call: Call, ids: Value, by: Number) -> Value:
    """Turns places of nodes of one type into places in a union, in which other rows are first."""
    size = call.values.size(by)
    if size is None:
        raise ModelError("a place among the nodes is moved by a number that is not a number of nodes")
    return ids if size == 0 else call.values.each(ids, lambda row: _moved(call.make, row, size), ids.axes)


def _moved(make: Expressions, row: Expression, by: object) -> Expression:
    if row.op in ("concat", "reshape", "expand", "slice"):
        return make.with_args(row, [_moved(make, arg, by) for arg in row.args])
    return make.make("shift", (row,), (by,), shape=row.shape, kind="id", atom=row.atom)


@operator("div")
def _divide(call: Call, a: Operand, b: Operand, rounding_mode: str | None = None) -> Value:
    if rounding_mode == "trunc":
        return call.cast(call.elementwise("trunc", call.elementwise("div", a, b)), call.kind)
    return call.elementwise("floor_divide" if rounding_mode else "div", a, b)


def as_bool(call: Call, x: Value) -> Value:
    return x if x.kind == "bool" else call.elementwise("ne", x, 0)


# Over axes


def _reduction(op: str) -> Operator:
    def apply(call: Call, x: Value, dim: object = None, keepdim: bool = False) -> Value:
        x = as_bool(call, x) if op == "any" else x if x.kind == call.kind else call.cast(x, call.kind)
        return reduce(call, op, x, dim, keepdim)

    return apply


for _op in ("sum", "amax", "amin", "prod", "any"):
    OPERATORS[_op] = _reduction(_op)


def reduce(call: Call, op: str, x: Value, dims: object, keepdim: bool) -> Value:
    """A reduction over some axes; if the rows are one of them, over all nodes or edges."""
    listed = dims if isinstance(dims, Sequence) else [] if dims is None else [dims]
    axes = [int(str(dim)) % len(x.axes) for dim in listed] or range(len(x.axes))
    ones = tuple((1,) if i in axes and ROWS not in axis else axis for i, axis in enumerate(x.axes))
    channels = [x.channel_of(i) for i in axes if i != x.row_axis]
    result = call.values.each(x, lambda row: call.make.reduce(op, row, channels), ones)
    if x.row_axis in axes:
        if len(x.axes[x.row_axis or 0]) > 1:
            raise ModelError("a reduction over an axis of rows and channels together is not known")
        row = call.total({"any": "amax"}.get(op, op), result.pieces)
        kept = tuple((1,) if ROWS in axis else axis for axis in ones)
        result = call.values.one_row(call.make.reshape(row, [part for axis in kept for part in axis]), kept)
    if keepdim:
        return result
    left = tuple(axis for i, axis in enumerate(result.axes) if i not in axes)
    return call.values.reshape(result, left)


def _along(call: Call, op: str, x: Value, dim: int, *attrs: object) -> Value:
    """An operation along an axis of channels that keeps the shape."""
    axis = dim % len(x.axes)
    if x.row_axis == axis or (op == "standardize" and (x.row_axis or 0) > axis):
        raise ModelError(f"a {op} over the rows is not known, only over the channels")
    place = x.channel_of(axis)
    return call.values.each(x, lambda row: call.make.along(op, row, place, attrs), x.axes)


@operator("_softmax")
def _softmax(call: Call, x: Value, dim: int) -> Value:
    return _along(call, "softmax", x, dim)


@operator("_log_softmax")
def _log_softmax(call: Call, x: Value, dim: int) -> Value:
    return _along(call, "log_softmax", x, dim)


@operator("native_layer_norm")
def _layer_norm(
    call: Call, x: Value, shape: Sequence[int], weight: None, bias: None, eps: float
) -> tuple[Value | None, ...]:
    return _along(call, "standardize", x, len(x.axes) - len(shape), eps), None, None


# Products of matrices


@operator("mm", "bmm")
def multiply(call: Call, a: Value, b: Value) -> Value:
    """``a @ b`` for tensors with two axes, or with three, the first of which counts matrices."""
    make, batch = call.make, len(a.axes) - 2
    at = (a.row_axis, b.row_axis)
    along_rows = at == (batch + 1, batch) and a.axes[-1] == b.axes[-2]
    of_each = batch == 1 and set(at) <= {None, 0}
    if not (of_each or along_rows or at in ((None, None), (batch, None), (None, batch + 1))):
        raise ModelError(
            "every node meets every node: what grows with their product is not served; let them meet along "
            "edges"
        )

    def as_matrices(x: Value) -> Value:
        """Removes the axis of rows from the matrices; channels fused with the rows become an axis."""
        counts = [prod(part for part in axis if part != ROWS) for axis in x.axes]
        shape = [one for i, one in enumerate(counts) if i >= batch or x.axes[i] != (ROWS,)]
        return call.values.each(x, lambda row: make.reshape(row, shape), x.axes)

    pieces = [
        Piece(p.atom, p.mask, make.matmul(p.row, q.row))
        for p, q in call.values.aligned([as_matrices(a), as_matrices(b)])
    ]
    axes = (*(a if a.row_axis is not None else b).axes[:batch], a.axes[batch], b.axes[-1])
    if along_rows:
        return call.values.one_row(call.total("sum", pieces), axes)
    return call.values.reshape(Value(tuple(pieces), axes), axes)


@operator("_trilinear")
def _bilinear(call: Call, a: Value, weight: Value, b: Value, *settings: Sequence[int]) -> Value:
    """``a[i] * weight[o, i, j] * b[j]``, summed over i and j: a bilinear layer of rows."""
    known = [[1, 3], [0], [1, 2], [2, 3]]
    if [list(one) for one in settings[:4]] != known or weight.row_axis is not None or a.row_axis != 0:
        raise ModelError("a product of three tensors is known only as a bilinear layer of rows")
    out, inner, other = weight.channels
    matrix = call.make.reshape(call.make.permute(weight.row, (1, 0, 2)), (inner, out * other))
    rows = call.values.each(a, lambda row: call.make.matmul(row, matrix), ((ROWS,), (out * other,)))
    rows = call.values.reshape(rows, ((ROWS,), (out,), (other,)))
    beside = call.values.reshape(b, ((ROWS,), (1,), (other,)))
    return reduce(call, "sum", call.elementwise("mul", rows, beside), [2], False)
