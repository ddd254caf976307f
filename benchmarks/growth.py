"""How long readers wait while a graph grows, and other threads of Python while a large batch is read or a
state taken.

Estimate. A commit writes what the batch changes: for 65,536 new nodes with ids of their own, an entry of 16
bytes in a table met at random (50 ns each) and 8 bytes in a row: 4 ms while nobody reads, whatever the size
of the graph. What grows with the graph is copied before, beside readers: 8 million ids are 256 MiB of table
and 64 MiB of rows. A compaction moves a tenth of what the batch costs. Staging and states hold no lock of
Python's: others go on within a switch interval.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

import livegnn as lg
from report import Report, arguments

BATCH = 1 << 16


class Pauses:
    """Calls something again and again in a thread of its own, and remembers the longest time between two
    calls.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._ended = False
        self.longest = 0.0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        before = time.perf_counter()
        while not self._ended:
            self._call()
            now = time.perf_counter()
            self.longest = max(self.longest, now - before)
            before = now

    @contextmanager
    def watch(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ended = True
            self._thread.join()


def grow(report: Report, num_nodes: int) -> None:
    rng = np.random.default_rng(1)
    graph = lg.Graph()
    ids = rng.permutation(num_nodes) * 1000003 + 17
    graph.apply(lg.Events().add_nodes(ids[:BATCH]))
    known, longest = ids[:64], 0.0
    reading = Pauses(lambda: graph.contains(known))
    with reading.watch():
        for begin in range(BATCH, num_nodes, BATCH):
            events = lg.Events().add_nodes(ids[begin : begin + BATCH])
            started = time.perf_counter()
            graph.apply(events)
            longest = max(longest, time.perf_counter() - started)
    report.add(
        f"growth to {num_nodes / 1e6:.1f} million nodes, longest read of 64 ids", reading.longest * 1e3, "ms"
    )
    report.add(f"growth to {num_nodes / 1e6:.1f} million nodes, longest batch of 65,536", longest * 1e3, "ms")


def stage_and_save(report: Report, num_edges: int) -> None:
    rng = np.random.default_rng(2)
    num_nodes = num_edges // 4
    graph = lg.Graph()
    graph.apply(lg.Events().add_nodes(np.arange(num_nodes)))
    src, dst = rng.integers(0, num_nodes, (2, num_edges))
    events = lg.Events().add_edges(src, dst)
    others = Pauses(lambda: None)
    with others.watch():
        graph.apply(events)
    report.add(
        f"a batch of {num_edges / 1e6:.1f} million edges, others stand still", others.longest * 1e3, "ms"
    )
    others = Pauses(lambda: None)
    with others.watch():
        graph.state()
    report.add("its state, others stand still", others.longest * 1e3, "ms")


def compact(report: Report, num_edges: int) -> None:
    rng = np.random.default_rng(3)
    num_nodes = num_edges // 16
    graph = lg.Graph()
    graph.apply(lg.Events().add_nodes(np.arange(num_nodes)))
    src, dst = rng.integers(0, num_nodes, (2, num_edges))
    for begin in range(0, num_edges, BATCH):
        graph.apply(lg.Events().add_edges(src[begin : begin + BATCH], dst[begin : begin + BATCH]))
    for begin in range(0, num_edges * 3 // 4, BATCH):
        graph.apply(lg.Events().remove_edges(src[begin : begin + BATCH], dst[begin : begin + BATCH]))
    seconds = []
    for _ in range(3000):
        ends = rng.integers(0, num_nodes, (2, 10))
        started = time.perf_counter()
        graph.apply(lg.Events().add_edges(*ends))
        seconds.append(time.perf_counter() - started)
    report.add("after many removals, batches of 10: the longest", max(seconds) * 1e3, "ms")
    report.add("after many removals, batches of 10: the median", float(np.median(seconds)) * 1e3, "ms")


def main() -> None:
    options = arguments(__doc__).parse_args()
    sys.setswitchinterval(1e-4)
    report = Report("growth")
    grow(report, 1 << 20 if options.quick else 9 << 20)
    stage_and_save(report, 1 << 18 if options.quick else 1 << 20)
    compact(report, 1 << 20 if options.quick else 1 << 22)
    report.finish(options.json)


if __name__ == "__main__":
    main()
