"""The graphs and states with which parts begin: empty ones, or those of a graph that is there."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from livegnn.errors import FileFormatError, InputError
from livegnn.graph import Graph
from livegnn.graph.division import divide, make_part
from livegnn.placement import Owners
from livegnn.schema import Schema
from livegnn.types import State
from livegnn.wording import kind_of


class Beginning(NamedTuple):
    """names: a graph with all nodes, which keeps no edges. graphs: by part. states: of the parts' engines;
    None if all have to compute their rows."""

    names: Graph
    graphs: tuple[Graph, ...]
    states: tuple[State, ...] | None

    @classmethod
    def empty(cls, schema: Schema, rules: Sequence[Owners], threads: int | None) -> Self:
        """Without nodes: there is nothing to compute. rules: by node type."""
        natives = [rule.native for rule in rules]
        names = make_part(schema, natives, None, threads=1)
        graphs = (
            make_part(schema, natives, number, names=names, threads=threads)
            for number in range(rules[0].workers)
        )
        return cls(names, tuple(graphs), None)

    @classmethod
    def of(cls, graph: Graph, rules: Sequence[Owners], threads: int | None, state: State | None) -> Self:
        """The parts of a graph. state: of an engine that keeps all rows, at the same event. Raises
        `InputError`, and `FileFormatError` for the state of an engine that has not computed all rows.

        The caller holds `Graph.writer`.
        """
        if not isinstance(graph, Graph):
            raise InputError(f"expected a Graph to divide, got {kind_of(graph)}")
        if any(rule.rule == "fennel" for rule in rules):
            raise InputError(
                "owners of the nodes of a graph that is divided must follow from their ids, got 'fennel', "
                "which places nodes when they arrive: use 'jump' or 'modulo', or begin with an empty graph"
            )
        if state is not None and "lazy/eager" in state.arrays:
            raise FileFormatError(
                "the state of a lazy engine has rows that are not computed, so it cannot be divided: settle "
                "the engine first, or leave the state out, and the parts compute all rows"
            )
        if state is not None and "scaled" not in state.meta:
            state = None  # of an old version, which an engine would compute again too
        names, graphs = divide(graph, [rule.native for rule in rules], rules[0].workers, threads=threads)
        return cls(names, tuple(graphs), None if state is None else (state,) * len(graphs))
