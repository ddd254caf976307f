"""A table of PostgreSQL as a sink: a row for each node, which is replaced when its prediction changes."""

import contextlib
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import psycopg
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format

from livegnn.connectors.sink import PredictionRows, SinkError
from livegnn.errors import InputError
from livegnn.types import FloatArray, IntArray

_BIGINT, _BIGINTS, _REAL, _REALS = 20, 1016, 700, 1021  # PostgreSQL's numbers of types, and of their arrays
_OWN: Final = ("id", "seq", "model")
_SETTINGS: Final = {
    "connect_timeout": 10,
    "application_name": "livegnn",
    "tcp_user_timeout": 30_000,
    "options": "-c statement_timeout=60s -c lock_timeout=30s",
}
"""What a connection has that does not say otherwise: a server that is away is noticed."""


class PostgresqlTable:
    """Writes to `table`, ``"name"`` or ``"schema.name"``, in a transaction for each write.

    connection: of libpq, such as ``"host=db dbname=shop"`` or a URL. columns: the name of a column with the
    prediction as `real[]`, or those of a column for each channel, `real`. There are also the columns `id`,
    the key, `seq` and `model`. A missing table is made. Raises `InputError` for wrong arguments.
    """

    def __init__(self, connection: str, table: str, *, columns: str | Sequence[str] = "prediction") -> None:
        try:
            self._settings = {**_SETTINGS, **conninfo_to_dict(connection)}
        except psycopg.ProgrammingError as error:
            raise InputError(f"connection must be settings of libpq, or a URL: {error}") from error
        self._parts = table.split(".")
        if not all(self._parts) or len(self._parts) > 2:
            raise InputError(f"table must be its name, or schema.name, got {table!r}")
        self._table, self._table_name = sql.Identifier(*self._parts), table
        self._array = isinstance(columns, str)
        self._columns = [columns] if isinstance(columns, str) else list(columns)
        names = [*_OWN, *self._columns]
        if not self._columns or not all(names) or len(set(names)) < len(names):
            raise InputError(
                f"columns must be one name, or a list with one for each channel, each another one than "
                f"{', '.join(_OWN)}, got {columns!r}"
            )
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None

    def write(self, rows: PredictionRows) -> None:
        """Upserts and deletes rows. Raises `SinkError`, after which none of them was stored, or all."""
        if not self._array and len(self._columns) != rows.predictions.shape[1]:
            raise SinkError(
                f"the table {self._table_name} must have a column for each of the "
                f"{rows.predictions.shape[1]} channels, got columns = {self._columns}"
            )
        try:
            connection = self._open(text=any(isinstance(id, str) for id in rows.ids))
            with connection.transaction(), connection.cursor() as cursor:
                self._upsert(cursor, rows)
                self._delete(cursor, rows)
        except psycopg.Error as error:
            self.close()
            raise SinkError(f"cannot write to the table {self._table_name}: {error}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def _open(self, *, text: bool) -> "psycopg.Connection[tuple[object, ...]]":
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(autocommit=True, **self._settings)  # type: ignore[arg-type]
            self._connection.adapters.register_dumper(_Integers, _IntegersDumper)
            self._connection.adapters.register_dumper(_Reals, _RealsDumper)
            found = self._connection.execute(
                "select to_regclass(%s)", [self._table.as_string(self._connection)]
            ).fetchone()
            if found is None or found[0] is None:
                self._make_table(self._connection, text=text)
        return self._connection

    def _make_table(self, connection: "psycopg.Connection[tuple[object, ...]]", *, text: bool) -> None:
        kind = sql.SQL("real[]") if self._array else sql.SQL("real")
        statement = sql.SQL(
            "create table if not exists {} (id {} primary key, seq bigint not null, model text not null, {})"
        )
        columns = [sql.SQL("{} {}").format(sql.Identifier(name), kind) for name in self._columns]
        id_kind = sql.SQL("text" if text else "bigint")
        connection.execute(statement.format(self._table, id_kind, sql.SQL(", ").join(columns)))

    def _upsert(self, cursor: "psycopg.Cursor[tuple[object, ...]]", rows: PredictionRows) -> None:
        there = np.flatnonzero(~rows.removed)
        if not len(there):
            return
        predictions = rows.predictions[there]
        channels = range(predictions.shape[1])
        if self._array:
            given = f"predictions[(i - 1) * {len(channels)} + 1 : i * {len(channels)}]"
        else:
            given = ", ".join(f"predictions[(i - 1) * {len(channels)} + {at + 1}]" for at in channels)
        names = [sql.Identifier(name) for name in ("seq", "model", *self._columns)]
        statement = sql.SQL(
            "insert into {table} as t (id, {names}) select ids[i], seqs[i], %s, {given} "
            "from (select {ids} as ids, %s as seqs, %s as predictions) as given, generate_series(1, %s) as i "
            "on conflict (id) do update set {set} where t.seq <= excluded.seq"
        ).format(
            table=self._table,
            names=sql.SQL(", ").join(names),
            ids=self._ids(rows),
            given=sql.SQL(given),
            set=sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in names),
        )
        ids = _to_array([rows.ids[at] for at in there.tolist()])
        seqs, reals = _Integers(rows.seqs[there]), _Reals(predictions.reshape(-1))
        cursor.execute(statement, [rows.model, ids, seqs, reals, len(there)])

    def _delete(self, cursor: "psycopg.Cursor[tuple[object, ...]]", rows: PredictionRows) -> None:
        gone = np.flatnonzero(rows.removed)
        if not len(gone):
            return
        statement = sql.SQL(
            "delete from {table} as t using (select unnest({ids}) as id, unnest(%s) as seq) as gone "
            "where t.id = gone.id and t.seq <= gone.seq"
        ).format(table=self._table, ids=self._ids(rows))
        ids = _to_array([rows.ids[at] for at in gone.tolist()])
        cursor.execute(statement, [ids, _Integers(rows.seqs[gone])])

    @staticmethod
    def _ids(rows: PredictionRows) -> sql.SQL:
        """The parameter of a list of ids."""
        return sql.SQL("%s::text[]" if isinstance(rows.ids[0], str) else "%s")


class _Integers:
    """An array `bigint[]` as PostgreSQL reads it: much faster than a list of Python's numbers."""

    def __init__(self, values: IntArray) -> None:
        self.data = _encode(values, _BIGINT, ">i8")


class _Reals:
    """The same, `real[]`."""

    def __init__(self, values: FloatArray) -> None:
        self.data = _encode(values, _REAL, ">f4")


def _encode(values: IntArray | FloatArray, kind: int, type: str) -> bytes:
    """One dimension, no nulls, the type of the elements, their number, the first index; then the elements,
    each after its size."""
    elements = np.empty(len(values), [("size", ">i4"), ("value", type)])
    elements["size"], elements["value"] = elements.dtype["value"].itemsize, values
    return struct.pack(">5i", 1, 0, kind, len(values), 1) + elements.tobytes()


def _to_array(ids: Sequence[int | str]) -> "_Integers | list[str]":
    if isinstance(ids[0], str):
        return [str(id) for id in ids]
    return _Integers(np.array(ids, np.int64))


class _IntegersDumper(Dumper):
    format = Format.BINARY
    oid = _BIGINTS

    def dump(self, obj: _Integers) -> bytes:
        return obj.data


class _RealsDumper(Dumper):
    format = Format.BINARY
    oid = _REALS

    def dump(self, obj: _Reals) -> bytes:
        return obj.data
