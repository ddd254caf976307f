"""ATen's operators on numbers, each by itself: arithmetic, activations, reductions, norms.

An operator is a small function of `Call` and the arguments in ATen's order and with ATen's names; those that
it does not name are refused where it is called. `shape_operators` and `row_operators` hold the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import torch

from livegnn.errors import ModelError
from livegnn.model.importer.expressions import Attributes, Expression, Expressions
from livegnn.model.importer.values import ROWS, Axes, Piece, Value, Values

Number: TypeAlias = float | torch.SymInt
Operand: TypeAlias = Value | Number
Sizes: TypeAlias = Sequence[int | torch.SymInt]


@dataclass(frozen=True)
class Call:
    """Where an operator is called. shape: of its result, as the program says."""

    values: Values
    shape: Sizes

    @property
    def make(self) -> Expressions:
        return self.values.make

    def value(self, operand: Operand) -> Value:
        """A tensor, or a number as one."""
        if isinstance(operand, Value):
            return operand
        if isinstance(operand, torch.SymInt):
            return self.number_of_rows(operand)
        return self.values.constant(torch.tensor(operand, dtype=_PYTHON.get(type(operand))))

    def elementwise(self, op: str, *operands: Operand, attrs: Attributes = ()) -> Value:
        return self.values.elementwise(op, *(self.value(one) for one in operands), attrs=attrs)

    def number_of_rows(self, size: torch.SymInt) -> Value:
        """A number of nodes or edges, as a number to compute with."""
        space = self.values.space_of(size)
        assert space is not None
        one = self.make.constant(1.0)
        return self.values.one_row(self.total("sum", [Piece(atom, mask, one) for atom, mask in space]))

    def total(self, reduce: str, pieces: Sequence[Piece]) -> Expression:
        """The reduction over all rows."""
        rows = [(one.row, self.make.rows(one.atom), one.mask) for one in pieces if one.atom is not None]
        return self.make.scatter(reduce, rows, None)


Operator: TypeAlias = Callable[..., object]
OPERATORS: dict[str, Operator] = {}


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Puts a function into `OPERATORS` under the names that ATen has for it."""

    def put(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return put


_PYTHON = {bool: torch.bool, int: torch.int64, float: torch.float64}


def _unary(name: str, settings: Callable[..., Attributes] = lambda: ()) -> None:
    """x and settings, element by element; `settings` has their names and defaults in ATen."""

    def apply(call: Call, x: Value, *args: object, **kwargs: object) -> Value:
        return call.elementwise(name, x, attrs=settings(*args, **kwargs))

    OPERATORS[f"{name}.default"] = apply


def _binary(name: str, op: str) -> None:
    def apply(call: Call, a: Operand, b: Operand) -> Value:
        return call.elementwise(op, a, b)

    for overload in ("Tensor", "Scalar", "default", "Tensor_Tensor", "Tensor_Scalar"):
        OPERATORS[f"{name}.{overload}"] = apply


for _name in (
    *(
        "abs",
        "ceil",
        "cos",
        "erf",
        "exp",
        "expm1",
        "floor",
        "log",
        "log1p",
        "mish",
        "neg",
        "reciprocal",
        "relu",
    ),
    *("round", "rsqrt", "sigmoid", "sign", "silu", "sin", "sqrt", "tanh", "isnan", "isinf", "isfinite"),
    *("hardsigmoid", "hardswish"),
):
    _unary(_name)
_unary("leaky_relu", lambda negative_slope=0.01: (negative_slope,))
_unary("elu", lambda alpha=1.0, scale=1.0, input_scale=1.0: (alpha, scale, input_scale))
_unary("gelu", lambda *, approximate="none": (approximate,))
_unary("softplus", lambda beta=1, threshold=20: (beta, threshold))
for _name, _op in {
    **{name: name for name in ("mul", "eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum", "pow")},
    **{name: name for name in ("remainder", "floor_divide", "div")},
    **{"bitwise_and": "and", "bitwise_or": "or", "logical_and": "and", "logical_or": "or"},
}.items():  # fmt: skip
    _binary(_name, _op)


@operator("pow.Scalar")
def _power(call: Call, base: Operand, exponent: Operand) -> Value:
    return call.elementwise("pow", base, exponent)


@operator("add.Tensor", "add.Scalar")
def _add(call: Call, a: Operand, b: Operand, alpha: Operand = 1, *, negate: bool = False) -> Value:
    first, second = (call.value(one) if isinstance(one, Value) else one for one in (a, b))
    if isinstance(first, Value) and first.kind == "id" and not isinstance(second, Value):
        return _shift(call, first, second)
    if alpha != 1:
        second = call.elementwise("mul", second, alpha)
    return call.elementwise("add", first, call.elementwise("neg", second) if negate else second)


def _shift(call: Call, ids: Value, by: Number) -> Value:
    """Places among the nodes of one type, as places in a union that has others in front of them."""
    size = call.values.size(by)
    if size is None:
        raise ModelError("a place among the nodes is moved by a number that is no number of nodes")
    if size == 0:
        return ids
    return call.values.each(ids, lambda row: _shifted(call.make, row, size), ids.axes)


def _shifted(make: Expressions, row: Expression, by: object) -> Expression:
    if row.op in ("concat", "reshape", "expand", "slice"):
        return make.with_args(row, [_shifted(make, arg, by) for arg in row.args])
    return make.make("shift", (row,), (by,), shape=row.shape, kind="id", atom=row.atom)


@operator("sub.Tensor", "sub.Scalar")
def _subtract(call: Call, a: Operand, b: Operand, alpha: Operand = 1) -> Value:
    result = _add(call, a, b, alpha, negate=True)
    assert isinstance(result, Value)
    return result


@operator("rsub.Scalar", "rsub.Tensor")
def _subtract_from(call: Call, a: Operand, b: Operand, alpha: Operand = 1) -> Value:
    return _subtract(call, b, a, alpha)  # type: ignore[return-value]


@operator("div.Tensor_mode")
def _divide(call: Call, a: Operand, b: Operand, *, rounding_mode: str | None) -> Value:
    if rounding_mode == "floor":
        return call.elementwise("floor_divide", a, b)
    if rounding_mode is not None:
        raise ModelError(f"division with rounding_mode={rounding_mode!r} is not known")
    return call.elementwise("div", a, b)


@operator("bitwise_not.default", "logical_not.default")
def _negate(call: Call, x: Value) -> Value:
    return call.elementwise("not", _as_bool(call, x))


def _as_bool(call: Call, x: Value) -> Value:
    if x.kind == "int":
        raise ModelError("bits of whole numbers are not known: use comparisons")
    return x if x.kind == "bool" else call.elementwise("ne", x, 0)


@operator("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _choose(call: Call, condition: Value, a: Operand, b: Operand) -> Value:
    return call.elementwise("where", condition, a, b)


@operator("masked_fill.Scalar", "masked_fill.Tensor")
def _fill_where(call: Call, x: Value, mask: Value, number: Operand) -> Value:
    return call.elementwise("where", mask, number, x)


@operator("clamp.default", "hardtanh.default")
def _clamp(call: Call, x: Value, min: float | None = None, max: float | None = None) -> Value:
    return call.elementwise("clamp", x, attrs=(min, max))


@operator("clamp_min.default")
def _at_least(call: Call, x: Value, min: float) -> Value:
    return call.elementwise("clamp", x, attrs=(min, None))


@operator("clamp.Tensor")
def _clamp_by_tensors(call: Call, x: Value, min: Value | None = None, max: Value | None = None) -> Value:
    x = x if min is None else call.elementwise("maximum", x, min)
    return x if max is None else call.elementwise("minimum", x, max)


# Over axes


def _reduce(call: Call, op: str, x: Value, dims: object, keepdim: bool) -> Value:
    """A reduction over some axes; over the rows, it is one over all nodes or edges."""
    axes = _axes_of(x, dims)
    result = x
    inside = [i for i in axes if i != x.row_axis]
    channels = [x.channel_of(i) for i in inside]
    result = call.values.each(x, lambda row: call.make.reduce(op, row, channels), _ones(x.axes, inside))
    if x.row_axis in axes:
        assert x.row_axis is not None
        reduce = {"any": "amax"}.get(op, op)
        row = call.total(reduce, result.pieces)
        kept = _ones(result.axes, [x.row_axis])
        result = call.values.one_row(call.make.reshape(row, [part for axis in kept for part in axis]), kept)
        if len(x.axes[x.row_axis]) > 1:
            raise ModelError("a reduction over an axis of rows and channels together is not known")
    if keepdim:
        return result
    left = tuple(axis for i, axis in enumerate(result.axes) if i not in axes)
    shape = [part for axis in left for part in axis if part != ROWS]
    return call.values.each(result, lambda row: call.make.reshape(row, shape), left)


def _ones(axes: Axes, places: Sequence[int]) -> Axes:
    return tuple((1,) if i in places else axis for i, axis in enumerate(axes))


def _axes_of(x: Value, dims: object) -> list[int]:
    if dims is None or dims == []:
        return list(range(len(x.axes)))
    listed = dims if isinstance(dims, Sequence) else [dims]
    return [int(str(dim)) % len(x.axes) for dim in listed]


def _number_in(call: Call, x: Value, dims: object) -> Operand:
    """How many elements a reduction takes together."""
    axes = _axes_of(x, dims)
    channels = prod(part for i in axes for part in x.axes[i] if part != ROWS)
    if x.row_axis not in axes:
        return channels
    one = call.make.constant(1.0)
    rows = call.total("sum", [Piece(piece.atom, piece.mask, one) for piece in x.pieces])
    return call.elementwise("mul", call.values.one_row(rows), float(channels))


def _drop_dtype(dtype: torch.dtype | None, call: Call, x: Value) -> Value:
    if x.kind == "bool" or (dtype is not None and dtype.is_floating_point):
        kind = "float" if dtype is not None and dtype.is_floating_point else "int"
        return call.values.each(x, lambda row: call.make.cast(row, kind), x.axes)
    return x


@operator("sum.dim_IntList", "sum.default")
def _sum(
    call: Call, x: Value, dim: object = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Value:
    return _reduce(call, "sum", _drop_dtype(dtype, call, x), dim, keepdim)


@operator("mean.dim", "mean.default")
def _mean(
    call: Call, x: Value, dim: object = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Value:
    total = _reduce(call, "sum", _drop_dtype(dtype, call, x), dim, keepdim)
    return call.elementwise("div", total, _number_in(call, x, dim))


@operator("amax.default")
def _largest(call: Call, x: Value, dim: object = None, keepdim: bool = False) -> Value:
    return _reduce(call, "amax", x, dim, keepdim)


@operator("amin.default")
def _smallest(call: Call, x: Value, dim: object = None, keepdim: bool = False) -> Value:
    return _reduce(call, "amin", x, dim, keepdim)


@operator("max.default")
def _largest_of_all(call: Call, x: Value) -> Value:
    return _reduce(call, "amax", x, None, False)


@operator("min.default")
def _smallest_of_all(call: Call, x: Value) -> Value:
    return _reduce(call, "amin", x, None, False)


@operator("max.dim")
def _largest_with_place(call: Call, x: Value, dim: int, keepdim: bool = False) -> tuple[Value | None, ...]:
    return _reduce(call, "amax", x, dim, keepdim), None


@operator("min.dim")
def _smallest_with_place(call: Call, x: Value, dim: int, keepdim: bool = False) -> tuple[Value | None, ...]:
    return _reduce(call, "amin", x, dim, keepdim), None


@operator("any.dim", "any.default", "any.dims")
def _any(call: Call, x: Value, dim: object = None, keepdim: bool = False) -> Value:
    return _reduce(call, "any", _as_bool(call, x), dim, keepdim)


@operator("prod.dim_int")
def _product(call: Call, x: Value, dim: int, keepdim: bool = False) -> Value:
    return _reduce(call, "prod", x, dim, keepdim)


@operator("var.correction", "var.dim")
def _variance(
    call: Call, x: Value, dim: object = None, *, correction: float | None = 1, keepdim: bool = False
) -> Value:
    centred = _subtract(call, x, _mean(call, x, dim, keepdim=True))
    squares = _reduce(call, "sum", call.elementwise("mul", centred, centred), dim, keepdim)
    number = _subtract(call, _number_in(call, x, dim), float(1 if correction is None else correction))
    return call.elementwise("div", squares, call.elementwise("clamp", number, attrs=(0, None)))


@operator("linalg_vector_norm.default")
def _norm(
    call: Call,
    x: Value,
    ord: float = 2,
    dim: object = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Value:
    if ord == 2:
        return call.elementwise("sqrt", _reduce(call, "sum", call.elementwise("mul", x, x), dim, keepdim))
    if ord == 1:
        return _reduce(call, "sum", call.elementwise("abs", x), dim, keepdim)
    raise ModelError(f"a norm of order {ord} is not known, only 1 and 2")


@operator("_softmax.default")
def _softmax(call: Call, x: Value, dim: int, half_to_float: bool) -> Value:
    axis = dim % len(x.axes)
    if axis != x.row_axis:
        place = x.channel_of(axis)
        return call.values.each(x, lambda row: call.make.along("softmax", row, place), x.axes)
    shifted = _subtract(call, x, _reduce(call, "amax", x, axis, True))
    weight = call.elementwise("exp", shifted)
    return call.elementwise("div", weight, _reduce(call, "sum", weight, axis, True))


@operator("_log_softmax.default")
def _log_softmax(call: Call, x: Value, dim: int, half_to_float: bool) -> Value:
    axis = dim % len(x.axes)
    if axis == x.row_axis:
        return call.elementwise("log", _softmax(call, x, dim, half_to_float))
    place = x.channel_of(axis)
    return call.values.each(x, lambda row: call.make.along("log_softmax", row, place), x.axes)


@operator("native_layer_norm.default")
def _layer_norm(
    call: Call,
    x: Value,
    normalized_shape: Sequence[int],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> tuple[Value | None, ...]:
    first = len(x.axes) - len(normalized_shape)
    if x.row_axis is None or x.row_axis >= first:
        raise ModelError("a layer norm over the rows is not known, only over the channels")
    place = x.channel_of(first)
    result = call.values.each(x, lambda row: call.make.along("standardize", row, place, (eps,)), x.axes)
    result = result if weight is None else call.elementwise("mul", result, weight)
    return (result if bias is None else call.elementwise("add", result, bias)), None, None


@operator("_native_batch_norm_legit_no_training.default")
def _batch_norm(
    call: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value | None, ...]:
    """Constants, so what remains is a scale and a shift."""
    scale = call.elementwise("rsqrt", call.elementwise("add", var, eps))
    scale = scale if weight is None else call.elementwise("mul", scale, weight)
    shift = call.elementwise("neg", call.elementwise("mul", mean, scale))
    shift = shift if bias is None else call.elementwise("add", shift, bias)
    units = (1,) * (len(x.axes) - 2)
    scale, shift = (
        call.values.each(
            one, lambda row: call.make.reshape(row, row.shape + units), one.axes + ((1,),) * len(units)
        )
        for one in (scale, shift)
    )
    return call.elementwise("add", call.elementwise("mul", x, scale), shift), None, None


@operator("_native_batch_norm_legit.no_stats")
def _batch_norm_of_rows(
    call: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value | None, ...]:
    """By the mean and variance of the rows themselves."""
    axes = [i for i in range(len(x.axes)) if i != 1]
    centred = _subtract(call, x, _mean(call, x, axes, keepdim=True))
    variance = _mean(call, call.elementwise("mul", centred, centred), axes, keepdim=True)
    result = call.elementwise(
        "div", centred, call.elementwise("sqrt", call.elementwise("add", variance, eps))
    )
    if weight is not None or bias is not None:
        raise ModelError("a batch norm by the rows themselves with weights is not known")
    return result, None, None


# Products of matrices


@operator("mm.default", "bmm.default")
def _products_of_matrices(call: Call, a: Value, b: Value) -> Value:
    return multiply(call, a, b)


@operator("mv.default")
def _matrix_and_vector(call: Call, a: Value, b: Value) -> Value:
    column = call.values.each(b, lambda row: call.make.reshape(row, (*row.shape, 1)), (*b.axes, (1,)))
    product = multiply(call, a, column)
    return call.values.each(product, lambda row: call.make.reshape(row, row.shape[:-1]), product.axes[:-1])


@operator("addmm.default", "baddbmm.default")
def _add_product(call: Call, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    product = multiply(call, a, b)
    product = product if alpha == 1 else call.elementwise("mul", product, alpha)
    return call.elementwise("add", product, bias if beta == 1 else call.elementwise("mul", bias, beta))


def multiply(call: Call, a: Value, b: Value) -> Value:
    """``a @ b`` of tensors with two axes, or three, of which the first counts matrices."""
    make, batch = call.make, len(a.axes) - 2
    rows = [a.row_axis, b.row_axis]
    if (batch and 0 in rows) or rows == [None, None]:
        # The matrices of each row: rows and what is fused with them count matrices.
        frame = a if rows[0] is not None else b
        axes = (*frame.axes[:batch], a.axes[-2], b.axes[-1])
        pieces = [Piece(p.atom, p.mask, make.matmul(p.row, q.row)) for p, q in call.values.aligned([a, b])]
        if rows == [0, None] or rows == [None, 0]:
            one_for_all = (a, b)[rows.index(None)]
            if one_for_all.axes[0] != (1,):
                raise ModelError("products of matrices count rows on one side and channels on the other")
        return Value(tuple(pieces), axes)
    fused = [prod(part for part in axis if part != ROWS) for axis in (*a.axes, *b.axes)]
    axes = (*a.axes[:batch], a.axes[batch], b.axes[-1])
    left, right = a, b
    if rows in ([batch, None], [batch + 1, batch]):
        # Each row is a matrix of one row, or of as many as channels are fused with rows.
        q = 1 if rows[1] is not None else fused[batch]
        left = call.values.each(a, lambda r: make.reshape(r, (*fused[:batch], q, fused[batch + 1])), a.axes)
    if rows == [None, batch + 1]:
        shape = (*fused[len(a.axes) : -2], fused[-2], fused[-1])
        right = call.values.each(b, lambda r: make.reshape(r, shape), b.axes)
    elif rows == [batch + 1, batch] and len(a.axes[-1]) == len(b.axes[-2]) == 1:
        left = call.values.each(a, lambda r: make.reshape(r, (*r.shape, 1)), a.axes)
        right = call.values.each(
            b, lambda r: make.reshape(r, (*r.shape[:batch], 1, *r.shape[batch:])), b.axes
        )
        products = [
            Piece(p.atom, p.mask, make.matmul(p.row, q.row)) for p, q in call.values.aligned([left, right])
        ]
        return call.values.one_row(call.total("sum", products), (*a.axes[:-1], b.axes[-1]))
    elif rows != [batch, None]:
        raise ModelError(
            "every node meets every node: what grows with their product is not served; let them meet along "
            "edges"
        )
    channels = [part for axis in axes for part in axis if part != ROWS]
    pieces = [
        Piece(p.atom, p.mask, make.reshape(make.matmul(p.row, q.row), channels))
        for p, q in call.values.aligned([left, right])
    ]
    return Value(tuple(pieces), axes)
