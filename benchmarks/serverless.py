"""A function over a graph in object storage: whole data at a cold start, on demand, and on demand with a
cache and a load-aware scheduler, in FaaS-GNN's evaluation.

    python benchmarks/serverless.py [--quick] [--keep FOLDER] [--plots FOLDER] [--json FILE]

All contestants run the same predictor, on the same snapshot, through the same store: 500 MB a second for all
workers of a node together, 2 milliseconds until a request answers (`ThrottledStore`).

whole data        a worker fetches all objects when it starts, and reads them from memory; a request that
                  finds no worker idle starts one and waits for it (`Policy.BOUND`)
plain on-demand   a worker fetches what a request reads, and keeps nothing; the same scheduler
ours              features are kept once for all workers of a node, in what their memory leaves;
                  `Policy.LOAD_AWARE`
ablations         ours with a cache for each worker, ours without cache, ours without queue

What is measured and what is simulated
--------------------------------------
Dozens of workers do not fit on two cores. So the parts are measured: real requests, with and without cache,
through the real throttled store (`serverless_parts.py`), starts of real worker processes, their memory,
peaks of requests, the predictions of memory. A trace is then replayed in virtual time
(`serverless_replay.py`) by the real scheduler, the real spread over nodes and a real cache for each node;
requests take what the measured ones say. How far that is from measured requests is in the rows "sum of the
costs"; a piece of the trace is answered by the processes of `livegnn function serve` as well, and stands
beside the replay's forecast of it.

The shapes are the paper's, or a stated part of them; sequences of nodes repeat as its figure 6 says, see
`serverless_shapes.py`. As in the paper, each trace is scaled so that a node can just handle its peak: its 16
cores, and the store's bandwidth, by the needs of plain on-demand. Of more requests than the limit, the part
around the busiest second is replayed. A worker's memory is its process, the peak of the node with the
greatest in-degree, and all data for "whole data". Gigabyte-seconds count from launch to stop, with the ten
minutes for which a worker is kept. The server is the paper's c4.2xlarge, 0.398 $ an hour; a function costs
1.67e-5 $ a gigabyte-second while it starts and executes, as AWS Lambda bills.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from plots import Bars, Lines, cumulative, draw
from report import Report, arguments
from serverless_replay import CORES, NO_CACHE, NO_QUEUE, OURS, PLAIN, PRIVATE, WHOLE, Contestant, Outcome
from serverless_shapes import PATTERNS, SHAPES, GraphShape
from serverless_study import Findings, Task, start_pyg, study

ALL = [WHOLE, PLAIN, OURS, PRIVATE, NO_CACHE, NO_QUEUE]
THREE = [WHOLE, PLAIN, OURS]
MAIN = ("bursty", "steady")
SERVER_DAY, GIGABYTE_SECOND = 24 * 0.398, 1.67e-5
SCALES = {"RE": 1.0, "TW": 1.0, "ST": 0.25, "PA": 1 / 64}
PAPER_NODE_MEMORY = 125e9


def make_tasks(folder: Path, quick: bool) -> list[Task]:
    """The longest first."""

    def task(name: str, model: str, traces: dict[str, list[Contestant]], **more: object) -> Task:
        scale = SCALES[name] / (8 if quick else 1)
        counts = (30, 25, 40) if quick else (60, 150, 200)
        shape = SHAPES[name].scaled(scale)
        given = {"most": 300 if quick else 3000, "counts": counts, **more}
        return Task(folder / f"{name}-{scale:g}", shape, model, traces, **given)  # type: ignore[arg-type]

    both = dict.fromkeys(MAIN, ALL)
    if quick:
        return [task("RE", "GCN-2", {"bursty": ALL, "day": [OURS]}, nodes=(2,), real=20, figures=True)]
    six = {**both, **dict.fromkeys([one for one in PATTERNS if one not in MAIN], THREE)}
    rest = [task(name, model, both) for name in ("ST", "TW", "RE") for model in ("GAT-2", "GCN-2")]
    by_name = {one.name: one for one in rest}
    figures = [by_name["ST GCN-2"], by_name["RE GCN-2"]]
    rest = [one for one in rest if one.name not in ("ST GCN-2", "RE GCN-2", "TW GCN-2")]
    large = {"bursty": THREE}
    memory = PAPER_NODE_MEMORY * SCALES["PA"]
    return [
        task("TW", "GCN-2", {**six, "day": [PLAIN, OURS]}, nodes=(2, 4, 8), real=60, figures=True),
        *(task(one.shape.name, one.model, both, figures=True) for one in figures),
        *rest,
        *(task("PA", model, large, node_memory=memory) for model in ("GCN-2", "GAT-2")),
        *(task("RE", model, large) for model in ("GCN-3", "GAT-3", "GCN-4", "GAT-4")),
    ]


def run(tasks: list[Task]) -> tuple[list[Findings], dict[str, int]]:
    """Builds and studies, two at a time; each process has one core."""
    shapes: dict[Path, tuple[GraphShape, list[str]]] = {}
    for task in tasks:
        shapes.setdefault(task.folder, (task.shape, []))[1].append(task.model)
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    cores = min(len(os.sched_getaffinity(0)), 2)
    with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
        building = {
            shape.name: pool.submit(_build, folder, shape, models)
            for folder, (shape, models) in shapes.items()
        }
        edges = {name: one.result() for name, one in building.items()}
    with ProcessPoolExecutor(cores, get_context("spawn"), max_tasks_per_child=1) as pool:
        return list(pool.map(study, tasks)), edges


def _build(folder: Path, shape: GraphShape, models: list[str]) -> int:
    from serverless_build import build  # imports torch, which studies must not have

    return build(folder, shape, models, pyg=shape.name == "RE")


def mean_ratio(pairs: Iterable[tuple[float, float]]) -> float:
    """The geometric mean of quotients."""
    return math.exp(statistics.fmean(math.log(a / b) for a, b in pairs))


def add_settings(report: Report, found: list[Findings]) -> None:
    """Every shape, model and trace by itself."""
    report.section("each setting: mean and p99 of latency, gigabyte-seconds; the peers' in the columns")
    for one in found:
        for trace in one.task.traces:
            ours = one.outcomes[trace, OURS.name, 1]
            for peer in (WHOLE, PLAIN):
                if (trace, peer.name, 1) not in one.outcomes:
                    continue
                other = one.outcomes[trace, peer.name, 1]
                name = f"{one.task.name}, {trace}"
                values = [("mean", ours.mean, other.mean), ("p99", ours.p99, other.p99)]
                for what, mine, theirs in values:
                    report.add(f"{name}, {what}", 1e3 * mine, "ms", peer=peer.name, peer_value=1e3 * theirs)
                report.add(
                    f"{name}, memory",
                    ours.gigabyte_seconds,
                    "GB s",
                    peer=peer.name,
                    peer_value=other.gigabyte_seconds,
                )


class Pairs:
    """Outcomes of two contestants in the settings of the paper's main figures."""

    def __init__(self, found: list[Findings], aimed: bool) -> None:
        self._found = [one for one in found if one.task.model.endswith("-2") and one.task.shape.name != "PA"]
        self._aimed = aimed

    def outcomes(self, one: Contestant) -> list[Outcome]:
        return [
            each.outcomes[trace, one.name, 1]
            for each in self._found
            for trace in each.task.traces
            if trace in MAIN
        ]

    def times(self, peer: Contestant, value: str) -> float:
        """How many times lower ours is."""
        return mean_ratio(
            (getattr(theirs, value), getattr(mine, value))
            for theirs, mine in zip(self.outcomes(peer), self.outcomes(OURS), strict=True)
        )

    def features(self, peer: Contestant) -> float:
        return mean_ratio(
            (theirs.features.mean(), mine.features.mean())
            for theirs, mine in zip(self.outcomes(peer), self.outcomes(OURS), strict=True)
        )

    def cold(self) -> float:
        return mean_ratio(
            (statistics.fmean(theirs.cold_fetch), statistics.fmean(mine.cold_fetch))
            for theirs, mine in zip(self.outcomes(WHOLE), self.outcomes(OURS), strict=True)
        )

    def aim(self, value: float) -> float | None:
        return value if self._aimed else None


def add_summary(report: Report, found: list[Findings], aimed: bool) -> None:
    pairs = Pairs(found, aimed)
    higher = {"higher_is_better": True}

    def times(name: str, value: float, aim: float) -> None:
        report.add(name, value, "times", aim=pairs.aim(aim), **higher)  # type: ignore[arg-type]

    def less(name: str, ratio: float, aim: float) -> None:
        report.add(name, 100 * (1 - 1 / ratio), "%", aim=pairs.aim(aim), **higher)  # type: ignore[arg-type]

    times("mean latency lower than whole data's", pairs.times(WHOLE, "mean"), 5.6)
    times("p99 lower than whole data's", pairs.times(WHOLE, "p99"), 7.27)
    times("mean latency lower than plain on-demand's", pairs.times(PLAIN, "mean"), 1.25)
    times("p99 lower than plain on-demand's", pairs.times(PLAIN, "p99"), 3.5)
    less("memory less than plain on-demand's", pairs.times(PLAIN, "gigabyte_seconds"), 8.1)
    less("memory less than whole data's", pairs.times(WHOLE, "gigabyte_seconds"), 57.0)
    times("time fetching lists and features less than plain on-demand's", pairs.times(PLAIN, "fetching"), 5.2)
    times("time fetching features less than plain on-demand's", pairs.features(PLAIN), 5.2)
    times("time fetching in a cold worker less than whole data's", pairs.cold(), 5.2)
    for what, value in (("mean latency", "mean"), ("p99", "p99"), ("time fetching", "fetching")):
        name = f"{what} lower than with a cache for each worker"
        report.add(name, pairs.times(PRIVATE, value), "times", **higher)  # type: ignore[arg-type]
    times("mean latency lower than without cache", pairs.times(NO_CACHE, "mean"), 1.20)
    times("mean latency lower than without queue", pairs.times(NO_QUEUE, "mean"), 1.12)
    social = [one for one in found if one.task.shape.name in ("TW", "ST") and one.task.model.endswith("-2")]
    for name, some in (("TW and ST", social), ("RE", [one for one in found if one not in social])):
        some = [one for one in some if one.task.model.endswith("-2") and one.task.shape.name != "PA"]
        values = [one.outcomes[t, OURS.name, 1].reused for one in some for t in one.task.traces if t in MAIN]
        if values:
            aim = pairs.aim(85.0) if some == social else None
            report.add(f"features reused, {name}", 100 * statistics.fmean(values), "%", aim=aim, **higher)  # type: ignore[arg-type]
            values = [
                one.outcomes[t, PRIVATE.name, 1].reused for one in some for t in one.task.traces if t in MAIN
            ]
            name = f"features reused with a cache for each worker, {name}"
            report.add(name, 100 * statistics.fmean(values), "%", **higher)  # type: ignore[arg-type]
    shares = [one.share for one in pairs.outcomes(OURS)]
    report.add("nodes fetched of the graph", 100 * statistics.fmean(shares), "%", aim=pairs.aim(5.0))
    add_overheads(report, found, pairs)
    add_scaling(report, found, pairs)


def add_overheads(report: Report, found: list[Findings], pairs: Pairs) -> None:
    errors = [one.parts.memory.error for one in found]
    report.add("memory prediction, mean error", 100 * statistics.fmean(errors), "%", aim=pairs.aim(10.0))
    report.add("memory prediction, worst error of a setting", 100 * max(errors), "%", aim=pairs.aim(10.0))
    cached = [each for one in found for each in one.parts.cached]
    seconds = statistics.fmean(each.memory for each in cached)
    report.add("memory prediction, mean time", 1e3 * seconds, "ms", aim=pairs.aim(1.0))
    shares = [
        sum(each.cache for each in one.parts.cached) / sum(each.total for each in one.parts.cached)
        for one in found
    ]
    report.add(
        "operations of the cache, of requests", 100 * statistics.fmean(shares), "%", aim=pairs.aim(3.9)
    )
    report.add("operations of the cache, worst setting", 100 * max(shares), "%", aim=pairs.aim(3.9))
    # The paper counts eviction and update; what is reported above also looks up and copies what is reused.
    shares = [
        sum(each.change for each in one.parts.cached) / sum(each.total for each in one.parts.cached)
        for one in found
    ]
    name = "eviction and update of the cache, of requests"
    report.add(name, 100 * statistics.fmean(shares), "%", aim=pairs.aim(2.6))
    report.add(f"{name}, worst setting", 100 * max(shares), "%", aim=pairs.aim(3.9))
    decisions = [one.decision_seconds.mean() for one in pairs.outcomes(OURS)]
    report.add("a decision of the scheduler", 1e3 * statistics.fmean(decisions), "ms", aim=pairs.aim(0.1))
    profiles = [one.parts.profile_seconds for one in found]
    report.add("profiling and training, worst", max(profiles), "s")
    report.add("sum of the costs, error, median", 100 * statistics.median(one.error for one in found), "%")
    report.add("sum of the costs, error, worst", 100 * max(one.error for one in found), "%")
    for one in found:
        if one.real is not None:
            real, said = one.real
            for what, value in (
                ("mean", np.mean),
                ("median", np.median),
                ("p99", lambda x: np.percentile(x, 99)),
            ):
                report.add(
                    f"{one.task.name}, {len(real)} requests by real processes, {what}",
                    1e3 * float(value(real)),
                    "ms",
                    peer="the replay's",
                    peer_value=1e3 * float(value(said)),
                )


def add_scaling(report: Report, found: list[Findings], pairs: Pairs) -> None:
    for one in found:
        for contestant in (OURS, PLAIN, WHOLE) if one.task.nodes else ():
            # One node has the bandwidth of one store; from two on the load is below it, as in the paper.
            numbers = [1, *one.task.nodes]
            values = [one.outcomes["bursty", contestant.name, number].mean for number in numbers]
            first = 1 if len(values) > 2 else 0
            report.add(
                f"{contestant.name}, mean latency with {numbers[-1]} nodes over {numbers[first]}",
                values[-1] / values[first],
                "times",
                aim=pairs.aim(1.1) if contestant is OURS else None,
            )
        if one.task.shape.name == "PA":
            ours, plain, whole = (one.outcomes["bursty", each.name, 1] for each in (OURS, PLAIN, WHOLE))
            less = 100 * (1 - ours.mean / plain.mean)
            report.add(
                f"{one.task.name}, latency below plain on-demand", less, "%", higher_is_better=True, aim=77.0
            )
            less = 100 * (1 - ours.gigabyte_seconds / plain.gigabyte_seconds)
            report.add(
                f"{one.task.name}, memory below plain on-demand", less, "%", higher_is_better=True, aim=78.0
            )
            wanted = whole.memory_at(whole.lives[:, 0]).max()
            if wanted > one.task.node_memory:
                report.could_not_run(
                    f"{one.task.name}, whole data",
                    f"its workers would take {wanted / 1e9:.1f} GB at once, the node has "
                    f"{one.task.node_memory / 1e9:.2f} GB",
                )
        if "day" in one.task.traces:
            ours = one.outcomes["day", OURS.name, 1]
            costs = ours.billed * GIGABYTE_SECOND
            name = f"cost below a server's, {one.task.name}, a day of {len(ours.latency):,} requests"
            saved = 100 * (1 - costs / SERVER_DAY)
            report.add(name, saved, "%", higher_is_better=True, aim=pairs.aim(48.6))
            kept = 100 * (1 - ours.gigabyte_seconds * GIGABYTE_SECOND / SERVER_DAY)
            report.add(
                "the same, if the time were billed for which workers are kept",
                kept,
                "%",
                higher_is_better=True,
            )


def add_starts(report: Report, found: list[Findings]) -> None:
    report.section("starts and single requests")
    one = next(each for each in found if each.task.name == "RE GCN-2")
    pyg = statistics.median(start_pyg(one.task.folder, 17) for _ in range(3))
    for each in found:
        for opener in ("open_ours", "open_whole"):
            start = each.parts.starts[opener]
            whose = "whole data" if opener == "open_whole" else "ours"
            name = f"{each.task.name}, {whose}, start to first answer"
            same = opener == "open_ours" and each is one
            report.add(
                name,
                start.ready + start.first,
                "s",
                peer="PyG" if same else None,
                peer_value=pyg if same else None,
            )
        for what, requests in (
            ("whole data", each.parts.whole),
            ("plain", each.parts.plain),
            ("ours", each.parts.cached),
        ):
            report.add(
                f"{each.task.name}, {what}, a warm request alone, mean",
                1e3 * statistics.fmean(one.total for one in requests),
                "ms",
            )
        plain = each.parts.plain
        read = sum(one.range_bytes for one in plain) / sum(
            one.fetched * 4 * each.parts.shape.features for one in plain
        )
        report.add(f"{each.task.name}, bytes of features read over those needed", read, "times")


def add_notes(report: Report, found: list[Findings], edges: dict[str, int]) -> None:
    for one in found:
        shape = one.task.shape
        report.note(
            f"{one.task.name}: {shape.nodes:,} nodes, {edges[shape.name]:,} edges "
            f"({shape.scale:.3g} of the paper's), "
            f"{shape.features} features; all data {one.parts.whole_bytes / 1e6:,.0f} MB, limit "
            f"{one.parts.memory.limit / 1e6:,.0f} MB; workers' memory "
            + ", ".join(f"{name} {held / 1e6:,.0f} MB" for name, held in one.worker_bytes.items())
            + "; requests (peak a second) "
            + ", ".join(f"{trace} {count:,} ({peak:.0f})" for trace, (count, peak) in one.requests.items())
        )
        for trace in one.task.traces:
            told = [
                f"{name} {len(outcome.lives)} (at most {outcome.most_workers} at once)"
                for (where, name, number), outcome in one.outcomes.items()
                if where == trace and number == 1
            ]
            report.note(f"  workers launched, {trace}: {', '.join(told)}")
        if one.overlaps:
            first, tenth = one.overlaps[1], one.overlaps[10]
            report.note(
                f"  overlap: {np.mean(first > 0.5):.0%} of requests have over half of their nodes in the one "
                f"before, {np.mean(tenth > 0.75):.0%} over three quarters in the ten before, "
                f"{np.mean(tenth > 0.25):.0%} over a quarter"
            )
    report.note(f"a node has {CORES} cores; a request is one node's id")


def draw_all(found: list[Findings], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shown = [one for one in found if one.sizes is not None]
    bars = [_breakdown(one) for one in shown]
    draw(folder / "serverless-breakdown.svg", "What a request takes, cold and warm", bars)
    sizes = {one.task.shape.name: cumulative(100 * one.sizes) for one in shown if one.sizes is not None}
    panels = [Lines("Size of a two-hop neighbourhood", "% of the graph's nodes", "share of nodes", sizes)]
    draw(folder / "serverless-fetched.svg", "What is fetched", panels)
    panels = [
        Lines(
            f"Overlap with the {prior} request{'s' * (prior > 1)} before",
            "% of a request's nodes",
            "share of requests",
            {one.task.shape.name: cumulative(100 * one.overlaps[prior]) for one in shown},
        )
        for prior in (1, 10)
    ]
    draw(folder / "serverless-overlap.svg", "Overlap of requests", panels)
    one = shown[0]
    trace = next(iter(one.task.traces))
    outcomes = {each.name: one.outcomes[trace, each.name, 1] for each in THREE}
    both = {}
    for name, outcome in outcomes.items():
        at, idle, starting = np.array(outcome.moments).T
        both[name] = (at, np.minimum(idle, starting))
    panels = [Lines(f"{one.task.name}, {trace}", "seconds", "workers idle while others start", both)]
    draw(folder / "serverless-cold.svg", "Idle workers while others start", panels)
    end = max(outcome.lives.max() for outcome in outcomes.values())
    times = np.linspace(0, end, 600)
    memory = {name: (times, outcome.memory_at(times) / 1e9) for name, outcome in outcomes.items()}
    panels = [Lines(f"{one.task.name}, {trace}", "seconds", "GB of all workers", memory)]
    draw(folder / "serverless-memory.svg", "Memory over time", panels)


def _breakdown(one: Findings) -> Bars:
    parts = one.parts
    start = parts.starts["open_plain"]
    names = ["whole, cold", "plain, cold", "whole, warm", "plain, warm", "ours, warm"]
    plain, whole, ours = (
        {
            key: statistics.fmean(getattr(each, key) for each in some)
            for key in ("sample", "fetch", "infer", "total")
        }
        for some in (parts.plain, parts.whole, parts.cached)
    )
    data = parts.starts["open_whole"].ready - start.ready
    rows = {
        "process": [start.ready, start.ready, 0, 0, 0],
        "all data": [max(data, 0.0), 0, 0, 0, 0],
        "lists": [whole["sample"], plain["sample"], whole["sample"], plain["sample"], ours["sample"]],
        "features": [whole["fetch"], plain["fetch"], whole["fetch"], plain["fetch"], ours["fetch"]],
        "forward pass": [whole["infer"], plain["infer"], whole["infer"], plain["infer"], ours["infer"]],
    }
    return Bars(one.task.name, "seconds", names, rows)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="of snapshots, kept for the next run")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw figures into FOLDER")
    options = parser.parse_args()
    report = Report("serverless")
    with tempfile.TemporaryDirectory() as temporary:
        found, edges = run(make_tasks(options.keep or Path(temporary), options.quick))
        add_summary(report, found, aimed=not options.quick)
        add_starts(report, found)
        add_settings(report, found)
        add_notes(report, found, edges)
    report.finish(options.json)
    if options.plots is not None:
        draw_all(found, options.plots)


if __name__ == "__main__":
    main()
