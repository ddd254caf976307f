"""Rows of the table `entries`: neighbouring entries that were written together, as one row.

A row holds the events of its entries as one payload, the numbers of events of each entry, and a chain: a
digest of the row and of the chain before it, so that the last one is a digest of the whole history.

The beginning of a log is deleted in steps. Each step is one transaction: it deletes some whole rows, and
notes the new beginning of the log, with the chain of the last deleted row. So after a crash the log begins
somewhere between the two ends, with everything that belongs to the remaining rows. The last row and the last
batch always stay: they are the end of the log. Refused entries keep their payload, in the table
`dead_letters`, until they have been appended again. Thread safety: none, the caller owns the connection.
"""

import hashlib
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Final, NamedTuple

import apsw
import numpy as np

from livegnn.errors import InputError, LogError
from livegnn.events import Events
from livegnn.events.binary import check
from livegnn.events.builder import CheckedEvents, JoinedEvents
from livegnn.log import Appended, Origin, Write
from livegnn.log.idempotency import RETRY, Known, Partition, Reached, Unread, check_key, check_origin
from livegnn.log.sqlite.sequence import add_checksum
from livegnn.log.sqlite.tables import Keys, drop_forgotten, find_reached

_TRIMMED_ROWS: Final = 256  # of a step at most
_TRIMMED_BYTES: Final = 2**20  # of payload in a step, or one row
_MOST_EVENTS: Final = 4096
"""A row with at least this number of events takes no further entry."""


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
        counts = np.frombuffer(self.counts, "<u4")
        ends = after + counts.cumsum(dtype=np.int64)
        if not len(ends) or ends[-1] != self.seq or not counts.all():
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
        if not isinstance(events, CheckedEvents):
            check(events.chunks)
        if key is not None:
            check_key(key)
            known = self.known.get(key) or self._keys.find(key)
            if known is not None:
                known.check(events)
                return Appended(known.seq, len(events), again=True)
        if len(events):
            if isinstance(events, JoinedEvents) and self._seq - self.tail.seq + len(events) > _MOST_EVENTS:
                self.finish()
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
        sizes: list[int] = []
        for events in self._waiting:
            sizes += events.sizes if isinstance(events, JoinedEvents) else (len(events),)
        counts = None if len(sizes) == 1 else np.array(sizes, "<u4").tobytes()
        payload = Events.concatenate(self._waiting).to_bytes()
        chain = chain_of(self.tail.chain, self._seq, counts, payload)
        self.rows.append((self._seq, self._seq - self.tail.seq, payload, counts, chain))
        self.tail, self._waiting = End(self._seq, chain), []


def trim_step(connection: apsw.Connection, up_to: int) -> int | None:
    """Deletes some rows at or before event `up_to`; returns the last event deleted, None if there are none.

    Raises FileFormatError or InputError for a refused entry that is not as it was written.
    """
    rows: list[Any] = connection.execute(
        "SELECT seq, length(payload), chain FROM entries "
        "WHERE seq <= ? AND seq < (SELECT max(seq) FROM entries) ORDER BY seq LIMIT ?",
        (up_to, _TRIMMED_ROWS),
    ).fetchall()
    fitting = sum(size <= _TRIMMED_BYTES for size in accumulate(length for _, length, _ in rows))
    if not rows:
        return None
    end, _, chain = rows[max(fitting, 1) - 1]
    begin = begin_of(connection).seq
    drop_forgotten(connection, end)
    _keep_letters(connection, begin, end)
    connection.execute("DELETE FROM entries WHERE seq <= ?", (end,))
    connection.execute("DELETE FROM batches WHERE seq <= ? AND seq < (SELECT max(seq) FROM batches)", (end,))
    connection.executemany(
        "REPLACE INTO properties VALUES (?, ?, ?)",
        map(add_checksum, [("trimmed", str(end)), ("trimmed_chain", (chain or b"").hex())]),
    )
    return int(end)


def forget_retried(connection: apsw.Connection) -> None:
    """Deletes refused entries before the beginning of the log that have been appended again since."""
    gone = begin_of(connection).seq, RETRY
    connection.execute("DELETE FROM dead_letters WHERE seq <= ? AND ? || seq IN (SELECT key FROM keys)", gone)
    connection.execute("DELETE FROM rejections WHERE seq <= ? AND ? || seq IN (SELECT key FROM keys)", gone)


def _keep_letters(connection: apsw.Connection, begin: int, end: int) -> None:
    connection.execute(
        "DELETE FROM rejections WHERE seq > ? AND seq <= ? AND ? || seq IN (SELECT key FROM keys)",
        (begin, end, RETRY),
    )
    rejected: list[Any] = connection.execute(
        "SELECT seq FROM rejections WHERE seq > ? AND seq <= ?", (begin, end)
    ).fetchall()
    for (seq,) in rejected:
        row: Any = connection.execute(f"{Row.SELECT} WHERE seq >= ? ORDER BY seq LIMIT 1", (seq,)).fetchone()
        entry = Row(*row).decode().entry(seq)
        if entry is not None:
            connection.execute("REPLACE INTO dead_letters VALUES (?, ?)", (seq, entry.events.to_bytes()))
