"""Checks which columns of events a schema allows."""

from typing import TYPE_CHECKING, Final

import numpy as np

from livegnn.errors import InputError
from livegnn.events import Chunk, Events
from livegnn.events.builder import from_chunks
from livegnn.events.chunk import Kind
from livegnn.schema import EdgeSchema, Schema
from livegnn.types import EdgeType, FloatArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float32

_TAKEN: Final[dict[Kind, tuple[str, ...]]] = {
    "add_edges": ("weight", "time", "x", "key"),
    "remove_edges": ("key",),
    "set_features": ("x", "time"),
    "add_nodes": ("x", "time"),
    "remove_nodes": (),
    "grow": (),
}
"""The columns that events of each kind may have; `x` of edges is called edge_attr in public."""


def check_columns(schema: Schema, chunk: Chunk) -> None:
    """Raises InputError for a column that the chunk's kind or type does not have, or that has the wrong
    width. The schema must have the type.
    """
    kind, type_, _, _, weight, time, x, key = chunk
    if weight is None and time is None and key is None:  # nearly always
        if x is None:
            if kind != "set_features":
                return
        elif isinstance(type_, str) and kind != "remove_nodes" and x.shape[1] == schema.node_types[type_]:
            return
    if stray := _strays_of_kind(chunk):
        name = chunk.x_name if stray[0] == "x" else stray[0]
        raise InputError(
            f"{chunk.kind} takes {', '.join(_TAKEN[chunk.kind]) or 'no columns'} beside ids, got a column "
            f"{name!r}: leave it out"
        )
    if chunk.kind == "set_features" and chunk.x is None:
        raise InputError("set_features needs x, the features, got none")
    if isinstance(chunk.type, str):
        if chunk.time is not None:
            _check_feature_time(schema, chunk.type, chunk.x is not None)
        width, widths = schema.node_types[chunk.type], schema.widths_of(chunk.type)
        if chunk.x is not None and chunk.x.shape[1] not in widths:
            raise InputError(
                f"x must have {' or '.join(map(str, widths[:-4:-1]))} features for node type "
                f"{chunk.type!r}, got {chunk.x.shape[1]}"
                + ("" if width else ": leave x out, or give the type a width in the schema")
            )
        return
    if chunk.weight is None and chunk.time is None and chunk.x is None and chunk.key is None:
        return
    edges = schema.edge_types[chunk.type]
    if chunk.weight is not None and not edges.weighted:
        raise InputError(_no_place("weight", "weights", chunk.type, "weighted=True"))
    if chunk.time is not None and not edges.timed:
        raise InputError(_no_place("time", "times", chunk.type, "timed=True"))
    if chunk.key is not None and edges.duplicates != "keep":
        raise InputError(_no_place("key", "keys", chunk.type, "duplicates='keep'"))
    if chunk.x is not None and chunk.x.shape[1] != edges.edge_dim:
        if not edges.edge_dim:
            raise InputError(_no_place("edge_attr", "features", chunk.type, f"edge_dim={chunk.x.shape[1]}"))
        raise InputError(
            f"edge_attr must have {edges.edge_dim} columns for edge type {chunk.type!r}, "
            f"got {chunk.x.shape[1]}"
        )


def _check_feature_time(schema: Schema, node_type: NodeType, has_x: bool) -> None:
    """Raises InputError for a time of features that the type, or the event, does not have."""
    if node_type not in schema.timed_features:
        raise InputError(
            f"features of node type {node_type!r} have no times, got a column 'time': leave it out, or make "
            f"the graph with timed_features={[*schema.timed_features, node_type]!r} in its schema"
        )
    if not has_x:
        raise InputError("time is that of features, got it without x: leave it out, or give x")


def complete_rows(schema: Schema, chunk: Chunk) -> "Float32[FloatArray, 'nodes channels'] | None":
    """The features of a chunk of nodes, with the values of the columns that a growth of the schema has added
    and that they lack. Requires: a chunk that `check_columns` allows."""
    x = chunk.x
    if x is None or not isinstance(chunk.type, str) or x.shape[1] == schema.node_types[chunk.type]:
        return x
    fills = np.array(schema.fills_of(chunk.type, x.shape[1]), np.float32)
    return np.hstack([x, np.broadcast_to(fills, (len(x), len(fills)))])


def without_strays(schema: Schema, events: Events) -> Events:
    """The events without weights and times that their types do not have, and without columns that their kinds
    do not have. Logs of earlier versions contain such columns, and those versions ignored them too.
    """
    if any(_strays_of_kind(chunk) for chunk in events.chunks):
        events = from_chunks(
            chunk._replace(**dict.fromkeys(_strays_of_kind(chunk)))  # type: ignore[arg-type]
            for chunk in events.chunks
        )
    if all(_strays(schema, chunk) is None for chunk in events.chunks):
        return events
    return from_chunks(
        chunk
        if (edges := _strays(schema, chunk)) is None
        else chunk._replace(
            weight=chunk.weight if edges.weighted else None, time=chunk.time if edges.timed else None
        )
        for chunk in events.chunks
    )


def _strays_of_kind(chunk: Chunk) -> list[str]:
    """The columns of the chunk that its kind does not have."""
    if chunk.kind == "add_edges":
        return []
    columns = (("weight", chunk.weight), ("time", chunk.time), ("x", chunk.x), ("key", chunk.key))
    return [name for name, column in columns if column is not None and name not in _TAKEN[chunk.kind]]


def _strays(schema: Schema, chunk: Chunk) -> EdgeSchema | None:
    """The schema of the chunk's edges if the chunk has a weight or time that they do not have, else None."""
    edges = None if isinstance(chunk.type, str) else schema.edge_types.get(chunk.type)
    if edges is None:
        return None
    stray = (chunk.weight is not None and not edges.weighted) or (chunk.time is not None and not edges.timed)
    return edges if stray else None


def _no_place(column: str, columns: str, edge_type: EdgeType, setting: str) -> str:
    array = 'parallel = "keep"' if column == "key" else f"an array {column!r}"
    return (
        f"edges of type {edge_type!r} carry no {columns}, got a column {column!r}: leave it out, or make the "
        f"graph with {array}; in Python also the type with EdgeSchema({setting})"
    )
