"""Fetches the subgraph that a prediction reads, frontier by frontier.

A hop reads the lists of the nodes that the hop before reached first, all of them at once; no list is read
twice, and nothing of a list is kept for the next request. With whole neighbourhoods and the degrees of the
graph the subgraph gives an engine's predictions; with a query's draws those of PyG's samplers.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from livegnn._core import draw_of_lists
from livegnn.inference.degrees import Degrees
from livegnn.network.hops import Reads
from livegnn.query import SEEDS, Direction, OneHop, Query
from livegnn.sampling.subgraph import HeteroSubgraph
from livegnn.snapshots.records import degrees_of
from livegnn.snapshots.row_sets import are_in, distinct, missing, places_in, union
from livegnn.snapshots.snapshot import Neighbors, Snapshot
from livegnn.types import EdgeType, FloatArray, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Bool, Int64, Shaped
    from numpy.typing import NDArray

    from livegnn.types import Array

T = TypeVar("T")

Lists: TypeAlias = tuple[EdgeType, Direction]
"""The lists of neighbours of one edge type in one direction."""

_NOTHING = np.zeros(0, np.int64)
_COPY = 40
_ROW = (1 << _COPY) - 1
"""Where a query draws, each seed has nodes of its own: the bits above a row's number hold the seed."""


class Known(NamedTuple):
    """Records of the index of some nodes, and which of them are known."""

    there: "Bool[NDArray[np.bool_], 'nodes']"
    records: "Shaped[NDArray[np.void], 'nodes']"


@dataclass(frozen=True)
class Neighborhood:
    """The part of a snapshot that a prediction reads, without the features of nodes.

    snapshot: the identity of the snapshot. sample: `node` has row numbers of the snapshot, the seeds first,
    then hop by hop; with a query's draws a row stands there for each seed that has reached it. degrees: in
    the whole graph, None if those of the sample count. degree: by node type, how long the longest list of
    each node is that was read or of which the degree was, -1 where none was. layout: of the snapshot. index:
    the records of the index that were read, of all nodes that have these lists. pending: the positions of
    nodes whose degrees count and are not known yet; `complete` adds them.
    """

    snapshot: str
    sample: HeteroSubgraph
    degrees: Mapping[Lists, Degrees] | None
    degree: "Mapping[NodeType, Int64[IntArray, '_']]"
    layout: str = ""
    index: "Mapping[Lists, Known]" = field(default_factory=dict)
    pending: "Mapping[Lists, Int64[IntArray, '_']]" = field(default_factory=dict)

    @property
    def rows(self) -> "Mapping[NodeType, Int64[IntArray, '_']]":
        """The row numbers of all nodes."""
        return cast("Mapping[NodeType, IntArray]", self.sample.node)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays."""
        sample = self.sample
        columns = (sample.node, sample.row, sample.col, sample.inverse, sample.edge_weight, sample.edge_attr)
        total = sum(array.nbytes for column in columns for array in column.values())
        total += sum(array.nbytes for array in self.degree.values())
        total += sum(array.nbytes for records in self.index.values() for array in records)
        degrees = (self.degrees or {}).values()
        return total + sum(array.nbytes for each in degrees for array in each.columns if array is not None)

    def counts(self) -> IntArray:
        """The number of nodes that each hop has reached and of edges it has read, int64 [counts], summed from
        the seeds on, type by type: the sizes of each layer."""
        columns = [*self.sample.num_sampled_nodes.values(), *self.sample.num_sampled_edges.values()]
        return np.concatenate([np.cumsum(column) for column in columns]).astype(np.int64)

    def complete(self, read: "Mapping[Lists, tuple[IntArray, NDArray[np.void]]]") -> "Neighborhood":
        """The same with the pending degrees, and more of the index: by lists, positions of nodes, each once,
        and their records."""
        index, degree = dict(self.index), {name: lengths.copy() for name, lengths in self.degree.items()}
        degrees = dict(self.degrees or {})
        for lists, (at, records) in read.items():
            name = receiver_of(lists)
            present, known = index.get(lists, _nothing_known(len(self.rows[name]), records.dtype))
            present, known = present.copy(), known.copy()
            present[at], known[at] = True, records
            index[lists] = Known(present, known)
            np.maximum.at(degree[name], at, records["count"].astype(np.int64))
            if lists in self.pending:
                columns = [array if array is None else array.copy() for array in degrees[lists].columns]
                for column, values in zip(columns, _whole_columns(degrees_of(records)), strict=True):
                    assert column is not None, "a neighborhood has all columns"
                    column[at] = values
                degrees[lists] = Degrees(*columns)  # type: ignore[arg-type]
        return replace(
            self, index=index, degree=degree, degrees=None if self.degrees is None else degrees, pending={}
        )


def receiver_of(lists: Lists) -> NodeType:
    """The type of the nodes that have these lists."""
    (source, _, target), direction = lists
    return target if direction == "in" else source


def whole_neighborhood(
    snapshot: Snapshot,
    seed_type: NodeType,
    seeds: "Int64[IntArray, 'seeds']",
    reads: Reads,
    edge_types: Sequence[EdgeType],
    find: Callable[[Lists, IntArray], Known] | None = None,
    *,
    later: bool = False,
) -> Neighborhood:
    """All that `reads` names around the seeds, with true degrees.

    seeds: row numbers. edge_types: those that the model names; one that `reads` leaves out has no edges.
    find: returns known records of the index; the rest is read from the snapshot. later: whether degrees of
    nodes whose lists are not read may be pending.
    """
    growth = _Growth(snapshot, seed_type, seeds, find=find)
    for hop in range(max(reads.lists.values(), default=0)):
        asked = [(lists, growth.new[receiver_of(lists)]) for lists, hops in reads.lists.items() if hop < hops]
        growth.read([(lists, rows, None) for lists, rows in asked])
    growth.drop_twice_read()
    degrees = {
        lists: growth.degrees(lists, reads.degrees.get(lists, -1), later=later)
        for lists in dict.fromkeys([*reads.lists, *reads.degrees])
    }
    return growth.finish(edge_types, degrees)


def drawn_neighborhood(
    snapshot: Snapshot,
    seeds: "Int64[IntArray, 'seeds']",
    query: Query,
    sample_seed: int,
    edge_types: Sequence[EdgeType],
) -> Neighborhood:
    """The sample that a query draws around each of the seeds separately; the same for the same snapshot, seed
    and `sample_seed`, with any other seeds. A list that several seeds reach is read once.

    edge_types: those that the model names.
    """
    once = distinct(seeds)
    copies = np.arange(len(once)) << _COPY
    growth = _Growth(snapshot, query.seed_type, (once | copies)[np.searchsorted(once, seeds)], sample_seed)
    brought = {SEEDS: growth.new[query.seed_type]}
    hops: list[list[int]] = []
    at: dict[int, int] = {SEEDS: -1}
    for position, step in enumerate(query.one_hop):
        at[position] = at[step.parents[0]] + 1
        hops[at[position] :] = [[*(hops[at[position]] if at[position] < len(hops) else ()), position]]
    for each in hops:
        asked = [query.one_hop[position] for position in each]
        reached = growth.read(
            [
                ((step.edge_type, step.direction), np.concatenate([brought[p] for p in step.parents]), step)
                for step in asked
            ]
        )
        brought.update(zip(each, reached, strict=True))
    return growth.finish(edge_types, None)


@dataclass
class _Edges:
    """Edges of one type that one hop has read, as row numbers."""

    lists: Lists
    hop: int
    source: IntArray
    target: IntArray
    weight: FloatArray | None
    edge_attr: FloatArray | None

    def take(self, kept: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> "_Edges":
        weight = None if self.weight is None else self.weight[kept]
        attr = None if self.edge_attr is None else self.edge_attr[kept]
        return _Edges(self.lists, self.hop, self.source[kept], self.target[kept], weight, attr)


@dataclass
class _Read:
    """Nodes whose lists were read, and what these say of their degrees."""

    rows: list[IntArray] = field(default_factory=list)
    degrees: list[Degrees] = field(default_factory=list)


class _Growth:
    """A subgraph that grows hop by hop. Invariant: a row number is in one hop of its type."""

    def __init__(
        self,
        snapshot: Snapshot,
        seed_type: NodeType,
        seeds: IntArray,
        sample_seed: int = 0,
        find: Callable[[Lists, IntArray], Known] | None = None,
    ) -> None:
        self._snapshot, self._find = snapshot, find
        self._sample_seed = sample_seed
        self._seed_type, self._seeds = seed_type, seeds
        self.new: dict[NodeType, IntArray] = dict.fromkeys(snapshot.schema.node_types, _NOTHING)
        self.new[seed_type] = distinct(seeds)
        self._hops = {name: [rows] for name, rows in self.new.items()}
        self._known = dict(self.new)
        self._edges: list[_Edges] = []
        self._read: defaultdict[Lists, _Read] = defaultdict(_Read)
        self._lengths: dict[NodeType, list[tuple[IntArray, IntArray]]] = {name: [] for name in self._hops}
        self._index: defaultdict[Lists, list[tuple[IntArray, NDArray[np.void]]]] = defaultdict(list)
        self._pending: dict[Lists, IntArray] = {}

    def read(self, asked: Sequence[tuple[Lists, IntArray, OneHop | None]]) -> list[IntArray]:
        """Reads the lists of nodes, draws from them if a one-hop query says so, and makes what they reach the
        next hop. Returns the row numbers that each of them has reached first."""
        hop = len(self._hops[self._seed_type])
        each_once = [rows if query is None else distinct(rows & _ROW) for _, rows, query in asked]
        fetched = self._fetch([(lists, each) for (lists, _, _), each in zip(asked, each_once, strict=True)])
        reached = []
        added: dict[NodeType, list[IntArray]] = {name: [] for name in self._hops}
        for (lists, rows, query), each, neighbors in zip(asked, each_once, fetched, strict=True):
            if query is None:
                others = self._take(lists, rows, neighbors, hop)
            else:
                others = self._draw(lists, rows, each, neighbors, query, hop)
            name = lists[0][0 if lists[1] == "in" else 2]
            fresh = missing(others, self._known[name])
            self._known[name] = union(self._known[name], fresh)
            added[name].append(fresh)
            reached.append(fresh)
        self.new = {name: np.concatenate([_NOTHING, *rows]) for name, rows in added.items()}
        for name, rows in self.new.items():
            self._hops[name].append(rows)
        return reached

    def _fetch(self, asked: Sequence[tuple[Lists, IntArray]]) -> list[Neighbors]:
        """The lists of one hop; those of several edge types are fetched beside each other."""
        known_indices = [None if self._find is None else self._find(lists, rows) for lists, rows in asked]

        def fetch(lists: Lists, rows: IntArray, known: Known | None) -> Neighbors:
            edge_type, direction = lists
            index = None
            if known is not None:
                index = _read_rest(self._snapshot, lists, rows, known)
                self._index[lists].append((rows, index))
            neighbors = self._snapshot.neighbors(edge_type, rows, direction, index=index)
            return neighbors.loops_by_key(rows) if edge_type[0] == edge_type[2] else neighbors

        jobs = [partial(fetch, *one, known) for one, known in zip(asked, known_indices, strict=True)]
        few = sum(len(rows) > 0 for _, rows in asked) < 2
        return run_parallel(jobs, apart=few or self._snapshot.confined)

    def _take(self, lists: Lists, rows: IntArray, neighbors: Neighbors, hop: int) -> IntArray:
        """Keeps the edges of lists that were read; returns the row numbers at their other ends."""
        lengths = np.diff(neighbors.offsets)
        self._lengths[receiver_of(lists)].append((rows, lengths))
        own = np.repeat(rows, lengths)
        read = self._read[lists]
        read.rows.append(rows)
        read.degrees.append(_degrees_of(own, neighbors, same=lists[0][0] == lists[0][2]))
        self._keep(lists, hop, own, neighbors.rows, neighbors)
        return neighbors.rows

    def _draw(
        self, lists: Lists, rows: IntArray, distinct: IntArray, neighbors: Neighbors, query: OneHop, hop: int
    ) -> IntArray:
        """Draws from the lists of `distinct`, and keeps the edges for each seed's copy of these nodes."""
        weight = neighbors.weight if query.by == "weight" else None
        time = neighbors.time if query.by == "latest" else None
        given = neighbors.offsets, distinct, neighbors.rows, weight, time
        kept = draw_of_lists(*given, query.num_neighbors, self._sample_seed)
        drawn_of = np.bincount(np.searchsorted(neighbors.offsets, kept, "right") - 1, minlength=len(distinct))
        where = np.searchsorted(distinct, rows & _ROW)
        self._lengths[receiver_of(lists)].append((rows, np.diff(neighbors.offsets)[where]))
        counts = drawn_of[where]
        begins = np.cumsum(drawn_of)[where] - counts - (np.cumsum(counts) - counts)
        at = kept[np.repeat(begins, counts) + np.arange(int(counts.sum()))]
        own = np.repeat(rows, counts)
        others = neighbors.rows[at] | (own & ~_ROW)
        self._keep(lists, hop, own, others, neighbors, at)
        return others

    def _keep(
        self,
        lists: Lists,
        hop: int,
        own: IntArray,
        others: IntArray,
        neighbors: Neighbors,
        at: IntArray | slice = slice(None),
    ) -> None:
        """Keeps edges between nodes and their neighbours, with the columns at the places `at` of lists."""
        source, target = (others, own) if lists[1] == "in" else (own, others)
        weight = None if neighbors.weight is None else neighbors.weight[at]
        attr = None if neighbors.edge_attr is None else neighbors.edge_attr[at]
        self._edges.append(_Edges(lists, hop, source, target, weight, attr))

    def drop_twice_read(self) -> None:
        """Drops edges that were read from both of their ends: those from the source's side."""
        for i, edges in enumerate(self._edges):
            edge_type, direction = edges.lists
            incoming = self._read.get((edge_type, "in"))
            if direction == "out" and incoming is not None:
                self._edges[i] = edges.take(~are_in(edges.target, np.sort(np.concatenate(incoming.rows))))

    def degrees(self, lists: Lists, hops: int, *, later: bool) -> Degrees:
        """The degrees of all nodes of the type that has these lists. Degrees of nodes whose lists were not
        read are fetched within this number of hops, or pending if they may be; 0 otherwise."""
        name, read = receiver_of(lists), self._read[lists]
        rows_known, columns = [_NOTHING, *read.rows], list(read.degrees)
        near = np.concatenate([_NOTHING, *self._hops[name][: hops + 1]])
        border = missing(near, np.sort(np.concatenate(rows_known)))
        if len(border):
            border, fetched = self._border_degrees(lists, border, later=later)
            self._lengths[name].append((border, fetched.columns[0]))
            rows_known.append(border)
            columns.append(fetched)
            self._add_loops(lists, border, fetched)
        rows = np.concatenate([_NOTHING, *self._hops[name]])
        places = places_in(rows, np.concatenate(rows_known))
        return _spread(columns, places, len(rows))

    def _border_degrees(self, lists: Lists, border: IntArray, *, later: bool) -> tuple[IntArray, Degrees]:
        """Degrees of nodes whose lists were not read, and of which nodes; those of the others are pending."""
        if self._find is None:
            return border, self._snapshot.degrees(lists[0], border, lists[1])
        known = self._find(lists, border)
        # The loops must be known before the subgraph is whole.
        if later and self._snapshot.schema.edge_types[lists[0]].duplicates != "keep":
            self._pending[lists] = border[~known.there]
            border = border[known.there]
            known = Known(known.there[known.there], known.records[known.there])
        index = _read_rest(self._snapshot, lists, border, known)
        self._index[lists].append((border, index))
        return border, degrees_of(index)

    def _add_loops(self, lists: Lists, rows: IntArray, degrees: Degrees) -> None:
        """Reads parallel loops of nodes of which only degrees are known: a layer that adds loops takes the
        last one, which the sum of their weights does not contain."""
        loops = degrees.columns[2]
        edge_type, direction = lists
        if loops is None or self._snapshot.schema.edge_types[edge_type].duplicates != "keep":
            return
        other: Lists = (edge_type, "out" if direction == "in" else "in")
        read_before = np.concatenate([_NOTHING, *self._read[other].rows])
        several = missing(rows[loops > 1], np.sort(read_before))
        if len(several):
            neighbors = self._snapshot.neighbors(edge_type, several, direction).loops_by_key(several)
            own = np.repeat(several, np.diff(neighbors.offsets))
            at = np.flatnonzero(own == neighbors.rows)
            self._keep(lists, len(self._hops[self._seed_type]) - 1, own[at], own[at], neighbors, at)

    def finish(self, edge_types: Sequence[EdgeType], degrees: Mapping[Lists, Degrees] | None) -> Neighborhood:
        """The subgraph so far."""
        node = {name: np.concatenate(hops) for name, hops in self._hops.items()}
        hops = len(self._hops[self._seed_type]) - 1
        row, col, weight, attr, counts = {}, {}, {}, {}, {}
        for name in dict.fromkeys([*edge_types, *(edges.lists[0] for edges in self._edges)]):
            read = [edges for edges in self._edges if edges.lists[0] == name]
            row[name] = places_in(node[name[0]], np.concatenate([_NOTHING, *(it.source for it in read)]))
            col[name] = places_in(node[name[2]], np.concatenate([_NOTHING, *(it.target for it in read)]))
            counts[name] = [sum(len(it.source) for it in read if it.hop == hop + 1) for hop in range(hops)]
            schema = self._snapshot.schema.edge_types[name]
            if schema.weighted:
                columns = (it.weight for it in read if it.weight is not None)
                weight[name] = np.concatenate([np.zeros(0, np.float32), *columns])
            if schema.edge_dim:
                columns = (it.edge_attr for it in read if it.edge_attr is not None)
                attr[name] = np.concatenate([np.zeros((0, schema.edge_dim), np.float32), *columns])
        sample = HeteroSubgraph(
            node={name: rows & _ROW for name, rows in node.items()},
            row=row,
            col=col,
            edge=dict.fromkeys(row),
            num_sampled_nodes={name: [len(rows) for rows in each] for name, each in self._hops.items()},
            num_sampled_edges=counts,
            inverse={self._seed_type: places_in(node[self._seed_type], self._seeds)},
            seed=self._sample_seed,
            edge_weight=weight,
            edge_attr=attr,
        )
        return Neighborhood(
            self._snapshot.identity,
            sample,
            degrees,
            self._known_degrees(node),
            self._snapshot.layout,
            {lists: self._known_index(node[receiver_of(lists)], lists) for lists in self._index},
            {
                lists: places_in(node[receiver_of(lists)], rows)
                for lists, rows in self._pending.items()
                if len(rows)
            },
        )

    def _known_index(self, node: IntArray, lists: Lists) -> Known:
        read = self._index[lists]
        index = _nothing_known(len(node), read[0][1].dtype)
        for rows, records in read:
            at = places_in(node, rows)
            index.there[at], index.records[at] = True, records
        return index

    def _known_degrees(self, node: Mapping[NodeType, IntArray]) -> dict[NodeType, IntArray]:
        degrees = {name: np.full(len(rows), -1, np.int64) for name, rows in node.items()}
        for name, read in self._lengths.items():
            for rows, lengths in read:
                np.maximum.at(degrees[name], places_in(node[name], rows), lengths)
        return degrees


def _read_rest(snapshot: Snapshot, lists: Lists, rows: IntArray, known: Known) -> "NDArray[np.void]":
    """The records of these rows; those that are not known are read."""
    absent = np.flatnonzero(~known.there)
    records = known.records
    if len(absent):
        records = records.copy()
        records[absent] = snapshot.index(lists[0], rows[absent], lists[1])
    return records


def _nothing_known(nodes: int, type_: "np.dtype[np.void]") -> Known:
    return Known(np.zeros(nodes, np.bool_), np.zeros(nodes, type_))


def _whole_columns(degrees: Degrees) -> "tuple[Array, Array, Array, Array]":
    """Count, weight, loops and their weight."""
    count, weight, loops, loop_weight = degrees.columns
    assert loops is not None, "a snapshot has the number of loops"
    # Without weights every edge weighs 1.
    return count, count if weight is None else weight, loops, loops if loop_weight is None else loop_weight


def _degrees_of(own: IntArray, neighbors: Neighbors, *, same: bool) -> Degrees:
    """The degrees of nodes whose whole lists are known. same: whether both ends are of one type."""
    count = np.diff(neighbors.offsets)
    segment = np.repeat(np.arange(len(count)), count)
    loop = (own == neighbors.rows) if same else np.zeros(len(own), np.bool_)
    loops = np.bincount(segment[loop], minlength=len(count)).astype(np.int64)
    if neighbors.weight is None:
        return Degrees(count, None, loops, None)
    weight = np.bincount(segment, neighbors.weight, len(count))
    return Degrees(count, weight, loops, np.bincount(segment[loop], neighbors.weight[loop], len(count)))


def _spread(degrees: Sequence[Degrees], places: IntArray, nodes: int) -> Degrees:
    """Degrees of some nodes among all nodes of a sample; those of the others are 0."""
    spread = np.zeros((4, nodes))  # counts are exact in float64
    for each, end in zip(degrees, np.cumsum([len(each) for each in degrees]), strict=True):
        at = places[end - len(each) : end]
        for number, column in enumerate(_whole_columns(each)):
            spread[number, at] = column
    return Degrees(spread[0].astype(np.int64), spread[1], spread[2].astype(np.int64), spread[3])


def run_parallel(jobs: Sequence[Callable[[], T]], *, apart: bool = False) -> list[T]:
    """The results of the jobs. All run at once, the last one in this thread, so that it allocates memory
    that was freed there before. apart: one after the other instead."""
    if apart or len(jobs) < 2:
        return [job() for job in jobs]
    from concurrent.futures import ThreadPoolExecutor  # costs 10 ms, which one job need not wait for

    with ThreadPoolExecutor(len(jobs) - 1) as threads:
        running = [threads.submit(job) for job in jobs[:-1]]
        last = jobs[-1]()
        return [*(each.result() for each in running), last]
