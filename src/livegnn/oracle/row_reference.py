"""The row-wise operators of the oracle: PyTorch's results, with one simple line of NumPy each.

Settings and tensors have the precision of the inputs. If a sum, a product or a linear layer is not finite in
float32, it is computed in float64: see `livegnn.oracle.reference`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from livegnn.network.operators import heads_of
from livegnn.network.steps import Step
from livegnn.types import DoubleArray

Inputs: TypeAlias = Sequence[DoubleArray]
Tensors: TypeAlias = Mapping[str, DoubleArray]


def whole(result: DoubleArray, in_float64: DoubleArray) -> DoubleArray:
    """The result; where it is not finite, the value computed in float64."""
    return np.where(np.isfinite(result), result, in_float64.astype(result.dtype))


def apply(step: Step, inputs: Inputs, tensors: Tensors) -> DoubleArray:
    """Applies a row-wise step; returns [rows, channels]. tensors: by role."""
    if step.op in _ELEMENTWISE:
        width = max(x.shape[1] for x in inputs)
        alike = [np.broadcast_to(x, (len(x), width)) for x in inputs]
        return np.asarray(_ELEMENTWISE[step.op](step, *alike), inputs[0].dtype)
    return _OF_ROWS[step.op](step, inputs, tensors)


# -- element by element
# -----------------------------------------------------------------------------------------------------------


def _bound(step: Step, name: str, otherwise: float) -> float:
    return otherwise if step.attrs.get(name) is None else step.number(name)


def _gelu(step: Step, x: DoubleArray) -> DoubleArray:
    if step.attrs["approximate"] == "tanh":
        inner: DoubleArray = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        return 0.5 * x * (1 + inner)
    return 0.5 * x * (1 + _each(math.erf, x / math.sqrt(2)))


def _each(function: Callable[[float], float], x: DoubleArray) -> DoubleArray:
    values: DoubleArray = np.array([function(value) for value in x.ravel()], dtype=x.dtype)
    return values.reshape(x.shape)


def _sigmoid(x: DoubleArray) -> DoubleArray:
    small: DoubleArray = np.exp(-np.abs(x))  # never above 1, and exact for tiny results too
    return np.where(x < 0, small, 1) / (1 + small)


def _softplus(x: DoubleArray, beta: float, threshold: float) -> DoubleArray:
    return np.where(x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta)


def _remainder(a: DoubleArray, b: DoubleArray) -> DoubleArray:
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


def _floor_divide(a: DoubleArray, b: DoubleArray) -> DoubleArray:
    rest = np.fmod(a, b)
    quotient = (a - rest) / b
    quotient = np.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    down = np.floor(quotient)
    down = np.where(quotient - down > 0.5, down + 1, down)
    result = np.where(quotient == 0, np.copysign(0, a / b), down)
    return np.where(b == 0, a / b, result)


def _where(condition: DoubleArray, a: DoubleArray, b: DoubleArray) -> DoubleArray:
    return np.where(condition != 0, a, b)


def _power_of(step: Step, x: DoubleArray) -> DoubleArray:
    exponent = step.number("exponent")
    if abs(exponent) == 0.5:  # C's pow gives other results for -inf and -0
        root: DoubleArray = np.sqrt(x)
        return root if exponent > 0 else 1 / root
    power: DoubleArray = x.astype(np.float64) ** exponent
    return power.astype(x.dtype)


_ELEMENTWISE: Mapping[str, Callable[..., DoubleArray]] = {
    "scale": lambda step, x: x * step.number("value"),
    "relu": lambda step, x: np.maximum(x, 0),
    "leaky_relu": lambda step, x: np.where(x > 0, x, step.number("slope") * x),
    "elu": lambda step, x: np.where(x > 0, x, step.number("alpha") * np.expm1(np.minimum(x, 0))),
    "gelu": _gelu,
    "sigmoid": lambda step, x: _sigmoid(x),
    "tanh": lambda step, x: np.tanh(x),
    "exp": lambda step, x: np.exp(np.minimum(x, 700)),  # a softmax reads the logits
    "neg": lambda step, x: -x,
    "abs": lambda step, x: np.abs(x),
    "sign": lambda step, x: np.where(np.isnan(x), 0, np.sign(x)),
    "expm1": lambda step, x: np.expm1(x),
    "log": lambda step, x: np.log(x),
    "log1p": lambda step, x: np.log1p(x),
    "sqrt": lambda step, x: np.sqrt(x),
    "rsqrt": lambda step, x: 1 / np.sqrt(x),
    "reciprocal": lambda step, x: 1 / x,
    "sin": lambda step, x: np.sin(x),
    "cos": lambda step, x: np.cos(x),
    "tan": lambda step, x: np.tan(x),
    "asin": lambda step, x: np.arcsin(x),
    "acos": lambda step, x: np.arccos(x),
    "atan": lambda step, x: np.arctan(x),
    "sinh": lambda step, x: np.sinh(x),
    "cosh": lambda step, x: np.cosh(x),
    "asinh": lambda step, x: np.arcsinh(x),
    "acosh": lambda step, x: np.arccosh(x),
    "atanh": lambda step, x: np.arctanh(x),
    "exp2": lambda step, x: np.exp2(x),
    "log2": lambda step, x: np.log2(x),
    "log10": lambda step, x: np.log10(x),
    "erf": lambda step, x: _each(math.erf, x),
    "erfc": lambda step, x: _each(math.erfc, x),
    "floor": lambda step, x: np.floor(x),
    "ceil": lambda step, x: np.ceil(x),
    "round": lambda step, x: np.rint(x),
    "trunc": lambda step, x: np.trunc(x),
    "silu": lambda step, x: x / (1 + np.exp(-x)),
    "softplus": lambda step, x: _softplus(x, step.number("beta"), step.number("threshold")),
    "log_sigmoid": lambda step, x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    "mish": lambda step, x: x * np.tanh(_softplus(x, 1, math.inf)),
    "hardsigmoid": lambda step, x: np.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda step, x: x * np.clip(x + 3, 0, 6) / 6,
    "not": lambda step, x: x == 0,
    "isfinite": lambda step, x: np.isfinite(x),
    "isnan": lambda step, x: np.isnan(x),
    "isinf": lambda step, x: np.isinf(x),
    "clamp": lambda step, x: np.minimum(
        np.maximum(x, _bound(step, "least", -math.inf)), _bound(step, "most", math.inf)
    ),
    "power_of": _power_of,
    "add": lambda step, a, b: a + b,
    "subtract": lambda step, a, b: a - b,
    "multiply": lambda step, a, b: a * b,
    "divide": lambda step, a, b: a / b,
    "power": lambda step, a, b: a**b,
    "maximum": lambda step, a, b: np.maximum(a, b),
    "minimum": lambda step, a, b: np.minimum(a, b),
    "atan2": lambda step, a, b: np.arctan2(a, b),
    "hypot": lambda step, a, b: np.hypot(a, b),
    "fmod": lambda step, a, b: np.fmod(a, b),
    "remainder": lambda step, a, b: _remainder(a, b),
    "floor_divide": lambda step, a, b: _floor_divide(a, b),
    "equal": lambda step, a, b: a == b,
    "not_equal": lambda step, a, b: a != b,
    "less": lambda step, a, b: a < b,
    "less_equal": lambda step, a, b: a <= b,
    "greater": lambda step, a, b: a > b,
    "greater_equal": lambda step, a, b: a >= b,
    "and": lambda step, a, b: (a != 0) & (b != 0),
    "or": lambda step, a, b: (a != 0) | (b != 0),
    "where": lambda step, condition, a, b: _where(condition, a, b),
}


# -- rows
# -----------------------------------------------------------------------------------------------------------


def _flat(rows: DoubleArray) -> DoubleArray:
    """Reshapes to [rows, channels], also with no rows."""
    flat: DoubleArray = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    return flat


def _by_head(step: Step, x: DoubleArray) -> DoubleArray:
    """Reshapes to [rows, heads, channels]."""
    heads = heads_of(step.attrs)
    by_head: DoubleArray = x.reshape(len(x), heads, x.shape[1] // heads)
    return by_head


def _linear(step: Step, inputs: Inputs, tensors: Tensors) -> DoubleArray:
    x, weight, bias = inputs[0], tensors["weight"], tensors.get("bias", 0.0)
    own = weight.ndim == 3
    heads = len(weight) if own else heads_of(step.attrs)

    def product(x: DoubleArray, weight: DoubleArray) -> DoubleArray:
        if not own and heads == 1:
            flat: DoubleArray = x @ weight.T + bias
            return flat
        by_head = x.reshape(len(x), heads, x.shape[1] // heads)
        made = np.stack([by_head[:, h] @ (weight[h] if own else weight).T for h in range(heads)], axis=1)
        return _flat(made) + bias if own else _flat(made + bias)

    result = product(x, weight)
    if not np.isfinite(result).all():
        result = whole(result, product(x.astype(np.float64), weight.astype(np.float64)))
    return result


def _matmul(step: Step, inputs: Inputs, tensors: Tensors) -> DoubleArray:
    batch, rows, inner, columns = (int(step.number(name)) for name in ("batch", "rows", "inner", "columns"))

    def product(a: DoubleArray, b: DoubleArray) -> DoubleArray:
        left = a.reshape(len(a), a.shape[1] // (rows * inner), rows, inner)
        right = b.reshape(len(b), b.shape[1] // (inner * columns), inner, columns)
        return _flat(np.broadcast_to(left @ right, (len(a), batch, rows, columns)))

    result = product(*inputs)
    if not np.isfinite(result).all():
        result = whole(result, product(*(x.astype(np.float64) for x in inputs)))
    return result


def _layer_norm(step: Step, inputs: Inputs, tensors: Tensors) -> DoubleArray:
    x = _by_head(step, inputs[0])
    centred = x - x.mean(axis=2, keepdims=True)
    normal: DoubleArray = centred / np.sqrt((centred**2).mean(axis=2, keepdims=True) + step.number("eps"))
    return normal.reshape(inputs[0].shape) * tensors.get("weight", 1.0) + tensors.get("bias", 0.0)


def _l2_normalize(step: Step, inputs: Inputs, tensors: Tensors) -> DoubleArray:
    x = _by_head(step, inputs[0])
    norm: DoubleArray = np.sqrt((x**2).sum(axis=2, keepdims=True))
    normal: DoubleArray = x / np.maximum(norm, step.number("eps"))
    return normal.reshape(inputs[0].shape)


def _log_softmax(step: Step, inputs: Inputs, tensors: Tensors) -> DoubleArray:
    x = _by_head(step, inputs[0])
    shifted: DoubleArray = x - x.max(axis=2, keepdims=True)
    log_sum: DoubleArray = np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    return (shifted - log_sum).reshape(inputs[0].shape)


def _reduce(step: Step, inputs: Inputs, tensors: Tensors) -> DoubleArray:
    x = inputs[0].reshape(len(inputs[0]), *(int(step.number(name)) for name in ("before", "size", "after")))
    kinds = {"sum": np.sum, "max": np.max, "min": np.min, "product": np.prod}
    kind: Callable[..., DoubleArray] = kinds[step.text("kind")]  # type: ignore[assignment]
    result = kind(x, axis=2)
    if not np.isfinite(result).all():
        result = whole(result, kind(x.astype(np.float64), axis=2))
    return _flat(result)


def _repeat(step: Step, inputs: Inputs, tensors: Tensors) -> DoubleArray:
    count, width = inputs[0].shape
    inner = int(step.number("inner"))
    return _flat(np.repeat(inputs[0].reshape(count, width // inner, 1, inner), int(step.number("times")), 2))


def _lookup(step: Step, inputs: Inputs, tensors: Tensors) -> DoubleArray:
    table, number = tensors["table"], np.trunc(inputs[0])
    place = np.where(number < 0, number + len(table), number)
    known = (place >= 0) & (place < len(table))
    rows: DoubleArray = np.where(known[:, :, None], table[np.where(known, place, 0).astype(int)], np.nan)
    return _flat(rows)


def _divide_by_degree(x: DoubleArray, degree: DoubleArray) -> DoubleArray:
    quotients: DoubleArray = np.divide(x, degree, out=np.zeros_like(x), where=~(degree <= 0))
    return quotients


def inverse_root(degree: DoubleArray) -> DoubleArray:
    """1 / sqrt(degree), which is 0 where the degree is 0, and NaN where it is below."""
    with np.errstate(invalid="ignore"):
        roots: DoubleArray = np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree != 0)
    return roots


_OF_ROWS: Mapping[str, Callable[[Step, Inputs, Tensors], DoubleArray]] = {
    "divide_degree": lambda step, inputs, tensors: _divide_by_degree(inputs[0], inputs[1]),
    "rsqrt_degree": lambda step, inputs, tensors: inputs[0] * inverse_root(inputs[1]),
    "linear": _linear,
    "matmul": _matmul,
    "scale_shift": lambda step, inputs, tensors: (
        inputs[0] * tensors.get("scale", 1.0) + tensors.get("shift", 0.0)
    ),
    "layer_norm": _layer_norm,
    "l2_normalize": _l2_normalize,
    "softmax": lambda step, inputs, tensors: np.exp(_log_softmax(step, inputs, tensors)),
    "log_softmax": _log_softmax,
    "scale_heads": lambda step, inputs, tensors: (
        inputs[0] * np.repeat(inputs[1], inputs[0].shape[1] // inputs[1].shape[1], axis=1)
    ),
    "sum_channels": lambda step, inputs, tensors: _by_head(step, inputs[0]).sum(axis=2),
    "sum_heads": lambda step, inputs, tensors: _by_head(step, inputs[0]).sum(axis=1),
    "reduce": _reduce,
    "concat": lambda step, inputs, tensors: np.concatenate(inputs, axis=1),
    "slice": lambda step, inputs, tensors: inputs[0][:, int(step.number("start")) : int(step.number("stop"))],
    "repeat": _repeat,
    "take": lambda step, inputs, tensors: inputs[0][:, tensors["channels"].astype(int)],
    "constant": lambda step, inputs, tensors: np.repeat(
        tensors["row"][None] if tensors else np.full((1, 1), step.number("value"), inputs[0].dtype),
        len(inputs[0]),
        axis=0,
    ),
    "lookup": _lookup,
}
