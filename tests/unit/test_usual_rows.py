"""Rows of the usual form are read by the native core as `row_messages` reads them; it has the rest."""

import json
from collections.abc import Callable
from functools import partial

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import EdgeRows, EdgeSchema, Events, InputError, NodeRows, Schema, TableMapping
from livegnn.connectors.row_messages import RowChange, RowMessages, parse_change, parse_row, to_table
from livegnn.connectors.usual_rows import read_usual_rows
from livegnn.tables import TableReader

PAYS = ("user", "pays", "user")
SCHEMA = Schema({"user": 1}, {PAYS: EdgeSchema(weighted=True, timed=True, duplicates="keep")}, text_ids=True)
NODES = [NodeRows("sender", node_type="user", x=["age"], removes=True)]
EDGES = [EdgeRows("sender", "receiver", PAYS, weight="amount", time="at", key="id", where={"status": "paid"})]
COLUMNS = ("sender", "receiver", "amount", "at", "id", "status", "age", "__op")

texts = st.text(max_size=6) | st.sampled_from(
    [
        "ann",
        "bob",
        "Zoë",
        "名前",
        "x'y",
        "a\\tb",
        '"',
        "\x7f",
        "\0",
        "__debezium_unavailable_value",
        "true",
        "d",
    ]
)
numbers = st.one_of(
    st.integers(-5, 5),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([2**53, 2**53 + 1, 10**17, 10**18, 1e-310, -0.0, 1e22, 5e-324, 0.1]),
)
values = st.one_of(st.none(), st.booleans(), texts, numbers, st.sampled_from([[], [1], {}, {"a": {"b": 1}}]))
literals = st.sampled_from(
    [
        "-0",
        "1.",
        "01",
        "1E5",
        "1e+2",
        "9007199254740993",
        "1e400",
        "0.1e-5",
        '"\\ud83d\\ude00"',
        '"\\u00E4"',
        "NaN",
    ]
)
RIGHT: dict[str, st.SearchStrategy[object]] = {
    "sender": st.sampled_from(["ann", "bob", "Zoë", "a\\b"]),
    "receiver": st.sampled_from(["ann", "cy", "名前"]),
    "amount": st.sampled_from([1, 2.5, 1e-6, 1e9, 12.5]),
    "at": st.sampled_from([1, 2.5, 1_772_323_200]),
    "id": st.integers(0, 3),
    "status": st.sampled_from(["paid", "paid", "open"]),
    "age": st.sampled_from([1, 40, 1e9]),
}


STYLES: list[Callable[[object], str]] = [
    json.dumps,
    partial(json.dumps, ensure_ascii=False),
    partial(json.dumps, separators=(",", ":")),
    partial(json.dumps, indent=1),
]


@st.composite
def rows(draw: st.DrawFn) -> dict[str, object]:
    """A row, in most cases one that can be read; with other columns, and sometimes another order."""
    row = {name: draw(of) for name, of in RIGHT.items()}
    row |= draw(
        st.dictionaries(st.sampled_from([*COLUMNS, "else", "__deleted", "ä", "op"]), values, max_size=1)
    )
    names = draw(st.permutations(list(row))) if draw(st.integers(0, 4)) == 0 else list(row)
    return {name: row[name] for name in names}


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A row, or a change of one in one of the forms of Debezium, as JSON of any style."""
    row, other = draw(rows()), draw(st.none() | rows())
    content: object = draw(
        st.sampled_from(
            [
                row,
                {**row, "__deleted": draw(st.sampled_from(["true", "false", True, None, 1]))},
                {**row, "__op": draw(st.sampled_from(["c", "u", "d", "r", None, "t"]))},
                {"before": other, "after": row, "source": {"ts_ns": 2**60, "db": "x"}, "op": "u"},
                {"before": other, "after": row, "op": draw(st.sampled_from(["c", "r", "u", "d", "m"]))},
                {"op": "d", "before": row, "after": other},
                {"op": "d", "before": {"id": 1}},
                {"schema": None, "payload": row},
            ]
        )
    )
    write = draw(st.sampled_from(STYLES))
    text = write(content).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:  # a number or a text as no library writes it, or a field twice
        text = text.replace(b"2.5", draw(literals).encode()).replace(b'"else"', b'"id"')
    return text


@settings(max_examples=draws(150, 5000))
@given(
    values=st.lists(st.none() | messages(), min_size=1, max_size=6),
    mapping=st.sampled_from(
        [TableMapping(NODES, EDGES), TableMapping(edges=EDGES), TableMapping(nodes=NODES)]
    ),
    parse=st.sampled_from([parse_change, parse_change, parse_row]),
)
def test_any_messages_are_read_as_by_the_general_reader(
    values: list[bytes | None], mapping: TableMapping, parse: Callable[[bytes], RowChange | None]
) -> None:
    reader = TableReader(mapping, SCHEMA, "payments")
    # Of a function that it does not know, a reader calls it for each message.
    native, general = RowMessages(reader, parse), RowMessages(reader, lambda value: parse(value))
    for found, wanted in zip(native.decode(values), general.decode(values), strict=True):
        assert str(found) == str(wanted)
        assert isinstance(found, InputError) or found == wanted
    assert native.join(values) == general.join(values)


@settings(max_examples=draws(150, 5000))
@given(rows=st.lists(st.fixed_dictionaries({"a": values, "b": values}), min_size=1, max_size=5))
def test_columns_have_the_kinds_and_values_of_the_general_reader(rows: list[dict[str, object]]) -> None:
    texts = [json.dumps(row).encode() for row in rows]
    found = read_usual_rows(texts, ["b", "a"], are_changes=False)
    if found is None:
        return
    contents = [orjson.loads(one) for one in texts]
    wanted = to_table(contents, [{}] * len(rows), ["b", "a"], times=[], name="rows")
    assert found.changes.new.equals(wanted)
    assert found.changes.new.schema == wanted.schema
    found.changes.new.validate(full=True)


ROW = {"id": 7, "sender": "ann", "receiver": "bob", "amount": 2.5, "at": 10, "status": "paid", "age": 31}


@pytest.mark.parametrize(
    ("content", "are_added"),
    [
        (ROW, True),
        ({**ROW, "memo": "ü\n", "else": {"a": [1, None]}}, True),
        ({"before": None, "after": ROW, "source": {"lsn": 2**63}, "op": "c", "ts_ms": 1}, True),
        ({"before": ROW, "after": {**ROW, "id": 8}, "op": "u"}, False),
        ({"before": ROW, "after": None, "op": "d"}, False),
        ({**ROW, "__op": "u", "__deleted": "false"}, True),
        ({**ROW, "__deleted": "true"}, False),
    ],
)
def test_usual_messages_are_read_by_the_native_core(content: dict[str, object], are_added: bool) -> None:
    text = json.dumps(content, ensure_ascii=False).encode()
    found = read_usual_rows([text] * 3, list(ROW), are_changes=True)
    assert found is not None
    assert found.are_added == are_added
    assert len(found.changes.kinds) == 3


@pytest.mark.parametrize("size", [1, 10_000])
def test_much_text_is_read_without_the_interpreter_lock(size: int) -> None:
    texts = [
        json.dumps({**ROW, "id": at, "sender": None if at % 3 else f"n{at}"}).encode() for at in range(size)
    ]
    found = read_usual_rows(texts, ["id", "sender", "status"], are_changes=False)
    assert found is not None
    table: pa.Table = found.changes.new
    assert table.column("id").to_pylist() == list(range(size))
    assert table.column("sender").to_pylist() == [None if at % 3 else f"n{at}" for at in range(size)]
    assert table.column("status").null_count == 0


def test_no_messages_are_no_rows() -> None:
    found = read_usual_rows([], ["id"], are_changes=True)
    assert found is not None
    assert found.changes.new.num_rows == 0
    messages = RowMessages(TableReader(TableMapping(edges=EDGES), SCHEMA, "payments"), parse_change)
    assert messages.decode([]) == []
    assert messages.decode([None]) == [Events()]
