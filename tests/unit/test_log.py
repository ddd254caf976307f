"""The SQLite log: what was appended is there, in order, whatever happened; damage is found and named."""

import os
import re
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from faulty_disk import FaultyDisk
from livegnn import DiskFullError, Events, InputError, LogError
from livegnn.log import Appended, BadMessage, Batch, Entry, Origin, Rejection
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.examination import examine
from livegnn.log.sqlite.reader import SqliteReader
from livegnn.log.sqlite.sequence import connect
from livegnn.log.sqlite.tables import FORMAT, SCHEMA, Keys

DOCS = Path(__file__).parents[2] / "docs" / "log.md"
EVENTS = [
    Events().add_edges([1, 2], [2, 3], weight=[0.5, 1]).set_features(1, [1, 2]),
    Events().add_nodes(["ä", "b"]),
    Events().remove_edges("ä", 1, edge_type=("user", "rates", "item")),
]

VERSION_1 = """
PRAGMA application_id = 0x4C474E4E;
PRAGMA user_version = 1;
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, count INTEGER NOT NULL CHECK (count > 0), payload BLOB NOT NULL
);
CREATE TABLE batches (seq INTEGER PRIMARY KEY, after INTEGER NOT NULL UNIQUE CHECK (after < seq));
CREATE TABLE rejections (
    seq INTEGER PRIMARY KEY REFERENCES entries (seq), error TEXT NOT NULL, message TEXT NOT NULL
);
"""

VERSION_4 = "PRAGMA user_version = 4;" + "".join(
    f"ALTER TABLE {table} DROP COLUMN row_crc32;"
    for table in ("rejections", "keys", "properties", "origins", "bad_messages")
)

VERSION_2 = f"""
{VERSION_4}
PRAGMA user_version = 2;
DROP TABLE dead_letters;
DROP TABLE origins;
DROP TABLE bad_messages;
"""

VERSION_3 = f"""
{VERSION_4}
PRAGMA user_version = 3;
DROP TABLE bad_messages;
"""


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
    with pytest.raises(LogError, match="must have a batch that begins after event 4, got one from 3 to 5"):
        log.batches(4)
    log.close()


def test_a_reader_says_what_the_owner_says_and_changes_nothing(tmp_path: Path) -> None:
    """Beside the owner; and of what a kill left, which the reader neither moves nor mends."""
    log = filled(tmp_path / "log.db")
    log.record_batch(Batch(0, 3))
    log.record_batch(Batch(3, 5), Rejection(5, "UnknownNodeError", "no node 'b'"))
    log.bind({"a": "1"})
    killed = tmp_path / "killed"
    killed.mkdir()
    for name in ("log.db", "log.db-wal"):
        (killed / name).write_bytes((tmp_path / name).read_bytes())
    before = {path.name: path.read_bytes() for path in killed.iterdir()}
    for path in (log.path, killed / "log.db"):
        reader = SqliteReader(path)
        for ask in (
            lambda it: it.last_seq(),
            lambda it: (it.first_seq(), it.last_batch_seq(), it.bound(), it.position("a", 0)),
            lambda it: list(it.entries(0)),
            lambda it: [(write.seq, write.events) for write in it.writes(3, max_events=2)],
            lambda it: [it.entry(seq) for seq in range(8)],
            lambda it: [list(it.batches(seq)) for seq in (0, 3, 5)],
            lambda it: list(it.batches(0, most=1)),
            lambda it: list(it.rejections()),
            lambda it: [it.digest(seq) for seq in range(7)],
        ):
            assert ask(reader) == ask(log)
        with pytest.raises(apsw.ReadOnlyError):
            reader._reads.execute("DELETE FROM entries")
        reader.close()
        reader.close()
    assert {name: (killed / name).read_bytes() for name in before} == before
    reader = SqliteReader(log.path)
    log.append(EVENTS[0])
    assert reader.last_seq() == 9
    log.close()
    assert list(reader.entries(6)) == [Entry(9, EVENTS[0])]
    reader.close()


def test_a_digest_names_a_history(tmp_path: Path) -> None:
    """Whatever entry is another one, and however far back."""
    logs = []
    for changed in (None, *range(20)):
        log = SqliteLog(tmp_path / f"{changed}.db")
        for number in range(20):
            log.append(Events().add_nodes([number if number != changed else 99, 100 + number]))
        logs.append(log)
    assert [log.digest(0) for log in logs] == [""] * len(logs)
    whole, *others = (log.digest(40) for log in logs)
    assert whole not in others
    assert len({*others}) == len(others)
    assert logs[0].digest(38) != whole
    assert [logs[number + 1].digest(2 * number) == logs[0].digest(2 * number) for number in range(20)] == [
        True
    ] * 20
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
        ("DELETE FROM entries WHERE seq = 5", "must continue after event 3, got the entry 6 after 5"),
        (
            "UPDATE entries SET count = 2, seq = 7 WHERE seq = 6",
            "must hold the events of entry 7, got: 1 events where 2 are needed",
        ),
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
    with pytest.raises(LogError, match="must be of a version from 1 to 5, got 9"):
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
    seqs: list[int] = []

    def append() -> None:
        seqs.extend(log.append(Events().add_nodes([1, 2])) for _ in range(20))

    threads = [threading.Thread(target=append) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seqs) == list(range(2, 322, 2))
    assert [entry.seq for entry in log.entries(0)] == sorted(seqs)
    log.close()


def test_entries_that_are_appended_together_share_a_row_and_a_flush(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = SqliteLog(path)
    log.append(Events().add_nodes(1))
    bad = Events().add_nodes(1, node_type="\ud800")
    outcomes = log.append_all([EVENTS[0], bad, Events(), EVENTS[1], EVENTS[2]])
    assert [outcome for outcome in outcomes if not isinstance(outcome, InputError)] == [
        Appended(4, 3),
        Appended(4, 0),
        Appended(6, 2),
        Appended(7, 1),
    ]
    assert "valid Unicode" in str(outcomes[1])
    assert [entry.events for entry in log.entries(0)][1:] == EVENTS
    (first, second) = log.writes(0)
    assert (first.after, first.ends.tolist(), second.after, second.ends.tolist()) == (0, [1], 1, [4, 6, 7])
    assert [entry.seq for entry in log.entries(1, max_events=5)] == [4, 6]
    assert [entry.seq for entry in log.entries(1, max_events=1)] == [4]
    assert [entry.seq for entry in log.entries(4)] == [6, 7]
    assert [entry.seq for entry in log.entries(4, up_to=6)] == [6]
    assert log.entries(4)[0].events == EVENTS[1]
    log.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT seq, count FROM entries").fetchall() == [(1, 1), (7, 6)]
    connection.close()


@pytest.mark.parametrize(
    "counts", [b"\3\0\0\0", b"\3\0\0", b"\6\0\0\0\0\0\0\0", b"", "text", b"\2\0\0\0" * 4]
)
def test_wrong_counts_are_found(tmp_path: Path, counts: bytes | str) -> None:
    log = SqliteLog(tmp_path / "log.db")
    log.append_all(EVENTS)
    log.close()
    with sqlite3.connect(tmp_path / "log.db") as connection:
        connection.execute("UPDATE entries SET counts = ?", (counts,))
    connection.close()
    log = SqliteLog(tmp_path / "log.db")
    with pytest.raises(LogError, match="must hold the events of entry 6"):
        log.entries(0)
    log.close()


@given(
    groups=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=5),
    after=st.integers(0, 60),
    up_to=st.integers(0, 70),
    most=st.integers(1, 12),
)
@example(groups=[[5, 4, 4], [4]], after=0, up_to=11, most=8)  # the end is between two entries of one row
def test_reading_is_as_from_a_list_of_entries(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[int]], after: int, up_to: int, most: int
) -> None:
    log = SqliteLog(tmp_path_factory.mktemp("log") / "log.db")
    entries: list[Entry] = []
    for group in groups:
        seq = log.last_seq()
        events = [Events().add_nodes(np.arange(count) + 100 * at) for at, count in enumerate(group)]
        log.append_all(events)
        for one in events:
            if len(one):
                seq += len(one)
                entries.append(Entry(seq, one))
    assert list(log.entries(0)) == entries
    ends = [0, *(entry.seq for entry in entries)]
    after = ends[after % len(ends)]
    wanted = [entry for entry in entries if after < entry.seq <= up_to]
    assert list(log.entries(after, up_to=up_to)) == wanted
    fitting = [entry for entry in entries if after < entry.seq <= after + most]
    next_one = [entry for entry in entries if after < entry.seq][:1]
    assert list(log.entries(after, max_events=most)) == (fitting or next_one)
    log.close()


def test_a_digest_within_a_row_names_the_history_up_to_there(tmp_path: Path) -> None:
    one, other = SqliteLog(tmp_path / "one.db"), SqliteLog(tmp_path / "other.db")
    one.append_all([Events().add_nodes([1]), Events().add_nodes([2]), Events().add_nodes([3])])
    other.append_all([Events().add_nodes([1]), Events().add_nodes([2]), Events().add_nodes([4])])
    assert [one.digest(seq) == other.digest(seq) for seq in range(4)] == [True, True, True, False]
    assert len({one.digest(seq) for seq in range(4)}) == 4
    one.close()
    other.close()


def test_a_key_has_one_effect_and_one_answer(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    assert log.append(EVENTS[0], key="a") == 3
    assert log.append(EVENTS[1]) == 5
    assert log.append(EVENTS[0], key="a") == 3
    outcomes = log.append_all([EVENTS[2], EVENTS[0], EVENTS[2], EVENTS[1]], ["b", "a", "b", "a"])
    assert outcomes[:3] == [Appended(6, 1), Appended(3, 3, again=True), Appended(6, 1, again=True)]
    assert "same events each time, got 'a' with others than those of entry 3" in str(outcomes[3])
    log.close()
    log = SqliteLog(tmp_path / "log.db")
    assert log.append(EVENTS[2], key="b") == 6
    assert log.last_seq() == 6
    for key in ("", "x" * 256, "a\nb", 7):
        with pytest.raises(InputError, match="an idempotency key must be text of 1 to 255 printable"):
            log.append(EVENTS[0], key=key)  # type: ignore[arg-type]
    log.close()


def test_keys_are_kept_as_long_as_was_said(tmp_path: Path) -> None:
    connection = connect(tmp_path / "log.db", FORMAT, "FULL")
    now = 1e9
    keys = Keys(connection, 60, lambda: now)
    old = keys.make("old", EVENTS[0], 3)
    keys.add([old])
    now += 59
    young = keys.make("young", EVENTS[1], 5)
    keys.add([young])
    assert (keys.find("old"), keys.find("young")) == (old, young)
    now += 2
    keys.add([keys.make("new", EVENTS[1], 7)])
    assert (keys.find("old"), keys.find("young")) == (None, young)
    connection.close()


def test_a_log_has_one_owner(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = SqliteLog(path)
    before = path.read_bytes()
    with pytest.raises(LogError, match=f"must have one owner, got a second one: process {os.getpid()}"):
        SqliteLog(path)
    assert log.append(Events().add_nodes(1)) == 1
    assert path.read_bytes() == before
    log.close()
    SqliteLog(path).close()


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    log = filled(tmp_path / "log.db")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    names = {f"log.db{ending}" for ending in ("", "-wal", "-shm", "-mark", "-lock")}
    assert modes == dict.fromkeys(names, 0o600)
    log.close()


def test_a_sync_reaches_the_disk_beside_a_foreign_reader(tmp_path: Path) -> None:
    """A reader keeps SQLite from moving the write-ahead file into the log, and not from flushing it."""
    path, disk = tmp_path / "log.db", FaultyDisk("foreign reader")
    log = SqliteLog(path, vfs=disk.name)
    log.append(Events().add_nodes([1, 2]))
    reader = sqlite3.connect(path)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    disk.syncs.clear()
    log.record_batch(Batch(0, 2))
    assert disk.syncs["log.db-wal"] == 0
    log.sync()
    assert disk.syncs["log.db-wal"] > 0
    reader.close()
    log.close()


def test_appends_that_wait_together_share_a_flush(tmp_path: Path) -> None:
    disk = FaultyDisk("group commit")
    log = SqliteLog(tmp_path / "log.db", vfs=disk.name)
    disk.syncs.clear()
    log.append_all([Events().add_nodes(number) for number in range(100)])
    assert disk.syncs["log.db-wal"] <= 2  # the first write to the file flushes its header too
    log.close()


@pytest.mark.parametrize("failure", ["full", "failing"])
def test_a_disk_that_fails_changes_nothing_and_may_come_back(tmp_path: Path, failure: str) -> None:
    disk = FaultyDisk(f"disk {failure}")
    log = SqliteLog(tmp_path / "log.db", vfs=disk.name)
    assert log.append(EVENTS[0], key="a") == 3
    setattr(disk, failure, True)
    for _ in range(3):
        error = DiskFullError if failure == "full" else LogError
        with pytest.raises(error, match="cannot append to the event log"):
            log.append(Events().add_nodes(np.arange(10_000)), key="b")
        assert log.last_seq() == 3
    setattr(disk, failure, False)
    assert log.append(EVENTS[1], key="b") == 5
    assert [entry.events for entry in log.entries(0)] == EVENTS[:2]
    log.close()


class InterruptedOnce:
    """A connection at which an interrupt comes as soon as the first statement is done."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection, self._left = connection, 1

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, *given: Any) -> object:
        return self._interrupt(given[0], self._connection.execute(*given))

    def executemany(self, *given: Any) -> object:
        return self._interrupt(given[0], self._connection.executemany(*given))

    def _interrupt(self, statement: str, result: object) -> object:
        if self._left and statement.startswith("INSERT"):
            self._left = 0
            raise KeyboardInterrupt
        return result


def test_an_interrupt_after_a_commit_loses_and_doubles_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path / "log.db")
    log._appends = InterruptedOnce(log._appends)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        log.append(EVENTS[0])
    assert log.append(EVENTS[1]) == 11
    assert [entry.events for entry in log.entries(0)] == [*EVENTS, EVENTS[0], EVENTS[1]]
    assert (log.last_seq(), log.digest(11) != log.digest(9)) == (11, True)
    log.close()


def test_the_repeat_of_an_append_that_was_interrupted_is_stored_whoever_keeps_the_interrupt(
    tmp_path: Path,
) -> None:
    """It found its own key, which was not committed, and was acknowledged; then both were rolled back."""
    log = filled(tmp_path / "log.db")
    log._appends = InterruptedOnce(log._appends)  # type: ignore[assignment]
    log._keys._connection = log._appends
    with pytest.raises(KeyboardInterrupt) as kept:
        log.append(EVENTS[0], key="a")
    assert log.last_seq() == 6
    assert log.append(EVENTS[0], key="a") == 9
    assert log.append(EVENTS[1], key="b") == 11
    log.close()
    log = SqliteLog(tmp_path / "log.db")
    assert [entry.events for entry in log.entries(0)] == [*EVENTS, EVENTS[0], EVENTS[1]]
    assert kept.value is not None
    log.close()


def test_a_log_of_version_2_is_read_continued_and_trimmed(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = filled(path)
    log.record_batch(Batch(0, 3), Rejection(3, "InputError", "no"))
    log.record_batch(Batch(3, 6))
    digest = log.digest(6)
    log.close()
    with sqlite3.connect(path) as connection:
        connection.executescript(VERSION_2)
    connection.close()
    with pytest.raises(LogError, match="of version 5 to be read, got version 2: start what owns it once"):
        SqliteReader(path)
    log = SqliteLog(path)
    assert [entry.events for entry in log.entries(0)] == EVENTS
    assert (log.digest(6), list(log.batches(0))) == (digest, [Batch(0, 3), Batch(3, 6)])
    assert log.append(EVENTS[0]) == 9
    assert log.trim(5) == 5
    assert log.entry(3) == Entry(3, EVENTS[0])
    reader = SqliteReader(path)
    assert [entry.events for entry in reader.entries(5)] == [EVENTS[2], EVENTS[0]]
    reader.close()
    log.close()


def test_a_log_of_version_3_is_read_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = filled(path)
    log.append_all([EVENTS[0]], origins=[Origin("a", 0, 3)])
    log.close()
    with sqlite3.connect(path) as connection:
        connection.executescript(VERSION_3)
    connection.close()
    log = SqliteLog(path)
    assert [entry.events for entry in log.entries(0)] == [*EVENTS, EVENTS[0]]
    assert (log.position("a", 0), list(log.bad_messages())) == (3, [])
    log.append_all([InputError("no")], origins=[Origin("a", 0, 4, b"x")])
    assert list(log.bad_messages()) == [BadMessage(1, "a", 0, 4, "no", b"x", 1)]
    log.close()


def test_a_log_of_version_4_gets_checksums_of_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = filled(path)
    log.append_all([EVENTS[0]], ["key"], [Origin("a", 0, 3)])
    log.append_all([InputError("no")], origins=[Origin("a", 0, 4, b"\xff")])
    log.bind({"name": "ä"})
    log.record_batch(Batch(0, 3), Rejection(3, "InputError", "no"))
    log.close()
    with sqlite3.connect(path) as connection:
        connection.executescript(VERSION_4)
    connection.close()
    for _ in range(2):
        log = SqliteLog(path)
        assert log.position("a", 0) == 4
        assert list(log.bad_messages()) == [BadMessage(1, "a", 0, 4, "no", b"\xff", 1)]
        assert list(log.rejections()) == [Rejection(3, "InputError", "no")]
        assert log.append(EVENTS[0], key="key") == 9
        assert log.bound() == {"name": "ä"}
        log.close()
        assert examine(path).problems == []


@pytest.mark.parametrize(
    ("change", "table"),
    [
        ("UPDATE origins SET offset = offset + 64", "origins"),
        ("UPDATE origins SET seq = seq - 1", "origins"),
        ("UPDATE origins SET source = 'b'", "origins"),
        ("UPDATE origins SET source = x'61'", "origins"),
        ("UPDATE keys SET crc32 = crc32 + 1", "keys"),
        ("UPDATE keys SET time = time + 65536", "keys"),
        ("UPDATE bad_messages SET reason = 'yes'", "bad_messages"),
        ("UPDATE bad_messages SET offset = offset - 1", "bad_messages"),
        ("UPDATE properties SET value = 'theirs' WHERE name = 'bound/name'", "properties"),
        ("UPDATE rejections SET message = 'yes'", "rejections"),
    ],
)
def test_a_spoiled_value_is_not_believed(tmp_path: Path, change: str, table: str) -> None:
    path = tmp_path / "log.db"
    log = filled(path)
    log.append_all([EVENTS[0]], ["key"], [Origin("a", 0, 3)])
    log.append_all([InputError("no")], origins=[Origin("a", 0, 4, b"x")])
    log.bind({"name": "ours"})
    log.record_batch(Batch(0, 3), Rejection(3, "InputError", "no"))
    log.close()
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    assert any(f"a row of {table} is not as it was written" in one for one in examine(path).problems)
    said = f"{re.escape(str(path))} must have the rows of the table {table} as they were written"
    with pytest.raises(LogError, match=said):
        use(SqliteLog(path))


def use(log: SqliteLog) -> None:
    """Reads all that has a checksum."""
    with closing(log):
        log.append_all([EVENTS[0]], origins=[Origin("a", 0, 5)])
        log.append(EVENTS[0], key="key")
        log.bad_messages()
        log.bound()
        log.rejections()


def test_a_log_of_version_1_is_read_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(VERSION_1)
        for seq, events in zip([3, 5, 6], EVENTS, strict=True):
            connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (seq, len(events), events.to_bytes()))
        connection.execute("INSERT INTO batches VALUES (5, 0)")
        connection.execute("INSERT INTO rejections VALUES (3, 'InputError', 'no')")
    connection.close()
    log = SqliteLog(path)
    assert [entry.events for entry in log.entries(0)] == EVENTS
    assert (list(log.batches(0)), list(log.rejections())) == (
        [Batch(0, 5)],
        [Rejection(3, "InputError", "no")],
    )
    assert log.digest(5) is None
    assert log.append_all([Events().add_nodes(1), Events().add_nodes(2)], ["a", None]) == [
        Appended(7, 1),
        Appended(8, 1),
    ]
    log.record_batch(Batch(5, 8), Rejection(7, "InputError", "no"))
    assert log.digest(8) is not None
    log.close()
    log = SqliteLog(path)
    assert [entry.seq for entry in log.entries(0)] == [3, 5, 6, 7, 8]
    assert log.append(Events().add_nodes(1), key="a") == 7
    digest = log.digest(8)
    assert log.trim(5) == 5
    assert (log.digest(5), log.digest(8), log.entry(3)) == (None, digest, Entry(3, EVENTS[0]))
    log.close()
