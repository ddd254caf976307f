"""Seeded graphs with the shapes of Helios' table 1, and streams of edges into them.

What a shape keeps of the paper's data set, and what not
--------------------------------------------------------
Kept: the ratio of edges to nodes, the largest and the smallest out-degree, the skew between them, the node
types and edge types of the query of table 2, the width of the features. Edges only come, each with a later
time than all before; two edges may join the same two nodes, and both stay, as in the paper's logs.

Not kept: the size (`Shape.scale` says how many times smaller), node types and edge types that the query does
not follow, and FIN's 200 replays of the same edges, of which there are `Shape.replays`. With the size out of
the way, the largest degree is a larger part of the graph than it was.

The generator
-------------
The out-degrees of an edge type are the quantiles of a power law that is cut off at the smallest and the
largest degree; its exponent is the one that gives the mean (`degrees`). So they are the same for every seed.
The target of an edge is the source of a random edge of the type that `EdgeShape.popular` names: targets are
drawn in proportion to their own out-degree, so a second hop meets hubs as it does in a social network. Where
targets have no out-edges they follow a Zipf law. The stream goes on by the same law.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import livegnn as lg
from graphs import Float32, Int64, Zipf
from livegnn.query import NeighborsBy, Query
from livegnn.types import EdgeType, NodeType

LEAVES = Zipf(0.5, 30.0)
"""How popular targets without out-edges are."""


@dataclass(frozen=True)
class EdgeShape:
    """The edges of one type: how large a part of all they are, and the bounds of their out-degrees."""

    share: float
    least: int
    most: int
    popular: EdgeType | None = None
    """The edge type whose out-degrees say how popular targets are; None: a Zipf law."""


@dataclass(frozen=True)
class Shape:
    """A data set of table 1. `nodes` and `edges` are the paper's, `edges` without replays; `shares` are parts
    of the nodes."""

    nodes: float
    edges: float
    scale: float
    features: int
    shares: Mapping[NodeType, float]
    edge_types: Mapping[EdgeType, EdgeShape]
    seed_type: NodeType
    hops: tuple[tuple[EdgeType, int], ...]
    replays: int = 1

    def smaller(self, times: float) -> Shape:
        """The shape with so many times fewer nodes and edges. Hubs are as many times smaller, but at least
        ten times the mean."""
        forms = {
            name: replace(form, most=max(round(form.most / times), round(10 * self.mean(name))))
            for name, form in self.edge_types.items()
        }
        return replace(self, scale=self.scale * times, edge_types=forms)

    def mean(self, edge_type: EdgeType) -> float:
        """The mean out-degree of an edge type, without replays."""
        return self.edges * self.edge_types[edge_type].share / (self.nodes * self.shares[edge_type[0]])

    def query(self, by: NeighborsBy) -> Query:
        query = Query(self.seed_type)
        for edge_type, count in self.hops:
            query = query.hop(edge_type, count, by=by)
        return query


KNOWS, LIKES = ("Person", "knows", "Person"), ("Person", "likes", "Comment")
HAS, TRANSFER = ("Forum", "has", "Person"), ("Account", "transferTo", "Account")
CLICK, ALONG = ("User", "click", "Item"), ("Item", "coPurchase", "Item")

# The parts of knows and likes, and of persons and comments, are those of the LDBC sample. Forums and persons,
# users and items halve the nodes: the paper does not say how many there are of each.
SHAPES = {
    "BI": Shape(
        1.9e9,
        2.4e9,
        1000,
        10,
        {"Person": 0.01, "Comment": 0.99},
        {KNOWS: EdgeShape(0.31, 0, 8525, LIKES), LIKES: EdgeShape(0.69, 0, 8525)},
        "Person",
        ((KNOWS, 25), (LIKES, 10)),
    ),
    "INTER": Shape(
        40e6,
        3.8e9,
        400,
        10,
        {"Forum": 0.5, "Person": 0.5},
        {HAS: EdgeShape(0.5, 0, 3632, KNOWS), KNOWS: EdgeShape(0.5, 0, 3632, KNOWS)},
        "Forum",
        ((HAS, 25), (KNOWS, 10)),
    ),
    "FIN": Shape(
        2e6,
        11e6,
        20,
        10,
        {"Account": 1.0},
        {TRANSFER: EdgeShape(1.0, 0, 9831, TRANSFER)},
        "Account",
        ((TRANSFER, 25), (TRANSFER, 10)),
        replays=20,
    ),
    "Taobao": Shape(
        1.8e6,
        8.6e6,
        4,
        128,
        {"User": 0.5, "Item": 0.5},
        {CLICK: EdgeShape(0.5, 2, 3726, ALONG), ALONG: EdgeShape(0.5, 2, 3726, ALONG)},
        "User",
        ((CLICK, 25), (ALONG, 10)),
    ),
}
SHAPES["INTER, three hops"] = replace(SHAPES["INTER"], hops=((HAS, 25), (KNOWS, 10), (KNOWS, 5)))


@dataclass(frozen=True)
class Edges:
    """Edges of one type in order of time: ids of both ends within their node types, and times."""

    source: Int64
    target: Int64
    time: Int64

    def __len__(self) -> int:
        return len(self.source)


Batch = Mapping[EdgeType, Edges]


@dataclass(frozen=True)
class TimedGraph:
    """Nodes 0..n-1 of each type with features [n, width], edges by type, and what is asked of them."""

    name: str
    seed_type: NodeType
    hops: tuple[tuple[EdgeType, int], ...]
    num_nodes: Mapping[NodeType, int]
    x: Mapping[NodeType, Float32]
    edges: Mapping[EdgeType, Edges]
    popular: Mapping[EdgeType, EdgeType | None]

    @property
    def num_edges(self) -> int:
        return sum(map(len, self.edges.values()))

    def query(self, by: NeighborsBy) -> Query:
        query = Query(self.seed_type)
        for edge_type, count in self.hops:
            query = query.hop(edge_type, count, by=by)
        return query

    def out_degrees(self, edge_type: EdgeType) -> Int64:
        return np.bincount(self.edges[edge_type].source, minlength=self.num_nodes[edge_type[0]])

    def stream(self, size: int, seed: int = 0, *, start: int = 0) -> Iterator[Batch]:
        """Batches of `size` further edges, without end, each later than all before; `start` edges later than
        those that the graph has."""
        rng = np.random.default_rng([seed, 3])
        parts = np.array([len(edges) for edges in self.edges.values()]) / self.num_edges
        clock = 1 + start + max(int(edges.time.max()) for edges in self.edges.values())
        while True:
            of_type = rng.choice(len(parts), size, p=parts)
            batch = {}
            for i, (edge_type, edges) in enumerate(self.edges.items()):
                at = np.flatnonzero(of_type == i)
                if len(at):
                    source = edges.source[rng.integers(0, len(edges), len(at))]
                    batch[edge_type] = Edges(source, self._targets(edge_type, len(at), rng), clock + at)
            clock += size
            yield batch

    def _targets(self, edge_type: EdgeType, count: int, rng: np.random.Generator) -> Int64:
        popular = self.popular[edge_type]
        sources = None if popular is None else self.edges[popular].source
        return targets(sources, self.num_nodes[edge_type[2]], count, rng)


def make_graph(name: str, shape: Shape, seed: int = 0) -> TimedGraph:
    rng = np.random.default_rng([seed, 0])
    num_nodes = {type: round(shape.nodes * part / shape.scale) for type, part in shape.shares.items()}
    x = {type: rng.random((n, shape.features), dtype=np.float32) for type, n in num_nodes.items()}
    sources = {}
    for edge_type, form in shape.edge_types.items():
        n = num_nodes[edge_type[0]]
        degree = degrees(n, shape.mean(edge_type), form.least, form.most)
        sources[edge_type] = np.repeat(rng.permutation(n), degree)
    ends = {}
    for edge_type, form in shape.edge_types.items():
        source = sources[edge_type]
        of = None if form.popular is None else sources[form.popular]
        target = targets(of, num_nodes[edge_type[2]], len(source), rng)
        ends[edge_type] = (np.tile(source, shape.replays), np.tile(target, shape.replays))
    # One clock for all types: the times of a type are a random part of 0, 1, 2, ...
    order = rng.permutation(sum(len(source) for source, _ in ends.values()))
    edges, first = {}, 0
    for edge_type, (source, target) in ends.items():
        time = np.sort(order[first : first + len(source)])
        first += len(source)
        mixed = rng.permutation(len(source))
        edges[edge_type] = Edges(source[mixed], target[mixed], time)
    popular = {edge_type: form.popular for edge_type, form in shape.edge_types.items()}
    return TimedGraph(name, shape.seed_type, shape.hops, num_nodes, x, edges, popular)


def degrees(count: int, mean: float, least: int, most: int) -> Int64:
    """`count` degrees of the mean, from `least` to `most`, by a power law; the first is the largest.

    Raises `ValueError` if no power law between these bounds has that mean.
    """
    room = most - least + 1
    quantile = (np.arange(count) + 0.5) / count

    def draw(exponent: float) -> Int64:
        power = 1.0 - exponent
        value = (1.0 + quantile * (float(room + 1) ** power - 1.0)) ** (1.0 / power)
        degree = np.minimum(value.astype(np.int64), room)[::-1] - 1 + least
        degree[0] = most
        return degree

    low, high = 0.01, 8.0  # the mean falls as the exponent grows
    if not draw(high).mean() <= mean <= draw(low).mean():
        raise ValueError(f"no power law from {least:,} to {most:,} has the mean {mean:.3g}")
    for _ in range(50):
        middle = (low + high) / 2 + 1e-9  # never exactly 1, where the law is another one
        low, high = (middle, high) if draw(middle).mean() > mean else (low, middle)
    return draw(high)


def targets(sources: Int64 | None, nodes: int, count: int, rng: np.random.Generator) -> Int64:
    """Targets of `count` edges, in proportion to how often `sources` names them, or by a Zipf law."""
    if sources is None:
        return LEAVES.draw(rng, nodes, count)
    return sources[rng.integers(0, len(sources), count)]


def ldbc_sample(path: Path, features: int = 10) -> TimedGraph:
    """The query of BI on a sample of LDBC's social network (`node__TYPE`, `edge__SRC__REL__DST__src`, `dst`,
    `time`), with random features. Times are ranks: 17 digits are more than a float64 holds. A friendship is
    an edge in both directions.
    """
    with np.load(path) as arrays:
        num_nodes = {type: len(arrays[f"node__{type}"]) for type in ("Person", "Comment")}
        columns = {
            name: [arrays[f"edge__{'__'.join(name)}__{column}"].astype(np.int64) for column in COLUMNS]
            for name in (KNOWS, LIKES)
        }
    source, target, time = columns[KNOWS]
    columns[KNOWS] = [
        np.concatenate([source, target]),
        np.concatenate([target, source]),
        np.concatenate([time, time]),
    ]
    order = np.argsort(np.concatenate([time for _, _, time in columns.values()]), kind="stable")
    rank: NDArray[np.int64] = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    edges, first = {}, 0
    for name, (source, target, time) in columns.items():
        times = rank[first : first + len(time)]
        first += len(time)
        sorted_ = np.argsort(times)
        edges[name] = Edges(source[sorted_], target[sorted_], times[sorted_])
    rng = np.random.default_rng(0)
    x = {type: rng.random((n, features), dtype=np.float32) for type, n in num_nodes.items()}
    hops = SHAPES["BI"].hops
    return TimedGraph("LDBC sample", "Person", hops, num_nodes, x, edges, {KNOWS: LIKES, LIKES: None})


COLUMNS = ("src", "dst", "time")


def live_graph(graph: TimedGraph) -> lg.Graph:
    """The graph as LiveGNN holds it."""
    schema = lg.Schema(
        {name: x.shape[1] for name, x in graph.x.items()},
        {
            edge_type: lg.EdgeSchema(timed=True, duplicates="keep", in_neighbors=False)
            for edge_type in graph.edges
        },
    )
    live = lg.Graph(schema)
    for name, x in graph.x.items():
        live.apply(lg.Events().add_nodes(np.arange(len(x)), x, node_type=name))
    live.apply(events_of(graph.edges))
    return live


def events_of(batch: Batch) -> lg.Events:
    events = lg.Events()
    for edge_type, edges in batch.items():
        events.add_edges(edges.source, edges.target, time=edges.time, edge_type=edge_type)
    return events
