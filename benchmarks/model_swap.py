"""Another model, deployed while events arrive and predictions are read.

    python benchmarks/model_swap.py [--quick] [--json FILE]

A graph of ogbn-arxiv's shape (169,343 nodes, 1.17 million edges, 128 features) under a GCN of two layers,
128 to 256 to 40. Entries of 50 events arrive every 10 ms, from a clock: 5,000 events a second. One thread
asks for the predictions of 16 random nodes, one read after the other with a millisecond between, all the
time: before, while a second model is deployed, while both follow, and through ten switches.

Estimate: the graph is copied at memory's speed, 100 MB in some 100 ms, for which batches wait and reads do
not. Computing the engine takes half a second of both cores; at half of one it takes 2 seconds, and 10,000
events come meanwhile, which it has to catch up with. Its rows come over by swapping pointers. A read waits
for the commit of a batch and for the interpreter's lock: milliseconds.

The peer is to stop the process and to start it with the other model, from a checkpoint that it writes then:
how long nobody answers.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphs import make, make_stream
from livegnn import Engine, Graph
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Model
from livegnn.runtime import CheckpointPolicy, Runtime, restore
from recovery import Arrivals, first_graph, make_model
from report import Report, arguments

READ_AIM, SIZE, EVERY, SWITCHES, AT_ONCE = 20.0, 50, 0.01, 10, 16


class Reads:
    """A thread that asks for predictions, and how long each answer took, in milliseconds, by phase."""

    def __init__(self, runtime: Runtime) -> None:
        self.phase, self.taken, self.failed = "before", dict[str, list[float]](), 0
        self._runtime, self._ending = runtime, threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Reads:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ending.set()
        self._thread.join()

    def _read(self) -> None:
        rng = np.random.default_rng(1)
        count = self._runtime.graph.num_nodes()
        while not self._ending.is_set():
            ids = rng.integers(0, count, AT_ONCE)
            began, phase = time.perf_counter(), self.phase
            try:
                self._runtime.predict(ids)
            except Exception:
                self.failed += 1
            self.taken.setdefault(phase, []).append(1e3 * (time.perf_counter() - began))
            time.sleep(0.001)


def other(model: Model) -> Model:
    """The same layers with other weights."""
    tensors = {name: tensor[::-1].copy() for name, tensor in model.tensors.items()}
    return Model(model.inputs, model.steps, tensors, model.output, model.layers)


def deploy(report: Report, quick: bool, folder: Path) -> None:
    stream = make_stream(make("tiny" if quick else "arxiv", symmetric=True))
    graph = first_graph(stream)
    model = make_model(stream.graph.num_features, stream.graph.num_classes, layers=2)
    better, seconds = other(model), 1.0 if quick else 5.0
    log = SqliteLog(folder / "events.db")
    checkpoints = CheckpointPolicy(folder / "checkpoints", None, None)
    runtime = Runtime(log, graph, Engine(graph, model), checkpoints=checkpoints)
    runtime.start()
    phases: list[tuple[str, float, float]] = []

    with Arrivals(runtime, stream, SIZE, EVERY) as arrivals, Reads(runtime) as reads:

        def run(phase: str, action: object) -> None:
            reads.phase, began = phase, time.perf_counter()
            action()  # type: ignore[operator]
            phases.append((phase, began, time.perf_counter()))

        def switch() -> None:
            for _ in range(SWITCHES // 2):
                runtime.models.switch("better")
                time.sleep(seconds / 20)
                runtime.models.roll_back()
                time.sleep(seconds / 20)

        run("before", lambda: time.sleep(seconds))
        run("deploying", lambda: runtime.models.deploy("better", better))
        run("both follow", lambda: time.sleep(seconds))
        run("switching", switch)
    due, milliseconds = arrivals.freshness()
    report.add("reads that failed", reads.failed, "", aim=0)
    for phase, began, ended in phases:
        taken = np.array(reads.taken[phase])
        fresh = milliseconds[(due >= began) & (due < ended)]
        add_reads(report, phase, taken)
        report.add(f"{phase}: freshness, p99", quantile(fresh, 0.99), "ms")
        if phase == "deploying":
            report.add("seconds until the model follows", ended - began, "s")
    ends = {name: runtime.models.find(name).seq for name in runtime.models.names}
    assert set(ends.values()) == {log.last_seq()}
    for name in runtime.models.names:
        found = runtime.models.find(name).verify(2000)
        assert found.ok, f"{name} is not as computed from scratch: {found}"
    report.note(f"all {log.last_seq():,} events are in both models, which are as computed from scratch")
    report.add("the same by a restart: nobody answers", restart(runtime, log, better, folder), "s")
    log.close()


def add_reads(report: Report, phase: str, taken: NDArray[np.float64]) -> None:
    report.add(f"{phase}: a read, median of {len(taken):,}", quantile(taken, 0.5), "ms")
    report.add(f"{phase}: a read, 99th percentile", quantile(taken, 0.99), "ms")
    report.add(f"{phase}: a read, longest", float(taken.max()), "ms", aim=READ_AIM)


def quantile(values: NDArray[np.float64], share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else float("nan")


def restart(runtime: Runtime, log: SqliteLog, model: Model, folder: Path) -> float:
    """Seconds from the last answer to the first of the other model, in the same process, which spares the
    start of an interpreter.
    """
    began = time.perf_counter()
    runtime.stop()

    def missing() -> Graph:
        raise AssertionError("the checkpoint was not found")

    views = {"engine": Engine.factory(model)}
    graph, made = restore(views, missing, directory=folder / "checkpoints", log=log)
    Runtime(log, graph, *made.values()).predict([0])
    return time.perf_counter() - began


def main() -> None:
    options = arguments(__doc__).parse_args()
    report = Report("model_swap")
    with tempfile.TemporaryDirectory() as folder:
        deploy(report, options.quick, Path(folder))
    report.finish(options.json)


if __name__ == "__main__":
    main()
