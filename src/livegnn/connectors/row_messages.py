"""Messages that are rows of a table, or changes of rows, as events by a mapping.

A group of messages is read by columns, by the native core if all are of the usual form (`usual_rows`). If
values of a column are of several kinds, rows with the same kinds are read together. If values are wrong, the
other rows are read together; if it is not known which are wrong, the group is halved. Each message becomes
the events of one entry.

Debezium's messages are read in all their forms: with an envelope (`before`, `after`, `op`) or without one, as
its transformation ExtractNewRecordState leaves them; with the schema of Kafka Connect in each message, which
gives decimals and times their types, or without it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
import orjson
import pyarrow as pa

from livegnn.connectors.alike_rows import group_alike
from livegnn.connectors.connect_values import Converter, converters_of
from livegnn.connectors.usual_rows import UsualRows, read_usual_rows
from livegnn.errors import InputError, as_value
from livegnn.events import Events
from livegnn.events.repeated_keys import repeated_key
from livegnn.tables import RowChanges, TableReader, read_each_change
from livegnn.tables.changes import Change
from livegnn.tables.columns import WrongValuesError
from livegnn.tables.mapping import SKIP, EdgeRows, NodeRows, TableMapping
from livegnn.types import JSON
from livegnn.wording import quoted

Row: TypeAlias = Mapping[str, JSON]
_Found = TypeVar("_Found")

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Debezium's value of a large column that an update did not change, where the old row is not logged."""

_OPERATIONS: Final[dict[object, Change]] = {"c": "insert", "r": "insert", "u": "update", "d": "delete"}
_NO_CHANGE: Final = ("m",)  # a message of the application beside the tables
_SCHEMA: Final = b'{"schema":'
_PAYLOAD: Final = b',"payload":'
_SCHEMAS: Final = 256  # that are kept, of all tables and their versions
_ENVELOPE: Final = frozenset({"before", "after", "source"})
"""Fields of which an envelope has at least one beside `op`."""
_FLAT: Final = "__"
"""How the fields begin that Debezium adds to a row without an envelope."""


class RowChange(NamedTuple):
    """A row that was changed. converters: of columns that are not plain JSON."""

    kind: Change
    old: Row | None
    new: Row | None
    converters: Mapping[str, Converter] = {}


Parse: TypeAlias = Callable[[bytes], "RowChange | None"]
"""The change in a message, None for one that changes no row. Raises InputError."""


class RowMessages:
    """Decodes messages. parse: of one.

    Thread safety: it is not changed.
    """

    def __init__(self, reader: TableReader, parse: Parse) -> None:
        self._reader, self._parse = reader, parse
        self._are_changes = _JSON.get(parse)
        self._judged = _judged(reader)
        self._removing = _removing(reader)
        self._times = {one.rows.time for one in reader.entries}

    def decode(self, values: Sequence[bytes | None]) -> list[Events | InputError]:
        """The events of each message, none for a tombstone, or what is wrong with it."""
        usual = self._read_usual([one for one in values if one is not None])
        if usual is not None:
            with suppress(InputError):
                each = iter(read_each_change(self._reader, usual.changes))
                return [Events() if value is None else next(each) for value in values]
        found: list[Events | InputError] = [Events() for _ in values]
        at: list[int] = []
        changes: list[RowChange] = []
        for position, value in enumerate(values):
            if value is None:
                continue
            try:
                change = self._parse(value)
                self._check_old(change)
            except InputError as error:
                found[position] = as_value(error)
            else:
                if change is not None:
                    at.append(position)
                    changes.append(change)
        for position, one in zip(at, self._read(changes), strict=True):
            found[position] = one
        return found

    def join(self, values: Sequence[bytes | None]) -> tuple[Events, list[int]] | None:
        """The events of all messages, and the number of events of each: what `decode` gives, in one piece.

        None if only `decode` can read them: one is wrong, has no value or has an old row, or rows give events
        of several kinds.
        """
        if len(self._reader.entries) != 1 or None in values:
            return None
        try:
            usual = self._read_usual(cast("Sequence[bytes]", values))
            if usual is not None:
                return self._reader.counted(usual.changes.new) if usual.are_added else None
            changes = [self._parse(cast("bytes", one)) for one in values]
            added = [one for one in changes if one is not None and one.old is None]
            if len(added) < len(values):
                return None
            table = self._table([one.new for one in added], [one.converters for one in added])
            return self._reader.counted(table)
        except InputError:
            return None

    def _read_usual(self, values: Sequence[bytes]) -> UsualRows | None:
        """The rows of messages, by the native core. None if only `parse` can read them or refuse them."""
        if self._are_changes is None or not values:
            return None
        usual = read_usual_rows(values, self._reader.mapping.columns, are_changes=self._are_changes)
        if usual is None or usual.changes.old is None or not self._judged:
            return usual
        blank = np.asarray(usual.changes.has_old)
        for name in self._judged:
            blank &= usual.changes.old.column(name).is_null().to_numpy()
        return None if blank.any() else usual

    def _check_old(self, change: RowChange | None) -> None:
        """Raises InputError for an old row of which the source knows the primary key alone, which would seem
        to have given nothing."""
        if change is None or change.old is None or not self._judged:
            return
        if all(change.old.get(name) is None for name in self._judged):
            names = ", ".join(self._judged)
            raise InputError(
                f"{self._reader.name}: expected the whole old row, got null in {names}: set REPLICA IDENTITY "
                "FULL for the table"
            )

    def _read(self, changes: Sequence[RowChange]) -> Sequence[Events | InputError]:
        if not changes:
            return []
        try:
            return read_each_change(self._reader, self._columns(changes))
        except InputError as error:
            refused = as_value(error)
        if len(changes) == 1:
            corrected = self._corrections(changes)[0]
            return [refused if corrected is None else corrected]
        if not isinstance(refused, WrongValuesError):
            return _put_together(changes, [(part, self._read) for part in self._apart(changes)])
        right, wrong = _divide(len(changes), refused)
        return _put_together(changes, [(right, self._read), (wrong, self._read_wrong)])

    def _read_wrong(self, changes: Sequence[RowChange]) -> Sequence[Events | InputError]:
        """As `_read`, of changes of which each is refused by itself."""
        corrected = self._corrections(changes)
        return [
            self._read([change])[0] if events is None else events
            for change, events in zip(changes, corrected, strict=True)
        ]

    def _apart(self, changes: Sequence[RowChange]) -> Sequence[Sequence[int]]:
        """The positions of changes that cannot be read together, in smaller groups."""
        tables = [[one.old for one in changes], [one.new for one in changes]]
        converters = [one.converters for one in changes]
        groups = group_alike(tables, converters, self._reader.mapping.columns, (UNAVAILABLE,))
        every, half = range(len(changes)), len(changes) // 2
        return groups if len(groups) > 1 else [every[:half], every[half:]]

    def _corrections(self, changes: Sequence[RowChange]) -> Sequence[Events | None]:
        """The events of changes that correct a row, None for those that do not: the old row was refused for
        values that its removal does not need. Its ids and keys are removed, with any conditions, because the
        graph may have what an earlier version gave."""
        keys = {name for entry in self._removing.entries for name in entry.rows.keys}
        correcting = [at for at, one in enumerate(changes) if one.old is not None]
        found: list[Events | None] = [None] * len(changes)
        bare = [
            changes[at]._replace(
                old={name: value if name in keys else None for name, value in (changes[at].old or {}).items()}
            )
            for at in correcting
        ]
        for position, events in zip(correcting, self._correct(bare), strict=True):
            found[position] = events
        return found

    def _correct(self, changes: Sequence[RowChange]) -> Sequence[Events | None]:
        """The events of changes whose old rows have keys alone, None for those that are still refused."""
        if not changes:
            return []
        try:
            return read_each_change(self._reader, self._columns(changes), removing=self._removing)
        except InputError as error:
            refused = as_value(error)
        if len(changes) == 1:
            return [None]
        if not isinstance(refused, WrongValuesError):
            return _put_together(changes, [(part, self._correct) for part in self._apart(changes)])
        right, wrong = _divide(len(changes), refused)
        return _put_together(changes, [(right, self._correct), (wrong, lambda some: [None] * len(some))])

    def _columns(self, changes: Sequence[RowChange]) -> RowChanges:
        """The rows as tables. Raises InputError for values of different kinds in a column."""
        kinds = [one.kind for one in changes]
        converters = [one.converters for one in changes]
        new = self._table([one.new for one in changes], converters)
        if not any(one.old is not None for one in changes):
            return RowChanges(kinds, new)
        # Of an old row the source may know the primary key alone.
        blank: Row = dict.fromkeys(self._reader.mapping.columns)
        rows = [None if one.old is None else {**blank, **one.old} for one in changes]
        old = self._table(rows, converters)
        return RowChanges(kinds, new, old, [one.old is not None for one in changes])

    def _table(self, rows: Sequence[Row | None], converters: Sequence[Mapping[str, Converter]]) -> pa.Table:
        reader = self._reader
        return to_table(rows, converters, reader.mapping.columns, times=self._times, name=reader.name)


def _divide(count: int, refused: WrongValuesError) -> tuple[list[int], list[int]]:
    """The positions of right rows, and of wrong ones."""
    wrong = set(refused.rows.tolist())
    return [at for at in range(count) if at not in wrong], sorted(wrong)


def _put_together(
    changes: Sequence[RowChange],
    parts: "Sequence[tuple[Sequence[int], Callable[[Sequence[RowChange]], Sequence[_Found]]]]",
) -> Sequence[_Found]:
    """The result for each change, read in parts."""
    found: dict[int, _Found] = {}
    for positions, read in parts:
        found.update(zip(positions, read([changes[at] for at in positions]), strict=True))
    return [found[at] for at in range(len(changes))]


def to_table(
    rows: Sequence[Row | None],
    converters: Sequence[Mapping[str, Converter]],
    columns: Sequence[str],
    *,
    times: Collection[str | None],
    name: str,
) -> pa.Table:
    """The columns of rows as a table; nulls where there is no row. times: the columns of times. name: of the
    table, for errors. Raises InputError for a column that a row does not have, and for values that do not fit
    together."""
    found = {
        column: _to_column(column, rows, converters, is_time=column in times, name=name) for column in columns
    }
    return pa.table(found)


def _to_column(
    column: str,
    rows: Sequence[Row | None],
    converters: Sequence[Mapping[str, Converter]],
    *,
    is_time: bool,
    name: str,
) -> pa.Array:
    try:
        values = [None if row is None else row[column] for row in rows]
    except KeyError:
        row = next(row for row in rows if row is not None and column not in row)
        got = ", ".join(map(repr, row)) or "none"
        raise InputError(f"{name}: expected a column {column!r}, got {got}") from None
    if UNAVAILABLE in values:
        raise InputError(
            f"{name}: column {column!r}: expected its value, got Debezium's mark for a large value that was "
            "not changed: set REPLICA IDENTITY FULL for the table"
        )
    found = {one.get(column) for one, row in zip(converters, rows, strict=True) if row is not None}
    if len(found) > 1:
        raise InputError(f"{name}: column {column!r}: expected one type, got several")
    converter = next(iter(found), None)
    try:
        if converter is None:
            return _array(values)
        if is_time:
            converter.check_time()
        return converter.convert(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{name}: column {column!r}: expected {error}") from error


def _judged(reader: TableReader) -> list[str]:
    """The columns besides keys, if some of them decide whether an old row gave anything."""
    rows = [entry.rows for entry in reader.entries if entry.rows.removes]
    keys = {name for one in rows for name in one.keys}
    deciding = {condition.column for one in rows for condition in one.conditions}
    deciding |= {name for one in rows for name, rule in one.nulls.items() if rule == SKIP}
    if not deciding - keys:
        return []
    return sorted({*deciding, *(name for one in rows for name in one.values)} - keys)


def _removing(reader: TableReader) -> TableReader:
    """The same for rows of which keys alone are known: without conditions, and rules for other nulls."""

    def of_keys(rows: NodeRows | EdgeRows) -> dict[str, object]:
        return {name: rule for name, rule in rows.nulls.items() if name in rows.keys}

    mapping = reader.mapping
    nodes = [replace(one, where={}, nulls=of_keys(one)) for one in mapping.nodes]
    edges = [replace(one, where={}, nulls=of_keys(one)) for one in mapping.edges]
    return TableReader(TableMapping(nodes, edges), reader.schema, reader.name)


def _array(values: Sequence[JSON]) -> pa.Array:
    """A column of plain JSON. Raises ValueError for values of several kinds, which alone may fit."""
    kinds = {type(one) for one in values if one is not None}
    if len(kinds) > 1 and kinds != {int, float}:
        raise ValueError("values of one kind, got several")
    try:
        return pa.array(values)
    except OverflowError:  # no column of ids or keys has such numbers
        return pa.array([None if one is None else float(cast("int", one)) for one in values])
    except pa.ArrowException as error:
        raise ValueError(f"values of one kind, got {error}") from error


def parse_row(value: bytes) -> RowChange:
    """A message that is a row, as a JSON object."""
    return added_row(_object(value), _none)


def parse_change(value: bytes) -> RowChange | None:
    """A message of Debezium, in JSON."""
    return row_change(*_split(value))


_JSON: Final[Mapping[Parse, bool]] = {parse_row: False, parse_change: True}
"""Whether messages that are read so are changes."""


def added_row(content: Row, converters: "Converters") -> RowChange:
    """The content of a message, as a row."""
    return RowChange("insert", None, content, converters(None))


def row_change(content: Row | None, converters: "Converters") -> RowChange | None:
    """The content of a message of Debezium. Raises InputError for one of another form."""
    if content is None:
        return None
    if "op" in content and not _ENVELOPE.isdisjoint(content):
        return _parse_envelope(content, converters)
    return _parse_flat(content, converters(None))


Converters: TypeAlias = Callable[[str | None], Mapping[str, Converter]]
"""Of the columns of the row in a field of the envelope, or of the content itself."""


def _split(value: bytes) -> "tuple[Row | None, Converters]":
    """The content of a message, and what its schema says of it."""
    end = value.find(_PAYLOAD) if value.startswith(_SCHEMA) else -1
    whole = value.rstrip()
    if end > 0 and whole.endswith(b"}"):  # the schema is the larger part, and the same in most messages
        text = whole[end + len(_PAYLOAD) : -1]
        with suppress(orjson.JSONDecodeError):
            row = _row(orjson.loads(text), "payload")
            _check_fields(text, row)
            return row, partial(_converters, value[len(_SCHEMA) : end])
    content = _object(value)
    if content.keys() != {"schema", "payload"}:
        return content, _none
    payload, schema = content["payload"], content["schema"]
    if payload is None:
        return None, _none
    return _row(payload, "payload"), partial(converters_of, schema)


@lru_cache(maxsize=_SCHEMAS)
def _converters(schema: bytes, field: str | None) -> Mapping[str, Converter]:
    try:
        return converters_of(orjson.loads(schema), field)
    except orjson.JSONDecodeError as error:
        raise InputError(f"expected a schema of Kafka Connect, got {quoted(schema)}") from error


def _parse_envelope(content: Row, converters: "Converters") -> RowChange | None:
    operation = content["op"]
    if operation in _NO_CHANGE:
        return None
    kind = _check_operation(operation)
    before, after = content.get("before"), content.get("after")
    if kind == "delete":
        if before is None:
            raise InputError(
                "expected the old row of a delete in 'before', got null: set REPLICA IDENTITY FULL for the "
                "table"
            )
        return RowChange(kind, _row(before, "before"), None, converters("before"))
    new = _row(after, "after")
    old = None if kind == "insert" or before is None else _row(before, "before")
    if old is not None:
        new = {name: old.get(name, value) if value == UNAVAILABLE else value for name, value in new.items()}
    return RowChange(kind, old, new, converters("after"))


def _check_operation(operation: JSON) -> Change:
    """The kind of change. Raises InputError for one of another kind."""
    kind = _OPERATIONS.get(operation) if isinstance(operation, str) else None
    if kind is None:
        raise InputError(
            f"expected the operation 'c', 'r', 'u' or 'd' of a row, got {quoted(operation)}: a table that "
            "is emptied at once, by TRUNCATE, does not say its rows"
        )
    return kind


def _parse_flat(content: Row, converters: Mapping[str, Converter]) -> RowChange:
    deleted, operation = content.get(f"{_FLAT}deleted"), content.get(f"{_FLAT}op")
    _check_operation(operation if operation is not None else "c")
    row = {name: value for name, value in content.items() if not name.startswith(_FLAT)}
    if deleted in (True, "true") or operation == "d":
        return RowChange("delete", row, None, converters)
    return RowChange("update" if operation == "u" else "insert", None, row, converters)


def _none(field: str | None) -> Mapping[str, Converter]:
    return {}


def _object(value: bytes) -> "dict[str, JSON]":
    try:
        content = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise InputError(f"expected a JSON object, got {quoted(value)}: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"expected a JSON object, got {quoted(value)}")
    _check_fields(value, content)
    return content


def _check_fields(text: bytes, content: "dict[str, JSON]") -> None:
    if (name := repeated_key(text, content)) is not None:
        raise InputError(f"expected each field once, got {quoted(name)} twice")


def _row(value: JSON, name: str) -> "dict[str, JSON]":
    if not isinstance(value, dict):
        raise InputError(f"expected a row in {name!r}, got {quoted(value)}")
    return value
