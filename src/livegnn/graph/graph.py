"""The live graph: what is in it, and how a batch of events changes it and every view of it at once."""

import math
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np

from livegnn import _core
from livegnn.errors import (
    FileFormatError,
    InputError,
    UnknownEdgeError,
    UnknownNodeError,
    UnknownTypeError,
)
from livegnn.events import Events
from livegnn.graph import construction, state
from livegnn.graph.core import make_core
from livegnn.graph.delta import GraphDelta
from livegnn.graph.schema import Schema
from livegnn.graph.snapshot import Snapshot
from livegnn.graph.view import Neighbors, View
from livegnn.types import (
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

_FILL_AT_ONCE = 1 << 20  # events
_NO_INDEX = 0xFFFFFFFF
_UNKNOWN_NODE = 0


class Graph:
    """A graph of one or more node and edge types, changed by batches of events.

    Thread safety: one batch at a time (`apply` waits for its turn); reading is safe at any time and sees the
    graph before a batch or after it.
    """

    def __init__(
        self,
        schema: Schema | None = None,
        *,
        threads: int | None = None,
        features_dir: "str | os.PathLike[str] | None" = None,
    ) -> None:
        """threads: how many work on one batch; by default as many as the process may use. What comes out does
        not depend on it. features_dir: where the features of nodes and edges lie in mapped files, for when
        they outgrow memory; made when it is missing. The files are the process's scratch, without a name:
        they go with it, and only checkpoints keep what is in them.

        Raises `InputError` if no files can be made in `features_dir`.
        """
        self.schema = schema if schema is not None else Schema()
        self.seq = 0
        self.writer = threading.RLock()
        self._node_types = {name: i for i, name in enumerate(self.schema.node_types)}
        self._edge_types = {name: i for i, name in enumerate(self.schema.edge_types)}
        self.texts = _core.TextIds() if self.schema.text_ids else None
        self._views: list[weakref.ref[View]] = []
        self.native = make_core(self.schema, threads, features_dir)

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
        edge_attr: "ArrayLike | None" = None,
        undirected: bool = False,
        time_to_live: float | None = None,
        features_dir: "str | os.PathLike[str] | None" = None,
    ) -> "Graph":
        """A graph of one node type and one edge type.

        src, dst: ids of the ends of each edge, integers or text. x: features, [nodes, channels]. ids: the ids
        of the rows of `x`; by default 0, 1, 2, ... up to `num_nodes`, or, without `x` and `num_nodes`, the
        ids that occur in the edges. weight, time: a number an edge. edge_attr: features of edges, [edges,
        channels]. undirected: each edge is given once and counts both ways. time_to_live: as in `EdgeSchema`.
        features_dir: as in `Graph`.
        Raises `InputError` if shapes do not fit, `UnknownNodeError` if an edge names a node that `ids` lacks.
        """
        schema, events = construction.read_arrays(
            src,
            dst,
            x=x,
            num_nodes=num_nodes,
            ids=ids,
            weight=weight,
            time=time,
            edge_attr=edge_attr,
            undirected=undirected,
            time_to_live=time_to_live,
        )
        graph = cls(schema, features_dir=features_dir)
        graph._fill(events)
        return graph

    @classmethod
    def from_pyg(
        cls, data: "Data | HeteroData", *, features_dir: "str | os.PathLike[str] | None" = None
    ) -> "Graph":
        """A graph from PyG's `Data` or `HeteroData`: `x`, `edge_index`, and `edge_weight`, `time` and
        `edge_attr` (the features of edges) where present.

        Nodes get the ids 0, 1, 2, ... of each type. Edges are taken as they are listed, both directions of an
        undirected graph included. features_dir: as in `Graph`.
        """
        schema, events = construction.read_pyg(data)
        graph = cls(schema, features_dir=features_dir)
        graph._fill(events)
        return graph

    def _fill(self, events: Events) -> None:
        # In one batch, what it is prepared in would take several times the memory of the graph.
        for part in events.parts(_FILL_AT_ONCE):
            self.apply(part, seq=0)

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
                        edge_type, self.intern(ids), self.intern(cast("Ids", dst)), weight, time, x
                    )
                elif kind == "remove_edges":
                    edge_type = self.edge_type_index(cast("EdgeType", type_))
                    stage.remove_edges(edge_type, self.intern(ids), self.intern(cast("Ids", dst)))
                elif kind == "set_features":
                    node_type = self.node_type_index(cast("NodeType", type_))
                    stage.set_features(node_type, self.intern(ids), cast("FloatArray", x))
                elif kind == "add_nodes":
                    stage.add_nodes(self.node_type_index(cast("NodeType", type_)), self.intern(ids), x)
                else:
                    stage.remove_nodes(self.node_type_index(cast("NodeType", type_)), self.intern(ids))
            native = stage.finish()
        except _core.EventError as error:
            raise self._explain(error) from None
        return GraphDelta(self, native, self.seq + native.num_events if seq is None else seq, events)

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

    def expired(self, now: float) -> Events:
        """The removal of all edges whose time is before `now` less their type's time to live.

        Only nodes that may have such edges are looked at: the earliest time of each 64 nodes is kept (a lower
        bound, made exact when the nodes are looked at). So a call costs one comparison for 64 nodes, and a
        scan of the edges of those 64 that have had one to expire since they were last looked at; after
        `from_state`, once, a scan of everything.
        """
        if not math.isfinite(now):
            raise InputError(f"now must be a finite number, in the unit of the edges' times, got {now!r}")
        events = Events()
        with self.writer:
            for (edge_type, edges), index in zip(
                self.schema.edge_types.items(), self._edge_types.values(), strict=True
            ):
                if edges.time_to_live is None:
                    continue
                ends = self.native.expired(index, now - edges.time_to_live)
                src, dst = (
                    self.to_user_ids(self.native.ids_of(self._node_types[edge_type[end]], nodes))
                    for end, nodes in zip((0, 2), ends, strict=True)
                )
                events.remove_edges(src, dst, edge_type=edge_type)
        return events

    def expire(self, now: float) -> GraphDelta:
        """Applies `expired(now)`, as a batch that every view sees.

        Where a `Runtime` runs the graph, leave it to that: what is not in its log it does not know.
        """
        with self.writer:
            return self.apply(self.expired(now))

    def attach(self, view: View) -> None:
        """From now on, `view` follows the graph for as long as someone holds it."""
        with self.writer:
            self._views = [ref for ref in self._views if ref() is not None]
            self._views.append(weakref.ref(view))

    # -- reading it
    # ---------------------------------------------------------------------------------------------

    @property
    def latest_time(self) -> float | None:
        """The latest time that an event of an edge of a timed type had, None before the first."""
        time = self.native.latest_time
        return time if math.isfinite(time) else None

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

    def edge_features(
        self, src: "ArrayLike", dst: "ArrayLike", edge_type: EdgeType | None = None
    ) -> FloatArray:
        """Features of the edges src[i] -> dst[i], float32 [edges, channels]; channels is 0 in a type without.

        Raises `UnknownNodeError`, and `UnknownEdgeError` for the first edge that is not in the graph.
        """
        index = self.edge_type_index(edge_type)
        source, _, target = list(self.schema.edge_types)[index]
        sources, targets = self.indices_of(src, source), self.indices_of(dst, target)
        if len(sources) != len(targets):
            raise InputError(f"src and dst must be of the same length, got {len(sources)} and {len(targets)}")
        features, found = self.native.edge_features(index, sources, targets)
        if found < len(sources):
            ends = [np.atleast_1d(np.asarray(ids))[found].item() for ids in (src, dst)]
            raise UnknownEdgeError(
                f"expected the ends of an edge, got {ends[0]!r} -> {ends[1]!r}, which is not in the graph: "
                "add it first"
            )
        return features

    def neighbors(
        self, id: int | str, *, edge_type: EdgeType | None = None, direction: str = "in"
    ) -> Neighbors:
        """The neighbours that point at a node (``direction="in"``) or that it points at (``"out"``)."""
        index = self.edge_type_index(edge_type)
        source, _, target = list(self.schema.edge_types)[index]
        here, there = (target, source) if _incoming(direction) else (source, target)
        node = int(self.indices_of(id, here)[0])
        nodes, weight, time, features = self.native.neighbors(index, node, _incoming(direction))
        edges = self.schema.edge_types[list(self.schema.edge_types)[index]]
        ids = self.to_user_ids(self.native.ids_of(self._node_types[there], nodes))
        return Neighbors(
            ids,
            weight if edges.weighted else None,
            time if edges.timed else None,
            features if edges.features else None,
        )

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
            ids, x, edge_index, weight, edge_attr, position = {}, {}, {}, {}, {}, {}
            for name, index in self._node_types.items():
                nodes = self.native.indices(index)
                ids[name] = self.to_user_ids(self.native.ids_of(index, nodes))
                x[name] = self.native.features(index, nodes)
                position[name] = np.zeros(self.native.capacity(index), dtype=np.int64)
                position[name][nodes] = np.arange(len(nodes))
            for edge_type, index in self._edge_types.items():
                source, target, weights, edge_attr[edge_type] = self.native.coo(index)
                edge_index[edge_type] = np.stack(
                    [position[edge_type[0]][source], position[edge_type[2]][target]]
                )
                weighted = self.schema.edge_types[edge_type].weighted
                weight[edge_type] = weights if weighted else np.ones(len(source), dtype=np.float32)
            return Snapshot(ids, x, edge_index, weight, edge_attr)

    def memory(self) -> dict[str, int]:
        """Bytes of each part; `batches` is what the last batch was prepared in, and what is `mapped` lies in
        files: the system takes as much memory for it as it can spare.
        """
        nodes, edges = self.native.memory()
        parts = {}
        for name, (ids, x, mapped) in zip(self._node_types, nodes, strict=True):
            parts[f"ids of {name}"], parts[f"features of {name}"] = ids, x
            if mapped:
                parts[f"mapped features of {name}"] = mapped
        for edge_type, (lists, batches, x, mapped) in zip(self._edge_types, edges, strict=True):
            name = "-".join(edge_type)
            parts[f"edges of {name}"], parts[f"batches of {name}"] = lists, batches
            if self.schema.edge_types[edge_type].features:
                parts[f"features of {name}"] = x
            if mapped:
                parts[f"mapped features of {name}"] = mapped
        return parts

    # -- keeping it
    # ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Everything, exactly: a graph restored from it behaves as this one would, bit for bit."""
        with self.writer:
            return state.save(self)

    @classmethod
    def from_state(cls, saved: State, *, features_dir: "str | os.PathLike[str] | None" = None) -> "Graph":
        """Raises `FileFormatError` if the state is not one that `state` made. features_dir: as in `Graph`."""
        if saved.meta.get("kind") != "graph":
            raise FileFormatError(f"expected the state of a graph, got {saved.meta.get('kind')!r}")
        graph = cls(Schema.from_json(saved.meta.get("schema")), features_dir=features_dir)
        state.restore(graph, saved)
        return graph

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
        if self.texts is None:
            return numbers
        return np.array(self.texts.texts(numbers), dtype=np.str_)

    def to_numbers(self, ids: "ArrayLike") -> IntArray:
        """The numbers inside of ids that may or may not be known."""
        return self._look_up(np.atleast_1d(np.asarray(ids)))

    def _look_up(self, ids: "NDArray[np.generic]") -> IntArray:
        if self.texts is None:
            if ids.dtype.kind not in "iu":
                raise InputError(f"this graph's ids are integers, got {ids.dtype}")
            return np.ascontiguousarray(ids, dtype=np.int64)
        return self.texts.find(_code_points(ids))

    def intern(self, ids: Ids) -> IntArray:
        if self.texts is None:
            if ids.dtype.kind != "i":
                raise InputError(f"this graph's ids are integers, got {ids.dtype}")
            return cast("IntArray", ids)
        return self.texts.intern(_code_points(ids))

    def _explain(self, error: _core.EventError) -> InputError:
        kind, what, number, node_type = error.args
        if kind != _UNKNOWN_NODE:
            return InputError(what)
        name = list(self._node_types)[node_type]
        shown = number if self.texts is None else self.texts.texts(np.array([number]))[0]
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
