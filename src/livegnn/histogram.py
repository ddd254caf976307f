"""Histograms of measured values, with buckets whose bounds grow by a constant factor."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

SECONDS: Final = tuple(1e-5 * 10 ** (step / 5) for step in range(36))
"""Bounds from 10 microseconds to 100 seconds, five for each power of ten."""

COUNTS: Final = tuple(float(2**power) for power in range(25))
"""Bounds from 1 to 16 million, doubling."""


class Histogram:
    """Counts of values by bucket, in constant memory. Thread safety: one thread writes, any number read.

    Bucket i counts values above `bounds[i - 1]` up to `bounds[i]`; one more bucket counts values above the
    last bound.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def record(self, value: float) -> None:
        """Counts one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """The number of recorded values."""
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """For each bound, the number of values up to it; the last number is `count`."""
        return list(accumulate(self.counts))

    def quantile(self, q: float) -> float:
        """The `q`-quantile of all values, accurate to within a bucket; 0 if there are none."""
        counts = self.cumulative()
        if not counts[-1]:
            return 0.0
        bucket = bisect_left(counts, q * counts[-1], lo=0)
        if bucket >= len(self.bounds):
            return self.bounds[-1]
        below = counts[bucket - 1] if bucket else 0
        lower = self.bounds[bucket - 1] if bucket else 0.0
        inside = self.counts[bucket]
        share = (q * counts[-1] - below) / inside if inside else 1.0
        return lower + (self.bounds[bucket] - lower) * min(1.0, share)
