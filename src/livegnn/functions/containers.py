"""Workers that are containers: the command line of an engine, docker or podman, passes their frames."""

import asyncio
import os
import secrets
from collections.abc import Sequence

from livegnn.arguments import above_zero
from livegnn.functions.function import Function
from livegnn.functions.processes import START_SECONDS, CommandWorker, start
from livegnn.remote.memory_limit import VARIABLES


class ContainerHost:
    """Starts each worker as a container of an image in which this package is installed.

    The function's `memory` limits the worker, as in a process, and the engine limits its container.
    options: further ones of `run`, such as ``["--volume", "/data:/data:ro"]``. engine: the command.
    """

    def __init__(
        self,
        function: Function,
        image: str,
        *,
        engine: str = "docker",
        options: Sequence[str] = (),
        seconds: float = START_SECONDS,
    ) -> None:
        self._function, self._image = function, image
        self._engine, self._options = engine, list(options)
        self._seconds = above_zero(seconds, "seconds")
        self._names = f"livegnn-{os.getpid()}-{secrets.token_hex(4)}"

    def command(self, number: int) -> list[str]:
        """What starts worker `number`."""
        memory = self._function.memory
        limit = [] if memory is None else ["--memory", f"{memory}b", "--memory-swap", f"{memory}b"]
        variables = [word for name, value in VARIABLES.items() for word in ("--env", f"{name}={value}")]
        return [
            *(self._engine, "run", "--rm", "--interactive", "--init", "--name", self._name(number)),
            *limit,
            *variables,
            *self._options,
            *(self._image, "python", "-m", "livegnn.functions.worker", self._function.to_json()),
        ]

    async def launch(self, number: int) -> CommandWorker:
        """Starts a container and returns when its worker is ready. Raises WorkerDied."""

        async def kill() -> None:
            killer = await asyncio.create_subprocess_exec(
                *(self._engine, "kill", self._name(number)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            await killer.wait()

        return await start(self.command(number), kill=kill, seconds=self._seconds)

    async def close(self) -> None:
        """Containers are removed as they end."""

    def _name(self, number: int) -> str:
        return f"{self._names}-{number}"
