"""The small tables beside `entries`: keys, origins, bad messages, and what the log is bound to.

A key, the offset of an origin and a bad message are stored in one transaction with the entries that came with
them. So each is there once, however often a message is delivered, and whatever ends the process. Properties
that bind the log are rows of the table `properties` under names with a prefix. Thread safety: none, the
caller has the connection to itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import apsw

from livegnn.arguments import check_not_negative
from livegnn.events import Events
from livegnn.log import BadMessage, Origin
from livegnn.log.binding import new_properties
from livegnn.log.keys import KeyClock, Known, checksum
from livegnn.log.origins import Partition, Reached, Unread
from livegnn.log.sqlite.checksums import add_checksum, check_row
from livegnn.log.sqlite.forgetting import forgotten_messages

_EXPIRED_AT_ONCE: Final = 5000
_SELECT_KEYS: Final = "SELECT key, seq, crc32, time, row_crc32 FROM keys"
_SELECT_ORIGINS: Final = "SELECT source, partition, offset, seq, row_crc32 FROM origins"
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
    row: Any = connection.execute("SELECT coalesce(max(number), 0) FROM bad_messages").fetchone()
    first = max(row[0], forgotten_messages(connection).last) + 1
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


def check_properties(connection: apsw.Connection, path: Path, properties: Mapping[str, str]) -> None:
    """Raises LogError if a log has another value of one of `properties`."""
    new_properties(str(path), bound_properties(connection), properties, replace=False)
