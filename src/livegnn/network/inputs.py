"""The values that a model reads from a graph: of nodes and of edges."""

from dataclasses import dataclass
from typing import Literal

from livegnn.types import EdgeType, NodeType


@dataclass(frozen=True)
class Input:
    """A value that the model reads from the graph: the features of one node type, `width` channels each."""

    node_type: NodeType
    width: int


@dataclass(frozen=True)
class EdgeInput:
    """A value that the model reads from the edges of one type: their features, or their weight."""

    edge_type: EdgeType
    width: int = 1
    column: Literal["edge_attr", "weight"] = "edge_attr"
