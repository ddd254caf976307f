"""Events that are sent or delivered again take effect once: entries are known by their key or their origin.

A key is stored with its entry in one transaction, with a checksum of the events, so that a key with
other events is found. Keys expire after a time. Keys of our own begin with a character that no key of a
client may have, so the two kinds are never equal.

An origin is a numbered place in a stream, such as a partition of a broker. The log keeps the last offset that
it has stored of each partition of each source, and the entry that was made of it, in one transaction with
the entry. A message that is delivered again has no later offset, and is not stored again. A message that
could not be stored as events is kept with the reason, so no message is lost silently.
"""

import hashlib
import time
import zlib
from types import NoneType
from typing import Final, NamedTuple

from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.log import Origin
from livegnn.wording import quoted

LONGEST_SOURCE: Final = 255
_LARGEST: Final = 2**63 - 1
KEPT_BYTES: Final = 1024
"""The bytes of a bad message that are kept: its source still has the whole of it."""

Partition = tuple[str, int]
"""A source, and a partition of it."""
_OWN: Final = "\x01"  # not printable
RETRY: Final = f"{_OWN}retry of "
"""Before the number of a refused entry: the key under which it is appended again."""
_LONGEST: Final = 255
CLIENT: Final = "client "
"""How the names of clients' streams begin, and of no other source: a client moves its own streams alone."""


class Known(NamedTuple):
    """A key, its entry, a checksum of its events, and the time of the append, in seconds since 1970."""

    key: str
    seq: int
    crc32: int
    time: int

    def check(self, events: Events) -> None:
        """Raises InputError if `events` are not those of the entry."""
        if checksum(events) != self.crc32:
            raise InputError(
                "an idempotency key must have the same events each time, got "
                f"{quoted(self.key.removeprefix(_OWN))} with others than those of entry {self.seq}: "
                "give each request a key of its own"
            )


class OwnKey(str):
    """A key of our own. A client's key is never of this type, with any characters."""

    __slots__ = ()


def retry_key(seq: int) -> OwnKey:
    """The key under which the refused entry `seq` is appended again."""
    return OwnKey(f"{RETRY}{seq}")


def part_key(key: str, number: int) -> OwnKey:
    """The key of entry `number` of a request with `key` that became several entries."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16)
    return OwnKey(f"{_OWN}part {number} of {digest.hexdigest()}")


def client_origin(name: str, position: int) -> Origin:
    """A position in the stream that a client gave a name. Raises InputError for values that are none."""
    return check_origin(Origin(f"{CLIENT}{name}", 0, position))


def stored_key(key: object) -> object:
    """A key that was stored where it lost its type. For other values `check_key` reports the error."""
    is_own = isinstance(key, str) and key.startswith(_OWN) and key.removeprefix(_OWN).isprintable()
    return OwnKey(key) if is_own else key


def check_key(key: object) -> None:
    """Raises InputError for a value that is neither an idempotency key of a client, nor one of our own."""
    if isinstance(key, OwnKey):
        return
    if not isinstance(key, str) or not 0 < len(key) <= _LONGEST or not key.isprintable():
        raise InputError(
            f"an idempotency key must be text of 1 to {_LONGEST} printable characters, got {quoted(key)}"
        )


class KeyClock:
    """Seconds since 1970 by which keys grow old: the machine's clock at the start, and the time since.

    So setting the clock, forward or back, makes no log forget a key early. latest: the time of the last key.
    A machine whose clock was ahead then, and is not now, continues from there: keys are not kept for ever.
    """

    def __init__(self, latest: float) -> None:
        self._began = max(latest, time.time()) - time.monotonic()

    def __call__(self) -> float:
        return self._began + time.monotonic()


def checksum(events: Events) -> int:
    """The `Known.crc32` of `events`."""
    return zlib.crc32(events.to_bytes())


class Reached(NamedTuple):
    """The last stored offset of a partition, and its entry."""

    offset: int
    seq: int


class Unread(NamedTuple):
    """Why a message is a bad one, its first bytes, and how many it has."""

    reason: str
    payload: bytes
    size: int

    @classmethod
    def make(cls, reason: object, payload: bytes) -> "Unread":
        """The part of `payload` that is kept."""
        # Half of a surrogate pair, which an error may quote, cannot be stored anywhere.
        said = str(reason).encode(errors="backslashreplace").decode()
        return cls(said, payload[:KEPT_BYTES], len(payload))


def check_origin(origin: object) -> Origin:
    """Raises InputError for values that are not an origin."""
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
