"""Rows of the table `entries`: neighbouring entries that were written together, as one row.

A row holds the events of its entries as one payload, the numbers of events of each entry, and a chain: a
digest of the row and of the chain before it, so that the last one is a digest of the whole history. Thread
safety: none, the caller has the connection to itself.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import apsw
import numpy as np

from livegnn.errors import InputError, LogError
from livegnn.events import Events
from livegnn.events.binary import check
from livegnn.log import Appended, Origin, Write
from livegnn.log.keys import Known, check_key
from livegnn.log.origins import Partition, Reached, Unread, check_origin
from livegnn.log.sqlite.tables import Keys, find_reached

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
        """The entries. Raises FileFormatError or InputError for damaged bytes."""
        events = Events.from_bytes(self.payload)
        if len(events) != self.count:
            raise InputError(f"{len(events)} events where {self.count} are needed")
        after = self.seq - self.count
        if self.counts is None:
            return Write(after, np.array([self.seq], np.int64), events)
        if not isinstance(self.counts, bytes) or len(self.counts) % 4:
            raise InputError(f"counts of entries that are not an array of uint32: {self.counts!r}")
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


class Begin(NamedTuple):
    """The state before the first row: its last event, and the chain of its last row, None if it had none.

    A log that was never trimmed begins after event 0.
    """

    seq: int = 0
    chain: bytes | None = b""


def begin_of(connection: apsw.Connection) -> Begin:
    """The beginning of a log. Raises LogError if its record is damaged."""
    rows: Any = connection.execute(
        "SELECT name, value FROM properties WHERE name IN ('trimmed', 'trimmed_chain')"
    ).fetchall()
    values = dict(rows)
    if not values:
        return Begin()
    try:
        chain = bytes.fromhex(values["trimmed_chain"])
        return Begin(int(values["trimmed"]), chain or None)
    except (KeyError, ValueError, TypeError) as error:
        raise LogError(f"the event log must say where it begins, got {values}: it is damaged") from error


def chain_before(connection: apsw.Connection, seq: int) -> bytes | None:
    """The chain of the last row before event `seq`: b"" where there is none, None where it was not kept."""
    row = connection.execute(
        "SELECT chain FROM entries WHERE seq < ? ORDER BY seq DESC LIMIT 1", (seq,)
    ).fetchone()
    return begin_of(connection).chain if row is None else row[0]


class End(NamedTuple):
    """The end of the table: the last event, and the chain of the last row."""

    seq: int = 0
    chain: bytes = b""


class RowWriter:
    """Makes rows of entries that are appended after `tail`. Nothing is stored before the caller does it.

    rows: values for the table `entries`; known: for the table `keys`, by key; reached: for the table
    `origins`, by partition; bad: for the table `bad_messages`. tail: the end when all are stored.
    """

    def __init__(self, tail: End, keys: Keys, connection: apsw.Connection) -> None:
        self.tail, self._keys, self._connection = tail, keys, connection
        self.rows: list[tuple[int, int, bytes, bytes | None, bytes]] = []
        self.known: dict[str, Known] = {}
        self.reached: dict[Partition, Reached] = {}
        self.bad: list[tuple[Origin, Unread]] = []
        self._waiting: list[Events] = []
        self._seq = tail.seq

    def add(self, events: Events | InputError, key: str | None, origin: Origin | None = None) -> Appended:
        """The result of an entry. Raises InputError for text that cannot be stored, or a key of others."""
        if origin is None:
            return self._add(events, key)
        origin = check_origin(origin)
        place = origin.source, origin.partition
        reached = self.reached.get(place) or find_reached(self._connection, place)
        if reached is not None and origin.offset <= reached.offset:
            return Appended(reached.seq, len(events) if isinstance(events, Events) else 0, again=True)
        try:
            appended = self._add(events, key)
        except InputError as error:
            if origin.payload is not None:
                self.bad.append((origin, Unread.make(error, origin.payload)))
                self.reached[place] = Reached(origin.offset, self._seq)
            raise
        self.reached[place] = Reached(origin.offset, appended.seq)
        return appended

    def _add(self, events: Events | InputError, key: str | None) -> Appended:
        if isinstance(events, InputError):
            raise events
        check(events.chunks)
        if key is not None:
            check_key(key)
            known = self.known.get(key) or self._keys.find(key)
            if known is not None:
                known.check(events)
                return Appended(known.seq, len(events), again=True)
        if len(events):
            self._waiting.append(events)
            self._seq += len(events)
            if key is not None:
                self.known[key] = self._keys.make(key, events, self._seq)
            if self._seq - self.tail.seq >= _MOST_EVENTS:
                self.finish()
        return Appended(self._seq, len(events))

    def finish(self) -> None:
        """Makes the row of the entries that wait for others."""
        if not self._waiting:
            return
        counts = None
        if len(self._waiting) > 1:
            counts = np.array([len(events) for events in self._waiting], "<u4").tobytes()
        payload = Events.concatenate(self._waiting).to_bytes()
        chain = chain_of(self.tail.chain, self._seq, counts, payload)
        self.rows.append((self._seq, self._seq - self.tail.seq, payload, counts, chain))
        self.tail, self._waiting = End(self._seq, chain), []
