"""The host of workers: the interface of a stage to processes and threads alike."""

from typing import Protocol

from livegnn.errors import LiveGNNError
from livegnn.functions.bodies import Answer
from livegnn.http.problems import Problem


class WorkerDied(LiveGNNError):
    """A worker has ended without an answer, or did not start. Its request may be sent to another.

    problem: of the error for which it could not begin, if it said one.
    """

    def __init__(self, message: str, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.problem = problem


class Worker(Protocol):
    """A worker that has started. Belongs to one event loop."""

    async def call(self, body: bytes) -> Answer:
        """The answer of the worker. One call at a time. Raises WorkerDied."""

    async def ended(self) -> str:
        """Returns when the worker has ended, with how."""

    async def stop(self) -> None:
        """Ends it, after the call in hand."""

    async def kill(self) -> None:
        """Ends it now."""


class WorkerHost(Protocol):
    """Starts workers of one function."""

    async def launch(self, number: int) -> Worker:
        """Starts a worker and returns when it is ready. number: its own, for names.

        Raises WorkerDied if it does not start. Nothing is left of a launch that fails or is cancelled.
        """

    async def close(self) -> None:
        """Releases the host's own resources; its workers have ended."""
