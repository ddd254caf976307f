"""The share of a part in a snapshot: the lists of its own nodes, which its process writes to the store.

A share is a layer (`docs/snapshot_format.md`). The leader adds those of all parts to one manifest.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, cast

import numpy as np

import livegnn._core as _core
from livegnn.errors import SnapshotError
from livegnn.graph import Graph
from livegnn.partitions.letters import Letter
from livegnn.partitions.writing import Writing, wait_until_written
from livegnn.snapshots.manifest import Layer, Manifest
from livegnn.snapshots.objects import open_objects
from livegnn.snapshots.rows import GraphRows
from livegnn.snapshots.writer import Direction, receiver, table_keys, write_layer
from livegnn.types import JSON

SHARE: Final = "share"
"""A letter to a part with this key asks for a share, or, if the value is None, for the layer of the last."""


class ShareOrder(NamedTuple):
    """url: of the store. generation: of the snapshot. directions: the lists of directed edge types that it
    has."""

    url: str
    generation: int
    directions: tuple[Direction, ...]


def write_share(graph: Graph, part: int, order: ShareOrder) -> Layer:
    """Writes the share of a part, whose graph may not change meanwhile. Raises `SnapshotError`."""
    schema, native = graph.schema, graph.native
    owned = [
        np.flatnonzero(_core.owners_of(native, index) == part).astype(np.uint32)
        for index in range(len(schema.node_types))
    ]
    rows = {
        key: owned[receiver(schema, key)]
        for key in table_keys(schema, order.directions)
        if key.kind not in ("ids", "features")
    }
    objects = open_objects(order.url)
    try:
        return write_layer(GraphRows(graph), objects, order.generation, rows, "delta")
    finally:
        objects.close()


class ShareWriting:
    """A share that the process of a part writes, while it answers reads."""

    def __init__(self, graph: Graph, part: int, content: Mapping[str, JSON]) -> None:
        url, generation, directions = cast("tuple[str, int, list[Direction]]", content[SHARE])
        self._order: Final = ShareOrder(url, generation, tuple(directions))
        self._graph, self._part = graph, part
        self._layer: Layer | None = None
        self.writing: Final = Writing(self._write)

    def _write(self) -> None:
        self._layer = write_share(self._graph, self._part, self._order)

    def answer(self) -> Letter:
        """The layer, once it is written."""
        assert self._layer is not None
        manifest = Manifest(self._order.generation, 0, "", None, (), (self._layer,))
        return Letter({}, manifest.to_bytes())


def ask_for_share(part: int, ask: Callable[[Letter], Letter], order: ShareOrder) -> Layer:
    """Returns the share of a part, once its process has written it. ask: returns the answer to a letter.
    Raises `SnapshotError`, and `WorkerUnavailableError` if the part is lost."""
    ask(Letter({SHARE: [order.url, order.generation, list(order.directions)]}))
    failed = wait_until_written(lambda: ask(Letter({"written": True})).content)
    if failed is not None:
        raise SnapshotError(f"part {part} could not write its share of a snapshot: {failed}")
    (layer,) = Manifest.from_bytes(ask(Letter({SHARE: None})).payload, f"the share of part {part}").layers
    return layer
