"""Applies a growth of the schema to a graph and its views: as a whole or not at all, as any batch.

    run ─► schema, checks ─► native grow: wider features beside the old ones, on_staged, switch ─► views grow

Indices of nodes and types stay as they are, so engines go on with their rows.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import livegnn._core as _core
from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.events.growing import growth_of
from livegnn.graph.delta import GraphDelta
from livegnn.graph.native_graph import NativeGraph, edge_specs
from livegnn.graph.view_registry import Follower, ViewRegistry
from livegnn.schema import Growth, Schema

if TYPE_CHECKING:
    from threading import RLock


def grown_schema(graph: NativeGraph, growth: Growth) -> Schema:
    """The schema of a graph after a growth. Raises `InputError` if the graph cannot have it."""
    if graph.elsewhere is not None or _core.is_part(graph.native):
        raise InputError(
            "expected a graph in one piece, got one in parts, whose schema cannot grow: serve it without "
            "partitions in [cluster], and append the growth then"
        )
    return graph.schema.grown(growth)


class SchemaStep:
    """The steps of a growth, in place of those of a batch of nodes and edges; see `Transaction`."""

    def __init__(self, graph: NativeGraph, events: Events) -> None:
        growth = growth_of(events.chunks)
        assert growth is not None
        self._graph, self._events, self._growth = graph, events, growth
        self.schema = grown_schema(graph, growth)

    def stage(self, views: ViewRegistry, seq: int | None, *, trusted: bool) -> GraphDelta:
        """A batch that changes no node and no edge, of a graph with the new schema."""
        graph, schema = self._graph, self.schema
        native = graph.native.no_changes(len(schema.node_types), len(schema.edge_types))
        pin = graph.node_ids.pin()
        pin.let_go()
        after = graph.seq + 1 if seq is None else seq
        return GraphDelta(
            graph, native, after, self._events, pin, views.refuse_unless_prepared, trusted=trusted
        )

    def apply(
        self,
        batch: object,
        followers: Sequence[Follower],
        natives: "list[_core.View]",
        readers: "RLock | None",
    ) -> None:
        """Raises InputError if a view cannot follow. batch: the transaction, for the native core."""
        for view in followers:
            view.check_growth(self._growth)
        old, new = self._graph.schema, self.schema
        columns = [list(self._growth.columns.get(name, {}).values()) for name in old.node_types]
        widths = [width for name, width in new.node_types.items() if name not in old.node_types]
        added = edge_specs(new)[len(old.edge_types) :]
        self._graph.native.grow(columns, widths, added, natives, self._graph, batch, readers)
