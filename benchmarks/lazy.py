"""Computing predictions when they are asked for (NeutronRT, section V.D and figure 12d).

The graph has the shape of ogbn-arxiv (see graphs.py); the models are SAGE-mean and GCN, 128 -> 256 -> 40
with a ReLU between. A batch of events is applied, then a query asks for 1, 10, 100, 1,000 or 10,000 of the
nodes that the batch affected, or for all of them: the extreme case, since a query of other nodes computes
nothing. What is timed is both together, batch and query. Once directed, with batches of 1,000 events; once
on the same graph made symmetric, where 100 events reach most of the graph.

- *lazy*: LiveGNN with ``mode="lazy"``. Before each batch it is settled, untimed, so that each query pays
  for its own batch, neither more nor less.
- *eager*: LiveGNN as by default; the batch computes everything, the query reads.
- *torch, the query's neighbourhood*: full recomputation of the query's two hops (peers.py). It keeps no
  embeddings, so its batch is nothing but the change of its lists. That is the fair peer of a query: it does
  what a service without a live engine does, in plain torch without a framework's overhead.

What a query must cost
----------------------
A node that a query asks for has 7 in-neighbours, and these 7 each: some 50 rows of 128 floats and 8
products of 256 x 128 and 40 x 256, 0.7 MFLOP, if all is computed anew: 7 us on one core. Lazily, the batch
of 1,000 has changed 330 rows of features and reached 2,600 nodes of 169,000 in the first layer, so that few
of the 8 need a product: one query of one node costs microseconds, and what remains is applying the batch.
Marking what 1,000 events reach follows some 20,000 edges, a few nanoseconds each if the bits lie in the
cache: 0.1 ms; staging and storing the events themselves, some 0.5 ms, both modes pay. All affected nodes
are some 12,000 rows: what the eager batch costs, 3 ms, and some more for finding in-edges that changed
rather than being told of them.
"""

from __future__ import annotations

import gc
import time
from argparse import Namespace

import numpy as np
import torch
from numpy.typing import NDArray

import livegnn as lg
from graphs import SHAPES, Batch, make, make_stream
from incremental import events_of
from livegnn.oracle.exactness import EXACTNESS, judge, scales_of
from peers import GCN, SAGE, NeighborhoodRecomputation
from report import Report, arguments

HIDDEN = 256
QUERIES = (1, 10, 100, 1_000, 10_000, None)  # None: all that is affected
BATCH = {"directed": 1_000, "symmetric": 100}
MODELS = {"SAGE": SAGE, "GCN": GCN}


class Contest:
    """The same batches and the same queries for everybody; seconds of each batch with its query."""

    def __init__(self, model: SAGE | GCN, variant: str, options: Namespace, batches: int) -> None:
        undirected = variant == "symmetric"
        size = BATCH[variant]
        self.graph = make(options.shape, symmetric=undirected)
        self.stream = make_stream(self.graph, size * batches + -(size * batches) % 3)
        self._batches = self.stream.batches(size, batches)
        source = lg.Model.from_pyg(model)
        start = self.stream.start_src, self.stream.start_dst

        def engine(mode: str) -> lg.Engine:
            live = lg.Graph.from_edges(
                *start, x=self.graph.x, num_nodes=self.graph.num_nodes, undirected=undirected
            )
            return lg.Engine(live, source, threads=options.threads, mode=mode)

        self.lazy, self.eager = engine("lazy"), engine("eager")
        self.peer = NeighborhoodRecomputation(model, self.graph.x, *start, undirected)
        self.rng = np.random.default_rng(0)
        self.difference = 0.0

    def play(self, count: int | None) -> dict[str, float] | None:
        """One batch and one query of `count` nodes; None if fewer were affected."""
        batch = next(self._batches)
        seconds: dict[str, float] = {}
        events = [events_of(batch) for _ in range(2)]
        started = time.perf_counter()
        update = self.lazy.apply(events[0])
        seconds["lazy batch"] = time.perf_counter() - started
        affected = update.changed
        if count is not None and count > len(affected):
            self.lazy.settle()
            self.eager.apply(events[1])
            self.peer.apply(batch)
            return None
        ids = affected if count is None else self.rng.choice(affected, count, replace=False)
        started = time.perf_counter()
        got = self.lazy.predict(ids)
        seconds["lazy query"] = time.perf_counter() - started
        seconds["lazy"] = seconds["lazy batch"] + seconds["lazy query"]

        started = time.perf_counter()
        self.eager.apply(events[1])
        expected = self.eager.predict(ids)
        seconds["eager"] = time.perf_counter() - started
        seconds["peer"], rows = self._ask_peer(batch, ids)
        scales = scales_of(self.eager.embeddings(-1))
        for others in (expected, rows):
            self.difference = max(self.difference, judge(got, others, scales=scales).of_scale)
        seconds["affected"] = float(len(affected))
        self.lazy.settle()
        return seconds

    def _ask_peer(self, batch: Batch, ids: NDArray[np.int64]) -> tuple[float, NDArray[np.float32]]:
        started = time.perf_counter()
        self.peer.apply(batch)
        rows = self.peer.query(ids)
        return time.perf_counter() - started, rows.numpy()


def run_variant(report: Report, name: str, variant: str, options: Namespace) -> None:
    torch.manual_seed(0)
    form = SHAPES[options.shape]
    model = MODELS[name](form.features, HIDDEN, form.classes).eval()
    repeats = 4 if options.quick else 10
    contest = Contest(model, variant, options, len(QUERIES) * (repeats + 1))
    for count in QUERIES:
        gc.collect()
        gc.disable()
        played = [contest.play(count) for _ in range(repeats + 1)][1:]  # the first warms up
        gc.enable()
        what = "all affected" if count is None else f"{count:,}"
        title = f"{name}, {variant}, batch {BATCH[variant]:,}, query of {what}"
        rounds = [seconds for seconds in played if seconds is not None]
        if not rounds:
            report.could_not_run(title, "fewer nodes are affected")
            continue
        median = {key: float(np.median([seconds[key] for seconds in rounds])) for key in rounds[0]}
        ms = {key: value * 1e3 for key, value in median.items()}
        report.add(f"{title}: beside eager", ms["lazy"], "ms", peer="eager", peer_value=ms["eager"])
        report.add(f"{title}: beside torch", ms["lazy"], "ms", peer=contest.peer.name, peer_value=ms["peer"])
        report.add(f"{title}: the query alone", ms["lazy query"], "ms")
        if count is None:
            report.add(f"{title}: affected", median["affected"], "nodes")
    report.add(f"{name}, {variant}: max difference", contest.difference, "of scale", aim=EXACTNESS)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shape", choices=SHAPES, help="default: arxiv, or arxiv-tenth with --quick")
    parser.add_argument("--variant", choices=BATCH, help="default: both, one after the other")
    parser.add_argument("--model", choices=MODELS, help="default: both, one after the other")
    parser.add_argument("--threads", type=int, default=2, help="of LiveGNN and of torch (default: 2)")
    options = parser.parse_args()
    options.shape = options.shape or ("arxiv-tenth" if options.quick else "arxiv")
    torch.set_num_threads(options.threads)
    report = Report(f"predictions on demand, {options.shape}, {options.threads} threads")
    for name in [options.model] if options.model else MODELS:
        for variant in [options.variant] if options.variant else BATCH:
            report.console.print(f"{name}, {variant}", style="dim")
            run_variant(report, name, variant, options)
    report.note("Batch and query together, medians; differences are to the eager engine and to torch.")
    report.finish(options.json)


if __name__ == "__main__":
    main()
