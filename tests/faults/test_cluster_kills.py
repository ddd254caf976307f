"""Workers on a Ray cluster are killed, frozen and moved under load: the answers in the end are whole."""

import json
import os
import random
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import livegnn as lg
import loopback
from kafka_broker import Broker, needs_broker
from livegnn.log.kafka import KafkaLog, create_topics
from livegnn.log.sqlite import SqliteLog
from livegnn.presampling import Presampler
from livegnn.runtime import Runtime
from livegnn.workers import WorkerPlan
from network import Network, needs_namespaces, network
from network import run as begin
from ray_cluster import Driver, Processes, Worker, ray_processes
from waiting import REQUEST_SECONDS, wait_until

EDGE = ("node", "to", "node")
SCHEMA = lg.Schema({"node": 1}, {EDGE: lg.EdgeSchema(timed=True)})
QUERY = lg.Query("node").hop(EDGE, 4, by="latest").hop(EDGE, 50)
NODES = 40
SEED = int(os.environ.get("LIVEGNN_SEED", "0"))
PATIENCE = {"silent_seconds": 3.0, "stuck_seconds": 30.0, "start_seconds": 60.0}


class Stream:
    """Events for a runtime, beside which a view keeps the samples that workers must have."""

    def __init__(self, runtime: Runtime, view: Presampler) -> None:
        print(f"LIVEGNN_SEED={SEED}")
        self.random = random.Random(SEED)
        self._runtime, self._view, self._time = runtime, view, 0.0
        self.seq = runtime.append(lg.Events().add_nodes(np.arange(NODES), np.ones((NODES, 1))))

    def append(self, edges: int) -> None:
        for _ in range(edges):
            self._time += 1
            ends = self.random.randrange(NODES), self.random.randrange(NODES)
            self.seq = self._runtime.append(lg.Events().add_edges(*ends, time=[self._time]))

    def check(self, plan: WorkerPlan, worker: Worker) -> None:
        """All samples of a serving worker are those of the view."""
        self._runtime.wait(self.seq)
        ids = np.arange(NODES)
        own = ids[plan.serving_worker_of(ids) == worker.number].tolist()
        answer = loopback.post(
            f"{worker.address}/v1/samples",
            json={"ids": own, "min_seq": self.seq, "timeout": REQUEST_SECONDS},
            trust_env=False,
        ).json()
        assert answer.get("ids") == own, answer
        for id, sample in zip(own, answer["samples"], strict=True):
            expected = self._view.sample([id])
            nodes, (edges,) = sample["nodes"]["node"], sample["edges"]
            assert sorted(nodes) == sorted(expected.node["node"].tolist())
            rows, columns = (
                expected.node["node"][part[EDGE]].tolist() for part in (expected.row, expected.col)
            )
            found = [(nodes[row], nodes[col]) for row, col in zip(edges["row"], edges["col"], strict=True)]
            assert sorted(found) == sorted(zip(rows, columns, strict=True))


@pytest.fixture
def processes() -> Iterator[Processes]:
    with ray_processes() as found:
        yield found


def all_ready(workers: list[Worker], count: int) -> bool:
    return len(workers) == count and all(worker.ready for worker in workers)


@pytest.mark.campaign
@pytest.mark.xdist_group("ray")
def test_workers_of_a_cluster_are_killed_and_replaced(processes: Processes, tmp_path: Path) -> None:
    view = Presampler(lg.Graph(SCHEMA), QUERY)
    log = SqliteLog(tmp_path / "events.db")
    runtime = Runtime(log, view.graph, view)
    runtime.start()
    try:
        given = {
            "path": str(log.path),
            "directory": str(tmp_path / "workers"),
            "schema": SCHEMA.to_json(),
            "spec": {"sampling_workers": 2, "serving_workers": 2, "replicas": 2, "checkpoint_every": 50},
            "patience": PATIENCE,
        }
        driver = Driver(processes, given)
        run(driver, processes, Stream(runtime, view))
    finally:
        runtime.stop()
        log.close()


def run(driver: Driver, processes: Processes, stream: Stream) -> None:
    plan = WorkerPlan(SCHEMA, QUERY, 2, 2, 2)
    with pytest.raises(AssertionError, match="UnknownTypeError"):
        driver.ask("register", lg.Query("user").hop(("user", "to", "node"), 4).to_json())
    assert driver.ask("workers") == []
    driver.ask("register", QUERY.to_json())
    stream.append(30)
    driver.until(lambda workers: all_ready(workers, 4))
    assert driver.ask("checkpoint") <= stream.seq
    driver.ask("replicate", 1, 2)
    with pytest.raises(AssertionError, match=r"InputError: .*replicas"):
        driver.ask("replicate", 1, 3)
    stream.append(30)
    workers = driver.until(lambda workers: all_ready(workers, 5))
    (coordinator,) = processes.named("Coordinator")
    os.kill(coordinator, signal.SIGKILL)
    again = driver.until(lambda workers: all_ready(workers, 5))
    assert [worker.process for worker in again] == [worker.process for worker in workers]
    assert processes.named("Coordinator") != [coordinator]
    faults = {
        ("sampling", 0, 0): signal.SIGKILL,
        ("serving", 1, 1): signal.SIGKILL,
        ("sampling", 1, 0): signal.SIGSTOP,
    }
    gone = {worker.process: fault for worker in workers if (fault := faults.get(worker[:3])) is not None}
    for process, fault in gone.items():
        os.kill(process, fault)
    stream.append(30)
    driver.until(
        lambda workers: all_ready(workers, 5) and not gone.keys() & {worker.process for worker in workers}
    )
    stream.append(30)
    assert driver.ask("checkpoint") > 0
    for worker in driver.workers():
        if worker.kind == "serving":
            stream.check(plan, worker)
    print("\n".join(driver.ask("said")))
    driver.ask("replicate", 1, 1)
    workers = driver.until(lambda workers: all_ready(workers, 4))
    assert [sorted(one) for one in driver.ask("addresses")] == [
        [worker.address for worker in workers if worker[:2] == ("serving", number)] for number in range(2)
    ]
    driver.ask("stop")


HEALTH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 5,
}


def start_nodes(processes: Processes, machines: Network, folder: Path) -> None:
    """Ray's head on machine 0, for serving workers; another node on machine 1, for sampling workers, where
    `folder` has files of its own.
    """
    common = [
        "--num-cpus=1",
        "--object-store-memory=80000000",
        "--disable-usage-stats",
    ]
    ray = str(Path(sys.executable).parent / "ray")
    begin(
        [
            *machines.on(0),
            *(ray, "start", "--head", f"--node-ip-address={machines.address(0)}", "--port=6379"),
            *common,
            f"--temp-dir={processes.folder}",
            "--include-dashboard=false",
            f"--system-config={json.dumps(HEALTH)}",
            '--resources={"livegnn_serving": 1}',
        ],
        processes.environment,
    )
    join = [
        *(ray, "start", f"--address={machines.address(0)}:6379", f"--node-ip-address={machines.address(1)}"),
        *common,
        '--resources={"livegnn_sampling": 1}',
    ]
    own = f"mount -t tmpfs none {folder} && exec {shlex.join(join)}"
    begin([*machines.on(1), "sh", "-c", own], processes.environment)


@needs_broker
@needs_namespaces
@pytest.mark.campaign
@pytest.mark.xdist_group("ray")
def test_workers_of_a_machine_that_is_cut_off_are_placed_again(processes: Processes, tmp_path: Path) -> None:
    """Two machines without a common folder. Sampling workers whose machine is cut off take all steps again on
    the other one; when the link is mended, those that were left there change nothing. They end by themselves:
    Ray's own process on their machine stands still, so that Ray cannot end them.
    """
    folder = tmp_path / "workers"
    folder.mkdir()
    with network(2) as machines:
        broker = Broker(host=machines.host)
        try:
            topic = f"cluster-{SEED}"
            create_topics(broker.servers, topic, 2)
            view = Presampler(lg.Graph(SCHEMA), QUERY)
            log = KafkaLog(broker.servers, topic)
            runtime = Runtime(log, view.graph, view)
            runtime.start()
            try:
                start_nodes(processes, machines, folder)
                given = {
                    "address": f"{machines.address(0)}:6379",
                    "servers": broker.servers,
                    "topic": topic,
                    "directory": str(folder),
                    "schema": SCHEMA.to_json(),
                    "spec": {
                        "sampling_workers": 2,
                        "serving_workers": 1,
                        "shared": False,
                        "checkpoint_every": 20,
                    },
                    "patience": PATIENCE,
                }
                driver = Driver(processes, given, machines.on(0))
                cut_and_mend(driver, processes, machines, Stream(runtime, view))
            finally:
                runtime.stop()
                log.close()
        finally:
            processes.end()  # before their network goes
            broker.close()


def settle(driver: Driver, meant: dict[str, str]) -> None:
    """Waits until all workers are on the nodes that are meant for their kinds. On a slow machine a worker may
    be silent for longer than `PATIENCE`, and is then placed elsewhere: it is killed, and placed again.
    """
    while True:
        workers = driver.until(lambda workers: all_ready(workers, 3))
        strayed = {worker.process for worker in workers if worker.node != meant[worker.kind]}
        if not strayed:
            return
        for process in strayed:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        wait_until(lambda gone=strayed: not gone & {worker.process for worker in driver.workers()})


def cut_and_mend(driver: Driver, processes: Processes, machines: Network, stream: Stream) -> None:
    plan = WorkerPlan(SCHEMA, QUERY, 2, 1)
    serving, sampling = machines.address(0), machines.address(1)

    def check() -> None:
        for worker in driver.until(lambda workers: all_ready(workers, 3)):
            if worker.kind == "serving":
                assert worker.node == serving
                stream.check(plan, worker)

    driver.ask("register", QUERY.to_json())
    stream.append(40)
    settle(driver, {"serving": serving, "sampling": sampling})
    assert driver.ask("checkpoint") > 0
    check()
    machines.cut(1)
    (raylet,) = (it for it in machines.processes(1) if Path(f"/proc/{it}/comm").read_text() == "raylet\n")
    os.kill(raylet, signal.SIGSTOP)
    stream.append(40)
    driver.until(lambda workers: all_ready(workers, 3) and all(worker.node == serving for worker in workers))
    check()
    print("\n".join(driver.ask("said")))
    machines.mend(1)
    stream.append(40)
    check()
    assert {worker.node for worker in driver.workers()} == {serving}
    placed = {worker.process for worker in driver.workers()}
    wait_until(
        lambda: not set(processes.named("SamplingActor")) - placed, "the end of those that were left there"
    )
    driver.ask("stop")
