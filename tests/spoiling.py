"""The arrays of a state, spoiled one at a time in every way of a list, the same in each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from livegnn import FileFormatError
from livegnn.types import Array, State


def _changed(array: Array, at: int, by: int) -> Array:
    other = array.copy()
    flat = other.reshape(-1)
    if array.dtype.kind == "b":
        flat[at] = not flat[at]
    else:
        flat[at] += np.array(by, np.int64).astype(array.dtype)
    return other


def _of_ones(array: Array, at: slice) -> Array:
    """With all bits set: no number, -1 or the largest of all."""
    other = array.copy()
    other.reshape(-1)[at].view(np.uint8)[:] = 1 if array.dtype.kind == "b" else 255
    return other


def _swapped(array: Array) -> Array:
    """The first number changes places with the first that differs from it."""
    other = array.copy()
    flat = other.reshape(-1)
    differ = np.flatnonzero(flat != flat[0])
    if len(differ):
        flat[[0, differ[0]]] = flat[[differ[0], 0]]
    return other


def _longer(array: Array) -> Array:
    row = array[-1:] if len(array) else np.zeros((1, *array.shape[1:]), array.dtype)
    return np.concatenate([array, row])


_ALWAYS: dict[str, Callable[[Array], Array]] = {
    "empty": lambda array: array[:0],
    "longer": _longer,
    "of other dimensions": lambda array: array.reshape(-1) if array.ndim > 1 else array[:, None],
    "of doubles": lambda array: array.astype(np.float64),
    "of int64": lambda array: array.astype(np.int64),
    "of bytes": lambda array: array.astype(np.uint8),
    "of texts": lambda array: array.astype(str),
}
_OF_SOME: dict[str, Callable[[Array], Array]] = {
    "shorter": lambda array: array[:-1],
    "without the first": lambda array: array[1:],
    "zeros": np.zeros_like,
    "ones": np.ones_like,
    "all bits set": lambda array: _of_ones(array, slice(None)),
    "first plus one": lambda array: _changed(array, 0, 1),
    "first minus one": lambda array: _changed(array, 0, -1),
    "last plus one": lambda array: _changed(array, -1, 1),
    "last minus one": lambda array: _changed(array, -1, -1),
    "first with all bits set": lambda array: _of_ones(array, slice(0, 1)),
    "last with all bits set": lambda array: _of_ones(array, slice(-1, None)),
    "two swapped": _swapped,
    "reversed": lambda array: np.ascontiguousarray(array[::-1]),
}


def _alike(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class Spoiled(NamedTuple):
    name: str
    way: str
    array: Array | None
    """None: there is none of this name."""
    state: State


def spoil(state: State, others: Mapping[str, State]) -> Iterator[Spoiled]:
    """Each array in each way that changes it. others: further states, of which it takes the array of the same
    name.
    """
    for name, array in state.arrays.items():
        rest = {other: values for other, values in state.arrays.items() if other != name}
        yield Spoiled(name, "missing", None, State(state.meta, rest))
        ways = {way: make(array) for way, make in (_ALWAYS | (_OF_SOME if array.size else {})).items()}
        ways |= {f"of {other}": one.arrays[name] for other, one in others.items() if name in one.arrays}
        for way, values in ways.items():
            if not _alike(values, array):
                yield Spoiled(name, way, values, State(state.meta, {**state.arrays, name: values}))


def says_what(error: FileFormatError, name: str) -> bool:
    """Whether it names the array, or one beside it that contradicts it (of the same nodes, edges or step),
    and says what was expected and what came.
    """
    message, parts = str(error), name.split("/")
    beside = "/".join(parts[: -2 if parts[-2] in ("out", "in") else -1])
    fits = beside in message and ("expected" in message or "must be" in message) and "got" in message
    return fits and "does not fit together" in message
