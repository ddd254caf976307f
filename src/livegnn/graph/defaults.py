"""Omitted types: events and models then carry the default names, which mean the schema's only types."""

from collections.abc import Mapping
from typing import cast

from livegnn.events import Events
from livegnn.events.builder import from_chunks
from livegnn.events.growing import GROW
from livegnn.schema import Schema
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType, NodeType


def left_out(schema: Schema) -> Mapping[NodeType | EdgeType, NodeType | EdgeType]:
    """The types that the default names stand for in a schema without them: its only node and edge type.

    A schema that has grown has those of its origin, so that clients and models go on.
    """
    schema = schema.origin
    stands_for: dict[NodeType | EdgeType, NodeType | EdgeType] = {}
    if DEFAULT_NODE_TYPE not in schema.node_types and len(schema.node_types) == 1:
        stands_for[DEFAULT_NODE_TYPE] = next(iter(schema.node_types))
    if DEFAULT_EDGE_TYPE not in schema.edge_types and len(schema.edge_types) == 1:
        stands_for[DEFAULT_EDGE_TYPE] = next(iter(schema.edge_types))
    return stands_for


def with_types(events: Events, stands_for: Mapping[NodeType | EdgeType, NodeType | EdgeType]) -> Events:
    """The same events, with default names replaced by the types in `stands_for` (made by `left_out`)."""
    if not stands_for or not any(chunk.type in stands_for for chunk in events.chunks):
        return events
    return from_chunks(
        chunk
        if chunk.kind == GROW
        else chunk._replace(type=cast("EdgeType", stands_for.get(chunk.type, chunk.type)))
        for chunk in events.chunks
    )
