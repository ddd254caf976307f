"""The graph store beside three peers that can be sampled too: building, memory, draws and updates.

Everybody gets the same directed edges in the same random order, in batches of 2^16, on two threads, and
keeps out-lists alone, with ids of 32 bits and float32 weights (see contestants.py; the peers are in
native/). One is built at a time, whole, put through everything, compared with LiveGNN's lists, and freed.
What LiveGNN's lists weigh with in-lists beside them, as a directed graph under an engine has them, stands in
rows of its own. The shapes are those of graphs.py: `products`, 2.4 million nodes with 50 neighbours on
average, and `reddit`, 0.23 million with 492. Then the studies of the paper, of LiveGNN's store alone.

What it must cost
-----------------
An edge meets its source's list in proportion to the list's length, so the list that it meets has 164
neighbours in products and 1,100 in reddit, though most lists are shorter. The core that this was written on
reads 70 million cache lines a second from random places, if their addresses are known early enough, and
copies 8 GB/s.

- Building. A change reads a root, a leaf's first line and its ids, to see whether the edge is there: 3
  misses and then 200 to 400 bytes in a row, for a leaf holds half of the final list in products (80
  entries), 180 in a samtree of reddit. An entry is appended where no reader looks yet; every sixteenth
  finds no room and copies the leaf. That is 0.07 us, 15 million edges a second and core, less the sorting
  of the batch, the arithmetic of a leaf, and the roots that are put in.
- A CSR copies everything for each batch: 8 bytes of 120 million edges, 0.12 s a core for 65,536 edges, half
  a million edges a second and core. At a tenth of the size it is ten times as fast, and a serious peer.
- Bytes. No code of a set of d out of N ids is shorter than about log2(N e / d) bits an id: 1.2 bytes in
  reddit, 1.9 in products. A weight is 4, its share of an FSTable 1/8. A root is 8 bytes a node (0.2 an entry
  in products); leaves of a samtree that are part full, sizes rounded up, free blocks, and what a batch is
  prepared in come on top.
- Draws. 25 neighbours of one node read a root and a few lines: of a list of 50, all of its 5 lines; of a
  samtree, for each draw a leaf's sums, its weights and its id, 3 lines. So products bears 290 million draws a
  second and core, reddit 25; in products arithmetic (10 to 20 ns a draw) is the bound. A uniform draw reads
  one line.
- Weight updates, removals: as building, but a leaf is never changed where readers look: each copies it, up to
  0.9 KB, 6 million a second and core.
- A subgraph of 2^14 seeds with 25 and 10 neighbours has 400,000 draws in its first hop and 2 million in its
  second, and each is looked up in the numbering, a miss, by one thread: 30 ms for the look-ups alone.

The column `floor` is this with the list lengths of the run, and with the two rates measured at its beginning:
cache lines read from random places and bytes copied, nothing for arithmetic. Of bytes it is the shortest code
of the ids, and 4 for a weight.
"""

from __future__ import annotations

import gc
from argparse import Namespace
from dataclasses import dataclass

import numpy as np

from contest import BATCH, CALL, CSR, DRAWN, FAN_OUTS, LIVE, PEERS, SEEDS, Bench, Course, make_edges, rate
from contestants import Contestant, StoreBench, load
from graphs import SHAPES, Shape
from report import Report, arguments, memory_gib

FULL_SHAPES = ("products", "reddit")

AIMS = {
    "building": 4e6,
    "building, times the best peer": 5.0,
    "weighted draws beside updates": 10e6,
    "uniform draws": 30e6,
    "weight updates": 3e6,
    "subgraph": 200.0,
    "1 to 2 threads": 1.7,
}
BYTES_AIMS = {
    ("reddit", True): 6.4,
    ("products", True): 8.0,
    ("reddit", False): 3.0,
    ("products", False): 4.5,
}

CAPACITIES = (64, 128, 256, 512, 1024)
SLACKS = (0, 16, 32, 64)
QUICK_CAPACITIES, QUICK_SLACKS = (64, 256, 1024), (0, 32)
BATCH_SIZES = (2**10, 2**12, 2**14, 2**16, 2**18)
TABLE_SIZES = (64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Figure:
    """A row for every contestant; LiveGNN's stands beside the best peer's if that says something."""

    name: str
    unit: str
    higher_is_better: bool = False
    compared: bool = True


FIGURES = [
    Figure("building", "edges/s", True),
    Figure("bytes per entry, weighted", "bytes"),
    Figure("bytes per entry for batches, weighted", "bytes", compared=False),
    Figure("growth of the process per entry, weighted", "bytes"),
    Figure("bytes per entry, unweighted", "bytes"),
    Figure("bytes per entry for batches, unweighted", "bytes", compared=False),
    Figure("growth of the process per entry, unweighted", "bytes"),
    Figure("weighted draws", "1/s/core", True),
    Figure("weighted draws beside updates", "1/s/core", True),
    Figure("updates applied beside them", "1/s", True, compared=False),
    Figure("99th percentile of a call beside updates", "ms"),
    Figure("uniform draws", "1/s/core", True),
    Figure("weight updates", "1/s", True),
    Figure("removals", "1/s", True),
    Figure("additions to the full graph", "1/s", True),
    Figure("subgraph", "ms"),
]


# -- floors: nothing but memory, on the machine's own rates


@dataclass(frozen=True)
class Floors:
    lines: float
    """Cache lines a second and core from random places."""
    copied: float
    """Bytes a second and core."""

    def changes(self, read: float, copied: float, threads: int) -> float:
        """Changes a second: root, head and ids of a leaf are found, so many bytes read and so many copied."""
        return threads / (3 / self.lines + (read / 2 + copied) / self.copied)

    def draws(self, list_entries: float, entry_bytes: float, lines_each: float) -> float:
        """A second and core: the lines of a list, or of the draws if they are fewer, and a root for all."""
        lines = 1 + min(list_entries * entry_bytes / 64, DRAWN * lines_each)
        return DRAWN * self.lines / lines

    def subgraph_ms(
        self, nodes: float, edges: float, entry_bytes: float, mean_list: float, threads: int
    ) -> float:
        """Every edge is drawn, and looked up in the numbering (by one thread)."""
        drawn = edges / self.draws(mean_list, entry_bytes, 3) / threads
        return (drawn + (edges + nodes) / self.lines) * 1e3


def add_shape(report: Report, bench: Bench, floors: Floors) -> None:
    """All contestants on one shape: LiveGNN's figures beside the best peer's, then the peers' own."""
    options, shape = bench.options, bench.edges.shape
    courses = []
    for name in (LIVE, *PEERS):
        report.console.print(f"{shape}: {name}", style="dim")
        courses.append(bench.run(name))
    live, *peers = courses
    found = live.figures
    full = shape in FULL_SHAPES and options.share == 1
    aims, bytes_aims = (AIMS, BYTES_AIMS) if full else ({}, {})

    weighted_bytes, bare_bytes = bench.id_bits / 8 + 4, bench.id_bits / 8
    leaf = min(bench.mean_list, 0.7 * 256)
    growing_leaf = min(bench.mean_list / 2, 0.7 * 256)
    rewrites = floors.changes(leaf * bare_bytes, leaf * weighted_bytes, options.threads)

    def additions(entries: float) -> float:
        return floors.changes(entries * bare_bytes, entries * weighted_bytes / 16, options.threads)

    floor = {
        "building": additions(growing_leaf),
        "bytes per entry, weighted": weighted_bytes,
        "bytes per entry, unweighted": bare_bytes,
        "weighted draws": floors.draws(bench.seed_list, weighted_bytes, 3),
        "weighted draws beside updates": floors.draws(bench.seed_list, weighted_bytes, 3),
        "uniform draws": floors.draws(bench.seed_list, bare_bytes, 1),
        "weight updates": rewrites,
        "removals": rewrites,
        "additions to the full graph": additions(leaf),
        "subgraph": floors.subgraph_ms(
            found["subgraph nodes"], found["subgraph edges"], weighted_bytes, bench.seed_list, options.threads
        ),
    }

    report.section(f"{shape}, {len(bench.edges):,} directed edges")
    for figure in FIGURES:
        pick = max if figure.higher_is_better else min
        best = pick(peers, key=lambda peer, name=figure.name: peer.figures[name])
        aim = aims.get(figure.name)
        for weighted, word in ((True, "weighted"), (False, "unweighted")):
            if figure.name == f"bytes per entry, {word}":
                aim = bytes_aims.get((shape, weighted))
        report.add(
            f"{shape}: {figure.name}",
            found[figure.name],
            figure.unit,
            higher_is_better=figure.higher_is_better,
            aim=aim,
            peer=best.name if figure.compared else None,
            peer_value=best.figures[figure.name] if figure.compared else None,
            floor=floor.get(figure.name),
        )
    for word in ("weighted", "unweighted"):
        for name in ("bytes per entry", "growth of the process per entry"):
            report.add(
                f"{shape}: {name}, {word}, in-lists too", found[f"{name}, {word}, in-lists too"], "bytes"
            )
    fastest = max(peer.figures["building"] for peer in peers)
    report.add(
        f"{shape}: building, times the best peer",
        found["building"] / fastest,
        "x",
        higher_is_better=True,
        aim=aims.get("building, times the best peer"),
    )
    if "additions, 1 thread" in found:
        for name in ("additions", "weight updates"):
            on_all = "additions to the full graph" if name == "additions" else name
            report.add(
                f"{shape}: {name}, 1 to {options.threads} threads",
                found[on_all] / found[f"{name}, 1 thread"],
                "x",
                higher_is_better=True,
                aim=aims.get("1 to 2 threads") if options.threads == 2 else None,
            )
    for word in ("weighted", "unweighted"):
        report.add(
            f"{shape}: count of bytes off the growth, {word}",
            abs(found[f"bytes counted, of the growth, {word}"] - 1),
            "of it",
            aim=0.1 if full else None,
        )

    report.section(f"{shape}: the peers")
    for peer in peers:
        for figure in FIGURES:
            report.add(
                f"{shape}: {peer.name}: {figure.name}",
                peer.figures[figure.name],
                figure.unit,
                higher_is_better=figure.higher_is_better,
            )
        report.add(f"{shape}: {peer.name}: lists unlike LiveGNN's", unlike(live, peer), "lists", aim=0)


def unlike(live: Course, peer: Course) -> int:
    """Lists that differ in an id, or in a weight by more than a cumulative sum of float32 rounds off."""
    count = 0
    for (ids, weights), (peer_ids, peer_weights) in zip(live.lists, peer.lists, strict=True):
        order, peer_order = np.argsort(ids), np.argsort(peer_ids)
        same = np.array_equal(ids[order], peer_ids[peer_order]) and np.allclose(
            weights[order], peer_weights[peer_order], rtol=0, atol=1e-5 * float(weights.sum())
        )
        count += not same
    return count


# -- the paper's studies


def add_variant(report: Report, bench: Bench, label: str, **samtree: int | bool) -> Contestant:
    """LiveGNN's store with other options: built, and measured in the four ways that they matter for."""
    edges = bench.edges
    store = bench.native.LiveStore(edges.num_nodes, True, bench.options.threads, **samtree)  # type: ignore[arg-type]
    name = f"{edges.shape}, {label}"
    report.add(
        f"{name}: building", rate(bench.add(store, edges), len(edges)), "edges/s", higher_is_better=True
    )
    report.add(f"{name}: bytes per entry", store.bytes() / len(edges), "bytes")
    updates = rate(bench.add(store, bench.updates), len(bench.updates))
    report.add(f"{name}: weight updates", updates, "1/s", higher_is_better=True)
    report.add(f"{name}: weighted draws", bench.draws(store, True), "1/s/core", higher_is_better=True)
    return store


def add_compression(report: Report, bench: Bench) -> None:
    report.section(f"{bench.edges.shape}: compressed ids (table IV of the paper)")
    for compress in (True, False):
        add_variant(report, bench, "ids compressed" if compress else "ids in full", compress=compress)


def add_capacities(report: Report, bench: Bench) -> None:
    report.section(f"{bench.edges.shape}: capacity of a node of the samtree, slackness an eighth of it")
    for capacity in QUICK_CAPACITIES if bench.options.quick else CAPACITIES:
        add_variant(report, bench, f"capacity {capacity}", capacity=capacity, slack=capacity // 8)


def add_slacks(report: Report, bench: Bench) -> None:
    report.section(f"{bench.edges.shape}: slackness of the α-Split, capacity 256 (figure 13 of the paper)")
    for slack in QUICK_SLACKS if bench.options.quick else SLACKS:
        add_variant(report, bench, f"slackness {slack}", slack=slack)


def add_batch_sizes(report: Report, bench: Bench) -> None:
    """Additions to the full graph; for each size some edges go first, and come back."""
    edges, shape, threads = bench.updates, bench.edges.shape, bench.options.threads
    store = bench.make(LIVE)
    bench.add(store, bench.edges)
    report.section(f"{shape}: batch size, additions to the full graph (figure 12 of the paper)")
    for size in BATCH_SIZES:
        bench.remove(store, edges)
        seconds = bench.add(store, edges, size)
        whole = len(edges) // size
        report.add(
            f"{shape}, batch {size}: additions", rate(seconds, len(edges)), "1/s", higher_is_better=True
        )
        if whole > 0:
            report.add(f"{shape}, batch {size}: median", float(np.median(seconds[:whole])) * 1e3, "ms")
    report.section(f"{shape}: threads, additions to the full graph")
    for count in range(1, threads + 1):
        bench.remove(store, edges)
        seconds = bench.add(store, edges, threads=count)
        name = f"{shape}, {count} thread{'s' if count > 1 else ''}: additions"
        report.add(name, rate(seconds, len(edges)), "1/s", higher_is_better=True)


def add_tables(report: Report, native: StoreBench, options: Namespace) -> None:
    """FSTable as here (runs of 32) and as in the paper (runs of one), beside CSTable."""
    report.section("FSTable beside CSTable: one operation on a table of n weights (table II of the paper)")
    rounds = 20 if options.quick else 400
    for n in TABLE_SIZES:
        here, paper, cumulative = (
            table.nanoseconds(n, rounds, 1)
            for table in (native.RunTable, native.PaperTable, native.CumulativeTable)
        )
        for i, operation in enumerate(("append", "update in place", "delete", "draw")):
            for label, times in (("FSTable", here), ("FSTable of the paper", paper)):
                report.add(
                    f"{operation}, n = {n}: {label}", times[i], "ns", peer="CSTable", peer_value=cumulative[i]
                )


def memory_needed(shape: Shape) -> float:
    """GiB, about: edges as they are generated (three arrays of int64 and their copies), or a CSR that is
    loaded (its two copies, and the changes that it sorts) beside 12 bytes an edge of our own."""
    return shape.directed_edges * max(48, 12 + 2 * 9 + 18) / 2**30


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="default: products and reddit")
    parser.add_argument("--share", type=float, help="of the shape's edges, the first of the random order")
    parser.add_argument("--threads", type=int, default=2, help="for batches and subgraphs (default: 2)")
    parser.add_argument(
        "--arrivals", type=float, default=1e6, help="updates a second beside draws (default: 1,000,000)"
    )
    parser.add_argument("--studies", choices=("all", "tables", "none"), default="all")
    options = parser.parse_args()
    shapes = options.shape or (["products-tenth"] if options.quick else list(FULL_SHAPES))
    options.share = options.share or (0.2 if options.quick else 1.0)
    options.draw_seconds = 0.2 if options.quick else 3.0

    native = load()
    floors = Floors(*native.memory_rates(128 if options.quick else 1024))
    report = Report(f"graph store, {options.threads} threads, batches of {BATCH:,}")
    for shape in shapes:
        needed = memory_needed(SHAPES[shape])
        if needed > memory_gib():
            why = f"needs some {needed:.0f} GiB of memory, this machine has {memory_gib():.0f}"
            report.could_not_run(shape, why)
            continue
        bench = Bench(native, make_edges(shape, options.share), options)
        add_shape(report, bench, floors)
        if options.studies == "all":
            add_compression(report, bench)
            if shape == shapes[-1]:
                add_capacities(report, bench)
                add_slacks(report, bench)
                add_batch_sizes(report, bench)
        del bench
        gc.collect()
    if options.studies != "none":
        add_tables(report, native, options)
    report.note(
        f"One core reads {floors.lines / 1e6:.0f} M cache lines a second from random places, and copies"
        f" {floors.copied / 1e9:.1f} GB/s."
    )
    report.note(
        f"Draws: {DRAWN} with replacement for each of {CALL} nodes a call, on one core. Beside updates:"
        f" another core applies a batch every {1e3 * BATCH / options.arrivals:.0f} ms, or as often as it can;"
        " half are new weights, a quarter removals, a quarter additions. A reader sees whole batches: where"
        " lists are changed in place, it waits for the batch."
    )
    report.note(
        f"Subgraph: {SEEDS:,} seeds, {FAN_OUTS[0]} and {FAN_OUTS[1]} neighbours by weight, without"
        " replacement."
    )
    report.note(
        f"{CSR}: its bytes are those of one copy without slack, though it keeps two. Bytes are those of"
        " out-lists, which is what the peers keep; what LiveGNN's weigh with in-lists too stands below."
    )
    report.finish(options.json)


if __name__ == "__main__":
    main()
