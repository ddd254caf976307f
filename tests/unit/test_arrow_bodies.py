"""Events as a stream of Arrow: the same as JSON lines, and no body makes the server fall."""

import struct
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import Events
from livegnn.errors import InputError, TooLargeError
from livegnn.events import json_lines
from livegnn.server.arrow_bodies import events_of, read_arrow, read_arrow_events
from livegnn.server.bodies import ARROW_TYPE
from livegnn.server.entries import read_each_event, read_entries

ROWS = [
    {"event": "add_node", "id": 1, "x": [0.5, 1.0]},
    {"event": "add_node", "id": 2, "x": [0.25, -1.0]},
    {"event": "add_edge", "src": 1, "dst": 2, "weight": 0.5},
    {"event": "add_edge", "src": 2, "dst": 1, "weight": 2.0},
    {"event": "remove_node", "id": 2},
]
SCHEMA = pa.schema(
    [
        ("event", pa.string()),
        ("id", pa.int64()),
        ("x", pa.list_(pa.float32())),
        ("src", pa.int64()),
        ("dst", pa.int64()),
        ("weight", pa.float64()),
    ]
)


def stream_of(table: pa.Table, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def table_of(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


BODY = stream_of(table_of(ROWS))


@settings(deadline=None, max_examples=draws(50, 500))
@given(st.lists(st.sampled_from(ROWS), max_size=12), st.integers(1, 5))
def test_a_stream_is_read_as_json_lines_are(rows: list[dict[str, object]], size: int) -> None:
    table = table_of(rows)
    parts = pa.Table.from_batches(table.to_batches(max_chunksize=size), SCHEMA)
    expected = Events.from_records(rows)  # type: ignore[arg-type]
    assert read_arrow_events(stream_of(parts)).to_json_lines() == expected.to_json_lines()


def test_entries_of_a_body() -> None:
    ((events, key, position),) = read_entries(BODY, ARROW_TYPE, 100)
    assert isinstance(events, Events)
    assert (len(events), key, position) == (5, None, 0)
    wrong = table_of([ROWS[0], {"event": "add_edge", "src": 1}, ROWS[4]])
    each = read_each_event(stream_of(wrong), ARROW_TYPE, 100)
    assert [type(one.events) for one in each] == [Events, InputError, Events]
    assert [one.position for one in each] == [0, 1, 2]


def null_rows(count: int) -> bytes:
    return stream_of(pa.Table.from_batches([pa.RecordBatch.from_arrays([pa.nulls(count)], ["event"])]))


MANY = pa.table({"event": pa.array(["remove_node"] * 100_000), "id": pa.array(np.zeros(100_000, np.int64))})


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "stream of Arrow"),
        (b"{}", "a stream of Arrow"),
        (BODY[:-20], "a stream of Arrow"),
        (BODY[:-8], "one whole stream"),
        (BODY + BODY, "one whole stream"),
        (BODY + b"x", "one whole stream"),
        (stream_of(pa.table([["add_node"], [1], [2]], ["event", "id", "id"])), "'id' twice"),
        (stream_of(MANY, compression="zstd"), "compressed"),
        (stream_of(MANY, compression="lz4"), "compressed"),
        (stream_of(pa.table({"event": MANY["event"].dictionary_encode(), "id": MANY["id"]})), "dictionaries"),
        (null_rows(1 << 20), "as many rows at most"),
        (null_rows(3), "'event' must be one of"),
        (stream_of(pa.table({"event": pa.array([1])})), "must be text"),
        (stream_of(pa.table({"id": pa.array([1])})), "must have a column 'event'"),
        (stream_of(pa.table({"event": ["add_node"], "id": [1], "edge_type": [[{"a": 1}]]})), "lists of them"),
        (stream_of(pa.table({"event": ["add_node"], "id": [1], "x": [[None]]})), "lists of them"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_other_bodies_are_refused(body: bytes, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_arrow_events(body)


def test_events_may_not_change_their_kind_too_often() -> None:
    rows: list[dict[str, object]] = [ROWS[4], ROWS[2]] * (json_lines.STRANGERS.runs // 2 + 1)
    with pytest.raises(TooLargeError, match="change their kind"):
        read_arrow_events(stream_of(table_of(rows)))


def flipped(places: list[tuple[int, int]]) -> bytes:
    body = bytearray(BODY)
    for place, bit in places:
        body[place % len(body)] ^= 1 << bit
    return bytes(body)


def with_number(place: int, number: int) -> bytes:
    body = bytearray(BODY)
    struct.pack_into("<q", body, place % (len(body) - 8), number)
    return bytes(body)


FLIPS = st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 7)), min_size=1, max_size=4)
NUMBERS = st.sampled_from([-1, 0, 1 << 31, 1 << 40, (1 << 63) - 1])


@settings(deadline=None, max_examples=draws(400, 20_000))
@given(
    st.one_of(
        FLIPS.map(flipped),
        st.builds(with_number, st.integers(0, len(BODY)), NUMBERS),
        st.binary(max_size=300),
        st.integers(0, len(BODY)).map(lambda end: BODY[:end]),
    )
)
def test_any_bytes_are_events_or_refused(body: bytes) -> None:
    with suppress(InputError):
        events_of(read_arrow(body))
