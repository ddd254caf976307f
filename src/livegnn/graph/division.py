"""Graphs that are the parts of a divided one, in one process."""

from typing import TYPE_CHECKING

import livegnn._core as _core
from livegnn.errors import InputError
from livegnn.graph.graph import Graph

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from livegnn.schema import Schema


def make_part(
    schema: "Schema",
    owners: "Sequence[_core.Owners]",
    part: int | None,
    *,
    names: Graph | None = None,
    threads: int | None = None,
    features_dir: "str | os.PathLike[str] | None" = None,
) -> Graph:
    """An empty graph that keeps the edges with an end that `part` owns. All parts must receive all batches.

    owners: by node type. part: None for one that owns no node and keeps no edge, but knows all ids. names: a
    part whose texts the new one shares, so that both have the same number for a text, and so the same owner.
    """
    graph = Graph(schema, threads=threads, features_dir=features_dir)
    if names is not None:
        _share_texts(graph, names)
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
    graph: Graph, owners: "Sequence[_core.Owners]", parts: int, *, threads: int | None = None
) -> tuple[Graph, list[Graph]]:
    """The parts of a graph: one that owns no node and keeps no edge, and then all that do, by number.

    Every list of a node is in its owner's part as it is in the graph. Ids of texts keep their numbers. No
    batch may be applied to the graph meanwhile.
    """

    def take(part: int | None, names: Graph) -> Graph:
        made = make_part(graph.schema, owners, part, names=names, threads=1 if part is None else threads)
        _core.take_share(graph.native, made.native)
        made.seq = graph.seq
        return made

    names = take(None, graph)
    return names, [take(part, names) for part in range(parts)]


def _share_texts(graph: Graph, names: Graph) -> None:
    if names.node_ids.texts is not None:
        graph.node_ids = graph.core.node_ids = names.node_ids
        graph.native.use_texts(names.node_ids.texts)
