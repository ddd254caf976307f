"""Sampling and serving workers over streams, each a process: from the events in the log to the cache.

A runtime without an engine has logged random edges over one type of nodes. Then one sampling worker reads
the log from its beginning, and publishes what it samples; one serving worker follows. The same with two
sampling workers. [25, 10], latest neighbours, ten features a node. Records are those that sampling workers
write, references among them.

What it must cost
-----------------
The native shard takes some 0.9 million edges a second and core with lists kept (presampling.py). It publishes
some 100 to 200 bytes an edge. The disk writes them twice: into SQLite's write-ahead file, and from there.

Seconds are of the clock: workers wait for the disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import livegnn as lg
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from report import Report, arguments

EDGE = ("node", "to", "node")
SCHEMA = lg.Schema({"node": 10}, {EDGE: lg.EdgeSchema(timed=True, in_neighbors=False)})
NODES, EDGES, BATCH = 100_000, 2_000_000, 20_000
WORKER = """
import json, resource, sys, time
import numpy as np
import livegnn as lg
from livegnn.workers import SamplingWorker, ServingWorker, SqlitePlace, WorkerPlan

kind, path = sys.argv[1], sys.argv[4]
number, workers, seq, keep, nodes = (int(sys.argv[at]) for at in (2, 3, 5, 6, 7))
edge = ("node", "to", "node")
schema = lg.Schema({"node": 10}, {edge: lg.EdgeSchema(timed=True, in_neighbors=False)})
query = lg.Query("node").hop(edge, 25, by="latest").hop(edge, 10, by="latest")
plan = WorkerPlan(schema, query, workers, 1, keep_edges=bool(keep))
place = SqlitePlace(path)
if kind == "sampling":
    worker = SamplingWorker(place, plan, number, path + "-workers", checkpoint_every=10**9)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    while worker.levels[-1] < seq:
        if not worker.step():
            time.sleep(0.001)
    records = worker._shard.records_written()
else:
    worker = ServingWorker(place, plan, number)
    worker.start()
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    worker.wait(seq, 600)
    records = worker.memory()
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.perf_counter() - began, used.ru_utime + used.ru_stime, records]), flush=True)
if kind == "serving":
    ids = np.random.default_rng(1).integers(0, nodes, 5000)
    began = time.perf_counter()
    for id in ids.tolist():
        worker.sample([id])
    print(json.dumps(len(ids) / (time.perf_counter() - began)), flush=True)
    worker.stop()
else:
    worker.close()
"""


def fill(path: Path, nodes: int, edges: int) -> int:
    """Logs random edges; returns the number of the last event."""
    log = SqliteLog(path)
    runtime = Runtime(log, lg.Graph(SCHEMA), max_waiting_ms=float("inf"))
    runtime.start()
    rng = np.random.default_rng(3)
    runtime.append(lg.Events().add_nodes(np.arange(nodes), rng.random((nodes, 10), np.float32)))
    for begin in range(0, edges, BATCH):
        times = np.arange(begin, begin + BATCH, dtype=float)
        source, target = rng.integers(0, nodes, (2, BATCH))
        seq = runtime.append(lg.Events().add_edges(source, target, time=times, edge_type=EDGE))
    runtime.wait(seq, timeout=600)
    runtime.stop()
    log.close()
    return seq


def run(path: Path, nodes: int, seq: int, workers: int, keep: bool) -> tuple[float, float, int, float]:
    """Seconds until the cache has all; of the sampling workers' cores; records; samples a second."""
    begun = []
    for kind, number in [*(("sampling", i) for i in range(workers)), ("serving", 0)]:
        words = [kind, str(number), str(workers), str(path), str(seq), str(int(keep)), str(nodes)]
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"a worker did not begin: {words}")
        begun.append(process)
    began = time.perf_counter()
    for process in begun:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate()[0].splitlines() for process in begun]
    found = [json.loads(lines[0]) for lines in answers]
    seconds = max(one[0] for one in found)
    assert seconds <= time.perf_counter() - began
    used = sum(one[1] for one in found[:-1])
    return seconds, used, sum(one[2] for one in found[:-1]), json.loads(answers[-1][1])


def main() -> None:
    options = arguments(__doc__).parse_args()
    nodes, edges = (10_000, 200_000) if options.quick else (NODES, EDGES)
    report = Report("sampling and serving workers over streams")
    for keep in (True, False):
        rates = {}
        for workers in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "events.db"
                seq = fill(path, nodes, edges)
                seconds, used, records, samples = run(path, nodes, seq, workers, keep)
            what = f"{workers} sampling, 1 serving, {'lists kept' if keep else 'no lists'}"
            rates[workers] = edges / seconds
            report.add(f"edges, log to cache, {what}", edges / seconds, "/s", higher_is_better=True)
            report.add(
                f"records, log to cache, {what}", records / seconds, "/s", higher_is_better=True, aim=1.5e6
            )
            report.add(f"seconds of the sampling workers' cores, {what}", used, "s")
            report.add(f"samples of a serving worker, {what}", samples, "/s", higher_is_better=True)
        report.add("two beside one", rates[2] / rates[1], "times", higher_is_better=True, aim=1.7)
    report.finish(options.json)


if __name__ == "__main__":
    main()
