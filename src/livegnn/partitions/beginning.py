"""The graphs and states with which parts begin: empty ones, or those of a graph that is there."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from livegnn.errors import FileFormatError, InputError
from livegnn.graph import Graph
from livegnn.graph.division import divide, make_part
from livegnn.placement import Owners, Partition, partition_graph
from livegnn.placement.owners import NO_OWNER
from livegnn.schema import Schema
from livegnn.types import State
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from jaxtyping import UInt16
    from numpy.typing import NDArray


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
    def of(
        cls,
        graph: Graph,
        rules: Sequence[Owners],
        threads: int | None,
        state: State | None,
        partition: Partition | None = None,
    ) -> Self:
        """The parts of a graph. partition: the owners of its nodes of the types that Fennel places; None: as
        `partition_graph` finds them by Fennel. state: of an engine that keeps all rows, at the same event.
        Raises `InputError`, and `FileFormatError` for the state of an engine that has not computed all rows.

        The caller holds `Graph.writer`.
        """
        if not isinstance(graph, Graph):
            raise InputError(f"expected a Graph to divide, got {kind_of(graph)}")
        if state is not None and "lazy/eager" in state.arrays:
            raise FileFormatError(
                "the state of a lazy engine has rows that are not computed, so it cannot be divided: settle "
                "the engine first, or leave the state out, and the parts compute all rows"
            )
        if state is not None and "scaled" not in state.meta:
            state = None  # of an old version, which an engine would compute again too
        names, graphs = divide(
            graph,
            [rule.native for rule in rules],
            rules[0].workers,
            placed=_place(graph, rules, partition),
            threads=threads,
        )
        return cls(names, tuple(graphs), None if state is None else (state,) * len(graphs))


def _place(
    graph: Graph, rules: Sequence[Owners], partition: Partition | None
) -> "dict[int, UInt16[NDArray[np.uint16], '_']]":
    """The owner of each index, by the number of a node type, of the types that Fennel places."""
    placed = [number for number, rule in enumerate(rules) if rule.rule == "fennel"]
    if not placed:
        return {}
    if partition is None and not any(map(graph.num_nodes, graph.schema.node_types)):
        return {
            number: np.full(graph.native.capacity(number), NO_OWNER, np.uint16) for number in placed
        }  # there may be indices whose nodes were removed
    workers = rules[0].workers
    if partition is None:
        partition = partition_graph(graph, workers, partitioner="fennel")
    tables = list(partition.owners_in(graph, workers).values())
    return {number: tables[number].native.table() for number in placed}
