"""Samples that are ready while edges come: latency over their rate, and how many a second are taken in
(Helios, sections 7.2.2 and 7.2.3).

The shape of INTER (`presampling_shapes.py`), the query of two hops [25, 10], the latest neighbours and random
ones. One thread asks for the samples of random seeds, another applies batches of 1,000 edges: none, 1,000,
10,000 and 30,000 edges a second, and as many as it can. The aim is the paper's figure 12: latency and
throughput stay as they are. Here: a median within 20 % of the one without updates. Seconds are of the clock,
so this needs two free cores; the batches are built in the thread that applies them.

Then edges are taken in as fast as possible, nobody asks, in batches of 100, 1,000 and 10,000: by LiveGNN with
the samples kept ready, and by Kuzu with COPY (`sampling_peers.py`). The aim is the paper's: 1.32 times the
database.

What it must cost
-----------------
A batch makes readers wait only while it commits. But both threads are Python, so a sample that is asked for
while the other thread builds a batch waits for the interpreter: that is what the 99th percentile shows. An
edge is looked up in the list of its source and in its sample, a few cache misses each: a microsecond or two,
so half a million a second would be a good figure for one thread; a batch of 1,000 has fixed costs beside.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator

import numpy as np

import livegnn as lg
from feed import Feed
from livegnn.presampling import Presampler
from presampling_peers import BATCH, QUICK_TIMES, STRATEGIES, seeds_of
from presampling_shapes import SHAPES, Batch, TimedGraph, events_of, live_graph, make_graph
from report import Report, arguments
from sampling_peers import KuzuSampler, why_not
from stopwatch import median_ms, p99_ms, time_each

RATES = (0.0, 1e3, 1e4, 3e4, float("inf"))
WITHIN = 1.2
INGESTION_AIM = 1.32
SIZES = (100, 1000, 10_000)
AGE = 10**8  # more edges than any part of this takes


def measure_latency(
    title: str,
    graph: TimedGraph,
    live: lg.Graph,
    presampler: Presampler,
    batches: Iterator[Batch],
    options: argparse.Namespace,
    report: Report,
) -> None:
    seeds, _ = seeds_of(graph, 10_000, 1)

    def ask(seed: int) -> None:
        presampler.sample([seed])

    alone = None
    for rate in RATES:
        with Feed(lambda batch: live.apply(events_of(batch)), batches, rate) as feed:
            seconds, _ = time_each(
                ask, itertools.cycle(seeds), warm_up=100, at_least=100, budget_s=options.seconds
            )
        median, p99, mean = median_ms(seconds), p99_ms(seconds), float(seconds.mean()) * 1e3
        alone = alone or (median, p99, mean)
        said = "as many as it can" if np.isinf(rate) else f"{rate:,.0f} edges/s"
        if rate and feed.reached < 0.9 * rate:
            said += f" ({feed.reached:,.0f})"
        name, peer = f"{title}, {said}", "no updates"
        report.add(
            f"{name}, median", 1e3 * median, "µs", aim=WITHIN * 1e3 * alone[0] if rate else None,
            peer=peer, peer_value=1e3 * alone[0],
        )  # fmt: skip
        report.add(f"{name}, mean", 1e3 * mean, "µs", peer=peer, peer_value=1e3 * alone[2])
        report.add(f"{name}, p99", 1e3 * p99, "µs", peer=peer, peer_value=1e3 * alone[1])


def edges_a_second(
    apply: Callable[[Batch], object], batches: Iterator[Batch], options: argparse.Namespace
) -> float:
    """By the median batch; to draw it is not counted."""
    size = 0

    def one(batch: Batch) -> None:
        apply(batch)

    def built() -> Iterator[Batch]:
        nonlocal size
        for batch in batches:
            size = sum(map(len, batch.values()))
            yield batch

    clock = time.process_time if options.cpu_time else time.perf_counter
    seconds, _ = time_each(one, built(), warm_up=2, at_least=5, budget_s=options.seconds, clock=clock)
    return size / float(np.median(seconds))


def measure_ingestion(graph: TimedGraph, live: lg.Graph, options: argparse.Namespace, report: Report) -> None:
    """LiveGNN follows for both strategies by turns; Kuzu has nothing to keep."""
    peer = None if why_not("kuzu") else KuzuSampler(graph)
    for i, size in enumerate(SIZES):
        # Later than all edges before.
        batches = graph.stream(size, seed=1, start=(i + 1) * AGE)
        theirs = None
        if peer is not None:
            theirs = edges_a_second(peer.append, graph.stream(size), options)
        for by, strategy in STRATEGIES.items():
            presampler = Presampler(live, graph.query(by), seed=1)
            rate = edges_a_second(lambda batch: live.apply(events_of(batch)), batches, options)
            report.add(
                f"taken in, {strategy}, batches of {size:,}",
                rate,
                "edges/s",
                higher_is_better=True,
                aim=None if theirs is None else INGESTION_AIM * theirs,
                peer=None if theirs is None else "Kuzu",
                peer_value=theirs,
            )
            del presampler
    if peer is None:
        report.could_not_run("Kuzu", str(why_not("kuzu")))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, help="for each figure; 10, quick: 1")
    parser.add_argument("--shape", choices=SHAPES, default="INTER")
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor where nobody asks")
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = 1.0 if options.quick else 10.0
    shape = SHAPES[options.shape].smaller(QUICK_TIMES) if options.quick else SHAPES[options.shape]
    graph = make_graph(options.shape, shape)
    live = live_graph(graph)
    report = Report(
        f"samples while edges come: {options.shape}, 1/{shape.scale:g}, {graph.num_edges:,} edges"
    )
    batches = graph.stream(BATCH)
    for by, strategy in STRATEGIES.items():
        started = time.perf_counter()
        presampler = Presampler(live, graph.query(by), seed=1)
        report.note(f"{strategy}: the first samples took {time.perf_counter() - started:.2f} s")
        measure_latency(strategy, graph, live, presampler, batches, options, report)
        del presampler
    measure_ingestion(graph, live, options, report)
    report.finish(options.json)


if __name__ == "__main__":
    main()
