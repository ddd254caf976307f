"""Functions of one number that are computed by several steps: whether they only rise, or only fall.

A score that only rises with an inner product has the targets in the order of this product. A `Curve` knows
two intervals on each half of the numbers, those up to 0 and those from 0 on: of the function's values, and of
its slopes. Intervals may be too wide but never too narrow, so a curve that says that it rises does rise. All
functions here are continuous where they are defined.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import numpy as np

Numbers: TypeAlias = Mapping[str, float]
"""The settings of a step, and its tensors of one number, by name."""


_LARGE: Final = 1e38  # float32 ends soon after it


class Interval(NamedTuple):
    """All numbers from low to high."""

    low: float
    high: float

    def plus(self, other: "Interval") -> "Interval":
        """The interval of sums. Without an end where infinities of both signs meet."""
        low, high = self.low + other.low, self.high + other.high
        return Interval(-math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high)

    def times(self, other: "Interval") -> "Interval":
        """The interval of products."""
        ends = [0.0 if 0 in (a, b) else a * b for a in self for b in other]
        return Interval(min(ends), max(ends))

    def rounded(self) -> "Interval":
        """The interval without ends that only the rounding of numbers near the largest one has found."""
        low = -math.inf if self.low < -_LARGE else min(self.low, _LARGE)
        high = math.inf if self.high > _LARGE else max(self.high, -_LARGE)
        return Interval(low, high)

    def hull(self, other: "Interval") -> "Interval":
        """The least interval that has both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


_ANY: Final = Interval(-math.inf, math.inf)
_ZERO: Final = Interval(0.0, 0.0)
_ONE: Final = Interval(1.0, 1.0)


class Half(NamedTuple):
    """A function on one half of the numbers."""

    values: Interval
    slopes: Interval

    def scaled(self, factor: float, shift: float = 0.0) -> "Half":
        """The function times a factor, plus a number."""
        values = self.values.times(Interval(factor, factor)).plus(Interval(shift, shift))
        return Half(values, self.slopes.times(Interval(factor, factor)))

    def plus(self, other: "Half") -> "Half":
        """The sum of two functions of the same number."""
        return Half(self.values.plus(other.values), self.slopes.plus(other.slopes))

    def times(self, other: "Half") -> "Half":
        """Their product."""
        slopes = self.slopes.times(other.values).plus(other.slopes.times(self.values))
        return Half(self.values.times(other.values), slopes)


class Curve(NamedTuple):
    """A function of one number.

    undefined: 1 if it is NaN for numbers below a bound, -1 if above one, 0 if it never is.
    """

    below: Half
    above: Half
    undefined: int = 0

    @property
    def direction(self) -> int:
        """1 if the function never falls, -1 if it never rises; 0 if neither is certain, or it is constant.

        NaN counts as lower than any other value.
        """
        slopes = self.below.slopes.hull(self.above.slopes)
        direction = 0 if slopes == _ZERO else 1 if slopes.low >= 0 else -1 if slopes.high <= 0 else 0
        return direction if self.undefined in (0, direction) else 0


NUMBER: Final = Curve(Half(Interval(-math.inf, 0.0), _ONE), Half(Interval(0.0, math.inf), _ONE))
"""The number itself."""


def constant(value: float | None) -> Curve:
    """A function with one value; None: it is not known."""
    half = Half(_ANY if value is None else Interval(value, value), _ZERO)
    return Curve(half, half)


def follow(op: str, inputs: Sequence[Curve], numbers: Numbers) -> Curve | None:
    """The function that a step computes of functions of the same number; None if nothing is known of it."""
    undefined = {curve.undefined for curve in inputs} - {0}
    if op in _DOMAINS and min(half.values.low for half in inputs[0][:2]) < _DOMAINS[op]:
        undefined.add(inputs[0].direction)
    if len(undefined) > 1 or 0 in undefined:
        return None
    below = _follow_half(op, [curve.below for curve in inputs], numbers)
    above = _follow_half(op, [curve.above for curve in inputs], numbers)
    return None if below is None or above is None else Curve(below, above, *undefined)


def _follow_half(op: str, inputs: Sequence[Half], numbers: Numbers) -> Half | None:
    if op in _RISING:
        function, steepest = _RISING[op]
        return _rise(inputs[0], partial(function, numbers), steepest, _DOMAINS.get(op, -math.inf))
    rule = _RULES.get(op)
    return None if rule is None else rule(inputs, numbers)


def _rise(
    x: Half,
    function: Callable[[float], float],
    steepest: Callable[[Interval], float],
    least: float = -math.inf,
) -> Half:
    """A function that rises from `least` on. steepest: its greatest slope where x has these values."""
    values = Interval(max(x.values.low, least), max(x.values.high, least))
    with np.errstate(all="ignore"):
        ends = Interval(float(function(values.low)), float(function(values.high)))
        slopes = Interval(0.0, float(steepest(values)))
    return Half(ends.rounded(), x.slopes.times(slopes))


def _bend(x: Half, left: Interval, at: Callable[[float], float]) -> Half:
    """A function that is x itself from 0 on. left: its slopes below 0. at: its values."""
    low, high = x.values
    ends = [at(low), at(high), *([0.0] if low < 0 < high else [])]
    slopes = left if high <= 0 else _ONE if low >= 0 else left.hull(_ONE)
    return Half(Interval(min(ends), max(ends)), x.slopes.times(slopes))


def _leaky_relu(slope: float, x: Half) -> Half:
    return _bend(x, Interval(slope, slope), lambda at: at if at > 0 else slope and at * slope)


def _elu(inputs: Sequence[Half], numbers: Numbers) -> Half:
    alpha, (x,) = numbers["alpha"], inputs
    left = Interval(min(alpha, 0.0), max(alpha, 0.0))
    return _bend(x, left, lambda at: at if at > 0 else alpha * math.expm1(at))


def _smaller(inputs: Sequence[Half], numbers: Numbers) -> Half:
    a, b = inputs
    for one, other in ((a, b), (b, a)):
        if one.values.high <= other.values.low:
            return one
    return Half(Interval(*map(min, a.values, b.values)), a.slopes.hull(b.slopes))


def _larger(inputs: Sequence[Half], numbers: Numbers) -> Half:
    return _smaller([half.scaled(-1.0) for half in inputs], numbers).scaled(-1.0)


def _reciprocal(x: Half) -> Half | None:
    low, high = x.values
    if low <= 0 <= high:
        return None
    values, nearest = Interval(1 / high, 1 / low), min(abs(low), abs(high))
    return Half(values, x.slopes.times(Interval(-1 / nearest / nearest, 0.0)))


def _divide(inputs: Sequence[Half], numbers: Numbers) -> Half | None:
    inverse = _reciprocal(inputs[1])
    return None if inverse is None else inputs[0].times(inverse)


def _power(x: Half, exponent: float) -> Half | None:
    """Powers that rise: odd ones, and of numbers from 0 on all with a positive exponent."""
    if exponent <= 0 or (exponent % 2 != 1 and x.values.low < 0):
        return None
    return _rise(x, lambda at: np.float64(at) ** exponent, _unbounded)


def _known_power(inputs: Sequence[Half], numbers: Numbers) -> Half | None:
    x, (exponent, slopes) = inputs
    return _power(x, exponent.low) if slopes == _ZERO and exponent.low == exponent.high else None


def _softplus(inputs: Sequence[Half], numbers: Numbers) -> Half | None:
    """At its threshold it falls by log(1 + exp(-threshold)), no more than float32 rounds if that is 15."""
    beta = numbers["beta"]
    if numbers["threshold"] < 15:
        return None
    return _rise(inputs[0], lambda at: float(np.logaddexp(0.0, beta * at)) / beta, _at_most_one)


def _unbounded(values: Interval) -> float:
    return math.inf


def _at_most_one(values: Interval) -> float:
    return 1.0


def _clamp(numbers: Numbers, x: float) -> float:
    return min(max(x, numbers.get("least", -math.inf)), numbers.get("most", math.inf))


_Rising: TypeAlias = tuple[Callable[[Numbers, float], float], Callable[[Interval], float]]
_RISING: Final[Mapping[str, _Rising]] = {
    "sigmoid": (lambda _, x: 1 / (1 + np.exp(-x)), _at_most_one),
    "tanh": (lambda _, x: np.tanh(x), _at_most_one),
    "exp": (lambda _, x: np.exp(x), lambda values: np.exp(values.high)),
    "expm1": (lambda _, x: np.expm1(x), lambda values: np.exp(values.high)),
    "exp2": (lambda _, x: np.exp2(x), _unbounded),
    "log": (lambda _, x: np.log(x), lambda values: 1 / np.float64(values.low)),
    "log1p": (lambda _, x: np.log1p(x), lambda values: 1 / np.float64(1 + values.low)),
    "log2": (lambda _, x: np.log2(x), _unbounded),
    "log10": (lambda _, x: np.log10(x), _unbounded),
    "sqrt": (lambda _, x: np.sqrt(x), _unbounded),
    "log_sigmoid": (lambda _, x: -np.logaddexp(0.0, -x), _at_most_one),
    "hardsigmoid": (lambda _, x: np.clip(x + 3, 0, 6) / 6, _at_most_one),
    "clamp": (_clamp, _at_most_one),
    "erf": (lambda _, x: math.erf(x), _unbounded),
    "asinh": (lambda _, x: np.arcsinh(x), _at_most_one),
    "sinh": (lambda _, x: np.sinh(x), _unbounded),
    "atan": (lambda _, x: np.arctan(x), _at_most_one),
}
"""Operators on one number that never fall: the function, and its greatest slope."""

_DOMAINS: Final = {"log": 0.0, "log2": 0.0, "log10": 0.0, "sqrt": 0.0, "log1p": -1.0}
"""Where functions begin; below that they are NaN."""

_Rule: TypeAlias = Callable[[Sequence[Half], Numbers], Half | None]
_RULES: Final[Mapping[str, _Rule]] = {
    "scale": lambda inputs, numbers: inputs[0].scaled(numbers["value"]),
    "scale_shift": lambda inputs, numbers: inputs[0].scaled(numbers.get("scale", 1), numbers.get("shift", 0)),
    "linear": lambda inputs, numbers: inputs[0].scaled(numbers["weight"], numbers.get("bias", 0)),
    "neg": lambda inputs, numbers: inputs[0].scaled(-1.0),
    "sum_channels": lambda inputs, numbers: inputs[0],
    "add": lambda inputs, numbers: inputs[0].plus(inputs[1]),
    "subtract": lambda inputs, numbers: inputs[0].plus(inputs[1].scaled(-1.0)),
    "multiply": lambda inputs, numbers: inputs[0].times(inputs[1]),
    "divide": _divide,
    "reciprocal": lambda inputs, numbers: _reciprocal(inputs[0]),
    "minimum": _smaller,
    "maximum": _larger,
    "abs": lambda inputs, numbers: _leaky_relu(-1.0, inputs[0]),
    "relu": lambda inputs, numbers: _leaky_relu(0.0, inputs[0]),
    "leaky_relu": lambda inputs, numbers: _leaky_relu(numbers["slope"], inputs[0]),
    "elu": _elu,
    "softplus": _softplus,
    "power": _known_power,
    "power_of": lambda inputs, numbers: _power(inputs[0], numbers["exponent"]),
}
