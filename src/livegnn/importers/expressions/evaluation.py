"""Applies one operation on rows to tensors, with torch's own functions. It is also used to fold constants.

A tensor has an axis of rows in front; an expression that is the same for all has one row.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F

Tensor: TypeAlias = torch.Tensor


def operate(op: str, attrs: Sequence[Any], args: Sequence[Tensor]) -> Tensor:
    """Applies an operation row by row. Raises KeyError for an unknown operation."""
    if op in ELEMENTWISE:
        return ELEMENTWISE[op](*args, *attrs)
    return CHANNELS[op](attrs, *args)


def _concat(attrs: Sequence[Any], *parts: Tensor) -> Tensor:
    rows = max(len(part) for part in parts)
    if any(len(part) == 0 for part in parts):
        rows = 0
    return torch.cat([part.expand(rows, *part.shape[1:]) for part in parts], dim=attrs[0] + 1)


def _slice(attrs: Sequence[Any], x: Tensor) -> Tensor:
    axis, start, stop, step = attrs
    return x[(slice(None),) * (axis + 1) + (slice(start, stop, step),)]


def _standardize(attrs: Sequence[Any], x: Tensor) -> Tensor:
    axes, eps = attrs
    return F.layer_norm(x, x.shape[axes + 1 :], eps=eps)


def _over(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda attrs, x: function(x, [axis + 1 for axis in attrs[0]], True)


def _prod(attrs: Sequence[Any], x: Tensor) -> Tensor:
    for axis in attrs[0]:
        x = x.prod(axis + 1, keepdim=True)
    return x


CASTS = {"float": torch.float64, "int": torch.int64, "bool": torch.bool}


CHANNELS: Mapping[str, Callable[..., Tensor]] = {
    "reshape": lambda attrs, x: x.reshape(len(x), *attrs[0]),
    "permute": lambda attrs, x: x.permute(0, *(i + 1 for i in attrs[0])),
    "expand": lambda attrs, x: x.expand(len(x), *attrs[0]),
    "slice": _slice,
    "concat": _concat,
    "cast": lambda attrs, x: x.to(CASTS[attrs[0]]),
    "sum": _over(torch.sum),
    "amax": _over(torch.amax),
    "amin": _over(torch.amin),
    "any": _over(torch.any),
    "prod": _prod,
    "softmax": lambda attrs, x: x.softmax(attrs[0] + 1),
    "log_softmax": lambda attrs, x: x.log_softmax(attrs[0] + 1),
    "flip": lambda attrs, x: x.flip(attrs[0] + 1),
    "standardize": _standardize,
    "linear": lambda attrs, x, weight: x.to(weight.dtype) @ weight[0],
    "matmul": lambda attrs, a, b: a @ b,
    "lookup": lambda attrs, table, index: table[0][index],
}


def _functions(names: str) -> dict[str, Callable[..., Tensor]]:
    """torch's functions with these names."""
    return {name: getattr(torch, name, None) or getattr(F, name) for name in names.split()}


ELEMENTWISE_OPERANDS: Mapping[str, tuple[int, Callable[..., Tensor]]] = {
    **{
        name: (1, function)
        for name, function in _functions(
            "neg abs sign exp expm1 log log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh "
            "cosh asinh acosh atanh exp2 log2 log10 erf erfc floor ceil round trunc "
            "isfinite isnan isinf relu sigmoid tanh silu mish hardsigmoid hardswish leaky_relu softplus clamp"
        ).items()
    },
    "elu": (1, torch.ops.aten.elu),
    "gelu": (1, lambda x, approximate: F.gelu(x, approximate=approximate)),
    **{
        name: (2, function)
        for name, function in _functions(
            "mul pow maximum minimum remainder fmod atan2 hypot eq ne lt le gt ge"
        ).items()
    },
    "and": (2, torch.logical_and),
    "or": (2, torch.logical_or),
    "where": (3, torch.where),
}
"""ATen's element-wise operators -> the number of operands before the settings, and the function."""

ELEMENTWISE: Mapping[str, Callable[..., Tensor]] = {
    **{name: function for name, (_, function) in ELEMENTWISE_OPERANDS.items()},
    **_functions("add div floor_divide"),
    "not": torch.logical_not,
    "exp_shifted": lambda logit, shift: torch.exp(logit - shift),
}

KEEPS_INTEGERS = frozenset(
    {"add", "mul", "pow", "maximum", "minimum", "remainder", "floor_divide", "where", "clamp", "neg", "abs"}
    | {"sign"}
)
"""Operations whose results are whole numbers if their operands are."""
