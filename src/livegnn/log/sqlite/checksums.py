"""Checksums of rows in SQLite tables: a value that was spoiled on the disk is found when it is read.

Where the checksum of a row stands, it is the last value. Thread safety: there is no state.
"""

import zlib
from collections.abc import Sequence
from typing import Any

from livegnn.errors import LogError


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
