"""Events of the usual form are read by the native core as the general reader reads them; it has the rest."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from events_strategies import event_lists
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import Events
from livegnn.errors import LiveGNNError
from livegnn.events import json_lines
from livegnn.events.builder import from_chunks
from livegnn.events.usual_json import read_usual, read_usual_text
from livegnn.server import entries
from livegnn.server.entries import read_each_event, read_entries

JSON, LINES = "application/json", "application/x-ndjson"
EDGE = {"event": "add_edge", "src": 1, "dst": 2}

ids = st.sampled_from(
    [0, 1, 17, 2**53 + 1, 10**17, 2**63 - 1, 2**63, -1, "a", "b c", "x" * 1024, "x" * 1025]
) | (st.sampled_from(["", "ä", '"', "\\", "\0", "\n", "{[:", 1.0, True, None, [1], "idempotency_key"]))
numbers = st.one_of(
    st.integers(-(10**19), 10**19),
    st.integers(-1000, 1000),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-1000, max_value=1000, places=4).map(float),
    st.sampled_from([0, -0.0, 1e-310, 3.5e38, 2**53, 2**53 + 1, None, True, "1"]),
)
rows = st.lists(numbers, max_size=4)
types = st.sampled_from(["node", "user", "", "ä", 1])
edge_types = st.lists(types, min_size=3, max_size=3) | st.sampled_from([["node", "to", "node"], ["a"], "a"])
FIELDS: dict[str, st.SearchStrategy[object]] = {
    "src": ids,
    "dst": ids,
    "id": ids,
    "weight": numbers,
    "time": numbers,
    "x": rows,
    "edge_attr": rows,
    "key": st.sampled_from([0, 1, 2**32 - 1, 2**32, -1, 0.5, "a"]),
    "edge_type": edge_types,
    "node_type": types,
    "idempotency_key": st.just("k"),
}


@st.composite
def records(draw: st.DrawFn) -> dict[str, object]:
    """An event with the fields that it may have, some of them wrong."""
    event = draw(st.sampled_from([*json_lines.FIELDS, *json_lines.FIELDS, "other"]))
    required, optional = json_lines.FIELDS.get(event, (("id",), ()))
    some = draw(st.lists(st.sampled_from([*optional]), unique=True)) if optional else []
    strange = draw(st.sampled_from([[]] * 9 + [[name] for name in FIELDS]))
    names = draw(st.permutations(["event", *required, *some, *strange]))
    return {name: event if name == "event" else draw(FIELDS[name]) for name in names}


numbers_as_written = st.sampled_from(
    [
        "1e5",
        "1E-7",
        "0.1",
        "-0",
        "-0.0",
        "1.",
        "01",
        "9007199254740993",
        "1e400",
        "1e-400",
        "123456789.123456789",
    ]
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, str]:
    """A body, perhaps damaged, and its media type."""
    several = draw(st.lists(records() | st.just(EDGE), max_size=5))
    several += draw(st.sampled_from([[], several]))
    ascii_, spaces = draw(st.booleans()), draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]))
    texts = [json.dumps(one, ensure_ascii=ascii_, separators=spaces) for one in several]
    if draw(st.booleans()):
        texts.append('{"event":"add_edge","src":1,"dst":2,"weight":%s}' % draw(numbers_as_written))
    if draw(st.booleans()):
        text = draw(st.sampled_from(["\n", "\n\n", "\r\n", "\n \n"])).join(texts)
        media_type = LINES
    else:
        text = draw(
            st.sampled_from(['{"events":[%s]}', ' { "events" :\n[%s ] }\n', '{"events":[%s],"a":1}'])
        ) % (",".join(texts))
        media_type = JSON
    body = text.encode()
    damage = draw(st.sampled_from(["none"] * 4 + ["cut", "put", "drop"]))
    at = draw(st.integers(0, len(body)))
    if damage == "cut":
        body = body[:at]
    elif damage == "put":
        body = (
            body[:at]
            + draw(st.sampled_from([b" ", b"\n", b",", b"0", b"-", b'"', b"[", b"\xff", b"}"]))
            + body[at:]
        )
    elif damage == "drop":
        body = body[:at] + body[at + 1 :]
    return body, media_type


@contextmanager
def general_reader() -> Iterator[None]:
    """Nothing is read by the native core meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (json_lines, entries):
            patch.setattr(module, "read_usual_text", lambda *_, **__: None)
        yield


def outcome(read: Callable[[], object]) -> object:
    """What `read` returns, or the error that it raises. Bit for bit: equal numbers may differ."""
    try:
        return [
            (repr(one[0]), one[0] if isinstance(one[0], Events) else str(one[0]), one[1:]) for one in read()
        ]  # type: ignore[attr-defined]
    except LiveGNNError as error:
        return type(error), str(error)


@settings(deadline=None, max_examples=draws(250, 20_000))
@given(bodies(), st.sampled_from([2**20, 2**20, 200, 64]))
def test_any_body_is_read_as_by_the_general_reader(body: tuple[bytes, str], largest: int) -> None:
    for read in (read_entries, read_each_event):
        found = outcome(lambda read=read: read(*body, largest))
        with general_reader():
            assert found == outcome(lambda read=read: read(*body, largest))


@settings(deadline=None, max_examples=draws(60, 5000))
@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_by_the_general_reader(body: bytes) -> None:
    for text in (
        body,
        b'{"events":[{"event":"add_node","id":%b}]}' % body,
        b'{"event":"add_node","id":%b}' % body,
    ):
        for media_type in (JSON, LINES):
            found = outcome(lambda text=text, media_type=media_type: read_entries(text, media_type, 2**20))
            with general_reader():
                again = outcome(
                    lambda text=text, media_type=media_type: read_entries(text, media_type, 2**20)
                )
            assert found == again


@settings(deadline=None, max_examples=draws(60, 5000))
@given(st.lists(bodies(), min_size=1, max_size=6), st.booleans())
def test_bodies_that_are_read_together_are_those_of_each(
    several: list[tuple[bytes, str]], in_lines: bool
) -> None:
    texts = [body for body, media_type in several if (media_type == LINES) == in_lines]
    alone = [read_usual_text(text, in_lines=in_lines) for text in texts]
    usual = alone[: alone.index(None)] if None in alone else alone
    chunks, sizes = read_usual(texts, in_lines=in_lines)
    parts = [from_chunks(one) for one in usual if one is not None]
    assert sizes == [len(part) for part in parts]
    assert from_chunks(chunks) == Events.concatenate(parts)


@settings(deadline=None, max_examples=draws(40, 2000))
@given(event_lists())
def test_what_is_written_is_read_as_it_was(events: Events) -> None:
    lines = events.to_json_lines().encode()
    found = read_usual_text(lines, in_lines=True)
    assert found is None or from_chunks(found) == Events.concatenate([events])


@pytest.mark.parametrize(
    "event",
    [
        EDGE,
        {
            "event": "add_edge",
            "src": "a",
            "dst": "b",
            "weight": 0.1,
            "time": 1.7e9,
            "edge_attr": [1, 2.5],
            "key": 3,
        },
        {"event": "remove_edge", "src": 1, "dst": 2, "edge_type": ["user", "rates", "item"]},
        {"event": "set_features", "id": 5, "x": [0.10000000149011612, -1e-7]},
        {"event": "add_node", "id": "u1", "node_type": "user"},
        {"event": "remove_node", "id": 9},
    ],
)
def test_usual_events_are_read_by_the_native_core(event: dict[str, object]) -> None:
    for separators in ((",", ":"), (", ", ": ")):
        text = json.dumps(event, separators=separators).encode()
        assert read_usual_text(text + b"\n" + text, in_lines=True) is not None
        assert read_usual_text(b'{"events": [%b, %b]}' % (text, text), in_lines=False) is not None


@pytest.mark.parametrize(
    ("record", "usual"),
    [
        ({"event": "set_features", "id": 1, "x": [0.5], "time": 7.25}, True),
        ({"time": 7, "event": "add_node", "id": "a", "x": [0.5], "node_type": "user"}, True),
        ({"event": "add_node", "id": 1, "time": 7}, False),
        ({"event": "remove_node", "id": 1, "time": 7}, False),
        ({"event": "set_features", "id": 1, "x": [0.5], "time": 2**63 + 1}, False),
    ],
)
def test_a_time_is_that_of_features(record: dict[str, object], usual: bool) -> None:
    text = json.dumps(record).encode()
    chunks = read_usual_text(text, in_lines=True)
    assert (chunks is not None) == usual
    if chunks is None:
        with pytest.raises(LiveGNNError, match=r"line 1: .*time"):
            Events.from_json_lines(text)
        return
    read = from_chunks(chunks)
    with general_reader():
        assert Events.from_json_lines(text) == read
    assert read.chunks[0].time is not None
    assert read.chunks[0].time.tolist() == [record["time"]]
    assert Events.from_json_lines(read.to_json_lines()) == read
