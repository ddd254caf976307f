"""Rows, or changes of rows, in messages of JSON of the usual form: the native core reads them into columns.

The form is that of `cpp/json/usual_rows.h`: flat objects, alone or in an envelope of Debezium without a
schema, with values of one kind in each column. `row_messages` reads such messages equally, and slower. All
others are for it, whether they are valid or not: there is one place that reports errors.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

import livegnn._core as _core
from livegnn.tables import RowChanges
from livegnn.tables.changes import CHANGES

_INTEGERS, _REALS, _TEXTS, _TRUTHS = range(1, 5)  # kinds of columns
_NUMBERS: Final = {_INTEGERS: pa.int64(), _REALS: pa.float64()}


class UsualRows(NamedTuple):
    """Messages as changes of rows. are_added: whether none of them has an old row."""

    changes: RowChanges
    are_added: bool


def read_usual_rows(
    messages: Sequence[bytes], columns: Sequence[str], *, are_changes: bool
) -> UsualRows | None:
    """The rows of messages, None if one of them is not of the form.

    columns: those that are read, in order. are_changes: whether the messages are Debezium's, or else rows.
    """
    found = _core.read_usual_rows(list(messages), list(columns), are_changes)
    if found is None:
        return None
    kinds, has_old, new, old = found
    table = _to_table(columns, new)
    named = [CHANGES[kind] for kind in kinds.tolist()]
    if not has_old.any():
        return UsualRows(RowChanges(named, table), are_added=True)
    changes = RowChanges(named, table, _to_table(columns, old), has_old.astype(bool).tolist())
    return UsualRows(changes, are_added=False)


def _to_table(names: Sequence[str], columns: "Sequence[_core._RowColumn]") -> pa.Table:
    return pa.table({name: _to_array(column) for name, column in zip(names, columns, strict=True)})


def _to_array(column: "_core._RowColumn") -> pa.Array:
    kind, values, ends, valid = column
    size = len(valid)
    if values is None:
        return pa.nulls(size)
    mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if kind == _TEXTS:
        return pa.Array.from_buffers(pa.string(), size, [mask, pa.py_buffer(ends), pa.py_buffer(values)])
    if kind == _TRUTHS:
        bits = pa.py_buffer(np.packbits(values != 0, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), size, [mask, bits])
    return pa.Array.from_buffers(_NUMBERS[kind], size, [mask, pa.py_buffer(values)])
