"""What a serving worker answers a second over HTTP, and how large the caches of one to four of them are.

A runtime without an engine has logged random edges over one type of nodes, degree 20, ten features. One
sampling worker has published the latest [25, 10] in-neighbours. A serving worker, a process of its own,
answers 200 connections of wrk (https://github.com/wg/wrk), which must be installed: predictions of a
GraphSAGE of 64 channels, alone, with their samples, and through the front end, another process. A replica
without a model answers with samples alone. A request names one random seed, or ten.

Before that, one to four serving workers follow in this process: bytes of each one's cache, over what the
features and edges take as plain arrays (Helios, figure 16, has 62 % with one and 19 % with four). And of the
samples that a cache has, how many no request reads, when as many random seeds as there are nodes were asked
for: nodes of later hops are read with every seed that reaches them.

What it must cost
-----------------
A sample is 25 us of a core and a prediction 20 more. Reading a request and writing an answer is 50 to 100 us
in granian. The answer with a sample is 6 kB of JSON. wrk takes the other core.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import numpy as np

import livegnn as lg
from http_load import Server, listening, load
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.workers import SamplingWorker, ServingWorker, SqlitePlace, WorkerPlan
from report import Report, arguments

EDGE = ("node", "to", "node")
SCHEMA = lg.Schema({"node": 10}, {EDGE: lg.EdgeSchema(timed=True)})
QUERY = lg.Query("node").hop(EDGE, 25, by="latest", direction="in").hop(EDGE, 10, by="latest", direction="in")
NODES, QUICK_NODES, DEGREE, BATCH = 100_000, 5000, 20, 20_000
CONNECTIONS = 200
SERVING = """
import sys
import livegnn as lg
from livegnn.http.listening import address_of, listen
from livegnn.http.serving import HttpServer
from livegnn.workers import ServingWorker, SqlitePlace
from livegnn.workers.app import create_serving_app
from livegnn.workers.front import create_front
from worker_serving import plan_of

kind, path, other = sys.argv[1:]
listener = listen("127.0.0.1", 0)
if kind == "front":
    app = create_front(plan_of(1), [[other]])
else:
    model = lg.Model.load(other) if kind == "serving" else None
    worker = ServingWorker(SqlitePlace(path), plan_of(1), 0, model, replica=int(model is None))
    worker.start()
    app = create_serving_app(worker)
print(address_of(listener), flush=True)
HttpServer(app, listener).run()
"""
WRK = """
math.randomseed(1)
request = function()
  local ids = {{}}
  for i = 1, {each} do ids[i] = math.random(0, {nodes} - 1) end
  return wrk.format("POST", nil, {{["Content-Type"] = "application/json"}},
                    '{{"ids": [' .. table.concat(ids, ", ") .. ']}}')
end
"""


def plan_of(serving: int) -> WorkerPlan:
    return WorkerPlan(SCHEMA, QUERY, 1, serving, replicas=2)


def save_model(path: Path) -> None:
    import torch
    from torch_geometric.nn import GraphSAGE

    torch.manual_seed(0)
    module = GraphSAGE(10, 64, num_layers=2, out_channels=64).eval()
    lg.Model.from_pyg(module).with_query(QUERY).save(path)


def fill(path: Path, nodes: int) -> int:
    """Logs nodes and random edges; returns the number of the last event."""
    log = SqliteLog(path)
    runtime = Runtime(log, lg.Graph(SCHEMA), max_waiting_ms=float("inf"))
    runtime.start()
    rng = np.random.default_rng(3)
    runtime.append(lg.Events().add_nodes(np.arange(nodes), rng.random((nodes, 10), np.float32)))
    for begin in range(0, nodes * DEGREE, BATCH):
        times = np.arange(begin, begin + BATCH, dtype=float)
        source, target = rng.integers(0, nodes, (2, BATCH))
        seq = runtime.append(lg.Events().add_edges(source, target, time=times, edge_type=EDGE))
    runtime.wait(seq, timeout=600)
    runtime.stop()
    log.close()
    return seq


def serving(kind: str, path: Path, other: str) -> AbstractContextManager[Server]:
    return listening([sys.executable, "-c", SERVING, kind, str(path), other])


def follow(sampling: SamplingWorker, serving: Sequence[ServingWorker], seq: int) -> None:
    while any(worker.seq < seq for worker in serving):
        sampling.step()
        for worker in serving:
            if worker.failure is not None:
                raise worker.failure


def measure_http(folder: Path, nodes: int, seconds: int, report: Report) -> None:
    path = folder / "events.db"
    seq = fill(path, nodes)
    save_model(folder / "model.livegnn")
    with ExitStack() as opened:
        sampling = SamplingWorker(SqlitePlace(path), plan_of(1), 0, folder / "http")
        opened.callback(sampling.close)
        worker = opened.enter_context(serving("serving", path, str(folder / "model.livegnn"))).address
        samples = opened.enter_context(serving("samples", path, "")).address
        front = opened.enter_context(serving("front", path, worker)).address
        for one in (worker, samples):
            wait_for(one, sampling, seq)
        for what, url, each, aim in (
            ("samples, one a request", f"{samples}/v1/samples", 1, 8000.0),
            ("samples and predictions, one a request", f"{worker}/v1/samples", 1, None),
            ("predictions, one a request", f"{worker}/v1/predictions", 1, 5000.0),
            ("predictions, ten a request", f"{worker}/v1/predictions", 10, 5000.0),
            ("predictions, one a request, front end", f"{front}/v1/predictions", 1, None),
        ):
            script = WRK.format(each=each, nodes=nodes)
            load(url, script, CONNECTIONS, 1, folder)
            found = load(url, script, CONNECTIONS, seconds, folder)
            report.add(what, found.rate * each, "/s", aim=aim, higher_is_better=True)
            report.add(f"{what}: median", found.median, "ms")
            report.add(f"{what}: 99th percentile", found.p99, "ms", aim=50.0 if aim else None)


def wait_for(worker: str, sampling: SamplingWorker, seq: int) -> None:
    import httpx

    while httpx.get(f"{worker}/v1/health").json()["seq"] < seq:
        sampling.step()


def measure_caches(folder: Path, nodes: int, report: Report) -> None:
    plain = nodes * (10 * 4 + 8) + nodes * DEGREE * (8 + 8 + 8)  # ids and features; ends and times
    for number in range(1, 5):
        plan = plan_of(number)
        path = folder / f"caches-{number}.db"
        seq = fill(path, nodes)
        with ExitStack() as opened:
            sampling = SamplingWorker(SqlitePlace(path), plan, 0, folder / f"caches-{number}")
            opened.callback(sampling.close)
            serving = [ServingWorker(SqlitePlace(path), plan, i) for i in range(number)]
            for worker in serving:
                opened.callback(worker.stop)
                worker.start()
            follow(sampling, serving, seq)
            of_one = float(np.mean([worker.memory() for worker in serving]))
            report.add(f"cache of each of {number}, over the data", 100 * of_one / plain, "%")
            report.add(f"cache of each of {number}", of_one / 1e6, "MB")
            if number == 1:
                seeds = np.random.default_rng(5).integers(0, nodes, nodes)
                read = np.zeros(nodes, bool)
                for begin in range(0, nodes, 1000):
                    sample = serving[0].sample(np.unique(seeds[begin : begin + 1000]), attributes=False)
                    read[sample.node["node"]] = True
                report.add("samples that no request has read", 100 * (1 - read.mean()), "%")


def main() -> None:
    options = arguments(__doc__).parse_args()
    nodes, seconds = (QUICK_NODES, 2) if options.quick else (NODES, 10)
    report = Report("serving workers")
    with tempfile.TemporaryDirectory() as folder:
        measure_caches(Path(folder), nodes, report)
        if shutil.which("wrk") is None:
            report.could_not_run("HTTP", "needs wrk")
        else:
            measure_http(Path(folder), nodes, seconds, report)
    report.finish(options.json)


if __name__ == "__main__":
    main()
