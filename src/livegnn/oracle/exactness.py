"""The guarantee of exactness: how far an embedding may be from a computation from scratch.

The reference is the model in float64 on the current graph: PyG on the rebuilt graph, or the oracle. A layer
is judged channel by channel. A channel is exact if its largest difference, over all nodes, is at most the
largest of

- 1e-4 of the layer's scale in that channel: the largest magnitude that the channel has in float64, over all
  nodes, or a hundredth of that of the layer's median channel (of two, the smaller), if that is more. So large
  channels do not hide the errors of a small one, and a channel that is tiny compared to most others need not
  be exact to its last digit;
- four times the largest difference that the same computation in float32 has in that channel. If a model
  magnifies rounding, no float32 computation is more exact;
- the smallest normal float32, 2^-126.

A layer is exact if all its channels are. If a value in float64 is not a finite float32 (NaN, infinite or too
large), the engine must have the same value, or the value of the float32 computation at that place. Such a
value does not count for the scale, and a float32 computation that fails at one place allows no difference at
another.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from livegnn.errors import InputError
from livegnn.types import DoubleArray, FloatArray, IntArray

EXACTNESS = 1e-4
"""The allowed difference to float64, as a fraction of the layer's scale in the channel."""

CONDITIONING = 4.0
"""The allowed difference, if that is more, as a multiple of the difference of the float32 computation."""

LEAST_CHANNEL = 1e-2
"""The least scale of a channel, as a fraction of the median channel's."""

SMALLEST = 2.0**-126
"""The smallest normal float32: a smaller difference is always allowed."""

Rows = Float[np.ndarray, "rows channels"]
Channels = Float[np.ndarray, "channels"]


@dataclass(frozen=True)
class Verification:
    """The result of a comparison.

    differences, scales, bounds: float64 [channels]: the largest difference of each channel (inf if a NaN or
    an infinity differs from the reference), the layer's scale in it, and the largest allowed difference.
    checked: how many rows were compared. kept: of an engine, the largest difference of a kept row to the same
    row computed again, as a fraction of the channel's magnitude (`Engine.scrub`); at most 1e-4 is ok.
    """

    differences: DoubleArray
    scales: DoubleArray
    bounds: DoubleArray
    checked: int
    kept: float = 0.0

    @property
    def ok(self) -> bool:
        return self.predictions_ok and self.kept_ok

    @property
    def predictions_ok(self) -> bool:
        return bool((self.differences <= self.bounds).all())

    @property
    def kept_ok(self) -> bool:
        """Whether the kept rows, of which later predictions are made, are right."""
        return self.kept <= EXACTNESS

    @property
    def channel(self) -> int:
        """The worst channel: the one that is nearest to its bound, or exceeds it most."""
        return int(np.argmax(self._parts)) if len(self.bounds) else 0

    @property
    def part(self) -> float:
        """The difference of the worst channel divided by its bound, or of the worst kept row; above 1, the
        layer is not exact, or will not be.
        """
        return max(float(self._parts.max(initial=0.0)), self.kept / EXACTNESS)

    @property
    def max_difference(self) -> float:
        """The largest difference of the worst channel."""
        return self._of_worst(self.differences)

    @property
    def scale(self) -> float:
        """The scale of the worst channel."""
        return self._of_worst(self.scales)

    @property
    def bound(self) -> float:
        """The bound of the worst channel."""
        return self._of_worst(self.bounds)

    @property
    def of_scale(self) -> float:
        """The largest difference as a fraction of its channel's scale, over all channels."""
        return float(self._divide(self.scales).max(initial=0.0))

    @property
    def _parts(self) -> Channels:
        return self._divide(self.bounds)

    def _divide(self, by: Channels) -> Channels:
        """Differences divided by `by`; infinite if the divisor is 0 and the difference is not."""
        none = np.where(self.differences > 0, np.inf, 0.0)
        np.divide(self.differences, by, out=none, where=by > 0)
        return none

    def _of_worst(self, values: Channels) -> float:
        return float(values[self.channel]) if len(values) else 0.0

    def __repr__(self) -> str:
        return f"Verification({self})"

    def __str__(self) -> str:
        return (
            f"{'ok' if self.ok else 'not ok'}: channel {self.channel} of {len(self.bounds)} differs by "
            f"{self.max_difference:.3g}, at most {self.bound:.3g} allowed (scale {self.scale:.3g}), "
            f"{self.checked} rows"
            + (
                f"; rows kept between batches differ by {self.kept:.3g} of a channel"
                if self.kept > EXACTNESS
                else ""
            )
        )


def judge(
    got: Rows,
    float64: Rows,
    float32: Rows | Callable[[], Rows] | None = None,
    *,
    rows: IntArray | None = None,
    scales: Channels | None = None,
) -> Verification:
    """Compares a layer with its reference.

    got: the engine's rows of all nodes. float64: the reference. float32: the same computation in float32, or
    a function that computes it, which is called only if 1e-4 of the scale is not enough; without it, that
    rule does not apply. rows: the rows to compare, by default all. scales: the layer's scale in each channel,
    by default `scales_of(float64)`.
    Raises `InputError` if the shapes differ.
    """
    got, float64 = np.asarray(got, np.float64), np.asarray(float64, np.float64)
    _check_shape("got", got, float64)
    compared = slice(None) if rows is None else rows
    scales = scales_of(float64) if scales is None else np.asarray(scales, np.float64)
    bounds = np.maximum(EXACTNESS * scales, SMALLEST)
    differences = _differences(got, float64)[compared]
    if float32 is not None and (differences > bounds).any():
        other = np.asarray(float32() if callable(float32) else float32, np.float64)
        _check_shape("float32", other, float64)
        rounding = _differences(other, float64)
        largest = rounding.max(axis=0, initial=0.0, where=np.isfinite(rounding))
        bounds = np.maximum(bounds, CONDITIONING * largest)
        differences[(_equal(got, other) & ~np.isfinite(other))[compared]] = 0.0
    return Verification(differences.max(axis=0, initial=0.0), scales, bounds, len(differences))


def scales_of(float64: Rows) -> DoubleArray:
    """The layer's scale in each channel."""
    known = np.isfinite(_as_float32(float64))
    scales: DoubleArray = np.abs(float64).max(axis=0, initial=0.0, where=known)
    if len(scales):
        scales = np.maximum(scales, LEAST_CHANNEL * np.sort(scales)[(len(scales) - 1) // 2])
    return scales


def _differences(got: Rows, float64: Rows) -> Rows:
    """Magnitudes of differences; for values that are not finite in float32, 0 if equal and otherwise inf."""
    finite = np.isfinite(got) & np.isfinite(_as_float32(float64))
    differences: DoubleArray = np.where(_equal(got, _as_float32(float64)), 0.0, np.inf)
    np.subtract(got, float64, out=differences, where=finite)
    return np.abs(differences, out=differences)


def _as_float32(values: Rows) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values, np.float32)


def _equal(a: Rows, b: Rows) -> Bool[np.ndarray, "rows channels"]:
    equal: Bool[np.ndarray, "rows channels"] = (a == b) | (np.isnan(a) & np.isnan(b))
    return equal


def _check_shape(name: str, rows: Rows, reference: Rows) -> None:
    if rows.ndim != 2 or rows.shape != reference.shape:
        raise InputError(f"{name} must be {list(reference.shape)} as the reference, got {list(rows.shape)}")
