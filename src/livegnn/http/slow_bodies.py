"""Bodies of requests that are being received: one whose client sends too slowly is given up.

A body must be here after 30 seconds, and one second more for each KiB that has arrived. Otherwise clients
that send a byte now and then would keep connections and memory for ever.

Thread safety: belongs to the event loop of the server.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

    from starlette.types import Message, Receive

SECONDS: Final = 30.0
LEAST_RATE: Final = 1024.0
"""Bytes a second, after the first seconds."""


class Body:
    """A body, which `task` receives. late: whether it was given up."""

    __slots__ = ("_began", "_receive", "_received", "_waits", "ended", "late", "task")

    def __init__(self, receive: "Receive", task: "asyncio.Task[object]") -> None:
        self._receive, self.task = receive, task
        self._began: float | None = None
        self._received = 0
        self._waits = self.ended = self.late = False

    async def receive(self) -> "Message":
        """The next part."""
        self._waits = True  # else the application does something with the parts before
        try:
            message = await self._receive()
        finally:
            self._waits = False
        self._received += len(message.get("body", b""))
        self.ended = not message.get("more_body", False)
        return message

    def end_if_late(self, now: float) -> None:
        """Cancels the task if more of the body should be here by now. now: seconds, on one clock."""
        if self._began is None:
            self._began = now
        if self._waits and now - self._began > SECONDS + self._received / LEAST_RATE:
            self.late = True
            self.task.cancel()


class Bodies:
    """The bodies that are being received."""

    def __init__(self) -> None:
        self._receiving: set[Body] = set()

    def receive(self, body: Body) -> "Awaitable[Message]":
        """The next part of a body, of which more follows."""
        self._receiving.add(body)
        return body.receive()

    def forget(self, body: Body) -> None:
        """Called when the request has been answered."""
        self._receiving.discard(body)

    def end_late(self, now: float) -> None:
        """Ends the requests whose bodies are late; called several times a second."""
        ended = [body for body in self._receiving if body.ended]
        self._receiving.difference_update(ended)
        for body in self._receiving:
            body.end_if_late(now)
