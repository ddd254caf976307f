"""Arrays for the features of one request after the other.

An array that is freed and made anew has pages that the system must first give, which for megabytes takes as
long as filling them. So they stay, up to a size; whoever is short of memory releases them.

Thread safety: none; one request at a time.
"""

from typing import TYPE_CHECKING

import numpy as np

from livegnn.types import FloatArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float32

LARGEST = 64 << 20
"""Bytes of an array that is kept."""


class WorkingArrays:
    """One array for each node type."""

    def __init__(self) -> None:
        self._kept: dict[NodeType, FloatArray] = {}

    @property
    def bytes(self) -> int:
        """Of those that are kept."""
        return sum(array.nbytes for array in self._kept.values())

    def take(self, name: NodeType, rows: int, width: int) -> "Float32[FloatArray, 'rows width']":
        """An array with anything in it. What was taken before for this type is no longer the caller's."""
        kept = self._kept.get(name)
        if kept is not None and kept.shape[1] == width and len(kept) >= rows:
            return kept[:rows]
        self._kept.pop(name, None)
        del kept  # before there is another one
        made = np.empty((rows, width), np.float32)
        if made.nbytes <= LARGEST:
            self._kept[name] = made
        return made

    def release(self) -> None:
        """Keeps none."""
        self._kept.clear()
