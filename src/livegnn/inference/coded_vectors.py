"""Vectors in codes of a few bits, with the scales of their channels.

A channel that had one value in all measured rows has no codes: that value may be so large that all others
would be lost beside it. The few nodes that differ there are known by themselves.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

import livegnn._core as _core
from livegnn.types import FloatArray

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, UInt32
    from numpy.typing import NDArray

    Nodes = UInt32[NDArray[np.uint32], "nodes"]

_OTHER_SIZE: Final = 8.0  # times as large, or as small, as the measured rows
_FEW: Final = 32
_LOOKED_AT: Final = 256  # changed rows whose size is compared
_SORTED: Final = 2048  # rows of which the quantiles are computed
_TAIL: Final = 0.05  # of the rows, at either end, which a spread leaves out
_NARROWEST: Final = 1e-30  # the spread of a channel that has one


class CodedVectors:
    """The vectors of nodes. rows: of some nodes, which the scales fit. capacity: there is room for the nodes
    below. Thread safety: `search` and `bytes` may be called beside any other function, which need one caller
    at a time.
    """

    def __init__(self, rows: "Float32[FloatArray, 'rows width']", capacity: int, threads: int) -> None:
        self.scales: Final = Scales.of(rows[np.isfinite(rows).all(axis=1)])
        self._codes = _core.VectorCodes(self.scales.center, self.scales.spread, capacity, threads)
        self._alone = np.flatnonzero(self.scales.spread == 0)
        self._apart = set[int]()

    @property
    def num_apart(self) -> int:
        return len(self._apart)

    @property
    def apart(self) -> "Nodes":
        """The nodes that differ in a channel without codes."""
        return np.fromiter(self._apart, np.uint32)

    def put(self, nodes: "Nodes", rows: "Float32[FloatArray, 'nodes width']") -> None:
        self._codes.put(nodes, rows)
        if len(self._alone):
            differ = (rows[:, self._alone] != self.scales.center[self._alone]).any(axis=1)
            self._apart.update(nodes[differ & np.isfinite(rows).all(axis=1)].tolist())

    def erase(self, nodes: "Nodes") -> None:
        self._codes.erase(nodes)
        if self._apart:
            self._apart.difference_update(nodes.tolist())

    def search(
        self, query: "Float32[FloatArray, 'width']", count: int
    ) -> "tuple[Nodes, Float64[NDArray[np.float64], 'nodes'], float]":
        """`count` nodes of about the largest inner products, ascending; about these products; and by how much
        these are off, in the middle."""
        return self._codes.search(query, count)

    def bytes(self) -> int:
        return self._codes.bytes()


class Scales(NamedTuple):
    """The center and the spread of each channel, 0 of one that had a single value. Quantiles, because with
    means and deviations one row that is a million times as large as the others would leave them no codes.

    size: of the vectors in these scales, in the middle.
    """

    center: "Float32[FloatArray, 'width']"
    spread: "Float32[FloatArray, 'width']"
    size: float

    @classmethod
    def of(cls, rows: "Float32[FloatArray, 'rows width']") -> "Scales":
        """Those that fit rows."""
        width = rows.shape[1]
        if not len(rows):
            return cls(np.zeros(width, np.float32), np.ones(width, np.float32), 0.0)
        some = rows[:: -(-len(rows) // _SORTED)].astype(np.float64)
        low, center, high = np.quantile(some, (_TAIL, 0.5, 1 - _TAIL), axis=0)
        spread = (high - low) / 2
        alike = spread < _NARROWEST  # in nearly all rows, as after a ReLU that is seldom open
        spread[alike] = rows[:, alike].astype(np.float64).std(axis=0)
        farthest = np.abs(rows - center).max(axis=0)
        spread = np.where(farthest > 0, np.maximum(spread, _NARROWEST * farthest), 0)
        scales = cls(center.astype(np.float32), spread.astype(np.float32), 0.0)
        return scales._replace(size=scales._find_size(rows))

    def _find_size(self, rows: "Float32[FloatArray, 'rows width']") -> float:
        has = self.spread > 0
        if not has.any() or not len(rows):
            return 0.0
        some = rows[:: -(-len(rows) // _LOOKED_AT), has].astype(np.float64)
        return float(np.median(np.abs((some - self.center[has]) / self.spread[has]).mean(axis=1)))

    def are_of_other_size(self, rows: "Float32[FloatArray, 'rows width']") -> bool:
        """Whether codes of these scales say little of rows, because they are much larger or smaller. Few rows
        show nothing."""
        if len(rows) < _FEW:
            return False
        size = self._find_size(rows)
        return not self.size / _OTHER_SIZE <= size <= self.size * _OTHER_SIZE
