"""Graphs that are the parts of a divided one, in one process."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import livegnn._core as _core
from livegnn.errors import InputError
from livegnn.graph.graph import Graph
from livegnn.types import IntArray

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from jaxtyping import Int64, UInt16
    from numpy.typing import NDArray

    from livegnn.graph.node_ids import NodeIds
    from livegnn.schema import Schema
    from livegnn.types import EdgeType, NodeType


class PartCounts(NamedTuple):
    """Counts of a graph in parts. edges: by edge type; an undirected edge counts once. cut: of these, the
    edges whose ends are in two parts. nodes: by node type, for each part. sent: for each part, the bytes that
    it has sent to other parts since it began.
    """

    edges: "Mapping[EdgeType, int]"
    cut: "Mapping[EdgeType, int]"
    nodes: "Mapping[NodeType, Sequence[int]]"
    sent: "Sequence[int]"

    def balance(self) -> "dict[NodeType, float]":
        """By node type, the most nodes of a part over the mean; 1 if there are none."""
        return {
            name: max(counts) * len(counts) / total if (total := sum(counts)) else 1.0
            for name, counts in self.nodes.items()
        }


def make_part(
    schema: "Schema",
    owners: "Sequence[_core.Owners]",
    part: int | None,
    *,
    names: Graph | None = None,
    ids: "NodeIds | None" = None,
    threads: int | None = None,
    features_dir: "str | os.PathLike[str] | None" = None,
) -> Graph:
    """An empty graph that keeps the edges with an end that `part` owns. All parts must receive all batches.

    owners: by node type. part: None for one that owns no node and keeps no edge, but knows all ids. names: a
    part whose texts the new one shares, so that both have the same number for a text, and so the same owner.
    ids: instead of its own.
    """
    graph = Graph(schema, threads=threads, features_dir=features_dir)
    if names is not None:
        _share_texts(graph, names)
    if ids is not None:
        graph.node_ids = graph.core.node_ids = ids
    _core.divide(graph.native, list(owners), -1 if part is None else part)
    graph.names_only = part is None
    return graph


def refuse_divided(graph: Graph, what: str) -> None:
    """Raises `InputError` if the edges are in parts elsewhere. what: the subject that needs them."""
    if graph.names_only:
        raise InputError(
            f"{what} must read the edges of a graph in one piece, got a graph in parts: run it without "
            "partitions in [cluster]"
        )


def join(names: Graph, parts: list[Graph], *, threads: int | None = None) -> Graph:
    """The graph of which these are the parts, in their order: the reverse of `divide`, to the order of each
    list. Ids of texts keep their numbers. No batch may be applied to the parts meanwhile.
    """
    graph = Graph(names.schema, threads=threads)
    _share_texts(graph, names)
    _core.join_shares([part.native for part in parts], graph.native)
    graph.seq = names.seq
    return graph


def divide(
    graph: Graph,
    owners: "Sequence[_core.Owners]",
    parts: int,
    *,
    placed: "Mapping[int, UInt16[NDArray[np.uint16], '_']] | None" = None,
    threads: int | None = None,
) -> tuple[Graph, list[Graph]]:
    """The parts of a graph: one that owns no node and keeps no edge, and then all that do, by number.

    placed: by the number of a node type, the owner of each index, for types whose nodes do not follow
    `owners`; those that arrive later do. Every list of a node is in its owner's part as it is in the graph.
    Ids of texts keep their numbers. No batch may be applied to the graph meanwhile.
    """

    def take(part: int | None, names: Graph) -> Graph:
        made = make_part(graph.schema, owners, part, names=names, threads=1 if part is None else threads)
        for node_type, by_index in (placed or {}).items():
            _core.load_owners(made.native, node_type, by_index)
        _core.take_share(graph.native, made.native)
        made.seq = graph.seq
        return made

    names = take(None, graph)
    taken = [take(part, names) for part in range(parts)]
    if _core.places_nodes(names.native):
        _core.set_ends_of_edges(names.native, count_ends(taken))
    return names, taken


def count_ends(parts: "Sequence[Graph]") -> "Int64[IntArray, 'types']":
    """The ends of edges at nodes of each type, which the parts count: `set_ends_of_edges` of their names."""
    counts: IntArray = np.sum([_core.ends_of_edges(part.native) for part in parts], axis=0)
    return counts


def _share_texts(graph: Graph, names: Graph) -> None:
    if names.node_ids.texts is not None:
        graph.node_ids = graph.core.node_ids = names.node_ids
        graph.native.use_texts(names.node_ids.texts)
