"""Pauses grow from the first to the longest, and no further."""

from itertools import islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from livegnn.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(1.0, 30.0)
    assert [backoff.after(failures) for failures in range(-1, 9)] == [0, 0, 1, 2, 4, 8, 16, 30, 30, 30]
    assert list(islice(backoff.pauses(), 8)) == [backoff.after(failures) for failures in range(1, 9)]


def test_any_number_of_failures_has_a_pause() -> None:
    assert Backoff(0.1, 30.0).after(10**9) == 30.0
    assert Backoff(0.002, 0.005, 1.3).after(2**70) == 0.005


@given(st.floats(1e-6, 1.0), st.floats(1.0, 1e4), st.floats(1.3, 4.0), st.integers(1, 200))
def test_pauses_grow_between_first_and_longest(
    first: float, longest: float, factor: float, failures: int
) -> None:
    backoff = Backoff(first, longest, factor)
    pauses = [backoff.after(one) for one in range(1, failures + 1)]
    assert pauses[0] == first
    assert all(before <= after <= longest for before, after in pairwise(pauses))
    for pause, expected in zip(backoff.pauses(), pauses, strict=False):
        assert abs(pause - expected) <= 1e-9 * expected
