"""An append-only sequence of checked rows in a SQLite file: what a log and each stream beside it stand on.

One process owns the file, by a lock beside it. It appends with synchronous=FULL, and notes after each flush
the last number (`LastAcknowledged`), so that a lost end is found. Readers have connections that change
nothing, and never wait for a flush. SQLite is the one inside apsw, so that every machine runs the same.

Locks: `_write` for all who write (SQLite has one at a time), then `_read` for the connection that reads.
"""

import os
import threading
import time
import urllib.parse
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

import apsw

import livegnn._core as _core
from livegnn.arguments import check_int
from livegnn.errors import DiskFullError, LogBusyError, LogError, is_disk_full
from livegnn.interrupts import Flag, at_once
from livegnn.log.arguments import LARGEST_SEQ
from livegnn.log.consumers import from_line, read_positions, to_line
from livegnn.log.location import Owner, beside, is_at
from livegnn.log.sqlite.open_files import OpenFiles

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")

_SMALLEST_PAGE: Final = 512  # of any SQLite database
_BUSY_MILLISECONDS = 10_000

_OLDEST: Final = (3, 51, 3)
"""SQLite before it can lose committed transactions when two connections of one write-ahead file write or
checkpoint at once, as those of a log do: "the WAL-reset bug" of https://sqlite.org/wal.html.
"""


class Format(NamedTuple):
    """The properties of the files of one kind of sequence, by which they are recognized.

    name, kind: for messages, such as "the event log" and "an event log". setup: SQL for each connection that
    writes. updates: SQL that brings the tables of an older version up to date.
    """

    name: str
    kind: str
    application_id: int
    version: int
    schema: str
    setup: str = ""
    updates: Mapping[int, str] = {}


class LastAcknowledged:
    """The last number that was acknowledged, in a small file at `path`: it shows that the end was lost.

    It is written after each append, in place, and not flushed: it survives a crash of the process, and after
    a loss of power it may be older. So it is never ahead of the acknowledged number, and a sequence that does
    not reach it has lost its end, even if its own files look whole. A mark that is missing or cannot be read
    proves nothing. Processes that follow the sequence read it to find new entries. Thread safety: none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def read(self) -> int:
        """The number, as far as the mark knows; 0 if it knows of none."""
        try:
            return from_line(self.path.read_bytes()) or 0
        except FileNotFoundError:
            return 0

    def write(self, seq: int) -> None:
        """Notes that number `seq` is acknowledged. A failure leaves an older mark, which is true as well.

        A mark that was removed is made again.
        """
        with suppress(OSError):
            if self._file >= 0 and not is_at(self._file, self.path):
                self.close()
            if self._file < 0:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._file, to_line(seq), 0)

    def close(self) -> None:
        """Closes the file; again does nothing."""
        if self._file >= 0:
            at_once(partial(os.close, self._file), partial(setattr, self, "_file", -1))


def wait_for(found: Callable[[], bool], closed: Flag, ends: float, pauses: Iterator[float]) -> bool:
    """Looks again and again, after each of `pauses`, until something is `found`.

    ends: when to give up, on the monotonic clock. False then, or when `closed` is set.
    """
    while not closed.is_set():
        if found():
            return True
        left = min(next(pauses), ends - time.monotonic())
        if left <= 0:
            return False
        closed.wait(left)
    return False


class SequenceReader:
    """The file at `path`, to be read. Thread-safe.

    vfs: the name of a file system that is registered with apsw, for tests. Raises LogError if there is no
    file of this format and its present version.
    """

    def __init__(self, path: Path, format: Format, vfs: str | None = None) -> None:
        self.path, self._format = path, format
        self._read = threading.Lock()
        self._mark = LastAcknowledged(beside(path, "-mark"))
        with self._errors("open"):
            self._reads = connect_to_read(path, format, vfs)

    def acknowledged(self) -> int:
        """The last number that survives a loss of power, as far as this is known."""
        return self._mark.read()

    def close(self) -> None:
        """Closes the file; again does nothing."""
        with self._errors("close"):
            _core.holding(self._read, self._reads.close)

    def _errors(self, action: str) -> AbstractContextManager[None]:
        return errors_as_log_errors(action, self.path, self._format.name)


class OwnedSequence(SequenceReader):
    """The file at `path`, made when it is missing, with the right to append to it, until `close`.

    Raises LogError for a file of another kind, one that has lost what was appended to it, or one that another
    process owns. `_last` is the last number.
    """

    def __init__(self, path: Path, format: Format, vfs: str | None = None) -> None:
        check_sqlite()
        self._write = threading.Lock()
        self._settled = False
        with errors_as_log_errors("open", path, format.name), ExitStack() as opened:
            self._owner = Owner(beside(path, "-lock"), f"{format.name} {path}")
            opened.callback(self._owner.release)
            make_private(path)
            self._refuse_damage(path)
            acknowledged = LastAcknowledged(beside(path, "-mark")).read()
            self._appends = opened.enter_context(closing(connect(path, format, "FULL", vfs)))
            super().__init__(path, format, vfs)
            opened.callback(self._reads.close)
            files = [path, *(beside(path, ending) for ending in ("-wal", "-shm", "-lock"))]
            self._files = OpenFiles(f"{format.name} {path}", files)
            self._last = self._find_end(acknowledged)
            opened.pop_all()

    def _refuse_damage(self, path: Path) -> None:
        """Raises LogError for a file that is too short to be a page: SQLite would begin a new one in it."""
        size = path.stat().st_size
        if 0 < size < _SMALLEST_PAGE:
            raise LogError(
                f"{path} must have at least one page of {_SMALLEST_PAGE} bytes, got {size} bytes: it is "
                "truncated"
            )

    def _find_end(self, acknowledged: int) -> int:
        """The last number. Raises LogError if it is before `acknowledged`, so that the end is lost."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Makes an append of a crashed process durable, before anything is stored after it: the first
        write does so. The caller holds `_write`."""
        if self._settled:
            return
        # Then the next append begins the write-ahead file again: remains of a crash at its end are never
        # taken for later entries.
        self._appends.execute("PRAGMA wal_checkpoint(PASSIVE)")
        if self._mark.read() < self._last:
            _core.transact(self._appends, self._flush)
            self._mark.write(self._last)
        self._settled = True

    def _flush(self) -> None:
        """Writes something: a commit with synchronous=FULL flushes all earlier ones with it."""
        self._appends.execute(f"PRAGMA user_version = {self._format.version}")

    def _transact(
        self,
        connection: apsw.Connection,
        function: Callable[_Arguments, _Answer],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Answer:
        """Calls `function` in a transaction, as the only one who writes."""

        def transact() -> _Answer:
            self._files.check()
            self._settle()
            return _core.transact(connection, function, *args, **kwargs)

        return _core.holding(self._write, transact)

    def trim(self, up_to: int) -> int:
        """Deletes whole rows at or before `up_to` that are not needed and that all consumers have read.

        Returns the last deleted number, durably; 0 if there is none. An append waits for one small step at
        most. Raises LogError.
        """
        up_to = check_int(up_to, "up_to", 0, LARGEST_SEQ)
        with self._errors("trim"):
            up_to = min([up_to, *read_positions(self.path, flush=True).values()])
            end: int | None = self._transact(self._appends, self._begin_trim)
        while end is not None:
            began = time.monotonic()
            with self._errors("trim"):
                trimmed, end = end, self._transact(self._appends, self._trim_some, up_to)
            time.sleep(time.monotonic() - began)  # so that appends get a turn
        return trimmed

    def _begin_trim(self) -> int:
        """Prepares to trim; returns the last number that was trimmed before, 0 if none was."""
        raise NotImplementedError

    def _trim_some(self, up_to: int) -> int | None:
        """Deletes some rows at or before `up_to`; returns the last number deleted, None if there are none."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes the file, into which SQLite moves its write-ahead file, and lets another process own it.

        Raises LogError if the disk fails; nothing is lost, and the file is closed.
        """
        with self._errors("close"):
            both = partial(_core.holding, self._read, _core.settled, self._close, self._close)
            _core.holding(self._write, both)

    def _close(self) -> None:
        """Can be done again."""
        with ExitStack() as opened:
            opened.callback(self._owner.release)
            opened.callback(self._files.release)
            opened.callback(self._mark.close)
            opened.callback(self._appends.close)
            opened.callback(self._reads.close)


def check_sqlite() -> None:
    """Raises LogError if the SQLite inside apsw is too old for a log, with any installed requirements."""
    found = apsw.sqlite_lib_version()
    if tuple(int(part) for part in found.split(".")[:3]) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise LogError(
            f"a log needs SQLite {oldest} or newer, because older ones can lose committed transactions, got "
            f"{found} in apsw {apsw.apsw_version()}: pip install -U 'apsw>={oldest}.0'"
        )


@contextmanager
def preparing(connection: apsw.Connection) -> Iterator[None]:
    """Has a new connection wait for locks; closes it if what is done with it now raises."""
    try:
        connection.set_busy_timeout(_BUSY_MILLISECONDS)
        yield
    except BaseException:
        connection.close()
        raise


def connect(path: Path, format: Format, synchronous: str, vfs: str | None = None) -> apsw.Connection:
    """A connection to a file that is made when it is missing. Raises LogError, apsw.Error."""
    connection = apsw.Connection(str(path), vfs=vfs)
    with preparing(connection):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}; {format.setup}")
        if _version(connection, path, format) != format.version:  # else no lock for writing is needed
            _core.transact(connection, _create_tables, connection, path, format)
    return connection


def connect_to_read(path: Path, format: Format, vfs: str | None = None) -> apsw.Connection:
    """A connection that changes nothing, to a file that is there. Raises LogError, apsw.Error."""
    check_sqlite()
    connection = _open_to_read(path, format, vfs)
    with preparing(connection):
        version = _version(connection, path, format)
        if version != format.version:
            raise LogError(
                f"{path} must be {format.kind} of version {format.version} to be read, got "
                + (
                    f"version {version}: start what owns it once, which brings it up to date"
                    if version
                    else "an empty file"
                )
            )
    return connection


def _open_to_read(path: Path, format: Format, vfs: str | None) -> apsw.Connection:
    """Opens a file to read. SQLite writes beside it in write-ahead mode, unless it is opened as immutable."""
    flags = apsw.SQLITE_OPEN_READONLY
    wal = beside(path, "-wal")
    if os.access(path.parent, os.W_OK, effective_ids=True) or beside(path, "-shm").exists():
        return apsw.Connection(str(path), flags=flags, vfs=vfs)
    if wal.exists() and wal.stat().st_size:
        raise LogError(
            f"{path.parent} must be a folder that can be written, since {wal.name} has a part of "
            f"{format.name}, got one that cannot: copy {path.name} and {wal.name} to another folder, and "
            "read them there"
        )
    uri = f"file:{urllib.parse.quote(str(path))}?immutable=1"
    return apsw.Connection(uri, flags=flags | apsw.SQLITE_OPEN_URI, vfs=vfs)


def make_private(path: Path) -> None:
    """Makes an empty file that only its owner may read; SQLite gives its other files the same permissions."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return


def _create_tables(connection: apsw.Connection, path: Path, format: Format) -> None:
    version = _version(connection, path, format)
    if version == format.version:
        return
    if not version:
        connection.execute(f"PRAGMA application_id = {format.application_id}")
    connection.create_scalar_function("checksum_of", lambda *values: checksum_of(values))
    connection.execute(format.updates[version] if version else format.schema)
    connection.create_scalar_function("checksum_of", None)
    connection.execute(f"PRAGMA user_version = {format.version}")


def _version(connection: apsw.Connection, path: Path, format: Format) -> int:
    """The version of a file, 0 for an empty one. Raises LogError for another kind, or a later version."""
    application = one(connection, "PRAGMA application_id")
    version = one(connection, "PRAGMA user_version")
    if not one(connection, "SELECT count(*) FROM sqlite_master"):
        if application == format.application_id:
            raise LogError(f"{path} must have the tables of {format.kind}, got none: it is damaged")
        return 0
    if application != format.application_id:
        raise LogError(f"{path} must be {format.kind}, got another SQLite database")
    if not 1 <= version <= format.version:
        known = f"a version from 1 to {format.version}" if format.version > 1 else "version 1"
        raise LogError(f"{path} must be of {known}, got {version}: update livegnn")
    return version


@contextmanager
def errors_as_log_errors(action: str, path: Path | str, what: str = "the event log") -> Iterator[None]:
    """Makes what SQLite and the system raise a LogError about `what`."""
    try:
        yield
    except (apsw.Error, OSError, OverflowError, UnicodeDecodeError) as error:
        # SQLite quotes what it cannot read: that may be no text any more, or have several lines.
        reason = " ".join(str(error).split())
        if isinstance(error, apsw.BusyError):
            raise LogBusyError(
                f"cannot {action} {what} {path}: another program has held its lock for writing for "
                f"{_BUSY_MILLISECONDS / 1000:g} s ({reason}). End that program, or its transaction"
            ) from error
        full = _is_full(error) or is_disk_full(error)
        raise (DiskFullError if full else LogError)(f"cannot {action} {what} {path}: {reason}") from error


def _is_full(error: Exception) -> bool:
    """Whether SQLite found no space, be it for the file that its connections share (-shm)."""
    no_shared = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    return isinstance(error, apsw.FullError) or no_shared


def roll_back(connection: apsw.Connection) -> None:
    """Takes back what was not committed: of a transaction that was interrupted, too."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def one(connection: apsw.Connection, statement: str, values: tuple[object, ...] = ()) -> int:
    """The one number that a statement returns. Raises LogError for anything else."""
    row = connection.execute(statement, values).fetchone()
    if row is None or len(row) != 1 or type(row[0]) is not int:
        raise LogError(
            f"{connection.filename} must have a number for {statement!r}, got {row}: it is damaged"
        )
    return row[0]


def checksum_of(values: Sequence[object]) -> int:
    """The CRC-32 of values of a row: of each, "b" and its bytes, or "t" and its text in UTF-8, or "n" and its
    digits, then a NUL byte. The letter is there since a single bit of a row makes bytes of a text.
    """
    crc32 = 0
    for value in values:
        kind = b"b" if isinstance(value, bytes) else b"t" if isinstance(value, str) else b"n"
        part = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
        crc32 = zlib.crc32(kind + part + b"\0", crc32)
    return crc32


def add_checksum(values: Sequence[Any]) -> tuple[Any, ...]:
    """A row as it is stored."""
    return (*values, checksum_of(values))


def is_whole(row: Sequence[Any]) -> bool:
    """Whether a row is undamaged."""
    return bool(row[-1] == checksum_of(row[:-1]))


def check_row(row: Sequence[Any], table: str, file: object) -> Sequence[Any]:
    """The values of a stored row, without its checksum. Raises LogError if they are not those of then."""
    if not is_whole(row):
        raise LogError(
            f"{file} must have the rows of the table {table} as they were written, got {row[:-1]!r:.160} "
            "with another checksum: it is damaged. Restore it from a copy"
        )
    return row[:-1]
