"""Rows of tables as events: by columns, and by a plain oracle, one row and one Python value at a time."""

import math
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any, get_args
from uuid import UUID

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings

import livegnn as lg
from gate import draws
from livegnn.errors import InputError
from livegnn.tables import (
    EdgeRows,
    NodeRows,
    RowChanges,
    TableMapping,
    TableReader,
    read_changes,
    read_each_change,
)
from livegnn.tables.mapping import TimeUnit

BUYS, KNOWS = ("user", "buys", "item"), ("user", "knows", "user")
Record = dict[str, Any]


def schema(*, text: bool, duplicates: str) -> lg.Schema:
    edges = lg.EdgeSchema(weighted=True, timed=True, duplicates=duplicates, edge_dim=2)
    return lg.Schema({"user": 2, "item": 3}, {BUYS: edges, KNOWS: lg.EdgeSchema()}, text_ids=text)


# -- the oracle ---------------------------------------------------------------------------------------------


def oracle_id(value: Any, text: bool) -> int | str:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return str(UUID(bytes=value))
    if isinstance(value, str):
        if "\0" in value or len(value) > 1024:
            raise ValueError(value)
        return value
    if not 0 <= int(value) < 2**63:
        raise ValueError(value)
    return str(int(value)) if text else int(value)


def oracle_number(value: Any) -> float:
    with np.errstate(over="ignore"):
        number = np.float32(float(value))
    if not math.isfinite(number):
        raise ValueError(value)
    return float(number)


FINE = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def oracle_time(value: Any, kind: pa.DataType, unit: str) -> float:
    if pa.types.is_timestamp(kind):  # `value` is the count
        unit = kind.unit
    elif isinstance(value, datetime):
        raise TypeError(value)
    elif isinstance(value, date):
        return float(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp())
    elif isinstance(value, str):
        moment = datetime.fromisoformat(value.replace("/", "-"))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return moment.timestamp()
    coarse = {"D": 86_400, "h": 3600, "min": 60}.get(unit)
    if isinstance(value, float) or (isinstance(value, Decimal) and value != int(value)):
        return oracle_finite(float(value) * coarse if coarse else float(value) / FINE[unit])
    count = int(value)
    if coarse:
        if abs(count) > 2**53 // coarse:
            raise ValueError(value)
        return float(count * coarse)
    if unit == "ns":
        micros, rest = divmod(count, 1000)
        return float(Fraction(micros, 10**6)) + rest / 1e9
    if unit == "s" and not pa.types.is_timestamp(kind) and abs(count) > 2**53:
        raise ValueError(value)
    return float(Fraction(count, FINE[unit]))


def oracle_finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(number)
    return number


def oracle_meets(row: Record, where: Record) -> bool:
    for column, wanted in where.items():
        tests = (
            wanted
            if isinstance(wanted, dict)
            else {"one_of" if isinstance(wanted, list) else "equal": wanted}
        )
        for test, value in tests.items():
            got = row[column]
            if got is None:
                return False
            met = {
                "equal": value == got,
                "one_of": isinstance(value, list) and got in value,
                "at_least": test == "at_least" and got >= value,
                "at_most": test == "at_most" and got <= value,
                "not_null": True,
            }
            if not met[test]:
                return False
    return True


class Oracle:
    """One entry of a mapping over one row."""

    def __init__(
        self, row: Record, number: int, kinds: pa.Schema, text: bool, wrong: set[tuple[int, str]]
    ) -> None:
        self.row, self.number, self.kinds, self.text, self.wrong = row, number, kinds, text, wrong

    def read(self, entry: Any, column: str | None, convert: Any) -> Any:
        """The converted value; a wrong one is noted, and None."""
        if column is None:
            return None
        value = self.row[column]
        if value is None:
            value = entry.nulls.get(column)
        try:
            if value is None:
                raise ValueError("null")
            return convert(value)
        except (ValueError, OverflowError):
            self.wrong.add((self.number, column))
            return None

    def skips(self, entry: NodeRows | EdgeRows) -> bool:
        if not oracle_meets(self.row, dict(entry.where)):
            return True
        skipping = [name for name, rule in entry.nulls.items() if rule == "skip"]
        return any(self.row[name] is None for name in skipping)

    def features(self, entry: NodeRows | EdgeRows, width: int) -> list[float] | None:
        names = entry.features
        if len(names) == 1 and width > 1:
            return self.read(entry, names[0], lambda listed: self.listed(listed, width))
        return [self.read(entry, name, oracle_number) for name in names] or None

    def listed(self, value: Any, width: int) -> list[float]:
        if not isinstance(value, list):
            value = [value] * width
        if len(value) != width or None in value:
            raise ValueError(value)
        return [oracle_number(one) for one in value]

    def node(self, entry: NodeRows, width: int) -> Record:
        convert = lambda value: oracle_id(value, self.text)  # noqa: E731
        return {
            "ids": self.read(entry, entry.id, convert),
            "x": self.features(entry, width),
            "node_type": entry.node_type,
        }

    def edge(self, entry: EdgeRows, width: int) -> Record:
        convert = lambda value: oracle_id(value, self.text)  # noqa: E731
        return {
            "src": self.read(entry, entry.src, convert),
            "dst": self.read(entry, entry.dst, convert),
            "key": self.read(entry, entry.key, oracle_key),
            "weight": self.read(entry, entry.weight, oracle_number),
            "time": self.read(entry, entry.time, lambda value: self.time(entry, value)),
            "edge_attr": self.features(entry, width),
            "edge_type": entry.edge_type,
        }

    def time(self, entry: EdgeRows, value: Any) -> float:
        assert entry.time is not None
        if self.row[entry.time] is None:  # the value in place of a null is in seconds
            return float(value)
        return oracle_time(value, self.kinds.field(entry.time).type, entry.time_unit or "s")


def oracle_key(value: Any) -> int:
    if not 0 <= int(value) < 2**32:
        raise ValueError(value)
    return int(value)


def values_of(table: pa.Table) -> list[Record]:
    """The rows as Python values; timestamps as their counts."""
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns[name] = column.to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def by_rows(
    mapping: TableMapping, schema: lg.Schema, table: pa.Table
) -> tuple[list[lg.Events], set[tuple[int, str]]]:
    """The nodes of each row in order, then the edges of each; and the rows and columns of wrong values."""
    wrong: set[tuple[int, str]] = set()
    made: list[tuple[str, Record]] = []
    oracles = [
        Oracle(row, number, table.schema, schema.text_ids, wrong)
        for number, row in enumerate(values_of(table))
    ]
    for oracle in oracles:
        given = [node for node in mapping.nodes if not oracle.skips(node)]
        made += [("add_nodes", oracle.node(node, schema.node_types[node.node_type])) for node in given]
    for oracle in oracles:
        for edge in mapping.edges:
            if not oracle.skips(edge):
                width = schema.edge_types[edge.edge_type].edge_dim
                made.append(("add_edges", oracle.edge(edge, width)))
    if wrong:
        return [], wrong
    return [getattr(lg.Events(), kind)(**arguments) for kind, arguments in made], wrong


# -- events, thing by thing ---------------------------------------------------------------------------------


def things(parts: "list[lg.Events]") -> dict[Any, list[Any]]:
    """The events of each node and of each pair of ends, in order. A node that is given again without features
    is left out: that changes nothing."""
    found: dict[Any, list[Any]] = {}
    for part in parts:
        for chunk in part.chunks:
            ids = chunk.ids.tolist()
            ends = [None] * len(ids) if chunk.dst is None else chunk.dst.tolist()
            columns = [
                [None] * len(ids) if column is None else column.tolist()
                for column in (chunk.weight, chunk.time, chunk.x, chunk.key)
            ]
            for id, end, *values in zip(ids, ends, *columns, strict=True):
                told = found.setdefault((chunk.type, id, end), [])
                if chunk.kind != "add_nodes" or values[2] is not None or not told:
                    told.append((chunk.kind, *values))
    return found


def nodes_first(events: lg.Events) -> bool:
    kinds = [chunk.kind for chunk in events.chunks]
    return kinds == sorted(kinds, key=["add_nodes", "add_edges"].index)


# -- tables -------------------------------------------------------------------------------------------------

TEXTS = ["a", "b", "ä", "日本", "x y", ""]
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
STAMPS = [
    pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Europe/Rome")
]
ISO = [
    "2026-03-01",
    "1969-12-31T23:59:59.999999",
    "2026-03-01 10:00",
    "2026/03/01 10:00",
    "2026-03-01T10:00:00Z",
    "2026-03-01T10:00:00.25+01:00",
    "2026-03-01T10:00:00-0330",
    "0001-01-01",
    "9999-12-31T23:59:59",
]


def integers(kind: pa.DataType, least: int = 0) -> st.SearchStrategy[int]:
    unsigned = pa.types.is_unsigned_integer(kind)
    largest = 2 ** (kind.bit_width - (0 if unsigned else 1)) - 1
    lowest = 0 if unsigned else -(largest + 1)
    few = st.integers(0, 3)
    wide = st.sampled_from(sorted({max(lowest, least), largest, min(largest, 2**63 - 1)}))
    return few | few | few | wide


@st.composite
def id_column(draw: Any, n: int, text: bool, nulls: bool) -> pa.Array:
    kinds = [*INTEGERS, pa.decimal128(20, 0), pa.decimal256(40, 0)]
    if text:
        kinds = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(16), pa.uuid(), *kinds]
        kinds += [pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_string())]
    kind = draw(st.sampled_from(kinds))
    if kind in (pa.binary(16), pa.uuid()):
        one: Any = st.sampled_from([bytes(range(16)), b"\xff" * 16, b"\0" * 16])
    elif pa.types.is_decimal(kind):
        one = st.integers(0, 5).map(Decimal) | st.just(Decimal(2**63 - 1))
    elif pa.types.is_integer(kind):
        one = integers(kind, -1 if draw(st.integers(0, 7)) == 0 else 0)
    else:
        one = st.sampled_from(TEXTS if draw(st.integers(0, 7)) else [*TEXTS, "a\0b", "x" * 1025])
    return made(draw, kind, one, n, nulls)


@st.composite
def number_column(draw: Any, n: int, nulls: bool) -> pa.Array:
    kinds = [*INTEGERS, pa.float16(), pa.float32(), pa.float64(), pa.decimal128(10, 2), pa.decimal256(50, 3)]
    kind = draw(st.sampled_from(kinds))
    return made(draw, kind, numbers_of(draw, kind), n, nulls)


def numbers_of(draw: Any, kind: pa.DataType) -> Any:
    if pa.types.is_integer(kind):
        return integers(kind, -128)
    if pa.types.is_decimal(kind):
        return st.decimals(-99999, 99999, places=2)
    few = st.sampled_from([0.0, -0.0, 1.5, -2.25, 3.0])
    odd = [math.nan, math.inf] + ([1e300, 1e-320] if kind == pa.float64() else [])
    one = few if draw(st.integers(0, 5)) else few | st.sampled_from(odd)
    return one.map(np.float16) if kind == pa.float16() else one


@st.composite
def list_column(draw: Any, n: int, width: int, nulls: bool) -> pa.Array:
    inner = draw(st.sampled_from([pa.float32(), pa.float64(), pa.int16(), pa.decimal128(8, 2)]))
    kind = draw(st.sampled_from([pa.list_(inner), pa.large_list(inner), pa.list_(inner, width)]))
    odd = draw(st.integers(0, 7)) == 0
    one = numbers_of(draw, inner) | st.none() if odd else numbers_of(draw, inner)
    most = width if pa.types.is_fixed_size_list(kind) or not odd else width + 1
    return made(draw, kind, st.lists(one, min_size=min(width, most), max_size=most), n, nulls)


@st.composite
def time_column(draw: Any, n: int, nulls: bool) -> pa.Array:
    kind = draw(
        st.sampled_from(
            [
                *STAMPS,
                pa.date32(),
                pa.date64(),
                pa.string(),
                pa.large_string(),
                *INTEGERS,
                pa.float64(),
                pa.decimal128(18, 0),
                pa.decimal128(18, 6),
            ]
        )
    )
    if pa.types.is_timestamp(kind):
        counts = st.integers(-(10**9), 10**9) | st.integers(-(2**62), 2**62)
        return pa.array(
            draw(st.lists(counts | (st.none() if nulls else counts), min_size=n, max_size=n)), pa.int64()
        ).cast(kind)
    if pa.types.is_date(kind):
        one: Any = st.dates()
    elif pa.types.is_integer(kind):
        one = integers(kind, -128)
    elif pa.types.is_decimal(kind):
        one = st.integers(-(10**11), 10**11).map(Decimal)
    elif pa.types.is_floating(kind):
        one = st.floats(-1e12, 1e12) | st.just(math.nan) if draw(st.integers(0, 7)) == 0 else st.floats(-9, 9)
    else:
        odd = draw(st.integers(0, 7)) == 0
        one = st.sampled_from([*ISO, "2026-02-30", "now", "", "12", "2026-03-01T25:00"] if odd else ISO)
        one |= st.datetimes().map(str)
    return made(draw, kind, one, n, nulls)


@st.composite
def key_column(draw: Any, n: int, nulls: bool) -> pa.Array:
    kind = draw(st.sampled_from([*INTEGERS, pa.decimal128(12, 0)]))
    one = st.integers(0, 3).map(Decimal) if pa.types.is_decimal(kind) else integers(kind)
    return made(draw, kind, one, n, nulls)


def made(draw: Any, kind: pa.DataType, one: Any, n: int, nulls: bool) -> pa.Array:
    values = draw(st.lists(one | st.none() if nulls else one, min_size=n, max_size=n))
    if kind == pa.uuid():
        return pa.ExtensionArray.from_storage(kind, pa.array(values, pa.binary(16)))
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    if draw(st.integers(0, 9)) == 0:
        values = [None] * n
        if draw(st.booleans()):
            return pa.nulls(n)
    return pa.array(values, kind)


@st.composite
def tables(draw: Any, text: bool) -> pa.Table:
    n = draw(st.integers(0, 9))
    null = lambda: draw(st.integers(0, 2)) == 0  # noqa: E731
    table = pa.table(
        {
            "u": draw(id_column(n, text, null())),
            "i": draw(id_column(n, text, null())),
            "a": draw(number_column(n, null())),
            "b": made(draw, pa.bool_(), st.booleans(), n, null()),
            "v": draw(list_column(n, 3, null())),
            "w": draw(number_column(n, null())),
            "t": draw(time_column(n, null())),
            "k": draw(key_column(n, null())),
            "e": draw(list_column(n, 2, null())),
            "c": made(draw, pa.string(), st.sampled_from(["x", "y", "z"]), n, True),
            "n": made(draw, draw(st.sampled_from(INTEGERS)), st.integers(0, 5), n, True),
        }
    )
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=3)))
    parts = [table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, n], strict=True)]
    return pa.concat_tables(parts) if draw(st.booleans()) else table


CONDITIONS = st.sampled_from(
    [
        {},
        {},
        {"c": "x"},
        {"c": ["x", "z"]},
        {"n": {"at_least": 2, "at_most": 4}},
        {"n": 3},
        {"c": {"not_null": True}, "n": {"one_of": [1, 2, 3]}},
    ]
)


def rules(draw: Any, columns: dict[str, Any]) -> dict[str, Any]:
    """For some columns "skip" or a value; for most one of them, so that tables are read."""
    chosen = {}
    for name, value in columns.items():
        way = draw(st.sampled_from(["skip", "skip", "fill", "none"]))
        if way != "none":
            chosen[name] = "skip" if way == "skip" or value is None else value
    return chosen


@st.composite
def mappings(draw: Any, duplicates: str) -> TableMapping:
    users = [
        NodeRows(
            "u",
            "user",
            x=draw(st.sampled_from([None, ["a", "b"], ["a", "w"]])),
            where=draw(CONDITIONS),
            nulls=rules(draw, {"u": None}),
        ),
        NodeRows("i", "user", nulls=rules(draw, {"i": None})),
    ]
    users = [
        NodeRows(
            one.id, "user", one.x, one.where, {**one.nulls, **rules(draw, dict.fromkeys(one.features, 1))}
        )
        for one in users
    ]
    item = NodeRows("i", "item", x="v", nulls=rules(draw, {"i": None, "v": 0}), where=draw(CONDITIONS))
    nodes = draw(st.lists(st.sampled_from([*users, item]), unique_by=id, max_size=3))
    key = "k" if duplicates == "keep" and draw(st.booleans()) else None
    attr = draw(st.sampled_from([None, "e", ["a", "w"]]))
    named = {"u": None, "i": None, "w": 1, "t": 5, **({"k": 2} if key else {})}
    named |= dict.fromkeys([attr] if isinstance(attr, str) else attr or [], 0)
    buys = EdgeRows(
        "u",
        "i",
        BUYS,
        weight="w",
        time="t",
        key=key,
        edge_attr=attr,
        where=draw(CONDITIONS),
        nulls=rules(draw, named),
    )
    again = EdgeRows(
        "i", "u", BUYS, key=key, nulls=rules(draw, {"u": None, "i": None, **({"k": 1} if key else {})})
    )
    knows = EdgeRows("u", "u", KNOWS, nulls=rules(draw, {"u": None}))
    edges = draw(st.lists(st.sampled_from([buys, again, knows]), unique_by=id, max_size=3))
    return TableMapping(nodes, edges or [buys])


def with_unit(draw: Any, mapping: TableMapping, kind: pa.DataType) -> TableMapping:
    """The mapping, with a unit where times are numbers."""
    unit = draw(st.sampled_from([None, *get_args(TimeUnit)]))
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return mapping
    edges = [replace(one, time_unit=unit) if one.time else one for one in mapping.edges]
    return replace(mapping, edges=edges)


@settings(max_examples=draws(60, 6000))
@given(data=st.data())
def test_columns_give_the_events_of_each_row(data: st.DataObject) -> None:
    text = data.draw(st.booleans())
    duplicates = data.draw(st.sampled_from(["replace", "add", "keep"]))
    made, mapping = schema(text=text, duplicates=duplicates), data.draw(mappings(duplicates))
    mapping = replace(mapping, edges=[replace(one, unique=False) for one in mapping.edges])  # keys may repeat
    table = data.draw(tables(text))
    mapping = with_unit(data.draw, mapping, table.schema.field("t").type)
    reader = TableReader(mapping, made, "sales")
    expected, wrong = by_rows(mapping, made, table)
    if wrong:
        with pytest.raises(InputError) as error:
            reader.events(table)
        assert str(error.value).startswith("sales, ")
        assert first_named(str(error.value)) in wrong
        return
    events = reader.events(table)
    assert nodes_first(events)
    assert things([events]) == things(expected)
    size = data.draw(st.integers(1, 10))
    parts = list(reader.read(table, size))
    assert things(parts) == things(expected)
    assert len(parts) == -(-table.num_rows // size)


def first_named(message: str) -> tuple[int, str]:
    found = re.search(r"row (\d+), column '(\w+)'", message)
    assert found, message
    return int(found[1]), found[2]


# -- changes of rows ----------------------------------------------------------------------------------------


def gives(mapping: TableMapping, row: Record | None) -> list[tuple[bool, Any, Any, Any]]:
    """The things that a row of whole numbers gives: whether it is removed with the row, its type, what it is,
    and the rest of it."""
    found: list[tuple[bool, Any, Any, Any]] = []
    for node in mapping.nodes if row is not None else ():
        assert row is not None
        if oracle_meets(row, dict(node.where)) and row[node.id] is not None:
            x = None if node.x is None else [float(row[name]) for name in node.features]
            found.append((node.removes, node.node_type, row[node.id], x))
    for edge in mapping.edges if row is not None else ():
        assert row is not None
        ends = row[edge.src], row[edge.dst]
        if oracle_meets(row, dict(edge.where)) and None not in ends:
            rest = [None if name is None else row[name] for name in (edge.weight, edge.time)]
            key = None if edge.key is None else row[edge.key]
            found.append((edge.removes, edge.edge_type, (*ends, key), rest))
    return found


def changed(mapping: TableMapping, old: Record | None, new: Record | None) -> lg.Events:
    """The events of one change: what the row no longer gives, then what it gives."""
    before, after = gives(mapping, old), gives(mapping, new)
    events = lg.Events()
    times: dict[Any, float] = {}
    for _, type_, what, rest in after:
        if isinstance(type_, tuple) and rest[1] is not None:
            times[type_, what] = min(rest[1], times.get((type_, what), math.inf))
    kept = {(type_, what) for _, type_, what, _ in after}
    for removes, type_, what, rest in sorted(before, key=lambda one: not isinstance(one[1], tuple)):
        edge = isinstance(type_, tuple)
        earlier = edge and rest[1] is not None and times.get((type_, what), math.inf) < rest[1]
        if not removes or ((type_, what) in kept and not earlier):
            continue
        if edge:
            events.remove_edges(what[0], what[1], key=what[2], edge_type=type_)
        else:
            events.remove_nodes(what, node_type=type_)
    for _, type_, what, rest in after:
        if isinstance(type_, tuple):
            given = {"weight": rest[0], "time": rest[1], "key": what[2]}
            events.add_edges(what[0], what[1], edge_type=type_, **given)
        else:
            events.add_nodes(what, rest, node_type=type_)
    return events


@st.composite
def change_mappings(draw: Any, duplicates: str) -> TableMapping:
    removes = st.sampled_from([False, True])
    skip = {"u": "skip", "i": "skip"}
    where = st.sampled_from([{}, {}, {"f": {"at_least": 1}}])
    nodes = [
        NodeRows(
            "u",
            "user",
            x=draw(st.sampled_from([None, ["w", "f"]])),
            where=draw(where),
            nulls={"u": "skip"},
            removes=draw(removes),
        ),
        NodeRows("i", "item", nulls={"i": "skip"}, removes=draw(removes)),
        NodeRows("i", "user", nulls={"i": "skip"}, removes=draw(removes)),
    ]
    key = "k" if duplicates == "keep" else None
    edges = [
        EdgeRows(
            "u",
            "i",
            BUYS,
            weight="w",
            time="t",
            key=key,
            where=draw(where),
            nulls=skip,
            removes=draw(st.sampled_from([True, True, False])),
        ),
        EdgeRows("i", "u", BUYS, time="t", key=key, nulls=skip),
        EdgeRows("u", "i", KNOWS, nulls=skip, where=draw(where)),
    ]
    return TableMapping(
        draw(st.lists(st.sampled_from(nodes), unique_by=id, max_size=3)),
        draw(st.lists(st.sampled_from(edges), unique_by=id, min_size=1, max_size=3)),
    )


SEEDS = st.integers(0, 2**32)
CHANGED = pa.schema([(name, pa.int64()) for name in ("u", "i", "w", "t", "k", "f")])


def changed_row(random: Random) -> Record:
    ends = [0, 1, 2, None] if random.random() < 0.2 else [0, 1, 2]
    columns = {"u": ends, "i": ends, "w": range(5), "t": range(5), "k": range(2), "f": range(3)}
    return {name: random.choice(values) for name, values in columns.items()}


def row_changes(random: Random) -> list[tuple[str, Record | None, Record | None, bool]]:
    """Changes of a table; each has its kind, the old row, the new one, and whether the old one is known."""
    rows: list[Record] = []
    changes: list[tuple[str, Record | None, Record | None, bool]] = []
    for _ in range(random.randrange(12)):
        kind = random.choice(["insert", "update", "update", "delete"]) if rows else "insert"
        at = 0 if kind == "insert" else random.randrange(len(rows))
        new = None if kind == "delete" else changed_row(random)
        if kind == "update":
            assert new is not None
            new = {**rows[at], **{name: new[name] for name in random.sample(list(new), random.randrange(7))}}
        changes.append((kind, None if kind == "insert" else rows[at], new, random.random() < 0.9))
        rows = [*rows[:at], *([] if new is None else [new]), *rows[at + (kind != "insert") :]]
    return changes


def contents(graph: lg.Graph) -> list[Any]:
    """All nodes and edges, by their ids."""
    found: list[Any] = []
    for name in graph.schema.node_types:
        ids = graph.ids(name).tolist()
        found += sorted(zip(ids, graph.features(ids, node_type=name).tolist() if ids else [], strict=True))
    for edge_type in graph.schema.edge_types:
        for id in sorted(graph.ids(edge_type[0]).tolist()):
            near = graph.neighbors(id, edge_type=edge_type, direction="out")
            columns = [column.tolist() for column in near if column is not None]
            found.append((edge_type, id, sorted(zip(*columns, strict=True))))
    return found


@settings(max_examples=draws(80, 8000))
@given(data=st.data())
def test_changes_by_columns_leave_the_graph_of_changes_by_rows(data: st.DataObject) -> None:
    duplicates = data.draw(st.sampled_from(["replace", "keep"]))
    undirected = data.draw(st.booleans())
    edges = lg.EdgeSchema(weighted=True, timed=True, duplicates=duplicates)
    made = lg.Schema(
        {"user": 2, "item": 0},
        {BUYS: edges, KNOWS: lg.EdgeSchema(undirected=undirected)},
        auto_add=["user", "item"],
    )
    mapping, changes = data.draw(change_mappings(duplicates)), row_changes(Random(data.draw(SEEDS)))
    plain = lg.Graph(made)
    try:
        for kind, old, new, known in changes:
            plain.apply(changed(mapping, old if known or kind == "delete" else None, new))
    except lg.UnknownNodeError:  # an edge is removed at a node that is gone
        event("a row by itself is refused")
        return
    by_columns = lg.Graph(made)
    blank = dict.fromkeys(CHANGED.names)
    told = RowChanges(
        [kind for kind, _, _, _ in changes],
        pa.Table.from_pylist([new or blank for _, _, new, _ in changes], CHANGED),
        pa.Table.from_pylist([old or blank for _, old, _, _ in changes], CHANGED),
        [known for _, _, _, known in changes],
    )
    events = read_changes(TableReader(mapping, made), told)
    by_columns.apply(events)
    event("edges are removed" if any(one.kind == "remove_edges" for one in events.chunks) else "none is")
    assert contents(by_columns) == contents(plain)
    one_by_one = lg.Graph(made)
    for events in read_each_change(TableReader(mapping, made), told):
        one_by_one.apply(events)
    assert contents(one_by_one) == contents(plain)
