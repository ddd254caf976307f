"""Features that a request reads and no cache has: fetched at once, with the records of the index that are
missing like them; and the arrays that they are put into.

Thread safety: functions of their arguments; a snapshot may be read by several threads.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from livegnn.remote.cached_index import NotedIndex
from livegnn.remote.subgraph import Lists, Neighborhood, receiver_of, run_parallel
from livegnn.snapshots.row_sets import distinct
from livegnn.snapshots.snapshot import Snapshot
from livegnn.types import FloatArray, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64
    from numpy.typing import NDArray


LARGEST = 64 << 20
"""Bytes of an array of features that is kept."""


class WorkingArrays:
    """One array for each node type, for the features of one request after the other.

    The system must first provide the pages of an array that is freed and made again, which for megabytes
    takes as long as filling them. So arrays are kept, up to a size; the owner releases them when memory is
    short. Thread safety: none; one request at a time.
    """

    def __init__(self) -> None:
        self._kept: dict[NodeType, FloatArray] = {}

    @property
    def bytes(self) -> int:
        """Bytes of the arrays that are kept."""
        return sum(array.nbytes for array in self._kept.values())

    def take(self, name: NodeType, rows: int, width: int) -> "Float32[FloatArray, 'rows width']":
        """An array with any contents. The caller may not use the previous array of this type any more."""
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


def fetch_missing(
    snapshot: Snapshot,
    found: Neighborhood,
    x: "Mapping[NodeType, Float32[FloatArray, '_ width']]",
    missing: "Mapping[NodeType, Int64[IntArray, '_']]",
    noted: NotedIndex | None,
) -> Neighborhood:
    """Fetches features of the nodes at the positions `missing` into `x`, and all that is pending in `found`,
    at once. Returns `found` with that.

    noted: what a cache wants to know of the missing nodes, which is fetched, too; None: there is none. Raises
    what a snapshot raises.
    """
    wanted = {lists: [at] for lists, at in found.pending.items()}
    for name, at in missing.items():
        if noted is not None and len(unknown := noted.unknown(found, name, at)):
            wanted.setdefault(noted.first[name], []).append(unknown)
    read: dict[Lists, tuple[IntArray, NDArray[np.void]]] = {}
    jobs: list[Callable[[], None]] = []

    def features(name: NodeType, at: IntArray) -> None:
        x[name][at] = snapshot.features(name, found.rows[name][at])

    def index(lists: Lists, at: IntArray) -> None:
        read[lists] = at, snapshot.index(lists[0], found.rows[receiver_of(lists)][at], lists[1])

    for lists, each in wanted.items():
        jobs.append(partial(index, lists, each[0] if len(each) == 1 else distinct(np.concatenate(each))))
    # Features last: they are as large as the memory that was freed before.
    for name, at in missing.items():
        if len(at):
            jobs.append(partial(features, name, at))
    run_parallel(jobs, apart=snapshot.confined)
    return found.complete(read) if read else found


def first_of_each(
    rows: "Int64[IntArray, 'rows']", at: "Int64[IntArray, 'some']"
) -> "Int64[IntArray, 'distinct']":
    """The first of the positions `at` of each row."""
    return np.sort(at[np.unique(rows[at], return_index=True)[1]])


def repeat(
    x: "Float32[FloatArray, 'rows width']",
    rows: "Int64[IntArray, 'rows']",
    first: "Int64[IntArray, 'distinct']",
    at: "Int64[IntArray, 'some']",
) -> None:
    """Gives the features at the positions `first` to those of the same rows at `at`."""
    if len(first) < len(at):
        by_row = first[np.argsort(rows[first])]
        x[at] = x[by_row[np.searchsorted(rows[by_row], rows[at])]]
