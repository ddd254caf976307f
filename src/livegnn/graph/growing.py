"""Applies a growth of the schema to a graph and its views: as a whole or not at all, as any batch.

    run ─► schema, checks ─► native grow: wider features beside the old ones, on_staged, switch ─► views grow

Indices of nodes and types stay as they are, so engines go on with their rows.
"""

from typing import TYPE_CHECKING

import livegnn._core as _core
from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.events.growing import find_growth, growth_of
from livegnn.graph.delta import GraphDelta
from livegnn.graph.native_graph import NativeGraph, edge_specs
from livegnn.graph.transaction import Transaction
from livegnn.graph.view_registry import Follower
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


class GrowthTransaction(Transaction):
    """Applies `events`, which are one growth; see `Transaction`."""

    schema: Schema
    """The schema after the growth, which the native core gives to the graph."""

    def _stage(self) -> GraphDelta:
        graph, growth = self.graph, growth_of(self._events.chunks)
        assert growth is not None
        self._growth, self.schema = growth, grown_schema(graph, growth)
        native = graph.native.no_changes(len(self.schema.node_types), len(self.schema.edge_types))
        pin = graph.node_ids.pin()
        pin.let_go()
        seq = graph.seq + 1 if self.seq is None else self.seq
        return GraphDelta(
            graph, native, seq, self._events, pin, self.views.refuse_unless_prepared, trusted=self._trusted
        )

    def _apply(self, natives: "list[_core.View]", readers: "RLock | None") -> None:
        for view in self._views:
            view.check_growth(self._growth)
        old, new = self.graph.schema, self.schema
        columns = [list(self._growth.columns.get(name, {}).values()) for name in old.node_types]
        widths = [width for name, width in new.node_types.items() if name not in old.node_types]
        added = edge_specs(new)[len(old.edge_types) :]
        self.graph.native.grow(columns, widths, added, natives, self.graph, self, readers)

    def prepare_views(self) -> None:
        """Called by the native core when it has prepared the growth: the caller records it."""
        if self._on_staged is not None:
            assert self.delta is not None
            self._on_staged(self.delta)

    def _commit_view(self, view: Follower, delta: GraphDelta) -> object:
        return view.grow(delta)


def transaction_for(events: Events) -> type[Transaction]:
    """The kind of transaction that applies `events`: a growth, or a batch of nodes and edges."""
    grows = isinstance(events, Events) and find_growth(events.chunks) is not None
    return GrowthTransaction if grows else Transaction
