"""Passes the runtime's updates to clients: those that wait for an event, and those that follow all changes.

The runtime publishes from its own thread and never waits for a client. The queue of a client that reads too
slowly is emptied, with a notice; the client can then request the predictions that it needs. Thread-safe.
"""

import asyncio
import math
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress

import orjson

from livegnn.errors import LiveGNNError, TimeoutExpired
from livegnn.http.refusals import STOPS, ProcessStops
from livegnn.runtime import Change, Runtime, Switch


class _Client:
    """A queue of encoded changes, filled by the runtime's thread and emptied by the client's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, capacity: int) -> None:
        self.loop = loop
        self.filled = asyncio.Event()
        self._lock = threading.Lock()
        self._changes: deque[tuple[int, bytes]] = deque()
        self._capacity = capacity
        self._lagged = (0, 0)
        self.since = math.inf
        """The event that `ready` names; the client receives later ones."""

    def offer(self, seq: int, data: bytes) -> int:
        """Queues a change; returns how many were dropped because the queue was full."""
        dropped = 0
        with self._lock:
            if len(self._changes) >= self._capacity:
                dropped = len(self._changes)
                self._lagged = (self._changes[-1][0], self._lagged[1] + dropped)
                self._changes.clear()
            self._changes.append((seq, data))
        self.loop.call_soon_threadsafe(self.filled.set)
        return dropped

    def take(self) -> list[bytes]:
        """The queued updates, as server-sent events; first the number of dropped ones, if any."""
        with self._lock:
            events = [data for _, data in self._changes]
            self._changes.clear()
            (seq, dropped), self._lagged = self._lagged, (0, 0)
            self.filled.clear()
        return [encode("lagged", seq, {"seq": seq, "dropped": dropped}), *events] if dropped else events


class Feed:
    """Everything that waits for the runtime on behalf of HTTP clients.

    capacity: changes queued for a client at most; heartbeat: seconds of silence after which a comment
    is sent, so that proxies keep the connection and a vanished client is noticed.
    """

    def __init__(self, runtime: Runtime, *, capacity: int = 256, heartbeat: float = 15.0) -> None:
        self._runtime = runtime
        self._capacity = capacity
        self._heartbeat = heartbeat
        # A signal, which closes the feed, may interrupt the thread while it holds the lock.
        self._lock = threading.RLock()
        self._clients: set[_Client] = set()
        self._waiters: dict[asyncio.Future[None], tuple[int, asyncio.AbstractEventLoop]] = {}
        self._closed = False
        self.dropped = 0
        runtime.subscribe(
            self._publish,
            on_end=self._release,
            on_switch=self._tell_switch,
            wanted=lambda: bool(self._clients),
        )

    @property
    def clients(self) -> int:
        """The number of clients that follow the changes."""
        return len(self._clients)

    async def wait(self, seq: int, timeout: float) -> None:
        """Returns when event `seq` is visible.

        Raises TimeoutExpired after `timeout` seconds, ProcessStops when the feed is closed, LiveGNNError when
        the loop has failed.
        """
        if self._runtime.seq >= seq:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._waiters[future] = (seq, loop)
        try:
            # All of this may have happened before the waiter was known.
            if self._runtime.seq < seq and not self._closed and self._runtime.failure is None:
                await asyncio.wait_for(future, timeout)
        except TimeoutError as error:
            reached = self._runtime.seq
            raise TimeoutExpired(
                f"event {seq} must be visible within {timeout} seconds, got to {reached}: wait longer"
            ) from error
        finally:
            with self._lock:
                self._waiters.pop(future, None)
        if (reached := self._runtime.seq) >= seq:
            return
        if self._runtime.failure is not None:
            raise LiveGNNError(f"event {seq} will not be visible: the runtime ended at event {reached}")
        raise ProcessStops(f"event {seq} must be visible, got to {reached}: {STOPS}")

    async def follow(self, after: int | None = None) -> AsyncIterator[bytes]:
        """Server-sent events: `ready` with the sequence number now, then a `change` for each batch.

        after: the last event that a client that reconnects has received. The changes since are not sent:
        `ready` has the number of those events, or None if the graph has not reached `after` yet.
        """
        client = _Client(asyncio.get_running_loop(), self._capacity)
        with self._lock:
            self._clients.add(client)
        try:
            seq = client.since = self._runtime.seq
            missed = (
                {} if after is None else {"after": after, "missed": seq - after if seq >= after else None}
            )
            yield encode("ready", seq, {"seq": seq, **missed})
            while not self._closed:
                try:
                    await asyncio.wait_for(client.filled.wait(), self._heartbeat)
                except TimeoutError:
                    yield b": still here\n\n"
                for event in client.take():
                    yield event
        finally:
            with self._lock:
                self._clients.discard(client)

    def close(self) -> None:
        """Ends every stream, and all waiting."""
        self._closed = True
        self._release()
        with self._lock:
            for client in self._clients:
                client.loop.call_soon_threadsafe(client.filled.set)

    def _release(self) -> None:
        """Ends all waiting."""
        with self._lock:
            for future, (_, loop) in self._waiters.items():
                _call(loop, future)

    def _publish(self, change: Change) -> None:
        with self._lock:
            for future, (seq, loop) in self._waiters.items():
                if seq <= change.seq:
                    _call(loop, future)
            clients = [client for client in self._clients if client.since < change.seq]
            if not clients:
                return
        data = encode(
            "change",
            change.seq,
            {
                "seq": change.seq,
                "affected": change.affected,
                "seconds": change.seconds,
                "ids": change.ids.tolist(),
                "predictions": change.predictions,
                "removed": change.removed.tolist(),
            },
        )
        self._offer(clients, change.seq, data)

    def _tell_switch(self, switch: Switch) -> None:
        with self._lock:
            clients = list(self._clients)
        self._offer(clients, switch.seq, encode("model", switch.seq, switch._asdict()))

    def _offer(self, clients: list[_Client], seq: int, data: bytes) -> None:
        for client in clients:
            try:
                self.dropped += client.offer(seq, data)
            except RuntimeError:  # its event loop is closed
                with self._lock:
                    self._clients.discard(client)


def _call(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    with suppress(RuntimeError):  # the loop is closed: nothing waits there any more
        loop.call_soon_threadsafe(resolve)


def encode(event: str, seq: int, data: dict[str, object]) -> bytes:
    """One server-sent event: its name, the sequence number as its id, JSON as its data."""
    text = orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)
    return b"event: %s\nid: %d\ndata: %s\n\n" % (event.encode(), seq, text)
