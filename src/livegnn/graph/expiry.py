"""Finds the edges that are older than their type's time to live."""

import math

import numpy as np

from livegnn.arguments import one_time
from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.graph.native_graph import NativeGraph


def find_expired(graph: NativeGraph, now: float) -> Events:
    """Returns the events of `Graph.expired`. The caller must hold `Graph.writer`."""
    real = isinstance(now, (int, float, np.integer, np.floating))
    if not real or isinstance(now, (bool, np.timedelta64)) or not abs(now) < math.inf:
        raise InputError(f"now must be a finite number, in the unit of the edges' times, got {now!r}")
    now = one_time(now, "now")
    events = Events()
    for index, (edge_type, edges) in enumerate(graph.schema.edge_types.items()):
        if edges.time_to_live is None:
            continue
        *ends, key = graph.expired(index, now - edges.time_to_live)
        src, dst = (
            graph.node_ids.to_user_ids(
                graph.native.ids_of(graph.schema.node_type_index(edge_type[end]), nodes)
            )
            for end, nodes in zip((0, 2), ends, strict=True)
        )
        keys = key if edges.duplicates == "keep" else None
        events.remove_edges(src, dst, key=keys, edge_type=edge_type)
    return events
