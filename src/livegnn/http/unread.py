"""Answers that their clients do not read, which a stop does not wait for.

Two findings: a part of an answer that has waited for its client for `UNREAD_SECONDS`, and, when no request is
open, bytes in the buffers of connections that have not moved for as long. A client that reads, however
slowly, moves one of them. Thread safety: belongs to the event loop of the server.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import Message, Send

UNREAD_SECONDS: Final = 1.0
"""For which an answer may stand still during a stop."""
WHOLE: Final = 1 << 18
"""Bytes of the largest answer that is handed over at once, so that its request ends before it is read. The
request of a larger one is open until its client has read it, and counts for the limits of the client."""
_PIECE: Final = 1 << 16  # bytes of a part of an answer
_TABLES: Final = ("/proc/self/net/tcp", "/proc/self/net/tcp6")


class Sending:
    """The answers of which a part waits for its client. clock: of the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[asyncio.Task[object], float] = {}

    async def send(self, message: "Message", send: "Send", task: asyncio.Task[object]) -> None:
        """Sends a part of an answer in pieces: granian keeps some ten of them for a client that does not
        read.

        Other requests have their turn after each: it takes pieces for a client that has disconnected without
        waiting, and an answer without end would keep the event loop.
        """
        body, more = message.get("body", b""), message.get("more_body", False)
        ends = range(_PIECE, max(1, len(body)) + _PIECE, _PIECE)
        try:
            for end in ends:
                self._since[task] = self._clock()
                piece = {"body": body[end - _PIECE : end], "more_body": more or end < len(body)}
                await send({**message, **piece})
                await asyncio.sleep(0)
        finally:
            self._since.pop(task, None)

    def unread(self) -> set[asyncio.Task[object]]:
        """Answers that have stood still for too long."""
        before = self._clock() - UNREAD_SECONDS
        return {task for task, since in self._since.items() if since <= before}


class Buffers:
    """The buffers of the connections at a port."""

    def __init__(self, port: int, clock: Callable[[], float]) -> None:
        self._port, self._clock = port, clock
        self._seen: list[tuple[str, int]] | None = None
        self._since = clock()

    def stand_still(self) -> bool:
        """Whether nothing in them has moved for too long. False where the system does not say."""
        now, found = self._clock(), unsent(self._port)
        if found != self._seen:
            self._seen, self._since = found, now
        return found is not None and now - self._since >= UNREAD_SECONDS


def unsent(port: int) -> list[tuple[str, int]] | None:
    """The clients at a port, and how many bytes each has not taken; None where the system does not say."""
    found, known = [], False
    ending = f":{port:04X}"
    for table in _TABLES:
        with suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                _, local, remote, _, queues, *_ = line.split()
                if local.endswith(ending):
                    found.append((remote, int(queues.partition(":")[0], 16)))
            known = True
    return found if known else None
