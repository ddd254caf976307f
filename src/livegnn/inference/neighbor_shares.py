"""Divides the movement of one prediction among the neighbours that its last propagation reads.

The node is copied. The first copy reads only old values: its neighbours' messages and its own row. In each
further copy one more neighbour is new: its edge to the node, its row, and the degree that its messages may
depend on. The movement of the prediction from one copy to the next is that neighbour's share. In the last
copy the node's own row and its edge to itself are new too; the rest of the movement is its own share. All
copies are targets in one graph, on which the oracle computes the model from the last propagation on. This
works for every model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np

from livegnn.inference.receptive_field import Frame
from livegnn.network import Degree, Model, Propagate
from livegnn.types import DoubleArray, EdgeType, FloatArray, IntArray, NodeType

if TYPE_CHECKING:
    import numpy.typing as npt
    from jaxtyping import Float64, Int64

_EDGES_AT_ONCE = 1 << 20


class Way(NamedTuple):
    """The edges on which a neighbour's messages reach the node: their type and direction; `reverse` means
    from target to source."""

    edge_type: EdgeType
    reverse: bool

    @property
    def sender(self) -> NodeType:
        """The type of the neighbours."""
        return self.edge_type[2 if self.reverse else 0]


class Turns(NamedTuple):
    """The neighbours of a node in the order in which they become new; the last is the node itself, without a
    way.

    rows: of the output, float64 [neighbors + 1, outputs]: with nothing new, and after each of them. moved:
    whether the node's row depends on the news of each.
    """

    neighbors: list[tuple[Way | None, int]]
    rows: "Float64[DoubleArray, 'turns channels']"
    moved: list[bool]


@dataclass(frozen=True, eq=False)
class _Side:
    """The edges that carry messages to the node one way in one frame, ordered by neighbour.

    count: edges of each neighbour. of: the neighbour of each edge. weight, attr: of each edge.
    """

    count: IntArray
    of: IntArray
    weight: FloatArray
    attr: FloatArray


@dataclass(eq=False)
class _Senders:
    """The neighbours one way in either frame: their places, the edges in both frames, a mask of the node
    itself, and the copy at which each other neighbour becomes new: 0 if it is the same in both frames."""

    places: IntArray
    old: _Side
    new: _Side
    own: "npt.NDArray[np.bool_]"
    turn: IntArray


def share_among_neighbors(
    model: Model,
    before: Frame,
    now: Frame,
    place: int,
    ranks: "Mapping[NodeType, Int64[IntArray, '_']]",
    movement: "Float64[DoubleArray, 'channels']",
) -> "list[tuple[Way | None, int, Float64[DoubleArray, 'channels']]]":
    """The shares as (way, place, float64 [outputs]), ordered by way and rank; way None is the node itself.

    before, now: frames of one receptive field. place: the node's place. ranks: the ranks of all places, by
    node type. The shares add up to `movement`; shares of 0 are left out.
    """
    turns = take_turns(model, before, now, place, ranks)
    shares: list[tuple[Way | None, int, DoubleArray]] = [
        (way, neighbor, turns.rows[turn + 1] - turns.rows[turn])
        for turn, (way, neighbor) in enumerate(turns.neighbors)
        if turns.moved[turn] and way is not None
    ]
    if turns.moved[-1]:
        rest = movement - sum((share for *_, share in shares), np.zeros_like(movement))
        shares.append((None, place, rest))
    return shares


def take_turns(
    model: Model,
    before: Frame,
    now: Frame,
    place: int,
    ranks: "Mapping[NodeType, Int64[IntArray, '_']]",
) -> Turns:
    """The rows of the node as its neighbours become new, one after the other. The arguments are those of
    `share_among_neighbors`."""
    layer = _LastLayer(model, before, now, place)
    neighbors = layer.take_turns(ranks)
    rows, told = layer.compute(len(neighbors))
    # Compare the results of propagations, not predictions: a product may round a row by its position.
    moved = [not np.array_equal(told[turn], told[turn + 1]) for turn in range(len(told) - 1)]
    moved[-1] |= layer.own_differs
    return Turns([*neighbors, (None, place)], rows, moved)


class _LastLayer:
    def __init__(self, model: Model, before: Frame, now: Frame, place: int) -> None:
        from livegnn.oracle import reference

        self._model, self._place, self._own_turn = model, place, 0
        self._frames = before, now
        self._own_type = model.node_type(model.output)
        self._lasts, late = _last_propagations(model)
        self._reads_degrees = any("source_rsqrt" in operators.message_local for _, operators in self._lasts)
        # Rows of nodes that do not depend on the last propagations are taken from one of the two frames.
        needed, self._beside = _read(model, late)
        names = [name for name in needed if model.edge_type(name) is None and name not in late]
        both = [reference.compute(model, frame) for frame in self._frames]
        self._values = {name: (both[0][name], both[1][name]) for name in names}
        ways = [Way(e, operators.reverse) for _, operators in self._lasts for e in operators.edge_types]
        self._senders = {way: self._find_senders(way) for way in dict.fromkeys(ways)}
        # Messages in reverse need rows of their own: an edge counts in the degrees of both of its ends.
        self._sides = 2 if any(way.reverse for way in ways) else 1

    @property
    def own_differs(self) -> bool:
        """Whether the node was added or removed, or has another row in a value that is read beside the
        results of propagations."""
        before, now = self._frames
        return before.there != now.there or any(
            not np.array_equal(self._values[name][0][self._place], self._values[name][1][self._place])
            for name in self._beside
        )

    def take_turns(self, ranks: Mapping[NodeType, IntArray]) -> list[tuple[Way, int]]:
        """The neighbours that become new at the copies 1, 2, ..., without the node itself."""
        turns: list[tuple[Way, int]] = []
        for way, senders in self._senders.items():
            rows = np.flatnonzero(self._differs(way, senders) & ~senders.own)
            rows = rows[np.argsort(ranks[way.sender][senders.places[rows]])]
            senders.turn[rows] = np.arange(len(turns) + 1, len(turns) + 1 + len(rows))
            turns += [(way, place) for place in senders.places[rows].tolist()]
        return turns

    def compute(self, turns: int) -> tuple[DoubleArray, list[DoubleArray]]:
        """The predictions of all copies, [turns + 2, outputs], and the results of the last propagations for
        each. In the last copy the node's own row is new too.
        """
        self._own_turn = turns + 1
        edges = sum(
            max(len(senders.places), len(senders.old.of), len(senders.new.of))
            for senders in self._senders.values()
        )
        at_once = max(2, _EDGES_AT_ONCE // max(edges, 1))
        starts = range(0, turns + 2, at_once)
        parts = [self._compute(np.arange(i, min(i + at_once, turns + 2))) for i in starts]
        return np.concatenate([rows for rows, _ in parts]), [row for _, told in parts for row in told]

    def _compute(self, copies: IntArray) -> tuple[DoubleArray, list[DoubleArray]]:
        from livegnn.oracle import reference

        counts = {name: len(x) for name, x in self._frames[0].x.items()}
        first = 2 * self._sides * counts[self._own_type]
        given = {}
        for name, both in self._values.items():
            given[name] = np.concatenate(both * self._sides)
            if self._model.node_type(name) == self._own_type:
                is_new = (copies == self._own_turn)[:, None]
                copied = np.where(is_new, both[1][self._place], both[0][self._place])
                given[name] = np.concatenate([given[name], copied])
        sizes = {
            name: 2 * self._sides * n + len(copies) * (name == self._own_type) for name, n in counts.items()
        }
        edges = {
            edge_type: self._edges(edge_type, copies, counts, first)
            for edge_type in dict.fromkeys(way.edge_type for way in self._senders)
        }
        arrays = reference.GraphArrays(
            {name: np.zeros((size, 0), dtype=np.float32) for name, size in sizes.items()},
            {edge_type: ends for edge_type, (ends, _, _) in edges.items()},
            {edge_type: weight for edge_type, (_, weight, _) in edges.items()},
            {edge_type: attr for edge_type, (_, _, attr) in edges.items()},
        )
        values = reference.compute(self._model, arrays, given)
        nothing = np.zeros((len(copies), 0))
        told = np.concatenate([nothing, *(values[output][first:] for output, _ in self._lasts)], axis=1)
        return values[self._model.output][first:], list(told)

    def _edges(
        self, edge_type: EdgeType, copies: IntArray, counts: Mapping[NodeType, int], first: int
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """The edges of one type between the copies and their neighbours, and, if degrees count, those of the
        two frames: ends, weights and features. Rows of nodes: those of the first frame, by place, then those
        of the second; if messages go in reverse, both once more; then the copies.
        """
        ways = [way for way in self._senders if way.edge_type == edge_type]
        parts = [self._edges_one_way(way, copies, counts, first) for way in ways]
        if len(ways) == 2:  # a loop is both an in-edge and an out-edge of the node
            ends, weight, attr = parts[1]
            kept = ends[0] != ends[1]
            parts[1] = ends[:, kept], weight[kept], attr[kept]
        if self._reads_degrees:
            shift = np.array([[counts[edge_type[0]]], [counts[edge_type[2]]]])
            for i, frame in enumerate(self._frames * self._sides):
                ends = frame.edge_index[edge_type] + i * shift
                parts.append((ends, frame.weight[edge_type], frame.edge_attr[edge_type]))
        every_end, weights, attrs = zip(*parts, strict=True)
        return np.concatenate(every_end, axis=1), np.concatenate(weights), np.concatenate(attrs)

    def _edges_one_way(
        self, way: Way, copies: IntArray, counts: Mapping[NodeType, int], first: int
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        senders = self._senders[way]
        old, new = senders.old, senders.new
        is_new = np.where(senders.own, self._own_turn, senders.turn) <= copies[:, None]
        copy, row, nth = _spread(np.where(is_new, new.count, old.count))
        chosen = is_new[copy, row]
        old_begin, new_begin = (np.cumsum(side.count) - side.count for side in (old, new))
        edge = nth + np.where(chosen, len(old.of) + new_begin[row], old_begin[row])
        frame = chosen + 2 * way.reverse
        sender = np.where(senders.own[row], first + copy, senders.places[row] + frame * counts[way.sender])
        ends = np.stack([first + copy, sender] if way.reverse else [sender, first + copy])
        weight, attr = np.concatenate([old.weight, new.weight]), np.concatenate([old.attr, new.attr])
        return ends, weight[edge], attr[edge]

    def _find_senders(self, way: Way) -> _Senders:
        found = []
        for frame in self._frames:
            source, target = frame.edge_index[way.edge_type]
            sender, receiver = (target, source) if way.reverse else (source, target)
            into = receiver == self._place
            weight, attr = frame.weight[way.edge_type][into], frame.edge_attr[way.edge_type][into]
            # Frames are sorted by target and source, so the edges of a neighbour are in order in reverse too.
            found.append((sender[into], weight, attr))
        places = np.union1d(found[0][0], found[1][0])
        sides = []
        for sender, weight, attr in found:
            of = np.searchsorted(places, sender)
            sides.append(_Side(np.bincount(of, minlength=len(places)), of, weight, attr))
        own = (places == self._place) & (way.sender == self._own_type)
        return _Senders(places, sides[0], sides[1], own, np.zeros(len(places), dtype=np.int64))

    def _differs(self, way: Way, senders: _Senders) -> "npt.NDArray[np.bool_]":
        old, new, places = senders.old, senders.new, senders.places
        differs: npt.NDArray[np.bool_] = old.count != new.count
        # For neighbours with as many edges as before, compare edge by edge.
        mine, theirs = ~differs[old.of], ~differs[new.of]
        changed = (old.weight[mine] != new.weight[theirs]) | (old.attr[mine] != new.attr[theirs]).any(axis=1)
        differs[old.of[mine][changed]] = True
        for name, (then, now) in self._values.items():
            if self._model.node_type(name) == way.sender:
                differs |= (then[places] != now[places]).any(axis=1)
        for _, operators in self._lasts:
            read = (operators.edge_types, operators.reverse) == ((way.edge_type,), way.reverse)
            if read and "source_rsqrt" in operators.message_local:
                then, now = (_degrees(operators, frame) for frame in self._frames)
                differs |= then[places] != now[places]
        return differs


def _spread(counts: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """For a matrix of counts: the row, the column and the number within its cell of each counted item, row
    by row."""
    each = counts.ravel()
    cell = np.repeat(np.arange(each.size), each)
    nth = np.arange(len(cell)) - np.repeat(np.cumsum(each) - each, each)
    row, column = np.divmod(cell, max(counts.shape[1], 1))
    return row, column, nth


def _degrees(operators: Propagate, frame: Frame) -> DoubleArray:
    """The degrees of nodes on which the messages of a propagation with ``source_rsqrt`` depend.

    The oracle counts them: a loop may count for nothing, replace one that is added, or hide others. So the
    degree can move while a node keeps as many in-edges as before, of the same weight in all.
    """
    from livegnn.oracle import reference

    (edge_type,) = operators.edge_types
    kind = cast("Literal['count', 'sum']", operators.neighbor_context)
    given = Degree(edge_type, kind, operators.self_loops, operators.skip_loops, operators.reverse)
    return reference.degree(given, frame)[:, 0]


def _last_propagations(model: Model) -> tuple[list[tuple[str, Propagate]], set[str]]:
    """Returns the propagations that the output depends on and that feed no other propagation, each with its
    output and operators; and the values that depend on them."""
    needed, feeding = {model.output}, set[str]()
    for step in reversed(model.steps):
        if step.output not in needed:
            continue
        needed.update(step.inputs)
        if step.op == "propagate" or step.output in feeding:
            feeding.update(step.inputs)
    lasts, late = [], set[str]()
    for step in model.steps:
        last = step.op == "propagate" and step.output in needed and step.output not in feeding
        if last:
            lasts.append((step.output, Propagate.from_step(step)))
        if last or not late.isdisjoint(step.inputs):
            late.add(step.output)
    return lasts, late


def _read(model: Model, late: set[str]) -> tuple[set[str], set[str]]:
    """Returns the values needed to compute the output from rows of nodes that are not `late`, these rows
    included; and the subset of these rows that is read beside the results of the last propagations.
    """
    needed, beside = {model.output}, {model.output} - late
    for step in reversed(model.steps):
        on_edges = model.edge_type(step.output) is not None
        if step.output in needed and (step.output in late or on_edges):
            needed.update(step.inputs)
            if step.op != "propagate" and not on_edges:
                beside |= set(step.inputs) - late
    return needed, beside
