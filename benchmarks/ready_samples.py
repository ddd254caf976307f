"""Samples that are ready beside samples that are drawn: queries a second in process, hubs, and what batches
pay.

A graph of in-edges, a few nodes with very many. The query draws 25 in-neighbours and 10 of each (three hops:
5 of each more), uniformly.

What it must cost
-----------------
A sample of [25, 10] is 26 look-ups and 275 rows of features. A look-up is a root and a cell, two cache misses
that are fetched ahead. A row of 10 channels is a line of the cache, one of 128 is eight: 17 kB and 140 kB a
sample. At 10 GB/s of lines that lie anywhere, that is 2 and 14 microseconds; numbering 275 nodes and writing
the columns is another 3. Through Python a call makes a dozen arrays and as many dicts: 5 to 10 microseconds.

A sample costs the same for a node with a million neighbours as for one with 25. What is drawn when it is
asked for looks at more blocks there, but not at all neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np

import livegnn as lg
from graphs import Zipf
from livegnn.presampling import Presampler
from livegnn.query import Query
from livegnn.sampling import sample_query
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE
from report import Report, arguments

FULL, QUICK = 400_000, 20_000
DEGREE = 25
BATCH = 1000
HUBS = 1000
TWO, THREE = (25, 10), (25, 10, 5)


def query_of(fan_outs: Sequence[int]) -> Query:
    query = Query(DEFAULT_NODE_TYPE)
    for count in fan_outs:
        query = query.hop(DEFAULT_EDGE_TYPE, count, direction="in")
    return query


def make_graph(nodes: int, channels: int) -> lg.Graph:
    rng = np.random.default_rng(0)
    edges = nodes * DEGREE
    source = rng.integers(0, nodes, edges)
    target = rng.permutation(nodes)[Zipf(0.6, 20.0).draw(rng, nodes, edges)]
    x = rng.random((nodes, channels), dtype=np.float32)
    return lg.Graph.from_edges(source, target, x=x, num_nodes=nodes, parallel="last")


def times_of(call: Callable[[int], object], ids: Sequence[int]) -> np.ndarray:
    """Microseconds of each call, of the thread on its core: others disturb only through the memory."""
    taken = np.empty(len(ids))
    for i, id in enumerate(ids):
        started = time.thread_time()
        call(id)
        taken[i] = time.thread_time() - started
    return taken * 1e6


def median_seconds(call: Callable[[], object], rounds: int, clock: Callable[[], float]) -> float:
    taken = []
    for _ in range(rounds):
        started = clock()
        call()
        taken.append(clock() - started)
    return float(np.median(taken))


def measure_serving(
    graph: lg.Graph, fan_outs: Sequence[int], channels: int, aim: float | None, count: int, report: Report
) -> None:
    query = query_of(fan_outs)
    started = time.thread_time()
    presampler = Presampler(graph, query, seed=1, threads=1)
    built = time.thread_time() - started
    ids = np.random.default_rng(1).integers(0, graph.num_nodes(), count)
    name = f"{list(fan_outs)}, {channels} features"
    native = count / median_seconds(lambda: presampler.native.sample_each(ids, True), 5, time.thread_time)
    report.add(f"native, {name}", native, "samples/s", higher_is_better=True, aim=aim)
    listed = [[id] for id in ids[:2000].tolist()]
    ahead = times_of(presampler.sample, listed)
    asked = times_of(lambda id: sample_query(graph, id, query, attributes=True, threads=1), listed)
    report.add(
        f"one sample through Python, {name}",
        np.median(ahead),
        "µs",
        aim=12.0 if (tuple(fan_outs), channels) == (TWO, 10) else None,
        peer="sample_query",
        peer_value=np.median(asked),
    )
    report.add(
        f"samples of all nodes, {name}", graph.num_nodes() / built / 1e6, "M nodes/s", higher_is_better=True
    )
    memory = presampler.memory()["presampling"]
    report.add(f"memory, {name}", memory / graph.num_nodes(), "bytes/node")


def measure_hubs(graph: lg.Graph, report: Report) -> None:
    """The nodes with the most neighbours: is the slowest sample much slower than the mean?"""
    presampler = Presampler(graph, query_of(TWO), seed=1)
    ids = graph.ids()
    degrees = graph.degree(ids)
    hubs = ids[np.argsort(-degrees)[:HUBS]]
    report.note(f"degrees of the {HUBS:,} hubs: {degrees.max():,} to {np.sort(degrees)[-HUBS]:,}")
    listed = [[id] for id in np.tile(hubs, 5).tolist()]
    ahead = times_of(presampler.sample, listed)
    asked = times_of(lambda id: sample_query(graph, id, presampler.query, attributes=True, threads=1), listed)
    report.add(
        "hubs, p99 over mean",
        np.quantile(ahead, 0.99) / ahead.mean(),
        "",
        peer="sample_query",
        peer_value=np.quantile(asked, 0.99) / asked.mean(),
    )
    report.add("hubs, mean", ahead.mean(), "µs", peer="sample_query", peer_value=asked.mean())


def measure_batches(graph: lg.Graph, report: Report) -> None:
    rng = np.random.default_rng(2)
    nodes = graph.num_nodes()

    def apply() -> None:
        targets = Zipf(0.6, 20.0).draw(rng, nodes, BATCH)
        graph.apply(lg.Events().add_edges(rng.integers(0, nodes, BATCH), targets))

    def mixed() -> None:
        targets = rng.integers(0, nodes, BATCH // 2)
        gone = [graph.neighbors(int(id)).ids[:1] for id in targets[: BATCH // 4]]
        ends = np.concatenate(gone)
        there = np.repeat(targets[: BATCH // 4], [len(one) for one in gone])
        events = lg.Events().add_edges(rng.integers(0, nodes, BATCH // 2), targets)
        started = time.perf_counter()
        graph.apply(events.remove_edges(ends, there))
        mixed_taken.append(time.perf_counter() - started)

    mixed_taken: list[float] = []
    figures = []
    presampler: Presampler | None = None
    for ahead in (False, True):
        if ahead:
            presampler = Presampler(graph, query_of(TWO), seed=1)
        appended = 1e3 * median_seconds(apply, 50, time.perf_counter)
        mixed_taken.clear()
        for _ in range(20):
            mixed()
        figures.append((appended, 1e3 * float(np.median(mixed_taken))))
    assert presampler is not None
    (bare, bare_mixed), (kept, kept_mixed) = figures
    name = "the graph alone"
    report.add(f"a batch of {BATCH} appended edges", kept, "ms", peer=name, peer_value=bare)
    report.add(
        "a batch of 500 appended and 250 removed edges", kept_mixed, "ms", peer=name, peer_value=bare_mixed
    )
    report.note(f"lists read to draw samples anew: {presampler.native.num_redraws():,}")


def main() -> None:
    options = arguments(__doc__).parse_args()
    nodes, count = (QUICK, 2000) if options.quick else (FULL, 20_000)
    report = Report(f"samples that are ready, {nodes:,} nodes of {DEGREE} in-edges")
    for channels, aim in ((10, 150_000.0), (128, 45_000.0)):
        graph = make_graph(nodes, channels)
        measure_serving(graph, TWO, channels, aim, count, report)
        if channels == 10:
            measure_serving(graph, THREE, channels, 5_000.0, count // 10, report)
            measure_hubs(graph, report)
            measure_batches(graph, report)
    if not (find_spec("pyg_lib") or find_spec("torch_sparse")):
        report.could_not_run("PyG's sampler", "pyg_lib and torch_sparse are not installed")
    report.finish(options.json)


if __name__ == "__main__":
    main()
