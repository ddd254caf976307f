"""What an engine keeps, in bytes, and what a batch of 100 events costs, with each setting that saves memory;
and how much a process grows by a graph and by an engine, beside what `memory()` says of them.

The shape of ogbn-arxiv, SAGE-mean and GCN, 128 -> 256 -> 40, on the directed graph.

What it must cost
-----------------
- SAGE keeps 128 floats of a first aggregate, the 256 of the root term, the 40 that are sent (stride 48), the
  second aggregate, the second root term and the output: per node 4 * (128 + 256 + 4 * 48) bytes, 390 MB. Its
  aggregates alone are 4 * (128 + 48): 119 MB, a third. GCN sends rows of its own and keeps no root term.
- A row that is computed anew costs its products: 2 * 128 * 256 * 2 FLOP of the first layer and 2 * 256 * 40,
  0.15 MFLOP, about a microsecond; a batch of 100 reaches some thousand rows, so about a millisecond.
- Without its aggregates, a row costs those of its neighbours, and theirs: with a mean degree of 7, some 50
  rows of 128 floats, and 7 first layers. That is the order of magnitude that the paper speaks of.
"""

from __future__ import annotations

import gc
import tempfile
from dataclasses import dataclass

import torch
from torch_geometric.nn import GCN

import livegnn as lg
from contest import in_child, resident
from graphs import SHAPES, SyntheticGraph, UpdateStream, make, make_stream
from incremental import events_of
from livegnn.compiler.plan import Keep
from livegnn.oracle.exactness import EXACTNESS, judge
from peers import make_model
from report import Report, arguments
from stopwatch import median_ms, time_each

HIDDEN, SIZE = 256, 100
DEGREES = (2, 4, 16)
PARTS = ("aggregates", "layer outputs", "contexts", "errors", "residents")
MODELS = ("sage", "gcn")


def import_model(name: str, graph: SyntheticGraph) -> lg.Model:
    torch.manual_seed(0)
    if name == "sage":
        return lg.Model.from_pyg(make_model(graph.num_features, HIDDEN, graph.num_classes))
    return lg.Model.from_pyg(GCN(graph.num_features, HIDDEN, 2, graph.num_classes).eval())


class Course:
    """One engine on a stream of its own."""

    def __init__(
        self,
        graph: SyntheticGraph,
        stream: UpdateStream,
        model: lg.Model,
        count: int,
        threads: int,
        *,
        keep: Keep = "all",
        keep_degree: int = 0,
        state_dir: str | None = None,
    ) -> None:
        live = lg.Graph.from_edges(stream.start_src, stream.start_dst, x=graph.x, num_nodes=graph.num_nodes)
        engine = lg.Engine(
            live, model, threads=threads, keep=keep, keep_degree=keep_degree, state_dir=state_dir
        )
        seconds, _ = time_each(engine.apply, map(events_of, stream.batches(SIZE, count + 1)), keep_last=True)
        self.median_ms = median_ms(seconds)
        memory = engine.memory()
        self.parts = {part: memory[part] for part in PARTS if memory.get(part)}
        self.mapped = memory.get("mapped state", 0)
        self.predictions = engine.predict(range(0, graph.num_nodes, 100))


@dataclass(frozen=True)
class Weight:
    """Bytes that `memory()` counts, and by which the process has grown."""

    counted: int
    grown: int


def weigh(graph: SyntheticGraph, model: lg.Model, threads: int) -> tuple[Weight, Weight]:
    """Of a graph, both its lists and its features; and of it with an engine. In a process of its own."""

    def measure() -> tuple[Weight, Weight]:
        before = resident()
        live = lg.Graph.from_edges(graph.src, graph.dst, x=graph.x, num_nodes=graph.num_nodes)
        gc.collect()
        alone = Weight(sum(live.memory().values()), resident() - before)
        engine = lg.Engine(live, model, threads=threads)
        gc.collect()
        return alone, Weight(sum(engine.memory().values()), resident() - before)

    return in_child(measure)


def add_weights(report: Report, graph: SyntheticGraph, model: lg.Model, threads: int) -> None:
    report.section(f"{graph.num_edges:,} directed edges: what is counted, and what the process grows by")
    rows = graph.x.nbytes
    for name, weight in zip(("graph", "graph and engine"), weigh(graph, model, threads), strict=True):
        for word, size in (("memory()", weight.counted), ("growth of the process", weight.grown)):
            report.add(f"{name}: {word}", size / 2**20, "MiB")
            if name == "graph":
                per_edge = (size - rows) / graph.num_edges
                report.add(f"{name}: {word}, for an edge, without features", per_edge, "bytes")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shape", choices=SHAPES, help="default: arxiv, or arxiv-tenth with --quick")
    parser.add_argument("--model", choices=MODELS, help="default: both, one after the other")
    parser.add_argument("--threads", type=int, default=2, help="of LiveGNN (default: 2)")
    parser.add_argument("--batches", type=int, help="timed for each setting (default: 20; quick: 3)")
    options = parser.parse_args()
    shape = options.shape or ("arxiv-tenth" if options.quick else "arxiv")
    count = options.batches or (3 if options.quick else 20)
    graph = make(shape)
    total = SIZE * (count + 1)
    stream = make_stream(graph, total + -total % 3)

    report = Report(f"memory, {shape}, {options.threads} threads")
    add_weights(report, graph, import_model("sage", graph), options.threads)
    report.section("what an engine keeps")
    for name in [options.model] if options.model else MODELS:
        model = import_model(name, graph)
        plain: Course | None = None
        with tempfile.TemporaryDirectory() as folder:
            for setting, chosen in {
                "all": {},
                "all, mapped": {"state_dir": folder},
                "aggregates": {"keep": "aggregates"},
                **{f"degree of {d}": {"keep_degree": d} for d in DEGREES},
            }.items():
                report.console.print(f"{name}, {setting}", style="dim")
                course = Course(graph, stream, model, count, options.threads, **chosen)
                plain = plain or course
                for part, size in course.parts.items():
                    report.add(f"{name}, {setting}: {part}", size / 2**20, "MiB")
                report.add(
                    f"{name}, {setting}: kept",
                    sum(course.parts.values()) / 2**20,
                    "MiB",
                    peer="all",
                    peer_value=sum(plain.parts.values()) / 2**20,
                )
                report.add(f"{name}, {setting}: of that in files", course.mapped / 2**20, "MiB")
                report.add(
                    f"{name}, {setting}: batch of {SIZE}, median",
                    course.median_ms,
                    "ms",
                    peer="all",
                    peer_value=plain.median_ms,
                )
                found = judge(course.predictions, plain.predictions).of_scale
                report.add(f"{name}, {setting}: max difference", found, "of scale", aim=EXACTNESS)
                gc.collect()
    report.note("The graph and its features come on top, the same for all settings.")
    report.note("Differences are from an engine that keeps all.")
    report.finish(options.json)


if __name__ == "__main__":
    main()
