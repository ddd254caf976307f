"""Histograms count everything once, and their quantiles are right to within a bucket."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn.histogram import COUNTS, SECONDS, Histogram


def test_a_value_is_counted_in_its_bucket() -> None:
    histogram = Histogram([1, 2, 4])
    for value in (0.5, 1, 1.5, 2, 4, 5):
        histogram.record(value)
    assert histogram.counts == [2, 2, 1, 1]
    assert histogram.cumulative() == [2, 4, 5, 6]
    assert histogram.count == 6
    assert histogram.total == 14


def test_bounds_grow_from_microseconds_to_minutes() -> None:
    assert list(SECONDS) == sorted(SECONDS)
    assert SECONDS[0] == pytest.approx(1e-5)
    assert SECONDS[-1] == pytest.approx(100)
    assert COUNTS[0] == 1


def test_no_values_have_no_quantile() -> None:
    assert Histogram(SECONDS).quantile(0.99) == 0


@settings(deadline=None)
@given(st.lists(st.floats(1e-4, 50), min_size=1, max_size=60), st.floats(0.01, 1))
def test_quantiles_are_right_to_within_a_bucket(values: list[float], q: float) -> None:
    histogram = Histogram(SECONDS)
    for value in values:
        histogram.record(value)
    exact = float(np.quantile(values, q, method="inverted_cdf"))
    factor = 10 ** (1 / 5) * 1.0001
    assert exact / factor <= histogram.quantile(q) <= exact * factor


def test_what_is_above_the_last_bound_is_counted() -> None:
    histogram = Histogram([1])
    histogram.record(7)
    assert histogram.quantile(0.5) == 1
    assert histogram.cumulative() == [0, 1]
