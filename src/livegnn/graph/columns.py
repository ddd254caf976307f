"""Checks which columns of events a schema allows."""

from livegnn.errors import InputError
from livegnn.events import Chunk, Events
from livegnn.events.builder import from_chunks
from livegnn.graph.schema import EdgeSchema, Schema
from livegnn.types import EdgeType


def check_columns(schema: Schema, chunk: Chunk) -> None:
    """Raises InputError for a column that the chunk's type does not have, or that has the wrong width. The
    schema must have the type.
    """
    if isinstance(chunk.type, str):
        width = schema.node_types[chunk.type]
        if chunk.x is not None and chunk.x.shape[1] != width:
            raise InputError(
                f"x must have {width} features for node type {chunk.type!r}, got {chunk.x.shape[1]}"
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


def without_strays(schema: Schema, events: Events) -> Events:
    """The events without weights and times that their types do not have. Logs of earlier versions contain
    such columns, and those versions ignored them too.
    """
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


def _strays(schema: Schema, chunk: Chunk) -> EdgeSchema | None:
    """The schema of the chunk's edges if the chunk has a weight or time that they do not have, else None."""
    edges = None if isinstance(chunk.type, str) else schema.edge_types.get(chunk.type)
    if edges is None:
        return None
    stray = (chunk.weight is not None and not edges.weighted) or (chunk.time is not None and not edges.timed)
    return edges if stray else None


def _no_place(column: str, columns: str, edge_type: EdgeType, setting: str) -> str:
    return (
        f"edges of type {edge_type!r} carry no {columns}, got a column {column!r}: leave it out, or make the "
        f"type with EdgeSchema({setting})"
    )
