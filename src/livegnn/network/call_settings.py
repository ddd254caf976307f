"""The settings with which a module, or an exported program, is imported."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType, NodeType

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

    from livegnn.graph import Graph, Schema

Members: TypeAlias = NodeType | EdgeType | Sequence[EdgeType]
"""The type of the edges from members to their groups, or of the groups alone; several for all nodes."""

Metadata: TypeAlias = tuple[Sequence[NodeType], Sequence[EdgeType]]
"""Node types and edge types, as in ``HeteroData.metadata()``."""

InputSpec: TypeAlias = NodeType | EdgeType | tuple[NodeType | EdgeType, str]
"""A value of `inputs` of an exported program: the type of an argument's rows, their column, or both."""


@dataclass(frozen=True)
class CallSettings:
    """The caller's settings for calling and importing a module; see `Model.from_pyg` for each.

    by_name: whether it is called with arguments by their names alone, as its own hooks may want it.
    """

    data: "Data | HeteroData | Schema | Graph | None" = None
    inputs: Mapping[str, object] | None = None
    method: str = "forward"
    output: str | Sequence[str] | None = None
    output_type: NodeType | None = None
    node_type: NodeType = DEFAULT_NODE_TYPE
    edge_type: EdgeType = DEFAULT_EDGE_TYPE
    relations: Sequence[EdgeType] | None = None
    metadata: Metadata | None = None
    edge_weight: Collection[EdgeType] | bool | None = None
    in_channels: int | Mapping[NodeType, int] | None = None
    edge_channels: int | Mapping[EdgeType, int] | None = None
    groups: Mapping[str | None, Members] | None = None
    by_name: bool = False


@dataclass(frozen=True)
class ExportedSettings:
    """The caller's settings for reading an exported program; see `Model.from_exported` for each."""

    schema: "Schema | Graph | Data | HeteroData | None" = None
    inputs: Mapping[str, InputSpec] | None = None
    output: str | Sequence[str] | None = None
    output_type: NodeType | None = None
    relations: Sequence[EdgeType] | None = None
    node_type: NodeType = DEFAULT_NODE_TYPE
    edge_type: EdgeType = DEFAULT_EDGE_TYPE
