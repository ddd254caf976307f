"""The layout of messages between workers, byte by byte, and what is refused of those that arrive."""

import struct
from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import livegnn._core as _core
from gate import draws
from livegnn.channels.channel import Round
from livegnn.channels.errors import ChannelError
from livegnn.channels.frames import (
    ACCEPTED,
    LAST,
    Buffer,
    DamagedMessage,
    Header,
    Kind,
    Section,
    SectionKind,
    cut,
    decode,
    encode,
)
from livegnn.channels.health import Pulse
from livegnn.errors import InputError

MASK = 2**64 - 1


def mixed(key: int) -> int:
    key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    key = (key ^ (key >> 27)) * 0x94D049BB133111EB & MASK
    return key ^ (key >> 31)


def plain_hash(buffers: Sequence[bytes]) -> int:
    """As docs/channels.md describes it."""
    step = 0x9E3779B97F4A7C15
    sizes, lanes = 0, [step * lane & MASK for lane in (1, 2, 3, 4)]
    for buffer in buffers:
        sizes = mixed(sizes + len(buffer) + step & MASK)
        words = np.frombuffer(buffer + bytes(-len(buffer) % 32), "<u8").tolist()
        for place, word in enumerate(words):
            entered = lanes[place % 4] ^ word
            lanes[place % 4] = (entered << 29 | entered >> 35) % 2**64 * 0xD1342543DE82EF95 & MASK
    for lane in lanes:
        sizes = mixed(sizes ^ lane)
    return sizes


def section(
    nodes: Sequence[int], width: int = 2, kind: SectionKind = SectionKind.ROWS, value: int = 7
) -> Section:
    rows = np.arange(len(nodes) * width, dtype=np.float32).reshape(len(nodes), width)
    return Section(kind, value, np.array(nodes, np.uint32), rows)


HEADER = Header(
    Kind.ROUND, epoch=3, sender=1, receiver=2, incarnation=4, known=5, turn=6, seq=700, number=8, received=9,
    round=10, attempt=1, sweep=11, session=12, flags=LAST,
)  # fmt: skip


def as_bytes(frames: Sequence[Buffer]) -> list[bytes]:
    return [bytes(frame) for frame in frames]


def test_the_layout_is_pinned() -> None:
    """Bytes that another version must read, or refuse."""
    first, nodes, rows = as_bytes(encode(HEADER, [section([1, 258])]))
    assert first[:72].hex(" ", 4) == (
        "4c475058 01000201 03000000 01000200 04000000 05000000 06000000 00000000 bc020000 00000000 "
        "08000000 00000000 09000000 00000000 28000000 0a010100 0b000000 0c000000"
    )
    assert first[72:80].hex() == "8809e74eb6e66728"
    assert first[80:].hex(" ", 4) == "07000000 02000000 02000000 00000000"
    assert nodes.hex(" ", 4) == "01000000 02010000"
    assert rows.hex(" ", 4) == "00000000 0000803f 00000040 00004040"


def test_the_kinds_are_pinned() -> None:
    assert {kind.name: kind.value for kind in Kind} == {
        "HELLO": 1, "ROUND": 2, "ABORT": 3, "RESEND": 4, "RECEIVED": 5, "BEAT": 6, "ECHO": 7, "BYE": 8,
    }  # fmt: skip
    assert {kind.name: kind.value for kind in SectionKind} == {
        "ROWS": 0, "FEATURES": 1, "DATA": 2,
    }  # fmt: skip
    assert (LAST, ACCEPTED) == (1, 2)


def test_a_pulse_is_pinned() -> None:
    pulse = Pulse(Round(6, 1, 10, 700), is_waiting=True, seconds=1.5, waits_for=frozenset({3, 1}))
    assert pulse.to_bytes().hex(" ", 4) == (
        "06000000 00000000 bc020000 00000000 00000000 0000f83f 010a0100 02000000 01000300"
    )
    assert Pulse.from_bytes(pulse.to_bytes()) == pulse


def test_a_message_comes_back() -> None:
    sections = [section([]), section([5], 0), section([9, 2, 2], 3, SectionKind.DATA), section([0, 1, 4])]
    message = decode(as_bytes(encode(HEADER, sections)))
    assert message.header == HEADER
    assert message.note == b""
    for got, sent in zip(message.sections, sections, strict=True):
        assert (got.kind, got.value) == (sent.kind, sent.value)
        np.testing.assert_array_equal(got.nodes, sent.nodes)
        np.testing.assert_array_equal(got.rows, sent.rows)
        assert got.rows.shape == sent.rows.shape
    hello = HEADER._replace(kind=Kind.HELLO)
    assert decode(as_bytes(encode(hello, note=b"{}"))) == (hello, [], b"{}")
    assert decode(as_bytes(encode(hello))) == (hello, [], b"")


def test_rows_keep_their_bits() -> None:
    rows = np.array([[0x7FC00001, 0x80000000, 0x7F800000]], np.uint32).view(np.float32)
    sent = Section(SectionKind.DATA, 0, np.zeros(1, np.uint32), rows)
    (got,) = decode(as_bytes(encode(HEADER, [sent]))).sections
    assert got.rows.tobytes() == rows.tobytes()


def test_arrays_are_aligned_wherever_a_frame_lies() -> None:
    """ZeroMQ may receive several small frames into one block."""
    frames = as_bytes(encode(HEADER, [section([1, 2])]))
    shifted = [memoryview(b"..." + frame)[3:] for frame in frames]
    (got,) = decode(shifted).sections
    assert got.nodes.flags.aligned
    assert got.rows.flags.aligned
    assert got.nodes.tolist() == [1, 2]


@settings(max_examples=draws(50, 2000))
@given(st.lists(st.binary(max_size=100), max_size=6))
def test_the_hash_is_that_of_its_description(buffers: list[bytes]) -> None:
    assert _core.hash_buffers(list(buffers)) == plain_hash(buffers)


def test_a_large_buffer_is_hashed_without_the_interpreter() -> None:
    large = bytes(range(256)) * 1024
    assert _core.hash_buffers([large, bytearray(b"ab"), memoryview(b"cd")]) == plain_hash(
        [large, b"ab", b"cd"]
    )


def test_what_is_no_buffer_is_refused() -> None:
    with pytest.raises(TypeError):
        _core.hash_buffers([b"ab", "cd"])  # type: ignore[list-item]
    with pytest.raises(BufferError):
        _core.hash_buffers([memoryview(b"abcd")[::2]])


def test_any_other_byte_is_found() -> None:
    frames = as_bytes(encode(HEADER, [section([1, 258])]))
    for place, frame in enumerate(frames):
        for at in range(len(frame)):
            other = bytearray(frame)
            other[at] ^= 0x10
            with pytest.raises(DamagedMessage):
                decode([*frames[:place], bytes(other), *frames[place + 1 :]])


def test_any_cut_is_found() -> None:
    frames = as_bytes(encode(HEADER, [section([1, 258])]))
    for place, frame in enumerate(frames):
        for kept in range(len(frame)):
            for rest in (frames[place + 1 :], []):
                with pytest.raises(DamagedMessage):
                    decode([*frames[:place], frame[:kept], *rest])
    for some in ([], frames[:1], frames[:2], [*frames, b""], frames[1:]):
        with pytest.raises(DamagedMessage):
            decode(some)


def sealed(frames: Sequence[bytes], at: int, layout: str, value: object) -> list[bytes]:
    """The frames with another field in the first, and the hash of that: what another program would send."""
    first = bytearray(frames[0])
    struct.pack_into(layout, first, at, value)
    first[72:80] = bytes(8)
    struct.pack_into("<Q", first, 72, plain_hash([bytes(first), *frames[1:]]))
    return [bytes(first), *frames[1:]]


@pytest.mark.parametrize(
    ("at", "layout", "value", "says"),
    [
        (4, "<H", 2, "worker 1 must send messages of version 1, got 2: install the same version of livegnn"),
        (6, "<B", 99, "kind 99"),
        (56, "<I", 39, "39 bytes behind its header"),
        (62, "<H", 0, "kind 2"),
        (62, "<H", 2, "kind 2"),
        (84, "<I", 3, "whose frames have other sizes"),
        (88, "<I", 1, "whose frames have other sizes"),
        (92, "<I", 3, "a section of kind 3"),
    ],
)
def test_other_content_with_its_hash_is_an_error(at: int, layout: str, value: int, says: str) -> None:
    frames = as_bytes(encode(HEADER, [section([1, 258])]))
    with pytest.raises(ChannelError, match=says):
        decode(sealed(frames, at, layout, value))


def test_other_frames_with_their_hash_are_an_error() -> None:
    first, nodes, rows = as_bytes(encode(HEADER, [section([1, 258])]))
    both, *_ = as_bytes(encode(HEADER, [section([1, 258])] * 2))
    for frames in (
        [first, nodes + rows],
        [first, nodes, rows[:4], rows[4:]],
        [first, nodes + rows[:4], rows[4:]],
        [both, nodes, rows + rows[:4], nodes, rows[4:]],
        [both, nodes + nodes[:4], rows, nodes[4:], rows],
    ):
        with pytest.raises(ChannelError, match=r"sections in [24] frames|whose frames have other sizes"):
            decode(sealed(frames, 4, "<H", 1))


def test_nodes_of_rows_must_ascend() -> None:
    for kind in SectionKind:
        for nodes in ([4, 4], [5, 4]):
            frames = as_bytes(encode(HEADER, [section(nodes, kind=kind)]))
            if kind in (SectionKind.ROWS, SectionKind.FEATURES):
                with pytest.raises(ChannelError, match="nodes of value 7 that do not ascend"):
                    decode(frames)
            else:
                assert decode(frames).sections[0].nodes.tolist() == nodes


def test_arrays_that_no_frame_holds_are_refused() -> None:
    nodes, rows = np.arange(3, dtype=np.uint32), np.zeros((3, 2), np.float32)
    for bad in (
        (nodes.astype(np.int64), rows),
        (nodes, rows.astype(np.float64)),
        (nodes[:2], rows),
        (nodes, rows[:, 0]),
        (nodes, np.asfortranarray(rows)),
        (np.arange(6, dtype=np.uint32)[::2], rows),
    ):
        with pytest.raises(InputError, match="as many rows of float32, both contiguous, got"):
            Section(SectionKind.ROWS, 0, *bad)
    for value in (-1, 2**32):
        with pytest.raises(
            InputError, match="the value of a section must be an integer from 0 to 4294967295"
        ):
            Section(SectionKind.ROWS, value, nodes, rows)


@settings(max_examples=draws(50, 2000))
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), max_size=5),
    st.integers(48, 200),
)
def test_parts_hold_all_rows_in_order(shapes: list[tuple[int, int]], most: int) -> None:
    sections = [section(range(count), width, value=value) for value, (count, width) in enumerate(shapes)]
    parts = list(cut(sections, most))
    assert all(sum(one.num_bytes for one in part) <= most for part in parts)
    assert len(parts) == 1 or all(parts)
    for value, sent in enumerate(sections):
        got = [one for part in parts for one in part if one.value == value]
        np.testing.assert_array_equal(np.concatenate([one.nodes for one in got]), sent.nodes)
        np.testing.assert_array_equal(np.concatenate([one.rows for one in got]), sent.rows)


def test_a_section_that_fits_is_not_copied() -> None:
    sent = section([1, 2])
    ((got,),) = cut([sent])
    assert got is sent
    assert list(cut([])) == [[]]


def test_a_row_must_fit_in_a_message() -> None:
    with pytest.raises(InputError, match=r"a row must have at most 40 bytes, got 44 bytes: divide its value"):
        list(cut([section([1], 10)], 40))
