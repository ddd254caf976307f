"""Keys that repeat in a table: what is found in runs on the disk is what a dictionary finds."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import livegnn as lg
from gate import draws
from livegnn.errors import InputError
from livegnn.tables import TableReader, list_files, read_file
from livegnn.tables.repetitions import Repetitions

SCHEMAS = [
    lg.Schema(
        {"user": 1},
        {("user", "pays", "user"): lg.EdgeSchema(undirected=undirected, duplicates="keep")},
        text_ids=text_ids,
    )
    for undirected in (False, True)
    for text_ids in (False, True)
]
EDGES = lg.TableMapping(edges=[lg.EdgeRows("a", "b", key="k")])
USERS = lg.TableMapping([lg.NodeRows("a", unique=True)])


def find(
    schema: lg.Schema, mapping: lg.TableMapping, rows: list[tuple[Any, ...]], run: int, part: int
) -> str:
    """The error for a table, in parts; "" for none."""
    reader = TableReader(mapping, schema, "file.csv")
    (entry,) = reader.entries
    undirected = schema.edge_types["user", "pays", "user"].undirected and bool(mapping.edges)
    keys = Repetitions(entry, undirected, run)
    names = {"a": 0, "b": 1, "k": 2}
    try:
        for begin in range(0, len(rows), part):
            some = rows[begin : begin + part]
            table = pa.table({name: [row[at] for row in some] for name, at in names.items()})
            at = np.arange(len(some))
            one = reader.given(entry, reader.columns_of(table), at, at + begin)
            keys.add(one, at + begin)
        keys.finish()
    except InputError as error:
        return str(error)
    finally:
        keys.close()
    return ""


def repeated(rows: list[tuple[Any, ...]], *, undirected: bool) -> set[tuple[int, int]]:
    """Each row whose key an earlier row has, with the last such row."""
    seen: dict[object, int] = {}
    pairs = set()
    for at, row in enumerate(rows):
        key = (*sorted(row[:2]), *row[2:]) if undirected else row
        if key in seen:
            pairs.add((seen[key], at))
        seen[key] = at
    return pairs


def without_direction(row: tuple[int, int, int]) -> tuple[int, ...]:
    return (*sorted(row[:2]), row[2])


@settings(max_examples=draws(100, 2000), deadline=None)
@given(
    st.integers(0, 3),
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 3)),
        unique_by=without_direction,
        max_size=30,
    ),
    st.tuples(st.integers(0, 29), st.integers(0, 30), st.booleans()),
    st.integers(1, 9),
    st.integers(1, 12),
    st.booleans(),
)
@example(2, [(1, 2, 0), (3, 4, 0)], (0, 2, True), 2, 1, True)
@example(3, [(1, 2, 0), (3, 4, 0)], (0, 2, True), 2, 1, True)
def test_a_key_that_repeats_is_found(
    kind: int,
    rows: list[tuple[Any, ...]],
    again: tuple[int, int, bool],
    run: int,
    part: int,
    edges: bool,
) -> None:
    of, to, turned = again
    if rows:
        a, b, key = rows[of % len(rows)]
        rows = [*rows[:to], (b, a, key) if turned else (a, b, key), *rows[to:]]
    schema = SCHEMAS[kind]
    if schema.text_ids:
        rows = [(f"é{a}"[a % 2 :], f"é{b}"[b % 2 :], key) for a, b, key in rows]
    undirected = schema.edge_types["user", "pays", "user"].undirected
    keys = rows if edges else [(row[0],) for row in rows]
    expected = repeated(keys, undirected=undirected and edges)
    said = find(schema, EDGES if edges else USERS, rows, run, part)
    columns = "columns 'a', 'b', 'k'" if edges else "column 'a'"
    kind_of, place = ("edge", "edges[0]") if edges else ("node", "nodes[0]")
    named = {
        f"file.csv, {place}: row {second}, {columns}: expected another {kind_of} than row {first} gives"
        for first, second in expected
    }
    assert said.partition(", got")[0] in (named or {""})


def test_many_rows_stay_on_the_disk() -> None:
    """Each run is compared with all others; what is left is removed."""
    rows = [(at, at + 1, 0) for at in range(5000)]
    assert find(SCHEMAS[0], EDGES, rows, 97, 89) == ""
    rows[4999] = rows[3]
    assert "row 4999, columns 'a', 'b', 'k': expected another edge than row 3 gives" in find(
        SCHEMAS[0], EDGES, rows, 97, 89
    )


@pytest.mark.parametrize(
    ("mapping", "refused"),
    [
        (lg.NodeRows("a"), False),
        (lg.NodeRows("a", removes=True), True),
        (lg.NodeRows("a", removes=True, unique=False), False),
        (lg.NodeRows("a", unique=True, where={"b": 1}), False),
        (lg.EdgeRows("a", "b"), False),
        (lg.EdgeRows("a", "b", key="k"), True),
        (lg.EdgeRows("a", "b", key="k", unique=False), False),
        (lg.EdgeRows("a", "b", unique=True), True),
    ],
)
def test_which_entries_may_repeat(mapping: lg.NodeRows | lg.EdgeRows, refused: bool, tmp_path: Path) -> None:
    table = (
        lg.TableMapping([mapping]) if isinstance(mapping, lg.NodeRows) else lg.TableMapping(edges=[mapping])
    )
    (tmp_path / "t.csv").write_text("a,b,k\n1,1,1\n2,3,1\n2,3,1\n2,3,2\n", encoding="utf-8")
    (file,) = list_files([tmp_path])
    assert sum(len(events) for _, events in read_file(file, table, SCHEMAS[0])) > 0
    rows = pa.table({"a": [1, 2, 2, 2], "b": [1, 3, 3, 3], "k": [1, 1, 1, 2]})
    users = pa.table({"a": [1, 2, 3]})
    both = {"users": users, "t": rows}
    mappings = {"users": lg.TableMapping([lg.NodeRows("a")]), "t": table}
    if not refused:
        list(read_file(file, table, SCHEMAS[0], check_keys=True))
        lg.Graph.from_tables(SCHEMAS[0], both, mappings)
        return
    with pytest.raises(InputError, match=r"t.csv, .*: row 2, column.* than row 1 gives, got the same"):
        list(read_file(file, table, SCHEMAS[0], rows=1, check_keys=True))
    with pytest.raises(InputError, match=r"t, .*: row 2, column.* than row 1 gives"):
        lg.Graph.from_tables(SCHEMAS[0], both, mappings)
