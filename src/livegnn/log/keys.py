"""Idempotency keys: an entry that is sent again, because its answer was lost, takes effect once.

A key is stored with its entry in one transaction, with a checksum of the events, so that a key that comes
with other events is found. Keys expire after a time. Thread safety: none, the caller has the connection to
itself.
"""

import time
import zlib
from collections.abc import Callable
from typing import Final

import apsw

from livegnn.arguments import not_negative
from livegnn.errors import InputError
from livegnn.events import Events

_LONGEST: Final = 255
_EXPIRED_AT_ONCE: Final = 1000


class Keys:
    """The table `keys`.

    keep_seconds: for how long at least a key is known, by `clock`, in seconds since 1970.
    """

    def __init__(
        self, connection: apsw.Connection, keep_seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._connection, self._clock = connection, clock
        self._keep_seconds = not_negative(keep_seconds, "keep_keys_seconds")

    def find(self, key: str, events: Events) -> int | None:
        """The entry that was appended with `key`, None if there is none.

        Raises InputError for what is no key, and if that entry had other events.
        """
        if not isinstance(key, str) or not 0 < len(key) <= _LONGEST or not key.isprintable():
            raise InputError(
                f"an idempotency key must be text of 1 to {_LONGEST} printable characters, got {key!r:.80}"
            )
        row = self._connection.execute("SELECT seq, crc32 FROM keys WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        if row[1] != _checksum(events):
            raise InputError(
                f"an idempotency key must come with the same events each time, got {key!r} with others than "
                f"those of entry {row[0]}: give each request a key of its own"
            )
        return int(row[0])

    def add(self, key: str, events: Events, seq: int) -> None:
        """Notes that entry `seq` came with `key`, and forgets some keys that are too old."""
        now = self._clock()
        self._connection.execute(
            "INSERT INTO keys (key, seq, crc32, time) VALUES (?, ?, ?, ?)",
            (key, seq, _checksum(events), int(now)),
        )
        self._connection.execute(
            "DELETE FROM keys WHERE number < (SELECT min(number) FROM keys) + ? AND time < ?",
            (_EXPIRED_AT_ONCE, int(now - self._keep_seconds)),
        )


def _checksum(events: Events) -> int:
    return zlib.crc32(events.to_bytes())
