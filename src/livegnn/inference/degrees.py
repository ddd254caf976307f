"""Degrees that the nodes of a sample have in the whole graph."""

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from livegnn.errors import InputError
from livegnn.inference.sample_arrays import doubles, integers
from livegnn.types import DoubleArray, IntArray
from livegnn.wording import never_raises

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

DegreeColumns: TypeAlias = tuple[IntArray, DoubleArray | None, IntArray | None, DoubleArray | None]


class Degrees:
    """The degrees of a sample's nodes in the whole graph, along one edge type in one direction. Number i
    belongs to node i of the sample, of the type that receives.

    count: integers [nodes], the number of in-edges (of out-edges in direction "out"), loops included. weight:
    numbers [nodes], the sum of their weights; None: every edge weighs 1. loops: integers [nodes], the number
    of loops; None: the number in the sample. loop_weight: numbers [nodes], the sum of the weights of loops;
    None: every loop weighs 1, or, without `loops`, loops have their weights in the sample.

    Raises `InputError` if the arrays hold anything but these numbers, differ in length or are not finite, and
    for counts below 0. Immutable.
    """

    def __init__(
        self,
        count: "ArrayLike",
        weight: "ArrayLike | None" = None,
        loops: "ArrayLike | None" = None,
        loop_weight: "ArrayLike | None" = None,
    ) -> None:
        counts = integers(count, "count").copy()
        self.columns: DegreeColumns = (
            counts,
            None if weight is None else doubles(weight, "weight").copy(),
            None if loops is None else integers(loops, "loops").copy(),
            None if loop_weight is None else doubles(loop_weight, "loop_weight").copy(),
        )
        for name, column in zip(("count", "weight", "loops", "loop_weight"), self.columns, strict=True):
            if column is None:
                continue
            if column.ndim != 1 or len(column) != len(counts):
                raise InputError(
                    f"{name} must be one number for each of {len(counts)} nodes, got {list(column.shape)}"
                )
            if not np.isfinite(column).all():
                raise InputError(f"{name} must be finite numbers, got another")
            if name in ("count", "loops") and len(column) and column.min() < 0:
                raise InputError(f"{name} must not be negative, got {column.min()}")

    @never_raises
    def __repr__(self) -> str:
        given = zip(("count", "weight", "loops", "loop_weight"), self.columns, strict=True)
        return (
            f"Degrees({', '.join(name for name, column in given if column is not None)}, {len(self)} nodes)"
        )

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.columns[0])
