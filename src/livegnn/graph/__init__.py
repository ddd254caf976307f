"""The graph as it is now: schema, ids, topology and features; and what a batch of events changes in it."""

from livegnn.graph.delta import EdgeChanges, GraphDelta
from livegnn.graph.graph import Graph, Neighbors, View
from livegnn.graph.schema import EdgeSchema, Schema
from livegnn.graph.snapshot import Snapshot

__all__ = ["EdgeChanges", "EdgeSchema", "Graph", "GraphDelta", "Neighbors", "Schema", "Snapshot", "View"]
