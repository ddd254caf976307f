"""The features and the edges that rows of a model read, found without computing anything."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from livegnn.network import Degree, Model, Propagate, Step
from livegnn.types import EdgeType, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Int64

NOBODY: IntArray = np.empty(0, dtype=np.int64)


class Start(NamedTuple):
    """A node, by its number, whose rows of some values of the model are read."""

    node_type: NodeType
    number: int
    values: tuple[str, ...]


class ReadEdge(NamedTuple):
    """An edge whose own columns are read, by the numbers of its ends; key: 0 in a type without keys."""

    edge_type: EdgeType
    source: int
    target: int
    key: int


class Reads:
    """The features and the edges that a prediction reads, found by walking the model's steps backwards from
    the values of the starts. edge: its own columns are read too, with the in-edges of its target, or, if its
    type keeps none, the out-edges of its source.

    features: the nodes whose features are read, ascending numbers by type. targets: the nodes whose in-edges
    are read, by edge type. sources: the nodes whose out-edges are read. nodes: all of these, and both ends of
    all edges that are read. If a message depends on its sender's degree, the sender's edges are read too.
    others_of: returns the nodes with an edge of a type into any of the given nodes, or, in reverse, from any
    of them, at any moment from the first batch until now.
    """

    def __init__(
        self,
        model: Model,
        starts: Sequence[Start],
        others_of: Callable[[EdgeType, IntArray, bool], IntArray],
        edge: ReadEdge | None = None,
        *,
        reverse: bool = False,
    ) -> None:
        self.features: dict[NodeType, IntArray] = {}
        self.targets: dict[EdgeType, IntArray] = {}
        self.sources: dict[EdgeType, IntArray] = {}
        self.nodes: dict[NodeType, IntArray] = {}
        self._model = model
        self._others_of = others_of
        # The rows of a value that are read. For rows of edges: `_rows` has targets of edges whose rows are
        # read, `_leaving` has sources of such edges.
        self._rows: dict[str, IntArray] = {}
        self._leaving: dict[str, IntArray] = {}
        for name, number, values in starts:
            _add(self.nodes, name, np.array([number]))
            for value in values:
                _add(self._rows, value, np.array([number]))
        for step in reversed(model.steps):
            self._read(step)
        if edge is not None:
            self._read_edges(edge.edge_type, np.array([edge.source if reverse else edge.target]), reverse)
        for name, given in model.inputs.items():
            _add(self.features, given.node_type, self._rows.get(name, NOBODY))
            _add(self.nodes, given.node_type, self._rows.get(name, NOBODY))

    def _read(self, step: Step) -> None:
        for reverse, rows_of in ((False, self._rows), (True, self._leaving)):
            rows = rows_of.get(step.output)
            if rows is None:
                continue
            if step.op == "propagate":
                self._read_messages(Propagate.from_step(step), step.inputs, rows)
            elif step.op == "degree":
                given = Degree.from_step(step)
                self._read_edges(given.edge_type, rows, given.reverse)
            elif step.op in ("source", "target"):
                others = (step.op == "source") != reverse
                ends = self._read_edges(step.edge_type(), rows, reverse) if others else rows
                _add(self._rows, step.inputs[0], ends)
            else:
                for name in step.inputs:
                    _add(rows_of, name, rows)

    def _read_messages(self, operators: Propagate, inputs: Sequence[str], rows: IntArray) -> None:
        each = 2 if operators.coefficients else 1
        on_edges = self._leaving if operators.reverse else self._rows
        for i, edge_type in enumerate(operators.edge_types):
            senders = self._read_edges(edge_type, rows, operators.reverse)
            if "source_rsqrt" in operators.message_local:
                self._read_edges(edge_type, senders, operators.reverse)
            value, *coefficients = inputs[each * i : each * (i + 1)]
            if self._model.edge_type(value) is None:
                _add(self._rows, value, senders)
            else:
                _add(on_edges, value, rows)
            if operators.self_loops is not None:
                _add(self._rows, value, rows)
            for name in coefficients:
                _add(on_edges, name, rows)
        for name in inputs[each * len(operators.edge_types) :]:
            _add(self._rows, name, rows)

    def _read_edges(self, edge_type: EdgeType, rows: IntArray, reverse: bool) -> IntArray:
        others = self._others_of(edge_type, rows, reverse)
        _add(self.sources if reverse else self.targets, edge_type, rows)
        _add(self.nodes, edge_type[2 if reverse else 0], others)
        _add(self.nodes, edge_type[0 if reverse else 2], rows)
        return others


def _add(to: dict[str, IntArray] | dict[EdgeType, IntArray], key: str | EdgeType, numbers: IntArray) -> None:
    sets = cast("dict[str | EdgeType, IntArray]", to)
    sets[key] = union(sets.get(key, NOBODY), numbers)


def union(a: "Int64[IntArray, '_']", b: "Int64[IntArray, '_']") -> "Int64[IntArray, '_']":
    """The union, ascending. A stable sort merges two sorted runs; NumPy's own union hashes instead."""
    merged = np.sort(np.concatenate([a, b]), kind="stable")
    differs = np.full(len(merged), True)
    differs[1:] = merged[1:] != merged[:-1]
    return cast("IntArray", merged[differs])
