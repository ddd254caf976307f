"""The cost of a batch: its seconds as a function of its events, learnt from the applied batches.

    log seconds
        |                     .o---o      a value at 1, 2, 4, ... events; straight lines between them,
        |            .--o---o'            as both axes are logarithmic; a Kalman filter corrects the values
        |  o---o---o'                     near a measured batch most, and distant values less
        +--1---2---4---8--16--32--- log events

Larger batches share recomputation, so the curve bends. How much it bends depends on the graph: no formula
with few parameters holds from one event to thousands. The filter keeps the uncertainty of each value, and
forgets: from batch to batch the values may drift, all of them together or each by itself.

A measurement far from the expected value, such as one beside a pause, does not change the values. The third
in a row on the same side is a change of regime: then the filter follows within some batches.

Invariants: the values are finite. Thread safety: one thread learns; other threads read the values from before
or after it.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_OCTAVE: Final = math.log(2)
# The prior for an unknown machine, in natural logarithms; variances are squares of these.
_FIRST_SECONDS: Final = math.log(3e-4)  # of one event
_LEVEL: Final = 5.0
_SLOPE: Final = 0.8  # seconds grow as events ** slope
_SLOPE_SPREAD: Final = 0.25
_BEND: Final = 0.5  # deviation of a value from that line
_REACH: Final = 1.5  # in doublings: values within this distance bend together
_NOISE: Final = 0.25  # of one batch
_LEAST_NOISE: Final = 0.02
_NOISE_GAIN: Final = 0.05
_DRIFT: Final = 0.03  # from batch to batch, of all values together
_BEND_DRIFT: Final = 0.02  # and of each value
_FORGOTTEN: Final = 1.5  # the largest uncertainty of a value: an old measurement always keeps some weight
_STRANGE: Final = 3.5  # standard deviations
_REGIME: Final = 3  # strange measurements in a row
_WORTH: Final = 0.05  # a smaller batch is chosen only if the logarithm of its rate is larger by this
_HOPE: Final = 0.7  # standard deviations, for a size that may be better than measured
_SHORTEST: Final = 1e-7  # seconds, if the clock did not advance


class BatchCost:
    """The seconds of batches of 1 to `most` events and, with less certainty, of larger batches."""

    def __init__(self, most: int) -> None:
        self._octaves = max(1, math.ceil(math.log2(most)))
        at = np.arange(self._octaves + 1, dtype=np.float64)
        self._values: NDArray[np.float64] = _FIRST_SECONDS + _SLOPE * _OCTAVE * at
        near = np.exp(-0.5 * ((at[:, None] - at) / _REACH) ** 2)
        slopes = (_SLOPE_SPREAD * _OCTAVE) ** 2 * at[:, None] * at
        self._covariance: NDArray[np.float64] = _LEVEL**2 + slopes + _BEND**2 * near
        self._drift = _DRIFT**2 + _BEND_DRIFT**2 * near
        self._noise = [_NOISE**2] * (self._octaves + 1)
        self._strange = 0  # measurements in a row, negative if they were quicker than expected
        self._show()

    def _show(self) -> None:
        """Copies the values that are read to lists, which Python reads faster."""
        spread = np.sqrt(np.maximum(self._covariance.diagonal(), 0.0))
        noise = np.asarray(self._noise)
        self._usual: Sequence[float] = self._values.tolist()
        mean = self._values + noise / 2  # of a logarithmic normal distribution
        self._hoped: Sequence[float] = (mean - _HOPE * spread).tolist()
        self._spread: Sequence[float] = np.sqrt(spread**2 + noise).tolist()

    def learn(self, events: int, seconds: float) -> None:
        """Updates the values with a batch of `events` that took `seconds`."""
        low, share, beyond = self._place(events)
        covariance, values = self._covariance, self._values
        column = (1 - share) * covariance[:, low] + share * covariance[:, low + 1]
        variance = float((1 - share) * column[low] + share * column[low + 1])
        expected = float((1 - share) * values[low] + share * values[low + 1]) + beyond
        noise = (1 - share) * self._noise[low] + share * self._noise[low + 1]
        spread = math.sqrt(variance + noise)
        surprise = math.log(max(seconds, _SHORTEST)) - expected
        usual = max(-_STRANGE * spread, min(_STRANGE * spread, surprise))
        self._count_strange(surprise, usual)
        seen = max(usual**2 - variance, _LEAST_NOISE**2)
        # The less certain the value is, the less a surprise shows about the noise.
        gain = _NOISE_GAIN * min(1.0, noise / variance)
        for at, weight in ((low, 1 - share), (low + 1, share)):
            self._noise[at] += gain * weight * (seen - self._noise[at])
        if abs(self._strange) >= _REGIME:
            covariance += surprise**2  # the whole level is uncertain again
            column += surprise**2
            variance += surprise**2
            usual = surprise
            self._strange = 0
        if not self._strange:
            corrections = column / (variance + noise)
            self._values = values + corrections * usual
            covariance -= np.outer(corrections, column)
        covariance += self._drift
        unsure = np.sqrt(np.maximum(covariance.diagonal(), _LEAST_NOISE**2))
        within = np.minimum(1.0, _FORGOTTEN / unsure)
        covariance *= within[:, None] * within
        self._show()

    def _count_strange(self, surprise: float, usual: float) -> None:
        if surprise == usual:
            self._strange = 0
        elif surprise > 0:
            self._strange = max(self._strange, 0) + 1
        else:
            self._strange = min(self._strange, 0) - 1

    def _place(self, events: float) -> tuple[int, float, float]:
        """Returns the index below, the share of the value above, and a summand beyond the last value."""
        at = math.log2(events) if events > 1 else 0.0
        if at >= self._octaves:
            return self._octaves - 1, 1.0, (at - self._octaves) * _OCTAVE
        low = int(at)
        return low, at - low, 0.0

    def seconds(self, events: float, deviations: float = 0.0) -> float:
        """Returns the usual seconds of a batch of `events`, with `deviations` standard deviations added."""
        low, share, beyond = self._place(events)
        usual, spread = self._usual, self._spread
        below = usual[low] + deviations * spread[low]
        above = usual[low + 1] + deviations * spread[low + 1]
        return math.exp(below + share * (above - below) + beyond)

    def largest(self, limit: int, seconds: float, deviations: float = 0.0) -> int:
        """Returns the largest batch within `limit` events that takes at most `seconds`, 0 if none does."""
        if seconds <= 0:
            return 0
        if self.seconds(limit, deviations) <= seconds:
            return limit
        target = math.log(seconds)
        top = min(int(math.log2(limit)), self._octaves - 1)
        for low in range(top, -1, -1):
            below = self._usual[low] + deviations * self._spread[low]
            if below <= target:
                above = self._usual[low + 1] + deviations * self._spread[low + 1]
                share = 1.0 if above <= target else (target - below) / (above - below)
                return max(1, min(limit, int(2 ** (low + share))))
        return 0

    def quickest(self, limit: int) -> int:
        """Returns the batch of at most `limit` events with the highest rate, by an optimistic estimate.

        A size that was not measured for long may be better than it was, so it is tried from time to time.
        """
        best, most = limit, self._hoped_rate(limit)
        for low in range(min(int(math.log2(limit)), self._octaves) + 1):
            rate = low * _OCTAVE - self._hoped[low]
            if rate > most + _WORTH:
                best, most = 2**low, rate
        return best

    def _hoped_rate(self, events: float) -> float:
        low, share, beyond = self._place(events)
        hoped = (1 - share) * self._hoped[low] + share * self._hoped[low + 1] + beyond
        return math.log(events) - hoped

    def rate(self, limit: int) -> float:
        """Returns the events a second in batches of at most `limit`, by an optimistic estimate."""
        return math.exp(self._hoped_rate(self.quickest(limit)))
