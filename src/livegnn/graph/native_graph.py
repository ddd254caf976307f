"""The native graph, with the schema, the ids and the sequence number that belong to it.

Functions that change, save or describe a graph take a `NativeGraph`. `Graph` has one, and calls them.
"""

import math
import os
from threading import RLock
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

import livegnn._core as _core
from livegnn.arguments import as_path, chosen_threads, listed_ids
from livegnn.errors import InputError, UnknownNodeError
from livegnn.events import Events
from livegnn.graph.defaults import left_out, with_types
from livegnn.graph.node_ids import NodeIds
from livegnn.graph.writer import Claim, Measurement
from livegnn.schema import Schema
from livegnn.types import DoubleArray, IntArray, NodeType
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64, Integer, UInt32
    from numpy.typing import ArrayLike, NDArray


class EdgesElsewhere(Protocol):
    """The edges of a graph of names, which the parts of the divided graph keep. Edge types are given by their
    index. The caller holds `Graph.writer`. Raises `WorkerUnavailableError` if a part is lost."""

    def expired(self, edge_type: int, horizon: float) -> "tuple[UInt32[NDArray[np.uint32], 'edges'], ...]":
        """Sources, targets and keys of the edges whose time is before `horizon`, in the order of an undivided
        graph."""

    def num_edges(self, edge_type: int) -> int:
        """An undirected edge counts once."""


class NativeGraph:
    """An empty native graph of a schema; `Graph` documents the arguments and the errors.

    seq: the sequence number of the last event. batch_began: when the current batch got the writer lock.
    claim: held by a runtime, which alone may apply batches. measurement: the bytes of each part.
    elsewhere: the edges, of a graph of names.
    """

    def __init__(
        self, schema: Schema, threads: int | None = None, features_dir: "str | os.PathLike[str] | None" = None
    ) -> None:
        self.schema = schema
        self.seq = 0
        self.batch_began = 0.0
        self.claim: Claim | None = None
        self.elsewhere: EdgesElsewhere | None = None
        self._writer = RLock()
        self.measurement = Measurement(self._writer)
        self._left_out = left_out(schema)
        self.node_ids = NodeIds(text=schema.text_ids)
        self.native = _make_native(schema, threads, features_dir)
        if self.node_ids.texts is not None:
            self.native.use_texts(self.node_ids.texts)

    @property
    def writer(self) -> RLock:
        """As `Graph.writer`."""
        # Checked here and not in an `__enter__`, which an interrupt could leave after it took the lock.
        _core.refuse_in_function()
        return self._writer

    @property
    def latest_time(self) -> float | None:
        """As `Graph.latest_time`."""
        time = self.native.latest_time
        return time if math.isfinite(time) else None

    def num_edges(self, edge_type: int) -> int:
        """As `Graph.num_edges`, of an edge type by its index."""
        if self.elsewhere is not None:
            return _core.holding(self.writer, self.elsewhere.num_edges, edge_type)
        return self.native.num_edges(edge_type)

    def feature_times(self, ids: "ArrayLike", node_type: NodeType | None) -> "Float64[DoubleArray, 'ids']":
        """As `Graph.feature_times`."""
        index = self.schema.node_type_index(node_type)
        name = list(self.schema.node_types)[index]
        if name not in self.schema.timed_features:
            raise InputError(
                f"node_type must be one of timed_features of the schema, {self.schema.timed_features!r}, got "
                f"{name!r}"
            )
        asked = listed_ids(ids)
        times = self.native.feature_times_of(index, self.node_ids.given(asked))
        if isinstance(times, int):
            raise UnknownNodeError(self.unknown_node(asked[times], name))
        return times

    def expired(self, edge_type: int, horizon: float) -> "tuple[UInt32[NDArray[np.uint32], 'edges'], ...]":
        """Sources, targets and keys of the edges of a type whose time is before `horizon`, as indices. The
        caller must hold `Graph.writer`."""
        if self.elsewhere is not None:
            return self.elsewhere.expired(edge_type, horizon)
        return self.native.expired(edge_type, horizon)

    def with_types(self, events: Events) -> Events:
        """As `Graph.with_types`."""
        if not isinstance(events, Events):
            raise InputError(
                f"expected Events, got {kind_of(events)}: write lg.Events().add_edges(src, dst), "
                "with an array or a number for each, or Events.from_records for dicts"
            )
        return with_types(events, self._left_out) if self._left_out else events

    def numbers_of(
        self, indices: "UInt32[NDArray[np.uint32], 'nodes']", node_type: NodeType, delta: _core.Delta
    ) -> "Int64[IntArray, 'nodes']":
        """As `GraphDelta.numbers_of`."""
        index = self.schema.node_type_index(node_type)
        known = indices < self.native.capacity(index)
        numbers = np.full(len(indices), -1, dtype=np.int64)
        numbers[known] = self.native.ids_of(index, indices[known])
        for named, names in (
            (delta.added_indices(index), delta.added(index)),
            (delta.removed_indices(index), delta.removed(index)),
        ):
            NumberMap(named, names).look_up(indices, numbers)
        return numbers

    def unknown_node(self, id: object, node_type: NodeType | None) -> str:
        """Why an id names no node, for errors."""
        name = node_type if node_type is not None else next(iter(self.schema.node_types))
        return name_unknown_node(id, name)


def name_unknown_node(id: object, node_type: NodeType) -> str:
    """Why an id names no node of a graph, for errors."""
    shown = id.item() if isinstance(id, np.generic) else id
    return (
        f"expected the id of a node of type {node_type!r}, got {shown!r}, which is not in the graph: "
        "add it first"
    )


class NumberMap:
    """A map from numbers to numbers, for arrays. keys: distinct, in any order."""

    def __init__(
        self, keys: "Integer[NDArray[np.integer], 'keys']", values: "Integer[NDArray[np.integer], 'keys']"
    ) -> None:
        order = np.argsort(keys)
        self._keys, self._values = keys[order], values[order]

    def look_up(
        self, keys: "Integer[NDArray[np.integer], 'n']", out: "Integer[NDArray[np.integer], 'n']"
    ) -> None:
        """Writes the values of those of `keys` that the map has to `out`; the rest of `out` stays."""
        if not len(self._keys):
            return
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = self._keys[places] == keys
        out[known] = self._values[places[known]]


def _make_native(
    schema: Schema, threads: int | None, features_dir: "str | os.PathLike[str] | None"
) -> _core.Graph:
    workers, edge_types = chosen_threads(threads), edge_specs(schema)
    widths, timed = list(schema.node_types.values()), list(map(schema.node_type_index, schema.timed_features))
    if features_dir is None:
        return _core.Graph(widths, edge_types, workers, "", timed)
    directory = as_path(features_dir, "features_dir")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _core.Graph(widths, edge_types, workers, str(directory), timed)
    except _core.ThreadError:
        raise
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"features_dir must be a directory in which files can be made, got {features_dir!r}: {error}"
        ) from error


EdgeSpec: TypeAlias = tuple[int, int, bool, bool, bool, bool, bool, int, int, int, bool, bool]
"""An edge type as the native graph takes it."""


def edge_specs(schema: Schema) -> list[EdgeSpec]:
    """The edge types of a schema, in its order."""
    return [
        (
            schema.node_type_index(source),
            schema.node_type_index(target),
            edges.weighted,
            edges.timed,
            edges.undirected,
            edges.duplicates == "add",
            edges.in_neighbors,
            edges.capacity,
            edges.slack if edges.slack is not None else edges.capacity // 8,
            edges.edge_dim,
            edges.time_to_live is not None,
            edges.duplicates == "keep",
        )
        for (source, _, target), edges in schema.edge_types.items()
    ]
