"""A stream in a SQLite file of its own, beside the log's: `events.db-streams/NAME/PARTITION.db`.

Each file has an owner, a mark, and consumers with names, as the log's file has, so that each partition may be
written by another process. See docs/streams.md for its tables.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import apsw

import livegnn._core as _core
from livegnn.backoff import Backoff
from livegnn.errors import LogError
from livegnn.interrupts import Flag
from livegnn.log import Origin
from livegnn.log.arguments import deadline
from livegnn.log.idempotency import Partition
from livegnn.log.location import beside, locate
from livegnn.log.sqlite.sequence import (
    Format,
    OwnedSequence,
    SequenceReader,
    add_checksum,
    check_row,
    check_sqlite,
    errors_as_log_errors,
    one,
    preparing,
    roll_back,
    wait_for,
)
from livegnn.log.streams import (
    ReadableStream,
    Record,
    RecordStream,
    StoredRecord,
    check_after,
    check_place,
    check_records,
    checksum,
    select_new,
)

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
FORMAT: Final = Format("the stream", "a stream of records", 0x4C475354, 1, SCHEMA)  # "LGST"
_FIRST: Final = "SELECT coalesce(min(position), 1) FROM records"
_LAST: Final = "SELECT coalesce(max(position), 0) FROM records"
_SELECT: Final = (
    "SELECT position, type, source, partition, offset, crc32, payload FROM records "
    "WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"
)
_PAUSES: Final = Backoff(0.0005, 0.005, 1.3)
_ROWS_AT_ONCE: Final = 1000
_TRIMMED_AT_ONCE: Final = 10_000


def path_of(log: Path | str, name: str, partition: int) -> Path:
    """The path of a partition of a stream of the log at `log`. Raises InputError for invalid arguments."""
    name, partition = check_place(name, partition)
    return beside(locate(log, new=True), "-streams") / name / f"{partition}.db"


class SqliteStreamReader(SequenceReader, ReadableStream):
    """Reads partition `partition` of the stream `name` of the log at `log`, beside its writer. Thread-safe.

    Raises LogError if there is no such stream; InputError.
    """

    def __init__(self, log: Path | str, name: str, partition: int = 0, *, vfs: str | None = None) -> None:
        path = path_of(log, name, partition)
        if not path.is_file():
            raise LogError(f"there must be a stream at {path}, got none: nothing was appended to it yet")
        super().__init__(path, FORMAT, vfs)
        self._closed = Flag()

    def last_position(self) -> int:
        return self.acknowledged()

    def records(self, after: int, *, max_bytes: int | None = None) -> Sequence[StoredRecord]:
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
            with self._errors("read"):
                rows = _core.holding(self._read, self._find, after, last)
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

    def _find(self, after: int, last: int) -> list[Any]:
        return self._reads.execute(_SELECT, (after, last, _ROWS_AT_ONCE)).fetchall()

    def wait(self, after: int, timeout: float | None = None) -> bool:
        after, ends = check_after(after, None), deadline(timeout)
        return wait_for(lambda: self.last_position() > after, self._closed, ends, _PAUSES.pauses())

    def close(self) -> None:
        self._closed.set()
        super().close()

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
        with self._errors("read"):
            first = _core.holding(self._read, one, self._reads, _FIRST)
        if position < first:
            return LogError(
                f"{self.path} must hold record {position}, got a stream that begins at {first}: "
                "earlier records were trimmed. Begin with a newer checkpoint of the reader"
            )
        return LogError(f"{self.path} must hold record {position}, got none: it is damaged")


class SqliteStream(SqliteStreamReader, OwnedSequence, RecordStream):
    """Appends to partition `partition` of the stream `name` of the log at `log`. Thread-safe.

    The stream is made when it is missing. vfs: the name of a file system that is registered with apsw, for
    tests. Raises LogError for a file of another kind, one that has lost what was appended to it, or one that
    another process writes; InputError.
    """

    def __init__(self, log: Path | str, name: str, partition: int = 0, *, vfs: str | None = None) -> None:
        check_sqlite()
        path = path_of(log, name, partition)
        self._reached: dict[Partition, int] | None = None
        self._closed = Flag()
        with errors_as_log_errors("open", path, FORMAT.name):
            path.parent.parent.mkdir(mode=0o700, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
        OwnedSequence.__init__(self, path, FORMAT, vfs)
        with self._errors("open"), ExitStack() as opened:
            opened.callback(self._close)
            self._settle()
            opened.pop_all()

    def append_all(self, records: Sequence[Record]) -> int:
        check_records(records)
        with self._errors("append to"):
            return _core.holding(self._write, self._append_all, records)

    def _append_all(self, records: Sequence[Record]) -> int:
        self._files.check()
        known = self._find_reached()
        reached = dict(known)
        new = select_new(records, reached)
        if not new:
            return self._last
        self._reached = None  # until it is known what became of the transaction
        begin = one(self._appends, _LAST)
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
        return self._last

    def reached(self, source: str, partition: int) -> int | None:
        with self._errors("read"):
            return _core.holding(self._write, self._find_reached).get((source, partition))

    def _begin_trim(self) -> int:
        return one(self._appends, _FIRST) - 1

    def _trim_some(self, up_to: int) -> int | None:
        begin = self._begin_trim()
        end = min(up_to, one(self._appends, _LAST) - 1, begin + _TRIMMED_AT_ONCE)
        if end <= begin:
            return None
        self._appends.execute("DELETE FROM records WHERE position <= ?", (end,))
        return end

    def _find_reached(self) -> Mapping[Partition, int]:
        """Asked of the file if it is not known whether the last transaction was committed."""
        if self._reached is None:
            roll_back(self._appends)
            rows: Any = self._appends.execute("SELECT source, partition, offset, crc32 FROM reached")
            checked = [check_row(row, "reached", self.path) for row in rows.fetchall()]
            self._reached = {(source, partition): offset for source, partition, offset in checked}
            self._last = one(self._appends, _LAST)
        return self._reached

    def _find_end(self, acknowledged: int) -> int:
        end = one(self._appends, _LAST)
        if end < acknowledged:
            raise LogError(
                f"{self.path} must reach position {acknowledged}, got a stream that ends at {end}: it has "
                "lost its end or its -wal file, or is an older one. Remove the folder "
                f"{self.path.parent}, so that its writer makes it again"
            )
        return end


def is_made(path: Path) -> bool:
    """Whether a partition's file has all that a reader needs. Raises LogError if it is not a database."""
    if not path.is_file():
        return False
    flags = apsw.SQLITE_OPEN_READONLY
    with (
        errors_as_log_errors("read", path, FORMAT.name),
        closing(apsw.Connection(str(path), flags=flags)) as found,
        preparing(found),
    ):
        return bool(one(found, "PRAGMA application_id"))


def _row(record: Record, position: int) -> tuple[object, ...]:
    place = (None, None, None) if record.origin is None else record.origin[:3]
    return (position, record.type, *place, checksum(record, position), record.payload)
