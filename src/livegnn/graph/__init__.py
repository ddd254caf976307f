"""The live graph: schema, ids, topology and features; and the changes that a batch of events makes."""

from livegnn.graph.auto_add import AutoAdd, auto_add_nodes
from livegnn.graph.columns import check_columns, complete_rows, without_strays
from livegnn.graph.construction import Parallel
from livegnn.graph.delta import EdgeAttrChanges, EdgeChanges, GraphDelta
from livegnn.graph.graph import Graph
from livegnn.graph.growing import grown_schema
from livegnn.graph.snapshot import Neighbors, Snapshot
from livegnn.graph.staging import find_refusal
from livegnn.graph.transaction import Transaction
from livegnn.graph.view import View
from livegnn.graph.writer import Claim
from livegnn.schema import EdgeSchema, Growth, Schema

__all__ = [
    "AutoAdd",
    "Claim",
    "EdgeAttrChanges",
    "EdgeChanges",
    "EdgeSchema",
    "Graph",
    "GraphDelta",
    "Growth",
    "Neighbors",
    "Parallel",
    "Schema",
    "Snapshot",
    "Transaction",
    "View",
    "auto_add_nodes",
    "check_columns",
    "complete_rows",
    "find_refusal",
    "grown_schema",
    "without_strays",
]
