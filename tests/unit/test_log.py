"""The SQLite log: what was appended is there, in order, whatever happened; damage is found and named."""

import re
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest

from livegnn import Events, InputError, LogError
from livegnn.log import Batch, Entry, Rejection
from livegnn.log.sqlite import SCHEMA, SqliteLog

DOCS = Path(__file__).parents[2] / "docs" / "log.md"
EVENTS = [
    Events().add_edges([1, 2], [2, 3], weight=[0.5, 1]).set_features(1, [1, 2]),
    Events().add_nodes(["ä", "b"]),
    Events().remove_edges("ä", 1, edge_type=("user", "rates", "item")),
]


def filled(path: Path) -> SqliteLog:
    log = SqliteLog(path)
    assert [log.append(events) for events in EVENTS] == [3, 5, 6]
    return log


def test_the_docs_describe_every_table_and_column() -> None:
    columns = re.findall(r"^    (\w+) (?:INTEGER|BLOB|TEXT)", SCHEMA, re.MULTILINE)
    rows = re.findall(r"^\| (?:`\w+`)? ?\| `(\w+)` \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == columns


def test_entries_are_what_was_appended(tmp_path: Path) -> None:
    log = filled(tmp_path / "log.db")
    entries = [Entry(seq, events) for seq, events in zip([3, 5, 6], EVENTS, strict=True)]
    assert list(log.entries(0)) == entries
    assert list(log.entries(3)) == entries[1:]
    assert list(log.entries(0, up_to=5)) == entries[:2]
    assert list(log.entries(6)) == []
    assert log.last_seq() == 6
    log.close()
    reopened = SqliteLog(tmp_path / "log.db")
    assert list(reopened.entries(0)) == entries
    assert reopened.last_seq() == 6
    reopened.close()


def test_entries_are_whole_and_at_least_one(tmp_path: Path) -> None:
    log = filled(tmp_path / "log.db")
    assert [entry.seq for entry in log.entries(0, max_events=1)] == [3]
    assert [entry.seq for entry in log.entries(0, max_events=4)] == [3]
    assert [entry.seq for entry in log.entries(0, max_events=5)] == [3, 5]
    log.close()


def test_no_events_are_no_entry(tmp_path: Path) -> None:
    log = filled(tmp_path / "log.db")
    assert log.append(Events()) == 6
    assert len(log.entries(0)) == 3
    log.close()


def test_what_cannot_be_stored_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path / "log.db")
    with pytest.raises(InputError, match="valid Unicode"):
        log.append(Events().add_nodes("\ud800"))
    assert log.append(Events().add_nodes(1)) == 7
    log.close()


def test_appends_are_synchronous_and_boundaries_are_not(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    full, normal = 2, 1
    assert log._appends.execute("PRAGMA synchronous").fetchone() == (full,)
    assert log._boundaries.execute("PRAGMA synchronous").fetchone() == (normal,)
    assert log._appends.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    log.close()


def test_batches_and_rejections(tmp_path: Path) -> None:
    log = filled(tmp_path / "log.db")
    log.record_batch(Batch(0, 3))
    log.record_batch(Batch(3, 5), Rejection(5, "UnknownNodeError", "no node 'b'"))
    log.record_batch(Batch(5, 6))
    log.sync()
    log.close()
    log = SqliteLog(tmp_path / "log.db")
    assert list(log.batches(0)) == [Batch(0, 3), Batch(3, 5), Batch(5, 6)]
    assert list(log.batches(3)) == [Batch(3, 5), Batch(5, 6)]
    assert list(log.batches(6)) == []
    rejection = Rejection(5, "UnknownNodeError", "no node 'b'")
    assert list(log.rejections()) == [rejection]
    assert list(log.rejections(3, up_to=5)) == [rejection]
    assert list(log.rejections(5)) == []
    with pytest.raises(LogError, match="must have a batch that begins after event 4, got 3"):
        log.batches(4)
    log.close()


def test_a_digest_names_a_history(tmp_path: Path) -> None:
    """Whatever entry is another one, near the end or among those before which it doubles its steps."""
    logs = []
    for changed in (None, *range(20)):
        log = SqliteLog(tmp_path / f"{changed}.db")
        for number in range(20):
            log.append(Events().add_nodes([number if number != changed else 99, 100 + number]))
        logs.append(log)
    assert [log.digest(0) for log in logs] == [0] * len(logs)
    whole, *others = (log.digest(40) for log in logs)
    seen = {19, 18, 17, 15, 11, 3}  # which hold the events 0, 1 and 2, 4, 8, 16 and 32 before
    assert [number for number, other in enumerate(others) if other != whole] == sorted(seen)
    assert logs[0].digest(38) != whole
    assert logs[0].append(Events().add_nodes(5)) == 41
    assert logs[0].digest(40) == whole
    for log in logs:
        log.close()


def test_a_batch_begins_where_the_last_one_ended(tmp_path: Path) -> None:
    log = filled(tmp_path / "log.db")
    log.record_batch(Batch(0, 3))
    for batch in (Batch(0, 3), Batch(0, 5), Batch(5, 6)):
        with pytest.raises(LogError, match="must be continued after event 3, got a batch after event"):
            log.record_batch(batch)
    with pytest.raises(LogError, match="cannot record a batch"):
        log.record_batch(Batch(3, 5), Rejection(99, "InputError", "of an entry that does not exist"))
    assert list(log.batches(0)) == [Batch(0, 3)]
    log.close()


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "null"])
def test_a_damaged_payload_is_found(tmp_path: Path, damage: str) -> None:
    filled(tmp_path / "log.db").close()
    with sqlite3.connect(tmp_path / "log.db") as connection:
        (payload,) = connection.execute("SELECT payload FROM entries WHERE seq = 5").fetchone()
        damaged = {
            "truncate": payload[:-3],
            "flip": payload[:20] + bytes([payload[20] ^ 1]) + payload[21:],
            "empty": b"",
            "null": "text",
        }[damage]
        connection.execute("UPDATE entries SET payload = ? WHERE seq = 5", (damaged,))
    connection.close()
    log = SqliteLog(tmp_path / "log.db")
    with pytest.raises(LogError, match="must hold the events of entry 5"):
        log.entries(0)
    assert [entry.seq for entry in log.entries(5)] == [6]
    log.close()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM entries WHERE seq = 5", "must continue after event 3, got entry 6 of 1 events"),
        ("UPDATE entries SET count = 2, seq = 7 WHERE seq = 6", "must hold 2 events in entry 7, got 1"),
    ],
)
def test_missing_and_wrong_rows_are_found(tmp_path: Path, statement: str, message: str) -> None:
    filled(tmp_path / "log.db").close()
    with sqlite3.connect(tmp_path / "log.db") as connection:
        connection.execute(statement)
    connection.close()
    log = SqliteLog(tmp_path / "log.db")
    with pytest.raises(LogError, match=message):
        log.entries(0)
    log.close()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"this is no database, but it is long enough to look like a file" * 20)
    with pytest.raises(LogError, match="file is not a database"):
        SqliteLog(tmp_path / "a")
    with sqlite3.connect(tmp_path / "b") as connection:
        connection.execute("CREATE TABLE people (name TEXT)")
    connection.close()
    with pytest.raises(LogError, match="got another SQLite database"):
        SqliteLog(tmp_path / "b")
    filled(tmp_path / "c").close()
    with sqlite3.connect(tmp_path / "c") as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(LogError, match="must have version 1, got 9"):
        SqliteLog(tmp_path / "c")
    with pytest.raises(LogError, match="cannot open"):
        SqliteLog(tmp_path / "no such directory" / "log.db")


def test_a_page_of_garbage_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = SqliteLog(path)
    log.append(Events().add_nodes(np.arange(5000)))
    log.close()
    content = bytearray(path.read_bytes())
    content[4096:] = bytes([0xA5]) * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(LogError):  # on opening or on reading, by where the garbage is
        SqliteLog(path).entries(0)


def test_a_torn_write_ahead_log_loses_only_its_end(tmp_path: Path) -> None:
    log = filled(tmp_path / "log.db")
    main, wal = (tmp_path / "log.db").read_bytes(), (tmp_path / "log.db-wal").read_bytes()
    log.close()
    survivors = set()
    for size in range(0, len(wal) + 1, 311):
        crashed = tmp_path / str(size)
        crashed.mkdir()
        (crashed / "log.db").write_bytes(main)
        (crashed / "log.db-wal").write_bytes(wal[:size])
        torn = SqliteLog(crashed / "log.db")
        entries = torn.entries(0)
        assert [entry.events for entry in entries] == EVENTS[: len(entries)]
        survivors.add(len(entries))
        assert torn.append(Events().add_nodes(1)) == torn.entries(0)[-1].seq
        torn.close()
    assert survivors >= {0, 1, 2}


def test_wait_returns_for_an_event_a_timeout_and_a_wake(tmp_path: Path) -> None:
    log = filled(tmp_path / "log.db")
    assert log.wait(5, None)
    assert not log.wait(6, 0)
    log.wake()
    assert not log.wait(6, None)
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(log.wait(6, None)))
    waiter.start()
    log.append(Events().add_nodes(1))
    waiter.join()
    assert answers == [True]
    log.close()


def test_appends_of_many_threads_are_contiguous(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    other = SqliteLog(tmp_path / "log.db")
    seqs: list[int] = []

    def append(target: SqliteLog) -> None:
        seqs.extend(target.append(Events().add_nodes([1, 2])) for _ in range(10))

    threads = [threading.Thread(target=append, args=[target]) for target in (log, log, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seqs) == list(range(2, 62, 2))
    assert [entry.seq for entry in log.entries(0)] == sorted(seqs)
    log.close()
    other.close()
