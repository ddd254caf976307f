"""Explains why the score of an edge, or of a pair of nodes, moved.

A score reads rows of both ends, and columns of the edge. First the neighbours of the source become new, one
after the other, then those of the target. The rest of the movement is the edge's own share.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

import livegnn._core as _core
from livegnn.arguments import one_id
from livegnn.graph import Graph
from livegnn.inference.edge_pairs import Pairs
from livegnn.inference.event_shares import Movement, share_among_events, user_id
from livegnn.inference.explanation import EdgeExplanation, End, NeighborShare
from livegnn.inference.history import History, edges_of
from livegnn.inference.neighbor_shares import Turns, take_turns
from livegnn.inference.node_explanation import read_frame
from livegnn.inference.reads import ReadEdge, Start
from livegnn.inference.receptive_field import Frame, ReceptiveField
from livegnn.network import Model, Step
from livegnn.network.outputs import EdgeOutput, without_edge_outputs
from livegnn.types import DoubleArray, FloatArray, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float64


@dataclass(frozen=True, eq=False)
class _Moment:
    """The inputs of a score at one moment.

    columns: the weight, [1], and the features, [1, channels], of the edge; None if it is not in the graph.
    """

    frame: Frame
    columns: tuple[FloatArray, FloatArray] | None

    @property
    def there(self) -> bool:
        return all(self.frame.there) and self.columns is not None

    def equals(self, other: Self) -> bool:
        return self.has_edge_of(other) and self.frame.equals(other.frame)

    def has_edge_of(self, other: Self) -> bool:
        if self.columns is None or other.columns is None:
            return self.columns is other.columns
        return all(np.array_equal(*both) for both in zip(self.columns, other.columns, strict=True))


class _End:
    """An end of the edge: the outputs that the decoder reads there, and a model of these alone, side by side.
    model: None if it reads none."""

    def __init__(self, model: Model, name: End, node_type: NodeType, outputs: Sequence[str]) -> None:
        self.name, self.node_type = name, node_type
        self.values = tuple(dict.fromkeys(model.outputs[output] for output in outputs))
        self._widths = [model.width(value) for value in self.values]
        self.model = _join(model, self.values) if self.values else None

    def split(self, rows: "Float64[DoubleArray, 'rows channels']") -> dict[str, DoubleArray]:
        """The rows of each value, from rows of the model of this end."""
        parts = np.split(rows, np.cumsum(self._widths)[:-1], axis=1) if self.values else []
        return dict(zip(self.values, parts, strict=True))


def _join(model: Model, values: Sequence[str]) -> Model:
    """A model whose only output is these values side by side."""
    model = without_edge_outputs(model)
    output, steps = values[0], model.steps
    if len(values) > 1:
        output = "joined"
        while output in (*model.inputs, *model.edge_inputs, *(step.output for step in steps)):
            output += "_"
        steps = (*steps, Step("concat", tuple(values), output))
    layers = (model.layers[0], output)
    return replace(model, steps=steps, output=output, layers=layers, outputs={}, edge_outputs={}, query=None)


class _Scores:
    """The scores of one edge, or of one pair of nodes. given: the columns of a pair; None for an edge."""

    def __init__(self, graph: Graph, model: Model, chosen: EdgeOutput, given: Pairs | None) -> None:
        self._graph, self._model, self._chosen, self._given = graph, model, chosen, given
        scores = chosen.scores
        source, _, target = scores.edge_type
        self.source = _End(model, "source", source, tuple(scores.sources.values()))
        self.target = _End(model, "target", target, tuple(scores.targets.values()))

    def read(self, field: ReceptiveField) -> _Moment:
        """The moment that the replay of a field has reached."""
        given = self._given
        if given is None:
            columns = field.read_edge()
        else:
            weight, attr = given.edge_weight, given.edge_attr
            columns = (
                np.ones(1, np.float32) if weight is None else weight,
                np.zeros((1, 0), np.float32) if attr is None else attr,
            )
        return _Moment(read_frame(self._graph, self._model, field), columns)

    def compute(self, field: ReceptiveField, moment: _Moment) -> DoubleArray:
        """The score at a moment; zeros if there is none."""
        from livegnn.oracle import reference

        if not moment.there:
            return np.zeros(self._chosen.scores.width)
        of_source, of_target = (
            np.zeros((1, 0))
            if end.model is None
            else reference.compute(end.model, moment.frame, {})[end.model.output][[place]]
            for end, place in zip((self.source, self.target), field.places, strict=True)
        )
        row: DoubleArray = self.decode(of_source, of_target, moment)[0]
        return row

    @np.errstate(over="ignore", invalid="ignore")
    def decode(
        self,
        sources: "Float64[DoubleArray, '_ _']",
        targets: "Float64[DoubleArray, '_ _']",
        moment: _Moment,
    ) -> "Float64[DoubleArray, 'rows channels']":
        """The scores of rows of both ends, as of the models of the ends, with the edge's columns of a moment.
        One row stands for all."""
        from livegnn.oracle.edge_reference import compute_edge_output

        count = max(len(sources), len(targets))
        sources, targets = (np.repeat(rows, count // len(rows), axis=0) for rows in (sources, targets))
        of_sources, of_targets = self.source.split(sources), self.target.split(targets)
        values: dict[str, DoubleArray] = {"": np.zeros((0, 0))}
        for value in {**of_sources, **of_targets}:
            none = np.zeros((count, self._model.width(value)))
            values[value] = np.concatenate([of_sources.get(value, none), of_targets.get(value, none)])
        assert moment.columns is not None
        weight, attr = (np.repeat(column, count, axis=0) for column in moment.columns)
        ends = np.stack([np.arange(count), np.arange(count) + count])
        return compute_edge_output(
            self._model, self._chosen.name, values, ends, edge_attr=attr, weight=weight
        )

    def share(
        self, field: ReceptiveField, moved: Movement[_Moment]
    ) -> tuple[list[NeighborShare], DoubleArray]:
        """The shares of the neighbours of both ends, and that of the edge itself."""
        before, now, movement = moved.before, moved.now, moved.value_now - moved.value_before
        none = np.zeros_like(movement)
        if now.equals(before):
            return [], none
        turns = [self._turn(field, before.frame, now.frame, at) for at in (0, 1)]
        old, new = ([one.rows[[at]] for one in turns] for at in (0, -1))
        columns = now if before.columns is None else before
        shares: list[NeighborShare] = []
        for at, end in enumerate((self.source, self.target)):
            rows = (turns[0].rows, old[1]) if at == 0 else (new[0], turns[1].rows)
            scores = self.decode(*rows, columns)
            for turn, (way, neighbor) in enumerate(turns[at].neighbors):
                share = scores[turn + 1] - scores[turn]
                if not turns[at].moved[turn] or np.array_equal(share, none):
                    continue
                name = end.node_type if way is None else way.sender
                id = user_id(self._graph, field.nodes[name][[neighbor]])
                edge_type, reverse = (None, False) if way is None else way
                shares.append(NeighborShare(edge_type, id, share, reverse, end.name))
        if before.there == now.there and before.has_edge_of(now):
            return shares, none
        return shares, movement - sum((one.share for one in shares), none)

    def _turn(self, field: ReceptiveField, before: Frame, now: Frame, at: int) -> Turns:
        end, place = (self.source, self.target)[at], field.places[at]
        if end.model is None:
            return Turns([(None, place)], np.zeros((2, 0)), [False])
        old, new = (replace(frame, there=(frame.there[at],)) for frame in (before, now))
        return take_turns(end.model, old, new, place, field.ranks())


def explain_edge(
    graph: Graph,
    history: History,
    model: Model,
    chosen: EdgeOutput,
    ends: tuple[int | str, int | str],
    *,
    key: int | None = None,
    given: Pairs | None = None,
    since: int,
    timeout: float | None = None,
) -> EdgeExplanation:
    """Implements `Engine.explain_edge`, and with `given`, the columns of a pair, `Engine.explain_score`.

    Raises `UnknownNodeError`, `UnknownEdgeError`, `InputError` and `TimeoutExpired`.
    """
    with graph.pin():
        scores = _Scores(graph, model, chosen, given)

        def take_field() -> tuple[int, list[IntArray], ReadEdge | None, ReceptiveField]:
            batches, numbers = history.since(since), _numbers(graph, chosen, ends)
            edge = None if given is not None else _find_edge(graph, chosen, ends, numbers, key)
            starts = [
                Start(end.node_type, int(number[0]), end.values)
                for end, number in zip((scores.source, scores.target), numbers, strict=True)
            ]
            return graph.seq, numbers, edge, ReceptiveField(graph, model, starts, batches, edge)

        seq, numbers, edge, field = _core.holding(graph.writer, take_field)
        moved = share_among_events(
            graph,
            field,
            since,
            seq,
            read=lambda: scores.read(field),
            compute=lambda moment: scores.compute(field, moment),
            timeout=timeout,
        )
        neighbors, of_edge = scores.share(field, moved)
        source, target = (user_id(graph, number) for number in numbers)
        edges = graph.schema.edge_types.get(chosen.scores.edge_type)
        keyed = edge is not None and edges is not None and edges.duplicates == "keep"
        return EdgeExplanation(
            source=source,
            target=target,
            key=edge.key if edge is not None and keyed else None,
            output=chosen.name,
            since=since,
            seq=seq,
            before=moved.value_before if moved.before.there else None,
            after=moved.value_now,
            events=moved.shares,
            neighbors=neighbors,
            edge_share=of_edge,
        )


def _numbers(graph: Graph, chosen: EdgeOutput, ends: tuple[int | str, int | str]) -> list[IntArray]:
    """The numbers of the ends, [1] each. Raises `UnknownNodeError`."""
    source, _, target = chosen.scores.edge_type
    for id, name in zip(ends, (source, target), strict=True):
        graph.indices_of(one_id(id), name)
    return [graph.to_numbers(id) for id in ends]


def _find_edge(
    graph: Graph,
    chosen: EdgeOutput,
    ends: tuple[int | str, int | str],
    numbers: Sequence[IntArray],
    key: int | None,
) -> ReadEdge:
    """The edge with a key, or without a key the one with the greatest. Raises `UnknownEdgeError`."""
    edge_type = chosen.scores.edge_type
    graph.edge_attr(*ends, edge_type, key=None if key is None else [key])
    if key is None and graph.schema.edge_types[edge_type].duplicates == "keep":
        reverse = not graph.schema.edge_types[edge_type].in_neighbors
        found = edges_of(graph, edge_type, numbers[0 if reverse else 1], reverse=reverse)
        others, other = (found.target, numbers[1]) if reverse else (found.source, numbers[0])
        key = int(found.key[others == other].max())
    return ReadEdge(edge_type, int(numbers[0][0]), int(numbers[1][0]), key or 0)
