"""The live graph: reads its content, and applies batches of events to it and to all its views at once."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from threading import RLock
from types import NoneType
from typing import TYPE_CHECKING

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_function, is_incoming, listed_ids, one_id
from livegnn.errors import FileFormatError, InputError, UnknownEdgeError, UnknownNodeError
from livegnn.events import Events
from livegnn.events.chunk import to_key
from livegnn.graph import construction, state
from livegnn.graph.construction import Parallel
from livegnn.graph.delta import GraphDelta
from livegnn.graph.description import describe, measure_parts
from livegnn.graph.expiry import find_expired
from livegnn.graph.native_graph import NativeGraph
from livegnn.graph.snapshot import Neighbors, Snapshot, take_snapshot
from livegnn.graph.staging import check_seq, stage_batch
from livegnn.graph.transaction import Transaction
from livegnn.graph.view_registry import Follower, ViewRegistry
from livegnn.schema import Schema
from livegnn.tables import TableMapping
from livegnn.types import NO_INDEX, DoubleArray, EdgeType, FloatArray, Ids, IntArray, NodeType, State
from livegnn.wording import kind_of, never_raises

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Float64, Int64, Shaped, UInt32
    from numpy.typing import ArrayLike, NDArray
    from torch_geometric.data import Data, HeteroData

_FILL_AT_ONCE = 1 << 20  # events
_LACKS_SOURCE, _LACKS_EDGE = 1, 3


class Graph:
    """A graph of one or more node and edge types, changed by batches of events.

    Thread safety: `apply` takes the writer lock, so batches are applied one at a time. Reading is safe at any
    time and sees the graph either before or after a batch.
    """

    def __init__(
        self,
        schema: Schema | None = None,
        *,
        threads: int | None = None,
        features_dir: "str | os.PathLike[str] | None" = None,
    ) -> None:
        """threads: how many threads work on one batch; by default as many as the process may use. The results
        do not depend on it. features_dir: a directory in which memory-mapped files hold the features of nodes
        and edges, for features larger than memory; it is created if it is missing. The files are temporary
        and have no name: they vanish with the process, and only checkpoints keep their content.

        Raises `InputError` if no files can be made in `features_dir`, and `OSError` if the system cannot
        start the threads.
        """
        if not isinstance(schema, (Schema, NoneType)):
            raise InputError(
                f"expected a Schema, got {kind_of(schema)}: Graph.from_edges makes a graph of arrays, "
                "Graph.from_pyg of PyG's data"
            )
        self.core = NativeGraph(Schema() if schema is None else schema, threads, features_dir)
        """The graph without its views, for functions below this class."""
        self.native, self.node_ids = self.core.native, self.core.node_ids
        self.views = ViewRegistry()
        self.forkable = features_dir is None
        """Whether a forked process has a copy of everything: it shares mapped files."""
        self.names_only = False
        """Whether it knows all nodes, and none of the edges, which are in the parts of a divided graph."""

    @property
    def schema(self) -> Schema:
        return self.core.schema

    @property
    def seq(self) -> int:
        """The sequence number of the last event that the graph reflects."""
        return self.core.seq

    @seq.setter
    def seq(self, seq: int) -> None:
        self.core.seq = seq

    @property
    def writer(self) -> RLock:
        """The re-entrant lock that a thread holds while it changes the graph or its views, for `with`.

        Raises RuntimeError inside a function of a model: the batch that runs it would wait for itself.
        """
        return self.core.writer

    @never_raises
    def __repr__(self) -> str:
        return describe(self.core, sum(self.memory().values()))

    # -- making one
    # ---------------------------------------------------------------------------------------------

    @classmethod
    def from_edges(
        cls,
        src: "ArrayLike",
        dst: "ArrayLike | None" = None,
        *,
        x: "ArrayLike | None" = None,
        num_nodes: int | None = None,
        ids: "ArrayLike | None" = None,
        weight: "ArrayLike | None" = None,
        time: "ArrayLike | None" = None,
        edge_attr: "ArrayLike | None" = None,
        undirected: bool = False,
        time_to_live: float | None = None,
        parallel: Parallel = "refuse",
        features_dir: "str | os.PathLike[str] | None" = None,
    ) -> "Graph":
        """Makes a graph of one node type and one edge type.

        src, dst: ids of the ends of each edge, integers or text. x: features, [nodes, channels]. ids: the ids
        of the rows of `x`; by default 0, 1, 2, ... up to `num_nodes`, or, without `x` and `num_nodes`, the
        ids that occur in the edges. weight, time: one number for each edge. edge_attr: features of edges,
        [edges, channels]. undirected: each edge is given once and counts in both directions. time_to_live: as
        in `EdgeSchema`. parallel: how to treat several edges between the same two nodes. "refuse": raise an
        error. "last": keep the edge with the latest time, or the edge listed last. "sum": make one edge whose
        weights add up, here and in later events (an edge without a weight counts as 1). "keep": keep each as
        an edge of its own, with a key. features_dir: as in `Graph`.
        Raises `InputError` if shapes do not fit or edges are parallel, `UnknownNodeError` if an edge names a
        node that `ids` lacks.
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
            parallel=parallel,
        )
        graph = cls(schema, features_dir=features_dir)
        graph._fill([events], {type_ for type_ in schema.edge_types if parallel == "refuse"})
        return graph

    @classmethod
    def from_pyg(
        cls,
        data: "Data | HeteroData",
        *,
        parallel: "Parallel | Mapping[EdgeType, Parallel]" = "refuse",
        leave_out: Collection[str] = (),
        features_dir: "str | os.PathLike[str] | None" = None,
    ) -> "Graph":
        """A graph from PyG's `Data` or `HeteroData`: `x`, `edge_index`, and `edge_weight`, `edge_time` (or
        `time`, one for each edge) and `edge_attr` (the features of edges) where present.

        Nodes get the ids 0, 1, 2, ... of each type. Edges are taken as listed; an undirected graph lists both
        directions. parallel: as in `from_edges`, for all edge types or for each type in a mapping; the others
        refuse. leave_out: names of other fields, on which no prediction depends. Labels and masks (`y`,
        `train_mask`, ...), fields that PyG's loaders add, text and single numbers are left out anyway.
        features_dir: as in `Graph`. Raises `InputError` if edges are parallel, and for any other field.
        """
        schema, events, refusing = construction.read_pyg(data, parallel, leave_out)
        graph = cls(schema, features_dir=features_dir)
        graph._fill([events], refusing)
        return graph

    @classmethod
    def from_tables(
        cls,
        schema: Schema,
        tables: Mapping[str, object],
        mappings: Mapping[str, TableMapping],
        *,
        features_dir: "str | os.PathLike[str] | None" = None,
    ) -> "Graph":
        """Makes a graph of tables: pyarrow's, pandas', Polars', or relations of DuckDB (see docs/tables.md).

        tables: by name. mappings: the nodes and edges that rows of the table of this name give. All nodes are
        added before the first edge, so the order of the tables does not matter, except where two give the
        same node or edge: the last one counts. features_dir: as in `Graph`. Raises `InputError` with the
        table, row and column of a value that does not fit, `UnknownTypeError`, and `UnknownNodeError` if an
        edge names a node that no table gives.
        """
        graph = cls(schema, features_dir=features_dir)
        graph._fill(construction.read_tables(graph.schema, tables, mappings), set())
        return graph

    def _fill(self, events: Iterable[Events], refusing: "AbstractSet[EdgeType]") -> None:
        # A single batch would need buffers several times as large as the graph.
        for part in (part for some in events for part in some.parts(_FILL_AT_ONCE)):
            delta = stage_batch(
                self.core, self.views, part, 0, refuse_parallel=part.chunks[0].type in refusing
            )
            self.native.prepare(delta.native)
            self.native.commit(delta.native, [])
        self.core.measurement.take(self._measure)

    # -- changing it
    # --------------------------------------------------------------------------------------------

    def stage(self, events: Events, *, seq: int | None = None) -> GraphDelta:
        """Returns the changes that `events` would make, without making them. Raises the errors of `apply`."""
        return _core.holding(self.writer, self._stage, events, seq)

    def _stage(self, events: Events, seq: int | None) -> GraphDelta:
        self.views.refuse_within_batch()
        if seq is not None:
            check_seq(seq, self.core.seq)
        return stage_batch(self.core, self.views, events, seq)

    def apply(
        self,
        events: Events,
        *,
        seq: int | None = None,
        on_staged: Callable[[GraphDelta], None] | None = None,
        on_committed: Callable[[GraphDelta], None] | None = None,
        trusted: bool = False,
    ) -> GraphDelta:
        """Applies a batch of events, in order, to the graph and to all its views. Either the whole batch is
        applied or nothing changes.

        seq: the sequence number after the batch; by default it grows by the number of events. It never
        decreases, but may stay the same: events that fill a graph before its log begins use `seq=0`. A batch
        with more events than new sequence numbers clears the `history` of engines. on_staged: called when the
        batch is checked and not yet visible; if it raises, nothing changes. on_committed: called when the
        graph and its views show the batch, before subscribers are called. trusted: the batch was accepted
        before, like those in a log, so no view may refuse it because of its results.

        Raises `UnknownNodeError`, `UnknownTypeError` or `InputError`, `MemoryError` if there is not enough
        memory, and `OSError` if there is no space for mapped files; then nothing has changed. Removing an
        edge that does not exist does nothing. Adding a node that exists sets its features. An edge with an
        older time than the stored edge is ignored (see `Events.add_edges`).
        """
        if on_staged is not None:
            check_function(on_staged, "on_staged", "a GraphDelta")
        if on_committed is not None:
            check_function(on_committed, "on_committed", "a GraphDelta")
        tell = None if on_committed is None else lambda change: map(on_committed, iter((change,)))
        batch = Transaction(
            self.core, self.views, events, seq=seq, on_staged=on_staged, tell=tell, trusted=trusted
        )
        return batch.run()

    def expired(self, now: float) -> Events:
        """Events that remove all edges whose time is before `now` minus their type's time to live.

        The graph keeps a lower bound of the edge times of each block of 64 nodes, which a scan of the block
        makes exact. A call costs one comparison for each block, and a scan of the edges of those blocks that
        have had an expired edge since their last scan. The first call after `from_state` scans all edges.
        """
        return _core.holding(self.writer, find_expired, self.core, now)

    def expire(self, now: float) -> GraphDelta:
        """Applies `expired(now)`, as a batch that every view sees.

        Raises `InputError` while a `Runtime` runs the graph, which removes expired edges through its log.
        """
        return _core.holding(self.writer, self._expire, now)

    def _expire(self, now: float) -> GraphDelta:
        return self.apply(find_expired(self.core, now))

    def attach(self, view: Follower) -> None:
        """Makes `view` follow the graph, which holds it weakly. A view attached again becomes the last one.

        Raises `InputError` if it is not a `View` of this graph, and while a batch is prepared or committed.
        """
        _core.holding(self.writer, self.views.attach, self, view)

    # -- reading it
    # ---------------------------------------------------------------------------------------------

    @property
    def latest_time(self) -> float | None:
        """The latest time of any event on a timed edge or on features with times; None before the first."""
        return self.core.latest_time

    def num_nodes(self, node_type: NodeType | None = None) -> int:
        return self.native.num_nodes(self.core.schema.node_type_index(node_type))

    def num_edges(self, edge_type: EdgeType | None = None) -> int:
        """Number of edges; an undirected edge counts once."""
        return self.core.num_edges(self.core.schema.edge_type_index(edge_type))

    def ids(self, node_type: NodeType | None = None) -> "Shaped[Ids, 'nodes']":
        """All ids, in the order in which `snapshot` and `Engine.embeddings` list nodes."""
        return self.node_ids.named(self.native.ids(self.core.schema.node_type_index(node_type)))

    def contains(
        self, ids: "ArrayLike", node_type: NodeType | None = None
    ) -> "Bool[NDArray[np.bool_], 'ids']":
        """Returns for each of `ids` whether it is in the graph."""
        asked = self.node_ids.given(listed_ids(ids))
        found: NDArray[np.bool_] = (
            self.native.indices_of(self.core.schema.node_type_index(node_type), asked) != NO_INDEX
        )
        return found

    def features(
        self, ids: "ArrayLike", node_type: NodeType | None = None
    ) -> "Float32[FloatArray, 'ids channels']":
        """Features of nodes, float32 [ids, channels]. Raises `UnknownNodeError`."""
        asked = listed_ids(ids)
        rows = self.native.features_of(
            self.core.schema.node_type_index(node_type), self.node_ids.given(asked)
        )
        if isinstance(rows, int):
            raise UnknownNodeError(self.unknown_node(asked[rows], node_type))
        return rows

    def feature_times(
        self, ids: "ArrayLike", node_type: NodeType | None = None
    ) -> "Float64[DoubleArray, 'ids']":
        """Times of the features of nodes, float64 [ids]; -inf where no event has set them.

        Raises `UnknownNodeError`, and `InputError` for a type whose features have no times.
        """
        return self.core.feature_times(ids, node_type)

    def edge_attr(
        self,
        src: "ArrayLike",
        dst: "ArrayLike",
        edge_type: EdgeType | None = None,
        *,
        key: "ArrayLike | None" = None,
    ) -> "Float32[FloatArray, 'edges channels']":
        """Returns the features of the edges src[i] -> dst[i], float32 [edges, channels]; channels may be 0.

        `key[i]` selects one of several parallel edges; without `key`, the edge with the greatest key is read.

        Raises `UnknownNodeError`, and `UnknownEdgeError` for the first edge that is not in the graph.
        """
        index = self.core.schema.edge_type_index(edge_type)
        source, _, target = list(self.core.schema.edge_types)[index]
        sources, targets = listed_ids(src, "src"), listed_ids(dst, "dst")
        if len(sources) != len(targets):
            raise InputError(f"src and dst must be of the same length, got {len(sources)} and {len(targets)}")
        features, lacks, at = self.native.edge_features_of(
            index,
            self.node_ids.given(sources),
            self.node_ids.given(targets),
            None if key is None else to_key(key, len(sources)),
        )
        if lacks == _LACKS_EDGE:
            keyed = "" if key is None else f" with the key {np.asarray(key).ravel()[at]}"
            raise UnknownEdgeError(
                f"expected the ends of an edge, got {sources[at].item()!r} -> {targets[at].item()!r}{keyed}, "
                "which is not in the graph: add it first"
            )
        if lacks:
            name, ids = (source, sources) if lacks == _LACKS_SOURCE else (target, targets)
            raise UnknownNodeError(self.unknown_node(ids[at], name))
        return features

    def neighbors(
        self, id: int | str, *, edge_type: EdgeType | None = None, direction: str = "in"
    ) -> Neighbors:
        """The neighbours along the in-edges of a node (``direction="in"``) or its out-edges (``"out"``).

        Raises `UnknownNodeError`.
        """
        index = self.core.schema.edge_type_index(edge_type)
        source, relation, target = list(self.core.schema.edge_types)[index]
        asked = one_id(id)
        found = self.native.neighbors(index, self.node_ids.given(asked), is_incoming(direction))
        if found is None:
            raise UnknownNodeError(self.unknown_node(asked[0], target if is_incoming(direction) else source))
        names, weight, time, edge_attr, key = found
        edges = self.core.schema.edge_types[source, relation, target]
        return Neighbors(
            self.node_ids.named(names),
            weight if edges.weighted else None,
            time if edges.timed else None,
            edge_attr if edges.edge_dim else None,
            key if edges.duplicates == "keep" else None,
        )

    def degree(
        self, ids: "ArrayLike", *, edge_type: EdgeType | None = None, direction: str = "in"
    ) -> "Int64[IntArray, 'ids']":
        """The number of in-edges (or out-edges) of each node, int64 [ids]. Raises `UnknownNodeError`."""
        index = self.core.schema.edge_type_index(edge_type)
        source, _, target = list(self.core.schema.edge_types)[index]
        here = target if is_incoming(direction) else source
        asked = listed_ids(ids)
        degrees = self.native.degrees_of(index, self.node_ids.given(asked), is_incoming(direction))
        if isinstance(degrees, int):
            raise UnknownNodeError(self.unknown_node(asked[degrees], here))
        return degrees

    def snapshot(self) -> Snapshot:
        """The whole graph as plain arrays."""
        return _core.holding(self.writer, take_snapshot, self.core)

    def memory(self) -> dict[str, int]:
        """Bytes of each part. `batches` and `samples` are working buffers, kept for the next batch or sample.
        `mapped` parts lie in files, of which the system caches as much in memory as it can spare.

        It never waits for a batch. While a batch runs, it returns the sizes measured before; they are then
        measured again when the batch ends.
        """
        return self.core.measurement.read(self._measure)

    def _measure(self) -> dict[str, int]:
        return measure_parts(self.core)

    # -- keeping it
    # ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The complete state: a graph restored from it behaves exactly like this one, bit for bit. A
        graph of names returns what its parts share, which `livegnn.partitions` reads.
        """
        save = state.save_names if self.names_only else state.save
        return _core.holding(self.writer, save, self.core)

    @classmethod
    def from_state(cls, saved: State, *, features_dir: "str | os.PathLike[str] | None" = None) -> "Graph":
        """A graph with this state. Raises `FileFormatError` if it is invalid. features_dir: as in `Graph`."""
        if not isinstance(saved, State):
            raise InputError(f"expected what Graph.state() returned, got {kind_of(saved)}")
        if saved.meta.get("kind") == state.NAMES:
            raise FileFormatError(
                "expected the state of a graph in one piece, got that of one in parts: serve it with "
                "partitions in [cluster], or join it with LocalPartitions.join"
            )
        if saved.meta.get("kind") != "graph":
            raise FileFormatError(f"expected the state of a graph, got {saved.meta.get('kind')!r}")
        graph = cls(Schema.from_json(saved.meta.get("schema")), features_dir=features_dir)
        state.restore(graph.core, saved)
        graph.core.measurement.take(graph._measure)
        return graph

    # -- types, ids and internal numbers
    # ------------------------------------------------------------------------

    def with_types(self, events: Events) -> Events:
        """The same events, with omitted types replaced by the graph's only types.

        Raises `InputError` if `events` is not an `Events`.
        """
        return self.core.with_types(events)

    def node_type_index(self, node_type: NodeType | EdgeType | None) -> int:
        """The position of a type in the schema; None means the only type. Raises `UnknownTypeError`."""
        return self.core.schema.node_type_index(node_type)

    def edge_type_index(self, edge_type: EdgeType | NodeType | None) -> int:
        """The position of a type in the schema; None means the only type. Raises `UnknownTypeError`."""
        return self.core.schema.edge_type_index(edge_type)

    def indices_of(
        self, ids: "ArrayLike", node_type: NodeType | None = None
    ) -> "UInt32[NDArray[np.uint32], 'ids']":
        """Dense indices of nodes. The next batch may give them to other nodes.

        Raises `UnknownNodeError` for the first id that names no node.
        """
        asked = listed_ids(ids)
        indices = self.native.indices_of(
            self.core.schema.node_type_index(node_type), self.node_ids.given(asked)
        )
        unknown = np.flatnonzero(indices == NO_INDEX)
        if len(unknown):
            raise UnknownNodeError(self.unknown_node(asked[unknown[0]], node_type))
        return indices

    def unknown_node(self, id: object, node_type: NodeType | None) -> str:
        return self.core.unknown_node(id, node_type)

    def pin(self) -> _core.TextPin:
        """Returns a pin that keeps the texts of all ids: of those in use now, and of those added until it is
        closed. Their numbers can then be read after their nodes are removed. A `with` statement closes the
        pin at its end. A pin has no effect if ids are integers.
        """
        return self.node_ids.pin()

    def to_user_ids(self, numbers: "Int64[IntArray, 'nodes']") -> "Shaped[Ids, 'nodes']":
        """The ids of nodes with these internal numbers.

        Raises `UnknownNodeError` for a text id whose node was removed while no `pin` held its text.
        """
        return self.node_ids.to_user_ids(numbers)

    def to_numbers(self, ids: "ArrayLike") -> "Int64[IntArray, 'ids']":
        """The internal numbers of ids that may or may not be known."""
        return self.node_ids.to_numbers(ids)
