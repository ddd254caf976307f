"""Draws neighbours from whole lists. A draw is a function of the list, the node and the seed alone, so the
same request draws the same neighbours in every worker."""

from typing import TYPE_CHECKING

import numpy as np

from livegnn.query import OneHop
from livegnn.snapshots.snapshot import Neighbors
from livegnn.types import DoubleArray, IntArray

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def drawn(
    found: Neighbors, rows: "Int64[IntArray, 'nodes']", one: OneHop, seed: int
) -> "Int64[IntArray, 'drawn']":
    """The positions in `found` that a one-hop query draws, in the order of the lists. rows: of the nodes."""
    counts = np.diff(found.offsets)
    segment = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(segment)) - found.offsets[segment]
    rank: DoubleArray
    if one.by == "latest" and found.time is not None:
        # Equal times go by the order of the nodes, as in every sampler of a graph.
        rank = np.empty(len(segment))
        rank[np.lexsort((found.rows, -found.time))] = np.arange(len(segment))
    elif one.by == "weight" and found.weight is not None:
        # The least of exponential variables of these rates: Efraimidis and Spirakis draw without replacement.
        with np.errstate(divide="ignore", invalid="ignore"):
            rank = -np.log(_uniform(rows[segment], place, seed)) / found.weight
        rank[~(found.weight > 0)] = np.inf
    else:
        rank = _uniform(rows[segment], place, seed)
    order = np.lexsort((rank, segment))
    kept = (place < one.num_neighbors) & (rank[order] < np.inf)
    return np.sort(order[kept])


def _uniform(
    row: "Int64[IntArray, 'neighbors']", place: "Int64[IntArray, 'neighbors']", seed: int
) -> "Float64[DoubleArray, 'neighbors']":
    """Numbers above 0 and below 1 that are as good as random: SplitMix64 of the node, then of the place."""
    mixed = _mixed(row.astype(np.uint64) ^ np.uint64(_mixed(np.array([seed], np.uint64))[0]))
    bits = _mixed(mixed + place.astype(np.uint64)) >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) * 2.0**-53


def _mixed(
    values: "np.ndarray[tuple[int], np.dtype[np.uint64]]",
) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    mixed = values + np.uint64(_GOLDEN)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_FIRST)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_SECOND)
    return mixed ^ (mixed >> np.uint64(31))
