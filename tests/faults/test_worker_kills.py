"""Sampling and serving workers, each a process, are killed under load: the answers in the end are whole."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import livegnn as lg
from gate import draws
from kafka_broker import Broker, needs_broker
from livegnn.log.kafka import KafkaLog, create_topics
from livegnn.log.sqlite import SqliteLog
from livegnn.presampling import Presampler
from livegnn.runtime import Runtime
from livegnn.workers import KafkaPlace, Place, SqlitePlace, WorkerPlan, finish, resize
from waiting import PATIENCE

WORKER = """
import json, sys, time
import livegnn as lg
from livegnn.errors import LogError
from livegnn.workers import KafkaPlace, SamplingWorker, ServingWorker, SqlitePlace, WorkerPlan, finish, resize

kind, number, given, folder = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
if "path" in given:
    place = SqlitePlace(given["path"])
else:
    place = KafkaPlace(given["servers"], given["topic"], folder)
edge = ("node", "to", "node")
schema = lg.Schema({"node": 1}, {edge: lg.EdgeSchema(timed=True)})
query = lg.Query("node").hop(edge, 4, by="latest").hop(edge, 50)
plan = WorkerPlan(schema, query, *given["numbers"])
if kind == "resize":
    print("ready", flush=True)
    resize(place, plan)
    finish(place, plan)
elif kind == "sampling":
    print("ready", flush=True)
    while True:
        try:
            worker = SamplingWorker(place, plan, number, folder, checkpoint_every=20, max_events=50)
        except LogError:  # its time has not come yet
            time.sleep(0.05)
            continue
        worker.run()
        worker.close()
        if number >= worker.plan.sampling_workers:
            break
        time.sleep(0.05)
else:
    worker = ServingWorker(place, plan, number)
    worker.start()
    print("ready", flush=True)
    for line in sys.stdin:
        seq, ids = json.loads(line)
        worker.wait(seq, 300)
        for id in ids:
            sample = worker.sample([id])
            nodes, times = sample.node["node"].tolist(), sample.time[edge].tolist()
            print(json.dumps([sorted(nodes), sorted(times)]), flush=True)
"""
EDGE = ("node", "to", "node")
SCHEMA = lg.Schema({"node": 1}, {EDGE: lg.EdgeSchema(timed=True)})
QUERY = lg.Query("node").hop(EDGE, 4, by="latest").hop(EDGE, 50)
NODES = 40
SEED = int(os.environ.get("LIVEGNN_SEED", "0"))


class Workers:
    """Sampling and serving processes, at the beginning two of each."""

    def __init__(self, given: dict[str, str], folder: Path) -> None:
        self.given: dict[str, object] = {**given}
        self.folder = folder
        self.running: dict[tuple[str, int], subprocess.Popen[str]] = {}
        self.begin_all(2, 2)

    def begin_all(self, sampling: int, serving: int) -> None:
        """Starts those that do not run yet."""
        self.given["numbers"] = [sampling, serving]
        for kind, count in (("sampling", sampling), ("serving", serving)):
            for number in range(count):
                if (kind, number) not in self.running:
                    self.running[kind, number] = self.begin(kind, number)

    def begin(self, kind: str, number: int) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, kind, str(number), json.dumps(self.given), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def kill(self, kind: str, number: int) -> None:
        process = self.running[kind, number]
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.running[kind, number] = self.begin(kind, number)

    def ask(self, number: int, seq: int, ids: list[int]) -> list[object]:
        process = self.running["serving", number]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([seq, ids]) + "\n")
        process.stdin.flush()
        return [json.loads(process.stdout.readline()) for _ in ids]

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.communicate()


def run(runtime: Runtime, view: Presampler, given: dict[str, str], folder: Path, kills: int) -> None:
    """Events come while workers of each kind are killed; then each node's sample is that of `view`."""
    print(f"LIVEGNN_SEED={SEED}")
    rng = random.Random(SEED)
    plan = WorkerPlan(SCHEMA, QUERY, 2, 2)
    ids = np.arange(NODES)
    runtime.wait(runtime.append(lg.Events().add_nodes(ids, np.ones((NODES, 1)))))
    workers = Workers(given, folder)
    try:
        clock = 0.0
        for kill in range(kills):
            for _ in range(30):
                clock += 1
                seq = runtime.append(
                    lg.Events().add_edges(rng.randrange(NODES), rng.randrange(NODES), time=[clock])
                )
            workers.kill(("sampling", "serving")[kill % 2], rng.randrange(2))
        runtime.wait(seq)
        for number in range(2):
            own = ids[plan.serving_worker_of(ids) == number].tolist()
            expected = []
            for id in own:
                sample = view.sample([id])
                expected.append([sorted(sample.node["node"].tolist()), sorted(sample.time[EDGE].tolist())])
            assert workers.ask(number, seq, own) == expected
    finally:
        workers.close()


def change(runtime: Runtime, view: Presampler, given: dict[str, str], folder: Path, place: Place) -> None:
    """The numbers change while events come, and workers and whoever changes them are killed meanwhile."""
    print(f"LIVEGNN_SEED={SEED}")
    rng = random.Random(SEED)
    ids = np.arange(NODES)
    runtime.wait(runtime.append(lg.Events().add_nodes(ids, np.ones((NODES, 1)))))
    workers = Workers(given, folder)
    clock = 0.0
    try:
        for numbers in ((2, 3), (3, 3), (3, 1), (1, 1)):
            workers.begin_all(*numbers)
            changing = workers.begin("resize", 0)
            for _ in range(1 + rng.randrange(60)):
                clock += 1
                edge = rng.randrange(NODES), rng.randrange(NODES)
                seq = runtime.append(lg.Events().add_edges(*edge, time=[clock]))
            changing.kill()
            changing.communicate()
            running = [key for key, process in workers.running.items() if process.poll() is None]
            workers.kill(*rng.choice(running))
            plan = WorkerPlan(SCHEMA, QUERY, *numbers)
            resize(place, plan, timeout=PATIENCE)
            finish(place, plan, timeout=PATIENCE)
            for kind, number in [key for key in workers.running if key[1] >= numbers[key[0] == "serving"]]:
                gone = workers.running.pop((kind, number))
                gone.kill() if kind == "serving" else gone.wait(PATIENCE)  # a sampling worker ends by itself
                gone.communicate()
            runtime.wait(seq)
            for number in range(numbers[1]):
                own = ids[plan.serving_worker_of(ids) == number].tolist()
                samples = [view.sample([id]) for id in own]
                expected = [
                    [sorted(one.node["node"].tolist()), sorted(one.time[EDGE].tolist())] for one in samples
                ]
                assert workers.ask(number, seq, own) == expected
    finally:
        workers.close()


def test_killed_changes_of_the_numbers_happen_or_do_not(tmp_path: Path) -> None:
    view = Presampler(lg.Graph(SCHEMA), QUERY)
    log = SqliteLog(tmp_path / "events.db")
    runtime = Runtime(log, view.graph, view)
    runtime.start()
    try:
        change(runtime, view, {"path": str(log.path)}, tmp_path / "workers", SqlitePlace(log.path))
    finally:
        runtime.stop()
        log.close()


def test_killed_workers_are_replaced(tmp_path: Path) -> None:
    view = Presampler(lg.Graph(SCHEMA), QUERY)
    log = SqliteLog(tmp_path / "events.db")
    runtime = Runtime(log, view.graph, view)
    runtime.start()
    try:
        run(runtime, view, {"path": str(log.path)}, tmp_path / "workers", draws(2, 6))
    finally:
        runtime.stop()
        log.close()


@needs_broker
@pytest.mark.xdist_group("kafka")
def test_killed_workers_over_kafka_are_replaced(broker: Broker, tmp_path: Path) -> None:
    topic = f"workers-{SEED}"
    create_topics(broker.servers, topic, 2)
    view = Presampler(lg.Graph(SCHEMA), QUERY)
    log = KafkaLog(broker.servers, topic)
    runtime = Runtime(log, view.graph, view)
    runtime.start()
    try:
        run(runtime, view, {"servers": broker.servers, "topic": topic}, tmp_path / "workers", 4)
    finally:
        runtime.stop()
        log.close()


@needs_broker
@pytest.mark.campaign
@pytest.mark.xdist_group("kafka")
def test_killed_changes_over_kafka_happen_or_do_not(broker: Broker, tmp_path: Path) -> None:
    topic = f"changes-{SEED}"
    create_topics(broker.servers, topic, 2)
    view = Presampler(lg.Graph(SCHEMA), QUERY)
    log = KafkaLog(broker.servers, topic)
    runtime = Runtime(log, view.graph, view)
    runtime.start()
    try:
        folder = tmp_path / "workers"
        place = KafkaPlace(broker.servers, topic, folder)
        change(runtime, view, {"servers": broker.servers, "topic": topic}, folder, place)
    finally:
        runtime.stop()
        log.close()
