"""A cluster of Ray's for tests, in processes of its own, all of which are gone in the end.

The tests do not import Ray. Run as a program, this file is the process that joins it and asks the
coordinator: a line of JSON for each question, and one for each answer.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from waiting import wait_until

MARK = "LIVEGNN_RAY_TEST"


class Worker(NamedTuple):
    """A worker, as `Cluster.workers` has it."""

    kind: str
    number: int
    replica: int
    node: str
    process: int
    seq: int
    address: str | None
    ready: bool
    id: str


class Processes:
    """Everything that is started with `environment`, and what that starts, can be told by a mark."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._at_end: list[Callable[[], object]] = []
        self.folder = Path(tempfile.mkdtemp(prefix="lgray-", dir="/tmp"))  # names of sockets must be short
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            MARK: self._mark,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "RAY_TMPDIR": str(self.folder),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self._mark,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_DEDUP_LOGS": "0",
        }

    def running(self) -> list[int]:
        """Of those, which there are."""
        found = []
        mark = f"{MARK}={self._mark}".encode()
        for path in Path("/proc").iterdir():
            if path.name.isdigit():
                try:
                    if mark in (path / "environ").read_bytes():
                        found.append(int(path.name))
                except OSError:  # it has ended
                    continue
        return found

    def listening(self) -> set[str]:
        """The addresses at which they listen, in hexadecimal as the system has them (`/proc/net/tcp`)."""
        sockets = {}
        for table in ("tcp", "tcp6"):
            for row in Path(f"/proc/net/{table}").read_text(encoding="utf-8").splitlines()[1:]:
                words = row.split()
                if words[3] == "0A":  # it listens
                    sockets[f"socket:[{words[9]}]"] = words[1].split(":")[0]
        found = set()
        for process in self.running():
            with suppress(OSError):
                for descriptor in Path(f"/proc/{process}/fd").iterdir():
                    with suppress(OSError):
                        found.add(sockets.get(os.readlink(descriptor), ""))
        return found - {""}

    def named(self, name: str) -> list[int]:
        """Of those, the actors of this class."""
        found = []
        for process in self.running():
            with suppress(OSError):
                if Path(f"/proc/{process}/cmdline").read_bytes().startswith(f"ray::{name}".encode()):
                    found.append(process)
        return found

    def _kill_all(self) -> list[int]:
        """Kills those that run, and returns them."""
        left = self.running()
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return left

    def at_end(self, call: Callable[[], object]) -> None:
        """Has `call` called when all of them are gone."""
        self._at_end.append(call)

    def end(self) -> None:
        """Kills all of them. Raises AssertionError if some are left."""
        wait_until(lambda: not self._kill_all(), "the end of a cluster's processes")
        while self._at_end:
            self._at_end.pop()()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def ray_processes() -> Iterator[Processes]:
    """Processes of a test, which end with it, however it ends."""
    processes = Processes()
    try:
        yield processes
    finally:
        processes.end()


class Driver:
    """A process that has joined Ray and asks the coordinator. prefix: a command that runs it elsewhere."""

    def __init__(self, processes: Processes, given: Mapping[str, object], prefix: Sequence[str] = ()) -> None:
        self._said = processes.folder / "driver"
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                [*prefix, sys.executable, __file__, json.dumps(given)],
                env=processes.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        processes.at_end(self._process.communicate)

    def ask(self, method: str, *given: object) -> object:
        """What a method of `Cluster` returns. Raises AssertionError that names what it raised."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([method, *given]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the driver has ended: {self._said.read_text(encoding='utf-8')[-3000:]}")
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def workers(self) -> list[Worker]:
        found = self.ask("workers")
        assert isinstance(found, list)
        return [Worker(*one) for one in found]

    def until(self, holds: Callable[[list[Worker]], object]) -> list[Worker]:
        """Waits until something holds of the workers, and returns them."""
        workers: list[Worker] = []

        def hold() -> object:
            workers[:] = self.workers()
            return holds(workers)

        try:
            wait_until(hold)
        except AssertionError as error:
            raise AssertionError(f"{workers}\n{self.ask('said')}"[:3000]) from error
        return workers


def main() -> None:
    import ray

    from livegnn import Query, Schema
    from livegnn.cluster import ClusterSpec, Pace, Patience
    from livegnn.cluster.cluster import Cluster
    from livegnn.errors import LiveGNNError
    from livegnn.workers import KafkaPlace, SqlitePlace

    given = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints lines of its own
    if "address" in given:
        ray.init(given["address"], log_to_driver=False)
    else:
        ray.init(
            "local",
            num_cpus=1,
            object_store_memory=80 << 20,
            include_dashboard=False,
            log_to_driver=False,
        )
    if "path" in given:
        place = SqlitePlace(given["path"])
    else:
        place = KafkaPlace(given["servers"], given["topic"], "unused")
    schema = Schema.from_json(given["schema"])
    wanted = {"listen": "node", "insecure": True, **given["spec"]}
    spec = ClusterSpec(place, schema, Path(given["directory"]), **wanted)
    cluster = Cluster.start(spec, patience=Patience(**given["patience"]), pace=Pace(beat_seconds=0.2))
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        try:
            if method == "register":
                cluster.register(Query.from_json(arguments[0]))
                value = None
            else:
                value = getattr(cluster, method)(*arguments)
            print(json.dumps({"value": value}), file=answers, flush=True)
        except LiveGNNError as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers, flush=True)


if __name__ == "__main__":
    main()
