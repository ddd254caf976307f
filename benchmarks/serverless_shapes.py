"""Graphs of FaaS-GNN's shapes, sequences of requested nodes, and arrivals in six patterns.

Graphs
------
In-degrees and out-degrees are drawn by power laws, each end of an edge by itself. Ids are in the order of
activity: a person who joined early has more edges, as in the networks that these shapes imitate.

Sequences
---------
Real sequences are people who act at one time, the same ones again and again. A request repeats one of the
last `WINDOW` nodes with the shape's probability `again`, the latest with `latest` of that; otherwise it is an
end of a random edge. `overlap` computes what the paper's figure 6 shows of a sequence.

Arrivals
--------
`data/arrivals.npz` has the arrivals of an hour at a cloud service, see the README beside it. A pattern is
one of its two traces as it is, or a selection from them. `scale_arrivals` makes a trace denser or thinner,
so that its peak is what a node can just handle, as the paper does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphs import Zipf

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

WINDOW = 10
HOUR = 3600.0
DATA = Path(__file__).with_name("data") / "arrivals.npz"


@dataclass(frozen=True)
class GraphShape:
    """`scale` is the share of the paper's numbers of nodes and edges; `again`, `latest`: see above."""

    name: str
    nodes: int
    edges: int
    features: int
    receivers: Zipf
    senders: Zipf
    again: float
    latest: float
    scale: float = 1.0

    def scaled(self, share: float) -> GraphShape:
        """The same mean degree with fewer nodes."""
        return replace(
            self, nodes=int(self.nodes * share), edges=int(self.edges * share), scale=self.scale * share
        )


SHAPES = {
    "RE": GraphShape("RE", 35_776, 286_561, 300, Zipf(0.75, 8.0), Zipf(0.2, 8.0), 0.05, 0.3),
    "TW": GraphShape("TW", 456_626, 14_855_842, 300, Zipf(0.6, 40.0), Zipf(0.4, 40.0), 0.78, 0.53),
    "ST": GraphShape("ST", 2_601_977, 63_497_050, 512, Zipf(0.6, 40.0), Zipf(0.4, 40.0), 0.78, 0.53),
    "PA": GraphShape("PA", 111_059_956, 1_615_685_872, 128, Zipf(0.5, 40.0), Zipf(0.3, 20.0), 0.5, 0.95),
}


@dataclass(frozen=True)
class Around:
    """The nodes that a request reads, sorted; and its counts, as `Neighborhood.counts` has them."""

    rows: Int64
    counts: Int64

    @property
    def edges(self) -> int:
        return int(self.counts[-1])


@dataclass(frozen=True)
class InLists:
    """Who each node's edges come from: those of node i are `source[begin[i]:begin[i + 1]]`."""

    begin: Int64
    source: NDArray[np.int32]

    @property
    def degrees(self) -> Int64:
        return np.diff(self.begin)

    def sources(self, rows: Int64) -> Int64:
        """The sources of the edges of all these nodes, each once."""
        begin, count = self.begin[rows], self.begin[rows + 1] - self.begin[rows]
        ends = np.cumsum(count)
        at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(begin - (ends - count), count)
        return np.unique(self.source[at]).astype(np.int64)

    def around(self, row: int, hops: int) -> Around:
        """What a request for one node reads."""
        known = frontier = np.array([row])
        nodes, edges = [1], []
        for _ in range(hops):
            edges.append(int((self.begin[frontier + 1] - self.begin[frontier]).sum()))
            frontier = np.setdiff1d(self.sources(frontier), known, assume_unique=True)
            known = np.union1d(known, frontier)
            nodes.append(len(frontier))
        return Around(known, np.array([*np.cumsum(nodes), *np.cumsum(edges)]))


def make_edges(shape: GraphShape, seed: int = 0) -> tuple[Int64, Int64]:
    """Sources and targets of the shape's edges, sorted by target; no loop, none twice. They are a few percent
    more or fewer than the shape says."""
    random = np.random.default_rng([seed, 0])
    count = int(1.05 * shape.edges)
    src = shape.senders.draw(random, shape.nodes, count)
    dst = shape.receivers.draw(random, shape.nodes, count)
    codes = np.sort((dst * shape.nodes + src)[src != dst])
    dst, src = np.divmod(codes[np.append(True, codes[1:] != codes[:-1])], shape.nodes)
    return src, dst


def make_lists(nodes: int, src: Int64, dst: Int64) -> InLists:
    """dst: sorted."""
    return InLists(np.searchsorted(dst, np.arange(nodes + 1)).astype(np.int64), src.astype(np.int32))


def make_sequence(shape: GraphShape, lists: InLists, length: int, seed: int = 0) -> Int64:
    """The nodes that requests ask for, one after the other."""
    random = np.random.default_rng([seed, 1])
    found = np.zeros(length, np.int64)
    edges = random.integers(0, len(lists.source), length)
    source_or_target = random.random(length) < 0.5
    targets = np.searchsorted(lists.begin, edges, "right") - 1
    fresh = np.where(source_or_target, lists.source[edges], targets)
    draws = random.random((length, 2))
    back = random.integers(1, WINDOW + 1, length)
    for i in range(length):
        if i and draws[i, 0] < shape.again:
            found[i] = found[i - 1 if draws[i, 1] < shape.latest else max(i - back[i], 0)]
        else:
            found[i] = fresh[i]
    return found


def overlap(neighborhoods: Sequence[Int64], prior: int) -> Float64:
    """Which share of each request's nodes the `prior` requests before it have, as in figure 6."""
    shares = []
    for i in range(prior, len(neighborhoods)):
        before = np.unique(np.concatenate(neighborhoods[i - prior : i]))
        shares.append(np.isin(neighborhoods[i], before, assume_unique=True).mean())
    return np.array(shares)


PATTERNS = ("bursty", "steady", "one spike", "three spikes", "busy hours", "rare bursts")


def make_arrivals(pattern: str, seed: int = 0) -> Float64:
    """Arrival times in an hour, in seconds.

    "busy hours" selects from the steady trace as a day has hours; "rare bursts" are ten seconds of the bursty
    one every twelve minutes, so that all workers end between two.
    """
    random = np.random.default_rng([seed, 2])
    with np.load(DATA) as data:
        bursty, steady = data["bursty"], data["steady"]
    spike = bursty[_busiest(bursty, 60.0)]
    spike = spike - spike[0]
    if pattern == "bursty":
        return bursty
    if pattern == "steady":
        return steady
    if pattern == "one spike":
        found = np.concatenate([steady[::8], 1800.0 + spike])
    elif pattern == "three spikes":
        found = np.concatenate([steady[::8], *(at + spike for at in (600.0, 1500.0, 2700.0))])
    elif pattern == "busy hours":
        chance = np.clip(np.sin(2 * np.pi * (steady / HOUR - 0.25)), 0.02, 1.0)
        found = steady[random.random(len(steady)) < chance]
    elif pattern == "rare bursts":
        burst = bursty[_busiest(bursty, 10.0)]
        found = np.concatenate([at + burst - burst[0] for at in np.arange(0, HOUR, 720.0)])
    else:
        raise ValueError(f"pattern must be one of {', '.join(PATTERNS)}, got {pattern!r}")
    return np.sort(found)


def peak_rate(arrivals: Float64) -> int:
    """Arrivals in the busiest second."""
    found = _busiest(arrivals, 1.0)
    return found.stop - found.start


def scale_arrivals(arrivals: Float64, factor: float, most: int, seed: int = 0) -> Float64:
    """So many times as many arrivals: a random selection, or several within a second for each one. If they
    are more than `most`, the part around the busiest second."""
    random = np.random.default_rng([seed, 4])
    times = max(int(np.ceil(factor)), 1)
    spread = random.random((times, len(arrivals))) - 0.5
    spread[0] = 0.0
    found = np.sort((arrivals + spread).ravel())
    found = found[random.random(len(found)) < factor / times]
    if len(found) > most:
        busiest = _busiest(found, 1.0).start
        first = min(max(busiest - most // 2, 0), len(found) - most)
        found = found[first : first + most]
    return found - found[0]


def make_day(most: int, seed: int = 0) -> Float64:
    """Arrivals of a day: the bursty hour 24 times, whole in three busy hours, a fifth of it in nine more, a
    fiftieth in the others; of all these, at most so many."""
    random = np.random.default_rng([seed, 3])
    bursty = make_arrivals("bursty")
    parts = []
    for hour in range(24):
        share = 1.0 if hour in (10, 14, 20) else 0.2 if 8 <= hour < 20 else 0.02
        parts.append(HOUR * hour + bursty[random.random(len(bursty)) < share])
    found = np.concatenate(parts)
    return found if len(found) <= most else np.sort(random.choice(found, most, replace=False))


def _busiest(times: Float64, seconds: float) -> slice:
    ends = np.searchsorted(times, times + seconds)
    first = int(np.argmax(ends - np.arange(len(times))))
    return slice(first, int(ends[first]))
