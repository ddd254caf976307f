"""The cost of batches, learnt: curves of every scale, outliers, new regimes, sizes that were never seen."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from livegnn.runtime.batch_cost import BatchCost

MOST = 4096


def learnt(cost: BatchCost, truth: object, sizes: list[int], noise: float = 0.0, seed: int = 0) -> None:
    draw = np.random.default_rng(seed)
    for size in sizes:
        cost.learn(size, truth(size) * math.exp(noise * draw.standard_normal()))  # type: ignore[operator]


@settings(deadline=None)
@given(
    fixed=st.floats(1e-6, 1.0),
    each=st.floats(1e-8, 1e-2),
    power=st.floats(0.3, 1.5),
    seed=st.integers(0, 2**32 - 1),
)
@example(fixed=1.0, each=1e-8, power=1.0, seed=23593)  # the first of 4096 events is no sign of noise there
def test_a_curve_of_any_scale_is_learnt(fixed: float, each: float, power: float, seed: int) -> None:
    def truth(events: float) -> float:
        return fixed + each * events**power

    cost = BatchCost(MOST)
    sizes = np.random.default_rng(seed).permutation(np.tile(2 ** np.arange(13), 10))
    learnt(cost, truth, sizes.tolist(), 0.1, seed)
    for size in (1, 3, 16, 100, 1024, 3000, MOST):
        assert cost.seconds(size) == pytest.approx(truth(size), rel=0.35), size
        assert cost.seconds(size, 2.0) > cost.seconds(size)


def test_one_measurement_tells_the_scale_of_all() -> None:
    cost = BatchCost(MOST)
    cost.learn(64, 5.0)
    assert cost.seconds(64) == pytest.approx(5.0, rel=0.1)
    assert 0.05 < cost.seconds(1) < 5.0 < cost.seconds(MOST) < 5.0 * 64
    assert cost.seconds(10 * MOST) == pytest.approx(10 * cost.seconds(MOST))


@pytest.mark.parametrize("factor", [1000.0, 0.001])
def test_what_happens_once_or_twice_changes_nothing_and_what_stays_does(factor: float) -> None:
    cost = BatchCost(MOST)
    learnt(cost, lambda events: 1e-3 + 1e-5 * events, [1, 10, 100, 1000] * 10)
    before = cost.seconds(100)
    for seconds in (factor * before, before, factor * before, factor * before, before, before):
        cost.learn(100, seconds)
    assert cost.seconds(100) == pytest.approx(before, rel=0.05)
    for _ in range(12):
        cost.learn(100, factor * before)
    assert cost.seconds(100) == pytest.approx(factor * before, rel=0.2)
    # A machine that is slower is slower for all sizes.
    assert cost.seconds(1000) > 30 * 11e-3 if factor > 1 else cost.seconds(1000) < 11e-3 / 30


@settings(deadline=None)
@given(
    given_=st.lists(st.tuples(st.integers(1, 10**7), st.floats(0.0, 1e9)), min_size=1, max_size=200),
    most=st.integers(1, 10**9),
)
def test_whatever_is_measured_the_answers_are_numbers(given_: list[tuple[int, float]], most: int) -> None:
    cost = BatchCost(most)
    for events, seconds in given_:
        cost.learn(events, seconds)
    for size in {1, 2, min(most, 3), most}:
        assert 0 < cost.seconds(size, 2.33) < math.inf
        assert 0 <= cost.largest(size, 0.01) <= size
        assert 1 <= cost.quickest(size) <= size
    assert 0 < cost.rate(most) < math.inf


def test_a_long_time_with_small_batches_alone_leaves_the_large_ones_plausible() -> None:
    cost = BatchCost(MOST)

    def truth(events: float) -> float:
        return 1e-3 + 1e-5 * events

    learnt(cost, truth, [2**k for k in range(13)] * 5)
    learnt(cost, truth, [1, 2, 3] * 10_000, 0.1)
    assert MOST / truth(MOST) / 5 < cost.rate(MOST) < 10 * MOST / truth(MOST)
    assert 0.2 * truth(MOST) < cost.seconds(MOST) < 5 * truth(MOST)


def test_the_largest_batch_in_some_seconds_is_what_a_search_finds() -> None:
    cost = BatchCost(1000)
    learnt(cost, lambda events: 1e-3 + 2e-5 * events**0.8, [1, 4, 20, 100, 500, 1000] * 8, 0.05)
    for limit in (1, 2, 7, 600, 1000):
        for seconds in (0.0, 1e-4, 1.2e-3, 2e-3, 4e-3, 1.0):
            for deviations in (0.0, 2.0):
                fits = [n for n in range(1, limit + 1) if cost.seconds(n, deviations) <= seconds]
                assert abs(cost.largest(limit, seconds, deviations) - max(fits, default=0)) <= 1


def test_the_quickest_batch_is_the_one_above_which_each_event_costs_more() -> None:
    cost = BatchCost(MOST)

    def truth(events: float) -> float:
        return 1e-3 + 1e-5 * events * max(1.0, events / 256) ** 0.8

    learnt(cost, truth, [2**k for k in range(13)] * 20)
    rates = {2**k: 2**k / truth(2**k) for k in range(13)}
    assert rates[cost.quickest(MOST)] > 0.95 * max(rates.values())
    assert cost.rate(MOST) == pytest.approx(max(rates.values()), rel=0.1)
    assert cost.quickest(64) == 64
