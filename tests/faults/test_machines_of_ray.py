"""Parts of a graph, and workers, on two machines of Ray: where they are placed, lost ones, and commands.

The last test loses one of the machines.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import loopback
from divided_deployment import write
from livegnn import Engine, Events, Graph, checkpoint
from livegnn.deployment import Deployment
from network import run
from ports import free_port
from processes import runs
from ray_cluster import Processes, ray_processes
from serving import Server
from streams import WIDTH, make_model
from waiting import REQUEST_SECONDS, wait_until
from worker_commands import CommandLine, Process, check_answers, write_deployment

pytestmark = pytest.mark.xdist_group("ray")
NODES = 20
RAY = str(Path(sys.executable).parent / "ray")
LAST_OF_WORKERS = 19_999  # of the ports that Ray gives to its workers
COMMON = ["--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats"]


SECOND = "127.0.0.2"


class Machines(NamedTuple):
    """Two nodes of Ray on this machine. address: of the head node, which is also that of the server."""

    processes: Processes
    address: str

    def parts(self) -> list[int]:
        """The processes of parts."""
        found = []
        for process in self.processes.running():
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0") if runs(process) else []
            if b"livegnn.partitions.worker" in words:
                found.append(process)
        return found

    def lose(self, node: str) -> None:
        """Kills all processes of a node, at once."""
        left = self.processes.running()
        parents = {process: parent_of(process) for process in left if runs(process)}
        lost = {one for one in parents if f"--node_ip_address={node}" in command_of(one)}
        assert lost
        while more := {one for one, parent in parents.items() if parent in lost} - lost:
            lost |= more
        for signal_number in (signal.SIGSTOP, signal.SIGKILL):  # none sees the end of another one
            for process in lost:
                with suppress(ProcessLookupError):
                    os.kill(process, signal_number)


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with ray_processes() as processes:
        processes.environment["RAY_health_check_period_ms"] = "500"  # a lost node is found five times sooner
        port = next(port for port in iter(free_port, None) if port > LAST_OF_WORKERS)
        head = [RAY, "start", "--head", "--node-ip-address=127.0.0.1", f"--port={port}", *COMMON]
        run([*head, f"--temp-dir={processes.folder}", "--include-dashboard=false"], processes.environment)
        second = [f"--address=127.0.0.1:{port}", f"--node-ip-address={SECOND}"]
        run([RAY, "start", *second, *COMMON], processes.environment)
        yield Machines(processes, f"127.0.0.1:{port}")


@pytest.fixture(scope="module")
def line(machines: Machines) -> Iterator[CommandLine]:
    one = CommandLine(machines.processes.environment)
    yield one
    one.end()


def command_of(process: int) -> list[str]:
    return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def deploy(folder: Path, partitions: int, ray: str, more: str = "") -> Path:
    path = write(folder, "parts", partitions, silent_seconds=10, more=more)
    text = path.read_text(encoding="utf-8").replace("[cluster]", f'[cluster]\nray = "{ray}"')
    path.write_text(text, encoding="utf-8")
    return path


def predict(address: str, seq: int) -> list[list[float]]:
    body = {"ids": list(range(NODES)), "min_seq": seq, "timeout": REQUEST_SECONDS}
    answer = loopback.post(address + "/v1/predictions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"]


@pytest.mark.explored
def test_starts_that_are_refused(machines: Machines, tmp_path: Path) -> None:
    """More parts than machines, a Ray that does not know the token, and an address where none is."""
    environment = machines.processes.environment
    cases = {
        "machines": (3, machines.address, {}, "at most 2, the number of Ray's machines, got 3"),
        "token": (2, machines.address, {"RAY_AUTH_TOKEN": "another"}, "must be the address of a head node"),
        "address": (2, f"127.0.0.1:{free_port()}", {}, "must be the address of a head node"),
    }
    started = {}
    for name, (partitions, ray, changed, _) in cases.items():
        (tmp_path / name).mkdir()
        path = deploy(tmp_path / name, partitions, ray)
        started[name] = subprocess.Popen(
            [sys.executable, "-m", "livegnn", "serve", str(path)],
            env={**environment, **changed},
            stderr=subprocess.PIPE,
            text=True,
        )
    for name, process in started.items():
        _, said = process.communicate()
        assert process.returncode == 1, said
        assert cases[name][3] in said
        assert not (tmp_path / name / "events.db").exists()
    assert not machines.parts()


def test_the_commands_of_a_cluster(machines: Machines, line: CommandLine, tmp_path: Path) -> None:
    path = write_deployment(tmp_path)
    text = path.read_text(encoding="utf-8").replace("sampling = 2\nserving = 2", "sampling = 1\nserving = 1")
    text = text.replace("\nbudget", "\nreplicas = 2\ninsecure = true\nbudget")
    text += f'[cluster]\nray = "{machines.address}"\nlisten = "node"\nbeat_seconds = 0.2\n'
    path.write_text(text, encoding="utf-8")
    assert "InputError" in line.run("cluster", "status", path)[1]  # none is up
    with Server(path) as server:
        for _ in range(2):  # the second time it finds them
            status, said = line.run("cluster", "up", path, "--detach")
            assert (status, said[:13]) == (0, "up: 2 workers")
        front = Process("front", path, "--port", 0, environment=machines.processes.environment)
        address = front.line.split()[-1]
        try:
            seq = check_answers(server.address, address)
            assert_moves(line, path, address)
        finally:
            status = front.stop()
        assert status == 0
    status, said = line.run("cluster", "down", path)
    assert (status, said) == (0, "down: 3 workers have ended\n")
    assert "InputError" in line.run("cluster", "down", path)[1]
    wait_until(lambda: not machines.processes.named("S"), "the end of all workers")
    saved = checkpoint.read(tmp_path / "workers" / "sampling-0.checkpoint", states=())
    assert saved.seq == seq


def assert_moves(line: CommandLine, path: Path, front: str) -> None:
    """A replica is added, and all workers leave a machine; the last machine keeps them."""

    def workers() -> list[dict[str, object]]:
        return loopback.get(front + "/v1/workers").json()["workers"]

    assert line.run("cluster", "add", path, 0) == (0, "serving worker 0: 2 replicas\n")
    assert "InputError" in line.run("cluster", "add", path, 0)[1]
    assert "InputError" in line.run("cluster", "add", path, 1)[1]
    wait_until(lambda: len(workers()) == 3 and all(one["ready"] for one in workers()), "three workers")
    one = next(str(worker["id"]) for worker in workers() if worker["kind"] == "sampling")
    (other,) = {str(worker["id"]) for worker in workers()} - {one}
    saved = path.parent / "workers" / "sampling-0.checkpoint"
    assert not saved.exists()
    status, said = line.run("cluster", "status", path)
    rows = [row.split() for row in said.splitlines()]
    assert (status, len(rows)) == (0, 4)
    assert [row[:3] for row in rows[1:]] == [
        ["sampling", "0", "0"],
        ["serving", "0", "0"],
        ["serving", "0", "1"],
    ]
    assert {row[7] for row in rows[1:]} == {"ready"}
    status, said = line.run("cluster", "drain", path, one[:8])
    assert status == 0, said
    assert said.startswith(f"{one[:8]} takes no workers; moved: sampling worker 0")
    assert saved.exists()
    wait_until(
        lambda: len(workers()) == 3 and all(it["ready"] and it["id"] == other for it in workers()),
        "workers on the other machine",
    )
    assert "the last one" in line.run("cluster", "drain", path, other)[1]
    assert "must be one of" in line.run("cluster", "drain", path, "10.9.8.7")[1]
    assert line.run("cluster", "drain", path, one[:8], "--undo") == (0, f"{one[:8]} takes workers\n")


class Served:
    """A server of parts, beside an engine in one piece that takes the same batches."""

    def __init__(self, server: Server, path: Path) -> None:
        self._server = server
        self.graph = Graph(Deployment.read(path).load_graph().schema, threads=1)
        self._engine = Engine(self.graph, make_model(), threads=1)
        self._rng = np.random.default_rng(5)
        self._seq = 0
        self._append(Events().add_nodes(np.arange(NODES), self._rng.normal(size=(NODES, WIDTH))))

    def append(self) -> None:
        """Some edges, whose events are acknowledged."""
        self._append(Events().add_edges(*self._rng.integers(0, NODES, (2, 30))))

    def _append(self, events: Events) -> None:
        self.graph.apply(events)
        kind = {"content-type": "application/x-ndjson"}
        url, content = self._server.address + "/v1/events", events.to_json_lines()
        self._seq = loopback.post(url, content=content, headers=kind).json()["seq"]

    def check(self) -> None:
        """Predictions after all acknowledged events have the bits of the engine."""
        found = predict(self._server.address, self._seq)
        assert np.array(found, np.float32).tobytes() == self._engine.predict(np.arange(NODES)).tobytes()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Checks predictions again and again meanwhile, in a thread."""
        done, checked = threading.Event(), 0

        def read() -> None:
            nonlocal checked
            while not done.is_set():
                self.check()
                checked += 1

        with ThreadPoolExecutor(1) as pool:
            reads = pool.submit(read)
            try:
                yield
            finally:
                done.set()
            reads.result()
        assert checked

    def is_ready(self) -> bool:
        return loopback.get(self._server.address + "/readyz").status_code == 200


def places(line: CommandLine, path: Path) -> list[list[str]]:
    """The rows of both parts in the table of `livegnn cluster status`."""
    status, said = line.run("cluster", "status", path)
    rows = [row.split() for row in said.splitlines()[1:]]
    assert (status, [" ".join(row[:3]) for row in rows]) == (0, ["partition 0 0", "partition 1 0"])
    assert {row[7] for row in rows} == {"runs"}
    return rows


@pytest.mark.campaign
def test_parts_on_the_machines_of_ray(machines: Machines, line: CommandLine, tmp_path: Path) -> None:
    """Parts are replaced after the end of a process, a drain, and the loss of a machine. Files are sent to
    parts and back. Reads go on while parts leave a machine."""
    checkpoints = 'shared = false\n[checkpoint]\ndirectory = "kept"\nevery_events = 30\n'
    path = deploy(tmp_path, 2, machines.address, checkpoints)
    with Server(path, environment=machines.processes.environment) as server:
        served = Served(server, path)
        served.append()
        served.check()
        rows = places(line, path)
        (head,) = {row[3] for row in rows} - {SECOND}
        before = machines.parts()
        assert {int(row[5]) for row in rows} == set(before)
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: not served.is_ready())
        wait_until(served.is_ready)
        served.check()
        wait_until(lambda: len(machines.processes.named("PartActor")) == 2, "the end of the old parts")
        (moved,) = {row[1] for row in places(line, path) if row[3] == head}
        assert "while their server is stopped" in line.run("cluster", "add", path, 0)[1]
        assert "must be one of" in line.run("cluster", "drain", path, "10.9.8.7")[1]
        with served.reading():
            status, said = line.run("cluster", "drain", path, head, "--timeout", 100)
        assert (status, said) == (0, f"{head} takes no parts; moved: {moved}\n")
        assert {row[3] for row in places(line, path)} == {SECOND}
        assert served.is_ready()
        served.append()
        served.check()
        assert "the last one" in line.run("cluster", "drain", path, SECOND)[1]
        assert line.run("cluster", "drain", path, head, "--undo") == (0, f"{head} takes parts\n")
        machines.lose(SECOND)
        served.append()  # acknowledged, though no part is there
        wait_until(lambda: not served.is_ready())
        wait_until(served.is_ready)
        served.check()
        assert {row[3] for row in places(line, path)} == {head}
        assert server.stop() == 0
    assert len(list((tmp_path / "kept").glob(f"part-0?-{served.graph.seq:020}*.lgck"))) == 2
    wait_until(lambda: not machines.parts(), "the end of all parts")
    wait_until(lambda: not machines.processes.named("PartActor"), "the end of all actors")
