"""A table of a real PostgreSQL as a sink: its rows are the predictions of the service, whatever dies."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from gate import in_gate
from livegnn import Events
from livegnn.connectors.postgresql_sink import PostgresqlTable
from livegnn.connectors.sink import PredictionRows
from livegnn.errors import InputError
from postgres import Postgres, needs_server
from streams import CLASSES, make_stream
from waiting import wait_until
from with_sink import Running, assert_equal

pytestmark = [pytest.mark.xdist_group("postgresql"), needs_server]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    one = Postgres()
    yield one
    one.close()


@pytest.fixture
def database(server: Postgres, request: pytest.FixtureRequest) -> str:
    """A connection to a database of the test's own."""
    name = "".join(letter for letter in request.node.name if letter.isalnum()).lower()[:60]
    server.execute(f"create database {name};")
    return f"host=127.0.0.1 port={server.port} user=postgres dbname={name}"


def read(database: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(database) as connection:
        return connection.execute(statement).fetchall()


def stored(database: str) -> dict[object, np.ndarray]:
    return {id: np.array(row, np.float32) for id, row in read(database, "select id, prediction from scores")}


@pytest.mark.parametrize("text", [False, True])
def test_the_table_is_as_the_service_answers(database: str, tmp_path: Path, text: bool) -> None:
    running = Running(tmp_path, PostgresqlTable(database, "scores"), text=text, most_rows=11)
    for events in make_stream(60, text=text):
        running.append(events)
    running.wait_until_sent()
    assert_equal(stored(database), running)
    kinds = read(
        database,
        "select column_name, data_type from information_schema.columns "
        "where table_name = 'scores' order by 1",
    )
    key = "text" if text else "bigint"
    assert kinds == [("id", key), ("model", "text"), ("prediction", "ARRAY"), ("seq", "bigint")]
    assert {row[0] for row in read(database, "select model from scores")} == {"engine"}
    running.stop()


def test_a_column_for_each_channel_in_a_table_of_the_user(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("create schema shop")
        connection.execute(
            'create table shop."Scores" (id bigint primary key, seq bigint, model text, a real, "B" real, '
            "c double precision, note text default 'kept')"
        )
    table = PostgresqlTable(database, "shop.Scores", columns=["a", "B", "c"])
    running = Running(tmp_path, table)
    running.append(*make_stream(20))
    running.wait_until_sent()
    rows = read(database, 'select id, a, "B", c from shop."Scores"')
    assert_equal({id: np.array(numbers, np.float32) for id, *numbers in rows}, running)
    assert {row[0] for row in read(database, 'select note from shop."Scores"')} == {"kept"}
    running.stop()


def test_every_number_is_stored_as_it_is(database: str) -> None:
    numbers = np.array([[np.nan, np.inf, -np.inf, -0.0], [1e-45, 3.4e38, 1 / 3, -2.5]], np.float32)
    ids, seqs = [-(2**63), 2**63 - 1], np.array([2**40, 7])
    for at, columns in enumerate(("prediction", ["a", "b", "c", "d"])):
        table = PostgresqlTable(database, f"numbers{at}", columns=columns)
        table.write(PredictionRows("engine", "node", ids, seqs, numbers, np.zeros(2, np.bool_)))
        table.close()
        shown = "prediction" if at == 0 else "array[a, b, c, d]"
        rows = read(database, f"select id, seq, {shown} from numbers{at} order by id")
        assert [row[:2] for row in rows] == list(zip(ids, seqs.tolist(), strict=True))
        assert np.array([row[2] for row in rows], np.float32).tobytes() == numbers.tobytes()


def test_a_row_never_becomes_older(database: str, tmp_path: Path) -> None:
    running = Running(tmp_path, PostgresqlTable(database, "scores"))
    running.append(*make_stream(5))
    running.wait_until_sent()
    with psycopg.connect(database) as connection:
        connection.execute("update scores set seq = 1000000, prediction = '{7}' where id in (0, 1)")
    running.append(Events().set_features([0], np.ones((1, 4))).remove_nodes([1]))
    running.wait_until_sent()
    assert {0, 1} == {id for id, row in stored(database).items() if row.tolist() == [7.0]}
    running.stop()


@pytest.mark.parametrize("rounds", in_gate([2, 12]))
def test_the_server_may_die_and_return(server: Postgres, database: str, tmp_path: Path, rounds: int) -> None:
    running = Running(tmp_path, PostgresqlTable(database, "scores"), most_rows=5)
    stream = make_stream(20 * rounds)
    for at in range(rounds):
        part = stream[20 * at : 20 * at + 20]
        running.append(*part[:10])
        server.kill()
        running.append(*part[10:])
        wait_until(lambda: running.view.waits is not None or not running.view.lag)
        server.start()
    running.wait_until_sent()
    assert running.view.failures
    assert_equal(stored(database), running)
    running.stop()


def test_a_session_that_is_ended_is_opened_again(database: str, tmp_path: Path) -> None:
    running = Running(tmp_path, PostgresqlTable(database, "scores"))
    running.wait_until_sent()
    with psycopg.connect(database) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'livegnn'"
        )
    running.append(*make_stream(10))
    running.wait_until_sent()
    assert_equal(stored(database), running)
    running.stop()


def test_what_does_not_fit_is_said(database: str, tmp_path: Path) -> None:
    for table in ("", "a.b.c", ".a"):
        with pytest.raises(InputError, match=r"table must be its name, or schema\.name"):
            PostgresqlTable(database, table)
    for columns in ([], "", ["id"], ["a", "a"]):
        with pytest.raises(InputError, match="columns must be one name, or a list"):
            PostgresqlTable(database, "scores", columns=columns)
    with pytest.raises(InputError, match="connection must be settings of libpq"):
        PostgresqlTable("nonsense", "scores")
    running = Running(tmp_path, PostgresqlTable(database, "scores", columns=["a", "b"]))
    wait_until(lambda: running.view.waits)
    assert f"a column for each of the {CLASSES} channels" in str(running.view.waits)
    running.stop()


def test_a_table_that_may_not_be_written_is_said(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("create table scores (id bigint primary key)")
    running = Running(tmp_path, PostgresqlTable(database, "scores"))
    wait_until(lambda: running.view.waits)
    assert "cannot write to the table scores" in str(running.view.waits)
    with psycopg.connect(database) as connection:
        connection.execute("alter table scores add seq bigint, add model text, add prediction real[]")
    running.wait_until_sent()
    assert_equal(stored(database), running)
    running.stop()
