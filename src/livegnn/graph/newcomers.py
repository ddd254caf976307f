"""Nodes that nobody announces: of the types in `Schema.auto_add`, an edge or features that name an unknown
node add it.

Which nodes are added follows from the graph, the events and the schema, so a replay adds the same ones.

Thread safety: the caller must hold `Graph.writer`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from livegnn import _core
from livegnn.errors import InputError
from livegnn.types import NodeType

if TYPE_CHECKING:
    from jaxtyping import Int64

    from livegnn.graph.graph import Graph
    from livegnn.types import IntArray

AutoAdd: TypeAlias = Mapping[NodeType, Sequence[float] | None] | Sequence[NodeType]
"""Node types that nobody has to announce, with the features of new nodes; None, or a list, for zeros."""

_NO_INDEX = 0xFFFFFFFF
_NOBODY = np.empty(0, np.int64)


class Newcomers:
    """The nodes that one batch adds without saying so. It is told of all other nodes that come and go."""

    def __init__(self, graph: "Graph") -> None:
        self._graph = graph
        self._here: dict[NodeType, IntArray] = {}  # added so far by the batch, and still there
        self._gone: dict[NodeType, IntArray] = {}  # removed so far by the batch, and not there again

    def announce(
        self, stage: "_core.Stage", node_type: NodeType, numbers: "Int64[IntArray, 'named']"
    ) -> None:
        """Adds those of the nodes that are not there, if their type is one of which that is wanted."""
        features = self._graph.schema.auto_add.get(node_type)
        if features is None:
            return
        index = self._graph.node_type_index(node_type)
        there = self._graph.native.indices_of(index, numbers) != _NO_INDEX
        there &= ~np.isin(numbers, self._gone.get(node_type, _NOBODY))
        there |= np.isin(numbers, self._here.get(node_type, _NOBODY))
        new, first = np.unique(numbers[~there], return_index=True)
        if not len(new):
            return
        new = new[np.argsort(first)]
        x = np.tile(np.array(features, np.float32), (len(new), 1)) if features else None
        stage.add_nodes(index, new, x)
        self.note_added(node_type, new)

    def note_added(self, node_type: NodeType, numbers: "Int64[IntArray, 'added']") -> None:
        """Says that nodes are there from now on."""
        self._here[node_type] = np.union1d(self._here.get(node_type, _NOBODY), numbers)
        self._gone[node_type] = np.setdiff1d(self._gone.get(node_type, _NOBODY), numbers)

    def note_removed(self, node_type: NodeType, numbers: "Int64[IntArray, 'removed']") -> None:
        """Says that nodes are not there from now on."""
        self._gone[node_type] = np.union1d(self._gone.get(node_type, _NOBODY), numbers)
        self._here[node_type] = np.setdiff1d(self._here.get(node_type, _NOBODY), numbers)


def auto_add_nodes(graph: "Graph", auto_add: AutoAdd) -> None:
    """From now on, events that name unknown nodes of these types add them, as if `Schema.auto_add` said so.

    Types can be added to those of the graph's schema, and none changed or taken away: a replay of the graph's
    log adds the same nodes. Raises `InputError` for that, and for what `Schema` refuses.
    """
    _core.holding(graph.writer, _auto_add, graph, auto_add)


def _auto_add(graph: "Graph", auto_add: AutoAdd) -> None:
    schema = replace(graph.schema, auto_add=auto_add)  # type: ignore[arg-type]
    if any(schema.auto_add.get(name) != row for name, row in graph.schema.auto_add.items()):
        raise InputError(
            f"auto_add must keep what the graph was made with, {dict(graph.schema.auto_add)}, so that a "
            f"replay adds the same nodes, got {auto_add!r}: only add types to it"
        )
    graph.schema = schema
