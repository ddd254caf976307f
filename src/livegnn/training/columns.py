"""Tensors that the user puts beside the features of nodes, such as labels: a row for some of the nodes.

A view of the graph: the rows of a node are removed with the node, so that a node which is added later under
the same id has none. Rows are found by the dense index of their node, so that the time to put one row does
not grow with the number of the others.

Thread safety: any thread may call. A thread that puts or drops rows holds `Graph.writer`. Readers take no
lock: they read again if `version` has changed meanwhile, and hold `Graph.writer` after several changes.
"""

import weakref
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

import livegnn._core as _core
from livegnn.errors import InputError, UnknownNodeError
from livegnn.graph import Graph, GraphDelta, View
from livegnn.training.indices import unknown_number
from livegnn.types import NO_INDEX, IntArray, NodeType

Name = tuple[NodeType, str]
Result = TypeVar("Result")

_TRIES = 3  # of a reader, before it makes writers wait

# Tuples that are replaced, since the writer of a graph adds to them while others read.
_known: "weakref.WeakKeyDictionary[Graph, tuple[weakref.ref[NodeColumns], ...]]" = weakref.WeakKeyDictionary()


def columns_of(graph: Graph) -> "list[NodeColumns]":
    """The tensors that were put beside the features of `graph`, by store."""
    return [columns for ref in _known.get(graph, ()) if (columns := ref()) is not None and columns.names()]


class NodeColumns(View):
    """The tensors of one feature store."""

    name = "node tensors"

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.version = 0  # odd while rows change
        self._columns: dict[Name, _Column] = {}  # replaced, never changed: others read it without a lock
        self._leaving: dict[NodeType, IntArray] = {}
        self._after = 0  # the version after the batch that is being prepared

    def names(self) -> list[Name]:
        return list(self._columns)

    def prepare(self, change: GraphDelta) -> None:
        """Notes which of the nodes that have rows go. Readers wait from now on until the batch is over."""
        leaving = {}
        for name in {name for name, _ in self._columns}:
            indices = change.native.removed_indices(self.graph.node_type_index(name))
            if len(indices):
                leaving[name] = indices.astype(np.int64)
        self._after = self.version + 2 if leaving else self.version
        self._leaving = leaving
        if leaving:
            self.version += 1

    def commit(self, change: GraphDelta) -> None:
        for (name, _), column in self._columns.items():
            if name in self._leaving:
                column.drop(self._leaving[name])
        self._leaving = {}
        self.version = self._after

    def abandon(self, change: GraphDelta) -> None:
        self._leaving = {}
        self.version = max(self.version, self._after)

    # -- threads that hold `Graph.writer`

    def put(self, name: Name, numbers: IntArray, rows: Tensor, *, whole: bool) -> None:
        """Sets the rows of nodes; with `whole`, others have none from now on. Raises `InputError`."""
        self.graph.views.refuse_within_batch()
        indices = self.graph.native.indices_of(self.graph.node_type_index(name[0]), numbers)
        unknown = np.flatnonzero(indices == NO_INDEX)
        if len(unknown):
            raise UnknownNodeError(unknown_number(self.graph, int(numbers[unknown[0]]), name[0]))
        column = self._columns.get(name)
        if column is None or whole:
            column = _Column(rows.dtype, rows.shape[1:], rows.device)
        elif column.dtype != rows.dtype or column.shape != rows.shape[1:]:
            raise InputError(
                f"{name[1]!r} has rows of {column.dtype} {tuple(column.shape)}, got {rows.dtype} "
                f"{tuple(rows.shape[1:])}: remove it first"
            )
        if not self._columns:
            self.graph.attach(self)
            others = [ref for ref in _known.get(self.graph, ()) if ref() not in (None, self)]
            _known[self.graph] = (*others, weakref.ref(self))
        self.version += 1
        try:
            column.put(indices.astype(np.int64), rows)
            self._columns = {**self._columns, name: column}
        finally:
            self.version += 1

    def remove(self, name: Name) -> bool:
        there = name in self._columns
        self._columns = {other: column for other, column in self._columns.items() if other != name}
        return there

    # -- readers

    def at(self, name: Name, numbers: IntArray) -> Tensor | None:
        """The rows of nodes; NaN, -1 or False for nodes without one. None if there is no such tensor."""
        return at_one_moment(self.graph, [self], lambda: self._at(name, numbers))

    def all_at(self, numbers: Mapping[NodeType, IntArray]) -> dict[Name, Tensor]:
        """The rows of all tensors. Call it within `at_one_moment`."""
        found = {name: self._at(name, numbers[name[0]]) for name in self._columns if name[0] in numbers}
        return {name: rows for name, rows in found.items() if rows is not None}

    def shape(self, name: Name) -> tuple[int, ...] | None:
        """The shape of a row; None if there is no such tensor."""
        column = self._columns.get(name)
        return None if column is None else tuple(column.shape)

    def _at(self, name: Name, numbers: IntArray) -> Tensor | None:
        column = self._columns.get(name)
        if column is None:
            return None
        return column.at(self.graph.native.indices_of(self.graph.node_type_index(name[0]), numbers))


def at_one_moment(
    graph: Graph,
    columns: "list[NodeColumns]",
    read: Callable[[], Result],
    stamp: Callable[[], object] | None = None,
) -> Result:
    """Returns the result of `read` from a time when no row changes, nor the `stamp`, if there is one."""

    def state() -> tuple[object, ...]:
        return (*(one.version for one in columns), None if stamp is None else stamp())

    for _ in range(_TRIES):
        before = state()
        if any(one.version % 2 for one in columns):
            break
        found = read()
        if state() == before:
            return found
    return _core.holding(graph.writer, read)


class _Column:
    """`rows[slots[i]]` is the row of the node with the dense index i, which has none if that is below 0."""

    def __init__(self, dtype: torch.dtype, shape: torch.Size, device: torch.device) -> None:
        self.dtype, self.shape = dtype, shape
        self._rows = torch.empty((0, *shape), dtype=dtype, device=device)
        self._slots = np.empty(0, dtype=np.int64)
        self._used = 0
        self._free: list[int] = []

    def at(self, indices: "np.ndarray[tuple[int], np.dtype[np.uint32]]") -> Tensor:
        slots, missing = self._slots, float("nan") if self.dtype.is_floating_point else -1
        known = np.flatnonzero(indices < len(slots))
        slot = slots[indices[known]]
        known, slot = known[slot >= 0], slot[slot >= 0]
        if len(known) == len(indices):
            return self._rows[torch.from_numpy(slot)]
        rows = self._rows.new_full((len(indices), *self.shape), 0 if self.dtype is torch.bool else missing)
        rows[torch.from_numpy(known)] = self._rows[torch.from_numpy(slot)]
        return rows

    def put(self, indices: IntArray, rows: Tensor) -> None:
        """Requires: no index twice."""
        slots, needed = self._slots, int(indices.max(initial=-1)) + 1
        if needed > len(slots):
            slots = np.full(max(needed, 2 * len(slots)), -1, dtype=np.int64)
            slots[: len(self._slots)] = self._slots
        slot = slots[indices]
        new = np.flatnonzero(slot < 0)
        taken = min(len(new), len(self._free))
        fresh = len(new) - taken
        slot[new[:taken]] = self._free[len(self._free) - taken :]
        slot[new[taken:]] = np.arange(self._used, self._used + fresh)
        room = self._rows
        if self._used + fresh > len(room):
            room = room.new_empty((max(self._used + fresh, 2 * len(room)), *self.shape))
            room[: self._used] = self._rows[: self._used]
        room[torch.from_numpy(slot)] = rows
        # Readers look at slots first: those that they see have rows.
        self._rows, self._used = room, self._used + fresh
        del self._free[len(self._free) - taken :]
        slots[indices[new]] = slot[new]
        self._slots = slots

    def drop(self, indices: IntArray) -> None:
        known = indices[indices < len(self._slots)]
        known = known[self._slots[known] >= 0]
        self._free.extend(self._slots[known].tolist())
        self._slots[known] = -1
