"""The changes of the last batches: enough to restore a part of the graph as it was before them, and to replay
its changes event by event.

Nodes are identified by their internal numbers (equal to the ids, unless ids are text), since indices are
reused.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from livegnn.errors import InputError
from livegnn.events import Chunk
from livegnn.graph import Graph, GraphDelta, Growth, View, complete_rows
from livegnn.types import DoubleArray, EdgeType, FloatArray, IntArray, Keys, NodeType

if TYPE_CHECKING:
    import numpy.typing as npt
    from jaxtyping import Bool, Float32, Float64, Int64, UInt32

    import livegnn._core as _core

_BATCH_BYTES, _ARRAY_BYTES = 750, 112
"""Bytes of Python overhead of a batch and of an array, beside their numbers."""


class OldNodes(NamedTuple):
    """Nodes of one type that a batch touched, as they were before it.

    number: [nodes]; if a node occurs twice, its first row counts. there: whether it was in the graph.
    x: float32 [nodes, channels], undefined where the node was not in the graph. time: of the features; -inf
    where no event has set them, and in a type whose features have no times.
    """

    number: "Int64[IntArray, 'nodes']"
    there: "Bool[npt.NDArray[np.bool_], 'nodes']"
    x: "Float32[FloatArray, 'nodes channels']"
    time: "Float64[DoubleArray, 'nodes']"


class OldEdges(NamedTuple):
    """Edges of one type that a batch touched, as they were before it.

    source, target, key: [edges]; if an edge occurs twice, its first row counts; an undirected edge has its
    ends in the order in which the event named them. there: whether the edge was in the graph; if not, its
    other columns are undefined. key, time: 0 if the edge type has none; weight: then 1. edge_attr: float32
    [edges, channels].
    """

    source: "Int64[IntArray, 'edges']"
    target: "Int64[IntArray, 'edges']"
    key: "UInt32[Keys, 'edges']"
    there: "Bool[npt.NDArray[np.bool_], 'edges']"
    weight: "Float32[FloatArray, 'edges']"
    time: "Float64[DoubleArray, 'edges']"
    edge_attr: "Float32[FloatArray, 'edges channels']"


@dataclass(frozen=True)
class PastBatch:
    """One batch: its events, and the old state of the nodes and edges that it touched. Its last event has the
    sequence number `seq`.

    The ids in `chunks` are numbers.
    """

    seq: int
    num_events: int
    chunks: tuple[Chunk, ...]
    nodes: dict[NodeType, OldNodes]
    edges: dict[EdgeType, OldEdges]
    pin: "_core.TextPin"
    events_before: int
    """How many events all batches had that were kept before this one, and how many bytes."""
    bytes_before: int

    @cached_property
    def nbytes(self) -> int:
        """Approximate bytes of memory."""
        columns = [
            column
            for part in (*self.chunks, *self.nodes.values(), *self.edges.values())
            for column in part
            if isinstance(column, np.ndarray)
        ]
        return _BATCH_BYTES + sum(column.nbytes + _ARRAY_BYTES for column in columns)


_Parts = tuple[tuple[Chunk, ...], dict[NodeType, OldNodes], dict[EdgeType, OldEdges]]


class History(View):
    """A view of a graph that keeps the last batches: as few whole ones as have at least `num_events` events.

    Thread safety: readers must hold `Graph.writer`, as every change of the history does. A batch never
    changes.
    """

    name = "history"

    def __init__(self, graph: Graph, num_events: int) -> None:
        super().__init__(graph)
        self.num_events = num_events
        self.oldest = self._seq = graph.seq
        """The first sequence number to which one can go back."""
        self._began, self._why = graph.seq, "the engine was made or restored"
        self._batches: deque[PastBatch] = deque()
        self._prepared: _Parts | None = None

    @property
    def nbytes(self) -> int:
        """Approximate bytes of memory."""
        if not self._batches:
            return 0
        first, last = self._batches[0], self._batches[-1]
        return last.bytes_before + last.nbytes - first.bytes_before

    def prepare(self, delta: GraphDelta) -> None:
        """Collects the batch's events and the old state, so that `commit` only has to store them."""
        self._prepared = None
        if delta.seq - len(delta.events) < self._seq:
            return  # these events have no sequence numbers of their own: clear the history
        graph = self.graph
        nodes = {
            name: old
            for name in graph.schema.node_types
            if (old := _old_nodes(graph, delta, name)) is not None
        }
        edges = {
            name: _old_edges(graph, delta, name)
            for name in graph.schema.edge_types
            if delta.num_edge_changes(name)
        }
        chunks = tuple(self._copy(chunk) for chunk in delta.events.chunks)
        self._prepared = chunks, nodes, edges

    def commit(self, delta: GraphDelta) -> None:
        """Stores the batch; it is committed already, so if there is no memory left the history is cleared.
        It begins again where an interrupt has left it.
        """
        parts = self._prepared
        self._seq = delta.seq
        try:
            if parts is None:
                self._begin_anew("a batch had more events than new sequence numbers")
            elif len(delta.events):  # the delta counts nodes that no event announces too
                self._keep(parts, delta)
        except MemoryError:
            self._begin_anew("there was no memory to keep a batch")

    def check_growth(self, growth: Growth) -> None:
        pass

    def grow(self, change: GraphDelta) -> None:
        self._seq = change.seq
        self._begin_anew("the schema grew")

    def _keep(self, parts: _Parts, delta: GraphDelta) -> None:
        last = self._batches[-1] if self._batches else None
        if last is None or last.chunks is not parts[0]:
            events = 0 if last is None else last.events_before + last.num_events
            nbytes = 0 if last is None else last.bytes_before + last.nbytes
            # Only a committed batch takes the pin: a refused batch must not keep texts alive.
            last = PastBatch(delta.seq, len(delta.events), *parts, delta.pin, events, nbytes)
            self._batches.append(last)
        end = last.events_before + last.num_events
        while end - self._batches[0].events_before - self._batches[0].num_events >= self.num_events:
            self.oldest = self._batches[0].seq
            self._batches.popleft()

    def _begin_anew(self, why: str) -> None:
        self._batches.clear()
        self.oldest = self._seq
        self._began, self._why = self._seq, why

    def since(self, seq: int) -> list[PastBatch]:
        """The batches that end after `seq`; the first may begin before it. Raises InputError if `seq` is in
        the future or before `oldest`."""
        if seq > self._seq:
            raise InputError(f"since must be at most {self._seq}, where the graph is, got {seq}")
        if seq < self.oldest:
            raise InputError(
                f"since must be at least {self.oldest}, the oldest sequence number of the history, got "
                f"{seq}: "
                + (
                    f"the history begins at event {self._began}, when {self._why}"
                    if seq < self._began
                    else f"set history, of the engine, above {self._seq - seq - 1} to keep more events"
                )
            )
        return [batch for batch in self._batches if batch.seq > seq]

    def _copy(self, chunk: Chunk) -> Chunk:
        """A copy of the chunk with numbers as ids and all columns of nodes; it shares no arrays."""
        x = complete_rows(self.graph.schema, chunk)
        return Chunk(
            chunk.kind,
            chunk.type,
            np.array(self.graph.node_ids.intern(chunk.ids)),
            None if chunk.dst is None else np.array(self.graph.node_ids.intern(chunk.dst)),
            *(None if column is None else np.array(column) for column in (*chunk[4:6], x, chunk.key)),  # type: ignore[arg-type]
        )


_Old = TypeVar("_Old", OldNodes, OldEdges)


def concatenate(parts: Sequence[_Old]) -> _Old:
    """The concatenation of the parts; there must be at least one."""
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return type(parts[0])(*columns)


def edges_of(
    graph: Graph, edge_type: EdgeType, numbers: "Int64[IntArray, 'nodes']", *, reverse: bool = False
) -> OldEdges:
    """All in-edges of nodes that are in the graph, or, in reverse, all out-edges, as they are now."""
    index, native = graph.edge_type_index(edge_type), graph.native
    theirs, mine = (edge_type[2], edge_type[0]) if reverse else (edge_type[0], edge_type[2])
    indices = native.indices_of(graph.node_type_index(mine), numbers)
    degree, others, weight, time, edge_attr, key = native.edges_of(index, indices, reverse)
    ends = native.ids_of(graph.node_type_index(theirs), others), np.repeat(numbers, degree)
    source, target = reversed(ends) if reverse else ends
    return OldEdges(source, target, key, np.full(len(source), True), weight, time, edge_attr)


def _old_nodes(graph: Graph, delta: GraphDelta, name: NodeType) -> OldNodes | None:
    index = graph.node_type_index(name)
    added, removed = delta.native.added(index), delta.native.removed_indices(index)
    featured = delta.native.featured(index)
    if not len(added) and not len(removed) and not len(featured):
        return None
    featured = featured[~np.isin(featured, delta.native.added_indices(index))]
    there = np.concatenate([removed, featured])
    x = graph.native.features(index, there)
    added = added[added >= 0]
    absent = len(added)
    # A node that is removed and added again was in the graph: its old row must be listed first.
    return OldNodes(
        np.concatenate([graph.native.ids_of(index, there), added]),
        np.arange(len(there) + absent) < len(there),
        np.concatenate([x, np.zeros((absent, x.shape[1]), dtype=np.float32)]),
        np.concatenate([graph.native.feature_times(index, there), np.full(absent, -np.inf)]),
    )


def _old_edges(graph: Graph, delta: GraphDelta, edge_type: EdgeType) -> OldEdges:
    index = graph.edge_type_index(edge_type)
    source, target, had, _, weight, _, key, _ = delta.native.edges(index)
    # A node that is removed and added again gets another index, so its edges may occur twice: old ones first.
    order = np.argsort(~had, kind="stable")
    source, target, key = source[order], target[order], key[order]
    had, weight = had[order], weight[order]
    count = int(had.sum())
    there = source[:count], target[:count], key[:count]
    schema = graph.schema.edge_types[edge_type]
    edge_attr = np.zeros((len(had), schema.edge_dim), dtype=np.float32)
    if schema.edge_dim:
        edge_attr[:count] = graph.native.edge_columns(index, *there)[0]
    time = np.zeros(len(had))
    if schema.timed:
        time[:count] = graph.native.edge_times(index, *there)
    return OldEdges(
        delta.numbers_of(source, edge_type[0]),
        delta.numbers_of(target, edge_type[2]),
        key,
        had,
        weight,
        time,
        edge_attr,
    )
