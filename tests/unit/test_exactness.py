"""The judge: each clause of the promise by itself, and what is not finite."""

from __future__ import annotations

import numpy as np
import pytest

from livegnn import InputError
from livegnn.oracle.exactness import CONDITIONING, EXACTNESS, SMALLEST, judge, scales_of

FLOAT64 = np.array([[1.7e9, 0.1, -2.0], [1.6e9, -0.2, 0.5]])
NAN, INF = float("nan"), float("inf")


def off(channel: int, by: float) -> np.ndarray:
    """The reference, one value wrong."""
    rows = FLOAT64.copy()
    rows[1, channel] += by
    return rows


def fail() -> np.ndarray:
    raise AssertionError("float32 is not needed here")


def test_the_same_is_exact_and_float32_is_not_asked():
    found = judge(FLOAT64, FLOAT64, fail)
    assert found.ok
    assert (found.part, found.max_difference, found.checked) == (0, 0, 2)
    np.testing.assert_array_equal(found.scales, [1.7e9, 0.2, 2.0])
    np.testing.assert_array_equal(found.bounds, EXACTNESS * found.scales)


@pytest.mark.parametrize("channel", [0, 1, 2])
@pytest.mark.parametrize("sign", [-1, 1])
def test_each_channel_is_held_to_its_own_scale(channel, sign):
    bound = EXACTNESS * np.abs(FLOAT64[:, channel]).max()
    assert judge(off(channel, sign * 0.99 * bound), FLOAT64).ok
    found = judge(off(channel, sign * 1.5 * bound), FLOAT64)
    assert not found.ok
    assert found.channel == channel
    assert found.part == pytest.approx(1.5)
    assert (found.bound, found.max_difference) == (pytest.approx(bound), pytest.approx(1.5 * bound))
    assert f"channel {channel} of 3" in str(found)


def test_a_large_channel_does_not_hide_a_small_one():
    """1e4 of 1.7e9 is nothing, a hundredth of 0.2 is not."""
    assert judge(off(0, 1e4), FLOAT64).ok
    found = judge(off(1, 0.01), FLOAT64)
    assert not found.ok
    assert found.part == pytest.approx(500)


def test_float32_that_is_as_far_excuses_its_channel_and_no_other():
    float32 = off(1, 1e-3)
    assert judge(off(1, -0.99 * CONDITIONING * 1e-3), FLOAT64, float32).ok
    assert judge(off(1, -0.99 * CONDITIONING * 1e-3), FLOAT64, lambda: float32).ok
    assert not judge(off(1, 1.01 * CONDITIONING * 1e-3), FLOAT64, float32).ok
    assert not judge(off(2, 1e-3), FLOAT64, float32).ok


def test_a_channel_next_to_nothing_is_measured_by_the_median_channel():
    rows = np.array([[1e-9, 3.0, 2.0, 1e12]])
    np.testing.assert_array_equal(scales_of(rows), [0.02, 3, 2, 1e12])
    np.testing.assert_array_equal(scales_of(np.array([[1e9, 0.1]])), [1e9, 0.1])  # of two, the smaller
    assert scales_of(np.empty((0, 3))).tolist() == [0, 0, 0]
    assert scales_of(np.empty((3, 0))).shape == (0,)


def test_what_no_normal_float32_is_may_be_nothing():
    assert judge(np.zeros((1, 1)), np.full((1, 1), 0.9 * SMALLEST)).ok
    assert not judge(np.zeros((1, 1)), np.full((1, 1), 1.1 * SMALLEST)).ok


@pytest.mark.parametrize("wrong", [NAN, INF, -INF])
def test_what_is_not_finite_fails_where_the_reference_is(wrong):
    found = judge(off(1, wrong), FLOAT64, FLOAT64)
    assert not found.ok
    assert (found.channel, found.max_difference, found.part) == (1, INF, INF)
    assert not judge(FLOAT64, off(1, wrong), FLOAT64).ok  # nor may it be missing


@pytest.mark.parametrize("right", [NAN, INF, -INF, 1e39, -1e39])
def test_what_is_not_finite_is_right_where_the_reference_says_the_same(right):
    reference, got = FLOAT64.copy(), FLOAT64.copy()
    reference[1, 1] = right
    with np.errstate(over="ignore"):
        got[1, 1] = np.float32(right)
    found = judge(got, reference)
    assert found.differences[1] == 0
    assert found.scales[1] == 0.1  # it is no scale
    for other in (NAN, INF, -INF, 0.0):
        if repr(other) != repr(float(got[1, 1])):
            wrong = got.copy()
            wrong[1, 1] = other
            assert not judge(wrong, reference).ok, other


def test_float32_that_overflows_excuses_the_same_at_the_same_place_alone():
    float32 = off(1, INF)
    assert judge(off(1, INF), FLOAT64, float32).ok
    assert not judge(off(1, -INF), FLOAT64, float32).ok
    assert not judge(off(1, NAN), FLOAT64, float32).ok
    elsewhere = FLOAT64.copy()
    elsewhere[0, 1] = INF
    assert not judge(elsewhere, FLOAT64, float32).ok
    finite = FLOAT64.copy()
    finite[0, 1] += 0.01
    assert not judge(finite, FLOAT64, float32).ok  # it makes no bound
    assert judge(FLOAT64 * (1 + 1e-6), FLOAT64, float32).ok  # and to be better is no fault


def test_some_rows_are_compared_and_all_of_them_make_the_bound():
    got, float32 = off(1, 0.5), off(1, 0.01)
    assert judge(got, FLOAT64, rows=np.array([0])).ok
    found = judge(got, FLOAT64, float32, rows=np.array([1]))
    assert (found.ok, found.checked) == (False, 1)
    assert found.bound == pytest.approx(CONDITIONING * 0.01)
    assert found.scale == 0.2


def test_scales_that_are_known():
    assert judge(off(0, 1e4), FLOAT64, scales=np.full(3, 1e8)).ok
    found = judge(off(0, 1e4), FLOAT64, scales=np.full(3, 1e6))
    assert (found.ok, found.scale) == (False, 1e6)


def test_nothing_is_exact():
    for shape in ((0, 3), (3, 0), (0, 0)):
        found = judge(np.empty(shape), np.empty(shape))
        assert found.ok
        assert (found.channel, found.part, found.bound * 0) == (0, 0, 0)
        assert str(found).startswith("ok")


def test_shapes_that_differ_are_refused():
    with pytest.raises(InputError, match=r"got must be \[2, 3\] as the reference, got \[2, 2\]"):
        judge(FLOAT64[:, :2], FLOAT64)
    with pytest.raises(InputError, match=r"float32 must be \[2, 3\] as the reference, got \[1, 3\]"):
        judge(off(0, INF), FLOAT64, FLOAT64[:1])
