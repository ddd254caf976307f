"""The drift of columns of numbers: the distance between a distribution and that of a reference.

The bins are those of the reference: its deciles. A value that many rows share, such as a constant or the 0 of
a flag, has a bin of its own, and so have values that are not numbers. So columns of any scale are compared.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, cast

import numpy as np

from livegnn.quality.figures import Figure
from livegnn.types import DoubleArray, FloatArray, IntArray

_PARTS: Final = 10
_SMOOTHING: Final = 0.5
"""Rows that each bin has in advance, so that an empty one has a logarithm."""


class Distribution(NamedTuple):
    """A distribution in bins. bounds [bins - 2]: the upper bounds of all bins but the last two; a bin has the
    values above the bound before and up to its own. The last bin has the values that are not numbers."""

    bounds: FloatArray
    counts: IntArray


def describe(values: FloatArray) -> Distribution:
    """The distribution of values [rows], as a reference."""
    ordered = np.sort(values[~np.isnan(values)])
    if not len(ordered):
        return Distribution(np.empty(0, np.float32), count(values, np.empty(0, np.float32)))
    at = (np.arange(1, _PARTS) * len(ordered)) // _PARTS
    tops = np.unique(ordered[at])
    rows = np.searchsorted(ordered, tops, "right") - np.searchsorted(ordered, tops)
    below = np.nextafter(tops[rows * _PARTS > len(ordered)], np.float32(-np.inf))
    bounds = np.unique(np.concatenate([tops, below])).astype(np.float32)
    return Distribution(bounds, count(values, bounds))


def count(values: FloatArray, bounds: FloatArray) -> IntArray:
    """The number of values [rows] in each bin of `bounds`."""
    numbers = values[~np.isnan(values)]
    inside = np.bincount(np.searchsorted(bounds, numbers), minlength=len(bounds) + 1)
    return cast("IntArray", np.append(inside, len(values) - len(numbers)))


def stability_index(before: IntArray, now: IntArray) -> float:
    """The population stability index of two counts by bin: the sum of (q - p) * ln(q / p) over shares p and
    q, each with half a row in every bin. Below 0.1 little has moved; above 0.25 much has."""
    old, new = _shares(before), _shares(now)
    return float(((new - old) * np.log(new / old)).sum())


def largest_distance(before: IntArray, now: IntArray) -> float:
    """The largest difference of cumulative shares at the bounds of bins, as of Kolmogorov and Smirnov."""
    old, new = np.cumsum(before) / before.sum(), np.cumsum(now) / now.sum()
    return float(np.abs(new - old).max())


def _shares(counts: IntArray) -> DoubleArray:
    smoothed = counts + _SMOOTHING
    return cast("DoubleArray", smoothed / smoothed.sum())


def compare(before: FloatArray, now: FloatArray, kind: str, part: str) -> Iterator[Figure]:
    """The drift of each column of `now` [rows, columns] from `before`. kind: the beginning of metrics. part:
    the beginning of the names of columns. Both need a row."""
    for column in range(now.shape[1]):
        reference = describe(before[:, column])
        counts = count(now[:, column], reference.bounds)
        name = f"{part} {column}"
        yield Figure(f"{kind}_stability_index", stability_index(reference.counts, counts), name)
        yield Figure(f"{kind}_largest_distance", largest_distance(reference.counts, counts), name)
