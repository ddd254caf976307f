"""Sets of row numbers, as ascending arrays.

NumPy's own functions of sets are not used: `unique` hashes from NumPy 2.3 on, which takes over a second for a
million rows where sorting takes ten milliseconds, and `isin` loads masked arrays, for which a process that
starts has no time.
"""

from typing import TYPE_CHECKING

import numpy as np

from livegnn.types import IntArray

if TYPE_CHECKING:
    from jaxtyping import Bool, Int64
    from numpy.typing import NDArray

_ROOM = 8  # places of a table for each number that is looked up in it


def distinct(values: "Int64[IntArray, 'values']") -> "Int64[IntArray, 'distinct']":
    """The values, each once, ascending."""
    ascending = np.sort(values)
    return ascending[_begins(ascending)]


def distinct_places(
    values: "Int64[IntArray, 'values']",
) -> "tuple[Int64[IntArray, 'distinct'], Int64[IntArray, 'values']]":
    """The values, each once, ascending; and where each one of `values` is among them."""
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    begins = _begins(ascending)
    places = np.empty(len(values), dtype=np.int64)
    places[order] = np.cumsum(begins) - 1
    return ascending[begins], places


def are_in(
    values: "Int64[IntArray, 'values']", ascending: "Int64[IntArray, 'members']"
) -> "Bool[NDArray[np.bool_], 'values']":
    """Whether a set has each of the values."""
    if not len(ascending):
        return np.zeros(len(values), dtype=np.bool_)
    near = ascending[np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)]
    return np.equal(near, values)


def missing(
    values: "Int64[IntArray, 'values']", ascending: "Int64[IntArray, 'members']"
) -> "Int64[IntArray, 'missing']":
    """The values that a set has not, each once, ascending."""
    asked = distinct(values)
    return asked[~are_in(asked, ascending)]


def union(
    one: "Int64[IntArray, 'members']", other: "Int64[IntArray, 'others']"
) -> "Int64[IntArray, 'union']":
    """The union of two sets without common values."""
    return np.sort(np.concatenate([one, other]), kind="stable")  # a stable sort merges ordered parts


def places_in(
    rows: "Int64[IntArray, 'rows']", asked: "Int64[IntArray, 'asked']"
) -> "Int64[IntArray, 'asked']":
    """The positions in `rows`, which has each number once and none below 0, of numbers that are there."""
    if not len(asked):
        return np.zeros(0, np.int64)
    largest = int(rows.max())
    if largest < _ROOM * (len(rows) + len(asked)):
        table = np.zeros(largest + 1, np.int64)
        table[rows] = np.arange(len(rows))
        return table[asked]
    order = np.argsort(rows)
    return order[np.searchsorted(rows, asked, sorter=order)]


def _begins(ascending: IntArray) -> "NDArray[np.bool_]":
    """Whether each value differs from the previous one."""
    begins = np.ones(len(ascending), dtype=np.bool_)
    begins[1:] = ascending[1:] != ascending[:-1]
    return begins
