"""Changes of rows as events: inserted, updated and deleted rows, in their order.

A row gives a set of nodes and edges. A change removes those that the row gave before and no longer gives, and
adds those that it gives now. Changes are read by columns, in runs. In a run, no row removes a thing that
another row touches. All its nodes are added first, then edges and nodes are removed, then edges are added.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livegnn.errors import InputError
from livegnn.events import Chunk, Events
from livegnn.events.builder import from_chunks
from livegnn.events.chunk import Kind
from livegnn.tables.columns import WrongKindError, WrongValuesError, count_rows, is_text
from livegnn.tables.entries import Entry
from livegnn.tables.given import Given, Rows, codes_of, in_order, joined, without_repetitions
from livegnn.tables.mapping import EdgeRows
from livegnn.tables.reader import TableReader
from livegnn.types import EdgeType, NodeType
from livegnn.wording import quoted

Change: TypeAlias = Literal["insert", "update", "delete"]
CHANGES: Final[tuple[Change, ...]] = ("insert", "update", "delete")


class RowChanges(NamedTuple):
    """Changes of rows, in order. kinds: of each. new: the rows after the changes; of deleted ones, anything.

    old: the rows before them; of inserted ones, anything. Without it, an update only adds, and a delete is an
    error. has_old: whether the source knows the old row of each update; by default of all.
    """

    kinds: Sequence[Change]
    new: pa.Table
    old: pa.Table | None = None
    has_old: Sequence[bool] | None = None


class _Taken(NamedTuple):
    """The nodes or edges of one type that rows give after their changes, and those that are removed. again:
    the rows whose removed edge is given again."""

    after: list[Given]
    removed: Given | None
    again: Rows


def read_changes(reader: TableReader, changes: RowChanges, first_row: int = 0) -> Events:
    """The events of the changes. first_row: the number of the first, for errors.

    Raises InputError as `TableReader.events` does; and for a delete without its old row, and an update or
    delete whose edge cannot be distinguished from others (see docs/tables.md).
    """
    taken = _take(reader, changes, first_row)
    chunks: list[Chunk] = []
    for begin, end in _runs(reader, taken, len(changes.kinds)):
        chunks += _run(taken, begin, end)
    return from_chunks(chunks)


def read_each_change(
    reader: TableReader, changes: RowChanges, first_row: int = 0, *, removing: TableReader | None = None
) -> list[Events]:
    """As `read_changes`, but the events of each change by themselves. removing: a reader of old rows, with
    the same entries in the same order; by default it is `reader`."""
    n = len(changes.kinds)
    taken = _take(reader, changes, first_row, removing)
    nodes = [one for type_, one in taken.items() if isinstance(type_, str)]
    edges = [one for type_, one in taken.items() if not isinstance(type_, str)]
    columns = [_Column(part, "add_nodes", n) for one in nodes for part in one.after]
    # If the old row was refused, its nodes may not be there; a removal of an edge needs them.
    repeated = [
        part.take(np.isin(part.rows, one.again)) for one in edges if len(one.again) for part in one.after
    ]
    columns += [_Column(part, "add_edges", n) for part in repeated]
    columns += [_Column(one.removed, "remove_edges", n) for one in edges if one.removed is not None]
    columns += [_Column(one.removed, "remove_nodes", n) for one in nodes if one.removed is not None]
    columns += [_Column(part, "add_edges", n) for one in edges for part in one.after]
    return [from_chunks(part for one in columns for part in one.of(row)) for row in range(n)]


class _Column:
    """The events of one kind and type that an entry gives, by row."""

    def __init__(self, given: Given, kind: Kind, rows: int) -> None:
        self._chunk = given.chunk(kind)
        self._bounds = np.searchsorted(given.rows, np.arange(rows + 1)).tolist()

    def of(self, row: int) -> Iterator[Chunk]:
        begin, end = self._bounds[row], self._bounds[row + 1]
        if begin < end:
            yield self._chunk.part(slice(begin, end))


def _take(
    reader: TableReader, changes: RowChanges, first_row: int, removing: TableReader | None = None
) -> "dict[NodeType | EdgeType, _Taken]":
    """The nodes and edges that the changes add and remove, by type."""
    old_reader = reader if removing is None else removing
    new, old = _positions(changes, reader.name, first_row)
    numbers = count_rows(first_row, len(changes.kinds))
    _check(reader, changes.new, numbers)
    after_columns = reader.columns_of(changes.new)
    before_columns = {} if changes.old is None else old_reader.columns_of(changes.old)
    if changes.old is not None:
        _check(old_reader, changes.old, numbers)
    taken: dict[NodeType | EdgeType, _Taken] = {}
    by_type: dict[NodeType | EdgeType, list[tuple[Entry, Entry]]] = {}
    for entry, old_entry in zip(reader.entries, old_reader.entries, strict=True):
        by_type.setdefault(entry.type, []).append((entry, old_entry))
    for type_, entries in by_type.items():
        after = [reader.given(entry, after_columns, new, numbers) for entry, _ in entries]
        before = []
        for _, entry in entries:
            if not len(old):
                continue
            _check_removable(reader, entry, numbers[old])
            if entry.rows.removes:
                before.append(reader.given(entry, before_columns, old, numbers, keys_alone=True))
        taken[type_] = _Taken(after, *_removed(before, after))
    return taken


def _check(reader: TableReader, table: pa.Table, numbers: Rows) -> None:
    """As `TableReader.check`; a column of texts or truths that should be of numbers is wrong in all rows that
    have a value there. Numbers may be of another kind because of other rows alone."""
    try:
        reader.check(table.schema)
    except WrongKindError as error:
        column = table.column(error.column)
        there = column.is_valid().to_numpy()
        if there.any() and (is_text(column.type) or pa.types.is_boolean(column.type)):
            raise WrongValuesError(str(error), numbers[there]) from None
        raise


def _positions(changes: RowChanges, name: str, first_row: int) -> tuple[Rows, Rows]:
    """The positions of changes that have a new row, and of those that have an old one."""
    kinds, n = np.asarray(changes.kinds, dtype=object), len(changes.kinds)
    for at, kind in enumerate(kinds.tolist()):
        if kind not in CHANGES:
            raise InputError(
                f"{name}: row {first_row + at}: expected one of {', '.join(CHANGES)}, got {quoted(kind)}"
            )
    for table, what in ((changes.new, "new"), (changes.old, "old")):
        if table is not None and table.num_rows != n:
            raise InputError(f"{name}: expected {n} {what} rows, one for each change, got {table.num_rows}")
    deleted, updated = kinds == "delete", kinds == "update"
    if changes.old is None:
        if deleted.any():
            row = first_row + int(np.argmax(deleted))
            raise InputError(f"{name}: row {row}: expected the old row of a delete, got none")
        return np.flatnonzero(~deleted), np.empty(0, dtype=np.int64)
    if changes.has_old is not None:
        if len(changes.has_old) != n:
            raise InputError(f"{name}: expected {n} values in has_old, got {len(changes.has_old)}")
        updated = updated & np.asarray(changes.has_old, dtype=bool)
    return np.flatnonzero(~deleted), np.flatnonzero(deleted | updated)


def _check_removable(reader: TableReader, entry: Entry, rows: Rows) -> None:
    """Raises InputError if an edge of this entry cannot be distinguished from others of its type."""
    if not isinstance(entry.rows, EdgeRows):
        return
    duplicates = reader.schema.edge_types[cast("EdgeType", entry.type)].duplicates
    if duplicates == "add":
        why = "its edges add up (duplicates='add'), and a sum cannot be taken apart"
    elif duplicates == "keep" and entry.rows.key is None:
        why = "its edges have no key (duplicates='keep'): give the entry a column of keys"
    else:
        return
    raise InputError(f"{entry.place}row {rows[0]}: expected rows that are only inserted, because {why}")


def _removed(before: list[Given], after: list[Given]) -> tuple[Given | None, Rows]:
    """Those before that the same row does not give after, or gives with an earlier time; each once a row. And
    the rows that give one with an earlier time."""
    before = [one for one in before if len(one.rows)]
    if not before:
        return None, np.empty(0, dtype=np.int64)
    whole = joined([one._replace(time=None) for one in before])
    later = [one for one in after if len(one.rows)]
    old_codes, new_codes = _pairs(whole, later)
    gone = ~np.isin(old_codes, new_codes)
    back = np.zeros(len(gone), dtype=bool)
    if len(new_codes):
        back = _goes_back(old_codes, _times(before), new_codes, _times(later, in_rows=False))
    first = np.zeros(len(whole.rows), dtype=bool)
    first[np.unique(old_codes, return_index=True)[1]] = True
    return whole.take((gone | back) & first), np.unique(whole.rows[back])


def _times(parts: Sequence[Given], *, in_rows: bool = True) -> "npt.NDArray[np.float64]":
    """The times of parts, one after the other, or in the order of `joined`; without a column, -infinity."""
    times = np.concatenate(
        [np.full(len(one.rows), -np.inf) if one.time is None else one.time for one in parts]
    )
    if not in_rows:
        return cast("npt.NDArray[np.float64]", times)
    order = np.argsort(np.concatenate([one.rows for one in parts]), kind="stable")
    return cast("npt.NDArray[np.float64]", times[order])


def _goes_back(
    old: Rows, old_times: "npt.NDArray[np.float64]", new: Rows, new_times: "npt.NDArray[np.float64]"
) -> "npt.NDArray[np.bool_]":
    """Whether an edge has a later time before than after: the graph would ignore the earlier one."""
    order = np.lexsort((new_times, new))
    codes, earliest = np.unique(new[order], return_index=True)
    at = np.searchsorted(codes, old)
    at[at == len(codes)] = 0
    found = codes[at] == old
    return cast("npt.NDArray[np.bool_]", found & (new_times[order][earliest][at] < old_times))


def _pairs(whole: Given, after: Sequence[Given]) -> tuple[Rows, Rows]:
    """A number for each row with the key of a node or edge, of those before and those after."""
    parts = [whole, *after]
    keys = _codes(parts)
    rows = np.concatenate([one.rows for one in parts])
    codes = keys + rows * (int(keys.max(initial=0)) + 1)
    return codes[: len(whole.rows)], codes[len(whole.rows) :]


def _codes(parts: Sequence[Given], *, undirected: bool = False) -> Rows:
    """A number for each distinct node or edge of `parts`, one part after the other."""
    n = sum(len(one.rows) for one in parts)
    if parts[0].dst is None:
        return codes_of(pa.concat_arrays([one.ids for one in parts]))
    ends = codes_of(pa.concat_arrays([*(one.ids for one in parts), *(one.dst for one in parts)]))
    src, dst = ends[:n], ends[n:]
    if undirected:
        src, dst = np.minimum(src, dst), np.maximum(src, dst)
    codes = src * (int(ends.max(initial=0)) + 1) + dst
    _, codes = np.unique(codes, return_inverse=True)
    if parts[0].key is not None:
        keys = np.concatenate([one.key for one in parts if one.key is not None]).astype(np.int64)
        _, codes = np.unique(codes * (1 << 32) + keys, return_inverse=True)
    return cast("Rows", codes)


class _Touches(NamedTuple):
    """Rows, the things that they touch, and whether a row removes the thing."""

    rows: Rows
    codes: Rows
    removes: "npt.NDArray[np.bool_]"


def _runs(
    reader: TableReader, taken: "dict[NodeType | EdgeType, _Taken]", n: int
) -> Iterator[tuple[int, int]]:
    """The longest runs of rows in which no row removes anything that another one touches."""
    last = np.full(n, -1, dtype=np.int64)  # the last row before each that may not be in a run with it
    for type_, one in taken.items():
        if one.removed is None or not len(one.removed.rows):
            continue
        is_edge = isinstance(type_, tuple)
        undirected = is_edge and reader.schema.edge_types[cast("EdgeType", type_)].undirected
        after = [part for part in one.after if len(part.rows)]
        parts = [one.removed, *after]
        touched = _Touches(
            np.concatenate([part.rows for part in parts]),
            _codes(parts, undirected=undirected),
            np.repeat([True, *[False] * len(after)], [len(part.rows) for part in parts]),
        )
        _note(last, touched)
        if not is_edge:
            _note(last, _touched_nodes(cast("NodeType", type_), taken))
    begin = 0
    for row, other in enumerate(last.tolist()):
        if other >= begin:
            yield begin, row
            begin = row
    if begin < n:
        yield begin, n


def _touched_nodes(node_type: NodeType, taken: "dict[NodeType | EdgeType, _Taken]") -> _Touches:
    """The nodes of a type that are removed, and those at the ends of edges."""
    removed = taken[node_type].removed
    assert removed is not None
    rows, ids = [removed.rows], [removed.ids]
    for type_, one in taken.items():
        if isinstance(type_, str):
            continue
        for part in [*one.after, *([] if one.removed is None else [one.removed])]:
            for end, column in ((type_[0], part.ids), (type_[2], part.dst)):
                if end == node_type:
                    rows.append(part.rows)
                    ids.append(column)
    removes = np.zeros(sum(map(len, rows)), dtype=bool)
    removes[: len(removed.rows)] = True
    return _Touches(np.concatenate(rows), codes_of(pa.concat_arrays(ids)), removes)


def _note(last: Rows, touched: _Touches) -> None:
    """Notes for each row the last one before it that touches a thing that one of the two removes."""
    order = np.lexsort((touched.rows, touched.codes))
    rows, codes, removes = touched.rows[order], touched.codes[order], touched.removes[order]
    begins = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    group = np.repeat(np.arange(len(begins)), np.diff(np.r_[begins, len(codes)]))
    any_before = _last_before(rows, group, begins, np.ones(len(rows), dtype=bool))
    removal_before = _last_before(rows, group, begins, removes)
    np.maximum.at(last, rows, np.where(removes, any_before, removal_before))


def _last_before(rows: Rows, group: Rows, begins: Rows, counts: "npt.NDArray[np.bool_]") -> Rows:
    """The last row below each in its group for which `counts` holds; -1 for none. Rows grow in a group."""
    n = len(rows)
    marked = np.where(counts, np.arange(n), -1)
    reached = np.maximum.accumulate(marked)
    first_of_row = np.flatnonzero(np.r_[True, (rows[1:] != rows[:-1]) | (group[1:] != group[:-1])])
    run = np.repeat(first_of_row, np.diff(np.r_[first_of_row, n]))  # where the same row begins in the group
    before = np.where(run > 0, reached[run - 1], -1)
    return cast("Rows", np.where(before >= begins[group], rows[before], -1))


def _run(taken: "dict[NodeType | EdgeType, _Taken]", begin: int, end: int) -> Iterator[Chunk]:
    """The events of one run of rows."""
    nodes = [one for type_, one in taken.items() if isinstance(type_, str)]
    edges = [one for type_, one in taken.items() if not isinstance(type_, str)]
    added = [without_repetitions(part.between(begin, end)) for one in nodes for part in one.after]
    yield from (part.chunk("add_nodes") for part in in_order(added))
    for some, kind in ((edges, "remove_edges"), (nodes, "remove_nodes")):
        for one in some:
            if one.removed is not None and len((part := one.removed.between(begin, end)).rows):
                yield part.chunk("remove_edges" if kind == "remove_edges" else "remove_nodes")
    added = [part.between(begin, end) for one in edges for part in one.after]
    yield from (part.chunk("add_edges") for part in in_order(added))
