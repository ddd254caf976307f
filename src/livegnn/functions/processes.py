"""Workers that are processes of this machine: frames (`livegnn.functions.worker`) pass over their standard
input and output.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from livegnn.arguments import check_positive
from livegnn.functions.bodies import Answer
from livegnn.functions.function import Function
from livegnn.functions.worker import FRAME, pack_request, unpack_answer
from livegnn.functions.worker_host import WorkerDied
from livegnn.http.problems import read_problem
from livegnn.remote.memory_limit import VARIABLES

if TYPE_CHECKING:
    from livegnn.remote.shared_memory import MemoryFile

START_SECONDS: Final = 60.0
"""In which a worker must be ready."""

STOP_SECONDS: Final = 10.0
"""The time that a worker has for its current request, when it has to end."""

_END_SECONDS = 1.0  # for a process whose output has ended, or that has got SIGTERM


class ProcessWorker:
    """A process that answers frames."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._input, self._output = process.stdin, process.stdout

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    async def call(self, body: bytes) -> Answer:
        """The worker's answer to `body`. Raises WorkerDied."""
        try:
            self._input.write(pack_request(len(body)))
            self._input.write(body)
            await self._input.drain()
        except (ConnectionError, RuntimeError) as error:
            raise WorkerDied(f"expected a worker to take a request, its input is closed: {error}") from error
        return await self.read()

    async def read(self) -> Answer:
        """The next frame. Raises WorkerDied."""
        try:
            answer, length = unpack_answer(await self._output.readexactly(FRAME.size))
            return answer._replace(body=await self._output.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self._wait(_END_SECONDS)
            await self.kill()
            raise WorkerDied(f"expected an answer of a worker, it {await self.ended()}") from error

    async def ended(self) -> str:
        """Returns how the process has ended, when it has."""
        code = await self._process.wait()
        return f"ended by signal {-code}" if code < 0 else f"ended with status {code}"

    async def stop(self) -> None:
        """Ends the input, then sends SIGTERM, then kills."""
        self._input.close()
        if not await self._wait(STOP_SECONDS):
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            await self._wait(_END_SECONDS)
            await self.kill()

    async def kill(self) -> None:
        """Ends the process now."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()

    async def _wait(self, seconds: float) -> bool:
        """Whether the process ends within this number of seconds. A signal to a process that has ended and
        was not waited for would take its status away."""
        try:
            await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            return False
        return True


async def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    seconds: float = START_SECONDS,
    descriptors: Sequence[int] = (),
) -> ProcessWorker:
    """Runs a command and returns when its worker is ready. descriptors: open files that it has, too. Raises
    WorkerDied."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**VARIABLES, **os.environ, **(environment or {})},
            start_new_session=True,
            pass_fds=descriptors,
        )
    except OSError as error:
        raise WorkerDied(f"cannot start {command[0]}: {error}") from error
    worker = ProcessWorker(process)
    try:
        async with asyncio.timeout(seconds):
            first = await worker.read()
    except TimeoutError:
        await worker.kill()
        raise WorkerDied(f"expected a worker to be ready within {seconds:g} seconds") from None
    except asyncio.CancelledError:
        await worker.kill()
        raise
    if first.status != 200:
        await worker.kill()
        problem = read_problem(first.body)
        raise WorkerDied(f"a worker could not begin: {problem.title}: {problem.detail}", problem)
    return worker


class ProcessHost:
    """Starts each worker as a fresh Python process, so that it has no thread and no lock of this one.

    function: what workers run; its `memory` is the limit of each process. memory: what workers have in
    common, beside that. environment: variables beside those of this process. seconds: in which a worker must
    be ready.
    """

    def __init__(
        self,
        function: Function,
        *,
        memory: "MemoryFile | None" = None,
        environment: Mapping[str, str] | None = None,
        seconds: float = START_SECONDS,
    ) -> None:
        self._command = [sys.executable, "-m", "livegnn.functions.worker", function.to_json()]
        self._memory, self._forgetting = memory, set[asyncio.Task[None]]()
        self._environment, self._seconds = environment, check_positive(seconds, "seconds")

    async def launch(self, number: int) -> ProcessWorker:
        """Starts a process and returns when it is ready. Raises WorkerDied."""
        memory, worker = self._memory, None
        shared = [] if memory is None else [memory.fd]
        try:
            worker = await start(
                [*self._command, *map(str, shared)],
                environment=self._environment,
                seconds=self._seconds,
                descriptors=shared,
            )
        finally:
            if memory is not None:
                self._begin(self._forget(memory, worker))
        return worker

    async def close(self) -> None:
        """Nothing is left."""
        await asyncio.gather(*self._forgetting)

    def _begin(self, forgetting: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(forgetting)
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def _forget(self, memory: "MemoryFile", worker: ProcessWorker | None) -> None:
        """Releases common memory of a worker when it has ended; None if it did not start."""
        if worker is not None:
            await worker.ended()
        await asyncio.to_thread(memory.release_of_ended)
