"""What was refused, forgotten when somebody says so: bad messages up to an offset, entries up to an event.

A refused entry that a replay may come by stays until it is trimmed, and is not listed any more. Numbers of
bad messages are not given out again: the last one that was forgotten, and how many were, are properties of
the log. Thread safety: none, the caller has the connection to itself.
"""

from typing import Any, Final, NamedTuple

import apsw

from livegnn.log.sqlite.checksums import add_checksum

_ENTRIES: Final = "forgotten entries"
_MESSAGES: Final = "forgotten messages"


class ForgottenMessages(NamedTuple):
    """deleted: how many bad messages were forgotten. last: the greatest number that one had then."""

    deleted: int = 0
    last: int = 0


def forgotten_up_to(connection: apsw.Connection) -> int:
    """The event up to which refused entries are not listed, 0 for none."""
    return int(_read(connection, _ENTRIES) or 0)


def forgotten_messages(connection: apsw.Connection) -> ForgottenMessages:
    """What is known of bad messages that were forgotten."""
    known = _read(connection, _MESSAGES)
    return ForgottenMessages() if known is None else ForgottenMessages(*map(int, known.split()))


def forget_entries(connection: apsw.Connection, up_to: int, begin: int) -> int:
    """Forgets the refused entries up to event `up_to` of a log that begins after event `begin`; returns how
    many were listed.
    """
    known = forgotten_up_to(connection)
    _write(connection, _ENTRIES, str(max(known, up_to)))
    (count,) = _one(connection, "SELECT count(*) FROM rejections WHERE seq > ? AND seq <= ?", (known, up_to))
    drop_forgotten(connection, begin)
    return int(count)


def drop_forgotten(connection: apsw.Connection, begin: int) -> None:
    """Deletes forgotten entries at or before event `begin`, where the log begins: no replay asks for them."""
    gone = (min(begin, forgotten_up_to(connection)),)
    connection.execute("DELETE FROM dead_letters WHERE seq <= ?", gone)
    connection.execute("DELETE FROM rejections WHERE seq <= ?", gone)


def forget_messages(connection: apsw.Connection, source: str, partition: int, up_to: int) -> int:
    """Deletes the bad messages of a partition up to offset `up_to`; returns how many."""
    known = forgotten_messages(connection)
    (last,) = _one(connection, "SELECT coalesce(max(number), 0) FROM bad_messages", ())
    connection.execute(
        "DELETE FROM bad_messages WHERE source = ? AND partition = ? AND offset <= ?",
        (source, partition, up_to),
    )
    count = connection.changes()
    _write(connection, _MESSAGES, f"{known.deleted + count} {max(known.last, last)}")
    return count


def _one(connection: apsw.Connection, statement: str, values: tuple[object, ...]) -> Any:
    return connection.execute(statement, values).fetchone()


def _read(connection: apsw.Connection, name: str) -> str | None:
    row: Any = _one(connection, "SELECT value FROM properties WHERE name = ?", (name,))
    return None if row is None else row[0]


def _write(connection: apsw.Connection, name: str, value: str) -> None:
    connection.execute("REPLACE INTO properties VALUES (?, ?, ?)", add_checksum((name, value)))
