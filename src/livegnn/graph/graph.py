"""The live graph: what is in it, and how a batch of events changes it and every view of it at once."""

import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from livegnn import _core
from livegnn.errors import FileFormatError, InputError, UnknownNodeError, UnknownTypeError
from livegnn.events import Events
from livegnn.graph.delta import GraphDelta
from livegnn.graph.schema import EdgeSchema, Schema
from livegnn.graph.snapshot import Snapshot
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
    State,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch_geometric.data import Data, HeteroData

_NO_INDEX = 0xFFFFFFFF
_UNKNOWN_NODE = 0
# Of an edge type's lists, as the native core saves them.
_COLUMNS = {
    "shape": np.uint32,
    "keys": np.uint32,
    "ids": np.uint32,
    "weight": np.float32,
    "time": np.float64,
    "row": np.uint32,
}


@runtime_checkable
class View(Protocol):
    """Something that is derived from a graph and kept fresh.

    For each batch `prepare` is called before the graph changes, then, unless any view raised, `commit` after
    it. What `native` holds is committed together with the graph, under the same lock.
    """

    native: "tuple[_core.Engine, _core.Prepared] | None"

    def prepare(self, delta: GraphDelta) -> None: ...
    def commit(self, delta: GraphDelta) -> None: ...


class Neighbors(NamedTuple):
    """The neighbours of a node: ids, and weights and times where the edge type has them."""

    ids: Ids
    weight: FloatArray | None
    time: DoubleArray | None


class Graph:
    """A graph of one or more node and edge types, changed by batches of events.

    Thread safety: one batch at a time (`apply` waits for its turn); reading is safe at any time and sees the
    graph before a batch or after it.
    """

    def __init__(self, schema: Schema | None = None, *, threads: int | None = None) -> None:
        """threads: how many work on one batch; by default as many as the process may use. What comes out does
        not depend on it."""
        if threads is not None and threads < 1:
            raise InputError(f"threads must be at least 1, got {threads}")
        self.schema = schema if schema is not None else Schema()
        self.seq = 0
        self.writer = threading.RLock()
        self._node_types = {name: i for i, name in enumerate(self.schema.node_types)}
        self._edge_types = {name: i for i, name in enumerate(self.schema.edge_types)}
        self._texts = _core.TextIds() if self.schema.text_ids else None
        self._views: list[weakref.ref[View]] = []
        self.native = _core.Graph(
            list(self.schema.node_types.values()),
            [
                (
                    self._node_types[source],
                    self._node_types[target],
                    edges.weighted,
                    edges.timed,
                    edges.undirected,
                    edges.duplicates == "add",
                    edges.in_neighbors,
                    edges.capacity,
                    edges.slack if edges.slack is not None else edges.capacity // 8,
                )
                for (source, _, target), edges in self.schema.edge_types.items()
            ],
            threads if threads is not None else len(os.sched_getaffinity(0)),
        )

    # -- making one
    # ---------------------------------------------------------------------------------------------

    @classmethod
    def from_edges(
        cls,
        src: "ArrayLike",
        dst: "ArrayLike",
        *,
        x: "ArrayLike | None" = None,
        num_nodes: int | None = None,
        ids: "ArrayLike | None" = None,
        weight: "ArrayLike | None" = None,
        time: "ArrayLike | None" = None,
        undirected: bool = False,
    ) -> "Graph":
        """A graph of one node type and one edge type.

        src, dst: ids of the ends of each edge, integers or text. x: features, [nodes, channels]. ids: the ids
        of the rows of `x`; by default 0, 1, 2, ... up to `num_nodes`, or, without `x` and `num_nodes`, the
        ids that occur in the edges. weight, time: a number an edge. undirected: each edge is given once and
        counts both ways.
        Raises `InputError` if shapes do not fit, `UnknownNodeError` if an edge names a node that `ids` lacks.
        """
        features = None if x is None else np.ascontiguousarray(x, dtype=np.float32)
        if features is not None and features.ndim != 2:
            raise InputError(f"x must have the shape (nodes, channels), got {features.shape}")
        if ids is None:
            count = num_nodes if num_nodes is not None else None if features is None else len(features)
            named = np.arange(count) if count is not None else np.unique(np.concatenate([src, dst]))
        else:
            named = np.asarray(ids)
        if features is not None and len(features) != len(named):
            raise InputError(
                f"x must have a row for each of the {len(named)} nodes, got {len(features)} rows"
            )
        if num_nodes is not None and num_nodes != len(named):
            raise InputError(f"num_nodes must be the number of ids, {len(named)}, got {num_nodes}")
        graph = cls(
            Schema(
                {DEFAULT_NODE_TYPE: 0 if features is None else features.shape[1]},
                {
                    DEFAULT_EDGE_TYPE: EdgeSchema(
                        undirected=undirected, weighted=weight is not None, timed=time is not None
                    )
                },
                text_ids=named.dtype.kind in "UO",
            )
        )
        events = Events().add_nodes(cast("Ids", named), features)
        if np.size(src):
            events.add_edges(cast("Ids", src), cast("Ids", dst), weight=weight, time=time)
        graph.apply(events, seq=0)
        return graph

    @classmethod
    def from_pyg(cls, data: "Data | HeteroData") -> "Graph":
        """A graph from PyG's `Data` or `HeteroData`: `x`, `edge_index`, and `edge_weight` and `time` where
        present.

        Nodes get the ids 0, 1, 2, ... of each type. Edges are taken as they are listed, both directions of an
        undirected graph included.
        """
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

        def column(store: "Data", name: str) -> "NDArray[np.generic] | None":
            value = store.get(name) if name in store else None
            return None if value is None else value.detach().cpu().numpy()

        features = {name: column(store, "x") for name, store in stores}
        graph = cls(
            Schema(
                {name: 0 if x is None else x.shape[1] for name, x in features.items()},
                {
                    edge_type: EdgeSchema(
                        weighted=column(store, "edge_weight") is not None,
                        timed=column(store, "time") is not None,
                    )
                    for edge_type, store in links
                },
            )
        )
        events = Events()
        for name, store in stores:
            x = features[name]
            ids = np.arange(store.num_nodes, dtype=np.int64)
            events.add_nodes(ids, None if x is None else x.astype(np.float32), node_type=name)
        for edge_type, store in links:
            src, dst = store["edge_index"].cpu().numpy()
            events.add_edges(
                src, dst, weight=column(store, "edge_weight"), time=column(store, "time"), edge_type=edge_type
            )
        graph.apply(events, seq=0)
        return graph

    # -- changing it
    # --------------------------------------------------------------------------------------------

    def stage(self, events: Events, *, seq: int | None = None) -> GraphDelta:
        """What `events` would change, without changing it. Raises what `apply` raises."""
        stage = _core.Stage(self.native)
        try:
            for kind, type_, ids, dst, weight, time, x in events.chunks:
                if kind == "add_edges":
                    edge_type = self.edge_type_index(cast("EdgeType", type_))
                    stage.add_edges(
                        edge_type, self._intern(ids), self._intern(cast("Ids", dst)), weight, time
                    )
                elif kind == "remove_edges":
                    edge_type = self.edge_type_index(cast("EdgeType", type_))
                    stage.remove_edges(edge_type, self._intern(ids), self._intern(cast("Ids", dst)))
                elif kind == "set_features":
                    node_type = self.node_type_index(cast("NodeType", type_))
                    stage.set_features(node_type, self._intern(ids), cast("FloatArray", x))
                elif kind == "add_nodes":
                    stage.add_nodes(self.node_type_index(cast("NodeType", type_)), self._intern(ids), x)
                else:
                    stage.remove_nodes(self.node_type_index(cast("NodeType", type_)), self._intern(ids))
            native = stage.finish()
        except _core.EventError as error:
            raise self._explain(error) from None
        return GraphDelta(self, native, self.seq + native.num_events if seq is None else seq)

    def apply(
        self,
        events: Events,
        *,
        seq: int | None = None,
        on_staged: Callable[[GraphDelta], None] | None = None,
    ) -> GraphDelta:
        """Applies a batch of events, in order, to the graph and to every view of it, as a whole or not at
        all.

        seq: the sequence number after the batch; by default it grows by the number of events. on_staged:
        called when everything is known to be good and nothing is visible yet; if it raises, nothing happens.

        Raises `UnknownNodeError`, `UnknownTypeError` or `InputError`, and then nothing has changed. Removing
        an edge that is not there does nothing; adding a node that is there sets its features; an edge that
        comes with an older time than the one that is there is ignored.
        """
        with self.writer:
            delta = self.stage(events, seq=seq)
            views = [view for ref in self._views if (view := ref()) is not None]
            for view in views:
                view.prepare(delta)
            self.native.prepare(delta.native)
            try:
                if on_staged is not None:
                    on_staged(delta)
            except BaseException:
                self.native.abandon()
                raise
            self.native.commit(delta.native, [view.native for view in views if view.native is not None])
            self.seq = delta.seq
            for view in views:
                view.commit(delta)
            return delta

    def attach(self, view: View) -> None:
        """From now on, `view` follows the graph for as long as someone holds it."""
        with self.writer:
            self._views = [ref for ref in self._views if ref() is not None]
            self._views.append(weakref.ref(view))

    # -- reading it
    # ---------------------------------------------------------------------------------------------

    def num_nodes(self, node_type: NodeType | None = None) -> int:
        return self.native.num_nodes(self.node_type_index(node_type))

    def num_edges(self, edge_type: EdgeType | None = None) -> int:
        """Number of edges; an undirected edge counts once."""
        return self.native.num_edges(self.edge_type_index(edge_type))

    def ids(self, node_type: NodeType | None = None) -> Ids:
        """All ids, in the order in which `snapshot` and `Engine.embeddings` list nodes."""
        index = self.node_type_index(node_type)
        return self.to_user_ids(self.native.ids_of(index, self.native.indices(index)))

    def contains(self, ids: "ArrayLike", node_type: NodeType | None = None) -> "NDArray[np.bool_]":
        """Which of `ids` are in the graph."""
        numbers = self._look_up(np.atleast_1d(np.asarray(ids)))
        found: NDArray[np.bool_] = (
            self.native.indices_of(self.node_type_index(node_type), numbers) != _NO_INDEX
        )
        return found

    def features(self, ids: "ArrayLike", node_type: NodeType | None = None) -> FloatArray:
        """Features of nodes, float32 [ids, channels]. Raises `UnknownNodeError`."""
        return self.native.features(self.node_type_index(node_type), self.indices_of(ids, node_type))

    def neighbors(
        self, id: int | str, *, edge_type: EdgeType | None = None, direction: str = "in"
    ) -> Neighbors:
        """The neighbours that point at a node (``direction="in"``) or that it points at (``"out"``)."""
        index = self.edge_type_index(edge_type)
        source, _, target = list(self.schema.edge_types)[index]
        here, there = (target, source) if _incoming(direction) else (source, target)
        node = int(self.indices_of(id, here)[0])
        nodes, weight, time = self.native.neighbors(index, node, _incoming(direction))
        edges = self.schema.edge_types[list(self.schema.edge_types)[index]]
        ids = self.to_user_ids(self.native.ids_of(self._node_types[there], nodes))
        return Neighbors(ids, weight if edges.weighted else None, time if edges.timed else None)

    def degree(
        self, ids: "ArrayLike", *, edge_type: EdgeType | None = None, direction: str = "in"
    ) -> IntArray:
        """How many edges come in (or go out), int64 [ids]."""
        index = self.edge_type_index(edge_type)
        source, _, target = list(self.schema.edge_types)[index]
        here = target if _incoming(direction) else source
        return self.native.degrees(index, self.indices_of(ids, here), _incoming(direction))

    def snapshot(self) -> Snapshot:
        """The whole graph as plain arrays."""
        with self.writer:
            ids, x, edge_index, weight, position = {}, {}, {}, {}, {}
            for name, index in self._node_types.items():
                nodes = self.native.indices(index)
                ids[name] = self.to_user_ids(self.native.ids_of(index, nodes))
                x[name] = self.native.features(index, nodes)
                position[name] = np.zeros(self.native.capacity(index), dtype=np.int64)
                position[name][nodes] = np.arange(len(nodes))
            for edge_type, index in self._edge_types.items():
                source, target, weights = self.native.coo(index)
                edge_index[edge_type] = np.stack(
                    [position[edge_type[0]][source], position[edge_type[2]][target]]
                )
                weighted = self.schema.edge_types[edge_type].weighted
                weight[edge_type] = weights if weighted else np.ones(len(source), dtype=np.float32)
            return Snapshot(ids, x, edge_index, weight)

    def memory(self) -> dict[str, int]:
        """Bytes of each part; `batches` is what the last batch was prepared in."""
        nodes, edges = self.native.memory()
        parts = {}
        for name, (ids, x) in zip(self._node_types, nodes, strict=True):
            parts[f"ids of {name}"], parts[f"features of {name}"] = ids, x
        for name_, (lists, batches) in zip(self._edge_types, edges, strict=True):
            parts[f"edges of {'-'.join(name_)}"] = lists
            parts[f"batches of {'-'.join(name_)}"] = batches
        return parts

    # -- keeping it
    # ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Everything, exactly: a graph restored from it behaves as this one would, bit for bit."""
        with self.writer:
            arrays: dict[str, Array] = {}
            for name, index in self._node_types.items():
                ids, free, x = self.native.save_nodes(index)
                arrays[f"nodes/{name}/free"], arrays[f"nodes/{name}/x"] = free, x
                if self._texts is None:
                    arrays[f"nodes/{name}/ids"] = ids
                    continue
                texts = [text.encode() for text in self._texts.texts(ids[ids >= 0])]
                arrays[f"nodes/{name}/in_use"] = ids >= 0
                arrays[f"nodes/{name}/text"] = np.frombuffer(b"".join(texts), dtype=np.uint8)
                arrays[f"nodes/{name}/text_lengths"] = np.array([len(text) for text in texts], dtype=np.int64)
            for edge_type, index in self._edge_types.items():
                for side, columns in zip(("out", "in"), self.native.save_edges(index), strict=True):
                    for column, array in zip(_COLUMNS, columns, strict=True):
                        arrays[f"edges/{'/'.join(edge_type)}/{side}/{column}"] = cast("Array", array)
            edges = [self.native.num_edges(index) for index in self._edge_types.values()]
            return State(
                {"kind": "graph", "schema": self.schema.to_json(), "seq": self.seq, "num_edges": list(edges)},
                arrays,
            )

    @classmethod
    def from_state(cls, state: State) -> "Graph":
        """Raises `FileFormatError` if the state is not one that `state` made."""
        if state.meta.get("kind") != "graph":
            raise FileFormatError(f"expected the state of a graph, got {state.meta.get('kind')!r}")
        graph = cls(Schema.from_json(state.meta.get("schema")))
        seq, num_edges = state.meta.get("seq"), state.meta.get("num_edges")
        try:
            if not isinstance(seq, int) or not isinstance(num_edges, list):
                raise ValueError("seq and num_edges must be an integer and a list")
            for name, index in graph._node_types.items():
                ids = graph._restored_ids(name, state)
                free = np.ascontiguousarray(state.arrays[f"nodes/{name}/free"], dtype=np.uint32)
                x = np.ascontiguousarray(state.arrays[f"nodes/{name}/x"], dtype=np.float32)
                graph.native.load_nodes(index, ids, free, x)
            for edge_type, index in graph._edge_types.items():
                out, into = (
                    tuple(
                        np.ascontiguousarray(
                            state.arrays[f"edges/{'/'.join(edge_type)}/{side}/{column}"], dtype=dtype
                        )
                        for column, dtype in _COLUMNS.items()
                    )
                    for side in ("out", "in")
                )
                graph.native.load_edges(
                    index,
                    cast("_core._Columns", out),
                    cast("_core._Columns", into),
                    int(cast("int", num_edges[index])),
                )
        except (KeyError, ValueError, RuntimeError, TypeError) as error:
            raise FileFormatError(f"the state of a graph does not fit together: {error}") from error
        graph.seq = seq
        return graph

    def _restored_ids(self, name: NodeType, state: State) -> IntArray:
        if self._texts is None:
            return np.ascontiguousarray(state.arrays[f"nodes/{name}/ids"], dtype=np.int64)
        lengths = state.arrays[f"nodes/{name}/text_lengths"].astype(np.int64)
        blob = state.arrays[f"nodes/{name}/text"].astype(np.uint8).tobytes()
        ends = np.cumsum(lengths)
        texts = [blob[end - length : end].decode() for end, length in zip(ends, lengths, strict=True)]
        in_use = state.arrays[f"nodes/{name}/in_use"].astype(bool)
        ids = np.full(len(in_use), -1, dtype=np.int64)
        if texts:
            ids[in_use] = self._intern(np.array(texts, dtype=np.str_))
        return ids

    # -- names inside and outside
    # -------------------------------------------------------------------------------

    def node_type_index(self, node_type: NodeType | None) -> int:
        """Raises `UnknownTypeError`. None names the only type."""
        index = self._node_types.get(cast("NodeType", node_type))
        if index is not None:
            return index
        if node_type is None and len(self._node_types) == 1:
            return 0
        raise UnknownTypeError(
            f"node type must be one of {', '.join(map(repr, self._node_types))}, got {node_type!r}"
        )

    def edge_type_index(self, edge_type: EdgeType | None) -> int:
        """Raises `UnknownTypeError`. None names the only type."""
        index = self._edge_types.get(cast("EdgeType", edge_type))
        if index is not None:
            return index
        if edge_type is None and len(self._edge_types) == 1:
            return 0
        raise UnknownTypeError(
            f"edge type must be one of {', '.join(map(repr, self._edge_types))}, got {edge_type!r}"
        )

    def indices_of(self, ids: "ArrayLike", node_type: NodeType | None = None) -> "NDArray[np.uint32]":
        """Dense indices of nodes. Raises `UnknownNodeError` for the first id that names no node."""
        asked = np.atleast_1d(np.asarray(ids))
        indices = self.native.indices_of(self.node_type_index(node_type), self._look_up(asked))
        unknown = np.flatnonzero(indices == _NO_INDEX)
        if len(unknown):
            raise UnknownNodeError(self.unknown_node(asked[unknown[0]], node_type))
        return indices

    def unknown_node(self, id: object, node_type: NodeType | None) -> str:
        name = node_type if node_type is not None else next(iter(self._node_types))
        shown = id.item() if isinstance(id, np.generic) else id
        return (
            f"expected the id of a node of type {name!r}, got {shown!r}, "
            "which is not in the graph: add it first"
        )

    def to_user_ids(self, numbers: IntArray) -> Ids:
        if self._texts is None:
            return numbers
        return np.array(self._texts.texts(numbers), dtype=np.str_)

    def to_numbers(self, ids: "ArrayLike") -> IntArray:
        """The numbers inside of ids that may or may not be known."""
        return self._look_up(np.atleast_1d(np.asarray(ids)))

    def _look_up(self, ids: "NDArray[np.generic]") -> IntArray:
        if self._texts is None:
            if ids.dtype.kind not in "iu":
                raise InputError(f"this graph's ids are integers, got {ids.dtype}")
            return np.ascontiguousarray(ids, dtype=np.int64)
        return self._texts.find(_code_points(ids))

    def _intern(self, ids: Ids) -> IntArray:
        if self._texts is None:
            if ids.dtype.kind != "i":
                raise InputError(f"this graph's ids are integers, got {ids.dtype}")
            return cast("IntArray", ids)
        return self._texts.intern(_code_points(ids))

    def _explain(self, error: _core.EventError) -> InputError:
        kind, what, number, node_type = error.args
        if kind != _UNKNOWN_NODE:
            return InputError(what)
        name = list(self._node_types)[node_type]
        shown = number if self._texts is None else self._texts.texts(np.array([number]))[0]
        return UnknownNodeError(
            f"expected the id of a node of type {name!r}, got {shown!r}, which {what}: add it first"
        )


def _incoming(direction: str) -> bool:
    if direction not in ("in", "out"):
        raise InputError(f"direction must be 'in' or 'out', got {direction!r}")
    return direction == "in"


def _code_points(ids: "NDArray[np.generic]") -> "NDArray[np.uint32]":
    if ids.dtype.kind == "O":
        ids = ids.astype(np.str_)
    if ids.dtype.kind != "U":
        raise InputError(f"this graph's ids are text, got {ids.dtype}")
    width = ids.dtype.itemsize // np.dtype(np.uint32).itemsize
    return np.ascontiguousarray(ids).view(np.uint32).reshape(len(ids), width)
