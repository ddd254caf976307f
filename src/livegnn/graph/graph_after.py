"""The graph as it will be after a batch that is being prepared."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from livegnn.arguments import is_incoming, listed_ids, one_id
from livegnn.errors import UnknownNodeError
from livegnn.graph.native_graph import NativeGraph, NumberMap
from livegnn.graph.snapshot import Neighbors
from livegnn.types import NO_INDEX, EdgeType, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Bool, Int64
    from numpy.typing import ArrayLike, NDArray

    import livegnn._core as _core


class GraphAfter:
    """The ids, degrees and neighbours that the graph will have once the batch is committed, for views. It may
    be used in `View.prepare` and in `on_staged`; at any other time it raises `InputError`.

    Everything else, such as features of nodes, is in the batch itself (`GraphDelta`) or does not change.
    """

    def __init__(self, graph: NativeGraph, delta: "_core.Delta", refuse: Callable[[], None]) -> None:
        """refuse: raises `InputError` unless the batch is being prepared."""
        self._graph, self._delta, self._refuse = graph, delta, refuse

    def contains(
        self, ids: "ArrayLike", node_type: NodeType | None = None
    ) -> "Bool[NDArray[np.bool_], 'ids']":
        """Returns for each of `ids` whether it will be in the graph."""
        found: NDArray[np.bool_] = self._indices(np.asarray(listed_ids(ids)), node_type) != NO_INDEX
        return found

    def degree(
        self, ids: "ArrayLike", *, edge_type: EdgeType | None = None, direction: str = "in"
    ) -> "Int64[IntArray, 'ids']":
        """Returns the future numbers of in-edges (or out-edges), int64 [ids]. Raises `UnknownNodeError`."""
        index, node_type = self._end(edge_type, direction)
        nodes = self._known(np.asarray(listed_ids(ids)), node_type)
        return self._graph.native.degrees_after(index, nodes, is_incoming(direction))

    def neighbors(
        self, id: int | str, *, edge_type: EdgeType | None = None, direction: str = "in"
    ) -> Neighbors:
        """The neighbours that a node will have, as in `Graph.neighbors` but without features of edges.

        Raises `UnknownNodeError`.
        """
        graph = self._graph
        index, node_type = self._end(edge_type, direction)
        (node,) = self._known(one_id(id), node_type).tolist()
        others, weight, time, key = graph.native.edges_after(index, node, is_incoming(direction))
        source_type, _, target_type = list(graph.schema.edge_types)[index]
        edges = list(graph.schema.edge_types.values())[index]
        numbers = graph.numbers_of(
            others, source_type if is_incoming(direction) else target_type, self._delta
        )
        return Neighbors(
            graph.node_ids.to_user_ids(numbers),
            weight if edges.weighted else None,
            time if edges.timed else None,
            None,
            key if edges.duplicates == "keep" else None,
        )

    def _end(self, edge_type: EdgeType | None, direction: str) -> tuple[int, NodeType]:
        self._refuse()
        index = self._graph.schema.edge_type_index(edge_type)
        source_type, _, target_type = list(self._graph.schema.edge_types)[index]
        return index, target_type if is_incoming(direction) else source_type

    def _known(self, ids: "NDArray[np.generic]", node_type: NodeType) -> "NDArray[np.uint32]":
        indices = self._indices(ids, node_type)
        unknown = np.flatnonzero(indices == NO_INDEX)
        if len(unknown):
            raise UnknownNodeError(self._graph.unknown_node(ids[unknown[0]], node_type))
        return indices

    def _indices(self, ids: "NDArray[np.generic]", node_type: NodeType | None) -> "NDArray[np.uint32]":
        graph, delta = self._graph, self._delta
        self._refuse()
        index = graph.schema.node_type_index(node_type)
        numbers = graph.node_ids.to_numbers(ids)
        indices = graph.native.indices_of(index, numbers)
        indices[np.isin(indices, delta.removed_indices(index))] = NO_INDEX
        added, there = delta.added(index), delta.added(index) >= 0
        NumberMap(added[there], delta.added_indices(index)[there]).look_up(numbers, indices)
        return indices
