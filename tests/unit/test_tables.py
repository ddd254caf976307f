"""Mappings of tables: what they refuse, with its place; and graphs of tables of other libraries."""

import re
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import livegnn as lg
from livegnn.errors import InputError, UnknownNodeError, UnknownTypeError
from livegnn.tables import EdgeRows, NodeRows, TableMapping, TableReader
from livegnn.texts import text_code

BUYS = ("user", "buys", "item")
SCHEMA = lg.Schema(
    {"user": 2, "item": 0},
    {BUYS: lg.EdgeSchema(weighted=True, timed=True, duplicates="keep")},
    text_ids=True,
)
USERS = pa.table({"id": ["ann", "bob"], "age": [31, 45], "score": [0.5, 1.0]})
CLICKS = pa.table(
    {
        "user": ["ann", "bob", "ann"],
        "item": ["tea", "tea", "mug"],
        "amount": [1.0, 2.5, 3.0],
        "at": ["2026-03-01T10:00:00Z", "2026-03-01T10:00:01+01:00", "2026-03-02"],
    }
)
MAPPINGS = {
    "clicks": TableMapping(
        [NodeRows("item", "item")], [EdgeRows("user", "item", BUYS, weight="amount", time="at")]
    ),
    "users": TableMapping([NodeRows("id", "user", x=["age", "score"])]),
}


def pandas_frame(table: pa.Table) -> Any:
    pytest.importorskip("pandas")
    return table.to_pandas()


def polars_frame(table: pa.Table) -> Any:
    return pytest.importorskip("polars").from_arrow(table)


def duckdb_relation(table: pa.Table) -> Any:
    return pytest.importorskip("duckdb").from_arrow(table)


KINDS = {
    "pyarrow": lambda table: table,
    "reader": lambda table: table.to_reader(max_chunksize=1),
    "pandas": pandas_frame,
    "polars": polars_frame,
    "duckdb": duckdb_relation,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_of_tables_of_each_library(kind: str) -> None:
    tables = {"clicks": KINDS[kind](CLICKS), "users": KINDS[kind](USERS)}
    graph = lg.Graph.from_tables(SCHEMA, tables, MAPPINGS)
    assert graph.ids("user").tolist() == ["ann", "bob"]
    assert graph.features(["ann", "bob"], node_type="user").tolist() == [[31, 0.5], [45, 1]]
    found = graph.neighbors("ann", edge_type=BUYS, direction="out")
    assert found.weight is not None
    assert found.time is not None
    assert dict(zip(found.ids.tolist(), found.weight.tolist(), strict=True)) == {"tea": 1, "mug": 3}
    assert sorted(found.time.tolist()) == [1772359200, 1772409600]
    assert graph.seq == 0


def test_tables_that_are_larger_than_a_part() -> None:
    n = 150_000
    users = pa.table({"id": np.arange(n), "age": np.ones(n), "score": np.zeros(n)})
    pays = pa.table({"user": np.arange(n), "item": np.arange(n)[::-1]})
    graph = lg.Graph.from_tables(
        lg.Schema({"user": 2}, {("user", "pays", "user"): lg.EdgeSchema()}),
        {"pays": pays, "users": users},
        {"pays": TableMapping(edges=[EdgeRows("user", "item")]), "users": MAPPINGS["users"]},
    )
    assert (graph.num_nodes(), graph.num_edges()) == (n, n)


def test_a_graph_of_tables_needs_a_mapping_of_each() -> None:
    with pytest.raises(InputError, match=r"the same names, got 'clicks' in one of them alone"):
        lg.Graph.from_tables(SCHEMA, {"users": USERS}, MAPPINGS)
    with pytest.raises(InputError, match=r"tables must be a dict by the names of tables, got list"):
        lg.Graph.from_tables(SCHEMA, [USERS], MAPPINGS)  # type: ignore[arg-type]
    with pytest.raises(UnknownNodeError, match="bob"):
        lg.Graph.from_tables(SCHEMA, {"clicks": CLICKS, "users": USERS.slice(0, 1)}, MAPPINGS)
    with pytest.raises(InputError, match=r"users: expected a table with the Arrow C stream .*, got list"):
        lg.Graph.from_tables(SCHEMA, {"clicks": CLICKS, "users": [1]}, MAPPINGS)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: NodeRows(""), r"id must be the name of a column, got ''"),
        (lambda: NodeRows(3), r"id must be the name of a column, got 3"),  # type: ignore[arg-type]
        (lambda: NodeRows("id", 3), r"node_type must be text"),  # type: ignore[arg-type]
        (
            lambda: NodeRows("id", x=[]),
            r"x must be the name of a column of lists, or a list of names, got \[\]",
        ),
        (lambda: NodeRows("id", x=["a", "a"]), r"different ones, got \['a', 'a'\]"),
        (lambda: NodeRows("id", where=["a"]), r"where must be a table"),  # type: ignore[arg-type]
        (lambda: NodeRows("id", where={"a": None}), r"where of 'a' must be text, a number"),
        (lambda: NodeRows("id", where={"a": float("nan")}), r"where of 'a' must be text, a number"),
        (lambda: NodeRows("id", where={"a": 2**64}), r"where of 'a' must be text, a number below 2\^63"),
        (lambda: NodeRows("id", where={"a": {}}), r"where of 'a' must have a test, equal, one_of, at_least"),
        (lambda: NodeRows("id", where={"a": {"above": 1}}), r"must be among equal, .*, got 'above'"),
        (lambda: NodeRows("id", where={"a": {"not_null": False}}), r"not_null must be true"),
        (lambda: NodeRows("id", where={"a": []}), r"one_of must be a list of values, got \[\]"),
        (lambda: NodeRows("id", nulls={"b": 1}), r"nulls must name columns of its entry, id, got 'b'"),
        (
            lambda: NodeRows("id", x="a", nulls={"a": "0"}),
            r"nulls of 'a' must be \"skip\", \"keep\" or a finite number",
        ),
        (lambda: NodeRows("id", nulls={"id": None}), r"\"skip\" or a finite number or text, got None"),
        (lambda: NodeRows("id", removes="no"), r"removes must be True or False, got 'no'"),  # type: ignore[arg-type]
        (lambda: EdgeRows("a", "b", ("a", "b")), r"edge_type must be \(source type"),  # type: ignore[arg-type]
        (lambda: EdgeRows("a", "b", time="t", time_unit="m"), r"time_unit must be 'ns'"),  # type: ignore[arg-type]
        (lambda: EdgeRows("a", "b", time_unit="s"), r"time_unit needs a column of times, time"),
        (lambda: EdgeRows("a", "b", weight=""), r"weight must be the name of a column"),
        (lambda: TableMapping(), r"must have nodes or edges"),
        (lambda: TableMapping([EdgeRows("a", "b")]), r"nodes must be a list of NodeRows"),  # type: ignore[list-item]
    ],
)
def test_a_mapping_that_is_wrong_is_refused(make: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()


def test_the_page_lists_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (nodes|edges|both) \|", page, re.MULTILINE)
    documented = {(key, where) for keys, where in rows for key in re.findall(r"\w+", keys)}
    nodes, edges = ({one.name for one in fields(type_)} for type_ in (NodeRows, EdgeRows))
    assert documented == {
        *((key, "both") for key in nodes & edges),
        *((key, "nodes") for key in nodes - edges),
        *((key, "edges") for key in edges - nodes),
    }


def test_an_edge_type_may_be_a_list() -> None:
    assert EdgeRows("a", "b", ["user", "buys", "item"]) == EdgeRows("a", "b", BUYS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        (
            TableMapping([NodeRows("id", "shop")]),
            r"sales, nodes\[0\]: node type must be one of 'user', 'item'",
        ),
        (TableMapping([NodeRows("id")]), r"sales, nodes\[0\]: node type must be one of .*, got none"),
        (TableMapping([NodeRows("id", "user", x=["a", "b", "c"])]), r"nodes\[0\]: x must have 2 columns"),
        (
            TableMapping([NodeRows("id", "item", x="a")]),
            r"nodes\[0\]: x must have 0 columns for node type 'item'",
        ),
        (
            TableMapping(edges=[EdgeRows("a", "b", ("user", "sees", "item"))]),
            r"edges\[0\]: edge type must be",
        ),
        (
            TableMapping(edges=[EdgeRows("a", "b", edge_attr="c")]),
            r"edges\[0\]: edge_attr must have 0 columns",
        ),
    ],
)
def test_a_mapping_must_fit_the_schema(mapping: TableMapping, says: str) -> None:
    with pytest.raises((InputError, UnknownTypeError), match=says):
        TableReader(mapping, SCHEMA, "sales")


@pytest.mark.parametrize("column", ["weight", "time", "key"])
def test_columns_that_edges_do_not_have(column: str) -> None:
    mapping = TableMapping(edges=[EdgeRows("a", "b", **{column: "c"})])
    with pytest.raises(
        InputError, match=rf"edges\[0\]: edges of type .* have no {column}, got the column 'c'"
    ):
        TableReader(mapping, lg.Schema())


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"user": None}, r"clicks, nodes\[0\]: expected one column 'item', got 'user', 'amount', 'at'"),
        (
            {"user": [1.0, 2.0, 3.0]},
            r"edges\[0\]: column 'user': expected text, UUIDs or integers, got double",
        ),
        ({"amount": ["1", "2", "3"]}, r"edges\[0\]: column 'amount': expected numbers, got string"),
        ({"at": pa.array([1, 2, 3], pa.time64("us"))}, r"column 'at': expected timestamps, dates, ISO text"),
        ({"item": ["tea", None, "mug"]}, r"clicks, nodes\[0\]: row 11, column 'item': expected a value"),
        (
            {"amount": [1.0, 2.0, float("nan")]},
            r"row 12, column 'amount': expected a finite number .*, got nan",
        ),
        ({"at": ["2026-03-01", "1.3.2026", "-"]}, r"edges\[0\]: row 11, column 'at': expected a time as in"),
        ({"at": ["2026-03-01", "2026-03-01", "2026-02-30"]}, r"row 12, column 'at': .*, got '2026-02-30'"),
        ({"user": ["a", "b\0", "c"]}, r"row 11, column 'user': expected an id without NUL characters"),
        ({"user": ["a", "b", "c" * 1025]}, r"row 12, column 'user': expected an id of at most 1,024"),
        ({"user": [1, 2, -1]}, r"row 12, column 'user': expected an id from 0 to 2\^63 - 1, got -1"),
        ({"user": pa.array([1, 2**63, 0], pa.uint64())}, r"row 11, .* got 9223372036854775808"),
    ],
)
def test_values_that_are_wrong_have_a_place(columns: dict[str, Any], says: str) -> None:
    reader = TableReader(MAPPINGS["clicks"], SCHEMA, "clicks")
    table = CLICKS
    for name, values in columns.items():
        at = table.column_names.index(name)
        table = table.remove_column(at) if values is None else table.set_column(at, name, pa.array(values))
    if columns == {"user": None}:
        table = CLICKS.drop_columns("item")
    with pytest.raises(InputError, match=says):
        reader.events(table, 10)


def test_bytes_that_are_not_text_have_a_place() -> None:
    bad = pa.array([b"a", b"\xff"]).cast(pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, bad.buffers())
    reader = TableReader(TableMapping([NodeRows("id", "item")]), SCHEMA)
    with pytest.raises(InputError, match=r"row 1, column 'id': expected an id that is UTF-8, got a value of"):
        reader.events(pa.table({"id": texts}))


def test_a_table_with_two_columns_of_a_name_is_refused() -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["id", "id"])
    with pytest.raises(InputError, match=r"expected one column 'id', got two columns 'id'"):
        TableReader(TableMapping([NodeRows("id", "item")]), SCHEMA).events(table)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            NodeRows("id", "user", x=["age", "score"], where={"age": "old"}),
            r"'age'.*that 'old' can be compared",
        ),
        (NodeRows("id", "item", where={"id": 3}), r"where of column 'id': expected values that 3 can be"),
        (NodeRows("id", "item", nulls={"id": 3}), None),
        (
            NodeRows("age", "item", nulls={"age": "x"}),
            r"nulls of column 'age': expected 'skip' or a value of int64",
        ),
    ],
)
def test_a_mapping_must_fit_the_columns(entry: NodeRows, says: str | None) -> None:
    reader = TableReader(TableMapping([entry]), SCHEMA)
    if says is None:
        assert len(reader.events(USERS)) == 2
        return
    with pytest.raises(InputError, match=says):
        reader.events(USERS)


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
UINT64 = pa.array([0, 2**63, None], pa.uint64())
DECIMALS = pa.array([Decimal("1.50"), Decimal(2), None], pa.decimal128(10, 2))
STAMPS = pa.array([datetime(2026, 3, 1), datetime(2026, 3, 1, 12), None], pa.timestamp("ms"))


@pytest.mark.parametrize(
    ("column", "wanted", "rows"),
    [
        (pa.array(["a", "b", None]), "b", [1]),
        (pa.array(["a", "b", None]).dictionary_encode(), ["b", "c", "a"], [0, 1]),
        (pa.array(["a", "b", None], pa.string_view()), {"at_least": "b"}, [1]),
        (pa.array([True, False, None]), False, [1]),
        (pa.array([1.5, float("nan"), None]), {"at_least": 1}, [0]),
        (pa.array([1, 2, None], pa.int8()), {"at_most": 300}, [0, 1]),
        (pa.array([1, 2, None], pa.int8()), 1.5, []),
        (UINT64, {"at_least": -1}, [0, 1]),
        (UINT64, {"at_most": -1}, []),
        (UINT64, {"at_least": 1}, [1]),
        (UINT64, -1, []),
        (DECIMALS, 1.5, [0]),
        (DECIMALS, {"at_least": 2, "at_most": 2}, [1]),
        (STAMPS, {"at_least": NOON}, [1]),
        (STAMPS, {"at_most": date(2026, 3, 1)}, [0]),
        (
            STAMPS.cast(pa.timestamp("ns", "Europe/Rome")),
            datetime(2026, 3, 1, 13, tzinfo=timezone(timedelta(hours=1))),
            [1],
        ),
        (STAMPS.cast(pa.timestamp("ns", "Europe/Rome")), {"at_least": datetime(2026, 3, 1, 12)}, [1]),
        (STAMPS.cast(pa.timestamp("s")), {"at_least": datetime(2026, 3, 1, 0, 0, 0, 1)}, [1]),
        (STAMPS.cast(pa.date32()), date(2026, 3, 1), [0, 1]),
        (STAMPS.cast(pa.date64()), {"at_least": date(2026, 3, 2)}, []),
        (STAMPS, {"not_null": True}, [0, 1]),
        (pa.nulls(3), "a", []),
        (pa.nulls(3), {"not_null": True}, []),
    ],
)
def test_conditions_on_columns_of_each_kind(column: pa.Array, wanted: object, rows: list[int]) -> None:
    mapping = TableMapping([NodeRows("id", where={"c": wanted})])
    table = pa.table({"id": [0, 1, 2], "c": column})
    events = TableReader(mapping, lg.Schema()).events(table)
    assert [id for chunk in events.chunks for id in chunk.ids.tolist()] == rows


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array(["a"]), 1),
        (pa.array([1]), "1"),
        (pa.array([1]), True),
        (pa.array([True]), 1),
        (pa.array([1]), NOON),
        (pa.array([date(2026, 3, 1)]), NOON),
        (pa.array([b"a"]), "a"),
        (pa.array([[1]]), 1),
    ],
)
def test_a_condition_on_a_column_of_another_kind_is_refused(column: pa.Array, wanted: object) -> None:
    reader = TableReader(TableMapping([NodeRows("id", where={"c": wanted})]), lg.Schema())
    with pytest.raises(InputError, match=r"nodes\[0\]: where of column 'c': expected values that"):
        reader.events(pa.table({"id": [0], "c": column}))


def test_missing_features_are_kept_and_texts_become_codes() -> None:
    """Of columns of each kind, and of lists."""
    table = pa.table(
        {
            "id": [1, 2, 3],
            "age": pa.array([1.5, None, 3]),
            "paid": pa.array([None, True, False]),
            "country": pa.array(["DE", None, "日本"]).dictionary_encode(),
        }
    )
    rows = NodeRows(
        "id",
        x=["age", "paid", "country"],
        nulls={"age": "keep", "paid": "keep", "country": "keep"},
        texts=["country"],
    )
    graph = lg.Graph.from_tables(
        lg.Schema({"user": 3}, {}), {"users": table}, {"users": TableMapping([rows])}
    )
    expected = [[1.5, lg.MISSING, text_code("DE")], [lg.MISSING, 1, lg.MISSING], [3, 0, text_code("日本")]]
    np.testing.assert_array_equal(graph.features([1, 2, 3]), np.array(expected, np.float32))
    filled = NodeRows("id", x=["country"], nulls={"country": "none"}, texts="country")
    graph = lg.Graph.from_tables(
        lg.Schema({"user": 1}, {}), {"users": table}, {"users": TableMapping([filled])}
    )
    assert graph.features([2])[0, 0] == text_code("none")
    lists = pa.table({"id": [1, 2], "x": pa.array([[1.0, 2.0], None])})
    kept = TableMapping([NodeRows("id", x="x", nulls={"x": "keep"})])
    graph = lg.Graph.from_tables(lg.Schema({"user": 2}, {}), {"users": lists}, {"users": kept})
    np.testing.assert_array_equal(graph.features([2]), np.array([[lg.MISSING, lg.MISSING]], np.float32))


def test_codes_of_texts_are_the_same_in_every_release() -> None:
    assert [text_code(text) for text in ("", "DE", "FR", "日本")] == [13551594, 13257243, 10255556, 5027684]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: NodeRows("id", x=["a"], texts=["b"]), r"texts must be columns of the features, a, got 'b'"),
        (lambda: NodeRows("id", texts=["b"]), r"the features, none, got 'b'"),
        (lambda: NodeRows("id", nulls={"id": "keep"}, x="a"), None),  # an id
        (
            lambda: NodeRows("id", x=["a"], texts=["a"], nulls={"a": 3}),
            r"nulls of 'a' must be \"skip\", \"keep\" or text, got 3",
        ),
        (lambda: EdgeRows("a", "b", weight="c", nulls={"c": "keep"}), r"\"skip\" or a finite number, got"),
    ],
)
def test_rules_for_texts_and_missing_numbers_are_checked(make: Any, says: str | None) -> None:
    if says is None:
        assert make().nulls == {"id": "keep"}  # a text like any other
        return
    with pytest.raises(InputError, match=says):
        make()


def test_texts_must_be_text() -> None:
    mapping = TableMapping([NodeRows("id", x=["a"], texts=["a"])])
    reader = TableReader(mapping, lg.Schema({"user": 1}, {}), "users")
    with pytest.raises(InputError, match=r"users, nodes\[0\]: column 'a': expected text, got int64"):
        reader.events(pa.table({"id": [1], "a": [2]}))
