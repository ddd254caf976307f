"""Saves the exact state of a graph as named arrays, as checkpoints store it, and restores it."""

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

import livegnn._core as _core
from livegnn.errors import FileFormatError
from livegnn.events.chunk import to_ids
from livegnn.graph.native_graph import NativeGraph
from livegnn.types import Array, EdgeType, FloatArray, IntArray, State
from livegnn.wording import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

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

NAMES: Final = "names of a divided graph"
"""The kind of the state of a graph of names."""

OF_OWNERS: Final = "owners/"
"""How the names of its arrays of owners begin."""


def save(graph: NativeGraph) -> State:
    """The state of a graph. The caller must hold `Graph.writer`."""
    native, arrays = graph.native, dict[str, Array]()
    for index, name in enumerate(graph.schema.node_types):
        ids, arrays[f"nodes/{name}/free"] = native.save_nodes(index)
        if native.shares_features():
            arrays[f"nodes/{name}/held"], arrays[f"nodes/{name}/x"] = native.save_held_features(index)
        else:
            arrays[f"nodes/{name}/x"] = native.save_features(index)
        if name in graph.schema.timed_features:
            arrays[f"nodes/{name}/time"] = native.save_feature_times(index)
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


def save_names(graph: NativeGraph) -> State:
    """The state of a graph of names: no edges, and the owners of its nodes. The caller must hold
    `Graph.writer`.
    """
    saved = save(graph)
    owners = {
        f"{OF_OWNERS}{name}": _core.owners_of(graph.native, index)
        for index, name in enumerate(graph.schema.node_types)
    }
    return State({**saved.meta, "kind": NAMES}, {**saved.arrays, **owners})


def restore(graph: NativeGraph, state: State) -> None:
    """Fills an empty graph of the state's schema. Raises `FileFormatError`, which names the array that does
    not fit, the expected and the actual content; the graph is then unusable.
    """
    arrays, shares, x = _Arrays(state), graph.native.shares_features(), dict[str, FloatArray]()
    try:
        seq, num_edges, latest_time = _numbers(graph, state)
        # An edge has no later time. Some old states do not say which is the latest.
        graph.native.latest_time = latest_time if "latest_time" in state.meta else math.inf
        for index, name in enumerate(graph.schema.node_types):
            prefix = f"nodes/{name}"
            ids = _restored_ids(graph, prefix, arrays)
            free = arrays.take(f"{prefix}/free", np.uint32)
            x[name] = arrays.take(f"{prefix}/x", np.float32, 2)
            with _named(prefix):
                graph.native.load_nodes(index, ids, free, x[name][:0] if shares else x[name])
            if name in graph.schema.timed_features:
                times = arrays.take(f"{prefix}/time", np.float64)
                with _named(prefix):
                    graph.native.load_feature_times(index, times)
        for index, (edge_type, edges) in enumerate(graph.schema.edge_types.items()):
            prefix, keyed = _prefix(edge_type), edges.duplicates == "keep"
            # In lists of edges with keys, an id holds both the other end and the key.
            columns = _COLUMNS | ({"keys": np.uint64, "ids": np.uint64} if keyed else {})
            load = graph.native.load_keyed_edges if keyed else graph.native.load_edges
            out, into = (
                tuple(_column(arrays, f"{prefix}/{side}", column, dtype) for column, dtype in columns.items())
                for side in ("out", "in")
            )
            with _named(prefix):
                load(index, cast("Any", out), cast("Any", into), num_edges[index])
            if edges.edge_dim:
                free = arrays.take(f"{prefix}/free_rows", np.uint32)
                attr = arrays.take(f"{prefix}/x", np.float32, 2)
                with _named(prefix):
                    graph.native.load_edge_features(index, free, attr)
        if shares:
            _load_held_features(graph, arrays, x)
        arrays.check_all_taken()
    except (KeyError, ValueError, RuntimeError, TypeError) as error:
        raise FileFormatError(f"the state of a graph does not fit together: {error}") from error
    graph.seq = seq
    graph.native.latest_time = latest_time


def _load_held_features(graph: NativeGraph, arrays: "_Arrays", x: "dict[str, FloatArray]") -> None:
    """x: by node type, the rows of the nodes that the part holds. Parts of older versions had no such list,
    and the rows of all nodes."""
    for index, name in enumerate(graph.schema.node_types):
        prefix, rows = f"nodes/{name}", x[name]
        if arrays.has(f"{prefix}/held"):
            held = arrays.take(f"{prefix}/held", np.uint32)
        else:
            capacity = graph.native.capacity(index)
            if len(rows) != capacity:
                raise ValueError(f"{prefix}/x: expected {capacity} rows, as many as ids, got {len(rows)}")
            held = _core.held_nodes(graph.native, index)
            rows = rows[held]
        with _named(prefix):
            graph.native.load_held_features(index, held, rows)


class _Arrays:
    """The arrays of a state. None may be missing, and none may remain at the end."""

    def __init__(self, state: State) -> None:
        self._arrays = state.arrays
        self._left = set(state.arrays)

    def has(self, name: str) -> bool:
        return name in self._arrays

    def take(self, name: str, dtype: "npt.DTypeLike", dimensions: int = 1) -> "npt.NDArray[Any]":
        """Raises `ValueError`."""
        if name not in self._arrays:
            raise ValueError(f"{name}: expected an array, got none of this name")
        self._left.discard(name)
        array = np.asarray(self._arrays[name])
        if array.ndim != dimensions:
            raise ValueError(
                f"{name}: expected {format_count(dimensions, 'dimension')}, got the shape {array.shape}"
            )
        # An unsafe cast would silently change values.
        if not np.can_cast(array.dtype, dtype, "safe"):
            raise ValueError(f"{name}: expected the type {np.dtype(dtype)}, got {array.dtype}")
        return np.ascontiguousarray(array, dtype=dtype)

    def check_all_taken(self) -> None:
        if self._left:
            raise ValueError(
                f"{min(self._left)}: expected no array of this name, as the schema has none, got one"
            )


@contextmanager
def _named(prefix: str) -> "Iterator[None]":
    """Names the array in errors of the native core: adds the prefix to the core's part of the name."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{prefix}/{error}") from error


def _numbers(graph: NativeGraph, state: State) -> tuple[int, list[int], float]:
    """The sequence number, the number of edges of each type, and the latest time. Raises `ValueError`."""
    seq, num_edges = state.meta.get("seq"), state.meta.get("num_edges")
    latest_time = state.meta.get("latest_time")
    if type(seq) is not int or not 0 <= seq <= _LARGEST:
        raise ValueError(f"seq must be an integer from 0 to 2^63 - 1, got {seq!r}")
    types = len(graph.schema.edge_types)
    if not isinstance(num_edges, list) or len(num_edges) != types:
        raise ValueError(f"num_edges must be a list of {types} numbers, got {num_edges!r}")
    counts = [number for number in num_edges if type(number) is int and 0 <= number <= _LARGEST]
    if len(counts) != types:
        raise ValueError(f"num_edges must be integers of at least 0, got {num_edges!r}")
    if latest_time is None:
        return seq, counts, -math.inf
    if type(latest_time) not in (int, float) or not math.isfinite(cast("float", latest_time)):
        raise ValueError(f"latest_time must be a finite number or null, got {latest_time!r}")
    return seq, counts, float(cast("float", latest_time))


def _prefix(edge_type: EdgeType) -> str:
    return f"edges/{'/'.join(edge_type)}"


def _column(arrays: _Arrays, prefix: str, column: str, dtype: "npt.DTypeLike") -> "npt.NDArray[Any] | None":
    if column in _ADDED and not arrays.has(f"{prefix}/{column}"):
        return None
    return arrays.take(f"{prefix}/{column}", dtype)


def _restored_ids(graph: NativeGraph, prefix: str, arrays: _Arrays) -> IntArray:
    if graph.node_ids.texts is None:
        return arrays.take(f"{prefix}/ids", np.int64)
    lengths = arrays.take(f"{prefix}/text_lengths", np.int64)
    blob = arrays.take(f"{prefix}/text", np.uint8).tobytes()
    in_use = arrays.take(f"{prefix}/in_use", np.bool_)
    ends = np.cumsum(lengths)
    if ((lengths < 0) | (lengths > len(blob))).any() or (ends[-1] if len(ends) else 0) != len(blob):
        raise ValueError(
            f"{prefix}/text_lengths: expected lengths of at least 0 with the sum {len(blob)}, the number of "
            f"bytes of text, got the sum {lengths.sum()}"
        )
    if len(lengths) != np.count_nonzero(in_use):
        raise ValueError(
            f"{prefix}/in_use: expected {len(lengths)} nodes, as many as texts, got "
            f"{np.count_nonzero(in_use)}"
        )
    try:
        texts = [blob[end - length : end].decode() for end, length in zip(ends, lengths, strict=True)]
    except UnicodeDecodeError as error:
        raise ValueError(f"{prefix}/text: expected texts in UTF-8, got {error.object!r}") from error
    ids = np.full(len(in_use), -1, dtype=np.int64)
    if texts:
        ids[in_use] = graph.node_ids.intern(to_ids(texts, f"{prefix}/text"))
    return ids
