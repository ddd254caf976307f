"""Adds unknown nodes that an edge or features name, if `Schema.auto_add` has their type.

The added nodes depend only on the graph, the events and the schema, so a replay adds the same nodes.

Thread safety: the caller must hold `Graph.writer`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

import livegnn._core as _core
from livegnn.errors import InputError
from livegnn.graph.native_graph import NativeGraph
from livegnn.schema import Schema
from livegnn.types import NodeType

if TYPE_CHECKING:
    from livegnn.events import Chunk
    from livegnn.types import IntArray

AutoAdd: TypeAlias = Mapping[NodeType, Sequence[float] | None] | Sequence[NodeType]
"""Node types whose nodes are added when first named, with their features; None, or a list, for zeros."""


def add_unknown_nodes(graph: NativeGraph, stage: "_core.Stage", chunk: "Chunk", *nodes: "IntArray") -> None:
    """Adds the nodes that a chunk names and the graph lacks, if `auto_add` of the schema has their type.

    nodes: the numbers of the chunk's nodes; for edges, the numbers of the sources and those of the targets.
    """
    types = [chunk.type] if isinstance(chunk.type, str) else [chunk.type[0], chunk.type[2]]
    for node_type, numbers in zip(types, nodes, strict=True):
        features = graph.schema.auto_add.get(node_type)
        if features is not None:
            row = np.array(features, np.float32) if features else None
            stage.add_unknown(graph.schema.node_type_index(node_type), numbers, row)


def auto_add_nodes(graph: NativeGraph, auto_add: AutoAdd) -> None:
    """Adds types to `Schema.auto_add`: from now on, events that name unknown nodes of these types add them.

    No type may be changed or removed, so that a replay of the graph's log adds the same nodes. Raises
    `InputError` if one is, and for types or features that `Schema` refuses.
    """
    _core.holding(graph.writer, _auto_add, graph, auto_add)


def _complete(schema: Schema, auto_add: AutoAdd) -> AutoAdd:
    """The same, with the values of columns that a growth of the schema has added in rows that lack them."""
    if not schema.growths:
        return auto_add
    if isinstance(auto_add, (list, tuple)):
        auto_add = dict.fromkeys(map(str, auto_add))
    if not isinstance(auto_add, Mapping):
        return auto_add  # the schema refuses it
    complete: dict[NodeType, Sequence[float] | None] = {}
    for name, row in auto_add.items():
        widths = schema.widths_of(name) if name in schema.node_types else ()
        given = [0.0] * widths[0] if row is None and widths else row
        short = isinstance(given, (list, tuple)) and len(given) in widths
        complete[name] = [*given, *schema.fills_of(name, len(given))] if short and given is not None else row
    return complete


def _auto_add(graph: NativeGraph, auto_add: AutoAdd) -> None:
    schema = replace(graph.schema, auto_add=_complete(graph.schema, auto_add))  # type: ignore[arg-type]
    if any(schema.auto_add.get(name) != row for name, row in graph.schema.auto_add.items()):
        raise InputError(
            f"auto_add must keep what the graph was made with, {dict(graph.schema.auto_add)}, so that a "
            f"replay adds the same nodes, got {auto_add!r}: only add types to it"
        )
    graph.schema = schema
