"""Reads right after writes: how many of the edges that a sample must have it misses (Helios, section 7.4).

An edge comes. Whenever it belongs into the latest neighbours that a watched seed has within its hops, that
seed's sample is asked for at once. The figure is the share of the edges of the stream that these samples
should have and do not have. Watched are 1 % of the nodes that the query starts from; the shapes are those of
`presampling_shapes.py`. What a sample should have says `Latest`, from lists of its own.

`missed` takes any way to append edges and any way to ask for a sample. Measured here are a graph that applies
the edge before `append` returns, a runtime that has logged it, and a runtime that is waited for, as `min_seq`
of a request does. Then the same two ways with workers: another process samples, a thread of this one serves.
Workers keep one edge between two nodes, so shapes are 20 times smaller, without edges that come twice.
The paper misses 0.01 to 1.9 %; the aim is 0 wherever the edge was applied or waited for.

What it must cost
-----------------
Nothing of this is about speed: an edge and a sample are some 100 microseconds each, and logging it durably a
flush of the disk.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import multiprocessing
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import livegnn as lg
from livegnn.log.sqlite import SqliteLog
from livegnn.presampling import Presampler
from livegnn.runtime import Runtime
from livegnn.types import EdgeType
from livegnn.workers import SamplingWorker, ServingWorker, SqlitePlace, WorkerPlan
from presampling_peers import QUICK_TIMES
from presampling_shapes import SHAPES, Batch, Edges, TimedGraph, events_of, live_graph, make_graph
from report import Report, arguments

WATCHED = 0.01
EDGES, QUICK_EDGES = 5000, 1000
WORKER_TIMES = 20

Append = Callable[[Batch], object]
"""Takes a batch of edges; returns when the system has acknowledged it."""
Sample = Callable[[int], Mapping[EdgeType, NDArray[np.float64]]]
"""The times of the edges in a seed's sample, by edge type. No two edges have the same time."""


class Latest:
    """Who the latest neighbours of a node are, from lists: what a sample of `graph` and its stream holds."""

    def __init__(self, graph: TimedGraph) -> None:
        self.graph = graph
        most: dict[EdgeType, int] = {}
        for edge_type, count in graph.hops:
            most[edge_type] = max(count, most.get(edge_type, 0))
        self._most = most
        # Edges are in the order of time, and a stable sort keeps it within a source.
        self._order = {name: np.argsort(graph.edges[name].source, kind="stable") for name in most}
        self._sorted = {name: graph.edges[name].source[self._order[name]] for name in most}
        self._lists: dict[tuple[EdgeType, int], deque[tuple[int, int]]] = {}

    def add(self, edge_type: EdgeType, source: int, target: int, time: int) -> None:
        if edge_type in self._most:
            self._list(edge_type, source).append((time, target))

    def sample(self, seed: int) -> tuple[set[tuple[EdgeType, int]], set[tuple[EdgeType, int]]]:
        """The edges of a seed's sample, by type and time, and the lists that were read for it."""
        reached = {type: set() for type in self.graph.num_nodes}  # type: dict[str, set[int]]
        reached[self.graph.seed_type].add(seed)
        keys, edges, read = [seed], set(), set()
        for edge_type, count in self.graph.hops:
            new = []
            for key in keys:
                read.add((edge_type, key))
                for time, target in list(self._list(edge_type, key))[-count:]:
                    edges.add((edge_type, time))
                    if target not in reached[edge_type[2]]:
                        reached[edge_type[2]].add(target)
                        new.append(target)
            keys = new
        return edges, read

    def _list(self, edge_type: EdgeType, source: int) -> deque[tuple[int, int]]:
        found = self._lists.get((edge_type, source))
        if found is None:
            edges, sources = self.graph.edges[edge_type], self._sorted[edge_type]
            first, last = bisect.bisect_left(sources, source), bisect.bisect_right(sources, source)
            most = self._most[edge_type]
            at = self._order[edge_type][max(first, last - most) : last]
            listed = zip(edges.time[at].tolist(), edges.target[at].tolist(), strict=True)
            found = self._lists[edge_type, source] = deque(listed, most)
        return found


def missed(
    latest: Latest, batches: Iterable[Batch], seeds: Iterable[int], append: Append, sample: Sample
) -> tuple[int, int, int]:
    """How many edges of the stream the samples should have had, how many they missed, and how many samples
    were asked for.

    latest: knows all edges before these. batches: of one edge each. seeds: who is watched.
    """
    streamed: set[tuple[EdgeType, int]] = set()
    readers: dict[tuple[EdgeType, int], set[int]] = {}
    reads: dict[int, set[tuple[EdgeType, int]]] = {}

    def watch(seed: int) -> set[tuple[EdgeType, int]]:
        edges, read = latest.sample(seed)
        for one in reads.get(seed, set()):
            readers[one].discard(seed)
        for one in read:
            readers.setdefault(one, set()).add(seed)
        reads[seed] = read
        return edges

    for seed in seeds:
        watch(seed)
    due = absent = asked = 0
    for batch in batches:
        append(batch)
        ((edge_type, edges),) = batch.items()
        source, target, time = int(edges.source[0]), int(edges.target[0]), int(edges.time[0])
        latest.add(edge_type, source, target, time)
        streamed.add((edge_type, time))
        for seed in sorted(readers.get((edge_type, source), ())):
            found = sample(seed)
            expected = watch(seed) & streamed
            there = {(name, int(at)) for name, times in found.items() for at in times}
            due += len(expected)
            absent += len(expected - there)
            asked += 1
    return due, absent, asked


def through_the_graph(graph: TimedGraph, live: lg.Graph) -> tuple[Append, Sample]:
    presampler = Presampler(live, graph.query("latest"), seed=1)
    return lambda batch: live.apply(events_of(batch)), lambda seed: presampler.sample([seed]).time


def measure(name: str, options: argparse.Namespace, report: Report) -> None:
    shape = SHAPES[name].smaller(QUICK_TIMES) if options.quick else SHAPES[name]
    graph = make_graph(name, shape)
    live = live_graph(graph)
    rng = np.random.default_rng(2)
    n = graph.num_nodes[graph.seed_type]
    seeds = rng.choice(n, max(1, round(WATCHED * n)), replace=False).tolist()
    count = QUICK_EDGES if options.quick else EDGES

    latest = Latest(graph)
    turns = itertools.count()

    def add(title: str, append: Append, sample: Sample, *, aim: bool) -> None:
        batches = islice(graph.stream(1, start=count * next(turns)), count)
        due, absent, asked = missed(latest, batches, seeds, append, sample)
        report.add(f"{name}, {title}", 100 * absent / max(due, 1), "%", aim=0.0 if aim else None)
        report.note(f"{name}, {title}: {asked:,} samples should have had {due:,} edges, and miss {absent:,}")

    append, sample = through_the_graph(graph, live)
    add("applied", append, sample, aim=True)
    for title, waits in (("logged", False), ("logged and waited for", True)):
        with tempfile.TemporaryDirectory() as folder:
            live.seq = 0  # a log begins here
            runtime = Runtime(SqliteLog(Path(folder) / "events.db"), live)
            runtime.start()

            def log(batch: Batch, runtime: Runtime = runtime, waits: bool = waits) -> None:
                seq = runtime.append(events_of(batch))
                if waits:
                    runtime.wait(seq, timeout=60)

            add(title, log, sample, aim=waits)
            runtime.wait(runtime.log.last_seq(), timeout=60)
            runtime.stop()
            runtime.log.close()


def without_repeats(graph: TimedGraph) -> TimedGraph:
    """`graph` with the last edge of those between two nodes."""
    edges = {}
    for name, all in graph.edges.items():
        pair = all.source * graph.num_nodes[name[2]] + all.target
        last = len(pair) - 1 - np.unique(pair[::-1], return_index=True)[1]
        kept = np.sort(last)
        edges[name] = Edges(all.source[kept], all.target[kept], all.time[kept])
    return replace(graph, edges=edges)


def new_pairs(graph: TimedGraph, batches: Iterable[Batch]) -> Iterator[Batch]:
    """The batches, of one edge each, whose nodes no earlier edge joins."""
    joined = {
        name: set(zip(all.source.tolist(), all.target.tolist(), strict=True))
        for name, all in graph.edges.items()
    }
    for batch in batches:
        ((name, edges),) = batch.items()
        pair = (int(edges.source[0]), int(edges.target[0]))
        if pair not in joined[name]:
            joined[name].add(pair)
            yield batch


def measure_workers(name: str, options: argparse.Namespace, report: Report) -> None:
    graph = without_repeats(
        make_graph(name, SHAPES[name].smaller(QUICK_TIMES if options.quick else WORKER_TIMES))
    )
    rng = np.random.default_rng(2)
    n = graph.num_nodes[graph.seed_type]
    seeds = rng.choice(n, max(1, round(WATCHED * n)), replace=False).tolist()
    count = QUICK_EDGES if options.quick else EDGES
    schema = lg.Schema(
        {type: x.shape[1] for type, x in graph.x.items()},
        {edge_type: lg.EdgeSchema(timed=True, in_neighbors=False) for edge_type in graph.edges},
    )
    plan = WorkerPlan(schema, graph.query("latest"))
    for title, waits in (("workers, logged", False), ("workers, waited for", True)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "events.db"
            runtime = Runtime(SqliteLog(path), lg.Graph(schema))
            runtime.start()
            for type, x in graph.x.items():
                runtime.append(lg.Events().add_nodes(np.arange(len(x)), x, node_type=type))
            last = runtime.append(events_of(graph.edges))
            child = multiprocessing.get_context("spawn").Process(
                target=sample_for, args=(path, plan.schema, plan.query), daemon=True
            )
            child.start()
            serving = ServingWorker(SqlitePlace(path), plan, 0)
            serving.start()
            serving.wait(last, 600)

            def log(
                batch: Batch,
                runtime: Runtime = runtime,
                serving: ServingWorker = serving,
                waits: bool = waits,
            ) -> None:
                seq = runtime.append(events_of(batch))
                if waits:
                    serving.wait(seq, 60)

            batches = islice(new_pairs(graph, graph.stream(1)), count)
            due, absent, asked = missed(
                Latest(graph), batches, seeds, log, lambda seed, serving=serving: serving.sample([seed]).time
            )
            report.add(f"{name}, {title}", 100 * absent / max(due, 1), "%", aim=0.0 if waits else 2.0)
            report.note(
                f"{name}, {title}: {asked:,} samples should have had {due:,} edges, and miss {absent:,}"
            )
            serving.stop()
            child.terminate()
            child.join()
            runtime.stop()
            runtime.log.close()


def sample_for(path: Path, schema: lg.Schema, query: lg.Query) -> None:
    SamplingWorker(SqlitePlace(path), WorkerPlan(schema, query), 0, path.with_name("workers")).run()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="only this one; may be repeated")
    parser.add_argument("--workers-only", action="store_true", help="only the figures of workers")
    options = parser.parse_args()
    report = Report("edges that a sample right after them misses")
    for name in options.shape or [name for name in SHAPES if "," not in name]:
        if not options.workers_only:
            measure(name, options, report)
        measure_workers(name, options, report)
        if options.json is not None:
            report.write(options.json)
    report.finish(options.json)


if __name__ == "__main__":
    main()
