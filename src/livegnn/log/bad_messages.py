"""Messages of streams that could not be stored as events, kept with the reason: nothing is lost unseen.

A bad message is stored in one transaction with the offset of its origin. So it is listed once, however often
it is delivered, and whatever ends the process. Thread safety: none, the caller has the connection to itself.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import apsw

from livegnn.log import BadMessage, Origin
from livegnn.log.checksums import add_checksum, check_row
from livegnn.log.forgetting import forgotten_messages

KEPT_BYTES: Final = 1024
"""So many bytes of a bad message are kept: it is still where it came from."""


class Unread(NamedTuple):
    """Why a message is a bad one, its first bytes, and how many it has."""

    reason: str
    payload: bytes
    size: int

    @classmethod
    def make(cls, reason: object, payload: bytes) -> "Unread":
        """What is kept of `payload`."""
        # Half of a surrogate pair, which an error may quote, can be stored by nobody.
        said = str(reason).encode(errors="backslashreplace").decode()
        return cls(said, payload[:KEPT_BYTES], len(payload))


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
