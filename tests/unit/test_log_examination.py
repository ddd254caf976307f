"""A whole log is examined: each kind of damage is named, and what is whole is never called damaged."""

from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn import Events, InputError, LogError
from livegnn.log import Batch, Origin, Rejection
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.examination import Examination, examine
from livegnn.log.sqlite.reader import SqliteReader
from livegnn.log.sqlite.sequence import LastAcknowledged

PAGE = 4096


def fill(path: Path, *, trimmed: bool = False) -> SqliteLog:
    log = SqliteLog(path)
    after = 0
    for number in range(20):
        entries = [Events().add_nodes(np.arange(size) + 100 * number) for size in (1, 3)]
        log.append_all(entries, [f"key {number}", None], [None, Origin("topic", number % 2, number)])
        if number < 3:
            log.append_all([InputError("no")], origins=[Origin("other", 5, number, b"{")])
        end = log.last_seq()
        if number % 3:
            refused = [Rejection(end, "InputError", "no")] if number % 5 == 1 else []
            log.record_batch(Batch(after, end), *refused)
            after = end
    if trimmed:
        assert log.trim(50) == 48
    return log


def test_a_whole_log_is_counted(tmp_path: Path) -> None:
    log = fill(tmp_path / "log.db")
    expected = Examination(
        begin=0,
        end=80,
        rows=20,
        entries=40,
        batches=13,
        last_batch=80,
        rejections=3,
        keys=20,
        origins=3,
        bad_messages=3,
    )
    assert examine(log.path) == expected  # beside its owner
    log.append(Events().add_nodes(1))
    log.close()
    assert (examine(log.path).end, examine(log.path).problems) == (81, [])


def test_a_trimmed_log_is_whole(tmp_path: Path) -> None:
    log = fill(tmp_path / "log.db", trimmed=True)
    found = examine(log.path)
    assert (found.begin, found.end, found.rejections, found.dead_letters, found.problems) == (
        48,
        80,
        3,
        2,
        [],
    )
    log.close()


def test_an_empty_log_and_no_log(tmp_path: Path) -> None:
    SqliteLog(tmp_path / "log.db").close()
    assert examine(tmp_path / "log.db") == Examination(begin=0)
    with pytest.raises(LogError, match="got no such file"):
        examine(tmp_path / "missing.db")
    assert not (tmp_path / "missing.db").exists()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM entries WHERE seq = 60", "entries must go on after event 56, got a row after 60"),
        (
            "UPDATE entries SET payload = substr(payload, 2) WHERE seq = 60",
            "ends at event 60 is not as it was",
        ),
        (
            "UPDATE entries SET counts = x'0200000002000000' WHERE seq = 60",
            "the chain of the row that ends at",
        ),
        ("UPDATE entries SET chain = x'00' WHERE seq = 60", "the chain of the row that ends at event 60"),
        ("UPDATE entries SET chain = NULL WHERE seq = 60", "the row that ends at event 60 has no chain"),
        (
            "UPDATE entries SET payload = (SELECT payload FROM entries WHERE seq = 64) WHERE seq = 60",
            "the chain of the row that ends at event 60 is not that of its history",
        ),
        ("DELETE FROM batches WHERE seq = 68", "batches must go on after event 60, got one after 68"),
        ("UPDATE batches SET seq = 67 WHERE seq = 68", "the batch that ends at event 67 must end with"),
        ("UPDATE rejections SET seq = 79 WHERE seq = 68", "the rejection of entry 79 is of an entry that"),
        (
            "UPDATE rejections SET message = x'00' WHERE seq = 68",
            "the rejection of entry 68 must say in text",
        ),
        ("INSERT INTO rejections VALUES (99, 'a', 'b', 0)", "the rejection of entry 99 is of an entry that"),
        (
            "DELETE FROM dead_letters WHERE seq = 8",
            "the rejection of entry 8 is of an entry that is not there",
        ),
        ("UPDATE dead_letters SET payload = x'00' WHERE seq = 8", "the dead letter of entry 8 is not as"),
        ("DELETE FROM rejections WHERE seq = 8", "the dead letter of entry 8 has no rejection"),
        (
            "UPDATE keys SET seq = 62 WHERE key = 'key 18'",
            "the key 'key 18' is of entry 62, which is not there",
        ),
        ("UPDATE origins SET seq = 99 WHERE partition = 1", "the origin 'topic', 1 is of entry 99, which is"),
        ("DELETE FROM bad_messages WHERE number = 2", "got number 3 after 1"),
        ("UPDATE bad_messages SET payload = 'text' WHERE number = 2", "bad message 2 must have a payload of"),
        (
            "UPDATE bad_messages SET offset = 9 WHERE number = 1",
            "bad message 1 has the offset 9, but its par",
        ),
        ("DELETE FROM origins WHERE source = 'other'", "bad message 1 has the offset 0, but its partition"),
        (
            "UPDATE properties SET value = '44' WHERE name = 'trimmed'",
            "must go on after event 44, got a row after",
        ),
        (
            "UPDATE properties SET value = '00' WHERE name = 'trimmed_chain'",
            "chain of the row that ends at event 52",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, statement: str, problem: str) -> None:
    path = tmp_path / "log.db"
    fill(path, trimmed=True).close()
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    assert connection.changes() == 1
    connection.close()
    problems = examine(path).problems
    assert any(problem in one for one in problems), problems


@pytest.mark.parametrize("table", ["entries", "batches", "rejections", "keys", "bad_messages"])
def test_a_damaged_schema_is_named(tmp_path: Path, table: str) -> None:
    path = tmp_path / "log.db"
    fill(path, trimmed=True).close()
    content = path.read_bytes()
    sql = b"CREATE TABLE %s (" % table.encode()
    at = content.index(b"PRIMARY KEY", content.index(sql))
    path.write_bytes(content[:at] + b"PRIMARX" + content[at + 7 :])
    assert examine(path).problems


def test_a_lost_end_and_a_damaged_write_ahead_file_are_named(tmp_path: Path) -> None:
    log = fill(tmp_path / "log.db")
    LastAcknowledged(tmp_path / "log.db-mark").write(95)
    assert examine(log.path).problems == ["event 95 was acknowledged, the log ends at 80"]
    LastAcknowledged(tmp_path / "log.db-mark").write(80)
    wal = tmp_path / "log.db-wal"
    main, content = log.path.read_bytes(), bytearray(wal.read_bytes())
    log.close()
    content[len(content) // 2] ^= 1
    log.path.write_bytes(main)
    wal.write_bytes(content)
    problems = examine(log.path).problems
    assert problems[0].startswith("log.db-wal is damaged at frame")
    assert problems[-1].startswith("event 80 was acknowledged, the log ends at")


def test_at_most_twenty_problems_are_named(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    fill(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE entries SET payload = x'00'")
    connection.close()
    assert len(examine(path).problems) == 20


class Written:
    """A log: its bytes, and what is in it. No dataclass: Hypothesis shows all of one."""

    def __init__(self, content: bytes, held: tuple[object, ...]) -> None:
        self.content, self.held = content, held


def held_by(reader: SqliteReader) -> tuple[object, ...]:
    """All that others go on from."""
    places = [("topic", 0), ("topic", 1), ("other", 5), ("none", 0)]
    return (
        list(reader.entries(48)),
        list(reader.rejections()),
        list(reader.bad_messages()),
        [reader.position(*place) for place in places],
        reader.bound(),
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    path = tmp_path_factory.mktemp("log") / "log.db"
    log = fill(path, trimmed=True)
    log.bind({"name": "value"})
    held = held_by(log)
    log.close()
    return Written(path.read_bytes(), held)


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, 2**31), value=st.integers(1, 255), sector=st.booleans())
def test_no_spoiled_byte_goes_unseen_where_it_matters(
    written: Written,
    tmp_path_factory: pytest.TempPathFactory,
    place: int,
    value: int,
    sector: bool,
) -> None:
    """A log with a byte or a sector spoiled is refused, has a problem, or holds what was written."""
    data = bytearray(written.content)
    place %= len(data)
    if sector:
        begin = place - place % 512
        data[begin : begin + 512] = bytes(512)
    else:
        data[place] ^= value
    path = tmp_path_factory.mktemp("spoiled") / "log.db"
    path.write_bytes(data)
    try:
        problems = examine(path).problems
    except LogError:
        return
    if not problems:
        reader = SqliteReader(path)
        same = held_by(reader) == written.held
        assert same, "something is other than it was, and no problem is named"
        reader.close()
