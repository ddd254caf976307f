"""The layout of messages between workers, byte by byte. docs/channels.md describes it.

A message is a list of frames: the first has a header and a table of sections, then each section has a frame
of nodes and a frame of rows. A message of another kind than `ROUND` may have one frame with a note instead.
Small messages are sent with all frames joined into one. The hash covers every byte except itself, so `decode`
returns a message as it was sent, or none.

Every version keeps the size of the header, its first six bytes, and the hash of messages with a note, such as
hellos: a message of another version is recognised as one.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_int
from livegnn.channels.errors import ChannelError
from livegnn.errors import InputError
from livegnn.wording import format_size

if TYPE_CHECKING:
    from jaxtyping import Float32, UInt32
    from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC: Final = b"LGPX"
VERSION: Final = 1
MOST_PART_BYTES: Final = 16 << 20
"""Of the sections of one message. A round with more is sent in several messages."""

LAST: Final = 1
"""Flag: no other part of this round follows."""
ACCEPTED: Final = 2
"""Flag of `HELLO`: the sender exchanges rows with the process of `Hello.known` alone."""

_HEADER: Final = struct.Struct("<4sHBBIHHIIQQQQIBBHIIQ")
_HASH_AT: Final = _HEADER.size - 8
_SECTION: Final = struct.Struct("<IIII")
_NODE_BYTES: Final = 4
_VALUE_BYTES: Final = 4
_MOST_SECTIONS: Final = 0xFFFF
_MOST_VALUE: Final = 0xFFFF_FFFF
_MOST_JOINED: Final = 8192  # bytes of a message in one frame
_NODES: Final = np.dtype("<u4")
_VALUES: Final = np.dtype("<f4")


class Kind(IntEnum):
    """The kind of a message. Those that are `NUMBERED` have a number on their link, and are sent again if
    lost.
    """

    HELLO = 1
    ROUND = 2
    ABORT = 3
    RESEND = 4
    RECEIVED = 5
    BEAT = 6
    ECHO = 7
    BYE = 8


NUMBERED: Final = frozenset({Kind.ROUND, Kind.ABORT, Kind.BYE})


class SectionKind(IntEnum):
    """The content of a section. Nodes of `ROWS` and `FEATURES` ascend; those of `DATA` are not read here."""

    ROWS = 0
    FEATURES = 1
    DATA = 2


_ASCENDING: Final = frozenset({SectionKind.ROWS, SectionKind.FEATURES})


class DamagedMessage(Exception):
    """The frames are not those of any message that was sent: their sender must send it again."""


class Header(NamedTuple):
    """The header of a message without its sizes and its hash.

    incarnation: of the sender's process. known: the incarnation of the receiver, as the sender knows it.
    number: of this message on its link, or of the last message before it that has a number. received: the
    number of the last message that the sender has received in order. sweep: how often the sender has begun
    to send its messages again. session: a random number of the sender's process, for this link.
    """

    kind: Kind
    epoch: int
    sender: int
    receiver: int
    incarnation: int
    known: int
    turn: int = 0
    seq: int = 0
    number: int = 0
    received: int = 0
    round: int = 0
    attempt: int = 0
    sweep: int = 0
    session: int = 0
    flags: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """Rows of one value, one for each node. Raises `InputError` if no frame can hold them.

    value: the position of the value, or of the node type if `kind` is `FEATURES`. The arrays belong to the
    channel from here on: they must not be changed.
    """

    kind: SectionKind
    value: int
    nodes: "UInt32[NDArray[np.uint32], 'nodes']"
    rows: "Float32[NDArray[np.float32], 'nodes width']"

    def __post_init__(self) -> None:
        check_int(self.value, "the value of a section", 0, _MOST_VALUE)
        nodes, rows = self.nodes, self.rows
        if not (
            nodes.dtype == np.uint32
            and rows.dtype == np.float32
            and nodes.ndim == 1
            and rows.ndim == 2
            and len(nodes) == len(rows)
            and nodes.flags.c_contiguous
            and rows.flags.c_contiguous
        ):
            raise InputError(
                "a section must have nodes of uint32 and as many rows of float32, both contiguous, got "
                f"{nodes.dtype} {nodes.shape} and {rows.dtype} {rows.shape}"
            )

    @property
    def num_bytes(self) -> int:
        """The size of its entry in the table and of its two frames."""
        return _SECTION.size + self.nodes.nbytes + self.rows.nbytes


class Message(NamedTuple):
    """A message that has arrived whole. note: empty if there are sections."""

    header: Header
    sections: list[Section]
    note: bytes


def encode(header: Header, sections: Sequence[Section] = (), note: bytes = b"") -> list[Buffer]:
    """The frames of a message; arrays are not copied. A message has sections or a note, not both."""
    assert not (sections and note)
    first = bytearray(_HEADER.size + _SECTION.size * len(sections))
    frames: list[Buffer] = [first]
    at, size = _HEADER.size, len(first) - _HEADER.size
    for section in sections:
        nodes, rows = section.nodes, section.rows
        _SECTION.pack_into(first, at, section.value, rows.shape[1], len(nodes), section.kind)
        at += _SECTION.size
        size += nodes.nbytes + rows.nbytes
        frames += (_bytes_of(nodes), _bytes_of(rows))
    if note:
        frames.append(note)
        size += len(note)
    kind, epoch, sender, receiver, incarnation, known, turn, seq, number, received = header[:10]
    round, attempt, sweep, session, flags = header[10:]
    _HEADER.pack_into(
        first, 0, MAGIC, VERSION, kind, flags, epoch, sender, receiver, incarnation, known, turn, seq, number,
        received, size, round, attempt, len(sections), sweep, session, 0,
    )  # fmt: skip
    struct.pack_into("<Q", first, _HASH_AT, _core.hash_buffers(frames))
    return frames


def _bytes_of(array: "NDArray[Any]") -> Buffer:
    return array.data.cast("B") if array.nbytes else b""


def join(frames: list[Buffer]) -> list[Buffer]:
    """The same message in one frame, if it is small: copies cost less than frames then."""
    if sum(map(len, frames)) > _MOST_JOINED:
        return frames
    return [b"".join(frames)]


def decode(frames: Sequence[Buffer]) -> Message:
    """The message with these frames, joined or not; its arrays lie in them, where they are aligned.

    Raises `DamagedMessage` if a byte differs from the bytes that were sent, `ChannelError` for a message of
    another version and for content that no sender of this version writes.
    """
    if not frames or len(frames[0]) < _HEADER.size:
        raise DamagedMessage("there is no whole header")
    *fields, hash = _HEADER.unpack_from(frames[0])
    magic, version, number_of_kind, flags, epoch, sender, receiver, incarnation, known = fields[:9]
    turn, seq, number, received, size, round, attempt, count, sweep, session = fields[9:]
    if magic != MAGIC:
        raise DamagedMessage("it does not begin as messages do")
    parts = _split(frames[0], size, count if version == VERSION else 0) if len(frames) == 1 else frames
    first = bytearray(parts[0])
    first[_HASH_AT : _HEADER.size] = bytes(8)
    if _core.hash_buffers([first, *parts[1:]]) != hash:
        raise DamagedMessage("the bytes differ from their hash")
    if version != VERSION:
        raise ChannelError(
            f"worker {sender} must send messages of version {VERSION}, got {version}: install the same "
            "version of livegnn on all machines of the cluster"
        )
    kind = _KINDS.get(number_of_kind)
    notes = len(parts) - 1 if count == 0 else 0
    if (
        kind is None
        or sum(map(len, parts)) - _HEADER.size != size
        or notes > 1
        or len(first) != _HEADER.size + _SECTION.size * count
    ):
        raise _foreign(sender, f"kind {number_of_kind} with {size} bytes behind its header")
    header = Header(
        kind, epoch, sender, receiver, incarnation, known, turn, seq, number, received, round, attempt, sweep,
        session, flags,
    )  # fmt: skip
    return Message(header, _sections(first, parts, count, sender), bytes(parts[1]) if notes else b"")


_KINDS: Final = {kind.value: kind for kind in Kind}
_SECTION_KINDS: Final = {kind.value: kind for kind in SectionKind}


def _split(frame: Buffer, size: int, count: int) -> list[Buffer]:
    """The frames of a message that was joined: the first, and those of its sections or its note."""
    whole = memoryview(frame)
    at = _HEADER.size + _SECTION.size * count
    if len(whole) != _HEADER.size + size or at > len(whole):
        raise DamagedMessage("the size is not that of the header")
    parts: list[Buffer] = [whole[:at]]
    for place in range(_HEADER.size, at, _SECTION.size):
        _, width, length, _ = _SECTION.unpack_from(whole, place)
        for one in (_NODE_BYTES * length, _VALUE_BYTES * length * width):
            parts.append(whole[at : at + one])
            at += one
    if count == 0 and at < len(whole):
        parts.append(whole[at:])
    elif at != len(whole):
        raise DamagedMessage("the size is not that of the sections")
    return parts


def _sections(first: bytearray, parts: Sequence[Buffer], count: int, sender: int) -> list[Section]:
    if count and len(parts) != 1 + 2 * count:
        raise _foreign(sender, f"{count} sections in {len(parts)} frames")
    found = []
    for number in range(count):
        value, width, length, its = _SECTION.unpack_from(first, _HEADER.size + _SECTION.size * number)
        kind, nodes, rows = _SECTION_KINDS.get(its), parts[1 + 2 * number], parts[2 + 2 * number]
        if kind is None or len(nodes) != _NODE_BYTES * length or len(rows) != _VALUE_BYTES * length * width:
            raise _foreign(sender, f"a section of kind {its} whose frames have other sizes")
        section = Section(kind, value, _array(nodes, _NODES), _array(rows, _VALUES).reshape(length, width))
        if kind in _ASCENDING and length > 1 and not (section.nodes[1:] > section.nodes[:-1]).all():
            raise _foreign(sender, f"nodes of value {value} that do not ascend")
        found.append(section)
    return found


def _array(frame: Buffer, dtype: "np.dtype[Any]") -> "NDArray[Any]":
    """The values of a frame; a copy if it lies at an address where native code may not read them."""
    array = np.frombuffer(frame, dtype)
    return array if array.flags.aligned else array.copy()


def _foreign(sender: int, what: str) -> ChannelError:
    return ChannelError(
        f"worker {sender} must send messages as docs/channels.md describes them, got {what}: the bytes are "
        "those that it sent, so its program is another one"
    )


def cut(sections: Sequence[Section], most: int = MOST_PART_BYTES) -> Iterator[list[Section]]:
    """The sections in parts of at most `most` bytes, large ones in several; one empty part if there are none.

    Raises `InputError` for a row that is larger than a part.
    """
    if sum([section.num_bytes for section in sections]) <= most and len(sections) <= _MOST_SECTIONS:
        yield list(sections)
        return
    part: list[Section] = []
    room = most
    for section in sections:
        row = _NODE_BYTES + _VALUE_BYTES * section.rows.shape[1]
        if _SECTION.size + row > most:
            raise InputError(
                f"a row must have at most {format_size(most)}, got {format_size(row)}: divide its value into "
                "several of less width"
            )
        begin, length = 0, len(section.nodes)
        while True:
            if room < _SECTION.size + row or len(part) == _MOST_SECTIONS:
                yield part
                part, room = [], most
            end = min(length, begin + (room - _SECTION.size) // row)
            nodes, rows = section.nodes[begin:end], section.rows[begin:end]
            part.append(Section(section.kind, section.value, nodes, rows))
            room -= part[-1].num_bytes
            if end == length:
                break
            begin = end
    yield part
