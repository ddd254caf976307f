"""The small tables beside `entries`: keys, origins, bad messages, and the properties that bind the log.

A key, the offset of an origin and a bad message are stored in one transaction with the entries of the same
append. So each is stored once, however often a message is delivered, even if the process crashes. Properties
that bind the log are rows of the table `properties` under names with a prefix.

Refused entries and bad messages are forgotten on request. An entry that a replay may read stays until it is
trimmed, and is not listed any more. Numbers of bad messages are not reused: the number of the last forgotten
one, and the count of forgotten ones, are properties of the log. Thread safety: none, the caller owns the
connection.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from livegnn.arguments import check_not_negative
from livegnn.events import Events
from livegnn.log import BadMessage, Origin
from livegnn.log.arguments import new_properties
from livegnn.log.idempotency import KeyClock, Known, Partition, Reached, Unread, checksum
from livegnn.log.sqlite.sequence import Format, add_checksum, check_row, one

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
"""SQL that brings the tables of an older version up to date."""

FORMAT: Final = Format(
    "the event log",
    "an event log",
    0x4C474E4E,  # "LGNN"
    5,
    SCHEMA,
    # Pages that become free are cleared. Remains of payloads in them, used again for boundaries, would look
    # like appends where wal_check.py searches for them.
    "PRAGMA secure_delete = ON",
    _UPDATES,
)

LAST_EVENT: Final = "SELECT coalesce(max(seq), 0) FROM entries"
LAST_BATCH: Final = "SELECT coalesce(max(seq), 0) FROM batches"

_EXPIRED_AT_ONCE: Final = 5000
_SELECT_KEYS: Final = "SELECT key, seq, crc32, time, row_crc32 FROM keys"
_SELECT_ORIGINS: Final = "SELECT source, partition, offset, seq, row_crc32 FROM origins"
_FORGOTTEN_ENTRIES: Final = "forgotten entries"
_FORGOTTEN_MESSAGES: Final = "forgotten messages"
_LAST_MESSAGE: Final = "SELECT coalesce(max(number), 0) FROM bad_messages"
_BOUND: Final = "bound/"
"""Before the name of a property that binds the log."""


class Keys:
    """The table `keys`.

    keep_seconds: for how long at least a key is known, by `clock`, in seconds since 1970; None: a `KeyClock`.
    """

    def __init__(
        self, connection: apsw.Connection, keep_seconds: float, clock: Callable[[], float] | None = None
    ) -> None:
        self._connection = connection
        self._keep_seconds = check_not_negative(keep_seconds, "keep_keys_seconds")
        latest: Any = connection.execute(f"{_SELECT_KEYS} ORDER BY number DESC LIMIT 1").fetchone()
        begin = 0 if latest is None else self._known(latest).time
        self._clock = KeyClock(begin) if clock is None else clock

    def find(self, key: str) -> Known | None:
        """The entry of `key`, None if it is new. Raises LogError for a damaged row."""
        row: Any = self._connection.execute(f"{_SELECT_KEYS} WHERE key = ?", (key,)).fetchone()
        return None if row is None else self._known(row)

    def make(self, key: str, events: Events, seq: int) -> Known:
        """The record that entry `seq` of `events` was appended with `key` now."""
        return Known(key, seq, checksum(events), int(self._clock()))

    def add(self, known: Iterable[Known]) -> None:
        """Stores keys, and forgets some that are too old: more of them than one write adds."""
        self._connection.executemany(
            "INSERT INTO keys (key, seq, crc32, time, row_crc32) VALUES (?, ?, ?, ?, ?)",
            map(add_checksum, known),
        )
        self.forget_old()

    def forget_old(self) -> None:
        """Deletes some keys that are too old."""
        oldest: Any = self._connection.execute(
            "SELECT number, time FROM keys ORDER BY number LIMIT 1"
        ).fetchone()
        last = int(self._clock() - self._keep_seconds)
        if oldest is not None and oldest[1] < last:
            self._connection.execute(
                "DELETE FROM keys WHERE number < ? AND time < ?", (oldest[0] + _EXPIRED_AT_ONCE, last)
            )

    def _known(self, row: Sequence[Any]) -> Known:
        return Known(*check_row(row, "keys", self._connection.filename))


def find_reached(connection: apsw.Connection, partition: Partition) -> Reached | None:
    """The last stored offset of a partition, None if there is none. Raises LogError for a damaged row."""
    row: Any = connection.execute(
        f"{_SELECT_ORIGINS} WHERE source = ? AND partition = ?", partition
    ).fetchone()
    if row is None:
        for other in connection.execute(_SELECT_ORIGINS):  # it may be one of them, with its name damaged
            check_row(other, "origins", connection.filename)
        return None
    return Reached(*check_row(row, "origins", connection.filename)[2:])


def store_reached(connection: apsw.Connection, reached: Mapping[Partition, Reached]) -> None:
    """Notes how far partitions were stored."""
    connection.executemany(
        "REPLACE INTO origins (source, partition, offset, seq, row_crc32) VALUES (?, ?, ?, ?, ?)",
        [add_checksum((*partition, *one)) for partition, one in reached.items()],
    )


def store_bad(connection: apsw.Connection, bad: Sequence[tuple[Origin, Unread]]) -> None:
    """Stores bad messages after those that are there, or were."""
    first = max(one(connection, _LAST_MESSAGE), forgotten_messages(connection).last) + 1
    connection.executemany(
        "INSERT INTO bad_messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (number, *add_checksum((*origin[:3], *unread)))
            for number, (origin, unread) in enumerate(bad, first)
        ],
    )


def find_bad(connection: apsw.Connection, after: int, most: int) -> list[BadMessage]:
    """The first `most` bad messages after number `after`. Raises LogError for a damaged row."""
    rows: list[Any] = connection.execute(
        "SELECT number, source, partition, offset, reason, payload, size, row_crc32 FROM bad_messages "
        "WHERE number > ? ORDER BY number LIMIT ?",
        (after, most),
    ).fetchall()
    return [BadMessage(number, *check_row(row, "bad_messages", connection.filename)) for number, *row in rows]


def bound_properties(connection: apsw.Connection) -> dict[str, str]:
    """The properties that a log is bound to, by name. Raises LogError for a damaged row."""
    rows: list[Any] = connection.execute(
        "SELECT name, value, row_crc32 FROM properties WHERE substr(name, 1, ?) = ? ORDER BY name",
        (len(_BOUND), _BOUND),
    ).fetchall()
    values = [check_row(row, "properties", connection.filename) for row in rows]
    return {name.removeprefix(_BOUND): value for name, value in values}


def bind_properties(
    connection: apsw.Connection, path: Path, properties: Mapping[str, str], replace: bool
) -> None:
    """Stores properties; raises LogError if one has another value already, unless `replace`."""
    new = new_properties(str(path), bound_properties(connection), properties, replace)
    connection.executemany(
        "REPLACE INTO properties VALUES (?, ?, ?)",
        [add_checksum((_BOUND + name, value)) for name, value in new.items()],
    )


class ForgottenMessages(NamedTuple):
    """deleted: how many bad messages were forgotten. last: the greatest number that one had then."""

    deleted: int = 0
    last: int = 0


def forgotten_up_to(connection: apsw.Connection) -> int:
    """The event up to which refused entries are not listed, 0 for none."""
    return int(_read_property(connection, _FORGOTTEN_ENTRIES) or 0)


def forgotten_messages(connection: apsw.Connection) -> ForgottenMessages:
    """The record of bad messages that were forgotten."""
    known = _read_property(connection, _FORGOTTEN_MESSAGES)
    return ForgottenMessages() if known is None else ForgottenMessages(*map(int, known.split()))


def forget_entries(connection: apsw.Connection, up_to: int, begin: int) -> int:
    """Forgets the refused entries up to event `up_to` of a log that begins after event `begin`; returns how
    many were listed.
    """
    known = forgotten_up_to(connection)
    _write_property(connection, _FORGOTTEN_ENTRIES, str(max(known, up_to)))
    count = one(connection, "SELECT count(*) FROM rejections WHERE seq > ? AND seq <= ?", (known, up_to))
    drop_forgotten(connection, begin)
    return count


def drop_forgotten(connection: apsw.Connection, begin: int) -> None:
    """Deletes forgotten entries at or before event `begin`, where the log begins: no replay needs them."""
    gone = (min(begin, forgotten_up_to(connection)),)
    connection.execute("DELETE FROM dead_letters WHERE seq <= ?", gone)
    connection.execute("DELETE FROM rejections WHERE seq <= ?", gone)


def forget_messages(connection: apsw.Connection, source: str, partition: int, up_to: int) -> int:
    """Deletes the bad messages of a partition up to offset `up_to`; returns how many."""
    known = forgotten_messages(connection)
    last = one(connection, _LAST_MESSAGE)
    connection.execute(
        "DELETE FROM bad_messages WHERE source = ? AND partition = ? AND offset <= ?",
        (source, partition, up_to),
    )
    count = connection.changes()
    _write_property(connection, _FORGOTTEN_MESSAGES, f"{known.deleted + count} {max(known.last, last)}")
    return count


def _read_property(connection: apsw.Connection, name: str) -> str | None:
    row: Any = connection.execute("SELECT value FROM properties WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def _write_property(connection: apsw.Connection, name: str, value: str) -> None:
    connection.execute("REPLACE INTO properties VALUES (?, ?, ?)", add_checksum((name, value)))
