"""Messages of the topic of events: entries that were appended together, as the value of one Kafka message.

All numbers are little-endian.

header   "LGEM", version u16, number of entries u32, length of the notes u32, CRC-32 u32 of all that follows
counts   u32 for each entry: how many events it has
notes    JSON, an object; `keys`: the idempotency key of each entry, or null; `origins`: where each came from,
         a list of source, partition and offset, or null. No bytes at all if no entry has either
events   of all entries, in the binary form of events (`livegnn.events.binary`)
"""

import json
import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from livegnn.errors import FileFormatError, InputError
from livegnn.events import Events
from livegnn.events.binary import check
from livegnn.log import Origin
from livegnn.log.keys import check_key
from livegnn.log.origins import check_origin
from livegnn.types import JSON

if TYPE_CHECKING:
    from jaxtyping import Int64

    from livegnn.types import IntArray

MAGIC: Final = b"LGEM"
VERSION: Final = 1
MOST_EVENTS: Final = 4096
"""A message with so many events takes no further entry."""

_HEADER = struct.Struct("<4sHIII")


class Message(NamedTuple):
    """What one Kafka message holds. counts: events of each entry; keys, origins: of each entry, or none."""

    counts: "Int64[IntArray, 'entries']"
    keys: Sequence[str | None]
    origins: Sequence[Origin | None]
    events: Events

    def entries(self) -> list[tuple[Events, str | None, Origin | None]]:
        """Each entry with its key and origin; columns of its events are views."""
        ends = np.cumsum(self.counts).tolist()
        nothing = [None] * len(ends)
        parts = [self.events.between(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        return list(zip(parts, self.keys or nothing, self.origins or nothing, strict=True))


def encode(
    entries: Sequence[Events],
    keys: Sequence[str | None] | None = None,
    origins: Sequence[Origin | None] | None = None,
) -> bytes:
    """The value of a message with `entries`, and a key and an origin of each if it has one.

    Raises InputError for text that cannot be stored, or a key or an origin that is none.
    """
    if not entries:
        raise InputError("a message must hold at least one entry, got none")
    for events in entries:
        check(events.chunks)
    said: dict[str, JSON] = {}
    if keys is not None and any(key is not None for key in keys):
        for key in keys:
            if key is not None:
                check_key(key)
        said["keys"] = list(keys)
    if origins is not None and any(origin is not None for origin in origins):
        said["origins"] = [None if origin is None else list(check_origin(origin)) for origin in origins]
    notes = json.dumps(said).encode() if said else b""
    counts = np.array([len(events) for events in entries], "<u4").tobytes()
    rest = counts + notes + Events.concatenate(entries).to_bytes()
    return _HEADER.pack(MAGIC, VERSION, len(entries), len(notes), zlib.crc32(rest)) + rest


def decode(value: bytes) -> Message:
    """What `encode` was given. Raises FileFormatError for anything else."""
    if len(value) < _HEADER.size or value[:4] != MAGIC:
        raise FileFormatError(f"a message of events must begin with {MAGIC!r}, got {value[:8]!r}")
    _, version, count, notes_length, checksum = _HEADER.unpack_from(value)
    if version != VERSION:
        raise FileFormatError(f"a message of events must be of version {VERSION}, got {version}")
    rest = memoryview(value)[_HEADER.size :]
    if zlib.crc32(rest) != checksum:
        raise FileFormatError(
            f"a message of events must have the checksum {checksum:08x}, got {zlib.crc32(rest):08x}"
        )
    notes_at = 4 * count
    events_at = notes_at + notes_length
    if not count or events_at > len(rest):
        raise FileFormatError(f"a message of events must hold its {count} entries, got {len(rest)} bytes")
    counts = np.frombuffer(rest[:notes_at], "<u4").astype(np.int64)
    try:
        events = Events.from_bytes(bytes(rest[events_at:]))
        keys, origins = _parse_notes(bytes(rest[notes_at:events_at]), count)
    except (InputError, ValueError, TypeError) as error:
        raise FileFormatError(f"a message of events must hold events and keys, got: {error}") from error
    if counts.sum() != len(events):
        raise FileFormatError(
            f"a message of events must hold entries of {counts.tolist()} events, got {len(events)}"
        )
    return Message(counts, keys, origins, events)


def _parse_notes(notes: bytes, count: int) -> tuple[Sequence[str | None], Sequence[Origin | None]]:
    """Keys and origins. Raises ValueError or InputError for what is none of each of `count` entries."""
    if not notes:
        return (), ()
    parsed = json.loads(notes)
    if not isinstance(parsed, dict):
        raise TypeError(f"notes must be an object, got {parsed!r:.80}")
    keys, origins = parsed.get("keys", []), parsed.get("origins", [])
    for name, given in (("keys", keys), ("origins", origins)):
        if not isinstance(given, list) or len(given) not in (0, count):
            raise ValueError(f"{name} of {count} entries must be a list, got {given!r:.80}")
    for key in keys:
        if key is not None:
            check_key(key)
    return keys, [None if one is None else check_origin(tuple(one)) for one in origins]


def pack(
    entries: Sequence[Events],
    keys: Sequence[str | None],
    origins: Sequence[Origin | None],
    largest: int,
) -> list[tuple[bytes, Sequence[int]] | tuple[InputError, Sequence[int]]]:
    """`entries` as the values of as few messages as fit: each value with the positions of its entries.

    largest: the size of a message in bytes. An entry that alone is larger, or cannot be stored, comes with
    the error instead of a value, by itself.
    """
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
                packed.append((error, positions))
                return
            half = len(positions) // 2
            finish(positions[:half])
            finish(positions[half:])
        else:
            packed.append((value, positions))

    for at, events in enumerate(entries):
        group.append(at)
        size += len(events)
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
