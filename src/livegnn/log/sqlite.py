"""The event log in one SQLite file: embedded, durable, and readable with any SQLite tool (see docs/log.md).

Appends are committed with synchronous=FULL: when `append` returns, the events are on the disk and survive a
loss of power. Boundaries are committed with synchronous=NORMAL, which costs no flush: they survive the
death of the process, and `sync` makes them durable before a checkpoint relies on them. Reads have a
connection of their own, so that they never wait for a flush. Invariants: the sequence numbers of entries
are contiguous; a batch begins where the one before it ended. Locks: `_write` for both writers (SQLite has
one at a time), `_read`, `_appended` for waiters. `log/wal.py` and `log/mark.py` find what SQLite would lose
without a word.
"""

import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from livegnn.arguments import as_path
from livegnn.errors import FileFormatError, InputError, LogError
from livegnn.events import Events
from livegnn.log import Batch, Entry, Rejection
from livegnn.log.mark import read_mark, write_mark
from livegnn.log.wal import find_damage

APPLICATION_ID: Final = 0x4C474E4E  # "LGNN", in the header of the SQLite file
VERSION: Final = 1

SCHEMA: Final = """
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY,
    count INTEGER NOT NULL CHECK (count > 0),
    payload BLOB NOT NULL
);
CREATE TABLE batches (
    seq INTEGER PRIMARY KEY,
    after INTEGER NOT NULL UNIQUE CHECK (after < seq)
);
CREATE TABLE rejections (
    seq INTEGER PRIMARY KEY REFERENCES entries (seq),
    error TEXT NOT NULL,
    message TEXT NOT NULL
);
"""

_LARGEST = 2**63 - 1
_SMALLEST_PAGE = 512  # of any SQLite database


class SqliteLog:
    """A log at `path`, made when it is missing. Thread-safe; one process at a time may run on it.

    Raises LogError for a file of another kind, or one that has lost what was appended to it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = as_path(path, "path")
        self._write = threading.Lock()
        self._read = threading.Lock()
        self._appended = threading.Condition()
        self._woken = False
        self._mark = self._beside("-mark")
        with self._errors("open"), ExitStack() as opened:
            self._refuse_remains()
            self._refuse_damage()
            acknowledged = read_mark(self._mark)  # before the log, which may be growing
            self._appends = opened.enter_context(closing(self._connect("FULL")))
            self._boundaries = opened.enter_context(closing(self._connect("NORMAL")))
            self._reads = opened.enter_context(closing(self._connect("NORMAL")))
            self._last = self._find_end(acknowledged)
            # Then the write-ahead file begins anew at the next append: what a crash left at its end is never
            # taken for what a later one did.
            self._appends.execute("PRAGMA wal_checkpoint(PASSIVE)")
            opened.pop_all()

    def append(self, events: Events) -> int:
        """Stores events durably, as one entry; returns the sequence number of the last one.

        No events are no entry. Raises InputError for text that cannot be stored, LogError if the disk fails.
        """
        count = len(events)
        if not count:
            return self._last
        payload = events.to_bytes()
        with self._write, self._errors("append to"):
            with _transaction(self._appends):
                # Asked of the file, since another process may have appended.
                seq = _last_seq(self._appends) + count
                self._appends.execute("INSERT INTO entries VALUES (?, ?, ?)", (seq, count, payload))
            self._last = seq
            with suppress(OSError):  # the entry is in the log, and an older mark is as true as a newer one
                write_mark(self._mark, seq)
        with self._appended:
            self._appended.notify_all()
        return seq

    def last_seq(self) -> int:
        """The sequence number of the last event that was appended, 0 for an empty log."""
        return self._last

    def entries(
        self, after: int, *, up_to: int | None = None, max_events: int | None = None
    ) -> Sequence[Entry]:
        """The entries with `after` < `seq` <= `up_to`: as many as fit into `max_events`, at least one.

        Raises LogError for an entry that is missing or whose payload is not as it was written.
        """
        entries: list[Entry] = []
        last, total = after, 0
        with self._read, self._errors("read"):
            rows = self._reads.execute(
                "SELECT seq, count, payload FROM entries WHERE seq > ? AND seq <= ? ORDER BY seq",
                (after, _LARGEST if up_to is None else up_to),
            )
            for seq, count, payload in rows:
                if type(count) is not int or seq - count != last:
                    raise LogError(
                        f"{self.path} must continue after event {last}, got entry {seq} of {count} events"
                    )
                if max_events is not None and entries and total + count > max_events:
                    rows.close()
                    break
                entries.append(self._decode(seq, count, payload))
                last = seq
                total += count
        return entries

    def _decode(self, seq: int, count: int, payload: bytes) -> Entry:
        try:
            events = Events.from_bytes(payload)
        except (FileFormatError, InputError) as error:
            raise LogError(f"{self.path} must hold the events of entry {seq}, got: {error}") from error
        if len(events) != count:
            raise LogError(f"{self.path} must hold {count} events in entry {seq}, got {len(events)}")
        return Entry(seq, events)

    def wait(self, after: int, timeout: float | None) -> bool:
        """Blocks until there is an event after `after`; False after `timeout` seconds or a `wake`."""
        with self._appended:
            self._appended.wait_for(lambda: self._last > after or self._woken, timeout)
            self._woken = False
            return self._last > after

    def wake(self) -> None:
        """Makes the `wait` that is going on, or else the next one, return."""
        with self._appended:
            self._woken = True
            self._appended.notify_all()

    def record_batch(self, batch: Batch, rejection: Rejection | None = None) -> None:
        """Stores the boundaries of a batch that is about to become visible, with what was rejected in it.

        Raises LogError if it does not begin where the last recorded batch ended.
        """
        with self._write, self._errors("record a batch in"), _transaction(self._boundaries):
            (last,) = self._boundaries.execute("SELECT coalesce(max(seq), 0) FROM batches").fetchone()
            if batch.after != last:
                raise LogError(
                    f"{self.path} must be continued after event {last}, got a batch after event "
                    f"{batch.after}: does another process run on this log?"
                )
            self._boundaries.execute("INSERT INTO batches VALUES (?, ?)", (batch.seq, batch.after))
            if rejection is not None:
                self._boundaries.execute("INSERT INTO rejections VALUES (?, ?, ?)", rejection)

    def sync(self) -> None:
        """Returns when all recorded batches are durable too: SQLite flushes what it moves out of its WAL."""
        with self._write, self._errors("flush"):
            (busy, _, _) = self._appends.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if busy:
                raise LogError(f"cannot flush the event log {self.path}: another process holds it")

    def batches(self, after: int) -> Sequence[Batch]:
        """The recorded batches that end after sequence number `after`, in order.

        Raises LogError unless they lead on from `after` without a gap: a checkpoint is at a boundary.
        """
        with self._read, self._errors("read"):
            rows = self._reads.execute(
                "SELECT after, seq FROM batches WHERE seq > ? ORDER BY seq", (after,)
            ).fetchall()
            (end,) = self._reads.execute("SELECT coalesce(max(seq), 0) FROM batches").fetchone()
        if end < after:
            raise LogError(
                f"{self.path} must have a batch that ends at event {after}, got none after event {end}: it "
                "is not the log of this graph"
            )
        last = after
        for begin, end in rows:
            if begin != last:
                raise LogError(f"{self.path} must have a batch that begins after event {last}, got {begin}")
            last = end
        return [Batch(*row) for row in rows]

    def rejections(self, after: int = 0, *, up_to: int | None = None) -> Sequence[Rejection]:
        """The rejected entries with `after` < `seq` <= `up_to`, in order."""
        with self._read, self._errors("read"):
            rows = self._reads.execute(
                "SELECT seq, error, message FROM rejections WHERE seq > ? AND seq <= ? ORDER BY seq",
                (after, _LARGEST if up_to is None else up_to),
            ).fetchall()
        for seq, *texts in rows:
            if not all(isinstance(text, str) for text in texts):
                raise LogError(f"{self.path} must say in text why entry {seq} was rejected, got {texts!r}")
        return [Rejection(*row) for row in rows]

    def digest(self, seq: int) -> int:
        """A number for the history up to event `seq`, which another history hardly has.

        The CRC-32 of the last entry up to there, and of the last ones up to 1, 2, 4, 8... events before: many
        of those that are near, some of those that are far, so that its cost hardly grows with the log.
        """
        digest, last, distance = 0, None, 0
        with self._read, self._errors("read"):
            while distance < seq:
                row = self._reads.execute(
                    "SELECT seq, count, payload FROM entries WHERE seq <= ? ORDER BY seq DESC LIMIT 1",
                    (seq - distance,),
                ).fetchone()
                if row is not None and row[0] != last:
                    last, count, payload = row
                    if not isinstance(payload, bytes):
                        raise LogError(f"{self.path} must hold the events of entry {last}, got {payload!r}")
                    digest = zlib.crc32(payload, zlib.crc32(f"{last} {count} ".encode(), digest))
                distance = 2 * distance or 1
        return digest

    def close(self) -> None:
        """Lets go of the file; SQLite moves its write-ahead log into it."""
        with self._write, self._read:
            for connection in (self._reads, self._boundaries, self._appends):
                connection.close()

    def _connect(self, synchronous: str) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=10, check_same_thread=False, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute("PRAGMA foreign_keys = ON")
            self._create(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _create(self, connection: sqlite3.Connection) -> None:
        """Makes the tables of a new file; refuses a file of another kind or version."""
        with _transaction(connection):
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables and application == APPLICATION_ID:
                raise LogError(f"{self.path} must have the tables of an event log, got none: it is damaged")
            if not tables:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
                for statement in SCHEMA.split(";\n"):
                    connection.execute(statement)
            elif application != APPLICATION_ID:
                raise LogError(f"{self.path} must be an event log, got another SQLite database")
            elif version != VERSION:
                raise LogError(f"{self.path} must have version {VERSION}, got {version}: update livegnn")

    def _refuse_remains(self) -> None:
        """Raises LogError for a file that is too short to be a page: SQLite would begin a new one in it."""
        size = self.path.stat().st_size if self.path.is_file() else 0
        if 0 < size < _SMALLEST_PAGE:
            raise LogError(
                f"{self.path} must have at least one page of {_SMALLEST_PAGE} bytes, got {size} bytes: it is "
                "truncated"
            )

    def _refuse_damage(self) -> None:
        """Raises LogError for a write-ahead file of which SQLite would drop appends without a word."""
        path = self._beside("-wal")
        damage = find_damage(path)
        if damage is not None:
            place = f"frame {damage.frame}" if damage.frame else "its header"
            raise LogError(
                f"{path} must have the checksums of what was written, but {place} has not, and appends "
                "that were acknowledged follow. Restore the log and this file from a copy; or, to go on "
                "without what follows, keep a copy, then: "
                f"sqlite3 {self.path} 'PRAGMA wal_checkpoint(TRUNCATE)'"
            )

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(self.path.name + ending)

    def _find_end(self, acknowledged: int) -> int:
        """The last event. Raises LogError if there were others after it: acknowledged ones, or batches."""
        last, batch = self._reads.execute(
            "SELECT coalesce((SELECT max(seq) FROM entries), 0), coalesce((SELECT max(seq) FROM batches), 0)"
        ).fetchone()
        if last < batch:
            raise LogError(
                f"{self.path} must reach event {batch}, where its last batch ends, got entries up to event "
                f"{last}: it has lost its end"
            )
        if last < acknowledged:
            raise LogError(
                f"{self.path} must reach event {acknowledged}, which was acknowledged, got a log that ends "
                f"at {last}: it has lost its end or its -wal file, or is an older one. Restore it; or, to go "
                f"on with what it has, remove {self._mark}"
            )
        return int(last)

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Makes what SQLite and the system raise a LogError."""
        try:
            yield
        except (sqlite3.Error, OSError, OverflowError, UnicodeDecodeError) as error:
            # SQLite quotes what it cannot read: that may be no text any more, or have several lines.
            reason = " ".join(str(error).split())
            raise LogError(f"cannot {action} the event log {self.path}: {reason}") from error


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing; takes SQLite's lock for writing at once: what it reads stays true."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk may have ended it
            connection.execute("ROLLBACK")
        raise


def _last_seq(connection: sqlite3.Connection) -> int:
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()
    return int(last)
