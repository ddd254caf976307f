"""The owners of nodes that a front has learned, in a table of a fixed size."""

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Int64, UInt16
    from numpy.typing import NDArray

    from livegnn.types import IntArray

_BITS: Final = 18
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)  # 2^64 by the golden ratio: neighbouring ids are spread
_SHIFT: Final = np.uint64(64 - _BITS)


class OwnerTable:
    """Each node has one place, by a hash of its id; the last node that was noted there has it. The owner of
    others is guessed, so that questions about them are spread over all parts. Thread safety: none.
    """

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._ids = np.full(1 << _BITS, -1, np.int64)
        self._owners = np.zeros(1 << _BITS, np.uint16)

    def find(self, ids: "Int64[IntArray, 'ids']") -> "UInt16[NDArray[np.uint16], 'ids']":
        """The owner of each node, as far as is known."""
        places = _places_of(ids)
        return np.where(self._ids[places] == ids, self._owners[places], ids % self._parts).astype(np.uint16)

    def note(self, ids: "Int64[IntArray, 'ids']", owners: "UInt16[NDArray[np.uint16], 'ids']") -> None:
        """Notes owners."""
        places = _places_of(ids)
        self._ids[places] = ids
        self._owners[places] = owners


def _places_of(ids: "Int64[IntArray, 'ids']") -> "NDArray[np.uint64]":
    return (ids.astype(np.uint64) * _MIX) >> _SHIFT
