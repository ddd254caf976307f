"""Serving workers that have seen all of a small graph, and servers of them on loopback."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

import livegnn as lg
from livegnn.log.sqlite import SqliteLog
from livegnn.presampling import SampledEngine
from livegnn.runtime import Runtime
from livegnn.workers import SamplingWorker, ServingWorker, SqlitePlace, WorkerPlan
from livegnn.workers.app import create_serving_app
from served import served
from streams import make_model

EDGE = ("node", "to", "node")
SCHEMA = lg.Schema({"node": 4}, {EDGE: lg.EdgeSchema()})
QUERY = lg.Query("node").hop(EDGE, 3, direction="in").hop(EDGE, 2, direction="in")
PLAN = WorkerPlan(SCHEMA, QUERY, sampling_workers=1, serving_workers=2, seed=5)
NODES = 20


class Setting:
    """A log with a small graph, an engine on samples, and workers that have seen all of it."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        model = replace(make_model(), outputs={"output": "out", "hidden": "hidden"}).with_query(QUERY)
        self.engine = SampledEngine(lg.Graph(SCHEMA), model, sample_seed=5)
        log = SqliteLog(folder / "events.db")
        opened.callback(log.close)
        runtime = Runtime(log, self.engine.graph, self.engine)
        runtime.start()
        opened.callback(runtime.stop)
        rng = np.random.default_rng(1)
        events = lg.Events().add_nodes(np.arange(NODES), rng.normal(size=(NODES, 4)))
        self.seq = runtime.append(events.add_edges(rng.integers(0, NODES, 80), rng.integers(0, NODES, 80)))
        runtime.wait(self.seq)
        place = SqlitePlace(log.path)
        sampling = SamplingWorker(place, PLAN, 0, folder)
        opened.callback(sampling.close)
        self.workers = [ServingWorker(place, PLAN, number, model) for number in range(2)]
        for worker in self.workers:
            opened.callback(worker.stop)
            worker.start()
        while any(worker.seq < self.seq for worker in self.workers):
            sampling.step()
        self.addresses = [opened.enter_context(served(create_serving_app(it))) for it in self.workers]
