"""Changes of rows: the events of each kind of change, where runs end, and what is refused."""

from typing import Any

import pyarrow as pa
import pytest

import livegnn as lg
from livegnn.errors import InputError
from livegnn.tables import EdgeRows, NodeRows, RowChanges, TableMapping, TableReader, read_changes

PAYS, KNOWS = ("user", "pays", "user"), ("user", "knows", "user")
Row = dict[str, Any]


def schema(duplicates: str = "replace") -> lg.Schema:
    pays = lg.EdgeSchema(weighted=True, timed=True, duplicates=duplicates)  # type: ignore[arg-type]
    return lg.Schema({"user": 0}, {PAYS: pays, KNOWS: lg.EdgeSchema(undirected=True)}, auto_add=["user"])


def changes(*given: tuple[str, Row | None, Row | None], known: list[bool] | None = None) -> RowChanges:
    """Changes of rows with the columns u, i, w and t; each has its kind, the old row and the new one."""
    columns = pa.schema([(name, pa.int64()) for name in ("u", "i", "w", "t", "k")])
    old, new = (
        pa.Table.from_pylist([one[at] or {} for one in given], columns)
        for at in (1, 2)  # type: ignore[misc]
    )
    return RowChanges([one[0] for one in given], new, old, known)  # type: ignore[misc]


def kinds(mapping: TableMapping, told: RowChanges, duplicates: str = "replace") -> list[tuple[str, Any]]:
    """Each event, as its kind and its node, or the ends of its edge."""
    found: list[tuple[str, Any]] = []
    for chunk in read_changes(TableReader(mapping, schema(duplicates)), told).chunks:
        ids = chunk.ids.tolist()
        ends = ids if chunk.dst is None else list(zip(ids, chunk.dst.tolist(), strict=True))
        found += [(chunk.kind, one) for one in ends]
    return found


PAYMENTS = TableMapping(edges=[EdgeRows("u", "i", PAYS, weight="w", time="t", where={"w": {"at_least": 1}})])
OLD = {"u": 1, "i": 2, "w": 5, "t": 10, "k": 0}
ADDED, REMOVED = ("add_edges", (1, 2)), ("remove_edges", (1, 2))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("insert", None, OLD), [ADDED]),
        (("delete", OLD, None), [REMOVED]),
        (("update", OLD, OLD), [ADDED]),
        (("update", OLD, {**OLD, "w": 6}), [ADDED]),
        (("update", OLD, {**OLD, "t": 11}), [ADDED]),
        (("update", OLD, {**OLD, "t": 9}), [REMOVED, ADDED]),
        (("update", {**OLD, "t": None}, OLD), [REMOVED, ADDED]),
        (("update", OLD, {**OLD, "i": 3}), [REMOVED, ("add_edges", (1, 3))]),
        (("update", OLD, {**OLD, "w": 0}), [REMOVED]),
        (("update", {**OLD, "w": 0}, OLD), [ADDED]),
        (("update", {**OLD, "w": 0}, {**OLD, "w": 0}), []),
    ],
)
def test_each_kind_of_change(change: tuple[str, Row | None, Row | None], expected: list[Any]) -> None:
    assert kinds(PAYMENTS, changes(change)) == expected


def test_an_update_without_the_old_row_only_adds() -> None:
    told = changes(("update", OLD, {**OLD, "i": 3}), ("update", OLD, {**OLD, "i": 4}), known=[False, True])
    added = [("add_edges", (1, 3)), ("add_edges", (1, 4))]
    assert kinds(PAYMENTS, told) == [REMOVED, *added]
    alone = RowChanges(["update"], changes(("update", OLD, OLD)).new)
    assert kinds(PAYMENTS, alone) == [ADDED]


@pytest.mark.parametrize("removes", [False, True])
def test_a_changed_id_is_another_node(removes: bool) -> None:
    users = TableMapping([NodeRows("u", removes=removes)])
    told = changes(("update", OLD, {**OLD, "u": 3}), ("delete", {**OLD, "u": 4}, None))
    gone = [("remove_nodes", 1), ("remove_nodes", 4)] if removes else []
    assert kinds(users, told) == [("add_nodes", 3), *gone]


def test_ends_that_change_places_stay() -> None:
    both = TableMapping([NodeRows("u", removes=True), NodeRows("i", removes=True)])
    assert kinds(both, changes(("update", OLD, {**OLD, "u": 2, "i": 1}))) == [
        ("add_nodes", 2),
        ("add_nodes", 1),
    ]


def test_a_node_that_a_row_gives_twice_is_removed_once() -> None:
    both = TableMapping([NodeRows("u", removes=True), NodeRows("i", removes=True)])
    assert kinds(both, changes(("delete", {**OLD, "i": 1}, None))) == [("remove_nodes", 1)]


def test_a_run_ends_where_an_edge_is_removed_that_another_row_adds() -> None:
    told = changes(("insert", None, OLD), ("delete", OLD, None), ("insert", None, OLD))
    assert kinds(PAYMENTS, told) == [ADDED, REMOVED, ADDED]
    apart = changes(
        ("delete", OLD, None), ("insert", None, {**OLD, "i": 3}), ("delete", {**OLD, "i": 4}, None)
    )
    assert kinds(PAYMENTS, apart) == [REMOVED, ("remove_edges", (1, 4)), ("add_edges", (1, 3))]


def test_an_undirected_edge_is_the_same_from_both_ends() -> None:
    knows = TableMapping(edges=[EdgeRows("u", "i", KNOWS)])
    told = changes(("insert", None, OLD), ("delete", {**OLD, "u": 2, "i": 1}, None))
    assert kinds(knows, told) == [ADDED, ("remove_edges", (2, 1))]
    told = changes(("delete", {**OLD, "u": 2, "i": 1}, None), ("insert", None, OLD))
    assert kinds(knows, told) == [("remove_edges", (2, 1)), ADDED]


def test_a_run_ends_where_a_node_is_removed_that_an_edge_has() -> None:
    """By rows, the edge is removed with its node; in one run, it would be added after that."""
    mapping = TableMapping([NodeRows("u", where={"w": 1}, removes=True)], [EdgeRows("u", "i", KNOWS)])
    told = changes(("insert", None, {**OLD, "w": 2}), ("delete", {**OLD, "i": 1, "w": 1}, None))
    assert kinds(mapping, told) == [ADDED, ("remove_edges", (1, 1)), ("remove_nodes", 1)]


@pytest.mark.parametrize(
    ("duplicates", "says"),
    [
        ("add", r"sales, edges\[0\]: row 11: expected rows that are only inserted, because its edges add up"),
        ("keep", r"sales, edges\[0\]: row 11: expected rows that are only inserted, .* no key"),
    ],
)
def test_edges_that_cannot_be_distinguished_are_refused(duplicates: str, says: str) -> None:
    reader = TableReader(PAYMENTS, schema(duplicates), "sales")
    inserted = ("insert", None, OLD)
    assert len(read_changes(reader, changes(inserted))) == 1
    with pytest.raises(InputError, match=says):
        read_changes(reader, changes(inserted, ("update", OLD, OLD)), 10)
    with pytest.raises(InputError, match=says):
        read_changes(reader, changes(inserted, ("delete", OLD, None)), 10)


def test_parallel_edges_are_removed_by_key() -> None:
    mapping = TableMapping(edges=[EdgeRows("u", "i", PAYS, key="k")])
    told = changes(("update", OLD, {**OLD, "k": 7}), ("delete", {**OLD, "k": 2}, None))
    events = read_changes(TableReader(mapping, schema("keep")), told)
    removed, added = events.chunks
    assert (removed.kind, removed.key.tolist()) == ("remove_edges", [0, 2])  # type: ignore[union-attr]
    assert (added.kind, added.key.tolist()) == ("add_edges", [7])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (
            RowChanges(["upsert"], changes(("insert", None, OLD)).new),
            r"row 5: expected one of insert, .*'upsert'",
        ),  # type: ignore[list-item]
        (
            RowChanges(["delete"], changes(("insert", None, OLD)).new),
            r"row 5: expected the old row of a delete",
        ),
        (
            RowChanges([], changes(("insert", None, OLD)).new),
            r"expected 0 new rows, one for each change, got 1",
        ),
        (changes(("insert", None, OLD), known=[]), r"expected 1 values in has_old, got 0"),
        (changes(("delete", {**OLD, "u": None}, None)), r"row 5, column 'u': expected a value"),
        (changes(("update", OLD, {**OLD, "u": -1})), r"row 5, column 'u': expected an id from 0"),
    ],
)
def test_changes_that_are_wrong_have_a_place(told: RowChanges, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_changes(TableReader(PAYMENTS, schema()), told, 5)
