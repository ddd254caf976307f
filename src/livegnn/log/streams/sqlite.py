"""A stream in a SQLite file of its own, beside the log's: `events.db-streams/NAME/PARTITION.db`.

Each file has an owner, a mark, and consumers with names, as the log's file has, so that each partition may be
written by another process. See docs/streams.md for its tables.

Locks: `_write`, then `_read`; a connection each. Readers never wait for a flush.
"""

import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import apsw

import livegnn._core as _core
from livegnn.arguments import check_int, check_not_negative
from livegnn.backoff import Backoff
from livegnn.errors import LogError
from livegnn.interrupts import Flag
from livegnn.log import Origin
from livegnn.log.arguments import LARGEST_SEQ
from livegnn.log.consumers import read_positions
from livegnn.log.location import beside, locate
from livegnn.log.origins import Partition
from livegnn.log.owner import Owner
from livegnn.log.sqlite.checksums import add_checksum, check_row
from livegnn.log.sqlite.database import check_sqlite, errors_as_log_errors, make_private, one, preparing
from livegnn.log.sqlite.last_acknowledged import LastAcknowledged, wait_for
from livegnn.log.sqlite.open_files import OpenFiles
from livegnn.log.streams import (
    Record,
    StoredRecord,
    check_after,
    check_place,
    check_records,
    checksum,
    select_new,
)

APPLICATION_ID: Final = 0x4C475354  # "LGST"
VERSION: Final = 1
SCHEMA: Final = """
CREATE TABLE records (
    position INTEGER PRIMARY KEY,
    type TEXT NOT NULL,
    source TEXT,
    partition INTEGER,
    offset INTEGER,
    crc32 INTEGER NOT NULL,
    payload BLOB NOT NULL
);
CREATE TABLE reached (
    source TEXT NOT NULL,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    crc32 INTEGER NOT NULL,
    PRIMARY KEY (source, partition)
) WITHOUT ROWID;
"""
_SELECT: Final = (
    "SELECT position, type, source, partition, offset, crc32, payload FROM records "
    "WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
)
_PAUSES: Final = Backoff(0.0005, 0.005, 1.3)
_ROWS_AT_ONCE: Final = 1000
_TRIMMED_AT_ONCE: Final = 10_000
errors: Final = partial(errors_as_log_errors, what="the stream")


def path_of(log: Path | str, name: str, partition: int) -> Path:
    """The path of a partition of a stream of the log at `log`. Raises InputError for invalid arguments."""
    name, partition = check_place(name, partition)
    return beside(locate(log, new=True), "-streams") / name / f"{partition}.db"


class SqliteStreamReader:
    """Reads partition `partition` of the stream `name` of the log at `log`, beside its writer. Thread-safe.

    Raises LogError if there is no such stream; InputError.
    """

    def __init__(self, log: Path | str, name: str, partition: int = 0, *, vfs: str | None = None) -> None:
        check_sqlite()
        self.path = path_of(log, name, partition)
        self._read = threading.Lock()
        self._closed = Flag()
        self._mark = LastAcknowledged(beside(self.path, "-mark"))
        if not self.path.is_file():
            raise LogError(f"there must be a stream at {self.path}, got none: nothing was appended to it yet")
        with errors("read", self.path):
            self._reads = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
            with preparing(self._reads):
                _check_version(self._reads, self.path)

    def last_position(self) -> int:
        """The position of the last record that survives a loss of power, 0 if there was none yet."""
        return self._mark.read()

    def records(self, after: int, *, max_bytes: int | None = None) -> Sequence[StoredRecord]:
        """The records after position `after`, as of `ReadableStream.records`."""
        after = check_after(after, max_bytes)
        last = self.last_position()
        if after == last:
            return []
        if after > last:
            raise LogError(
                f"{self.path} must reach position {after}, got a stream that ends at {last}: it has lost its "
                "end, or is another one. Read it from the beginning"
            )
        found: list[StoredRecord] = []
        size = 0
        while last > after and (max_bytes is None or not found or size < max_bytes):
            with self._read, errors("read", self.path):
                rows: list[Any] = self._reads.execute(_SELECT, (after, last, _ROWS_AT_ONCE)).fetchall()
            if not rows:
                raise self._missing(after + 1)
            for row in rows:
                size += len(row[-1])
                if found and max_bytes is not None and size > max_bytes:
                    return found
                try:
                    found.append(self._parse(row, after + 1))
                except LogError:
                    if not found:
                        raise
                    return found
                after += 1
        return found

    def wait(self, after: int, timeout: float | None = None) -> bool:
        """Blocks until there is a record after `after`; False after `timeout` seconds, or when closed."""
        after = check_after(after, None)
        seconds = math.inf if timeout is None else check_not_negative(timeout, "timeout, in seconds,")
        ends = time.monotonic() + seconds
        return wait_for(lambda: self.last_position() > after, self._closed, ends, _PAUSES.pauses())

    def close(self) -> None:
        """Ends a `wait` that is going on; again does nothing."""
        self._closed.set()
        with self._read, errors("close", self.path):
            self._reads.close()

    def _parse(self, row: Sequence[Any], expected: int) -> StoredRecord:
        position, kind, source, partition, offset, crc32, payload = row
        if position != expected:
            raise self._missing(expected)
        try:
            origin = None if source is None else Origin(source, partition, offset)
            whole = crc32 == checksum(Record(kind, payload, origin), position)
        except (TypeError, AttributeError, UnicodeEncodeError):
            whole = False
        if not whole:
            raise LogError(f"{self.path} must have record {position} as it was written: it is damaged")
        return StoredRecord(position, kind, payload, origin)

    def _missing(self, position: int) -> LogError:
        with self._read, errors("read", self.path):
            first = one(self._reads, "SELECT coalesce(min(position), 0) FROM records")
        if position < first:
            return LogError(
                f"{self.path} must hold record {position}, got a stream that begins at {first}: "
                "earlier records were trimmed. Begin with a newer checkpoint of the reader"
            )
        return LogError(f"{self.path} must hold record {position}, got none: it is damaged")


class SqliteStream(SqliteStreamReader):
    """Appends to partition `partition` of the stream `name` of the log at `log`. Thread-safe.

    The stream is made when it is missing. vfs: the name of a file system that is registered with apsw, for
    tests. Raises LogError for a file of another kind, one that has lost what was appended to it, or one that
    another process writes; InputError.
    """

    def __init__(self, log: Path | str, name: str, partition: int = 0, *, vfs: str | None = None) -> None:
        check_sqlite()
        path = path_of(log, name, partition)
        self._write = threading.Lock()
        self._reached: dict[Partition, int] | None = None
        with errors("open", path), ExitStack() as opened:
            path.parent.parent.mkdir(mode=0o700, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            self._owner = Owner(beside(path, "-lock"), f"the stream {path}")
            opened.callback(self._owner.release)
            make_private(path)
            self._appends = opened.enter_context(closing(_connect(path, vfs)))
            super().__init__(log, name, partition, vfs=vfs)
            opened.callback(self._reads.close)
            self._last = self._find_end()
            files = [path, *(beside(path, ending) for ending in ("-wal", "-shm", "-lock"))]
            self._files = OpenFiles(f"the stream {path}", files)
            opened.pop_all()

    def append_all(self, records: Sequence[Record]) -> int:
        """Stores records durably, all or none, as of `RecordStream.append_all`."""
        check_records(records)
        with self._write, errors("append to", self.path):
            self._files.check()
            known = self._find_reached()
            reached = dict(known)
            new = select_new(records, reached)
            if not new:
                return self._last
            self._reached = None  # until it is known what became of the transaction
            begin = self._end()
            moved = [(*place, offset) for place, offset in reached.items() if known.get(place) != offset]
            _core.transact(self._appends, self._store, begin, new, moved)
            self._reached, self._last = reached, begin + len(new)
            self._mark.write(self._last)
            return self._last

    def _store(self, begin: int, new: Sequence[Record], reached: Sequence[tuple[str, int, int]]) -> None:
        self._appends.executemany(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)",
            [_row(record, position) for position, record in enumerate(new, begin + 1)],
        )
        self._appends.executemany("REPLACE INTO reached VALUES (?, ?, ?, ?)", map(add_checksum, reached))

    def last_position(self) -> int:
        """The position of the last record, 0 if there was none yet."""
        return self._last

    def reached(self, source: str, partition: int) -> int | None:
        """The last offset that was stored of a partition of a source, None if none was."""
        with self._write, errors("read", self.path):
            return self._find_reached().get((source, partition))

    def trim(self, up_to: int) -> int:
        """Deletes records at or before `up_to` that each consumer has committed; the last record stays."""
        up_to = check_int(up_to, "up_to", 0, LARGEST_SEQ)
        with self._write, errors("trim", self.path):
            up_to = min([up_to, self._last - 1, *read_positions(self.path, flush=True).values()])
        while True:
            with self._write, errors("trim", self.path):
                first = one(self._appends, "SELECT coalesce(min(position), 1) FROM records")
                if first > up_to:
                    return first - 1
                end = min(up_to, first + _TRIMMED_AT_ONCE - 1)
                delete = "DELETE FROM records WHERE position <= ?"
                _core.transact(self._appends, self._appends.execute, delete, (end,))

    def close(self) -> None:
        """Lets another process write the stream; again does nothing."""
        super().close()
        with self._write, errors("close", self.path), ExitStack() as opened:
            opened.callback(self._owner.release)
            opened.callback(self._files.release)
            opened.callback(self._mark.close)
            opened.callback(self._appends.close)

    def _find_reached(self) -> Mapping[Partition, int]:
        """Asked of the file if it is not known whether the last transaction was committed."""
        if self._reached is None:
            rows: Any = self._appends.execute("SELECT source, partition, offset, crc32 FROM reached")
            checked = [check_row(row, "reached", self.path) for row in rows.fetchall()]
            self._reached = {(source, partition): offset for source, partition, offset in checked}
            self._last = self._end()
        return self._reached

    def _end(self) -> int:
        return one(self._appends, "SELECT coalesce(max(position), 0) FROM records")

    def _find_end(self) -> int:
        """The last position. Raises LogError if the mark is ahead of it."""
        end, acknowledged = self._end(), self._mark.read()
        if end < acknowledged:
            raise LogError(
                f"{self.path} must reach position {acknowledged}, got a stream that ends at {end}: it has "
                "lost its end or its -wal file, or is an older one. Remove the folder "
                f"{self.path.parent}, so that its writer makes it again"
            )
        if end > acknowledged:  # a process died between a commit and the mark
            # Which flushes what is before it.
            _core.transact(self._appends, self._appends.execute, f"PRAGMA user_version = {VERSION}")
            self._mark.write(end)
        return end


def is_made(path: Path) -> bool:
    """Whether a partition's file has all that a reader needs. Raises LogError if it is not a database."""
    if not path.is_file():
        return False
    flags = apsw.SQLITE_OPEN_READONLY
    with errors("read", path), closing(apsw.Connection(str(path), flags=flags)) as found, preparing(found):
        return bool(one(found, "PRAGMA application_id"))


def partitions_of(log: Path | str, name: str) -> list[int]:
    """The partitions that a stream has, in order."""
    folder = path_of(log, name, 0).parent
    try:
        return sorted(int(path.stem) for path in folder.glob("*.db") if path.stem.isdigit())
    except FileNotFoundError:
        return []


def _connect(path: Path, vfs: str | None) -> apsw.Connection:
    connection = apsw.Connection(str(path), vfs=vfs)
    with preparing(connection):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        _core.transact(connection, _create, connection, path)
        _check_version(connection, path)
    return connection


def _create(connection: apsw.Connection, path: Path) -> None:
    """Makes the tables of a new file."""
    if one(connection, "SELECT count(*) FROM sqlite_master"):
        return
    if one(connection, "PRAGMA application_id"):
        raise LogError(f"{path} must have the tables of a stream, got none: it is damaged")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(SCHEMA)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _check_version(connection: apsw.Connection, path: Path) -> None:
    kind = one(connection, "PRAGMA application_id"), one(connection, "PRAGMA user_version")
    if kind[0] != APPLICATION_ID:
        raise LogError(f"{path} must be a stream of records, got another SQLite database")
    if kind[1] != VERSION:
        raise LogError(f"{path} must be of version {VERSION}, got {kind[1]}: update livegnn")


def _row(record: Record, position: int) -> tuple[object, ...]:
    place = (None, None, None) if record.origin is None else record.origin[:3]
    return (position, record.type, *place, checksum(record, position), record.payload)
