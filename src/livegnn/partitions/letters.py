"""Messages between a leader and the worker of a part, and frames of rounds, as sections of a channel.

A letter is a JSON object and perhaps bytes after it. Any number of bytes becomes sections of rows that a
channel may cut into parts.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from livegnn.channels.errors import ChannelError
from livegnn.channels.frames import Buffer, Section, SectionKind
from livegnn.types import JSON

_WIDTH: Final = 3 << 20  # values of a row, of a long array of bytes: a message has room for one
_VALUE_BYTES: Final = 4
_SIZE_BYTES: Final = 8


class Letter(NamedTuple):
    """content: JSON; payload: bytes whose meaning the content says."""

    content: Mapping[str, JSON]
    payload: bytes = b""


def to_sections(data: Buffer) -> list[Section]:
    """Sections whose rows hold the bytes. Requires: their number is a multiple of 4."""
    values = np.frombuffer(data, np.float32)
    whole = len(values) // _WIDTH
    rows = [values[: whole * _WIDTH].reshape(whole, _WIDTH), values[whole * _WIDTH :].reshape(1, -1)]
    return [Section(SectionKind.DATA, 0, np.zeros(len(some), np.uint32), some) for some in rows if some.size]


def to_bytes(sections: Sequence[Section]) -> bytes:
    """The bytes in sections that `to_sections` made."""
    return b"".join([section.rows.data.cast("B") for section in sections])


def to_buffer(sections: Sequence[Section]) -> Buffer:
    """The same without a copy, where one section has all of it."""
    return sections[0].rows.data.cast("B") if len(sections) == 1 else to_bytes(sections)


def seal(letter: Letter) -> list[Section]:
    """The sections of a letter."""
    content = json.dumps(letter.content, separators=(",", ":")).encode()
    sizes = np.array([len(content), len(letter.payload)], np.uint32).tobytes()
    room = -(len(content) + len(letter.payload)) % _VALUE_BYTES
    return to_sections(b"".join([sizes, content, letter.payload, bytes(room)]))


def open_letter(sections: Sequence[Section]) -> Letter:
    """The letter in sections that `seal` made. Raises ChannelError for any others."""
    data = to_bytes(sections)
    try:
        content_size, payload_size = np.frombuffer(data[:_SIZE_BYTES], np.uint32).tolist()
        content = json.loads(data[_SIZE_BYTES : _SIZE_BYTES + content_size])
        payload = data[_SIZE_BYTES + content_size :][:payload_size]
        assert isinstance(content, dict)
        assert len(payload) == payload_size
    except (ValueError, AssertionError) as error:
        raise ChannelError(f"a letter must have a JSON object, got {data[:100]!r}") from error
    return Letter(content, payload)
