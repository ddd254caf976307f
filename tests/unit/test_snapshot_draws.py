"""Draws from whole lists beside the formula that they have had since the first snapshots."""

from __future__ import annotations

import numpy as np
import pytest

from livegnn._core import draw_of_lists

GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mixed(values: np.ndarray) -> np.ndarray:
    """SplitMix64."""
    found = values + np.uint64(GOLDEN)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(FIRST)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(SECOND)
    return found ^ (found >> np.uint64(31))


def uniform(rows: np.ndarray, places: np.ndarray, seed: int) -> np.ndarray:
    of_rows = mixed(rows.astype(np.uint64) ^ mixed(np.array([seed], np.uint64))[0])
    return ((mixed(of_rows + places.astype(np.uint64)) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def expected(
    offsets: np.ndarray,
    nodes: np.ndarray,
    neighbors: np.ndarray,
    weight: np.ndarray | None,
    time: np.ndarray | None,
    count: int,
    seed: int,
) -> np.ndarray:
    counts = np.diff(offsets)
    segment = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(segment)) - offsets[segment]
    if time is not None:
        rank = np.empty(len(segment))
        rank[np.lexsort((neighbors, -time))] = np.arange(len(segment))
    else:
        rank = uniform(nodes[segment], place, seed)
    if weight is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            rank = -np.log(rank) / weight
        rank[~(weight > 0)] = np.inf
    order = np.lexsort((rank, segment))
    return np.sort(order[(place < count) & (rank[order] < np.inf)])


@pytest.mark.parametrize("by", ["uniform", "weight", "latest"])
def test_draws_stay_what_they_were(by: str, rng: np.random.Generator) -> None:
    for seed in (0, 1, 2**64 - 1, int(rng.integers(2**63))):
        nodes = rng.integers(0, 2**40, 300)
        offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 40, len(nodes)))])
        size = int(offsets[-1])
        neighbors = rng.integers(0, 50, size)
        weight = rng.choice([0, 1e-30, 1, 2.5, 1e30, np.inf, np.nan, -1], size).astype(np.float32)
        time = rng.integers(0, 6, size).astype(np.float64)
        given = (
            offsets,
            nodes,
            neighbors,
            weight if by == "weight" else None,
            time if by == "latest" else None,
            int(rng.integers(1, 30)),
            seed,
        )
        assert draw_of_lists(*given).tolist() == expected(*given).tolist()


@pytest.mark.parametrize(
    ("offsets", "weight"),
    [
        ([0, 1], None),
        ([0, 2, 1], None),
        ([-1, 1, 2], None),
        ([0, 1, 4], None),
        ([0, 1, 3], np.ones(2, np.float32)),
    ],
)
def test_lists_that_are_none_are_refused(offsets: list[int], weight: np.ndarray | None) -> None:
    two, three = np.zeros(2, np.int64), np.zeros(3, np.int64)
    with pytest.raises(ValueError, match="each node must have a list"):
        draw_of_lists(np.array(offsets), two, three, weight, None, 1, 0)
