"""Keeping a GNN's embeddings fresh, batch by batch, beside three peers on the same stream in the same run.

The graph has the shape of ogbn-arxiv (see graphs.py), the model is SAGE-mean 128 -> 256 -> 40 with a ReLU
between, the stream follows RIPPLE's protocol. Once directed, once on the same graph made symmetric, where
an undirected edge is one event and hubs spread every change. Peers and what they do: peers.py. All of them
are exact, and the run proves it: after each batch size everybody is brought to the same event and compared
with PyG's full recomputation.

What a batch must cost
----------------------
Of a batch of B events a third changes features and two thirds change an edge. In the directed graph a
changed feature reaches 7 nodes in the first hop, a changed edge one; each of these reaches 7 more in the
second. So B events touch about 3 B rows in layer 1 and 20 B rows in layer 2 (the run counts them; few
repeat until B is large). The symmetric graph picks its targets by degree: a node met along an edge has not
14 but some 300 neighbours, and 10 events touch 14,000 rows.

- Row additions. Layer 1 adds rows of 128 floats, layer 2 of 40 if it projects before it aggregates (of 256
  if not). The rows lie scattered over 87 MB and 27 MB, so an addition is one to three cache misses; two
  cores with prefetching do about 35 million of 40 floats in a second. Symmetric, B = 100: 97,000 additions,
  2.8 ms. Directed, B = 100: 2,100, 0.06 ms.
- Bytes. A target in layer 1 costs 1 KB of its sum (read and written), 1 KB of cached root term, 1 KB of new
  hidden row and 0.6 KB of projections; one in layer 2 0.3 KB of its sum, 0.3 KB of root term and output. At
  53 GB/s: directed, B = 1000, 2,600 and 11,500 targets are 17 MB, 0.3 ms.
- FLOP. A target in layer 1 pays 2 * 128 * 256 for its aggregate and 2 * 256 * 80 for both projections of
  layer 2, a changed feature 2 * 128 * 256 more for its root term: 0.1 MFLOP a target. Directed, B = 1000:
  0.3 GFLOP, 1.5 ms at 200 GFLOP/s (100 a core): the matrix product bounds large batches. B = 1: under a
  microsecond; the crossings from Python into C++ bound small ones.

The column `floor` is this estimate with the numbers counted in the run: the larger of bytes over 53 GB/s and
row additions over 35 M/s, plus FLOP over 200 GFLOP/s (a product waits for its sums, so the two do not
overlap). The three rates are those of two cores of the machine the project was measured on (AMD Zen 4).
"""

from __future__ import annotations

import gc
from argparse import Namespace
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import livegnn as lg
from graphs import SHAPES, Batch, Shape, UpdateStream, make, make_stream
from livegnn.oracle.exactness import EXACTNESS, judge
from peers import PEERS, SAGE, Peer, Work, make_model
from report import Report, arguments, memory_gib
from stopwatch import median_ms, p99_ms, time_each

HIDDEN = 256
BYTES_PER_S, ROWS_PER_S, FLOP_PER_S = 53e9, 35e6, 200e9

BATCHES = {
    "directed": {1: 3000, 10: 1000, 100: 300, 1000: 60},
    "symmetric": {1: 1000, 10: 300, 100: 100, 1000: 20},
}
QUICK_BATCHES = {1: 300, 10: 100, 100: 30, 1000: 6}

# On two cores, the share of Python included; for the shape of arxiv only.
MEDIAN_AIMS = {
    ("directed", 1): 0.03,
    ("directed", 10): 0.06,
    ("directed", 100): 0.35,
    ("symmetric", 10): 1.0,
    ("symmetric", 100): 6.0,
}
UPDATES_AIMS = {("directed", 1000): 350_000.0}
RATIO_AIMS = {"directed": 4.0, "symmetric": 8.0}


@dataclass(frozen=True)
class Course:
    """What one competitor did with the batches of one size."""

    name: str
    seconds: NDArray[np.float64]
    works: list[Work]

    @property
    def median_ms(self) -> float:
        return median_ms(self.seconds)


def events_of(batch: Batch) -> lg.Events:
    """A batch as LiveGNN takes it: the same columns that the peers get, one chunk for each kind."""
    events = lg.Events()
    if len(batch.remove_src):
        events.remove_edges(batch.remove_src, batch.remove_dst)
    if len(batch.add_src):
        events.add_edges(batch.add_src, batch.add_dst)
    if len(batch.ids):
        events.set_features(batch.ids, batch.x)
    return events


def floor_ms(works: list[Work], features: int, classes: int) -> float:
    """The median over batches of what no program undercuts on the machine of the estimate above."""
    floors = []
    for work in works:
        (messages_1, messages_2), (affected_1, affected_2) = work.messages, work.affected
        floats = work.edge_events * (features + classes) + work.features * (2 * features + HIDDEN)
        floats += affected_1 * (2 * features + 2 * HIDDEN + 4 * classes) + affected_2 * 4 * classes
        bytes_moved = 4 * (floats + messages_1 + messages_2)
        flop = 2 * affected_1 * HIDDEN * (features + 2 * classes) + 2 * work.features * features * HIDDEN
        memory = max(bytes_moved / BYTES_PER_S, (messages_1 + messages_2) / ROWS_PER_S)
        floors.append(memory + flop / FLOP_PER_S)
    return float(np.median(floors)) * 1e3


def run_peer(
    peer: Peer, stream: UpdateStream, size: int, count: int, start: int, options: Namespace
) -> Course:
    """As many batches as the time allows, timed, and what is left of the events as one batch, not timed."""
    seconds, results = time_each(
        peer.apply,
        stream.batches(size, count, start),
        at_least=options.peer_batches,
        budget_s=options.peer_seconds,
    )
    done = start + size * (len(seconds) + 1)
    if done < start + size * count:
        peer.apply(stream.batch(done, start + size * count))
    works = [work for work in results if work is not None]
    return Course(peer.name, seconds, works)


def difference(rows: Tensor, expected: Tensor) -> float:
    """Largest difference, as a part of its channel's scale."""
    return judge(rows.numpy(), expected.numpy()).of_scale


def memory_needed(shape: Shape) -> float:
    """GiB, about: rows that LiveGNN and three peers keep, and six 64-bit neighbour lists with slack."""
    rows = 4 * 4 * shape.nodes * 2 * (shape.features + HIDDEN + shape.classes)
    return (rows + 6 * 8 * 2.5 * shape.directed_edges) / 2**30


def run_variant(report: Report, variant: str, model: SAGE, options: Namespace) -> None:
    """All batch sizes, one after the other on one stream."""
    undirected = variant == "symmetric"
    graph = make(options.shape, symmetric=undirected)
    counts = QUICK_BATCHES if options.quick else BATCHES[variant]
    total = sum(size * (count + 1) for size, count in counts.items())
    stream = make_stream(graph, total + -total % 3)
    aims = options.shape == "arxiv"

    live = lg.Graph.from_edges(
        stream.start_src, stream.start_dst, x=graph.x, num_nodes=graph.num_nodes, undirected=undirected
    )
    engine = lg.Engine(live, lg.Model.from_pyg(model), threads=options.threads)
    peers: list[Peer] = [
        peer(model, graph.x, stream.start_src, stream.start_dst, undirected) for peer in PEERS
    ]
    full, *others = peers
    differences = {"LiveGNN": 0.0} | {peer.name: 0.0 for peer in others}

    start = 0
    for size, timed in counts.items():
        report.console.print(f"{graph.name}, {variant}, batches of {size:,}", style="dim")
        count = timed + 1  # the first warms up
        name = f"{variant}, batch {size}"
        building, built = time_each(events_of, stream.batches(size, count, start), warm_up=0)
        seconds, updates = time_each(engine.apply, built)
        affected = float(np.median([update.affected for update in updates]))
        courses = [run_peer(peer, stream, size, count, start, options) for peer in peers]
        start += size * count

        best = min(courses, key=lambda course: course.median_ms)
        floor = floor_ms(courses[-1].works, graph.num_features, graph.num_classes)
        median_aim = MEDIAN_AIMS.get((variant, size)) if aims else None
        updates_aim = UPDATES_AIMS.get((variant, size)) if aims else None
        report.add(
            f"{name}: median",
            median_ms(seconds),
            "ms",
            aim=median_aim,
            peer=best.name,
            peer_value=best.median_ms,
            floor=floor,
        )
        report.add(f"{name}: p99", p99_ms(seconds), "ms", peer=best.name, peer_value=p99_ms(best.seconds))
        report.add(
            f"{name}: updates",
            size * len(seconds) / seconds.sum(),
            "1/s",
            higher_is_better=True,
            aim=updates_aim,
            peer=best.name,
            peer_value=size * len(best.seconds) / best.seconds.sum(),
        )
        report.add(
            f"{name}: times as fast as a peer",
            best.median_ms / median_ms(seconds),
            "x",
            higher_is_better=True,
            aim=RATIO_AIMS[variant] if aims else None,
        )
        report.add(f"{name}: affected nodes, median", affected, "nodes")
        report.add(f"{name}: building the events, median", median_ms(building), "ms")
        for course in courses:
            report.add(f"{name}: {course.name}, median", course.median_ms, "ms")
            report.add(f"{name}: {course.name}, timed", len(course.seconds), "batches")

        embeddings = [torch.from_numpy(engine.embeddings(layer)) for layer in (1, 2)]
        for who, (hidden, output) in [
            ("LiveGNN", embeddings),
            *((peer.name, (peer.hidden, peer.output)) for peer in others),
        ]:
            found = max(difference(hidden, full.hidden), difference(output, full.output))
            differences[who] = max(differences[who], found)
        gc.collect()
    for who, found in differences.items():
        report.add(
            f"{variant}: {who}, max difference",
            found,
            "of scale",
            aim=EXACTNESS,
        )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shape", choices=SHAPES, help="default: arxiv, or arxiv-tenth with --quick")
    parser.add_argument("--variant", choices=BATCHES, help="default: both, one after the other")
    parser.add_argument("--threads", type=int, default=2, help="of LiveGNN (default: 2)")
    parser.add_argument("--peer-threads", type=int, default=2, help="of torch (default: 2)")
    parser.add_argument(
        "--peer-seconds",
        type=float,
        help="when a peer has spent this on a batch size, it stops (default: 20)",
    )
    options = parser.parse_args()
    options.shape = options.shape or ("arxiv-tenth" if options.quick else "arxiv")
    options.peer_seconds = options.peer_seconds or (2.0 if options.quick else 20.0)
    options.peer_batches = 3 if options.quick else 5
    torch.set_num_threads(options.peer_threads)

    report = Report(f"incremental inference, {options.shape}, {options.threads} threads")
    form = SHAPES[options.shape]
    model = make_model(form.features, HIDDEN, form.classes)
    for variant in [options.variant] if options.variant else BATCHES:
        if memory_needed(form) > memory_gib():
            why = f"needs some {memory_needed(form):.0f} GiB of memory, this machine has {memory_gib():.0f}"
            report.could_not_run(f"{options.shape}, {variant}", why)
        else:
            run_variant(report, variant, model, options)
    report.note("Differences are from PyG's computation of all nodes, hidden and output layer.")
    report.note(
        f"torch: {options.peer_threads} threads. Medians over batches; the first of each size warms up."
    )
    report.finish(options.json)


if __name__ == "__main__":
    main()
