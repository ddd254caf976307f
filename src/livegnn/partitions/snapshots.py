"""Snapshots of a graph in parts: each part writes the lists of its nodes, the leader ids and features.

Thread safety: as of `SnapshotView`.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

import livegnn._core as _core
from livegnn.graph import Graph
from livegnn.log.directories import Record
from livegnn.partitions.part import Reader
from livegnn.partitions.shares import ShareOrder
from livegnn.snapshots.changed_rows import ChangedRows
from livegnn.snapshots.manifest import Manifest
from livegnn.snapshots.objects import Objects
from livegnn.snapshots.view import Layers, SnapshotView
from livegnn.snapshots.writer import Direction, counts_of, receiver, write_layer
from livegnn.types import State


class Divided(Protocol):
    """A graph in parts: `Partitions`. parts: those that answer now."""

    names: Graph
    parts: tuple[Reader, ...]


class PartsSnapshotView(SnapshotView):
    """Snapshots of a graph in parts; the arguments are those of `SnapshotView`. Every snapshot is a whole
    one, of one event: batches wait while it is written.

    `where` must name a store that all parts can open: they get its URL, and the keys of their environment.
    A part that is lost makes an attempt fail, as a store does.
    """

    def __init__(
        self,
        parts: Divided,
        where: str | Objects,
        *,
        interval: float | None = 60.0,
        directions: Iterable[Direction] = ("in", "out"),
        grace: float = 600.0,
        start: bool = True,
        owner: Record | None = None,
    ) -> None:
        self._parts = parts
        super().__init__(
            parts.names,
            where,
            interval=interval,
            directions=directions,
            grace=grace,
            start=start,
            owner=owner,
        )

    def _save(self) -> State | None:
        """None: the next snapshot needs nothing of this one."""
        return None

    def _write_layers(self, generation: int, before: Manifest | None) -> Layers:
        return _core.holding(self.graph.writer, self._write_all, generation)

    def _write_all(self, generation: int) -> Layers:
        schema, source = self.graph.schema, self._source
        rows = {
            key: np.arange(
                source.rows(receiver(schema, key)) if key.kind in ("ids", "features") else 0, dtype=np.uint32
            )
            for key in self._keys
        }
        base = write_layer(source, self.objects, generation, rows, "base")
        order = ShareOrder(self.objects.url, generation, self._directions)
        parts: Sequence[Reader] = self._parts.parts
        with ThreadPoolExecutor(len(parts), "livegnn-shares") as threads:
            writing = [threads.submit(part.share, order) for part in parts]
        layers = [base, *(one.result() for one in writing)]
        self._take()
        nothing = ChangedRows(self._keys)
        return Layers("base", layers, nothing, self.graph.seq, counts_of(source))
