"""Arrays that stay for the next request."""

from __future__ import annotations

import numpy as np

from livegnn.remote.missing_features import LARGEST, WorkingArrays


def test_an_array_is_as_large_as_was_asked_and_the_next_one_in_the_same_place() -> None:
    arrays = WorkingArrays()
    first = arrays.take("user", 100, 8)
    assert (first.shape, first.dtype, arrays.bytes) == ((100, 8), np.float32, 3200)
    again = arrays.take("user", 60, 8)
    assert again.shape == (60, 8)
    assert np.shares_memory(first, again)
    assert not np.shares_memory(first, arrays.take("item", 60, 8))
    assert arrays.bytes == 3200 + 1920
    larger = arrays.take("user", 101, 8)
    assert not np.shares_memory(first, larger)
    assert arrays.bytes == 3232 + 1920
    assert arrays.take("user", 1, 9).shape == (1, 9)
    arrays.release()
    assert arrays.bytes == 0


def test_a_very_large_one_is_not_kept() -> None:
    arrays = WorkingArrays()
    arrays.take("user", 10, 4)
    assert arrays.take("user", LARGEST // 16 + 1, 4).nbytes > LARGEST
    assert arrays.bytes == 0
