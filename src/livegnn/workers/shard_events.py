"""Events of a log as changes of a sampling worker's tables.

Nodes of other workers are skipped there, so each worker may receive all events. A node whose type has
features has a row from when it is added until it is removed, also without features in its events.
"""

from typing import cast

import numpy as np

import livegnn._core as _core
from livegnn.errors import LogError
from livegnn.events import Events
from livegnn.events.chunk import Chunk
from livegnn.schema import Schema
from livegnn.types import IntArray, NodeType
from livegnn.workers.messages import ANEW


class ShardEvents:
    """Applies events to `shard`. Thread safety: none."""

    def __init__(self, shard: _core.SamplingShard, schema: Schema) -> None:
        self._shard = shard
        self._schema = schema
        self._rows = {
            name: np.array(schema.auto_add.get(name, (0.0,) * width), np.float32)
            for name, width in schema.node_types.items()
        }
        self._auto_add = frozenset(schema.auto_add)

    def apply(self, events: Events) -> None:
        """Applies `events`, which the log's owner has accepted."""
        for chunk in events.chunks:
            if chunk.dst is None:
                self._change_nodes(chunk)
            else:
                self._change_edges(chunk)

    def receive(self, blocks: bytes) -> None:
        """Takes what another sampling worker has told. Raises LogError if it does not follow."""
        try:
            self._shard.receive(blocks)
        except RuntimeError as error:
            raise LogError(f"blocks of a sampling worker must follow each other: {error}. {ANEW}") from error

    def _change_nodes(self, chunk: Chunk) -> None:
        assert isinstance(chunk.type, str)
        place, ids = self._schema.node_type_index(chunk.type), cast("IntArray", chunk.ids)
        if chunk.kind == "remove_nodes":
            self._shard.remove_nodes(place, ids)
        elif chunk.x is not None and chunk.x.shape[1] > 0:
            self._shard.set_features(place, ids, chunk.x)
        elif len(self._rows[chunk.type]):
            self._shard.add_missing(place, ids, np.zeros_like(self._rows[chunk.type]))

    def _change_edges(self, chunk: Chunk) -> None:
        assert isinstance(chunk.type, tuple)
        place = self._schema.edge_type_index(chunk.type)
        sources, targets = cast("IntArray", chunk.ids), cast("IntArray", chunk.dst)
        if chunk.kind == "remove_edges":
            self._shard.remove_edges(place, sources, targets)
            return
        for name, ids in ((chunk.type[0], sources), (chunk.type[2], targets)):
            self._add_ends(name, ids)
        weight = np.ones(len(sources), np.float32) if chunk.weight is None else chunk.weight
        time = np.zeros(len(sources)) if chunk.time is None else chunk.time
        self._shard.add_edges(place, sources, targets, weight, time)

    def _add_ends(self, name: NodeType, ids: IntArray) -> None:
        if name in self._auto_add and len(self._rows[name]):
            self._shard.add_missing(self._schema.node_type_index(name), ids, self._rows[name])
