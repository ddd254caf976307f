"""What a log is bound to: the properties of a graph that decide what events do to it, as texts.

Each is a property of its own, so that one that a later version adds is adopted by older logs, and an error
names what differs. How the store lays out neighbours (capacity, slack) is none of them.
"""

import json
from collections.abc import Mapping
from typing import Final

from livegnn.schema import Schema

_OF_EDGES: Final = ("undirected", "weighted", "timed", "duplicates", "edge_dim", "time_to_live")


def schema_properties(schema: Schema) -> Mapping[str, str]:
    """The properties of a schema by name, each as JSON."""
    properties: dict[str, object] = {
        "schema/text_ids": schema.text_ids,
        "schema/node_types": list(schema.node_types),
        "schema/edge_types": [list(edge_type) for edge_type in schema.edge_types],
    }
    for name, width in schema.node_types.items():
        properties[f"schema/width of {name!r}"] = width
        features = schema.auto_add.get(name)
        properties[f"schema/auto_add of {name!r}"] = None if features is None else list(features)
    for edge_type, edges in schema.edge_types.items():
        for field in _OF_EDGES:
            properties[f"schema/{field} of {','.join(edge_type)!r}"] = getattr(edges, field)
    return {name: _text_of(name, value) for name, value in properties.items()}


def _text_of(name: str, value: object) -> str:
    """JSON; the empty text for a type whose nodes are not added, because they may be later."""
    return "" if value is None and name.startswith("schema/auto_add") else json.dumps(value)
