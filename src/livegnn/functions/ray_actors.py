"""Workers that are actors of a Ray cluster. Needs ray; the caller has called `ray.init`."""

import asyncio
import contextlib
import threading
from typing import Any

import ray

from livegnn.arguments import above_zero
from livegnn.functions.bodies import Answer
from livegnn.functions.function import Function, answer, limit
from livegnn.functions.processes import START_SECONDS
from livegnn.functions.worker_host import WorkerDied
from livegnn.remote.memory_limit import VARIABLES, prepare

_LONGEST_REASON = 500


class _Actor:
    """Runs in a process of the cluster. Three threads: one is asked, one waits for the end, one ends."""

    def __init__(self, text: str) -> None:
        self._function = Function.from_json(text)
        self._end = threading.Event()

    def open(self) -> tuple[str, str] | None:
        """Opens the predictor. Returns the name and the message of the error if it cannot be opened."""
        prepare()
        try:
            self._opened = self._function.open()
            self._room = limit(self._opened, self._function)
        except Exception as error:
            return type(error).__name__, str(error)
        return None

    def call(self, body: bytes) -> tuple[int, bytes, int, int]:
        found = answer(self._opened, self._function.stage, body, self._room)
        return found.status, found.body, found.store_requests, found.store_bytes

    def hold(self) -> None:
        self._end.wait()

    def end(self) -> None:
        self._end.set()


class RayHost:
    """Starts each worker as an actor. The function's `memory` limits it, as in a process, and is what Ray
    reserves for it on a node.

    cpus: that Ray reserves for an actor. seconds: in which it must be ready, waiting for a node included.
    """

    def __init__(self, function: Function, *, cpus: float = 1.0, seconds: float = START_SECONDS) -> None:
        self._function = function
        self._seconds = above_zero(seconds, "seconds")
        self._options: dict[str, Any] = {"num_cpus": cpus, "max_concurrency": 3, "max_restarts": 0}
        self._options["runtime_env"] = {"env_vars": VARIABLES}
        if function.memory is not None:
            self._options["memory"] = function.memory

    async def launch(self, number: int) -> "RayWorker":
        """Starts an actor and returns when it is ready. Raises WorkerDied."""
        actor: Any = ray.remote(_Actor).options(**self._options).remote(self._function.to_json())
        try:
            async with asyncio.timeout(self._seconds):
                if (failure := await actor.open.remote()) is not None:
                    reason = f"a worker could not begin: {': '.join(failure)}"
                    raise WorkerDied(reason, *failure)
        except WorkerDied:
            ray.kill(actor)
            raise
        except BaseException as error:
            ray.kill(actor)
            if isinstance(error, Exception):
                raise WorkerDied(f"expected an actor to be ready, got {_told(error)}") from error
            raise
        return RayWorker(actor)

    async def close(self) -> None:
        """The cluster is the caller's."""


class RayWorker:
    """An actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._held = actor.hold.remote()

    async def call(self, body: bytes) -> Answer:
        """What the actor answers. Raises WorkerDied."""
        try:
            status, content, requests, read = await self._actor.call.remote(body)
            return Answer(status, content, store_requests=requests, store_bytes=read)
        except ray.exceptions.RayError as error:
            raise WorkerDied(f"expected an answer of an actor, got {_told(error)}") from error

    async def ended(self) -> str:
        """Returns when the actor has ended, with how."""
        try:
            await self._held
        except ray.exceptions.RayError as error:
            return f"ended: {_told(error)}"
        return "was told to end"

    async def stop(self) -> None:
        """Ends the actor; the caller waits for the call in hand."""
        with contextlib.suppress(ray.exceptions.RayError):
            await self._actor.end.remote()
        await self.kill()

    async def kill(self) -> None:
        """Ends the actor now."""
        ray.kill(self._actor)


def _told(error: Exception) -> str:
    """The end of what Ray says, behind the traceback of the other process."""
    return f"{type(error).__name__}: {str(error)[-_LONGEST_REASON:]}"
