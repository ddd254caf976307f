"""The arrays of a sample in the form that a native forward pass reads, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from livegnn.arguments import as_array
from livegnn.errors import InputError
from livegnn.sampling import HeteroSubgraph, Subgraph
from livegnn.schema import Schema
from livegnn.types import (
    DEFAULT_EDGE_TYPE,
    DEFAULT_NODE_TYPE,
    Array,
    DoubleArray,
    EdgeType,
    FloatArray,
    Ids,
    IntArray,
    NodeType,
)
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, Int64, Shaped

Name = TypeVar("Name", bound=NodeType | EdgeType)
Value = TypeVar("Value")

GivenNodes: TypeAlias = tuple[int, FloatArray | None]
"""How many nodes there are, and their features if the model reads them."""

GivenEdges: TypeAlias = tuple[IntArray, IntArray, FloatArray | None, FloatArray | None]
"""Sources, targets, weights and features."""


@dataclass(frozen=True)
class TypedSample:
    """A sample in the names of a model: the columns of the model's node types and edge types.

    Its arrays are unchecked, with the numbers and shapes that were given; `read_nodes`, `read_edges` and the
    native core check them. edge_types: edge type of the model -> its name in the sample.
    """

    node: "Mapping[NodeType, Shaped[Ids, '...']]"
    row: "Mapping[EdgeType, Shaped[IntArray, '...']]"
    col: "Mapping[EdgeType, Shaped[IntArray, '...']]"
    inverse: "Mapping[NodeType, Shaped[IntArray, '...']]"
    x: "Mapping[NodeType, Shaped[FloatArray, '...']]"
    edge_weight: "Mapping[EdgeType, Shaped[FloatArray, '...']]"
    edge_attr: "Mapping[EdgeType, Shaped[FloatArray, '...']]"
    edge_types: "Mapping[EdgeType, EdgeType]"


def typed(sample: Subgraph | HeteroSubgraph, schema: Schema) -> TypedSample:
    """Returns the sample in the names of a model that reads `schema`. Raises `InputError` if it is not a
    sample, or has one type while the model has several."""
    if isinstance(sample, Subgraph):
        return _typed_alone(sample, schema)
    if not isinstance(sample, HeteroSubgraph):
        raise InputError(
            f"expected a Subgraph or a HeteroSubgraph, got {kind_of(sample)}: sample_subgraph(graph, seeds, "
            "num_neighbors, attributes=True) draws one"
        )
    nodes = _names(schema.node_types, sample.node, DEFAULT_NODE_TYPE)
    edges = _names(schema.edge_types, sample.row, DEFAULT_EDGE_TYPE)
    return TypedSample(
        _take(sample.node, nodes),
        _take(sample.row, edges),
        _take(sample.col, edges),
        _take(sample.inverse, nodes),
        _take(sample.x, nodes),
        _take(sample.edge_weight, edges),
        _take(sample.edge_attr, edges),
        edges,
    )


def _typed_alone(sample: Subgraph, schema: Schema) -> TypedSample:
    if len(schema.node_types) > 1 or len(schema.edge_types) > 1:
        raise InputError(
            f"the model reads {', '.join(map(str, schema.edge_types))}, the sample has one type without a "
            "name: sample seeds by node type"
        )
    (node_type,) = schema.node_types
    edge_type = next(iter(schema.edge_types), DEFAULT_EDGE_TYPE)
    return TypedSample(
        {node_type: sample.node},
        {edge_type: sample.row},
        {edge_type: sample.col},
        {node_type: sample.inverse},
        {} if sample.x is None else {node_type: sample.x},
        {} if sample.edge_weight is None else {edge_type: sample.edge_weight},
        {} if sample.edge_attr is None else {edge_type: sample.edge_attr},
        {edge_type: edge_type},
    )


def _names(read: "Mapping[Name, object]", have: "Mapping[Name, object]", default: Name) -> dict[Name, Name]:
    """Returns the sample's name of each type of a model; the default name means the only type that it has."""
    only = next(iter(have)) if len(have) == 1 else default
    return {name: only if name == default and name not in have else name for name in read}


def _take(columns: "Mapping[Name, Value]", names: "Mapping[Name, Name]") -> dict[Name, Value]:
    return {name: columns[called] for name, called in names.items() if called in columns}


def places_of(
    schema: Schema, node_widths: "Mapping[NodeType, int]", edge_widths: "Mapping[EdgeType, int]"
) -> tuple[list[int], list[int]] | None:
    """Returns the positions in samples of the node types and edge types of a model that reads `schema`. None
    if samples lack a type or features that it reads, so that `read_nodes` or `read_edges` refuses each.

    node_widths, edge_widths: the types of the samples in their order, with the widths of their features.
    """
    edge_dims = {name: it.edge_dim for name, it in schema.edge_types.items()}
    nodes = _places(schema.node_types, node_widths, DEFAULT_NODE_TYPE)
    edges = _places(edge_dims, edge_widths, DEFAULT_EDGE_TYPE)
    return None if nodes is None or edges is None else (nodes, edges)


def _places(read: "Mapping[Name, int]", have: "Mapping[Name, int]", default: Name) -> list[int] | None:
    names, places = _names(read, have, default), list(have)
    if any(names[name] not in have or width not in (0, have[names[name]]) for name, width in read.items()):
        return None
    return [places.index(names[name]) for name in read]


def read_nodes(sample: TypedSample, schema: Schema) -> list[GivenNodes]:
    """Returns the number of nodes of each type, and their features where the model reads them. Raises
    `InputError` if the sample lacks a type or features, or has others."""
    nodes: list[GivenNodes] = []
    for name, width in schema.node_types.items():
        if name not in sample.node:
            raise InputError(
                f"the model reads {name!r} nodes, the sample has {list(sample.node) or 'others'}"
            )
        count = len(sample.node[name])
        x = sample.x.get(name)
        if x is None and width > 0:
            raise InputError(
                f"the model reads {width} features of {name!r} nodes, the sample has none: draw it with "
                "attributes=True"
            )
        nodes.append((count, None if x is None or not width else _rows(x, count, width, f"x of {name!r}")))
    return nodes


def read_edges(sample: TypedSample, schema: Schema) -> list[GivenEdges | None]:
    """The ends, the weights and the features of the edges of each type that the model reads. Raises
    `InputError` if the sample lacks a type or features, or has others."""
    edges: list[GivenEdges | None] = []
    for name, it in schema.edge_types.items():
        if name not in sample.row or name not in sample.col:
            raise InputError(
                f"the model propagates along {name}, the sample has {list(sample.row) or 'others'}"
            )
        row, col = integers(sample.row[name], f"row of {name}"), integers(sample.col[name], f"col of {name}")
        if row.ndim != 1 or row.shape != col.shape:
            raise InputError(
                f"row and col of {name} must be [edges], got {list(row.shape)} and {list(col.shape)}"
            )
        weight = sample.edge_weight.get(name)
        if weight is not None:
            weight = floats(weight, f"edge_weight of {name}")
            if weight.shape != row.shape:
                raise InputError(f"edge_weight of {name} must be {list(row.shape)}, got {list(weight.shape)}")
        features = sample.edge_attr.get(name) if it.edge_dim else None
        if features is None and it.edge_dim:
            raise InputError(
                f"the model reads {it.edge_dim} features of {name} edges, the sample has none: draw it with "
                "attributes=True"
            )
        if features is not None:
            features = _rows(features, len(row), it.edge_dim, f"edge_attr of {name}")
        edges.append((row, col, weight, features))
    return edges


def _rows(value: FloatArray, count: int, width: int, what: str) -> FloatArray:
    rows = floats(value, what)
    if rows.shape != (count, width):
        raise InputError(f"{what} must be [{count}, {width}], got {list(rows.shape)}")
    return rows


def integers(value: object, name: str) -> "Int64[IntArray, '...']":
    """`value` as a contiguous array of int64, without a copy if it is one. Raises `InputError`."""
    if type(value) is np.ndarray and value.dtype == np.int64 and value.flags.c_contiguous:
        return value
    array = as_array(value, name, "integers")
    if array.dtype.kind not in "iu" and array.size:
        raise InputError(f"{name} must hold integers, got {array.dtype}")
    return np.ascontiguousarray(array, np.int64)


def floats(value: object, name: str) -> "Float32[FloatArray, '...']":
    """`value` as a contiguous array of float32, without a copy if it is one. Raises `InputError`."""
    if type(value) is np.ndarray and value.dtype == np.float32 and value.flags.c_contiguous:
        return value
    with np.errstate(over="ignore"):  # infinity is refused later
        return np.ascontiguousarray(_numbers(value, name), np.float32)


def doubles(value: object, name: str) -> "Float64[DoubleArray, '...']":
    """The same in float64."""
    return np.ascontiguousarray(_numbers(value, name), np.float64)


def _numbers(value: object, name: str) -> "Shaped[Array, '...']":
    array = as_array(value, name)
    if array.dtype.kind not in "iufb" and array.size:
        raise InputError(f"{name} must hold numbers, got {array.dtype}")
    return array
