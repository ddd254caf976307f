"""The settings of a machine: its predictor, and the numbers and kinds of its workers."""

import asyncio
import logging
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from livegnn.arguments import check_int, check_positive
from livegnn.errors import InputError
from livegnn.functions.bodies import LONGEST_WAIT
from livegnn.functions.function import Function, Setting, Step
from livegnn.functions.machine import Machine
from livegnn.functions.options import PREDICTOR, MachineOptions
from livegnn.functions.scheduler import Limits
from livegnn.functions.stage import Stage
from livegnn.functions.worker_host import WorkerDied, WorkerHost
from livegnn.snapshots.objects import checked_gap, with_gap

if TYPE_CHECKING:
    from livegnn.remote.shared_memory import MemoryFile

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MachineSettings(MachineOptions):
    """A machine that predicts from a snapshot. Raises InputError.

    opener: "module:name" of a function that takes `snapshot_url` and `model_path` and opens the predictor.
    memory: here in bytes; of workers that are threads, of the process, which the caller limits. refresh, gap:
    None: as the opener, and `open_objects`, have them.
    """

    def __post_init__(self) -> None:
        check_int(self.workers, "workers", 1)
        check_int(self.sampling_workers, "sampling_workers", 0)
        check_int(self.waiting, "waiting", 0)
        if self.memory is not None:
            check_int(self.memory, "memory", 1)
        if self.refresh is not None:
            check_positive(self.refresh, "refresh")
        if self.gap is not None:
            checked_gap(self.gap)
        if self.place not in ("processes", "threads"):
            raise InputError(f"place must be one of processes, threads, got {self.place!r}")
        if self.cache not in (None, "shared", "private"):
            raise InputError(f"cache must be shared or private, got {self.cache!r}")

    def open(self) -> Machine:
        """The machine, which has no worker yet. Raises InputError for files and functions that workers here
        would not find."""
        self._check_here()
        memory = self._make_memory()
        wanted: dict[Step, int] = {"predict": self.workers}
        if self.sampling_workers:
            wanted = {"sample": self.sampling_workers, "infer": self.workers}
        stages: dict[str, Stage] = {
            step: Stage(
                self._host(self._function(step), memory),
                Limits(workers, keep_alive=self.keep_alive),
                seconds=LONGEST_WAIT,
            )
            for step, workers in wanted.items()
        }
        return Machine(stages, concurrency=self.waiting + sum(wanted.values()), memory=memory)

    def check_memory(self) -> None:
        """Starts a worker of each stage and ends it, if memory is limited. Raises InputError for settings
        that the worker refuses, such as a limit that is too small. Temporary faults, such as a store that
        cannot be reached, are left to the first request."""
        if self.memory is None:
            return
        for step in ("sample", "infer") if self.sampling_workers else ("predict",):
            try:
                asyncio.run(_start_once(self._host(self._function(step), None, checks=True)))
            except WorkerDied as error:
                if error.problem is not None and error.problem.is_of(InputError):
                    raise InputError(error.problem.detail) from error

    def _make_memory(self) -> "MemoryFile | None":
        """The memory that workers share; None without it, also where the system has no such memory."""
        if (self.cache or ("shared" if self.place == "processes" else "private")) == "private":
            return None
        try:
            from livegnn.remote.shared_memory import MemoryFile

            return MemoryFile()
        except (OSError, ImportError) as error:
            _log.warning("each worker keeps features by itself, none are shared: %s", error)
            return None

    def _check_here(self) -> None:
        if self.opener == PREDICTOR and not Path(self.model).is_file():
            raise InputError(f"model must be a model file, found none at {self.model}")
        if find_spec(self.opener.partition(":")[0].partition(".")[0]) is None:
            raise InputError(f"the module of the opener {self.opener!r} is not installed here")

    def _function(self, step: Step) -> Function:
        snapshot = self.snapshot if self.gap is None else with_gap(self.snapshot, self.gap)
        given: dict[str, Setting] = {"snapshot_url": snapshot, "model_path": self.model}
        if self.refresh is not None:
            given["refresh_seconds"] = self.refresh
        return Function(self.opener, given, step, self.memory, self.workers + self.sampling_workers)

    def _host(self, function: Function, memory: "MemoryFile | None", *, checks: bool = False) -> WorkerHost:
        if self.place == "threads":
            from livegnn.functions.threads import ThreadHost

            return ThreadHost(function, memory=memory, checks=checks)
        from livegnn.functions.processes import ProcessHost

        return ProcessHost(function, memory=memory)


async def _start_once(host: WorkerHost) -> None:
    worker = await host.launch(0)
    await worker.stop()
    await host.close()
