"""Bounds of the numbers of a traced step: how large they are, and how near a model's row is to them.

A model's rows are float32. Where a module computes in whole numbers or in float64, a row may hold the same
number (`Bound.same`), or that number rounded, to a few units of its last place. Only smooth functions may
read rounded numbers: the result of a floor, a comparison, a remainder or a lookup may be different.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import copysign, exp, expm1, floor, inf, isfinite, isnan, log, log1p, trunc
from typing import TypeAlias

import torch

WHOLE = 2.0**24
"""Up to here, float32 has every whole number."""
LARGEST = float(torch.finfo(torch.float32).max)
NORMAL = float(torch.finfo(torch.float32).tiny)
SMALLEST = 2.0**-149
COUNT = WHOLE
"""No node is taken to have more edges than this: counts are exact."""
CATEGORY = 64
"""Sums along edges of whole numbers up to this are exact where they are below `WHOLE`: an engine that adds
differences has exact sums until a node has a quarter of a million edges."""
QUOTIENT = 2.0**22 - 2
"""Below this, the whole quotient of two numbers is exact: the rounding error is less than a half."""
_FEW = 4096
"""Larger constants, such as weights, have rougher bounds: better ones take several times their memory."""
_SLACK = 1e-5
"""How far rounding may carry ends of an interval of numbers that are not whole, as a part of them."""

Ends: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Bound:
    """low, high: of the module's numbers. whole: all are. same_below: a row holds the module's number itself
    wherever the row is below this in magnitude; infinite: always. once: the row is the module's number,
    rounded once. least, most: the smallest and the largest magnitude that is neither 0 nor infinite.
    guarded: the row may be NaN where the module has a number; signed: it may be -0 where that is 0. why: what
    made it differ, for errors.
    """

    low: float = -inf
    high: float = inf
    whole: bool = False
    same_below: float = inf
    once: bool = False
    least: float = SMALLEST
    most: float = LARGEST
    guarded: bool = False
    signed: bool = False
    why: str = ""

    @property
    def same(self) -> bool:
        return self.same_below == inf

    @property
    def reach(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def one_sign(self) -> int:
        """1 if no number is negative, -1 if none is positive, else 0."""
        return 1 if self.low >= 0 else -1 if self.high <= 0 else 0

    @property
    def too_large(self) -> bool:
        """Whether a row may be infinite where the module has a number."""
        return not self.same and self.most > LARGEST * (1 + 2**-26)

    @property
    def too_small(self) -> bool:
        """Whether a row may be 0, or have lost digits, since float32 has no smaller numbers."""
        return not self.same and self.least < NORMAL

    def as_whole(self, low: float, high: float) -> "Bound":
        """Whole numbers that are made of these, in another interval."""
        return replace(self, low=low, high=high, whole=True, least=1.0, most=max(abs(low), abs(high)))

    def within(self, limit: float) -> "Bound":
        """These numbers where they are below a limit, and NaN instead of the others."""
        low, high = max(self.low, -limit), min(self.high, limit)
        below = inf if self.same_below >= limit else self.same_below
        return replace(self, low=low, high=high, same_below=below, most=min(self.most, limit), guarded=True)


UNKNOWN = Bound()
"""Any numbers of float32."""


def whole_bound(low: float, high: float, *, same_below: float = inf, why: str = "") -> Bound:
    """Whole numbers of this interval, by default those that a row holds as they are."""
    return Bound(low, high, True, same_below, least=1.0, most=max(abs(low), abs(high)), why=why)


def bound_of_constant(tensor: torch.Tensor) -> Bound:
    """The numbers of a tensor that is the same for all rows."""
    known = tensor.detach().double().reshape(-1)
    if bool(known.isnan().any()):
        known = known[~known.isnan()]
    if not len(known):
        return UNKNOWN
    exact = bool((known.float() == known).all())
    low, high = (float(end) for end in known.aminmax())
    if len(known) > _FEW and tensor.is_floating_point():
        return Bound(low, high, same_below=inf if exact else 0.0, once=True, why="a constant")
    sizes = known[known.isfinite() & (known != 0)].abs()
    least, most = (float(end) for end in sizes.aminmax()) if len(sizes) else (1.0, 1.0)
    whole = bool((known.isfinite() & (known == known.trunc())).all())
    below = inf if exact else WHOLE if whole else 0.0
    return Bound(low, high, whole, below, True, least, most, why=f"{high:,.0f}" if whole else f"{high}")


def union(bounds: Sequence[Bound]) -> Bound:
    """Numbers of any of these."""
    if not bounds:
        return UNKNOWN
    return Bound(
        min(one.low for one in bounds),
        max(one.high for one in bounds),
        all(one.whole for one in bounds),
        min(one.same_below for one in bounds),
        all(one.once or one.same for one in bounds),
        min(one.least for one in bounds),
        max(one.most for one in bounds),
        any(one.guarded for one in bounds),
        any(one.signed for one in bounds),
        next((one.why for one in bounds if not one.same), ""),
    )


# Intervals


def _ends(*numbers: float) -> Ends:
    """Returns the interval of some numbers; an unknown number, such as inf - inf, may be anything."""
    if any(isnan(one) for one in numbers):
        return -inf, inf
    return min(numbers), max(numbers)


def _times(a: float, b: float) -> float:
    return 0.0 if 0 in (a, b) else a * b


def _add(a: Bound, b: Bound) -> Ends:
    return _ends(a.low + b.low, a.high + b.high)


def _subtract(a: Bound, b: Bound) -> Ends:
    return _ends(a.low - b.high, a.high - b.low)


def _multiply(a: Bound, b: Bound) -> Ends:
    if a is b:
        return 0.0 if a.one_sign == 0 else min(a.low**2, a.high**2), a.reach * a.reach
    return _ends(*(_times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)))


def _divide(a: Bound, b: Bound) -> Ends:
    if b.low <= 0 <= b.high:
        return (-a.reach, a.reach) if b.whole else (-inf, inf)
    return _ends(*(_quotient(x, y) for x in (a.low, a.high) for y in (b.low, b.high)))


def _quotient(a: float, b: float) -> float:
    return 0.0 if abs(b) == inf else a / b


def _floor_divide(a: Bound, b: Bound) -> Ends:
    low, high = _divide(a, b)
    return _whole(low, floor) - 1, _whole(high, floor) + 1


def _remainder(a: Bound, b: Bound) -> Ends:
    return (0.0 if b.low >= 0 else -b.reach), (0.0 if b.high <= 0 else b.reach)


def _fmod(a: Bound, b: Bound) -> Ends:
    most = min(a.reach, b.reach)
    return (0.0 if a.low >= 0 else -most), (0.0 if a.high <= 0 else most)


def _power(a: Bound, b: Bound) -> Ends:
    exponent = b.low
    if b.high != exponent or (a.low < 0 and exponent != trunc(exponent)) or (a.low <= 0 and exponent < 0):
        return -inf, inf
    ends = [_raised(one, exponent) for one in (a.low, a.high)]
    between = [0.0] if a.low < 0 < a.high else []
    return _ends(*ends, *between)


def _raised(base: float, exponent: float) -> float:
    try:
        return float(base**exponent)
    except (OverflowError, ZeroDivisionError):
        return inf


def _whole(number: float, function: Callable[[float], int]) -> float:
    return float(function(number)) if isfinite(number) else number


def _applied(function: Callable[[float], float], otherwise: Ends = (-inf, inf)) -> Callable[[Bound], Ends]:
    """The interval of an increasing function."""

    def of(x: Bound) -> Ends:
        low, high = (_tried(function, one, end) for one, end in zip((x.low, x.high), otherwise, strict=True))
        return low, high

    return of


def _tried(function: Callable[[float], float], number: float, otherwise: float) -> float:
    try:
        return float(function(number))
    except (OverflowError, ValueError):
        return otherwise


def _within(low: float, high: float) -> Callable[..., Ends]:
    return lambda *bounds: (low, high)


ENDS: Mapping[str, Callable[..., Ends]] = {
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "div": _divide,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "fmod": _fmod,
    "pow": _power,
    "neg": lambda x: (-x.high, -x.low),
    "abs": lambda x: (0.0 if x.one_sign == 0 else min(abs(x.low), abs(x.high)), x.reach),
    "relu": lambda x: (max(x.low, 0.0), max(x.high, 0.0)),
    "maximum": lambda a, b: (max(a.low, b.low), max(a.high, b.high)),
    "minimum": lambda a, b: (min(a.low, b.low), min(a.high, b.high)),
    "sign": lambda x: (_signed(x.low), _signed(x.high)),
    "floor": _applied(lambda x: _whole(x, floor)),
    "ceil": _applied(lambda x: -_whole(-x, floor)),
    "round": _applied(lambda x: _whole(x, round)),
    "trunc": _applied(lambda x: _whole(x, trunc)),
    "sqrt": _applied(lambda x: x**0.5 if x >= 0 else 0.0),
    "exp": _applied(exp, (0.0, inf)),
    "expm1": _applied(expm1, (-1.0, inf)),
    "log": _applied(lambda x: log(x) if x < inf else inf, (-inf, -inf)),
    "log1p": _applied(lambda x: log1p(x) if x < inf else inf, (-inf, -inf)),
    **dict.fromkeys(("sigmoid", "_softmax", "hardsigmoid"), _within(0.0, 1.0)),
    **dict.fromkeys(("tanh", "erf", "sin", "cos"), _within(-1.0, 1.0)),
    **dict.fromkeys(("rsqrt", "exp2", "softplus"), _within(0.0, inf)),
}
"""Operator -> the interval of its results."""


def _signed(number: float) -> float:
    return 0.0 if number == 0 else copysign(1.0, number)


KEEPS_WHOLE = frozenset(
    {"add", "sub", "mul", "neg", "abs", "relu", "maximum", "minimum", "remainder", "fmod", "sum", "prod"}
)


def ends_of(name: str, operands: Sequence[Bound], *, whole: bool) -> Ends:
    """The interval of an operator's results, with room for rounding unless they are whole numbers."""
    function = ENDS.get(name)
    if function is None or not operands:
        return -inf, inf
    low, high = function(*operands)
    if isnan(low) or isnan(high):
        return -inf, inf
    if whole:
        return low, high
    return low - abs(low) * _SLACK if low not in (0, -1, 1, inf) else low, high + abs(high) * _SLACK


# Magnitudes of float64


def _least_of_power(x: Bound, exponent: Bound) -> Ends:
    return _ends(_raised(x.least, exponent.low), _raised(x.most, exponent.low))


def _logarithm(x: Bound) -> Ends:
    # The logarithm of 1 is 0; any other is at least as far from 0 as that of float32's next number.
    return 2.0**-25, 2000.0


SIZES: Mapping[str, Callable[..., Ends]] = {
    "mul": lambda a, b: (a.least * b.least, a.most * b.most),
    "div": lambda a, b: (a.least / b.most, a.most / b.least),
    "reciprocal": lambda x: (1 / x.most, 1 / x.least),
    "sqrt": lambda x: (x.least**0.5, x.most**0.5),
    "rsqrt": lambda x: (x.most**-0.5, x.least**-0.5),
    "pow": _least_of_power,
    **dict.fromkeys(("neg", "abs", "relu"), lambda x: (x.least, x.most)),
    **dict.fromkeys(("maximum", "minimum"), lambda a, b: (min(a.least, b.least), max(a.most, b.most))),
    "exp": lambda x: (_tried(exp, x.low, inf), _tried(exp, x.high, inf)),
    "expm1": lambda x: (x.least / 2 if x.low > -1 else 0.0, _tried(expm1, x.high, inf)),
    **dict.fromkeys(("log", "log2", "log10"), _logarithm),
    "log1p": lambda x: (x.least / 2, 2000.0),
    **dict.fromkeys(("tanh", "erf", "atan", "asinh"), lambda x: (min(x.least, 1.0) / 2, max(x.most, 2.0))),
    "sigmoid": lambda x: (_tried(exp, x.low, inf) / 2 if x.low < 0 else 0.5, 1.0),
    "sign": lambda x: (1.0, 1.0),
}
"""Smooth operator -> the smallest and the largest magnitude of its results, in float64."""

GENTLE = frozenset(
    {"add", "sub", "neg", "abs", "relu", "maximum", "minimum", "exp", "expm1", "log1p", "tanh", "sigmoid"}
    | {"erf", "atan", "asinh"}
)
"""Operators that do not magnify the loss of numbers next to 0."""

ROUNDED_ONCE = frozenset({"mul", "div", "reciprocal", "sqrt"})
"""Operators that IEEE rounds. Twice, to float64 and to float32, is once."""


def is_steady(name: str, operands: Sequence[Bound]) -> bool:
    """Whether a smooth operator keeps the last place of rounded operands to a few units: the logarithm near 1
    does not.
    """
    if name == "pow":
        return operands[1].same and operands[1].low == operands[1].high and operands[1].reach <= 16
    if all(one.same for one in operands):
        return name in SIZES
    if name in ("log", "log2", "log10"):
        return operands[0].low >= 2 or (operands[0].whole and operands[0].same_below >= 2)
    if name == "log1p":
        return operands[0].low >= 0
    if name in ("exp", "expm1"):
        return operands[0].reach <= 87
    return name in SIZES
