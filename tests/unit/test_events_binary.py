"""Events as bytes: exact both ways, and anything else is refused."""

import struct
import zlib

import pytest
from events_strategies import event_lists
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn import Events, FileFormatError, InputError


@settings(deadline=None)
@given(event_lists())
def test_round_trip(events: Events) -> None:
    assert Events.from_bytes(events.to_bytes()) == events


def test_values_that_are_not_finite_survive() -> None:
    events = Events().add_edges(1, 2, weight=float("nan"), time=float("-inf"))
    assert Events.from_bytes(events.to_bytes()) == events


def test_arrays_are_aligned_and_writable() -> None:
    chunk = Events.from_bytes(Events().add_edges("abc", 2, weight=1, time=2).to_bytes()).chunks[0]
    for column in (chunk.dst, chunk.weight, chunk.time):
        assert column is not None
        assert column.flags.aligned
        assert column.flags.writeable


def test_one_edge_is_small() -> None:
    assert len(Events().add_edges(1, 2).to_bytes()) == 40


def test_only_features_of_edges_need_the_second_version() -> None:
    """What has none is as it always was, byte for byte; what has some, an older reader must refuse."""
    edges = Events().add_edges([1, 2], [2, 3], weight=[0.5, 1], time=[7, 8]).set_features(1, [0.5])
    data = edges.to_bytes()
    assert data.hex() == (
        "4c474556010002000000d7dc22a800030200000000000000010000000000000002000000000000000200000000000000"
        "03000000000000000000003f0000803f0000000000001c4000000000000020400204010000000100000001000000000000000000003f"
    )
    featured = edges.add_edges(1, 2, edge_attr=[1, 2]).to_bytes()
    assert int.from_bytes(featured[4:6], "little") == 2
    assert Events.from_bytes(featured) == edges


@settings(deadline=None)
@given(event_lists(), st.data())
def test_truncation_is_found(events: Events, data: st.DataObject) -> None:
    encoded = events.to_bytes()
    size = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(FileFormatError):
        Events.from_bytes(encoded[:size])


@settings(deadline=None)
@given(event_lists(), st.data())
def test_a_flipped_bit_is_found(events: Events, data: st.DataObject) -> None:
    encoded = bytearray(events.to_bytes())
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FileFormatError):
        Events.from_bytes(bytes(encoded))


@pytest.mark.parametrize(
    "events",
    [
        Events(),
        Events().add_edges([1, 2], [2, 3], weight=[1, 2]),
        Events().add_edges("a", "b", edge_attr=[1]),
        Events().add_edges(1, 2, key=0).add_nodes(7, [1.0]),
        Events().add_edges(1, 2, key=0).set_features(7, [1.0], time=2.0),
    ],
    ids=["nothing", "version 1", "version 2", "version 3", "version 4"],
)
def test_every_bit_of_the_header_counts(events: Events) -> None:
    """Its checksum begins after it: what version and count say must be what the chunks are."""
    data = events.to_bytes()
    for bit in range(8 * 14):
        spoiled = bytearray(data)
        spoiled[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FileFormatError):
            Events.from_bytes(bytes(spoiled))
    needed = min(data[4], 3)  # of the version 4 without times of features, which older versions ignored
    for version in {1, 2, 3, 4} - {data[4], needed}:
        with pytest.raises(FileFormatError, match=f"must be of version {needed}, got {version}"):
            Events.from_bytes(data[:4] + bytes([version]) + data[5:])


def test_times_of_features_need_the_fourth_version() -> None:
    """An older reader must refuse what it would apply as the newest. What it ignored stays ignored."""
    timed = Events().add_nodes([1, 2], [[0.5], [1.0]], time=[7, 8])
    data = timed.to_bytes()
    assert data.hex() == (
        "4c4745560400010000003c1a1a4b0306020000000100000001000000000000000200000000000000"
        "0000000000001c4000000000000020400000003f0000803f"
    )
    assert Events.from_bytes(data) == timed
    assert Events.from_bytes(data[:4] + b"\1" + data[5:]) == Events().add_nodes([1, 2], [[0.5], [1.0]])


@settings(deadline=None)
@given(event_lists(), st.binary(max_size=40), st.integers(0, 3))
def test_a_lying_payload_with_a_true_checksum_is_found_or_is_events(
    events: Events, tail: bytes, count: int
) -> None:
    payload = events.to_bytes()[14:-8] + tail
    data = struct.pack("<4sHII", b"LGEV", 1, count, zlib.crc32(payload)) + payload
    try:
        Events.from_bytes(data).check()
    except (FileFormatError, InputError):
        return


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "at least 14 bytes, got 0"),
        (b"LGEW" + bytes(10), "must begin with b'LGEV', got b'LGEW'"),
        (struct.pack("<4sHII", b"LGEV", 5, 0, 0), "a version from 1 to 4, or 8, got 5"),
        (struct.pack("<4sHII", b"LGEV", 0, 0, 0), "a version from 1 to 4, or 8, got 0"),
        (struct.pack("<4sHII", b"LGEV", 1, 0, 7), "checksum 00000007, got 00000000"),
        (struct.pack("<4sHII", b"LGEV", 1, 0, zlib.crc32(b"x")) + b"x", "1 bytes more"),
    ],
)
def test_the_error_says_what_came(data: bytes, message: str) -> None:
    with pytest.raises(FileFormatError) as error:
        Events.from_bytes(data)
    assert message in str(error.value)


def test_text_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(InputError, match="valid Unicode"):
        Events().add_nodes("\ud800").to_bytes()
    with pytest.raises(InputError, match="name of a type"):
        Events().add_nodes(1, node_type="\ud800").to_bytes()
