"""Rows of the table `entries`: neighbouring entries that were written together, as one row.

A row holds the events of its entries as one payload, the numbers of events of each entry, and a chain: a
digest of the row and of the chain before it, so that the last one is a digest of the whole history. Thread
safety: none, the caller has the connection to itself.
"""

import hashlib
from dataclasses import dataclass
from typing import ClassVar, Final

import apsw
import numpy as np

from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.events.binary import check
from livegnn.log import Appended, Write
from livegnn.log.keys import Keys

_MOST_EVENTS: Final = 4096
"""A row with so many events takes no further entry."""


@dataclass(frozen=True)
class Row:
    """A row as it is stored. counts: uint32 for each entry, None where there is one entry."""

    seq: int
    count: int
    payload: bytes
    counts: bytes | None
    chain: bytes | None

    SELECT: ClassVar[str] = "SELECT seq, count, payload, counts, chain FROM entries"

    def decode(self) -> Write:
        """The entries. Raises FileFormatError or InputError for what is not as it was written."""
        events = Events.from_bytes(self.payload)
        if len(events) != self.count:
            raise InputError(f"{len(events)} events where {self.count} are needed")
        after = self.seq - self.count
        if self.counts is None:
            return Write(after, np.array([self.seq], np.int64), events)
        if not isinstance(self.counts, bytes) or len(self.counts) % 4:
            raise InputError(f"counts of entries that are no array of uint32: {self.counts!r}")
        ends = after + np.cumsum(np.frombuffer(self.counts, "<u4"), dtype=np.int64)
        if not len(ends) or ends[-1] != self.seq or (np.diff(ends, prepend=after) <= 0).any():
            raise InputError(f"counts of entries that do not make {self.count} events: {self.counts!r}")
        return Write(after, ends, events)


def chain_of(previous: bytes, seq: int, counts: bytes | None, payload: bytes) -> bytes:
    """The chain of a row, 16 bytes, from that of the row before."""
    digest = hashlib.blake2b(previous, digest_size=16)
    digest.update(b"%d %d " % (seq, len(counts or b"")))
    digest.update(counts or b"")
    digest.update(payload)
    return digest.digest()


def chain_before(connection: apsw.Connection, seq: int) -> bytes | None:
    """The chain of the last row before event `seq`: b"" where there is none, None where it was not kept."""
    row = connection.execute(
        "SELECT chain FROM entries WHERE seq < ? ORDER BY seq DESC LIMIT 1", (seq,)
    ).fetchone()
    return b"" if row is None else row[0]


class RowWriter:
    """Appends entries to the table, within one transaction of the caller's, until `flush`."""

    def __init__(self, connection: apsw.Connection, keys: Keys) -> None:
        self._connection, self._keys = connection, keys
        last = connection.execute("SELECT seq, chain FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
        self.seq: int = 0 if last is None else last[0]
        """The last event, those that wait for `flush` among them."""
        self._chain: bytes = b"" if last is None else last[1] or b""
        self._waiting: list[Events] = []
        self._waiting_events = 0

    def add(self, events: Events, key: str | None) -> Appended:
        """What becomes of an entry. Raises InputError for text that cannot be stored, or a key of others."""
        check(events.chunks)
        known = None if key is None else self._keys.find(key, events)
        if known is not None:
            return Appended(known, again=True)
        if len(events):
            self._waiting.append(events)
            self._waiting_events += len(events)
            self.seq += len(events)
            if key is not None:
                self._keys.add(key, events, self.seq)
            if self._waiting_events >= _MOST_EVENTS:
                self.flush()
        return Appended(self.seq)

    def flush(self) -> None:
        """Writes the row of the entries that wait."""
        if not self._waiting:
            return
        counts = None
        if len(self._waiting) > 1:
            counts = np.array([len(events) for events in self._waiting], "<u4").tobytes()
        payload = Events.concatenate(self._waiting).to_bytes()
        self._chain = chain_of(self._chain, self.seq, counts, payload)
        self._connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?)",
            (self.seq, self._waiting_events, payload, counts, self._chain),
        )
        self._waiting, self._waiting_events = [], 0
