"""Explains why a prediction moved: the events and neighbours that moved it, each with its share."""

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

import livegnn._core as _core
from livegnn.arguments import one_id
from livegnn.errors import TimeoutExpired
from livegnn.events import Chunk
from livegnn.graph import Graph
from livegnn.inference.history import History
from livegnn.inference.native_engine import narrowed
from livegnn.inference.neighbor_shares import Way, share_among_neighbors
from livegnn.inference.receptive_field import Frame, ReceptiveField
from livegnn.network import Model
from livegnn.types import DoubleArray, EdgeType, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float64
    from numpy.typing import ArrayLike

_SHOWN = 10  # shares of each kind, where an explanation is printed


@dataclass(frozen=True, eq=False)
class EventShare:
    """The movement of the prediction when one event was applied.

    seq: the event's sequence number. kind: as in JSON lines, such as ``"add_edge"``. type: the type of its
    node or edge. ids: the id of the node, or of both ends of the edge. share: float64 [outputs].
    """

    seq: int
    kind: str
    type: NodeType | EdgeType
    ids: tuple[int | str, ...]
    share: "Float64[DoubleArray, 'channels']"

    @property
    def what(self) -> str:
        """The event in words."""
        return f"{self.kind} {' -> '.join(map(str, self.ids))}"


@dataclass(frozen=True, eq=False)
class NeighborShare:
    """The movement of the prediction caused by the messages of one neighbour.

    edge_type: the type of the edges from the neighbour; None for the node itself. id: the neighbour's id.
    share: float64 [outputs]. reverse: the edges lead to the neighbour, and messages go from their targets to
    their sources.
    """

    edge_type: EdgeType | None
    id: int | str
    share: "Float64[DoubleArray, 'channels']"
    reverse: bool = False

    @property
    def what(self) -> str:
        """The neighbour in words."""
        if self.edge_type is None:
            return "itself"
        return f"{self.id} {self.edge_type[1]}{' in reverse' if self.reverse else ''}"


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """The movement of one prediction from sequence number `since` to `seq`, as a whole and in shares.

    before, after: the prediction then and now, float64 [outputs], computed from scratch; `before` is None if
    the node was not in the graph, and counts as zeros. events: in the order of the log. neighbors: by edge
    type and id, the node itself last. Each list adds up to `movement`; shares of zero are left out.
    """

    id: int | str
    since: int
    seq: int
    before: "Float64[DoubleArray, 'channels'] | None"
    after: "Float64[DoubleArray, 'channels']"
    events: list[EventShare]
    neighbors: list[NeighborShare]

    @property
    def movement(self) -> "Float64[DoubleArray, 'channels']":
        """`after` minus `before`, float64 [outputs]."""
        return self.after if self.before is None else self.after - self.before

    def top(
        self, count: int = _SHOWN, *, channel: int | None = None
    ) -> tuple[list[EventShare], list[NeighborShare]]:
        """The events and the neighbours with the largest shares, the largest first.

        channel: the output channel to sort by; by default, each share's largest magnitude over channels.
        """
        channels = slice(None) if channel is None else slice(channel, channel + 1 or None)

        def size(one: EventShare | NeighborShare) -> float:
            return float(-np.abs(one.share[channels]).max(initial=0))

        return sorted(self.events, key=size)[:count], sorted(self.neighbors, key=size)[:count]

    def __repr__(self) -> str:
        events, neighbors = self.top()
        lines = [f"node {self.id}, from event {self.since} to {self.seq}: {_numbers(self.movement)}"]
        for title, shown, number in (
            ("events", [(f"{one.seq} {one.what}", one.share) for one in events], len(self.events)),
            ("neighbors", [(one.what, one.share) for one in neighbors], len(self.neighbors)),
        ):
            width = max((len(what) for what, _ in shown), default=0)
            lines.append(title + (f" (the largest {len(shown)} of {number})" if number > len(shown) else ""))
            lines += [f"  {what:<{width}}  {_numbers(share)}" for what, share in shown] or ["  none"]
        return "\n".join(lines)


def explain(
    graph: Graph, history: History, model: Model, id: int | str, since: int, timeout: float | None = None
) -> Explanation:
    """Implements `Engine.explain`. Raises `UnknownNodeError`, `InputError` and `TimeoutExpired`."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    with graph.pin():
        return _explain(graph, history, model, id, since, deadline)


def _explain(
    graph: Graph, history: History, model: Model, id: int | str, since: int, deadline: float
) -> Explanation:
    name = model.node_type(model.output)

    def take_field() -> tuple[int, IntArray, ReceptiveField]:
        graph.indices_of(one_id(id), name)
        batches, number = history.since(since), graph.to_numbers(id)
        return graph.seq, number, ReceptiveField(graph, model, int(number[0]), batches)

    seq, number_of_node, field = _core.holding(graph.writer, take_field)
    field.go_back()
    shares: list[EventShare] = []
    before = now = _read_frame(graph, model, field)
    past = moved = _predict(model, field, now)
    for number, event in field.replay():
        frame = _read_frame(graph, model, field)
        if frame.equals(now):
            continue
        if time.monotonic() > deadline:
            raise TimeoutExpired(
                f"the prediction was to be explained in time, got as far as event {number} of {seq}: ask for "
                "fewer events, with a later since, or give it a longer timeout"
            )
        now, last = frame, moved
        moved = _predict(model, field, now)
        if number <= since:  # the batch began before
            before, past = now, moved
        elif not np.array_equal(moved, last):
            shares.append(_describe(graph, number, event, moved - last))
    return Explanation(
        _user_id(graph, number_of_node),
        since,
        seq,
        past if before.there else None,
        moved,
        shares,
        [
            NeighborShare(way and way.edge_type, _user_id(graph, numbers), share, bool(way and way.reverse))
            for way, numbers, share in _neighbors(graph, model, field, before, now, moved - past)
        ],
    )


def _read_frame(graph: Graph, model: Model, field: ReceptiveField) -> Frame:
    """The frame, with the columns of nodes that the model reads."""
    frame = field.frame()
    return replace(frame, x=narrowed(model, graph.schema, frame.x))


def _predict(model: Model, field: ReceptiveField, frame: Frame) -> DoubleArray:
    from livegnn.oracle import reference

    if not frame.there:
        return np.zeros(model.width(model.output))
    row: DoubleArray = reference.compute(model, frame, {})[model.output][field.place]
    return row


def _neighbors(
    graph: Graph, model: Model, field: ReceptiveField, before: Frame, now: Frame, movement: DoubleArray
) -> list[tuple[Way | None, IntArray, DoubleArray]]:
    if now.equals(before):
        return []
    ranks = {}
    for name, nodes in field.nodes.items():
        ranks[name] = np.empty(len(nodes), dtype=np.int64)
        ranks[name][np.argsort(graph.to_user_ids(nodes), kind="stable")] = np.arange(len(nodes))
    shares = share_among_neighbors(model, before, now, field.place, ranks, movement)
    return [
        (way, field.nodes[field.node_type if way is None else way.sender][[place]], share)
        for way, place, share in shares
    ]


def _describe(graph: Graph, seq: int, event: Chunk, share: DoubleArray) -> EventShare:
    ids = [event.ids] if event.dst is None else [event.ids, event.dst]
    return EventShare(
        seq,
        event.kind.removesuffix("s") if event.kind != "set_features" else event.kind,
        event.type,
        tuple(_user_id(graph, cast("IntArray", numbers)) for numbers in ids),
        share,
    )


def _user_id(graph: Graph, number: IntArray) -> int | str:
    id: int | str = graph.to_user_ids(number)[0].item()
    return id


def _numbers(values: "ArrayLike") -> str:
    return np.array2string(np.asarray(values), precision=4, suppress_small=True, max_line_width=100_000)
