"""Explains why a prediction of a node moved."""

from dataclasses import replace

import numpy as np

import livegnn._core as _core
from livegnn.arguments import one_id
from livegnn.graph import Graph
from livegnn.inference.event_shares import share_among_events, user_id
from livegnn.inference.explanation import Explanation, NeighborShare
from livegnn.inference.history import History
from livegnn.inference.native_engine import narrowed
from livegnn.inference.neighbor_shares import share_among_neighbors
from livegnn.inference.reads import Start
from livegnn.inference.receptive_field import Frame, ReceptiveField
from livegnn.network import Model
from livegnn.network.outputs import without_edge_outputs
from livegnn.types import DoubleArray, IntArray


def explain(
    graph: Graph, history: History, model: Model, id: int | str, since: int, timeout: float | None = None
) -> Explanation:
    """Implements `Engine.explain`. Raises `UnknownNodeError`, `InputError` and `TimeoutExpired`."""
    with graph.pin():
        return _explain(graph, history, without_edge_outputs(model), id, since, timeout)


def _explain(
    graph: Graph, history: History, model: Model, id: int | str, since: int, timeout: float | None
) -> Explanation:
    name = model.node_type(model.output)

    def take_field() -> tuple[int, IntArray, ReceptiveField]:
        graph.indices_of(one_id(id), name)
        batches, number = history.since(since), graph.to_numbers(id)
        start = Start(name, int(number[0]), (model.output,))
        return graph.seq, number, ReceptiveField(graph, model, [start], batches)

    seq, number, field = _core.holding(graph.writer, take_field)
    (place,) = field.places
    moved = share_among_events(
        graph,
        field,
        since,
        seq,
        read=lambda: read_frame(graph, model, field),
        compute=lambda frame: _predict(model, frame, place),
        timeout=timeout,
    )
    neighbors: list[NeighborShare] = []
    if not moved.now.equals(moved.before):
        movement = moved.value_now - moved.value_before
        neighbors = [
            NeighborShare(
                way and way.edge_type,
                user_id(graph, field.nodes[name if way is None else way.sender][[neighbor]]),
                share,
                bool(way and way.reverse),
            )
            for way, neighbor, share in share_among_neighbors(
                model, moved.before, moved.now, place, field.ranks(), movement
            )
        ]
    return Explanation(
        id=user_id(graph, number),
        since=since,
        seq=seq,
        before=moved.value_before if all(moved.before.there) else None,
        after=moved.value_now,
        events=moved.shares,
        neighbors=neighbors,
    )


def read_frame(graph: Graph, model: Model, field: ReceptiveField) -> Frame:
    """The frame, with the columns of nodes that the model reads."""
    frame = field.frame()
    return replace(frame, x=narrowed(model, graph.schema, frame.x))


def _predict(model: Model, frame: Frame, place: int) -> DoubleArray:
    from livegnn.oracle import reference

    if not all(frame.there):
        return np.zeros(model.width(model.output))
    row: DoubleArray = reference.compute(model, frame, {})[model.output][place]
    return row
