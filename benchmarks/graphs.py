"""Seeded graphs with the shapes that the papers use, and update streams after RIPPLE's protocol.

The generator
-------------
A Chung-Lu graph: every edge draws its two ends independently, an end falls on the node of rank `r` with
probability proportional to `(r + offset) ** -exponent`. Expected degrees then follow a power law whose tail
has the exponent `1 + 1 / exponent`, and `offset` says how large the largest of them is. The ranks are not
drawn from a table: the cumulative distribution of a continuous Zipf law has a closed inverse, so that one
edge costs two powers. A seeded permutation turns ranks into node ids, so that an id says nothing about a
degree.

Self-loops and pairs drawn before are thrown away and drawn again until the number of edges is exactly the
shape's. A pair of nodes is joined at most once, in whichever direction; so the graph made symmetric has
exactly as many (undirected) edges as the directed one has directed edges.

The shape of `arxiv` imitates ogbn-arxiv: in-degrees (citations received) are wild, the largest of the order
of 13,000, out-degrees (references made) are tame, the largest of the order of 430. In- and out-degree are
drawn independently.

The shape of `communities` has the sizes of products, and communities: a node of rank `r` is in community `r`
modulo their number, so each has the same law of degrees. For nine edges of ten the second end is moved to the
nearest rank in the community of the first (a stochastic block model, corrected for degrees: Karrer and
Newman, 2011). Without communities such a graph has no small cut, and partitioners have nothing to find.

The update stream
-----------------
RIPPLE, section 7.1.2: the graph starts with a random 90 % of its edges; then come equal parts of edge
additions (the other 10 %), edge deletions (from the 90 %) and feature changes, in random order. No edge
occurs twice in a stream, nor does a node as long as there are fewer feature changes than nodes; so within a
batch the order of events does not matter, and a batch is handed to every competitor as columns, one group
for each kind. In a symmetric graph an undirected edge is one event.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]


class Zipf(NamedTuple):
    """Ranks in [0, n) with probability proportional to (rank + offset) ** -exponent; exponent is not 1."""

    exponent: float
    offset: float

    def draw(self, rng: np.random.Generator, n: int, count: int) -> Int64:
        power = 1.0 - self.exponent
        low, high = self.offset**power, (n + self.offset) ** power
        ranks = (low + (high - low) * rng.random(count)) ** (1.0 / power) - self.offset
        drawn: Int64 = np.minimum(ranks.astype(np.int64), n - 1)
        return drawn


@dataclass(frozen=True)
class Shape:
    """What a graph looks like; `edges` counts pairs of nodes, a mutual shape has both directions of each."""

    nodes: int
    edges: int
    features: int
    classes: int
    targets: Zipf
    sources: Zipf | None = None
    """The law of the out-degrees; without one the shape is mutual: both ends are drawn from `targets`."""
    communities: int = 0
    """The number of communities, of a mutual shape; 0 for none."""
    inside: float = 0.9
    """The probability that an edge must stay in its community."""

    @property
    def mutual(self) -> bool:
        return self.sources is None

    @property
    def directed_edges(self) -> int:
        return self.edges * (2 if self.mutual else 1)


CITED, CITING = Zipf(0.82, 1.8), Zipf(0.4, 1.5)

SHAPES = {
    "arxiv": Shape(169_343, 1_166_243, 128, 40, CITED, CITING),
    "reddit": Shape(232_965, 57_307_946, 602, 41, Zipf(0.5, 30.0)),
    "products": Shape(2_449_029, 61_859_140, 100, 47, Zipf(0.5, 5.1)),
    "tolokers": Shape(11_758, 519_000, 10, 2, Zipf(0.5, 8.0)),
    # Small ones: tenths for --quick, and one for tests.
    "arxiv-tenth": Shape(16_934, 116_624, 128, 40, CITED, CITING),
    "reddit-tenth": Shape(23_297, 5_730_795, 602, 41, Zipf(0.5, 30.0)),
    "products-tenth": Shape(244_903, 6_185_914, 100, 47, Zipf(0.5, 5.1)),
    "communities": Shape(2_449_029, 61_859_140, 100, 47, Zipf(0.5, 5.1), communities=200),
    "communities-tenth": Shape(244_903, 6_185_914, 100, 47, Zipf(0.5, 5.1), communities=200),
    "communities-twentieth": Shape(122_451, 3_092_957, 100, 47, Zipf(0.5, 5.1), communities=200),
    "communities-hundredth": Shape(24_490, 618_591, 100, 47, Zipf(0.5, 5.1), communities=20),
    "communities-tiny": Shape(2_000, 16_000, 12, 5, Zipf(0.5, 5.1), communities=20),
    "tiny": Shape(300, 1_500, 12, 5, Zipf(0.6, 2.0), Zipf(0.4, 1.5)),
}


@dataclass(frozen=True)
class SyntheticGraph:
    """Nodes are 0..num_nodes-1. If `undirected`, an edge stands for both directions and is listed once."""

    name: str
    seed: int
    num_nodes: int
    num_features: int
    num_classes: int
    src: Int64
    dst: Int64
    undirected: bool

    @property
    def num_edges(self) -> int:
        return len(self.src)

    @cached_property
    def x(self) -> Float32:
        """Features [num_nodes, num_features], standard normal; drawn on first use, for they may be large."""
        rng = np.random.default_rng([self.seed, 1])
        return rng.standard_normal((self.num_nodes, self.num_features), dtype=np.float32)


def make(shape: str, seed: int = 0, symmetric: bool = False) -> SyntheticGraph:
    """Generate a graph; the same arguments give the same graph.

    With `symmetric` the result is undirected and lists every edge once. Without it, edges are directed;
    those of a shape that is mutual by nature (reddit, products, tolokers) are listed in both directions.
    """
    if shape not in SHAPES:
        raise ValueError(f"shape must be one of {', '.join(SHAPES)}, got {shape!r}")
    form = SHAPES[shape]
    rng = np.random.default_rng([seed, 0])
    name_of_target = rng.permutation(form.nodes)
    name_of_source = name_of_target if form.sources is None else rng.permutation(form.nodes)
    sources = form.sources or form.targets

    codes = np.empty(0, np.int64)
    while len(codes) < form.edges:
        missing = form.edges - len(codes)
        count = missing + missing // 50 + 100
        source_ranks = sources.draw(rng, form.nodes, count)
        target_ranks = form.targets.draw(rng, form.nodes, count)
        if form.communities:
            target_ranks = _stay(source_ranks, target_ranks, form, rng)
        src, dst = name_of_source[source_ranks], name_of_target[target_ranks]
        codes = np.concatenate([codes, _encode(src[src != dst], dst[src != dst], form.nodes)])
        codes.sort()
        pairs = codes >> 1
        codes = codes[np.concatenate([[True], pairs[1:] != pairs[:-1]])]
    surplus = rng.choice(len(codes), len(codes) - form.edges, replace=False, shuffle=False)
    src, dst = _decode(np.delete(codes, surplus), form.nodes)
    if form.mutual and not symmetric:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    return SyntheticGraph(shape, seed, form.nodes, form.features, form.classes, src, dst, symmetric)


def _stay(source_ranks: Int64, target_ranks: Int64, form: Shape, rng: np.random.Generator) -> Int64:
    """Some of the targets, moved to the nearest rank in the community of their source."""
    k = form.communities
    near = target_ranks - target_ranks % k + source_ranks % k
    near = np.where(near < form.nodes, near, near - k)
    moved: Int64 = np.where(rng.random(len(target_ranks)) < form.inside, near, target_ranks)
    return moved


def _encode(src: Int64, dst: Int64, n: int) -> Int64:
    """One number for an edge; the lowest bit is its direction, the rest the pair that it joins."""
    return ((np.minimum(src, dst) * n + np.maximum(src, dst)) << 1) | (src > dst)


def _decode(codes: Int64, n: int) -> tuple[Int64, Int64]:
    low, high = np.divmod(codes >> 1, n)
    falling = (codes & 1).astype(bool)
    return np.where(falling, high, low), np.where(falling, low, high)


class Batch(NamedTuple):
    """Events applied together, grouped by kind: edges added, edges removed, nodes with their new features."""

    add_src: Int64
    add_dst: Int64
    remove_src: Int64
    remove_dst: Int64
    ids: Int64
    x: Float32


ADD, REMOVE, FEATURES = 0, 1, 2


@dataclass(frozen=True)
class UpdateStream:
    """A start graph and what happens to it. `kind[i]` tells what event i is; the k-th event of a kind takes
    the k-th row of that kind's columns."""

    graph: SyntheticGraph
    start_src: Int64
    start_dst: Int64
    kind: NDArray[np.int8]
    add_src: Int64
    add_dst: Int64
    remove_src: Int64
    remove_dst: Int64
    ids: Int64
    x: Float32

    def __len__(self) -> int:
        return len(self.kind)

    def batch(self, start: int, stop: int) -> Batch:
        """Events start <= i < stop as one batch."""
        a, r, f = (slice(self._before[start, k], self._before[stop, k]) for k in (ADD, REMOVE, FEATURES))
        return Batch(
            self.add_src[a], self.add_dst[a], self.remove_src[r], self.remove_dst[r], self.ids[f], self.x[f]
        )

    def batches(self, size: int, count: int, start: int = 0) -> Iterator[Batch]:
        """`count` batches of `size` events, from event `start` on."""
        if start + size * count > len(self):
            raise ValueError(
                f"the stream has {len(self):,} events; {count:,} batches of {size:,} from event {start:,} on"
                " need more: make it longer"
            )
        for first in range(start, start + size * count, size):
            yield self.batch(first, first + size)

    @cached_property
    def _before(self) -> Int64:
        """[len + 1, 3]: how many events of each kind precede event i."""
        before = np.zeros((len(self.kind) + 1, 3), np.int64)
        for k in (ADD, REMOVE, FEATURES):
            np.cumsum(self.kind == k, out=before[1:, k])
        return before


def make_stream(
    graph: SyntheticGraph, length: int | None = None, seed: int = 0, *, held_back: float = 0.1
) -> UpdateStream:
    """RIPPLE's protocol over `graph`.

    `length` is a multiple of three, by default as long as the share of edges that is held back (and the
    number of nodes) allows. Feature changes visit all nodes before they visit one again.
    """
    rng = np.random.default_rng([seed, 2])
    absent = int(graph.num_edges * held_back)
    third = min(absent, graph.num_nodes) if length is None else length // 3
    if third > absent or third * 3 != (3 * third if length is None else length):
        raise ValueError(
            f"length must be a multiple of 3 and at most {3 * absent:,}, three times the edges held back,"
            f" got {length:,}"
        )
    order = rng.permutation(graph.num_edges)
    added, kept = order[:third], np.sort(order[absent:])
    removed = rng.choice(kept, third, replace=False)
    rounds = -(-third // graph.num_nodes)
    ids = np.concatenate([rng.permutation(graph.num_nodes) for _ in range(rounds)])[:third]
    kind = rng.permutation(np.repeat(np.array([ADD, REMOVE, FEATURES], np.int8), third))
    return UpdateStream(
        graph,
        graph.src[kept],
        graph.dst[kept],
        kind,
        graph.src[added],
        graph.dst[added],
        graph.src[removed],
        graph.dst[removed],
        ids,
        rng.standard_normal((third, graph.num_features), dtype=np.float32),
    )
