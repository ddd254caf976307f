"""Samples that are ready beside a graph database that is asked for them, and beside PyG's sampler: throughput
and 99th percentile, alone and while edges come (Helios, section 7.2.1).

The data sets of table 1 as generated shapes (`presampling_shapes.py`), smaller than the paper's by the factor
that a table's title gives, and the queries of table 2: the latest neighbours (TopK) and random ones. With
`--ldbc` also the query of BI on a real sample of LDBC's network.

Everybody holds the graph in memory, runs in this process, one call at a time from one thread, gets the same
seeds, and returns ids and features of the sampled nodes. Before the clock runs, the latest neighbours that
each draws are compared with LiveGNN's; who differs is not measured. Peers get as many of the seeds as
`--peer-seconds` allow; LiveGNN gets all, and while edges come each gets seeds for that long. Kuzu is asked in
the fastest of three ways (`sampling_peers.py`), chosen on a few seeds.

The aims are the paper's: 60 times the throughput of the database, and a 99th percentile 32 times (TopK) and
24 times (random) below; 3 times the throughput of PyG. A mean latency is one over the throughput. *hubs* are
the 1,000 seeds with the most neighbours.

While edges come, another thread applies batches of 1,000 at `--rate` edges a second, to each system by turns;
notes say who could not keep that rate. PyG's sampler makes its CSR anew for each batch.

What it must cost
-----------------
A sample of [25, 10] is 26 look-ups and at most 275 rows of features: 10 to 20 microseconds through Python, of
any node (`ready_samples.py`). A database parses, plans and runs at least one statement a hop: 0.2 ms each,
and reads all edges of 26 nodes, of which a social network's second hop has 10,000 and more. PyG draws from
arrays, 100 microseconds of which most are tensors that come and go; the latest neighbours are a search in
each list.

`--cpu-time`: where no edges come, seconds are those of all threads on their cores.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np

from feed import Feed
from graphs import Int64
from livegnn.presampling import Presampler
from livegnn.query import NeighborsBy
from livegnn.wording import kind_of
from presampling_shapes import SHAPES, Batch, TimedGraph, events_of, ldbc_sample, live_graph, make_graph
from report import Report, arguments
from sampling_peers import FORMS, KuzuSampler, PyGSampler, why_not
from stopwatch import time_each

STRATEGIES: dict[NeighborsBy, str] = {"latest": "TopK", "uniform": "random"}
P99_AIM = {"latest": 32, "uniform": 24}
THROUGHPUT_AIM = {"Kuzu": 60, "PyG": 3}
HUBS_AIM = 3.0  # a hub costs what any node costs
BATCH = 1000
SEEDS, HUBS = 10_000, 1000
QUICK_TIMES, QUICK_SEEDS, QUICK_HUBS = 20, 1000, 200


@dataclass(frozen=True)
class System:
    """Who answers: ids of sampled nodes by type, edges that come, and how long it may be asked."""

    name: str
    sample: Callable[[int], object]
    append: Callable[[Batch], object]
    budget_s: float
    batches: Iterator[Batch]


@dataclass(frozen=True)
class Served:
    """Samples a second and the 99th percentile, in ms."""

    rate: float
    p99_ms: float
    mean_ms: float
    count: int


def serve(
    system: System, seeds: Iterable[int], budget_s: float, clock: Callable[[], float] = time.perf_counter
) -> Served:
    """Asks for the samples of `seeds` until they end or the budget is spent."""

    def ask(seed: int) -> None:
        system.sample(seed)

    seconds, _ = time_each(ask, seeds, warm_up=3, at_least=10, budget_s=budget_s, clock=clock)
    mean = float(seconds.mean())
    return Served(1 / mean, float(np.percentile(seconds, 99)) * 1e3, mean * 1e3, len(seconds))


def seeds_of(graph: TimedGraph, count: int, hubs: int) -> tuple[list[int], list[int]]:
    """Random seeds, and the seeds with the most neighbours in a random order."""
    rng = np.random.default_rng(1)
    degree: Int64 = graph.out_degrees(graph.hops[0][0])
    largest = np.argsort(-degree, kind="stable")[:hubs]
    return rng.integers(0, len(degree), count).tolist(), rng.permutation(largest).tolist()


def ids_in(sample: object) -> dict[str, set[int]]:
    """Sampled nodes by type, of whatever system."""
    nodes = getattr(sample, "node", sample)
    assert isinstance(nodes, dict), f"expected nodes by type, got {kind_of(sample)}"
    found = {}
    for type, ids in nodes.items():
        of_type = ids[0] if isinstance(ids, tuple) else ids
        found[type] = set(of_type if isinstance(of_type, dict) else of_type.tolist())
    return found


def differing(ours: System, peer: System, seeds: Sequence[int]) -> int:
    """For how many seeds the peer samples other nodes."""
    return sum(ids_in(ours.sample(seed)) != ids_in(peer.sample(seed)) for seed in seeds)


def choose_form(kuzu: KuzuSampler, by: NeighborsBy, seeds: Sequence[int]) -> None:
    """Sets the fastest way to ask."""
    taken = {}
    for form in FORMS:
        kuzu.form = form
        kuzu.sample(seeds[0], by)
        started = time.process_time()
        for seed in seeds:
            kuzu.sample(seed, by)
        taken[form] = time.process_time() - started
    kuzu.form = min(taken, key=taken.__getitem__)


class Measurement:
    """One data set, for both strategies."""

    def __init__(self, graph: TimedGraph, options: argparse.Namespace, report: Report) -> None:
        self.graph, self.options, self.report = graph, options, report
        self.live = live_graph(graph)
        self.kuzu = None if why_not("kuzu") else KuzuSampler(graph)
        self.seeds, self.hubs = seeds_of(graph, options.seeds, options.hubs)
        self.batches: dict[str, Iterator[Batch]] = {}
        self.clock = time.process_time if options.cpu_time else time.perf_counter

    def run(self, by: NeighborsBy) -> None:
        # The graph holds the view weakly: it follows no further than this call.
        presampler = Presampler(self.live, self.graph.query(by), seed=1)
        ours = System(
            "LiveGNN",
            lambda seed: presampler.sample([seed]),
            lambda batch: self.live.apply(events_of(batch)),
            float("inf"),
            self._stream("LiveGNN"),
        )
        self._measure(by, [ours, *self._peers(by, ours)])

    def _peers(self, by: NeighborsBy, ours: System) -> list[System]:
        peers = []
        budget = self.options.peer_seconds
        if self.kuzu is not None:
            kuzu = self.kuzu
            choose_form(kuzu, by, self.seeds[:5])
            name = f"{self.graph.name}, {STRATEGIES[by]}"
            self.report.note(f"{name}: Kuzu is asked with {kuzu.form}")
            peers.append(
                System("Kuzu", lambda seed: kuzu.sample(seed, by), kuzu.append, budget, self._stream("Kuzu"))
            )
        if why_not("pyg_lib") is None:
            pyg = PyGSampler(self.graph, by)
            peers.append(System("PyG", pyg.sample, pyg.append, budget, self.graph.stream(BATCH)))
        if by == "latest":
            # Nobody has been given further edges yet.
            some = [*self.seeds[:20], *self.hubs[:5]]
            wrong = {peer.name: differing(ours, peer, some) for peer in peers}
            for name, count in wrong.items():
                if count:
                    self.report.could_not_run(
                        name, f"it samples other nodes for {count} of {len(some)} seeds"
                    )
            peers = [peer for peer in peers if not wrong[peer.name]]
        return peers

    def _measure(self, by: NeighborsBy, systems: list[System]) -> None:
        title = f"{self.graph.name}, {STRATEGIES[by]}"
        alone = {s.name: serve(s, self.seeds, s.budget_s, self.clock) for s in systems}
        self._rows(title, by, alone)
        counts = ", ".join(f"{name} {served.count:,}" for name, served in alone.items())
        self.report.note(f"{title}: seeds asked: {counts}")
        on_hubs = {s.name: serve(s, self.hubs, s.budget_s, self.clock) for s in systems}
        self._rows(f"{title}, hubs", by, on_hubs)
        for name, served in on_hubs.items():
            aim = HUBS_AIM if name == "LiveGNN" else None
            over = served.p99_ms / served.mean_ms
            self.report.add(f"{title}, hubs, p99 over mean, {name}", over, "", aim=aim)
        fed = {}
        for system in systems:
            with Feed(system.append, system.batches, self.options.rate) as feed:
                fed[system.name] = serve(system, cycle(self.seeds), self.options.peer_seconds)
            if feed.reached < 0.9 * self.options.rate:
                self.report.note(f"{title}: {system.name} took {feed.reached:,.0f} edges a second")
        self._rows(f"{title}, {self.options.rate:,.0f} edges/s", by, fed)

    def _rows(self, title: str, by: NeighborsBy, served: dict[str, Served]) -> None:
        ours = served["LiveGNN"]
        if len(served) == 1:
            self.report.add(f"{title}, throughput", ours.rate, "samples/s", higher_is_better=True)
            self.report.add(f"{title}, p99", ours.p99_ms, "ms")
        for name, peer in list(served.items())[1:]:
            self.report.add(
                f"{title}, throughput",
                ours.rate,
                "samples/s",
                higher_is_better=True,
                aim=THROUGHPUT_AIM[name] * peer.rate,
                peer=name,
                peer_value=peer.rate,
            )
            aim = peer.p99_ms / P99_AIM[by] if name == "Kuzu" else None
            self.report.add(f"{title}, p99", ours.p99_ms, "ms", aim=aim, peer=name, peer_value=peer.p99_ms)

    def _stream(self, name: str) -> Iterator[Batch]:
        """A system goes on where it was: times never repeat."""
        return self.batches.setdefault(name, self.graph.stream(BATCH))


def parse() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--rate", type=float, default=10_000.0, help="edges a second")
    parser.add_argument("--peer-seconds", type=float, help="for each figure of a peer; 10, quick: 0.5")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="only this one; may be repeated")
    parser.add_argument("--ldbc", type=Path, metavar="FILE", help="the LDBC sample, an archive of NumPy")
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor where none come")
    options = parser.parse_args()
    if options.peer_seconds is None:
        options.peer_seconds = 0.5 if options.quick else 10.0
    options.seeds, options.hubs = (QUICK_SEEDS, QUICK_HUBS) if options.quick else (SEEDS, HUBS)
    return options


def main() -> None:
    options = parse()
    report = Report("samples that are ready beside samples that are asked for")
    for name in options.shape or SHAPES:
        shape = SHAPES[name].smaller(QUICK_TIMES) if options.quick else SHAPES[name]
        graph = make_graph(name, shape)
        report.section(f"{name}, 1/{shape.scale:g}: {nodes_of(graph)}")
        measure(graph, options, report)
    if options.ldbc is None:
        report.could_not_run("the LDBC sample", "say where it is with --ldbc")
    else:
        graph = ldbc_sample(options.ldbc)
        report.section(f"{graph.name}: {nodes_of(graph)}")
        measure(graph, options, report)
    for peer, package in (("Kuzu", "kuzu"), ("PyG's sampler", "pyg_lib")):
        why = why_not(package)
        if why:
            report.could_not_run(peer, why)
    report.finish(options.json)


def measure(graph: TimedGraph, options: argparse.Namespace, report: Report) -> None:
    measurement = Measurement(graph, options, report)
    for by in STRATEGIES:
        measurement.run(by)
        if options.json is not None:
            # A full run takes long: what there is is kept.
            report.write(options.json)


def nodes_of(graph: TimedGraph) -> str:
    return f"{sum(graph.num_nodes.values()):,} nodes, {graph.num_edges:,} edges"


if __name__ == "__main__":
    main()
