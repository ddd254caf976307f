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
from livegnn.types import MISSING, DoubleArray

Inputs: TypeAlias = Sequence[DoubleArray]
Tensors: TypeAlias = Mapping[str, DoubleArray]


def widely(function: Callable[..., DoubleArray], *inputs: DoubleArray) -> DoubleArray:
    """The result of a function; where it is not finite, that of the same inputs in float64."""
    result = function(*inputs)
    if not np.isfinite(result).all():
        in_float64 = function(*(x.astype(np.float64) for x in inputs))
        result = np.where(np.isfinite(result), result, in_float64.astype(result.dtype))
    return result


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


def _of_numpy(names: str, prefix: str = "") -> dict[str, Callable[..., DoubleArray]]:
    """NumPy's functions with these names. prefix: what NumPy writes for the first letter of operators."""
    return {f"{prefix[:1]}{name}": _without_settings(getattr(np, prefix + name)) for name in names.split()}


def _without_settings(function: Callable[..., DoubleArray]) -> Callable[..., DoubleArray]:
    return lambda step, *rows: function(*rows)


_ELEMENTWISE: Mapping[str, Callable[..., DoubleArray]] = {
    **_of_numpy(
        "abs tanh expm1 log log1p sqrt reciprocal sin cos tan sinh cosh exp2 log2 log10 floor ceil trunc"
    ),
    **_of_numpy("isfinite isnan isinf add subtract multiply divide power maximum minimum hypot fmod equal"),
    **_of_numpy("not_equal less less_equal greater greater_equal"),
    **_of_numpy("sin cos tan tan2 sinh cosh tanh", prefix="arc"),
    "scale": lambda step, x: x * step.number("value"),
    "relu": lambda step, x: np.maximum(x, 0),
    "leaky_relu": lambda step, x: np.where(x > 0, x, step.number("slope") * x),
    "elu": lambda step, x: np.where(x > 0, x, step.number("alpha") * np.expm1(np.minimum(x, 0))),
    "gelu": _gelu,
    "sigmoid": lambda step, x: _sigmoid(x),
    "exp": lambda step, x: np.exp(np.minimum(x, 700)),  # a softmax reads the logits
    "neg": lambda step, x: -x,
    "sign": lambda step, x: np.where(np.isnan(x), 0, np.sign(x)),
    "rsqrt": lambda step, x: 1 / np.sqrt(x),
    "erf": lambda step, x: _each(math.erf, x),
    "erfc": lambda step, x: _each(math.erfc, x),
    "round": lambda step, x: np.rint(x),
    "silu": lambda step, x: x / (1 + np.exp(-x)),
    "softplus": lambda step, x: _softplus(x, step.number("beta"), step.number("threshold")),
    "log_sigmoid": lambda step, x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    "mish": lambda step, x: x * np.tanh(_softplus(x, 1, math.inf)),
    "hardsigmoid": lambda step, x: np.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda step, x: x * np.clip(x + 3, 0, 6) / 6,
    "not": lambda step, x: x == 0,
    "clamp": lambda step, x: np.minimum(
        np.maximum(x, _bound(step, "least", -math.inf)), _bound(step, "most", math.inf)
    ),
    "power_of": _power_of,
    "remainder": lambda step, a, b: _remainder(a, b),
    "floor_divide": lambda step, a, b: _floor_divide(a, b),
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

    return widely(product, x, weight)


def _matmul(step: Step, inputs: Inputs, tensors: Tensors) -> DoubleArray:
    batch, rows, inner, columns = (int(step.number(name)) for name in ("batch", "rows", "inner", "columns"))

    def product(a: DoubleArray, b: DoubleArray) -> DoubleArray:
        left = a.reshape(len(a), a.shape[1] // (rows * inner), rows, inner)
        right = b.reshape(len(b), b.shape[1] // (inner * columns), inner, columns)
        return _flat(np.broadcast_to(left @ right, (len(a), batch, rows, columns)))

    return widely(product, *inputs)


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
    return _flat(widely(lambda x: kind(x, axis=2), x))


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


def _in_float64(function: Callable[..., DoubleArray]) -> Callable[[Step, Inputs, Tensors], DoubleArray]:
    """A transform of raw columns: it computes in float64 at any precision of its input, and rounds once."""

    def apply(step: Step, inputs: Inputs, tensors: Tensors) -> DoubleArray:
        wide = {role: tensor.astype(np.float64) for role, tensor in tensors.items()}
        made: DoubleArray = function(step, inputs[0].astype(np.float64), **wide)
        return made.astype(inputs[0].dtype)

    return apply


def _standardize(step: Step, x: DoubleArray, mean: DoubleArray, scale: DoubleArray) -> DoubleArray:
    name = step.attrs.get("function", "identity")
    value: DoubleArray = np.log(x) if name == "log" else np.log1p(x) if name == "log1p" else x
    return np.where(x == MISSING, x, (value - mean.sum(axis=0)) / scale.sum(axis=0))


def _fill_missing(step: Step, x: DoubleArray, values: DoubleArray) -> DoubleArray:
    missing = step.number("missing") if "missing" in step.attrs else MISSING
    return np.where(x == missing, values, x)


def _quantile(step: Step, x: DoubleArray, quantiles: DoubleArray) -> DoubleArray:
    ranks = np.empty_like(x)
    for channel, points in enumerate(quantiles.sum(axis=0)):
        column, places = x[:, channel], np.linspace(0, 1, len(points))
        up = np.interp(column, points, places)
        down = -np.interp(-column, -points[::-1], -places[::-1])
        middle = np.where(column >= points[-1], 1, (up + down) / 2)
        ranks[:, channel] = np.where(column <= points[0], 0, middle)
    return np.where((x == MISSING) | np.isnan(x), x, ranks)


def _bucketize(step: Step, x: DoubleArray, boundaries: DoubleArray) -> DoubleArray:
    passed = (x[:, :, None] >= boundaries) & (boundaries != np.finfo(np.float32).max)
    return np.where(x == MISSING, x, passed.sum(axis=2))


def _ordinal(step: Step, x: DoubleArray, categories: DoubleArray) -> DoubleArray:
    equal = x[:, :, None] == categories
    return np.where(equal.any(axis=2), equal.argmax(axis=2), step.number("unknown"))


def _cyclic(step: Step, x: DoubleArray) -> DoubleArray:
    period = step.number("period")
    angle = np.fmod(x, period) / period * 2 * np.pi
    return _flat(np.where((x == MISSING)[:, :, None], 0, np.stack([np.sin(angle), np.cos(angle)], axis=2)))


def divide(x: DoubleArray, by: DoubleArray) -> DoubleArray:
    """Quotients; 0 where the divisor is not positive."""
    quotients: DoubleArray = np.divide(x, by, out=np.zeros_like(x), where=~(by <= 0))
    return quotients


def inverse_root(degree: DoubleArray) -> DoubleArray:
    """1 / sqrt(degree), which is 0 where the degree is 0, and NaN where it is below."""
    with np.errstate(invalid="ignore"):
        roots: DoubleArray = np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree != 0)
    return roots


_OF_ROWS: Mapping[str, Callable[[Step, Inputs, Tensors], DoubleArray]] = {
    "divide_degree": lambda step, inputs, tensors: divide(inputs[0], inputs[1]),
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
    "standardize": _in_float64(_standardize),
    "fill_missing": _in_float64(_fill_missing),
    "quantile": _in_float64(_quantile),
    "bucketize": _in_float64(_bucketize),
    "ordinal": _in_float64(_ordinal),
    "one_hot": _in_float64(lambda step, x, channels, categories: x[:, channels.astype(int)] == categories),
    "cyclic": _in_float64(_cyclic),
}
