"""Functions of one number: that those which are said to rise do so, on random compositions of steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn.model import Step
from livegnn.network.curves import NUMBER, Curve, Interval, constant, follow
from livegnn.oracle.row_reference import apply

Call = tuple[str, tuple[int, ...], float]
"""An operator, its inputs by their numbers, and a setting. Inputs 0 and 1 are the number and the setting."""

_SETTINGS = {
    "scale": ("value",),
    "leaky_relu": ("slope",),
    "elu": ("alpha",),
    "power_of": ("exponent",),
    "clamp": ("least",),
    "softplus": ("beta", "threshold"),
}
_ONE = (
    *("scale", "leaky_relu", "elu", "power_of", "clamp", "softplus", "neg", "abs", "relu", "sigmoid", "tanh"),
    *("exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sqrt", "log_sigmoid", "hardsigmoid", "erf"),
    *("asinh", "sinh", "atan", "reciprocal", "sin", "cosh", "silu", "floor"),
)
_TWO = ("add", "subtract", "multiply", "divide", "minimum", "maximum", "power")
_AT = np.unique(np.concatenate([np.linspace(-12, 12, 2401), np.geomspace(1e-4, 80, 300)]))
AT = np.unique(np.concatenate([_AT, -_AT]))


def _curve_of(calls: list[Call]) -> Curve | None:
    curves: list[Curve] = [NUMBER]
    for op, places, setting in calls:
        numbers = dict.fromkeys(_SETTINGS.get(op, ()), setting)
        inputs = [constant(setting) if place == 1 else curves[max(0, place - 1)] for place in places]
        curve = follow(op, inputs, numbers)
        if curve is None:
            return None
        curves.append(curve)
    return curves[-1]


def _values_of(calls: list[Call]) -> np.ndarray:
    """The oracle's, of the numbers AT."""
    values = [AT[:, None]]
    for op, places, setting in calls:
        attrs = dict.fromkeys(_SETTINGS.get(op, ()), setting)
        rows = [np.full_like(AT[:, None], setting) if p == 1 else values[max(0, p - 1)] for p in places]
        with np.errstate(all="ignore"):
            values.append(apply(Step(op, tuple(map(str, places)), "y", attrs=attrs), rows, {}))
    return values[-1][:, 0]


def _check(calls: list[Call], curve: Curve) -> None:
    values = _values_of(calls)
    for half, some in ((curve.below, values[AT <= 0]), (curve.above, values[AT >= 0])):
        known = some[np.isfinite(some)]
        room = 1e-6 * np.maximum(1, np.abs(known))
        assert (known >= half.values.low - room).all()
        assert (known <= half.values.high + room).all()
    if curve.direction:
        ordered = values * curve.direction
        undefined = np.isnan(ordered)
        if undefined.any() and np.isfinite(ordered).any():  # numbers that come before all others
            along = undefined if curve.direction > 0 else undefined[::-1]
            assert not along[np.argmin(along) :].any()
        ordered = ordered[np.isfinite(ordered)]
        assert (np.diff(ordered) >= -1e-6 * np.maximum(1, np.abs(ordered[1:]))).all()


@st.composite
def compositions(draw: st.DrawFn) -> list[Call]:
    calls: list[Call] = []
    for count in range(draw(st.integers(1, 6))):
        places = st.integers(0, count + 1)
        setting = draw(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 20.0]))
        if draw(st.booleans()):
            op = draw(st.sampled_from(_ONE))
            setting = abs(setting) + 15 if op == "softplus" else setting
            calls.append((op, (draw(places.filter(lambda place: place != 1)),), setting))
        else:
            calls.append((draw(st.sampled_from(_TWO)), (draw(places), draw(places)), setting))
    return calls


@given(calls=compositions())
@example(calls=[("minimum", (0, 1), -2), ("relu", (2,), 0)])
@example(calls=[("add", (0, 1), 20), ("abs", (2,), 0), ("exp", (3,), 0)])
@example(calls=[("neg", (0,), 0), ("log", (2,), 0), ("neg", (3,), 0)])
@example(
    calls=[("add", (0, 1), 20), ("add", (0, 0), 0), ("exp", (2,), 0), ("add", (0, 0), 0), ("exp", (4,), 0)]
)
@settings(max_examples=draws(400, 20_000), deadline=None)
def test_what_is_said_to_rise_rises(calls) -> None:
    curve = _curve_of(calls)
    if curve is not None:
        _check(calls, curve)


RISING: dict[str, list[Call]] = {
    "log(sigmoid)": [
        ("minimum", (0, 1), 0),
        ("abs", (0,), 0),
        ("neg", (3,), 0),
        ("exp", (4,), 0),
        ("log1p", (5,), 0),
        ("subtract", (2, 6), 0),
    ],
    "cube": [("power", (0, 1), 3)],
    "x * x * x": [("multiply", (0, 0), 0), ("multiply", (2, 0), 0)],
    "1 - sigmoid(-x)": [("neg", (0,), 0), ("sigmoid", (2,), 0), ("subtract", (1, 3), 1)],
    "1 / (1 + exp(-x))": [
        ("neg", (0,), 0),
        ("exp", (2,), 0),
        ("add", (3, 1), 1),
        ("reciprocal", (4,), 0),
    ],
    "x + sigmoid(x)": [("sigmoid", (0,), 0), ("add", (0, 2), 0)],
    "sigmoid(x) ** 2": [("sigmoid", (0,), 0), ("multiply", (2, 2), 0)],
    "leaky relu": [("leaky_relu", (0,), 0.1)],
    "elu": [("elu", (0,), 1.5)],
    "log": [("log", (0,), 0)],
    "softplus": [("softplus", (0,), 20)],
}
NOT_RISING: dict[str, list[Call]] = {
    "abs": [("abs", (0,), 0)],
    "square": [("multiply", (0, 0), 0)],
    "square, as a power": [("power", (0, 1), 2)],
    "sin": [("sin", (0,), 0)],
    "cosh": [("cosh", (0,), 0)],
    "silu": [("silu", (0,), 0)],
    "x * sigmoid(x)": [("sigmoid", (0,), 0), ("multiply", (0, 2), 0)],
    "reciprocal": [("reciprocal", (0,), 0)],
    "leaky relu, falling": [("leaky_relu", (0,), -0.1)],
    "elu, falling": [("elu", (0,), -1.0)],
    "x - 2 tanh(x)": [("tanh", (0,), 0), ("scale", (2,), 2), ("subtract", (0, 3), 0)],
    "-log(x), where NaN is no low value": [("log", (0,), 0), ("neg", (2,), 0)],
    "softplus that falls at its threshold": [("softplus", (0,), 0.5)],
    "a constant": [("scale", (0,), 0)],
}


@pytest.mark.parametrize("name", RISING)
def test_common_functions_rise(name) -> None:
    curve = _curve_of(RISING[name])
    assert curve is not None
    assert curve.direction == 1
    _check(RISING[name], curve)
    falling = follow("neg", [curve], {})
    assert falling is not None
    assert falling.direction == (0 if name == "log" else -1)


@pytest.mark.parametrize("name", NOT_RISING)
def test_other_functions_are_not_said_to_rise(name) -> None:
    curve = _curve_of(NOT_RISING[name])
    assert curve is None or curve.direction == 0


def test_a_number_that_is_not_known_bounds_nothing() -> None:
    sum_of_both = follow("add", [NUMBER, constant(None)], {})
    assert sum_of_both is not None
    assert sum_of_both.direction == 1
    assert sum_of_both.below.values == Interval(-np.inf, np.inf)
    product = follow("multiply", [NUMBER, constant(None)], {})
    assert product is not None
    assert product.direction == 0
