"""Origins: entries that come from a numbered stream, as a broker's partition, and may be delivered again.

Of each partition of each source the log keeps the last offset that it has stored, and the entry that came
with it, in one transaction with the entry. What is delivered again has no later offset, and is not stored
again. A message that could not be stored as events is kept with the reason: nothing is lost unseen.
"""

from types import NoneType
from typing import Final, NamedTuple

from livegnn.errors import InputError
from livegnn.log import Origin
from livegnn.wording import quoted

LONGEST_SOURCE: Final = 255
_LARGEST: Final = 2**63 - 1
KEPT_BYTES: Final = 1024
"""So many bytes of a bad message are kept: it is still where it came from."""

Partition = tuple[str, int]
"""A source, and a partition of it."""


class Reached(NamedTuple):
    """The last offset that was stored of a partition, and the entry that came with it."""

    offset: int
    seq: int


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
