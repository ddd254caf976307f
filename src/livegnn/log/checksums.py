"""Checksums of rows in SQLite tables: a value that was spoiled on the disk is found when it is read.

Where the checksum of a row stands, it is the last value. Thread safety: there is no state.
"""

import zlib
from collections.abc import Sequence
from typing import Any

from livegnn.errors import LogError


def checksum_of(values: Sequence[object]) -> int:
    """The CRC-32 of values of a row: bytes as they are, others as text in UTF-8, a NUL byte after each."""
    crc32 = 0
    for value in values:
        part = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
        crc32 = zlib.crc32(b"\0", zlib.crc32(part, crc32))
    return crc32


def add_checksum(values: Sequence[Any]) -> tuple[Any, ...]:
    """A row as it is stored."""
    return (*values, checksum_of(values))


def is_whole(row: Sequence[Any]) -> bool:
    """Whether a row is as it was stored."""
    return bool(row[-1] == checksum_of(row[:-1]))


def check_row(row: Sequence[Any], table: str, file: object) -> Sequence[Any]:
    """The values of a stored row, without its checksum. Raises LogError if they are not those of then."""
    if not is_whole(row):
        raise LogError(
            f"{file} must have the rows of the table {table} as they were written, got {row[:-1]!r:.160} "
            "with another checksum: it is damaged. Restore it from a copy"
        )
    return row[:-1]
