"""Saves the exact state of a graph as named arrays, as checkpoints store it, and restores it."""

import math
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from livegnn.errors import FileFormatError
from livegnn.events.chunk import to_ids
from livegnn.types import Array, EdgeType, IntArray, NodeType, State

if TYPE_CHECKING:
    import numpy.typing as npt

    from livegnn.graph.graph import Graph

# The columns of an edge type's adjacency lists, in the order in which the native core saves them.
_COLUMNS: Final = {
    "shape": np.uint32,
    "keys": np.uint32,
    "ids": np.uint32,
    "weight": np.float32,
    "time": np.float64,
    "row": np.uint32,
    "sums": np.float64,
    "orders": np.uint64,
}
# States of older versions lack these; the native core then computes them.
_ADDED: Final = {"sums", "orders"}
_LARGEST: Final = 2**63 - 1


def save(graph: "Graph") -> State:
    """The state of a graph. The caller must hold `Graph.writer`."""
    native, arrays = graph.native, dict[str, Array]()
    for index, name in enumerate(graph.schema.node_types):
        ids, free, x = native.save_nodes(index)
        arrays[f"nodes/{name}/free"], arrays[f"nodes/{name}/x"] = free, x
        if graph.node_ids.texts is None:
            arrays[f"nodes/{name}/ids"] = ids
            continue
        arrays[f"nodes/{name}/in_use"] = ids >= 0
        text, lengths = graph.node_ids.texts.encode(ids[ids >= 0])
        arrays[f"nodes/{name}/text"], arrays[f"nodes/{name}/text_lengths"] = text, lengths
    for index, (edge_type, edges) in enumerate(graph.schema.edge_types.items()):
        prefix = _prefix(edge_type)
        for side, columns in zip(("out", "in"), native.save_edges(index), strict=True):
            for column, array in zip(_COLUMNS, columns, strict=True):
                arrays[f"{prefix}/{side}/{column}"] = cast("Array", array)
        if edges.edge_dim:
            arrays[f"{prefix}/free_rows"], arrays[f"{prefix}/x"] = native.save_edge_features(index)
    num_edges = [native.num_edges(index) for index in range(len(graph.schema.edge_types))]
    return State(
        {
            "kind": "graph",
            "schema": graph.schema.to_json(),
            "seq": graph.seq,
            "num_edges": list(num_edges),
            "latest_time": graph.latest_time,
        },
        arrays,
    )


def restore(graph: "Graph", state: State) -> None:
    """Fills an empty graph of the state's schema. Raises `FileFormatError`; the graph is then unusable."""
    try:
        seq, num_edges, latest_time = _numbers(graph, state)
        for index, name in enumerate(graph.schema.node_types):
            free, x = (
                _array(state, f"nodes/{name}/free", np.uint32),
                _array(state, f"nodes/{name}/x", np.float32),
            )
            graph.native.load_nodes(index, _restored_ids(graph, name, state), free, x)
        for index, (edge_type, edges) in enumerate(graph.schema.edge_types.items()):
            prefix, keyed = _prefix(edge_type), edges.duplicates == "keep"
            # In lists of edges with keys, an id holds both the other end and the key.
            columns = _COLUMNS | ({"keys": np.uint64, "ids": np.uint64} if keyed else {})
            load = graph.native.load_keyed_edges if keyed else graph.native.load_edges
            out, into = (
                tuple(_column(state, f"{prefix}/{side}", column, dtype) for column, dtype in columns.items())
                for side in ("out", "in")
            )
            load(index, cast("Any", out), cast("Any", into), num_edges[index])
            if edges.edge_dim:
                free, x = (
                    _array(state, f"{prefix}/free_rows", np.uint32),
                    _array(state, f"{prefix}/x", np.float32),
                )
                graph.native.load_edge_features(index, free, x)
    except (KeyError, ValueError, RuntimeError, TypeError) as error:
        raise FileFormatError(f"the state of a graph does not fit together: {error}") from error
    graph.seq = seq
    graph.native.latest_time = latest_time


def _numbers(graph: "Graph", state: State) -> tuple[int, list[int], float]:
    """The sequence number, the number of edges of each type, and the latest time. Raises `ValueError`."""
    seq, num_edges = state.meta.get("seq"), state.meta.get("num_edges")
    latest_time = state.meta.get("latest_time")
    if type(seq) is not int or not 0 <= seq <= _LARGEST:
        raise ValueError(f"seq must be an integer from 0 to 2^63 - 1, got {seq!r}")
    types = len(graph.schema.edge_types)
    if not isinstance(num_edges, list) or len(num_edges) != types:
        raise ValueError(f"num_edges must be a list of {types} numbers, got {num_edges!r}")
    counts = [count for count in num_edges if type(count) is int and 0 <= count <= _LARGEST]
    if len(counts) != types:
        raise ValueError(f"num_edges must be integers of at least 0, got {num_edges!r}")
    if latest_time is None:
        return seq, counts, -math.inf
    if type(latest_time) not in (int, float) or not math.isfinite(cast("float", latest_time)):
        raise ValueError(f"latest_time must be a finite number or null, got {latest_time!r}")
    return seq, counts, float(cast("float", latest_time))


def _prefix(edge_type: EdgeType) -> str:
    return f"edges/{'/'.join(edge_type)}"


def _column(state: State, prefix: str, column: str, dtype: "npt.DTypeLike") -> "npt.NDArray[Any]":
    if column in _ADDED and f"{prefix}/{column}" not in state.arrays:
        return np.empty(0, dtype=dtype)
    return _array(state, f"{prefix}/{column}", dtype)


def _array(state: State, name: str, dtype: "npt.DTypeLike") -> "npt.NDArray[Any]":
    array = np.asarray(state.arrays[name])
    # An unsafe cast would silently change values.
    if not np.can_cast(array.dtype, dtype, "safe"):
        raise ValueError(f"{name} must be of the type {np.dtype(dtype)}, got {array.dtype}")
    return np.ascontiguousarray(array, dtype=dtype)


def _restored_ids(graph: "Graph", name: NodeType, state: State) -> IntArray:
    if graph.node_ids.texts is None:
        return _array(state, f"nodes/{name}/ids", np.int64)
    lengths = _array(state, f"nodes/{name}/text_lengths", np.int64)
    blob = _array(state, f"nodes/{name}/text", np.uint8).tobytes()
    in_use = _array(state, f"nodes/{name}/in_use", np.bool_)
    if lengths.ndim != 1 or in_use.ndim != 1:
        raise ValueError(f"text_lengths and in_use of {name!r} must have one dimension")
    ends = np.cumsum(lengths)
    if (lengths < 0).any() or (ends[-1] if len(ends) else 0) != len(blob):
        raise ValueError(f"the texts of {name!r} are not as long together as text_lengths says")
    if len(lengths) != np.count_nonzero(in_use):
        raise ValueError(f"{np.count_nonzero(in_use)} nodes of {name!r} have ids, for {len(lengths)} texts")
    texts = [blob[end - length : end].decode() for end, length in zip(ends, lengths, strict=True)]
    ids = np.full(len(in_use), -1, dtype=np.int64)
    if texts:
        ids[in_use] = graph.node_ids.intern(to_ids(texts, f"the texts of {name!r}"))
    return ids
