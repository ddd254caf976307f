"""Reads rows of a table as events, by a mapping that fits a schema."""

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import numpy as np
import pyarrow as pa

from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.events.builder import from_chunks
from livegnn.schema import Schema
from livegnn.tables.columns import (
    Column,
    WrongKindError,
    count_rows,
    expected_of,
    is_list,
    is_number,
    is_text,
    plain,
    plain_type,
    to_id_column,
    to_keys,
    to_matrix,
    to_numbers,
    to_times,
)
from livegnn.tables.conditions import check_condition, meets
from livegnn.tables.entries import Entry, fit_entries
from livegnn.tables.given import Given, in_order, without_repetitions
from livegnn.tables.mapping import KEEP, SKIP, EdgeRows, NodeRows, TableMapping
from livegnn.tables.repetitions import WholeTable
from livegnn.tables.streams import ROWS_AT_ONCE, open_stream, read_parts
from livegnn.types import MISSING


class TableReader:
    """A mapping for one table and graphs of one schema. name: of the table, for errors.

    Raises InputError, or UnknownTypeError, if the mapping does not fit the schema.

    Thread safety: it is not changed.
    """

    def __init__(self, mapping: TableMapping, schema: Schema, name: str = "table") -> None:
        if not isinstance(mapping, TableMapping):
            raise InputError(f"the mapping of {name} must be a TableMapping, got {type(mapping).__name__}")
        self.mapping, self.schema, self.name = mapping, schema, name
        self.nodes, self.edges = fit_entries(mapping, schema, name)
        self.entries = [*self.nodes, *self.edges]

    def check(self, columns: pa.Schema) -> None:
        """Raises InputError if a column of a table is missing, or of another kind than the mapping needs."""
        kinds: dict[str, pa.DataType] = {}
        for name in self.mapping.columns:
            found = columns.get_all_field_indices(name)
            if len(found) != 1:
                entry = next(one for one in self.entries if name in _named(one))
                got = ", ".join(map(repr, columns.names)) or "none"
                what = f"two columns {name!r}" if found else got
                raise InputError(f"{entry.place}expected one column {name!r}, got {what}")
            kinds[name] = plain_type(columns.field(found[0]).type)
        for entry in self.entries:
            rows = entry.rows
            for name, role in entry.roles():
                expected = expected_of(role, kinds[name], text_ids=self.schema.text_ids)
                if role == "features" and len(rows.features) > 1 and is_list(kinds[name]):
                    expected = "numbers"
                if expected is not None:
                    raise WrongKindError(
                        f"{entry.place}column {name!r}: expected {expected}, got {kinds[name]}", name
                    )
                self._check_fill(entry, name, role, kinds[name])
            for condition in rows.conditions:
                kind = kinds[condition.column]
                check_condition(condition, kind, f"{entry.place}where of column {condition.column!r}")
            if rows.time is not None and rows.time_unit is not None:
                kind = kinds[rows.time]
                if not is_number(kind) and not pa.types.is_null(kind):  # of no value, nothing is known
                    raise WrongKindError(
                        f"{entry.place}column {rows.time!r}: expected numbers, because it has a time_unit, "
                        f"got {kind}: leave time_unit out",
                        rows.time,
                    )

    def _check_fill(self, entry: Entry, name: str, role: str, kind: pa.DataType) -> None:
        """Raises InputError if the value in place of nulls is none of a column of this kind."""
        rule = entry.rows.nulls.get(name, SKIP)
        if rule == SKIP or role == "time":
            return
        column = Column(name, pa.nulls(1, kind), np.zeros(1, dtype=np.int64), entry.place)
        filled = _filled(column, rule, role, entry.width).type
        expected = expected_of(role, filled, text_ids=self.schema.text_ids)
        if expected is not None:
            raise InputError(f"{entry.place}nulls of column {name!r}: expected {expected}, got {rule!r}")

    def events(
        self, table: "pa.Table | pa.RecordBatch", first_row: int = 0, whole: WholeTable | None = None
    ) -> Events:
        """The events of the rows: nodes, then edges, those of one type in the order of rows.

        first_row: the number of the first row, for errors. whole: receives the keys. Raises InputError with
        row and column.
        """
        self.check(table.schema)
        columns = self.columns_of(table)
        every, numbers = np.arange(table.num_rows), count_rows(first_row, table.num_rows)
        nodes = [self.given(entry, columns, every, numbers) for entry in self.nodes]
        edges = [self.given(entry, columns, every, numbers) for entry in self.edges]
        if whole is not None:
            whole.add([*nodes, *edges], numbers)
        return self.added(map(without_repetitions, nodes), edges)

    def counted(self, table: "pa.Table | pa.RecordBatch") -> tuple[Events, list[int]]:
        """The events of the rows, and the number of events of each row.

        Requires: a mapping with one entry. Raises as `events`.
        """
        (entry,) = self.entries
        self.check(table.schema)
        every, numbers = np.arange(table.num_rows), count_rows(0, table.num_rows)
        given = self.given(entry, self.columns_of(table), every, numbers)
        counts = np.bincount(given.rows, minlength=table.num_rows)
        chunk = given.chunk("add_nodes" if isinstance(entry.rows, NodeRows) else "add_edges")
        return from_chunks([chunk] if len(given.rows) else []), counts.tolist()

    def added(self, nodes: Iterable[Given], edges: Iterable[Given]) -> Events:
        """The events that add these nodes and edges."""
        added_nodes = [one.chunk("add_nodes") for one in in_order(nodes)]
        return from_chunks([*added_nodes, *(one.chunk("add_edges") for one in in_order(edges))])

    def read(self, source: object, rows: int = ROWS_AT_ONCE) -> Iterator[Events]:
        """The events of a table of any library, at most `rows` rows at a time: see `open_stream`.

        Raises InputError for a key that repeats where it must not, perhaps after the last part.
        """
        first = 0
        stream = open_stream(source, self.name)
        self.check(stream.schema)
        parts = read_parts(stream, self.mapping.columns, rows)
        with WholeTable(self.entries, self.schema) as whole:
            while True:
                try:
                    part = next(parts, None)
                except (pa.ArrowException, OSError) as error:
                    raise InputError(f"{self.name}: expected rows that can be read, got: {error}") from error
                if part is None:
                    break
                yield self.events(part, first, whole)
                first += part.num_rows
            whole.finish()

    def columns_of(self, table: "pa.Table | pa.RecordBatch") -> dict[str, pa.Array]:
        """The columns of a table that the mapping reads, each as one plain array."""
        columns = {}
        for name in self.mapping.columns:
            column = table.column(name)
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
                if isinstance(column, pa.ChunkedArray):  # pyarrow keeps chunks of what one array cannot hold
                    column = pa.concat_arrays(column.chunks)
            columns[name] = plain(column)
        return columns

    def given(
        self,
        entry: Entry,
        columns: Mapping[str, pa.Array],
        rows: np.ndarray,
        numbers: np.ndarray,
        *,
        keys_alone: bool = False,
    ) -> Given:
        """The nodes or edges that an entry gives of some rows. rows: their positions, in order. numbers:
        those of all rows, for errors.

        keys_alone: only the ids, keys and times; a time may be null.
        """
        chosen = _chosen(entry.rows, columns, rows, entry, numbers)
        read = _Reading(entry, columns, chosen, numbers, keys_alone=keys_alone)
        return read.nodes(self.schema) if isinstance(entry.rows, NodeRows) else read.edges(self.schema)


class _Reading:
    """One entry over some rows of a batch."""

    def __init__(
        self,
        entry: Entry,
        columns: Mapping[str, pa.Array],
        rows: np.ndarray,
        numbers: np.ndarray,
        *,
        keys_alone: bool,
    ) -> None:
        self._entry, self._columns, self._numbers = entry, columns, numbers
        self._keys_alone = keys_alone
        self._rows = self._without_skipped(rows)

    def nodes(self, schema: Schema) -> Given:
        rows = self._entry.rows
        assert isinstance(rows, NodeRows)
        ids = to_id_column(self._column(rows.id, "id"), text_ids=schema.text_ids)
        time = None if rows.time is None or self._keys_alone else self._times(rows.time, rows.time_unit)
        return Given(self._entry.type, self._rows, ids, time=time, x=self._features())

    def edges(self, schema: Schema) -> Given:
        rows = self._entry.rows
        assert isinstance(rows, EdgeRows)
        src = to_id_column(self._column(rows.src, "id"), text_ids=schema.text_ids)
        dst = to_id_column(self._column(rows.dst, "id"), text_ids=schema.text_ids)
        key = None if rows.key is None else to_keys(self._column(rows.key, "key"))
        weight = None
        if rows.weight is not None and not self._keys_alone:
            weight = to_numbers(self._column(rows.weight, "number"))
        time = None if rows.time is None else self._times(rows.time, rows.time_unit)
        return Given(self._entry.type, self._rows, src, dst, weight, time, self._features(), key)

    def _without_skipped(self, rows: np.ndarray) -> np.ndarray:
        """The rows without those that have a null where the mapping says "skip"."""
        for name in (*self._entry.rows.keys, *self._entry.rows.values):
            column = self._columns[name]
            if self._entry.rows.nulls.get(name) == SKIP and column.null_count:
                valid = column.is_valid().to_numpy(zero_copy_only=False)
                rows = rows[valid[rows]]
        return rows

    def _column(self, name: str, role: str) -> Column:
        """A column at the rows, with the values that stand for nulls."""
        column = self._as_it_is(name)
        if not column.values.null_count:
            return column
        rule = self._entry.rows.nulls.get(name)
        if rule is None:
            raise _is_null(column)
        return column._replace(values=_filled(column, rule, role, self._entry.width))

    def _times(self, name: str, unit: str | None) -> "np.ndarray":
        """The times in seconds. An old one that is null may have been any: infinity."""
        column = self._as_it_is(name)
        if not column.values.null_count:
            return to_times(column, unit)
        rule = self._entry.rows.nulls.get(name, np.inf if self._keys_alone else None)
        if rule is None:
            raise _is_null(column)
        valid = column.values.is_valid().to_numpy(zero_copy_only=False)
        times = np.full(len(valid), rule, dtype=np.float64)
        known = column._replace(values=column.values.drop_null(), rows=column.rows[valid])
        times[valid] = to_times(known, unit)
        return times

    def _as_it_is(self, name: str) -> Column:
        """A column at the rows."""
        values = self._columns[name]
        if len(self._rows) != len(values):
            values = values.take(pa.array(self._rows))
        return Column(name, values, self._numbers[self._rows], self._entry.place)

    def _features(self) -> "np.ndarray | None":
        names = self._entry.rows.features
        if not names or self._keys_alone:
            return None
        if not len(self._rows):
            return np.empty((0, self._entry.width), dtype=np.float32)
        columns = [self._column(name, self._entry.role_of(name)) for name in names]
        return to_matrix(columns, self._entry.width, self._entry.rows.codes)


def _chosen(
    rows: NodeRows | EdgeRows,
    columns: Mapping[str, pa.Array],
    positions: np.ndarray,
    entry: Entry,
    numbers: np.ndarray,
) -> np.ndarray:
    """The positions whose rows meet all conditions."""
    for condition in rows.conditions:
        try:
            met = meets(columns[condition.column], condition)
        except pa.ArrowException as error:
            raise InputError(
                f"{entry.place}rows {numbers[0]} to {numbers[-1]}, column {condition.column!r}: expected "
                f"values to compare with {condition.value!r}, got {error}"
            ) from error
        positions = positions[np.asarray(met)[positions]]
    return positions


def _filled(column: Column, rule: object, role: str, width: int) -> pa.Array:
    """The values with `rule` in place of nulls."""
    values = column.values
    kind = values.type
    if role == "text":
        return values if rule == KEEP else values.cast(pa.large_string()).fill_null(str(rule))
    rule = MISSING if rule == KEEP else rule
    if pa.types.is_null(kind):
        return pa.array([[rule] * width if role == "lists" else rule] * len(values))
    try:
        if is_list(kind):
            lists = values.cast(pa.list_(pa.float64()))
            whole = pa.concat_arrays([lists, pa.array([[rule] * width], lists.type)])
            valid = values.is_valid().to_numpy(zero_copy_only=False)
            return whole.take(pa.array(np.where(valid, np.arange(len(values)), len(values))))
        if role in ("number", "features"):
            whole = values.cast(pa.uint8()) if pa.types.is_boolean(kind) else values
            return whole.cast(pa.float64(), safe=False).fill_null(float(cast("float", rule)))
        if is_text(kind) and role == "id":
            rule = str(rule)
        elif pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
            values, kind = values.cast(pa.int64()), pa.int64()
        return values.fill_null(pa.scalar(rule, kind))
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(
            f"{column.place}nulls of column {column.name!r}: expected 'skip' or a value of "
            f"{column.values.type}, got {rule!r}"
        ) from error


def _is_null(column: Column) -> InputError:
    """The error for the nulls of a column."""
    at = np.flatnonzero(column.values.is_null().to_numpy(zero_copy_only=False))
    return column.error(at, "a value (nulls of the mapping may say 'skip' or a value instead)")


def _named(entry: Entry) -> set[str]:
    return {*entry.rows.keys, *entry.rows.values, *(one.column for one in entry.rows.conditions)}
