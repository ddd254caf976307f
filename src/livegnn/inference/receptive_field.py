"""The part of a graph that a prediction, or the score of an edge, reads, from its state some events ago until
now, event by event."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from livegnn.events import Chunk, Events
from livegnn.graph import Graph, Schema
from livegnn.inference.history import OldEdges, OldNodes, PastBatch, concatenate, edges_of
from livegnn.inference.reads import NOBODY, ReadEdge, Reads, Start, union
from livegnn.network import Model
from livegnn.types import NO_INDEX, DoubleArray, EdgeType, FloatArray, IntArray, NodeType

if TYPE_CHECKING:
    import numpy.typing as npt
    from jaxtyping import Float32, Int64

_FIRST_TIME = np.finfo(np.float64).min


@dataclass(frozen=True, eq=False)
class Frame:
    """A receptive field at one moment, as the oracle reads it.

    Every frame of a receptive field has the same rows: a node that is not in the graph has a row of zeros and
    no edges. Edges are sorted by target, source and key. Unrelated changes therefore cannot change a bit of
    the prediction. there: for each start of the field, whether the node is in the graph.
    """

    x: "Mapping[NodeType, Float32[FloatArray, '_ _']]"
    edge_index: "Mapping[EdgeType, Int64[IntArray, '2 _']]"
    weight: "Mapping[EdgeType, Float32[FloatArray, '_']]"
    edge_attr: "Mapping[EdgeType, Float32[FloatArray, '_ _']]"
    there: tuple[bool, ...]

    def equals(self, other: "Frame") -> bool:
        pairs = (
            (self.edge_index, other.edge_index),
            (self.weight, other.weight),
            (self.edge_attr, other.edge_attr),
        )
        return (
            self.there == other.there
            and all(np.array_equal(x, other.x[name]) for name, x in self.x.items())
            and all(
                np.array_equal(column, theirs[edge_type])
                for mine, theirs in pairs
                for edge_type, column in mine.items()
            )
        )


class ReceptiveField:
    """The part of the graph that the rows of some nodes read, and an edge of the graph, from before the first
    of some batches until now.

    The caller must hold `Graph.writer` while it makes one, which copies all that it needs; later changes of
    the graph do not affect it. After releasing the lock, call `go_back` once to build the old graph from the
    copy. A node is identified by its place 0, 1, 2, ... in `nodes`, which has ascending numbers by type.
    `places` are the places of the starts.
    """

    def __init__(
        self,
        graph: Graph,
        model: Model,
        starts: Sequence[Start],
        batches: Sequence[PastBatch],
        edge: ReadEdge | None = None,
    ) -> None:
        schema = graph.schema
        self._graph, self._batches, self._edge = graph, batches, edge
        edge_types = dict.fromkeys((*model.edge_types, *([] if edge is None else [edge.edge_type])))
        self._ends = {edge_type: _past_ends(graph, batches, edge_type) for edge_type in edge_types}
        self._edge_in_reverse = edge is not None and not schema.edge_types[edge.edge_type].in_neighbors
        reads = Reads(model, starts, self._others_of, edge, reverse=self._edge_in_reverse)
        self.nodes = {name: reads.nodes.get(name, NOBODY) for name in schema.node_types}
        self._starts = [(name, self._place_of(name, number)) for name, number, _ in starts]
        self._featured = {
            name: np.isin(nodes, reads.features.get(name, NOBODY)) for name, nodes in self.nodes.items()
        }
        self._targets, self._sources = (
            {
                edge_type: np.isin(self.nodes[edge_type[end]], read.get(edge_type, NOBODY))
                for edge_type in edge_types
            }
            for end, read in ((2, reads.targets), (0, reads.sources))
        )
        self._graph_then = Graph(
            Schema(
                schema.node_types,
                {edge_type: schema.edge_types[edge_type] for edge_type in self._ends},
                timed_features=schema.timed_features,
            ),
            threads=1,
        )
        self._maybe_new: dict[NodeType, npt.NDArray[np.bool_]] = {}  # by place; of types in auto_add
        self._nodes_now = {name: self._read_nodes(name) for name in schema.node_types}
        self._edges_now = {edge_type: self._read_edges(edge_type) for edge_type in self._ends}

    @property
    def places(self) -> tuple[int, ...]:
        """The place of each start."""
        return tuple(place for _, place in self._starts)

    def ranks(self) -> "dict[NodeType, Int64[IntArray, '_']]":
        """The ranks of the ids of all places, by node type."""
        ranks = {}
        for name, nodes in self.nodes.items():
            ranks[name] = np.empty(len(nodes), dtype=np.int64)
            ranks[name][np.argsort(self._graph.to_user_ids(nodes), kind="stable")] = np.arange(len(nodes))
        return ranks

    def _place_of(self, name: NodeType, number: int) -> int:
        return int(np.searchsorted(self.nodes[name], number))

    def go_back(self) -> None:
        """Takes the receptive field back to the state before the first of the batches."""
        for name, nodes in self._nodes_now.items():
            self._place_nodes(name, nodes)
        for edge_type, edges in self._edges_now.items():
            self._place_edges(edge_type, edges)
        self._nodes_now, self._edges_now = {}, {}
        for name in self._graph.schema.auto_add:
            present = self._graph_then.contains(np.arange(len(self.nodes[name])), name)
            self._maybe_new[name] = ~present | _find_removed(self._batches, name, self.nodes[name])

    def frame(self) -> Frame:
        """The receptive field at the moment that `replay` has reached."""
        snapshot = self._graph_then.snapshot()
        x = {}
        for name, nodes in self.nodes.items():
            x[name] = np.zeros((len(nodes), snapshot.x[name].shape[1]), dtype=np.float32)
            x[name][snapshot.ids[name]] = snapshot.x[name]
            x[name][~self._featured[name]] = 0
        edge_index, weight, edge_attr = {}, {}, {}
        for edge_type, targets in self._targets.items():
            ends = snapshot.edge_index[edge_type]
            source, target = snapshot.ids[edge_type[0]][ends[0]], snapshot.ids[edge_type[2]][ends[1]]
            order = np.lexsort((source, target))  # parallel edges stay in the order of their keys
            order = order[targets[target[order]] | self._sources[edge_type][source[order]]]
            edge_index[edge_type] = np.stack([source[order], target[order]]).astype(np.int64)
            weight[edge_type] = snapshot.weight[edge_type][order]
            edge_attr[edge_type] = snapshot.edge_attr[edge_type][order]
        there = tuple(bool(np.isin(place, snapshot.ids[name])) for name, place in self._starts)
        return Frame(x, edge_index, weight, edge_attr, there)

    def read_edge(self) -> "tuple[Float32[FloatArray, '1'], Float32[FloatArray, '1 channels']] | None":
        """The weight, [1], and the features, [1, channels], of the edge at the moment that `replay` has
        reached; None if it is not in the graph."""
        assert self._edge is not None
        edge_type, source, target, key = self._edge
        here, there = (self._place_of(edge_type[0], source), self._place_of(edge_type[2], target))
        direction, name = "out", edge_type[0]
        if not self._edge_in_reverse:
            here, there, direction, name = there, here, "in", edge_type[2]
        if not self._graph_then.contains(here, name)[0]:
            return None
        found = self._graph_then.neighbors(here, edge_type=edge_type, direction=direction)
        is_it = found.ids == there
        if found.key is not None:
            is_it &= found.key == key
        if not is_it.any():
            return None
        weight = np.ones(1, np.float32) if found.weight is None else found.weight[is_it]
        attr = np.zeros((1, 0), np.float32) if found.edge_attr is None else found.edge_attr[is_it]
        return weight, attr

    def replay(self) -> Iterator[tuple[int, Chunk]]:
        """Applies the events that touch the field, one by one; yields each event's sequence number and the
        event after applying it."""
        for batch in self._batches:
            seq = batch.seq - batch.num_events + 1
            for chunk in batch.chunks:
                rows, events = self._inside(chunk)
                inside = dict(zip(rows.tolist(), events.parts(1), strict=True))
                named = self._newcomers(chunk)
                for row in sorted(inside.keys() | named.keys()):
                    announced = [self._announce(*node) for node in named.get(row, ())]
                    event = Events.concatenate([*announced, inside.get(row, Events())])
                    if len(event):
                        self._graph_then.apply(event)
                        yield seq + row, chunk.part(slice(row, row + 1))
                seq += len(chunk.ids)

    def _newcomers(self, chunk: Chunk) -> dict[int, list[tuple[NodeType, int]]]:
        """By row, the places of nodes that the event adds if they are not there (`Schema.auto_add`)."""
        found: dict[int, list[tuple[NodeType, int]]] = {}
        if not self._maybe_new or chunk.kind not in ("add_edges", "set_features"):
            return found
        ends = [(chunk.type, chunk.ids)]
        if chunk.dst is not None:
            ends = [(chunk.type[0], chunk.ids), (chunk.type[2], chunk.dst)]
        for name, numbers in cast("list[tuple[NodeType, IntArray]]", ends):
            if name not in self._maybe_new:
                continue
            place, known = _find(self.nodes[name], numbers)
            if known.any():
                known &= self._maybe_new[name][place]
            for row in np.flatnonzero(known).tolist():
                found.setdefault(row, []).append((name, int(place[row])))
        return found

    def _announce(self, name: NodeType, place: int) -> Events:
        """The event that adds a node with the features of new ones; none if it is there."""
        if self._graph_then.contains(place, name)[0]:
            return Events()
        features = self._graph.schema.auto_add[name]
        time = self._times(name, np.array([-np.inf]))
        return Events().add_nodes(place, [features] if features else None, time=time, node_type=name)

    def _others_of(self, edge_type: EdgeType, rows: IntArray, reverse: bool) -> IntArray:
        source, target = self._ends[edge_type]
        here = self._there_now(edge_type[0 if reverse else 2], rows)
        now = edges_of(self._graph, edge_type, here, reverse=reverse)
        if reverse:
            return union(now.target, target[np.isin(source, rows)])
        return union(now.source, source[np.isin(target, rows)])

    def _there_now(self, name: NodeType, numbers: IntArray) -> IntArray:
        indices = self._graph.native.indices_of(self._graph.node_type_index(name), numbers)
        known: npt.NDArray[np.bool_] = indices != NO_INDEX
        return numbers[known]

    def _read_nodes(self, name: NodeType) -> OldNodes:
        """The nodes of a type as they are now."""
        native, index, nodes = self._graph.native, self._graph.node_type_index(name), self.nodes[name]
        here = self._there_now(name, nodes)
        indices = native.indices_of(index, here)
        x = native.features(index, indices)
        absent = np.setdiff1d(nodes, here, assume_unique=True)
        return OldNodes(
            np.concatenate([here, absent]),
            np.arange(len(nodes)) < len(here),
            np.concatenate([x, np.zeros((len(absent), x.shape[1]), dtype=np.float32)]),
            np.concatenate([native.feature_times(index, indices), np.full(len(absent), -np.inf)]),
        )

    def _place_nodes(self, name: NodeType, now: OldNodes) -> None:
        """Adds the nodes of a type as they were before the batches."""
        # The first batch that touched a node recorded the node's old state.
        old = concatenate([*(batch.nodes[name] for batch in self._batches if name in batch.nodes), now])
        place, known = _find(self.nodes[name], old.number)
        rows = _first(known, place)
        rows = rows[old.there[rows]]
        times = self._times(name, old.time[rows])
        self._graph_then.apply(Events().add_nodes(place[rows], old.x[rows], time=times, node_type=name))

    def _times(self, name: NodeType, times: DoubleArray) -> DoubleArray | None:
        """The times of features as an event has them: of those that no event has set, the first of all times,
        which is as much before every other."""
        return np.maximum(times, _FIRST_TIME) if name in self._graph.schema.timed_features else None

    def _read_edges(self, edge_type: EdgeType) -> OldEdges:
        """The edges of a type that are read, as they are now."""
        into = self.nodes[edge_type[2]][self._targets[edge_type]]
        leaving = self.nodes[edge_type[0]][self._sources[edge_type]]
        return concatenate(
            [
                edges_of(self._graph, edge_type, self._there_now(edge_type[2], into)),
                edges_of(self._graph, edge_type, self._there_now(edge_type[0], leaving), reverse=True),
            ]
        )

    def _place_edges(self, edge_type: EdgeType, now: OldEdges) -> None:
        """Adds the edges of a type that are read, as they were before the batches."""
        schema = self._graph.schema.edge_types[edge_type]
        parts = [batch.edges[edge_type] for batch in self._batches if edge_type in batch.edges]
        old = concatenate([*parts, now])
        source, target, inside = self._places(edge_type, old.source, old.target)
        a, b = (
            (np.minimum(source, target), np.maximum(source, target))
            if schema.undirected
            else (source, target)
        )
        rows = _first(inside, a, b, old.key)
        rows = rows[old.there[rows]]
        self._graph_then.apply(
            Events().add_edges(
                source[rows],
                target[rows],
                weight=old.weight[rows] if schema.weighted else None,
                time=old.time[rows] if schema.timed else None,
                edge_attr=old.edge_attr[rows] if schema.edge_dim else None,
                key=old.key[rows] if schema.duplicates == "keep" else None,
                edge_type=edge_type,
            )
        )

    def _places(
        self, edge_type: EdgeType, source: IntArray, target: IntArray
    ) -> "tuple[IntArray, IntArray, npt.NDArray[np.bool_]]":
        """The places of the edges' ends, and a mask of the edges that are read."""
        (s, known), (t, also_known) = (
            _find(self.nodes[name], numbers)
            for name, numbers in ((edge_type[0], source), (edge_type[2], target))
        )
        inside = known & also_known
        if not inside.any():
            return s, t, inside
        targets, sources = self._targets[edge_type], self._sources[edge_type]
        read = targets[t * inside] | sources[s * inside]
        if self._graph.schema.edge_types[edge_type].undirected:
            read |= targets[s * inside] | sources[t * inside]
        return s, t, inside & read

    def _inside(self, chunk: Chunk) -> tuple[IntArray, Events]:
        """The rows of a chunk's events that touch the field, and these events with places as ids."""
        events, ids, dst = Events(), cast("IntArray", chunk.ids), cast("IntArray | None", chunk.dst)
        if dst is not None:
            edge_type = cast("EdgeType", chunk.type)
            if edge_type not in self._targets:
                return NOBODY, events
            source, target, inside = self._places(edge_type, ids, dst)
            rows = np.flatnonzero(inside)
            source, target = source[rows], target[rows]
            # An event without a key has the same effect here: of two nodes, the field has all edges or none.
            key = None if chunk.key is None else chunk.key[rows]
            if chunk.kind == "remove_edges":
                return rows, events.remove_edges(source, target, key=key, edge_type=edge_type)
            return rows, events.add_edges(
                source,
                target,
                weight=None if chunk.weight is None else chunk.weight[rows],
                time=None if chunk.time is None else chunk.time[rows],
                edge_attr=None if chunk.x is None else chunk.x[rows],
                key=key,
                edge_type=edge_type,
            )
        name = cast("NodeType", chunk.type)
        place, inside = _find(self.nodes[name], ids)
        if chunk.kind == "set_features" and inside.any():
            inside &= self._featured[name][place]
        rows = np.flatnonzero(inside)
        place, x = place[rows], None if chunk.x is None else chunk.x[rows]
        time = None if chunk.time is None else chunk.time[rows]
        if chunk.kind == "remove_nodes":
            return rows, events.remove_nodes(place, node_type=name)
        if chunk.kind == "add_nodes":
            return rows, events.add_nodes(place, x, time=time, node_type=name)
        return rows, events.set_features(place, cast("FloatArray", x), time=time, node_type=name)


def _past_ends(graph: Graph, batches: Sequence[PastBatch], edge_type: EdgeType) -> tuple[IntArray, IntArray]:
    """Sources and targets of all edges that some batches added or touched; an undirected edge counts in both
    directions."""
    sources, targets = [NOBODY], [NOBODY]
    for batch in batches:
        if edge_type in batch.edges:
            old = batch.edges[edge_type]
            sources.append(old.source)
            targets.append(old.target)
        for chunk in batch.chunks:
            if chunk.kind == "add_edges" and chunk.type == edge_type:
                sources.append(cast("IntArray", chunk.ids))
                targets.append(cast("IntArray", chunk.dst))
    source, target = np.concatenate(sources), np.concatenate(targets)
    if graph.schema.edge_types[edge_type].undirected:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
    return source, target


def _find_removed(batches: Sequence[PastBatch], name: NodeType, nodes: IntArray) -> "npt.NDArray[np.bool_]":
    """Returns for each of the nodes of a type whether an event removed it."""
    removed = [
        cast("IntArray", chunk.ids)
        for batch in batches
        for chunk in batch.chunks
        if chunk.kind == "remove_nodes" and chunk.type == name
    ]
    return np.isin(nodes, np.concatenate([NOBODY, *removed]))


def _find(nodes: IntArray, numbers: IntArray) -> "tuple[IntArray, npt.NDArray[np.bool_]]":
    """The place of each number in ascending `nodes`, 0 if it is not there; and a mask of those found."""
    if not len(nodes):
        return np.zeros(len(numbers), dtype=np.int64), np.full(len(numbers), False)
    place = np.minimum(np.searchsorted(nodes, numbers), len(nodes) - 1)
    known = nodes[place] == numbers
    return cast("IntArray", place * known), known


def _first(which: "npt.NDArray[np.bool_]", *keys: "npt.NDArray[np.generic]") -> IntArray:
    """The positions of the first occurrence of each combination of keys among the rows selected by `which`,
    ordered by key."""
    rows = np.flatnonzero(which)
    order = rows[np.lexsort([key[rows] for key in reversed(keys)])]
    differs = [key[order][1:] != key[order][:-1] for key in keys]
    return cast("IntArray", order[np.concatenate([order[:1] >= 0, np.any(differs, axis=0)])])
