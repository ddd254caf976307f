"""Checkpoints while events arrive, and restarts from them.

    python benchmarks/recovery.py [--quick] [--json FILE]

A graph of ogbn-arxiv's shape (169,343 nodes, 1.17 million edges, 128 features) under a GCN of three layers,
256 wide. An entry of ten events arrives each 5 ms, from a clock, whether the runtime is ready or not.
Freshness is from the moment when an entry is due until it is visible, of the entries that are due while a
checkpoint is written. Before: the loop writes it. After: a forked process does.

Estimate: a fork copies page tables, some 20 ms for each GB in pages of 4 KiB, almost nothing for huge pages,
in which tables of rows lie. The first write to a page after it takes some microseconds more. So a pause of 20
ms, and batches of ten events that take a few milliseconds more for a while.

A checkpoint that takes blocks from the one before hashes all of its bytes (0.7 GB/s in blocks of 1,024) and
writes those that have changed: the rows that events reach, a quarter of this graph's after 10,000 events.

A restart reads the checkpoint (a GB/s for checksums and copies) and replays the batches that the log has
recorded since, exactly as they were: the work of those batches, without checks, flushes and subscribers.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs import UpdateStream, make, make_stream
from livegnn import Engine, Events, Graph, Model, Update, checkpoint
from livegnn.atomic_file import replace_file
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Propagate, Step
from livegnn.runtime import CheckpointPolicy, Runtime, ViewFactory, list_checkpoints, restore
from livegnn.types import State
from report import Report, arguments

PAUSE_AIM, FRESHNESS_AIM, RESTART_AIM = 50.0, 100.0, 4.0
ENTRY, EVERY = 10, 0.005  # events, seconds: 2,000 a second
HIDDEN, LAYERS = 256, 3
REPLAYED, BATCH, ENTRIES = 500_000, 4096, 100


def make_model(features: int, classes: int, layers: int = LAYERS) -> Model:
    """GCN layers with ReLU between them, in steps; random weights."""
    draw = np.random.default_rng(0)
    widths = [features, *[HIDDEN] * (layers - 1), classes]
    gcn = Propagate(
        ("node", "to", "node"),
        message_local=("source_rsqrt",),
        neighbor_context="count",
        combine="rsqrt",
        self_loops=1.0,
    )
    steps, tensors, last, names = [], {}, "x", ["x"]
    for layer, (wide, narrow) in enumerate(pairwise(widths)):
        tensors[f"w{layer}"] = (draw.standard_normal((narrow, wide)) / wide**0.5).astype(np.float32)
        steps.append(Step("linear", (last,), f"projected {layer}", {"weight": f"w{layer}"}))
        steps.append(Step("propagate", (f"projected {layer}",), f"sum {layer}", attrs=gcn.to_attrs()))
        last = f"sum {layer}"
        if layer + 1 < layers:
            steps.append(Step("relu", (last,), f"hidden {layer}"))
            last = f"hidden {layer}"
        names.append(last)
    return Model({"x": Input("node", features)}, tuple(steps), tensors, last, tuple(names))


def first_graph(stream: UpdateStream) -> Graph:
    return Graph.from_edges(stream.start_src, stream.start_dst, x=stream.graph.x)


def entry(stream: UpdateStream, start: int, size: int) -> Events:
    """The events from `start` on, from the beginning again where the stream ends."""
    start %= len(stream) - size
    batch = stream.batch(start, start + size)
    events = Events().remove_edges(batch.remove_src, batch.remove_dst)
    return events.add_edges(batch.add_src, batch.add_dst).set_features(batch.ids, batch.x)


class Measured(NamedTuple):
    """Of each checkpoint how long the loop stood and until it was written, in seconds, and its bytes; the
    milliseconds of freshness of the entries that came meanwhile, and of the others.
    """

    pauses: list[float]
    seconds: list[float]
    size: int
    meanwhile: NDArray[np.float64]
    else_: NDArray[np.float64]


class Arrivals:
    """Sends entries by the clock, and notes when each was due and when it became visible.

    size: events of each; every: seconds between two.
    """

    def __init__(
        self, runtime: Runtime, stream: UpdateStream, size: int = ENTRY, every: float = EVERY
    ) -> None:
        self.runtime, self.stream, self.size, self.every = runtime, stream, size, every
        self.due: list[tuple[int, float]] = []
        self.visible: list[tuple[int, float]] = []
        self._done = threading.Event()
        self._clock = threading.Thread(target=self._send)

    def __enter__(self) -> Arrivals:
        self._deaf = self.runtime.engine.subscribe(self._see)
        self._clock.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._done.set()
        self._clock.join()
        self.runtime.wait(self.runtime.log.last_seq(), 60)
        self._deaf()

    def _see(self, update: Update) -> None:
        self.visible.append((update.seq, time.perf_counter()))

    def _send(self) -> None:
        began, number = time.perf_counter(), 0
        while not self._done.is_set():
            due = began + self.every * number
            time.sleep(max(0.0, due - time.perf_counter()))
            seq = self.runtime.append(entry(self.stream, number * self.size, self.size))
            self.due.append((seq, due))
            number += 1

    def freshness(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """When each entry was due, and milliseconds until it was visible."""
        seqs, times = (np.array(column) for column in zip(*self.visible, strict=True))
        ends, due = (np.array(column) for column in zip(*self.due, strict=True))
        at = np.searchsorted(seqs, ends)
        known = at < len(times)  # the last ones may have changed nothing
        return due[known], (times[at[known]] - due[known]) * 1e3


def watch(runtime: Runtime, count: int, limit: float) -> tuple[list[float], list[float], list[float]]:
    """Waits for so many checkpoints: when each was written, how long that took, and the loop's pauses."""
    took, stood = runtime.statistics.checkpoint_seconds, runtime.statistics.checkpoint_pause_seconds
    ends: list[float] = []
    seconds, pauses = [0.0], [0.0]  # sums
    give_up = time.perf_counter() + limit
    while len(ends) < count or len(pauses) <= count:
        if time.perf_counter() > give_up:
            raise RuntimeError(f"{count} checkpoints must be written in {limit:g} seconds, got {len(ends)}")
        time.sleep(0.005)
        if took.count > len(ends):
            ends.append(time.perf_counter())
            seconds.append(took.total)
        if stood.count >= len(pauses):
            pauses.append(stood.total)
    return ends, np.diff(seconds).tolist(), np.diff(pauses).tolist()


def measure(
    stream: UpdateStream, model: Model, folder: Path, *, beside: bool, count: int, every: int
) -> Measured:
    """`count` checkpoints, one after each `every` events."""
    graph = first_graph(stream)
    engine = Engine(graph, model)
    policy = CheckpointPolicy(folder / f"checkpoints {beside}", every_events=every, beside=beside)
    runtime = Runtime(
        SqliteLog(folder / f"{beside}.db"),
        graph,
        engine,
        checkpoints=policy,
        scrub=None,
        max_waiting_ms=float("inf"),
    )
    runtime.start()
    with Arrivals(runtime, stream) as arrivals:
        ends, seconds, pauses = watch(runtime, count, 600)
        time.sleep(1.0)
    size = list_checkpoints(policy.directory)[0].stat().st_size
    runtime.stop()
    runtime.log.close()
    due, fresh = arrivals.freshness()
    meanwhile = np.zeros(len(due), bool)
    for end, took in zip(ends, seconds, strict=True):
        meanwhile |= (due > end - took) & (due < end)
    return Measured(pauses, seconds, size, fresh[meanwhile], fresh[~meanwhile])


def report_checkpoints(report: Report, before: Measured, after: Measured) -> None:
    peer = "in the loop"
    report.add(
        "longest pause of the loop",
        max(after.pauses) * 1e3,
        "ms",
        aim=PAUSE_AIM,
        peer=peer,
        peer_value=max(before.pauses) * 1e3,
    )
    for name, q in (("median", 50), ("p99", 99), ("worst", 100)):
        report.add(
            f"freshness while it is written, {name}",
            np.percentile(after.meanwhile, q),
            "ms",
            aim=FRESHNESS_AIM if q == 99 else None,
            peer=peer,
            peer_value=np.percentile(before.meanwhile, q),
            floor=np.percentile(after.else_, q),
        )
    report.add(
        "seconds to write it",
        statistics.median(after.seconds),
        "s",
        peer=peer,
        peer_value=statistics.median(before.seconds),
    )
    report.add("size of the file", after.size / 1e6, "MB")
    report.note(
        f"{len(after.pauses)} checkpoints each, {len(after.meanwhile):,} entries of {ENTRY} events came "
        "meanwhile; the floor is freshness while none is written"
    )


def write_beside(path: Path, states: dict[str, State], after: Path | None) -> tuple[float, int]:
    """Seconds to write a checkpoint with hashes, until it is on the disk, and its bytes."""
    began = time.perf_counter()
    with replace_file(path) as file:
        size = checkpoint.write_shared_to(file, states, 0, after=after)
    return time.perf_counter() - began, size


def measure_shared(
    report: Report, stream: UpdateStream, model: Model, folder: Path, gaps: tuple[int, ...]
) -> None:
    """What a checkpoint costs that is so many events after another, beside one that stands alone."""
    graph = first_graph(stream)
    engine = Engine(graph, model)
    states = {"graph": graph.state(), "engine": engine.state()}
    began = time.perf_counter()
    whole = checkpoint.write(folder / "alone", states, 0)
    alone = time.perf_counter() - began
    last = folder / "shared 0"
    hashed, _ = write_beside(last, states, None)
    report.add("to write it where none may share its blocks", alone, "s")
    report.add("to write it for others to share its blocks", hashed, "s", peer="alone", peer_value=alone)
    first = 0
    for gap in gaps:
        for start in range(first, first + gap, ENTRIES):
            graph.apply(entry(stream, start, ENTRIES))
        first += gap
        states = {"graph": graph.state(), "engine": engine.state()}
        path = folder / f"shared {gap}"
        took, size = write_beside(path, states, last)
        report.add(
            f"bytes, {gap:,} events after another", size / 1e6, "MB", peer="alone", peer_value=whole / 1e6
        )
        report.add(f"seconds, {gap:,} events after another", took, "s", peer="alone", peer_value=alone)
        began = time.perf_counter()
        checkpoint.read(path)
        report.add(f"seconds to read it, {gap:,} events after", time.perf_counter() - began, "s")
        last = path


def fill(stream: UpdateStream, model: Model, folder: Path, events: int) -> tuple[NDArray[np.float32], float]:
    """A checkpoint, and a log with so many events after it; predictions then, and seconds to apply them."""
    graph = first_graph(stream)
    engine, log = Engine(graph, model), SqliteLog(folder / "restart.db")
    runtime = Runtime(log, graph, engine, checkpoints=CheckpointPolicy(folder / "restart", every_events=None))
    runtime.append(entry(stream, 0, ENTRIES))
    runtime.step()
    runtime.stop()
    runtime = Runtime(log, graph, engine, max_batch_events=BATCH)
    entries = [entry(stream, start, ENTRIES) for start in range(ENTRIES, events + ENTRIES, ENTRIES)]
    for first in range(0, len(entries), 64):
        runtime.append_all(entries[first : first + 64])
    began = time.perf_counter()
    while runtime.step():
        pass
    took = time.perf_counter() - began
    predictions = engine.predict(np.arange(100))
    log.close()
    return predictions, took


def start(
    stream: UpdateStream, folder: Path, factories: dict[str, ViewFactory], build: dict[str, ViewFactory]
) -> tuple[Runtime, float, float]:
    """A runtime at the end of the log; seconds to read the checkpoint, and for all.

    build: views that do not follow the replay, but are computed at its end.
    """
    began = time.perf_counter()
    log = SqliteLog(folder / "restart.db")
    graph, views = restore(factories, lambda: first_graph(stream), directory=folder / "restart", log=log)
    read = time.perf_counter() - began
    runtime = Runtime(log, graph, *views.values(), build=build)
    whole = time.perf_counter() - began
    log.close()
    return runtime, read, whole


def measure_restart(report: Report, stream: UpdateStream, model: Model, folder: Path, events: int) -> None:
    expected, lived = fill(stream, model, folder, events)
    runtime, read, whole = start(stream, folder, {"engine": Engine.factory(model)}, {})
    assert runtime.engine.predict(np.arange(100)).tobytes() == expected.tobytes()
    report.add(
        f"restart with {events:,} events to replay",
        whole,
        "s",
        aim=RESTART_AIM if events == REPLAYED else None,
        peer="to apply them at first",
        peer_value=lived,
    )
    report.add("of this, to read the checkpoint", read, "s")
    runtime, _, alone = start(stream, folder, {}, {})
    began = time.perf_counter()
    Engine(runtime.graph, model)
    report.add("the same without an engine", alone, "s")
    report.add("to compute an engine on that graph anew", time.perf_counter() - began, "s")
    runtime, _, whole = start(stream, folder, {}, {"engine": Engine.factory(model)})
    assert runtime.engine.verify().ok
    report.add(
        "restart that computes the engine at the end",
        whole,
        "s",
        aim=RESTART_AIM if events == REPLAYED else None,
    )
    report.note(f"entries of {ENTRIES} events, merged into batches of up to {BATCH:,}")


def main() -> None:
    options = arguments(__doc__).parse_args()
    stream = make_stream(make("arxiv-tenth" if options.quick else "arxiv"))
    model = make_model(stream.graph.num_features, stream.graph.num_classes)
    count, every = (2, 4_000) if options.quick else (3, 20_000)
    report = Report("recovery")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before, after = (
            measure(stream, model, folder, beside=beside, count=count, every=every)
            for beside in (False, True)
        )
        report_checkpoints(report, before, after)
        measure_shared(report, stream, model, folder, (100, 1000) if options.quick else (100, 1000, 10_000))
        measure_restart(report, stream, model, folder, 20_000 if options.quick else REPLAYED)
    report.finish(options.json)


if __name__ == "__main__":
    main()
