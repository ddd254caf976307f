"""A table of PostgreSQL as a sink: a row for each node, which is replaced when its prediction changes."""

import contextlib
from collections.abc import Sequence
from typing import Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from livegnn.connectors.sink import PredictionRows, SinkError
from livegnn.errors import InputError

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
            found = self._connection.execute("select to_regclass(%s)", [self._table.as_string()]).fetchone()
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
        there = [at for at, removed in enumerate(rows.removed.tolist()) if not removed]
        if not there:
            return
        predictions = rows.predictions[there]
        ids, seqs = [rows.ids[at] for at in there], rows.seqs[there].tolist()
        if self._array:
            values = [["{" + ",".join(map(repr, row)) + "}" for row in predictions.tolist()]]
            given = [sql.SQL("unnest(%s::text[])::real[]")]
        else:
            values = [channel.tolist() for channel in predictions.T]
            given = [sql.SQL("unnest(%s::float8[])::real")] * len(values)
        names = [sql.Identifier(name) for name in ("seq", "model", *self._columns)]
        statement = sql.SQL(
            "insert into {table} as t (id, {names}) select unnest({ids}), unnest(%s::bigint[]), %s, {given} "
            "on conflict (id) do update set {set} where t.seq <= excluded.seq"
        ).format(
            table=self._table,
            names=sql.SQL(", ").join(names),
            ids=_ids(ids),
            given=sql.SQL(", ").join(given),
            set=sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in names),
        )
        cursor.execute(statement, [ids, seqs, rows.model, *values])

    def _delete(self, cursor: "psycopg.Cursor[tuple[object, ...]]", rows: PredictionRows) -> None:
        gone = [at for at, removed in enumerate(rows.removed.tolist()) if removed]
        if not gone:
            return
        ids, seqs = [rows.ids[at] for at in gone], rows.seqs[gone].tolist()
        statement = sql.SQL(
            "delete from {table} as t "
            "using (select unnest({ids}) as id, unnest(%s::bigint[]) as seq) as gone "
            "where t.id = gone.id and t.seq <= gone.seq"
        ).format(table=self._table, ids=_ids(ids))
        cursor.execute(statement, [ids, seqs])


def _ids(ids: Sequence[int | str]) -> sql.SQL:
    """The parameter of a list of ids."""
    return sql.SQL("%s::text[]" if isinstance(ids[0], str) else "%s::bigint[]")
