"""Converts plain arrays and PyG's data into a schema and the events that fill a graph."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

import numpy as np

from livegnn.arguments import as_array, check_bool, check_int, plain_numbers
from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.events.builder import from_chunks
from livegnn.events.chunk import to_ids
from livegnn.graph.pyg_fields import taken_fields
from livegnn.schema import Duplicates, EdgeSchema, Schema
from livegnn.tables import TableMapping
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType, FloatArray, Ids, IntArray, NodeType
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from jaxtyping import Shaped
    from numpy.typing import ArrayLike, NDArray
    from torch_geometric.data import Data, HeteroData

Parallel: TypeAlias = Literal["refuse", "last", "sum", "keep"]
"""How to treat several edges between the same two nodes; see `Graph.from_edges`."""


def read_arrays(
    src: "ArrayLike",
    dst: "ArrayLike | None",
    *,
    x: "ArrayLike | None",
    num_nodes: int | None,
    ids: "ArrayLike | None",
    weight: "ArrayLike | None",
    time: "ArrayLike | None",
    edge_attr: "ArrayLike | None",
    undirected: bool,
    time_to_live: float | None,
    parallel: Parallel,
) -> tuple[Schema, Events]:
    """The schema and the events of `Graph.from_edges`, which documents the arguments."""
    if dst is None or hasattr(src, "edge_index"):
        raise InputError(_not_ends(src))
    sources, targets = _ids_array(src, "src"), _ids_array(dst, "dst")
    features = _matrix(x, "x", "nodes")
    attributes = _matrix(edge_attr, "edge_attr", "edges")
    if num_nodes is not None:
        num_nodes = check_int(num_nodes, "num_nodes", 0)
    count = num_nodes if num_nodes is not None else None if features is None else len(features)
    names = None if ids is None else _ids_array(ids, "ids")
    if names is not None:
        _check_distinct(names)
    _check_kinds(sources, targets, names, count)
    if names is None:
        named = np.arange(count) if count is not None else np.unique(np.concatenate([sources, targets]))
    else:
        named = names
    if features is not None and len(features) != len(named):
        raise InputError(f"x must have a row for each of the {len(named)} nodes, got {len(features)} rows")
    if num_nodes is not None and num_nodes != len(named):
        raise InputError(f"num_nodes must be the number of ids, {len(named)}, got {num_nodes}")
    if attributes is not None and len(attributes) != len(sources):
        raise InputError(
            f"edge_attr must have a row for each of the {len(sources)} edges, got {len(attributes)} rows"
        )
    schema = Schema(
        {DEFAULT_NODE_TYPE: 0 if features is None else features.shape[1]},
        {
            DEFAULT_EDGE_TYPE: EdgeSchema(
                undirected=check_bool(undirected, "undirected"),
                weighted=weight is not None or parallel == "sum",
                timed=time is not None,
                duplicates=_duplicates(parallel),
                edge_dim=0 if attributes is None else attributes.shape[1],
                time_to_live=time_to_live,
            )
        },
        text_ids=named.dtype.kind in "UO",
    )
    events = Events().add_nodes(cast("Ids", named), features)
    if len(sources) or len(targets):
        events.add_edges(sources, targets, weight=weight, time=time, edge_attr=attributes)
    return schema, events


def read_pyg(
    data: "Data | HeteroData",
    parallel: Parallel | Mapping[EdgeType, Parallel],
    leave_out: Collection[str] = (),
) -> tuple[Schema, Events, set[EdgeType]]:
    """The schema and the events of `Graph.from_pyg`, which documents the arguments, and the edge types that
    refuse parallel edges.
    """
    data = taken_fields(data, leave_out)
    stores = (
        [(DEFAULT_NODE_TYPE, data)]
        if not hasattr(data, "node_types")
        else [(t, data[t]) for t in data.node_types]
    )
    links = (
        [(DEFAULT_EDGE_TYPE, data)]
        if not hasattr(data, "edge_types")
        else [(t, data[t]) for t in data.edge_types]
    )

    for edge_type in parallel if isinstance(parallel, Mapping) else ():
        if edge_type not in dict(links):
            raise InputError(
                f"parallel must name edge types of the data, {', '.join(repr(t) for t, _ in links)}, "
                f"got {edge_type!r}"
            )
    ways: dict[EdgeType, Parallel] = {
        edge_type: parallel.get(edge_type, "refuse") if isinstance(parallel, Mapping) else parallel
        for edge_type, _ in links
    }
    features = {name: _matrix(column(store, "x"), "x", "nodes") for name, store in stores}
    attributes = {}
    for edge_type, store in links:
        values = column(store, "edge_attr")
        # A single attribute for each edge may lack the second dimension.
        attributes[edge_type] = _matrix(
            values.reshape(-1, 1) if values is not None and values.ndim == 1 else values, "edge_attr", "edges"
        )
    schema = Schema(
        {name: 0 if x is None else x.shape[1] for name, x in features.items()},
        {
            edge_type: EdgeSchema(
                weighted=column(store, "edge_weight") is not None or ways[edge_type] == "sum",
                timed=column(store, "time") is not None,
                duplicates=_duplicates(ways[edge_type]),
                edge_dim=0 if (rows := attributes[edge_type]) is None else rows.shape[1],
            )
            for edge_type, store in links
        },
    )
    events = Events()
    for name, store in stores:
        events.add_nodes(np.arange(count_nodes(store, name), dtype=np.int64), features[name], node_type=name)
    for edge_type, store in links:
        src, dst = _edge_index(store, edge_type)
        events.add_edges(
            src,
            dst,
            weight=column(store, "edge_weight"),
            time=column(store, "time"),
            edge_attr=attributes[edge_type],
            edge_type=edge_type,
        )
    return schema, events, {edge_type for edge_type, way in ways.items() if way == "refuse"}


def read_tables(
    schema: Schema, tables: Mapping[str, object], mappings: Mapping[str, TableMapping]
) -> Iterator[Events]:
    """The events of `Graph.from_tables`, which documents the arguments: all nodes, then all edges."""
    for given, what in ((tables, "tables"), (mappings, "mappings")):
        if not isinstance(given, Mapping):
            raise InputError(f"{what} must be a dict by the names of tables, got {kind_of(given)}")
    if tables.keys() != mappings.keys():
        lacking = sorted(map(str, tables.keys() ^ mappings.keys()))
        raise InputError(
            f"tables and mappings must have the same names, got {lacking[0]!r} in one of them alone"
        )
    from livegnn.tables import TableReader

    readers = {name: TableReader(mapping, schema, name) for name, mapping in mappings.items()}
    edges = []
    for name, table in tables.items():
        for events in readers[name].read(table):
            nodes = [chunk for chunk in events.chunks if chunk.dst is None]
            edges.append(from_chunks(chunk for chunk in events.chunks if chunk.dst is not None))
            yield from_chunks(nodes)
    yield from edges


def column(store: "Data", name: str) -> "Shaped[NDArray[np.generic], '...'] | None":
    """A tensor of PyG's data as an array; None if it has none of this name. Raises `InputError`."""
    value = store.get(name) if name in store else None
    if value is None or not hasattr(value, "detach"):
        return None if value is None else as_array(value, name)
    if str(value.layout) != "torch.strided":
        raise InputError(f"{name} must be a dense tensor, got one of the layout {value.layout}")
    try:
        array: NDArray[np.generic] = value.detach().cpu().numpy()
    except TypeError as error:
        raise InputError(f"{name} must be of a type that NumPy has, got {value.dtype}: {error}") from error
    return array


def count_nodes(store: "Data", name: NodeType) -> int:
    """The nodes of PyG's data. Raises `InputError` if it does not say how many there are."""
    if store.num_nodes is None:
        raise InputError(f"the nodes of {name!r} must be counted: give them x or num_nodes")
    return int(store.num_nodes)


def _edge_index(store: "Data", edge_type: EdgeType) -> "NDArray[np.generic]":
    found = column(store, "edge_index")
    if found is None or found.ndim != 2 or len(found) != 2:
        got = "none" if found is None else f"the shape {list(found.shape)}"
        raise InputError(f"edge_index of {edge_type!r} must be [2, edges], got {got}")
    return found


def parallel_edges(edge_type: EdgeType, source: object, target: object) -> InputError:
    """The error for an edge that is listed twice."""
    return InputError(
        f"each edge must be listed once, got {_plain(source)!r} -> {_plain(target)!r} of type {edge_type!r} "
        "again: say what parallel edges become, with parallel='last' (the last one counts), 'sum' (one "
        "edge, whose weights add up) or 'keep' (each is an edge of its own)"
    )


def _plain(id: object) -> object:
    return id.item() if isinstance(id, np.generic) else id


def _duplicates(parallel: Parallel) -> Duplicates:
    if not isinstance(parallel, str) or parallel not in get_args(Parallel):
        raise InputError(
            f"parallel must be one of {', '.join(map(repr, get_args(Parallel)))}, got {parallel!r}"
        )
    return "add" if parallel == "sum" else "keep" if parallel == "keep" else "replace"


def _ids_array(value: "ArrayLike", name: str) -> Ids:
    return cast("Ids", np.asarray(to_ids(cast("Ids", value), name)))


def _check_kinds(sources: Ids, targets: Ids, names: Ids | None, count: int | None) -> None:
    """Raises InputError unless the ends of edges and the ids are all integers or all text.

    names: None where nodes are called 0, 1, 2, ..., if their `count` is known.
    """
    # The dtype of an empty list says nothing about ids.
    given = [
        (name, array.dtype, array.dtype.kind in "UO")
        for name, array in (("ids", names), ("src", sources), ("dst", targets))
        if array is not None and len(array)
    ]
    first, *others = given or [("", np.dtype(np.int64), False)]
    if differing := [name for name, _, text in others if text != first[2]]:
        dtype = next(dtype for name, dtype, _ in others if name in differing)
        raise InputError(
            f"src, dst and ids must all be integers or all text: {first[0]} are "
            f"{'text' if first[2] else 'integers'}, got {dtype} in {' and '.join(differing)}. Write "
            f"{', '.join(f'{name}.astype(str)' for name, _, text in given if not text)}"
        )
    if names is None and count is not None and first[2]:
        raise InputError(
            f"ids must name the {count} nodes, since the ends of the edges are text, got none: pass ids, "
            "where ids[i] is the node of row i of x"
        )


def _check_distinct(ids: Ids) -> None:
    """Raises an `InputError` that names the first repeated id."""
    if len(ids) < 2 or (ids.dtype.kind == "i" and bool((np.diff(cast("IntArray", ids)) > 0).all())):
        return
    first = np.unique(ids, return_index=True)[1]
    if len(first) == len(ids):
        return
    again = np.ones(len(ids), dtype=np.bool_)
    again[first] = False
    position = int(np.argmax(again))
    raise InputError(
        f"ids must name each node once, got {_plain(ids[position])!r} again at position {position}"
    )


def _not_ends(given: object) -> str:
    """The error message for a call of `Graph.from_edges` without two arrays."""
    if hasattr(given, "edge_index") or hasattr(given, "edge_types"):
        return f"src and dst must be arrays of ids, got {kind_of(given)}: use Graph.from_pyg(data)"
    return (
        f"expected src and dst, the ids of the ends of each edge, got {kind_of(given)} alone: "
        "of an edge_index [2, edges], pass Graph.from_edges(edge_index[0], edge_index[1])"
    )


def _matrix(values: "ArrayLike | None", name: str, what: str) -> FloatArray | None:
    """`values` as float32 [what, channels]."""
    if values is None:
        return None
    given = plain_numbers(as_array(values, name))
    if given.size and given.dtype.kind not in "biuf":
        raise InputError(f"{name} must be numbers, got {given.dtype}")
    matrix = np.ascontiguousarray(given, dtype=np.float32)
    if matrix.ndim != 2:
        raise InputError(f"{name} must have the shape ({what}, channels), got {matrix.shape}")
    return matrix
