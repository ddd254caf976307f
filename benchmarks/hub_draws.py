"""Draws from one node with 1.6 million neighbours, as temporal loaders and samplers by weight ask for them.

The times of the edges have nothing to do with the ids of the neighbours, so each leaf of the hub's samtree
holds edges of all times. One weight outweighs all others together. All of it twice: with as many neighbours
as edges, and with two parallel edges, told apart by keys, to each of half as many.

What it must cost
-----------------
A draw by time is a walk down a tree of three levels, and one down the samtree for the edge's columns: some
ten cache misses, a microsecond. Ten draws and what a call costs come to 0.02 ms; 32 seeds to 0.3 ms. Where a
weight is drawn again and again, the way to it is taken apart once: some 300 sums are read, 0.03 ms.
To look at all neighbours costs what their times take: 13 MB, 2 to 10 ms.

The order by time costs 12 bytes an edge, and 4 for a weight. A change of an edge of the hub costs a second
walk and copies a second leaf. A key makes ids of 8 bytes of 4: 4 more in the order by time, and draws that
read more cache lines, but not twice as many.
"""

from __future__ import annotations

import time

import numpy as np

import livegnn as lg
from livegnn.sampling import sample_neighbors
from livegnn.types import DEFAULT_EDGE_TYPE
from report import Report, arguments
from stopwatch import repeated_ms

FULL, QUICK = 1_600_000, 100_000
BATCH = 100
HUB = 0


def make_hub(size: int, *, timed: bool = True, keyed: bool = False) -> lg.Graph:
    """Edges from 1 .. size to node 0, or two from each of 1 .. size / 2; times in random order."""
    rng = np.random.default_rng(0)
    weight = rng.random(size, dtype=np.float32) + 0.5
    weight[size // 2] = 1e12
    return lg.Graph.from_edges(
        1 + np.arange(size) // (2 if keyed else 1),
        np.full(size, HUB),
        num_nodes=size + 1,
        weight=weight,
        time=rng.permutation(size).astype(np.float64) if timed else None,
        parallel="keep" if keyed else "refuse",
    )


def measure_draws(graph: lg.Graph, size: int, report: Report, suffix: str) -> None:
    rare, half = size * 1e-4, size / 2
    seeds = np.full(32, HUB)
    until = np.linspace(rare, size, 32)
    draws: dict[str, dict[str, object]] = {
        "the latest": {"by": "latest"},
        "the latest before half": {"by": "latest", "until": half},
        "uniform before a hundredth of a percent": {"until": rare},
        "uniform before half": {"until": half},
        "by weight, one outweighs all": {"by": "weight"},
        "by weight before a hundredth of a percent": {"by": "weight", "until": rare},
    }
    for name, law in draws.items():
        call = lambda law=law: sample_neighbors(graph, [HUB], 10, seed=1, threads=1, **law)  # type: ignore[misc]  # noqa: E731
        report.add(f"10 {name}{suffix}", repeated_ms(call), "ms")
    for by in ("uniform", "latest", "weight"):
        call = lambda by=by: sample_neighbors(graph, seeds, 10, by=by, until=until, seed=1, threads=1)  # type: ignore[misc]  # noqa: E731
        report.add(f"10 {by} for each of 32 seeds with a time{suffix}", repeated_ms(call), "ms")


def measure_updates(graph: lg.Graph, size: int, report: Report, suffix: str) -> None:
    """Edges that are there get later times; of parallel ones, the first."""
    rng = np.random.default_rng(1)
    step = iter(range(size, 1 << 40))
    keyed = graph.schema.edge_types[DEFAULT_EDGE_TYPE].duplicates == "keep"

    def update() -> None:
        neighbors = rng.integers(1, (size // 2 if keyed else size) + 1, BATCH)
        now = float(next(step))
        graph.apply(
            lg.Events().add_edges(
                neighbors,
                np.full(BATCH, HUB),
                weight=np.ones(BATCH),
                time=np.full(BATCH, now),
                key=np.zeros(BATCH, np.int64) if keyed else None,
            )
        )

    report.add(f"a batch of {BATCH} edges of the hub{suffix}", repeated_ms(update), "ms")


def main() -> None:
    options = arguments(__doc__).parse_args()
    size = QUICK if options.quick else FULL
    report = Report(f"hub draws, {size:,} neighbours")
    for keyed, suffix in ((False, ""), (True, ", parallel")):
        started = time.perf_counter()
        graph = make_hub(size, keyed=keyed)
        report.add(f"building, timed{suffix}", time.perf_counter() - started, "s")
        for timed, edges in ((True, graph), (False, make_hub(size, timed=False, keyed=keyed))):
            lists = edges.memory()["edges of node,to,node"] / size
            name = f"bytes an edge, both ends, {'timed' if timed else 'without times'}{suffix}"
            report.add(name, lists, "bytes")
        measure_draws(graph, size, report, suffix)
        measure_updates(graph, size, report, suffix)
    report.finish(options.json)


if __name__ == "__main__":
    main()
