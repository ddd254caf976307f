"""A graph in parts, processes of one machine, beside one engine: batches of one event, and of 1,000.

    python benchmarks/parts.py [--quick] [--json FILE]

Small batches: two layers of GCN on the tenth of `arxiv`, directed, an edge in each batch. One engine, one
process and two receive each batch in turn over shared memory, and after that the processes over ZeroMQ. The
figures are medians, and the time by which a median is above that of one engine.

Large batches: three layers of GCN on the hundredth of `communities`, divided by METIS; 1,000 events of all
kinds in each batch. One engine on one thread, and two processes that are pinned to a core each, take turns.

Floor of a small batch
----------------------
The leader sends the events, receives the votes, sends the decision and receives the outcomes, and the parts
make a round for each layer and one for totals. Each is a message that wakes another process; a pair of
processes that send each other nothing but empty messages is measured here. A message takes 1 us on the same
core and some 20 us to an idle one: seven or eight of them take at most 0.16 ms. Each process also stages the
batch, which one engine does once.

Floor of a large batch: half the time of one engine.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch_geometric.nn import GCNConv

import livegnn as lg
from graphs import Batch, Int64, SyntheticGraph, UpdateStream, make, make_stream
from livegnn.channels.health import Patience
from livegnn.graph import EdgeSchema, Schema
from livegnn.partitions.divided import Partitions
from livegnn.partitions.leaders import SharedMemory, open_lanes
from livegnn.partitions.remote import RemotePartitions
from livegnn.partitions.shared import shared_file
from livegnn.placement import Owners
from livegnn.placement.partition import partition_graph
from report import Report, arguments

HIDDEN = 128
WARM_UP = 50
SMALL, LARGE = 400, 30
PINGS = 5000
QUICK_SHARE = 10
AIM_MS, AIM_RATIO = 0.5, 1.7
EDGES = ("node", "to", "node")

Apply = Callable[[lg.Events], object]


class Layers(torch.nn.Module):
    """Some layers of GCN, with ReLU between two."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        pairs = pairwise(widths)
        self.layers = torch.nn.ModuleList([GCNConv(width, out) for width, out in pairs])

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x.relu() if number else x, edge_index)
        return x


class World(NamedTuple):
    """A model, and the events of a stream. ids: of its nodes."""

    model: lg.Model
    schema: Schema
    stream: UpdateStream
    ids: Int64

    def start(self) -> lg.Events:
        graph = self.stream.graph
        events = lg.Events().add_nodes(self.ids, graph.x)
        return events.add_edges(self.ids[self.stream.start_src], self.ids[self.stream.start_dst])

    def events(self, batch: Batch) -> lg.Events:
        ids, events = self.ids, lg.Events()
        events.add_edges(ids[batch.add_src], ids[batch.add_dst])
        events.remove_edges(ids[batch.remove_src], ids[batch.remove_dst])
        return events.set_features(ids[batch.ids], batch.x)

    def one(self) -> Apply:
        """One engine, after the start."""
        graph = lg.Graph(self.schema, threads=1)
        engine = lg.Engine(graph, self.model, threads=1)
        graph.apply(self.start(), trusted=True)
        return lambda events: engine.update_of(graph.apply(events))

    @contextmanager
    def parts(self, workers: int, *, shares_memory: bool = True, pinned: bool = False) -> Iterator[Apply]:
        """The same in processes."""
        parts: Partitions = RemotePartitions(
            self.schema,
            self.model,
            Owners("modulo", workers),
            threads=1,
            shares_memory=shares_memory,
            patience=Patience(round_seconds=1000.0),
        )
        assert isinstance(parts, RemotePartitions)
        cores = sorted(os.sched_getaffinity(0))
        for number, process in enumerate(parts.processes if pinned else ()):
            for thread in os.listdir(f"/proc/{process.pid}/task"):
                os.sched_setaffinity(int(thread), {cores[number % len(cores)]})
        parts.apply(self.start(), trusted=True)
        try:
            yield parts.apply
        finally:
            parts.close()


def make_world(graph: SyntheticGraph, layers: int, events: int, parts: int = 0) -> World:
    """parts: of METIS, which are those of `Owners("modulo", parts)`, as the ids are chosen; 0 for none."""
    torch.manual_seed(0)
    model = lg.Model.from_pyg(Layers(graph.num_features, *[HIDDEN] * (layers - 1), graph.num_classes))
    schema = Schema({"node": graph.num_features}, {EDGES: EdgeSchema(undirected=graph.undirected)})
    stream = make_stream(graph, events)
    ids = np.arange(graph.num_nodes) if not parts else ids_by_part(stream, parts)
    return World(model, schema, stream, ids)


def ids_by_part(stream: UpdateStream, parts: int) -> Int64:
    """An id for each node, whose remainder is the part that METIS gives the node."""
    count = stream.graph.num_nodes
    whole = lg.Graph.from_edges(
        stream.start_src,
        stream.start_dst,
        x=np.zeros((count, 1), np.float32),
        num_nodes=count,
        undirected=True,
    )
    division = partition_graph(whole, parts)
    ids = np.empty(count, np.int64)
    nodes, owners = division.ids["node"], division.owners["node"]
    for part in range(parts):
        own = nodes[owners == part]
        ids[own] = np.arange(len(own)) * parts + part
    return ids


def measure(contestants: dict[str, Apply], batches: list[lg.Events], warm_up: int) -> dict[str, float]:
    """The median of each, in ms. All receive each batch in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    gc.collect()
    gc.disable()
    try:
        for events in batches:
            for name, apply in contestants.items():
                before = time.perf_counter()
                apply(events)
                seconds[name].append(time.perf_counter() - before)
    finally:
        gc.enable()
    return {name: 1e3 * float(np.median(all_[warm_up:])) for name, all_ in seconds.items()}


def answer(memory: SharedMemory, pings: int) -> None:
    """The other process of `message_us`."""
    lanes = open_lanes(memory, 0, Patience())
    for turn in range(1, pings + 1):
        lanes.collect(turn, 0, [1], 1000.0, [])
        lanes.post(turn, 0, [None, b""])
    lanes.close()


def message_us(pings: int) -> float:
    """The median of half an exchange of empty messages between two processes, over shared memory."""
    context = multiprocessing.get_context("fork")
    taken = []
    with shared_file(1) as file:
        ready = context.Event()

        def run() -> None:
            ready.wait()
            answer(SharedMemory(file=file, pids=[os.getpid(), os.getppid()]), pings)

        process = context.Process(target=run)
        process.start()
        lanes = open_lanes(SharedMemory(file=file, pids=[process.pid or 0, os.getpid()]), 1, Patience())
        ready.set()
        for turn in range(1, pings + 1):
            before = time.perf_counter()
            lanes.post(turn, 0, [b"", None])
            lanes.collect(turn, 0, [0], 1000.0, [])
            taken.append(time.perf_counter() - before)
        process.join()
        lanes.close()
    return 1e6 * float(np.median(taken[WARM_UP:])) / 2


def run_small(report: Report, share: int) -> None:
    graph = make("arxiv-tenth" if share == 1 else "tiny")
    count = SMALL // share + WARM_UP
    world = make_world(graph, 2, 3 * count)
    stream = world.stream
    batches = [
        lg.Events().add_edges(world.ids[stream.add_src[i : i + 1]], world.ids[stream.add_dst[i : i + 1]])
        for i in range(count)
    ]
    with (
        world.parts(1) as memory_1,
        world.parts(2) as memory_2,
        world.parts(1, shares_memory=False) as sockets_1,
        world.parts(2, shares_memory=False) as sockets_2,
    ):
        found = measure({"one": world.one(), "1": memory_1, "2": memory_2}, batches, WARM_UP)
        # Apart, because their threads look at their sockets also while they wait.
        others = measure({"1": sockets_1, "2": sockets_2}, batches, WARM_UP)
    one = found["one"]
    report.section("a batch of one event")
    report.add("one engine", one, "ms")
    message = message_us(PINGS // share)
    report.note(f"an empty message between two processes takes {message:.1f} us")
    for workers in ("1", "2"):
        report.add(
            f"added by {workers} process{'es' if workers == '2' else ''}",
            found[workers] - one,
            "ms",
            aim=AIM_MS if share == 1 else None,
            peer="over ZeroMQ",
            peer_value=others[workers] - one,
            floor=(4 + (3 if workers == "2" else 0)) * message / 1e3,
        )


def run_large(report: Report, share: int) -> None:
    graph = make("communities-hundredth" if share == 1 else "communities-tiny", symmetric=True)
    count = LARGE // share + 3
    size = 1000 if share == 1 else 60
    world = make_world(graph, 3, 3 * (size * count // 3 + 1), 2)
    batches = [world.events(batch) for batch in world.stream.batches(size, count)]
    with world.parts(2, pinned=True) as two:
        found = measure({"one": world.one(), "2": two}, batches, 3)
    report.section("a batch of 1,000 events")
    report.add("one engine", found["one"], "ms")
    report.add("two processes", found["2"], "ms", floor=found["one"] / 2)
    report.add(
        "one engine / two processes",
        found["one"] / found["2"],
        "times",
        higher_is_better=True,
        aim=AIM_RATIO if share == 1 else None,
        floor=2.0,
    )


def main() -> None:
    options = arguments(__doc__).parse_args()
    share = QUICK_SHARE if options.quick else 1
    report = Report("parts")
    run_small(report, share)
    run_large(report, share)
    report.finish(options.json)


if __name__ == "__main__":
    main()
