"""Origins: entries that come from a numbered stream, as a broker's partition, and may be delivered again.

Of each partition of each source the log keeps the last offset that it has stored, and the entry that came
with it, in one transaction with the entry. What is delivered again has no later offset, and is not stored
again. Thread safety: none, the caller has the connection to itself.
"""

from collections.abc import Mapping
from types import NoneType
from typing import Any, Final, NamedTuple

import apsw

from livegnn.errors import InputError
from livegnn.log import Origin
from livegnn.log.checksums import add_checksum, check_row
from livegnn.wording import quoted

LONGEST_SOURCE: Final = 255
_LARGEST: Final = 2**63 - 1
_SELECT: Final = "SELECT source, partition, offset, seq, row_crc32 FROM origins"

Partition = tuple[str, int]
"""A source, and a partition of it."""


class Reached(NamedTuple):
    """The last offset that was stored of a partition, and the entry that came with it."""

    offset: int
    seq: int


def check_origin(origin: object) -> Origin:
    """Raises InputError for what is no origin."""
    if isinstance(origin, tuple) and len(origin) in (3, 4):
        source, partition, offset, payload = (*origin, None)[:4]
        numbers = all(type(number) is int and 0 <= number <= _LARGEST for number in (partition, offset))
        named = isinstance(source, str) and 0 < len(source) <= LONGEST_SOURCE and source.isprintable()
        if numbers and named and isinstance(payload, (bytes, NoneType)):
            return Origin(*origin)
    raise InputError(
        f"an origin must be (source, partition, offset): text of 1 to {LONGEST_SOURCE} printable characters, "
        f"and two integers from 0 to 2^63 - 1, perhaps with a payload of bytes, got {quoted(origin)}"
    )


def find_reached(connection: apsw.Connection, partition: Partition) -> Reached | None:
    """How far a partition was stored, None if nothing of it was. Raises LogError for a damaged row."""
    row: Any = connection.execute(f"{_SELECT} WHERE source = ? AND partition = ?", partition).fetchone()
    if row is None:
        for other in connection.execute(_SELECT):  # one of them may be this one, with its name damaged
            check_row(other, "origins", connection.filename)
        return None
    return Reached(*check_row(row, "origins", connection.filename)[2:])


def store_reached(connection: apsw.Connection, reached: Mapping[Partition, Reached]) -> None:
    """Notes how far partitions were stored."""
    connection.executemany(
        "REPLACE INTO origins (source, partition, offset, seq, row_crc32) VALUES (?, ?, ?, ?, ?)",
        [add_checksum((*partition, *one)) for partition, one in reached.items()],
    )
