"""More workers: a batch on 2 to 16 parts of a divided graph, simulated one part after the other.

A machine with two cores cannot run 16 workers side by side. So each part of a batch runs alone on its core,
up to its next exchange, and the clock of its thread is read there. An exchange ends when the slowest part has
sent, plus the time of the network:

    batch = events to all + sum over rounds (longest part + latency + bytes of the busiest end / rate)

Each batch is applied to one engine right before, on the same core, since the speed of a core varies.

Bytes are those of the frames that the parts give each other; events are sent to every worker. The network is
full duplex: a worker sends and receives at the same time. Not in the model: a switch that is shared, cores
that share memory bandwidth, and system calls. `parts.py` measures two real processes.

The graph is a twentieth of `communities` (graphs.py), divided by METIS, the model SAGE-mean with three layers
of 128, the stream RIPPLE's protocol. RIPPLE (section 7.4) compares with RC, a recomputation of affected nodes
that pulls the rows of neighbors from other workers. Its bytes are counted here from the same batches: each
row that a worker's affected nodes read in a layer, once for a layer and worker. Every worker has all
features that it reads, for both; so the first layer pulls nothing.

What can be reached
-------------------
A batch of 1,000 events reaches nearly all nodes in three hops, and computes for half a second on one core.
Of 4 parts, 8 % of 3 million edges are cut. Each of 122,000 nodes has 50 edges, so four of them are cut, to
one or two other parts: 122,000 * 1.5 * 512 bytes * 2 layers = 190 MB, if all nodes change in both. Each of 4
workers sends 47 MB, 38 ms at 10 Gbit/s, beside 125 ms of computing: 3 times faster than one engine. With 16
parts, 31 ms of computing and 12 MB to send: about 10 times.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from argparse import Namespace
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import SAGEConv

import livegnn as lg
import livegnn._core as _core
from graphs import Batch, Int64, SyntheticGraph, UpdateStream, make, make_stream
from livegnn.graph import EdgeSchema, Schema
from livegnn.graph.division import make_part
from livegnn.partitions.crew import ThreadCrew
from livegnn.partitions.divided import Partitions
from livegnn.partitions.part import LocalPart, Outcome, Placed
from livegnn.placement import Owners
from livegnn.placement.partition import partition_graph
from peers import Adjacency, _distinct, _edges, _mirror, _update
from report import Report, arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HIDDEN = 128
EDGES = ("node", "to", "node")
PARTS = (2, 4, 8, 16)
BATCHES = {1: 60, 10: 30, 100: 12, 1000: 7}
QUICK_BATCHES = {1: 5, 100: 3}
EVENTS_BEFORE = 4000
"""Untimed, so that rounding units are measured before."""


@dataclass(frozen=True)
class Network:
    name: str
    bytes_per_s: float
    latency_s: float


NETWORKS = (Network("10 Gbit/s, 0.1 ms", 1.25e9, 1e-4), Network("1 Gbit/s, 1 ms", 1.25e8, 1e-3))


class ThreeLayers(torch.nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.conv1 = SAGEConv(features, HIDDEN)
        self.conv2 = SAGEConv(HIDDEN, HIDDEN)
        self.conv3 = SAGEConv(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index).relu()
        return self.conv3(self.conv2(x, edge_index).relu(), edge_index)


@dataclass
class Course:
    """One batch. segments: seconds of each part between exchanges, [parts, rounds + 1]; sent: bytes of each
    round, [rounds, sender, receiver]; events: bytes of the events."""

    segments: list[list[float]]
    sent: list[Int64] = field(default_factory=list)
    events: int = 0

    def computing(self) -> float:
        return float(np.max(self.segments, axis=0).sum())

    def transfer(self, network: Network) -> float:
        rounds = sum(
            network.latency_s + max(sent.sum(0).max(), sent.sum(1).max()) / network.bytes_per_s
            for sent in self.sent
        )
        parts = len(self.segments)
        return rounds + (network.latency_s + parts * self.events / network.bytes_per_s if parts > 1 else 0)

    def exchanged(self) -> int:
        return int(sum(sent.sum() for sent in self.sent))


class Turns:
    """The exchange between parts of which one runs at a time, with the clock of its thread."""

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._core = threading.Lock()
        self._met = threading.Barrier(parts)
        self._frames: list[list[bytes]] = [[] for _ in range(parts)]
        self._began = [0.0] * parts
        self.course = Course([[] for _ in range(parts)])

    def begin(self) -> None:
        self.course = Course([[] for _ in range(self._parts)])

    def start(self, part: int) -> None:
        self._core.acquire()
        self._began[part] = time.thread_time()

    def stop(self, part: int) -> None:
        self.course.segments[part].append(time.thread_time() - self._began[part])
        self._core.release()

    def swap(self, part: int, frames: list[bytes]) -> list[bytes]:
        self.stop(part)
        self._frames[part] = frames
        if self._met.wait() == 0:
            sizes = [
                [len(frame) * (to != of) for to, frame in enumerate(self._frames[of])] for of in self.all
            ]
            self.course.sent.append(np.array(sizes))
        received = [self._frames[of][part] for of in self.all]
        self._met.wait()
        self.start(part)
        return received

    @property
    def all(self) -> range:
        return range(self._parts)


class TimedPart(LocalPart):
    """A part whose thread computes in its turn."""

    def __init__(self, number: int, graph: lg.Graph, engine: lg.Engine, turns: Turns) -> None:
        super().__init__(number, graph, engine, _core.LocalExchange(1))
        self._turns = turns
        self._exchange_of_engine = _core.CalledExchange(len(turns.all), lambda sent: turns.swap(number, sent))
        self._exchange_of_engine.join(engine.core.native, graph.native)

    def apply(
        self, events: lg.Events, seq: int, vote: Callable[[], None], placed: Placed, *, trusted: bool
    ) -> Outcome:
        self._turns.start(self._number)

        def wait() -> None:
            self._turns.stop(self._number)
            vote()
            self._turns.start(self._number)

        try:
            return super().apply(events, seq, wait, placed, trusted=trusted)
        finally:
            self._turns.stop(self._number)


class Simulation:
    """A graph in parts and its model; with one part, an engine of an undivided graph."""

    def __init__(self, graph: SyntheticGraph, model: lg.Model, owners: Int64 | None) -> None:
        schema = Schema({"node": graph.num_features}, {EDGES: EdgeSchema(undirected=True)})
        parts = 1 if owners is None else int(owners.max()) + 1
        self.turns = Turns(parts)
        if owners is None:
            self.whole = lg.Graph(schema, threads=1)
            self.engine = lg.Engine(self.whole, model, threads=1)
            return
        moved = dict(enumerate(owners.tolist()))
        rule = Owners("jump", parts, moved=moved)
        names, *graphs = (make_part(schema, [rule.native], part, threads=1) for part in (None, *range(parts)))
        engines = [lg.Engine(one, model, threads=1) for one in graphs]
        timed = [TimedPart(part, graphs[part], engines[part], self.turns) for part in range(parts)]
        options = lg.EngineOptions(threads=1)
        self.divided = Partitions(names, model, options, [rule], timed, ThreadCrew(timed, lambda: None))

    def apply(self, events: lg.Events, *, trusted: bool = False) -> Course:
        self.turns.begin()
        if len(self.turns.all) == 1:
            began = time.thread_time()
            self.whole.apply(events, trusted=trusted)
            self.turns.course.segments[0].append(time.thread_time() - began)
        else:
            self.divided.apply(events, trusted=trusted)
        self.turns.course.events = len(events.to_bytes())
        return self.turns.course

    def predict(self, ids: Int64) -> np.ndarray:
        return self.engine.predict(ids) if len(self.turns.all) == 1 else self.divided.predict(ids)

    def bytes(self) -> int:
        """Of the largest part, or of the engine."""
        if len(self.turns.all) == 1:
            return sum({**self.engine.memory(), **self.whole.memory()}.values())
        return max(sum(part.memory().values()) for part in self.divided.parts)

    def close(self) -> None:
        if len(self.turns.all) > 1:
            self.divided.close()


class Recomputation:
    """RC: the rows that workers pull from each other to compute the affected nodes of each layer again."""

    def __init__(self, stream: UpdateStream) -> None:
        ends = _mirror(stream.start_src, stream.start_dst, True)
        self.lists = Adjacency(stream.graph.num_nodes, *ends)

    def update(self, batch: Batch) -> None:
        _update(batch, None, self.lists, True)

    def rows(self, batch: Batch, owners: Int64) -> int:
        """Of hidden layers, each once for a layer and worker. Requires: the batch was applied."""
        n, parts = len(owners), int(owners.max()) + 1
        _, targets = _mirror(*_edges(batch), True)
        affected = _distinct(n, targets, batch.ids, self.lists.neighbors(batch.ids)[1])
        pulled = 0
        for _ in range(2):  # layers 2 and 3 read rows of hidden layers
            affected = _distinct(n, targets, affected, self.lists.neighbors(affected)[1])
            lengths, read = self.lists.neighbors(affected)
            reader = np.repeat(owners[affected], lengths)
            far = owners[read] != reader
            wanted = np.zeros((parts, n), np.bool_)
            wanted[reader[far], read[far]] = True
            pulled += int(wanted.sum())
        return pulled


def events_of(batch: Batch) -> lg.Events:
    events = lg.Events()
    events.remove_edges(batch.remove_src, batch.remove_dst).add_edges(batch.add_src, batch.add_dst)
    return events.set_features(batch.ids, batch.x)


def owners_by_metis(stream: UpdateStream, parts: int) -> Int64:
    n = stream.graph.num_nodes
    graph = lg.Graph.from_edges(
        stream.start_src, stream.start_dst, x=np.zeros((n, 1), np.float32), num_nodes=n, undirected=True
    )
    found = partition_graph(graph, parts)
    owners = np.zeros(n, np.int64)
    owners[found.ids["node"]] = found.owners["node"]
    return owners


@dataclass(frozen=True)
class Pair:
    """A batch on one engine, and on parts right after it. pulled: bytes that RC pulls."""

    whole: Course
    parts: Course
    pulled: int

    def speed_up(self, network: Network) -> float:
        return self.whole.computing() / (self.parts.computing() + self.parts.transfer(network))


def run(
    stream: UpdateStream, model: lg.Model, parts: int, options: Namespace
) -> tuple[dict[int, list[Pair]], tuple[int, int]]:
    """By the size of batches; and the bytes of one engine and of the largest part after them."""
    graph, owners = stream.graph, owners_by_metis(stream, parts)
    both = Simulation(graph, model, None), Simulation(graph, model, owners)
    recomputation, at = Recomputation(stream), 0
    first = lg.Events().add_nodes(np.arange(graph.num_nodes), graph.x)
    for one in both:
        one.apply(first.add_edges(stream.start_src, stream.start_dst), trusted=True)

    def apply(size: int, *, counted: bool = True) -> Pair:
        nonlocal at
        batch = stream.batch(at, at + size)
        at += size
        recomputation.update(batch)
        whole, divided = (one.apply(events_of(batch)) for one in both)
        rows = recomputation.rows(batch, owners) if counted else 0
        return Pair(whole, divided, rows * 4 * HIDDEN)

    for _ in range(4):
        apply(options.before // 4, counted=False)
    sizes = QUICK_BATCHES if options.quick else BATCHES
    pairs = {size: [apply(size) for _ in range(count)] for size, count in sizes.items()}
    ids = np.arange(graph.num_nodes)
    assert both[0].predict(ids).tobytes() == both[1].predict(ids).tobytes()
    kept = both[0].bytes(), both[1].bytes()
    both[1].close()
    return pairs, kept


def median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def tell(report: Report, parts: int, size: int, pairs: list[Pair]) -> float:
    """Returns how much faster the parts are, with the first network."""
    name = f"{parts} parts, batch {size:,}"
    whole = median(one.whole.computing() for one in pairs)
    for network in NETWORKS:
        seconds = median(one.parts.computing() + one.parts.transfer(network) for one in pairs)
        aim = 1e3 * whole / 1.7 if (parts, size, network) == (2, 1000, NETWORKS[0]) else None
        report.add(
            f"{name}: {network.name}", seconds * 1e3, "ms", aim=aim, peer="one engine", peer_value=whole * 1e3
        )
    longest = median(one.parts.computing() for one in pairs)
    report.add(f"{name}: longest part computes, of it", longest * 1e3, "ms")
    mean = median(np.mean(np.sum(one.parts.segments, axis=1)) for one in pairs)
    report.add(f"{name}: longest over mean", longest / mean, "x")
    report.add(f"{name}: parts together over one engine", parts * mean / whole, "x")
    exchanged = median(one.parts.exchanged() for one in pairs) / 1e6
    pulled = median(one.pulled for one in pairs) / 1e6
    report.add(f"{name}: exchanged", exchanged, "MB", aim=pulled / 10, peer="RC", peer_value=pulled)
    report.add(f"{name}: rounds", median(len(one.parts.sent) for one in pairs), "rounds")
    return median(one.speed_up(NETWORKS[0]) for one in pairs)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shape", default=None, help="a shape of graphs.py")
    parser.add_argument("--parts", type=int, nargs="*", default=PARTS)
    options = parser.parse_args()
    options.before = 400 if options.quick else EVENTS_BEFORE
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    shape = options.shape or ("communities-tiny" if options.quick else "communities-twentieth")
    graph = make(shape, symmetric=True)
    stream = make_stream(graph, min(15000, 3 * (graph.num_edges // 10)))
    torch.manual_seed(0)
    model = lg.Model.from_pyg(ThreeLayers(graph.num_features, graph.num_classes).eval())
    report = Report("cluster")
    report.section(f"{shape}: {graph.num_nodes:,} nodes, {graph.num_edges:,} undirected edges, METIS")
    faster = {}
    for parts in options.parts:
        batches, (whole, part) = run(stream, model, parts, options)
        gc.collect()  # what parts kept is large
        report.add(
            f"{parts} parts: memory of the largest, for each node of the graph",
            part / graph.num_nodes,
            "bytes",
            peer="one engine",
            peer_value=whole / graph.num_nodes,
        )
        for size, pairs in batches.items():
            faster[parts, size] = tell(report, parts, size, pairs)
    for size in QUICK_BATCHES if options.quick else BATCHES:
        if {(4, size), (16, size)} <= faster.keys():
            aim = 3.0 if size == 1000 else None
            gain = faster[16, size] / faster[4, size]
            report.add(
                f"16 parts beside 4, batch {size:,}", gain, "times faster", higher_is_better=True, aim=aim
            )
    report.finish(options.json)


if __name__ == "__main__":
    main()
