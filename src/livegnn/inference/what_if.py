"""Predictions as they would be after some events, which are not applied."""

from typing import TYPE_CHECKING, Unpack

import numpy as np

import livegnn._core as _core
from livegnn.arguments import listed_ids
from livegnn.errors import UnknownNodeError
from livegnn.events import Events
from livegnn.graph import Graph, GraphDelta, View
from livegnn.graph.native_graph import NumberMap
from livegnn.inference.edge_pairs import Pairs, PairSettings, check_pairs, find_edge_output
from livegnn.inference.native_engine import NativeEngine, refuse_lost
from livegnn.inference.scored_pairs import rows_of_pairs
from livegnn.network.outputs import EdgeOutput
from livegnn.texts import Texts
from livegnn.types import NO_INDEX, FloatArray, Ids, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Int64, Shaped, UInt32
    from numpy.typing import ArrayLike, NDArray


class WhatIf:
    """Predictions as they would be after some events.

    They refer to the current graph: if batches were applied since the last call, the events are evaluated
    again. together: the engine is of a part of a graph, and all parts evaluate them at the same time. staged:
    the events at the current state of the graph, if they were staged before; then the caller holds
    `Graph.writer`.
    """

    def __init__(
        self,
        engine: NativeEngine,
        events: Events,
        view: View,
        *,
        together: bool = False,
        staged: GraphDelta | None = None,
    ) -> None:
        self._engine = engine
        self._staged = staged
        self._together = together
        self._view = view  # the graph holds it weakly, and would leave it out of batches
        self._events = events
        self._epoch = -1
        self._prepared = self._engine.native.new_prepared()
        _core.holding(engine.graph.writer, self._refresh)

    @property
    def changed(self) -> "Shaped[Ids, 'nodes']":
        """Ids of nodes whose prediction would change, including added nodes."""
        return _core.holding(self._engine.graph.writer, self._changed)

    def _changed(self) -> Ids:
        return self._engine.graph.to_user_ids(self._changed_numbers())

    def changed_numbers(self) -> "Int64[IntArray, 'nodes']":
        """`changed`, with the numbers of ids."""
        return _core.holding(self._engine.graph.writer, self._changed_numbers)

    def _changed_numbers(self) -> IntArray:
        self._refresh()
        return self._numbers(self._prepared.changed())

    @property
    def num_changed(self) -> int:
        """The length of `changed`, without computing the ids."""
        with self._engine.graph.writer:
            self._refresh()
            return len(self._prepared.changed())

    @property
    def affected(self) -> int:
        """The number of nodes whose predictions would be computed again."""
        return _core.holding(self._engine.graph.writer, self._affected)

    def _affected(self) -> int:
        self._refresh()
        return self._prepared.affected

    def predict(
        self, ids: "ArrayLike", *, output: str | None = None
    ) -> "Float32[FloatArray, 'ids channels']":
        """Predictions, float32 [ids, outputs]. output: as for `Engine.predict`.

        Raises `UnknownNodeError` for a node that would not be in the graph, and `InputError` if the model has
        no such output.
        """
        position, name, _ = self._engine.outputs.find(output)
        return _core.holding(self._engine.graph.writer, self._predict, listed_ids(ids), position, name)

    def _predict(self, asked: "NDArray[np.generic] | Texts", position: int, name: NodeType) -> FloatArray:
        self._refresh()
        _, indices = locate_after(self._engine.graph, self._delta, asked, name)
        return self._engine.native.predict_prepared(self._prepared, indices, position)

    def score(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]
    ) -> "Float32[FloatArray, 'pairs channels']":
        """Scores of the pairs src[i] -> dst[i], float32 [pairs, channels], whose ends have the rows that they
        would have after the events. The arguments, columns of the events' own edges included, and the errors
        are those of `Engine.score`.
        """
        chosen = find_edge_output(self._engine.edge_outputs, settings)
        pairs = check_pairs(self._engine.graph.schema, chosen, src, dst, settings)
        return _core.holding(self._engine.graph.writer, self._score, chosen, pairs)

    def _score(self, chosen: EdgeOutput, pairs: Pairs) -> FloatArray:
        self._refresh()
        graph, given = self._engine.graph, self._engine.graph.node_ids.given
        found = self._engine.native.score_prepared(
            self._prepared,
            self._delta.native,
            chosen.position,
            given(pairs.sources),
            given(pairs.targets),
            pairs.edge_attr,
            pairs.edge_weight,
        )
        return rows_of_pairs(graph, chosen, pairs, found)

    def _refresh(self) -> None:
        """Prepares the events if that was not done at this state of the graph. Needs `Graph.writer`."""
        engine = self._engine
        # A batch that was refused may have put the rows of a lazy engine away meanwhile.
        engine.native.show_current()
        if self._epoch == engine.epoch:
            return
        staged, self._staged = self._staged or engine.graph.stage(self._events), None
        delta = staged.native
        if not engine.native.prepare(delta, self._prepared, self._together):
            refuse_lost(engine, delta, *self._prepared.lost())
        self._delta = staged  # the prepared batch points into it: new features are not copied
        self._epoch = engine.epoch

    def _numbers(self, indices: "np.ndarray[tuple[int], np.dtype[np.uint32]]") -> IntArray:
        graph = self._engine.graph
        known = indices < graph.native.capacity(self._engine.output_type)
        numbers = np.full(len(indices), -1, dtype=np.int64)
        numbers[known] = graph.native.ids_of(self._engine.output_type, indices[known])
        delta, output_type = self._delta.native, self._engine.output_type
        added, named = delta.added(output_type), delta.added_indices(output_type)
        NumberMap(named[added >= 0], added[added >= 0]).look_up(indices, numbers)
        return numbers


def locate_after(
    graph: Graph, change: GraphDelta, asked: "Shaped[NDArray[np.generic], 'ids'] | Texts", name: NodeType
) -> "tuple[Int64[IntArray, 'ids'], UInt32[NDArray[np.uint32], 'ids']]":
    """The numbers of ids, and the indices of their nodes after a change that is staged. The caller holds
    `Graph.writer`. Raises `UnknownNodeError` for a node that would not be in the graph.
    """
    numbers, indices, there = find_after(graph, change, asked, name)
    if not there.all():
        raise UnknownNodeError(graph.unknown_node(asked[int(there.argmin())], name))
    return numbers, indices


def find_after(
    graph: Graph, change: GraphDelta, asked: "Shaped[NDArray[np.generic], 'ids'] | Texts", name: NodeType
) -> "tuple[Int64[IntArray, 'ids'], UInt32[NDArray[np.uint32], 'ids'], Bool[NDArray[np.bool_], 'ids']]":
    """The same, and which of the nodes would be in the graph. Indices of others mean nothing."""
    node_type, delta = graph.node_type_index(name), change.native
    numbers = graph.to_numbers(asked)
    indices = graph.native.indices_of(node_type, numbers)
    if len(added := delta.added(node_type)):
        NumberMap(added[added >= 0], delta.added_indices(node_type)[added >= 0]).look_up(numbers, indices)
    gone = indices == NO_INDEX
    if len(removed := delta.removed_indices(node_type)):
        gone |= np.isin(indices, removed)
    return numbers, indices, ~gone
