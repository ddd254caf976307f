"""The SQLite file of a log: its tables, how it is opened, and older files brought to the present version.

SQLite is the one inside apsw, so that every machine runs the same.
"""

import os
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

import livegnn._core as _core
from livegnn.errors import DiskFullError, LogBusyError, LogError, is_disk_full
from livegnn.log.location import beside
from livegnn.log.sqlite.checksums import checksum_of

APPLICATION_ID: Final = 0x4C474E4E  # "LGNN", in the header of the SQLite file
VERSION: Final = 5

SCHEMA: Final = """
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY,
    count INTEGER NOT NULL CHECK (count > 0),
    payload BLOB NOT NULL,
    counts BLOB,
    chain BLOB
);
CREATE TABLE batches (
    seq INTEGER PRIMARY KEY,
    after INTEGER NOT NULL UNIQUE CHECK (after < seq)
);
CREATE TABLE rejections (
    seq INTEGER PRIMARY KEY,
    error TEXT NOT NULL,
    message TEXT NOT NULL,
    row_crc32 INTEGER NOT NULL
);
CREATE TABLE keys (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    seq INTEGER NOT NULL,
    crc32 INTEGER NOT NULL,
    time INTEGER NOT NULL,
    row_crc32 INTEGER NOT NULL
);
CREATE TABLE properties (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    row_crc32 INTEGER NOT NULL
);
CREATE TABLE dead_letters (
    seq INTEGER PRIMARY KEY,
    payload BLOB NOT NULL
);
CREATE TABLE origins (
    source TEXT NOT NULL,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    row_crc32 INTEGER NOT NULL,
    PRIMARY KEY (source, partition)
) WITHOUT ROWID;
CREATE TABLE bad_messages (
    number INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    reason TEXT NOT NULL,
    payload BLOB NOT NULL,
    size INTEGER NOT NULL,
    row_crc32 INTEGER NOT NULL
);
"""

CHECKED: Final = {
    "rejections": "seq, error, message",
    "keys": "key, seq, crc32, time",
    "properties": "name, value",
    "origins": "source, partition, offset, seq",
    "bad_messages": "source, partition, offset, reason, payload, size",
}
"""Tables whose rows have a checksum, `row_crc32`, and the columns that it is of."""


def _with_checksums(*tables: str) -> str:
    return "".join(
        f"ALTER TABLE {table} ADD COLUMN row_crc32 INTEGER NOT NULL DEFAULT 0;"  # noqa: S608
        f"UPDATE {table} SET row_crc32 = checksum_of({CHECKED[table]});"
        for table in tables
    )


_UPDATES: Final = {
    1: "ALTER TABLE entries ADD COLUMN counts BLOB; ALTER TABLE entries ADD COLUMN chain BLOB;"
    + _with_checksums("rejections")
    + SCHEMA[SCHEMA.index("CREATE TABLE keys") :],
    2: _with_checksums("rejections", "keys", "properties")
    + SCHEMA[SCHEMA.index("CREATE TABLE dead_letters") :],
    3: _with_checksums("rejections", "keys", "properties", "origins")
    + SCHEMA[SCHEMA.index("CREATE TABLE bad_messages") :],
    4: _with_checksums(*CHECKED),
}
"""What makes the tables of an older version those of the present one."""

LAST_EVENT: Final = "SELECT coalesce(max(seq), 0) FROM entries"
LAST_BATCH: Final = "SELECT coalesce(max(seq), 0) FROM batches"

_BUSY_MILLISECONDS = 10_000

_OLDEST: Final = (3, 51, 3)
"""SQLite before it can lose committed transactions when two connections of one write-ahead file write or
checkpoint at once, as those of a log do: "the WAL-reset bug" of https://sqlite.org/wal.html.
"""


def check_sqlite() -> None:
    """Raises LogError if the SQLite inside apsw is too old for a log, whatever the installation asked for."""
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


def connect(path: Path, synchronous: str, vfs: str | None = None) -> apsw.Connection:
    """A connection to the log at `path`, which is made when it is missing. Raises LogError, apsw.Error."""
    connection = apsw.Connection(str(path), vfs=vfs)
    with preparing(connection):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        # Pages that become free are cleared. Remains of payloads in them, used again for boundaries, would
        # look like appends where wal_check.py searches for them.
        connection.execute("PRAGMA secure_delete = ON")
        _create(connection, path)
    return connection


def connect_to_read(path: Path, vfs: str | None = None) -> apsw.Connection:
    """A connection that changes nothing, to a log that is there. Raises LogError, apsw.Error."""
    check_sqlite()
    connection = _open_to_read(path, vfs)
    with preparing(connection):
        version = _version(connection, path)
        if version != VERSION:
            raise LogError(
                f"{path} must be an event log of version {VERSION} to be read, got "
                + (
                    f"version {version}: start what owns it once, which brings it up to date"
                    if version
                    else "an empty file"
                )
            )
    return connection


def _open_to_read(path: Path, vfs: str | None) -> apsw.Connection:
    """Beside a log in write-ahead mode SQLite writes, even to read it, unless it is told that nobody does."""
    flags = apsw.SQLITE_OPEN_READONLY
    wal = beside(path, "-wal")
    if os.access(path.parent, os.W_OK, effective_ids=True) or beside(path, "-shm").exists():
        return apsw.Connection(str(path), flags=flags, vfs=vfs)
    if wal.exists() and wal.stat().st_size:
        raise LogError(
            f"{path.parent} must be a folder that can be written, since {wal.name} has a part of the log, "
            f"got one that cannot: copy {path.name} and {wal.name} to another folder, and read them there"
        )
    uri = f"file:{urllib.parse.quote(str(path))}?immutable=1"
    return apsw.Connection(uri, flags=flags | apsw.SQLITE_OPEN_URI, vfs=vfs)


def make_private(path: Path) -> None:
    """Makes an empty file that only its owner may read; SQLite gives its other files the same permissions."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return


def _create(connection: apsw.Connection, path: Path) -> None:
    """Makes the tables of a new file; refuses a file of another kind or a later version."""
    if _version(connection, path) == VERSION:
        return  # without the lock for writing, which another program may hold
    _core.transact(connection, _create_tables, connection, path)


def _create_tables(connection: apsw.Connection, path: Path) -> None:
    version = _version(connection, path)
    if version == VERSION:
        return
    if not version:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.create_scalar_function("checksum_of", lambda *values: checksum_of(values))
    connection.execute(_UPDATES[version] if version else SCHEMA)
    connection.create_scalar_function("checksum_of", None)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _version(connection: apsw.Connection, path: Path) -> int:
    """The version of a log, 0 for an empty file. Raises LogError for another kind, or a later version."""
    application = one(connection, "PRAGMA application_id")
    version = one(connection, "PRAGMA user_version")
    if not one(connection, "SELECT count(*) FROM sqlite_master"):
        if application == APPLICATION_ID:
            raise LogError(f"{path} must have the tables of an event log, got none: it is damaged")
        return 0
    if application != APPLICATION_ID:
        raise LogError(f"{path} must be an event log, got another SQLite database")
    if not 1 <= version <= VERSION:
        raise LogError(f"{path} must be of a version from 1 to {VERSION}, got {version}: update livegnn")
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
