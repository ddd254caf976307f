"""Nodes and edges that rows of a table give, as columns, and their order as events."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livegnn.events import Chunk
from livegnn.events.arrow import read_ids
from livegnn.events.chunk import Kind
from livegnn.types import DoubleArray, EdgeType, FloatArray, Keys, NodeType

Rows: TypeAlias = "npt.NDArray[np.int64]"


class Given(NamedTuple):
    """`n` nodes or edges of one type, each with the row that gives it; rows do not decrease.

    rows: positions in the batch. ids, dst: Arrow arrays of int64 or large_string. The rest as in `Chunk`.
    """

    type: NodeType | EdgeType
    rows: Rows
    ids: pa.Array
    dst: pa.Array | None = None
    weight: FloatArray | None = None
    time: DoubleArray | None = None
    x: FloatArray | None = None
    key: Keys | None = None

    def take(self, at: "npt.NDArray[np.int64] | npt.NDArray[np.bool_]") -> "Given":
        """Those at the positions `at`, or where a mask is true, in that order."""
        if at.dtype == np.bool_:
            at = np.flatnonzero(at)
        arrow = pa.array(at)
        taken = [
            column if column is None else column.take(arrow) if isinstance(column, pa.Array) else column[at]
            for column in self[1:]
        ]
        return Given(self.type, *taken)  # type: ignore[arg-type]

    def between(self, first: int, last: int) -> "Given":
        """Those of the rows from `first` up to, and without, `last`."""
        begin, end = np.searchsorted(self.rows, [first, last]).tolist()
        if begin == 0 and end == len(self.rows):
            return self
        parts = [
            column
            if column is None
            else column.slice(begin, end - begin)
            if isinstance(column, pa.Array)
            else column[begin:end]
            for column in self[1:]
        ]
        return Given(self.type, *parts)  # type: ignore[arg-type]

    def chunk(self, kind: Kind) -> Chunk:
        """As events of this kind."""
        dst = None if self.dst is None else read_ids(self.dst)
        return Chunk(kind, self.type, read_ids(self.ids), dst, self.weight, self.time, self.x, self.key)

    @property
    def columns(self) -> tuple[object, ...]:
        """A value that is equal for parts that can be joined: they have the same columns."""
        width = None if self.x is None else self.x.shape[1]
        return self.weight is None, self.time is None, width, self.key is None


def joined(parts: Sequence[Given]) -> Given:
    """The same, in the order of rows, then of `parts`. Requires: one type and the same columns."""
    if len(parts) == 1:
        return parts[0]
    columns: list[object] = []
    for at in range(1, len(Given._fields)):
        some: list[Any] = [part[at] for part in parts]
        if some[0] is None:
            columns.append(None)
        else:
            columns.append(pa.concat_arrays(some) if isinstance(some[0], pa.Array) else np.concatenate(some))
    whole = Given(parts[0].type, *columns)  # type: ignore[arg-type]
    return whole.take(np.argsort(whole.rows, kind="stable"))


def in_order(parts: Iterable[Given]) -> Iterator[Given]:
    """The same, type by type, each in the order of rows, then of entries, in few parts."""
    by_type: dict[object, list[Given]] = {}
    for part in parts:
        if len(part.rows):
            by_type.setdefault(part.type, []).append(part)
    for same_type in by_type.values():
        alike: dict[object, list[Given]] = {}
        for part in same_type:
            alike.setdefault(part.columns, []).append(part)
        if len(alike) == 1:
            yield joined(same_type)
        elif not _overlap([pa.concat_arrays([one.ids for one in some]) for some in alike.values()]):
            yield from map(joined, alike.values())
        else:
            yield from _row_by_row(same_type)


def _row_by_row(parts: Sequence[Given]) -> Iterator[Given]:
    """Runs of rows and entries with the same columns: entries touch the same node or source of an edge."""
    places = [
        (row, number, at) for number, part in enumerate(parts) for at, row in enumerate(part.rows.tolist())
    ]
    places.sort()
    position = np.array([at for _, _, at in places], dtype=np.int64)
    begin = 0
    for number, run in groupby(places, key=lambda place: place[1]):
        end = begin + sum(1 for _ in run)
        yield parts[number].take(position[begin:end])
        begin = end


def _overlap(columns: Sequence[pa.Array]) -> bool:
    """Whether two columns have a value in common."""
    for at, column in enumerate(columns):
        for other in columns[at + 1 :]:
            if cast("bool", pc.any(pc.is_in(column, value_set=pc.unique(other))).as_py()):
                return True
    return False


def without_repetitions(nodes: Given) -> Given:
    """Nodes without features, each once, where it is given first: to add one again changes nothing."""
    if nodes.x is not None or len(nodes.rows) < 2:
        return nodes
    codes = codes_of(nodes.ids)
    first = np.unique(codes, return_index=True)[1]
    return nodes if len(first) == len(codes) else nodes.take(np.sort(first))


def codes_of(ids: pa.Array) -> Rows:
    """A number for each distinct value."""
    return cast("Rows", ids.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64))
