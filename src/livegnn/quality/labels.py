"""Labels of nodes as rows of a table, such as chargebacks; the last row of a node and a time counts."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from livegnn.errors import InputError
from livegnn.quality.label_mapping import LabelMapping
from livegnn.tables.columns import (
    Column,
    count_rows,
    expected_of,
    is_number,
    is_text,
    plain,
    plain_type,
    to_id_column,
    to_times,
)
from livegnn.tables.conditions import check_condition, meets
from livegnn.tables.files import FileForm
from livegnn.types import DoubleArray, IntArray

_FIRST: Final = -62_135_596_800.0
_END: Final = 253_402_300_800.0


class Labels(NamedTuple):
    """Labels of nodes. ids [labels]: int64 or large_string. values [labels]: numbers, or numbers of classes;
    NaN where a label was taken back. times [labels]: in seconds since 1970, infinite without a time."""

    ids: pa.Array
    values: DoubleArray
    times: DoubleArray

    def part(self, chosen: IntArray) -> "Labels":
        """The labels at some positions."""
        return Labels(self.ids.take(pa.array(chosen)), self.values[chosen], self.times[chosen])


class LabelReader:
    """Reads labels by a mapping. text_ids: whether ids are text. name: of the table, for errors.

    Thread safety: it is not changed.
    """

    def __init__(self, mapping: LabelMapping, name: str, *, text_ids: bool) -> None:
        self.mapping, self.name, self._text = mapping, name, text_ids
        self._place = f"{name}, "

    @property
    def form(self) -> FileForm:
        """The columns of a file, and the kinds of those that a text file does not say."""
        mapping = self.mapping
        kinds = {mapping.id: pa.string() if self._text else pa.int64()}
        if mapping.time is not None and mapping.time_unit is None:
            kinds.setdefault(mapping.time, pa.string())
        if mapping.classes:
            kinds.setdefault(mapping.label, pa.string())
        for condition in mapping.conditions:
            values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
            if all(isinstance(one, str) for one in values):
                kinds.setdefault(condition.column, pa.string())
        return FileForm(mapping.columns, kinds, mapping.csv)

    def check(self, columns: pa.Schema) -> None:
        """Raises InputError if a column is missing, or of another kind than the mapping needs."""
        kinds: dict[str, pa.DataType] = {}
        for name in self.mapping.columns:
            found = columns.get_all_field_indices(name)
            if len(found) != 1:
                got = f"two columns {name!r}" if found else ", ".join(map(repr, columns.names)) or "none"
                raise InputError(f"{self._place}expected one column {name!r}, got {got}")
            kinds[name] = plain_type(columns.field(found[0]).type)
        mapping = self.mapping
        self._check_kind(mapping.id, expected_of("id", kinds[mapping.id], text_ids=self._text), kinds)
        label = kinds[mapping.label]
        if mapping.classes:
            expected = None if is_text(label) or pa.types.is_null(label) else "text, one of classes"
        else:
            expected = expected_of("features", label, text_ids=False)
            if is_text(label):
                expected = "numbers or truth values (text needs classes in the mapping)"
        self._check_kind(mapping.label, expected, kinds)
        if mapping.time is not None:
            self._check_kind(mapping.time, expected_of("time", kinds[mapping.time], text_ids=False), kinds)
            if mapping.time_unit is not None and not is_number(kinds[mapping.time]):
                self._check_kind(mapping.time, "numbers, because it has a time_unit", kinds)
        for condition in mapping.conditions:
            check_condition(
                condition, kinds[condition.column], f"{self._place}where of column {condition.column!r}"
            )

    def _check_kind(self, name: str, expected: str | None, kinds: Mapping[str, pa.DataType]) -> None:
        if expected is not None and not pa.types.is_null(kinds[name]):
            raise InputError(f"{self._place}column {name!r}: expected {expected}, got {kinds[name]}")

    def read(self, table: pa.Table, first_row: int = 0) -> Labels:
        """The labels of rows. first_row: the number of the first, for errors. Raises InputError."""
        self.check(table.schema)
        mapping, rows = self.mapping, np.arange(table.num_rows)
        columns = {name: plain(table.column(name).combine_chunks()) for name in mapping.columns}
        for condition in mapping.conditions:
            rows = rows[np.asarray(meets(columns[condition.column], condition), np.bool_)[rows]]
        numbers = count_rows(first_row, table.num_rows)[rows]

        def column(name: str) -> Column:
            return Column(name, columns[name].take(pa.array(rows)), numbers, self._place)

        def whole(name: str) -> Column:
            given = column(name)
            given.refuse(given.values.is_null(), "a value, because it says which label it is")
            return given

        ids = to_id_column(whole(mapping.id), text_ids=self._text)
        times: DoubleArray = np.full(len(rows), np.inf)
        if mapping.time is not None and len(rows):
            given = whole(mapping.time)
            times = to_times(given, mapping.time_unit)
            given.refuse((times < _FIRST) | (times >= _END), "a time in the years 1 to 9999 (see time_unit)")
        return Labels(ids, self._values(column(mapping.label)), times)

    def _values(self, column: Column) -> DoubleArray:
        values = column.values
        if pa.types.is_null(values.type):
            return np.full(len(values), np.nan)
        if self.mapping.classes:
            found = pc.index_in(values.cast(pa.string()), pa.array(self.mapping.classes))
            known = np.asarray(pc.or_(found.is_valid(), values.is_null()))
            column.refuse(~known, f"one of the classes {', '.join(map(repr, self.mapping.classes))}")
            values = found
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.uint8())
        floats = np.asarray(values.cast(pa.float64(), safe=False).fill_null(np.nan), np.float64)
        infinite = np.isinf(floats)
        column.refuse(infinite, "a finite number")
        if self.mapping.kind == "class":
            wrong = ~np.isnan(floats) & ((floats < 0) | (floats != np.floor(floats)))
            column.refuse(wrong, 'a class, as 0 or 1 (kind = "number" is for other numbers)')
        return floats


def join_latest(parts: Sequence[Labels], *, taken_back: bool = False) -> Labels:
    """The labels of all parts: of one node and time the last one, none if that was taken back. taken_back:
    whether these are there, as NaN, for parts that are joined with earlier ones."""
    if not parts:
        return Labels(pa.array([], pa.int64()), np.empty(0), np.empty(0))
    ids = pa.concat_arrays([one.ids for one in parts])
    values = np.concatenate([one.values for one in parts])
    times = np.concatenate([one.times for one in parts])
    codes = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((times, codes))  # stable: the last of a key stays the last
    last = np.ones(len(order), np.bool_)
    last[:-1] = (codes[order][1:] != codes[order][:-1]) | (times[order][1:] != times[order][:-1])
    kept = order[last]
    kept = np.sort(kept if taken_back else kept[~np.isnan(values[kept])])
    return Labels(ids, values, times).part(kept)
