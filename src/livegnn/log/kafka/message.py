"""Messages of the topic of events: entries that were appended together, as the value of one Kafka message.

All numbers are little-endian.

header   "LGEM", version u16, number of entries u32, length of the notes u32, CRC-32 u32 of all before it and
         after it
counts   u32 for each entry: how many events it has
notes    JSON, an object; `keys`: the idempotency key of each entry, or null; `origins`: the origin of each,
         a list of source, partition and offset, or null; `bad`: for an unreadable entry, a list of
         the reason, its first bytes in Base64, and its number of bytes, or null. No bytes at all if no entry
         has one of these
events   of all entries, in the binary form of events (`livegnn.events.binary`)
"""

import base64
import json
import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from livegnn.errors import FileFormatError, InputError
from livegnn.events import Events
from livegnn.events.binary import check
from livegnn.events.builder import CheckedEvents
from livegnn.log import Origin
from livegnn.log.idempotency import Unread, check_key, check_origin, stored_key
from livegnn.types import JSON
from livegnn.wording import quoted

if TYPE_CHECKING:
    from jaxtyping import Int64

    from livegnn.types import IntArray

MAGIC: Final = b"LGEM"
VERSION: Final = 1
MOST_EVENTS: Final = 4096
"""A message with at least this number of events takes no further entry."""

_HEADER, _CHECKSUM = struct.Struct("<4sHII"), struct.Struct("<I")
_BEGIN: Final = _HEADER.size + _CHECKSUM.size


class Message(NamedTuple):
    """The contents of one Kafka message. counts: events of each entry.

    keys, origins, bad: of each entry, or of none; `bad` says why one that has no events could not be read.
    """

    counts: "Int64[IntArray, 'entries']"
    keys: Sequence[str | None]
    origins: Sequence[Origin | None]
    bad: Sequence[Unread | None]
    events: Events

    def entries(self) -> list[tuple[Events, str | None, Origin | None]]:
        """Each entry with its key and origin; columns of its events are views."""
        ends = np.cumsum(self.counts).tolist()
        nothing = [None] * len(ends)
        parts = [self.events.between(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        return list(zip(parts, self.keys or nothing, self.origins or nothing, strict=True))


def encode(
    entries: Sequence[Events | InputError],
    keys: Sequence[str | None] | None = None,
    origins: Sequence[Origin | None] | None = None,
) -> bytes:
    """The value of a message with `entries`, and a key and an origin of each if it has one.

    An InputError stands for events that could not be read, of which the origin has the payload. Raises it if
    it has not; InputError for text that cannot be stored, or a key or an origin that is none.
    """
    if not entries:
        raise InputError("a message must hold at least one entry, got none")
    bad = _find_bad(entries, origins)
    readable = [events if isinstance(events, Events) else Events() for events in entries]
    for events in readable:
        if not isinstance(events, CheckedEvents):
            check(events.chunks)
    said: dict[str, JSON] = {}
    if keys is not None and any(key is not None for key in keys):
        for key in keys:
            if key is not None:
                check_key(key)
        said["keys"] = list(keys)
    if origins is not None and any(origin is not None for origin in origins):
        said["origins"] = [None if origin is None else list(check_origin(origin)[:3]) for origin in origins]
    if bad:
        said["bad"] = [None if (one := bad.get(at)) is None else to_row(one) for at in range(len(entries))]
    notes = json.dumps(said).encode() if said else b""
    counts = np.array([len(events) for events in readable], "<u4").tobytes()
    rest = counts + notes + Events.concatenate(readable).to_bytes()
    header = _HEADER.pack(MAGIC, VERSION, len(entries), len(notes))
    return header + _CHECKSUM.pack(zlib.crc32(rest, zlib.crc32(header))) + rest


def decode(value: bytes) -> Message:
    """Restores the arguments of `encode`. Raises FileFormatError for other bytes."""
    if len(value) < _BEGIN or value[:4] != MAGIC:
        raise FileFormatError(f"a message of events must begin with {MAGIC!r}, got {quoted(value[:8])}")
    _, version, count, notes_length = _HEADER.unpack_from(value)
    if version != VERSION:
        raise FileFormatError(f"a message of events must be of version {VERSION}, got {version}")
    (expected,) = _CHECKSUM.unpack_from(value, _HEADER.size)
    rest = memoryview(value)[_BEGIN:]
    checksum = zlib.crc32(rest, zlib.crc32(value[: _HEADER.size]))
    if checksum != expected:
        raise FileFormatError(
            f"a message of events must have the checksum {expected:08x}, got {checksum:08x}"
        )
    notes_at = 4 * count
    events_at = notes_at + notes_length
    if not count or events_at > len(rest):
        raise FileFormatError(f"a message of events must hold its {count} entries, got {len(rest)} bytes")
    counts = np.frombuffer(rest[:notes_at], "<u4").astype(np.int64)
    try:
        events = Events.from_bytes(bytes(rest[events_at:]))
        keys, origins, bad = _parse_notes(bytes(rest[notes_at:events_at]), count)
    except (InputError, ValueError, TypeError) as error:
        raise FileFormatError(f"a message of events must hold events and keys, got: {error}") from error
    if counts.sum() != len(events):
        raise FileFormatError(
            f"a message of events must hold entries of {counts.tolist()} events, got {len(events)}"
        )
    if any(one is not None and size for one, size in zip(bad, counts.tolist(), strict=False)):
        raise FileFormatError("a message of events must hold no events of an entry that was not read")
    return Message(counts, keys, origins, bad, events)


def to_row(unread: Unread) -> list[JSON]:
    """As JSON has it."""
    return [unread.reason, base64.b64encode(unread.payload).decode(), unread.size]


def to_unread(row: object) -> Unread:
    """Restores the argument of `to_row`. Raises TypeError or ValueError."""
    if not isinstance(row, list) or list(map(type, row)) != [str, str, int]:
        raise TypeError(f"what was not read must be a reason, bytes and a size, got {quoted(row)}")
    reason, payload, size = row
    return Unread(reason, base64.b64decode(payload, validate=True), size)


def _find_bad(
    entries: Sequence[Events | InputError], origins: Sequence[Origin | None] | None
) -> dict[int, Unread]:
    """The entries that could not be read, by position. Raises one of which there is no payload."""
    bad: dict[int, Unread] = {}
    for at, one in enumerate(entries):
        if isinstance(one, InputError):
            origin = None if origins is None else origins[at]
            if origin is None or check_origin(origin).payload is None:
                raise one
            bad[at] = Unread.make(one, origin.payload or b"")
    return bad


def _parse_notes(
    notes: bytes, count: int
) -> tuple[Sequence[str | None], Sequence[Origin | None], Sequence[Unread | None]]:
    """Keys, origins and entries that could not be read. Raises ValueError, TypeError or InputError for values
    that are not one of each for `count` entries."""
    if not notes:
        return (), (), ()
    parsed = json.loads(notes)
    if not isinstance(parsed, dict):
        raise TypeError(f"notes must be an object, got {quoted(parsed)}")
    keys, origins, bad = (parsed.get(name, []) for name in ("keys", "origins", "bad"))
    for name, given in (("keys", keys), ("origins", origins), ("bad", bad)):
        if not isinstance(given, list) or len(given) not in (0, count):
            raise ValueError(f"{name} of {count} entries must be a list, got {quoted(given)}")
    keys = [stored_key(key) for key in keys]
    for key in keys:
        if key is not None:
            check_key(key)
    return (
        keys,
        [None if one is None else check_origin(tuple(one)) for one in origins],
        [None if one is None else to_unread(one) for one in bad],
    )


def pack(
    entries: Sequence[Events | InputError],
    keys: Sequence[str | None],
    origins: Sequence[Origin | None],
    largest: int,
) -> list[tuple[bytes, Sequence[int]] | tuple[InputError, Sequence[int]]]:
    """`entries` as the values of as few messages as fit: each value with the positions of its entries.

    largest: the size of a message in bytes. An entry that alone is larger, or cannot be stored, has the error
    instead of a value, by itself; if its origin has a payload, it is packed as one that could not be read.
    """
    entries = list(entries)
    packed: list[tuple[bytes, Sequence[int]] | tuple[InputError, Sequence[int]]] = []
    group: list[int] = []
    size = 0

    def finish(positions: Sequence[int]) -> None:
        if not positions:
            return
        try:
            value = encode(
                [entries[at] for at in positions],
                [keys[at] for at in positions],
                [origins[at] for at in positions],
            )
            if len(value) > largest:
                raise _too_large(len(value), largest)
        except InputError as error:
            if len(positions) == 1:
                (at,) = positions
                origin = origins[at]
                known = isinstance(origin, Origin) and origin.payload is not None
                if known and isinstance(entries[at], Events):
                    entries[at] = error
                    finish(positions)
                else:
                    packed.append((error, positions))
                return
            half = len(positions) // 2
            finish(positions[:half])
            finish(positions[half:])
        else:
            packed.append((value, positions))

    for at, events in enumerate(entries):
        group.append(at)
        size += len(events) if isinstance(events, Events) else 1
        if size >= MOST_EVENTS:
            finish(group)
            group, size = [], 0
    finish(group)
    return packed


def _too_large(size: int, largest: int) -> InputError:
    return InputError(
        f"an entry must fit into one message of {largest:,} bytes, got {size:,}: append fewer events at "
        "once, or raise max.message.bytes of the topic"
    )
