"""Sets of row numbers against Python's own."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from livegnn.snapshots.row_sets import are_in, distinct, distinct_places, missing, places_in, union

# Few and close, so that they meet; and far apart, as rows with the number of a seed above them.
NUMBERS = st.lists(st.integers(0, 30) | st.integers(0, 2**62), max_size=60)


def array(numbers: list[int] | set[int]) -> np.ndarray:
    return np.array(sorted(numbers) if isinstance(numbers, set) else numbers, np.int64)


@given(NUMBERS, NUMBERS)
def test_they_are_what_sets_of_python_are(one: list[int], other: list[int]) -> None:
    assert distinct(array(one)).tolist() == sorted(set(one))
    members, places = distinct_places(array(one))
    assert members.tolist() == sorted(set(one))
    assert members[places].tolist() == one
    assert are_in(array(one), array(set(other))).tolist() == [it in other for it in one]
    assert missing(array(one), array(set(other))).tolist() == sorted(set(one) - set(other))
    assert union(array(set(one)), array(set(other) - set(one))).tolist() == sorted({*one, *other})


@given(st.sets(st.integers(0, 30) | st.integers(0, 2**62)), st.randoms())
def test_places_are_found_of_close_numbers_and_of_far_ones(members, random) -> None:
    rows = list(members)
    random.shuffle(rows)
    asked = random.choices(rows, k=40) if rows else []
    assert places_in(array(rows), array(asked)).tolist() == [rows.index(it) for it in asked]
