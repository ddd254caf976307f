"""Passes the runtime's updates to clients: those that wait for an event, and those that follow all changes.

The runtime publishes from its own thread, once for all clients, and never waits for one. Each client has a
place in the latest changes. One that reads too slowly loses the oldest, with a notice; it can then request
the predictions that it needs. Thread-safe.
"""

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final, NamedTuple

import orjson

from livegnn.errors import LiveGNNError, TimeoutExpired
from livegnn.http.refusals import STOPS, ProcessStops
from livegnn.inference.followed_edges import ScoreChanges
from livegnn.runtime import Change, Runtime, Switch
from livegnn.server.chosen_changes import ChosenChanges, KeptChange
from livegnn.server.ring import Ring

_OBJECTS_BYTES: Final = 4096  # of the objects of a kept change, beside the bytes that they hold
_TEXT_BYTES: Final = 4  # of JSON for each byte of edges and their scores


class _Told(NamedTuple):
    """A change, or the notice of another model (None), and how clients without a filter receive it."""

    change: KeptChange | None
    data: bytes


class _Bell:
    """Wakes all clients of one event loop with one call. `rung` is set by the next ring."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.rung = asyncio.Event()
        self.readers: set[_Reader] = set()
        self._called = False

    def ring(self) -> None:
        """Called in any thread. Raises RuntimeError if the loop is closed."""
        if not self._called:
            self._called = True
            self.loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._called = False
        rung, self.rung = self.rung, asyncio.Event()
        rung.set()


class _Reader:
    """The place of a client in the kept changes. since: an event; the client receives changes after it.
    chosen: which it receives, by default all.
    """

    def __init__(self, position: int, since: int, chosen: ChosenChanges | None) -> None:
        self.position, self.since, self.chosen = position, since, chosen


class Feed:
    """Everything that waits for the runtime on behalf of HTTP clients.

    The latest changes are kept once, for all clients. history_bytes: their size at most; a client that is
    further behind loses them. resume: seconds for which changes are still kept when the last client has left,
    so that it can resume. heartbeat: seconds of silence after which a comment is sent, so that proxies keep
    the connection and a vanished client is noticed.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        history_bytes: int = 16 << 20,
        resume: float = 60.0,
        heartbeat: float = 15.0,
    ) -> None:
        self._runtime = runtime
        self._resume, self._wanted_until = resume, -math.inf
        self._heartbeat = heartbeat
        # A signal, which closes the feed, may interrupt the thread while it holds the lock.
        self._lock = threading.RLock()
        self._bells: dict[asyncio.AbstractEventLoop, _Bell] = {}
        self._waiters: dict[asyncio.Future[None], tuple[int, asyncio.AbstractEventLoop]] = {}
        self._closed = self._wanted = False
        self._dropped = 0
        self._told, self._most_bytes = Ring[_Told](history_bytes, runtime.seq), history_bytes
        runtime.subscribe(
            self._publish, on_end=self._release, on_switch=self._tell_switch, wanted=self._is_wanted
        )

    @property
    def clients(self) -> int:
        """The number of clients that follow the changes."""
        return sum(len(bell.readers) for bell in list(self._bells.values()))

    @property
    def dropped(self) -> int:
        """The number of changes that clients lost because they read too slowly."""
        with self._lock:
            readers = [reader for bell in self._bells.values() for reader in bell.readers]
            return self._dropped + sum(max(0, self._told.begin - reader.position) for reader in readers)

    def _is_wanted(self) -> bool:
        self._wanted = bool(self._bells) or time.monotonic() < self._wanted_until
        return self._wanted

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

    async def follow(
        self, after: int | None = None, chosen: ChosenChanges | None = None
    ) -> AsyncIterator[bytes]:
        """Server-sent events: `ready`, then a `change` for each batch after the event that `ready` names.

        after: the last event that a client that reconnects has received. If all later changes are kept,
        `ready` names that event, and they are sent first. Otherwise `ready` names the present event, and has
        the number of events since, or None if the graph has not reached `after` yet. chosen: the changes that
        the client receives, by default all.
        """
        loop = asyncio.get_running_loop()
        bell, reader, ready = self._enter(loop, after, chosen)
        try:
            yield encode("ready", reader.since, ready)
            quiet = loop.time() + self._heartbeat
            while not self._closed:
                rung = bell.rung
                event = self._take(reader)
                if event is None:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(rung.wait(), quiet - loop.time())
                        continue
                    event = b": still here\n\n"
                    if chosen is not None:  # an id without data: what a client sends when it reconnects
                        event += b"id: %d\n\n" % reader.since
                yield event
                quiet = loop.time() + self._heartbeat
        finally:
            self._leave(bell, reader)

    def _enter(
        self, loop: asyncio.AbstractEventLoop, after: int | None, chosen: ChosenChanges | None = None
    ) -> tuple[_Bell, _Reader, dict[str, object]]:
        """Adds a client; returns what `ready` says to it."""
        with self._lock:
            bell = self._bells.setdefault(loop, _Bell(loop))
            reader = _Reader(self._told.end, 0, chosen)
            bell.readers.add(reader)
            # Read after the client is known: what is published from now on, and is later, is for it.
            now = reader.since = self._runtime.seq
            if after is None:
                return bell, reader, {"seq": now}
            missed = now - after if now >= after else None
            if missed is not None and after >= self._told.floor:
                # The notice of another model comes after the change of its event: it may come again.
                reader.position, reader.since, missed = self._told.after(after - 1), after, 0
            return bell, reader, {"seq": reader.since, "after": after, "missed": missed}

    def _leave(self, bell: _Bell, reader: _Reader) -> None:
        with self._lock:
            self._dropped += max(0, self._told.begin - reader.position)
            bell.readers.discard(reader)
            if not bell.readers and self._bells.get(bell.loop) is bell:
                del self._bells[bell.loop]
            if not self._bells:
                self._wanted_until = time.monotonic() + self._resume

    def _take(self, reader: _Reader) -> bytes | None:
        """The next server-sent event for a client, None if there is none yet."""
        while (found := self._take_next(reader)) is not None:
            change, data = found
            if reader.chosen is None:
                return data
            if change is None:
                reader.chosen.forget()  # after another model, or lost changes
                return data
            if (part := reader.chosen.select(change)) is not None:
                return _encode_change(part)
        return None

    def _take_next(self, reader: _Reader) -> _Told | None:
        """The next change or notice for a client, before its choice."""
        with self._lock:
            told = self._told
            dropped, known = told.begin - reader.position, reader.since
            if dropped > 0:
                reader.position = told.begin
                if told.floor > known:
                    self._dropped += dropped
                    reader.since = told.floor
                    lost: dict[str, object] = {"seq": told.floor, "dropped": dropped, "since": known}
                    return _Told(None, encode("lagged", told.floor, lost))
            while reader.position < told.end:
                seq, found = told.at(reader.position)
                reader.position += 1
                if found.change is None:
                    return found
                if seq > reader.since:
                    reader.since = seq
                    return found
        return None

    def close(self) -> None:
        """Ends every stream, and all waiting."""
        self._closed = True
        self._release()
        self._ring()

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
        if not (self._wanted and change.known):
            with self._lock:
                self._told.clear(change.seq)
            self._ring()
            return
        data = _encode_change(change, self._most_bytes)
        kept = KeptChange(change._replace(edges={}))  # clients that choose nodes get no edges
        self._tell(change.seq, _Told(kept, data), len(data) + kept.nbytes)

    def _tell_switch(self, switch: Switch) -> None:
        data = encode("model", switch.seq, switch._asdict())
        # A client that has received the change of this event still needs the notice.
        self._tell(switch.seq, _Told(None, data), len(data), switch.seq + 1)

    def _tell(self, seq: int, told: _Told, nbytes: int, needed_before: int | None = None) -> None:
        with self._lock:
            self._told.append(seq, told, nbytes + _OBJECTS_BYTES, needed_before)
        self._ring()

    def _ring(self) -> None:
        with self._lock:
            for bell in list(self._bells.values()):
                try:
                    bell.ring()
                except RuntimeError:  # its event loop is closed
                    del self._bells[bell.loop]


def _call(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    with suppress(RuntimeError):  # the loop is closed: nothing waits there any more
        loop.call_soon_threadsafe(resolve)


def _encode_change(change: Change, most_bytes: int = 0) -> bytes:
    """most_bytes: of the edges of one output; more are left out."""
    content: dict[str, object] = {
        "seq": change.seq,
        "affected": change.affected,
        "seconds": change.seconds,
        "ids": change.ids.tolist(),
        "predictions": change.predictions,
        "removed": change.removed.tolist(),
    }
    if change.edges:
        content["edges"] = {name: _list_edges(one, most_bytes) for name, one in change.edges.items()}
    return encode("change", change.seq, content)


def _list_edges(changes: ScoreChanges, most_bytes: int) -> dict[str, object]:
    told: dict[str, object] = {"complete": True, "reached": changes.reached}
    if not changes.complete or changes.nbytes * _TEXT_BYTES > most_bytes:
        return told | {"complete": False}
    edges, removed = (
        {"sources": one.source.tolist(), "targets": one.target.tolist()}
        | ({} if one.key is None else {"keys": one.key.tolist()})
        for one in (changes.edges, changes.removed)
    )
    return told | edges | {"scores": changes.scores, "removed": removed}


def encode(event: str, seq: int, data: dict[str, object]) -> bytes:
    """One server-sent event: its name, the sequence number as its id, JSON as its data."""
    text = orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)
    return b"event: %s\nid: %d\ndata: %s\n\n" % (event.encode(), seq, text)
