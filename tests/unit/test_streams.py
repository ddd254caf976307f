"""Streams of records, held against a list: new starts, readers beside the writer, trims, damage."""

import re
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn.errors import InputError, LogError
from livegnn.log import Origin
from livegnn.log.consumers import Position
from livegnn.log.streams import Record, RecordStream, StoredRecord
from livegnn.log.streams.sqlite import SqliteStream, SqliteStreamReader, path_of

NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,9}\Z")
ORIGINS = st.tuples(st.sampled_from(["a", "é b"]), st.integers(0, 1), st.integers(0, 9)).map(
    lambda place: Origin(*place)
)
RECORDS = st.builds(Record, NAMES, st.binary(max_size=300), st.none() | ORIGINS)


class Model:
    """What a stream is, as a list."""

    def __init__(self) -> None:
        self.records: list[StoredRecord] = []
        self.offsets: dict[tuple[str, int], int] = {}

    def append(self, records: Sequence[Record]) -> int:
        before = dict(self.offsets)
        for kind, payload, origin in records:
            if origin is not None:
                place = (origin.source, origin.partition)
                if origin.offset <= before.get(place, -1):
                    continue
                self.offsets[place] = max(origin.offset, self.offsets.get(place, -1))
            self.records.append(StoredRecord(len(self.records) + 1, kind, payload, origin))
        return len(self.records)


@settings(max_examples=draws(20, 200), deadline=None)
@given(calls=st.lists(st.tuples(st.lists(RECORDS, max_size=6), st.booleans()), max_size=12), data=st.data())
def test_a_stream_is_a_list(
    tmp_path_factory: pytest.TempPathFactory,
    calls: list[tuple[list[Record], bool]],
    data: st.DataObject,
) -> None:
    log = tmp_path_factory.mktemp("stream") / "events.db"
    model = Model()
    stream: RecordStream = SqliteStream(log, "samples", 3)
    try:
        for records, again in calls:
            assert stream.append_all(records) == model.append(records)
            if again:
                stream.close()
                stream = SqliteStream(log, "samples", 3)
            assert stream.last_position() == len(model.records)
            for place in [("a", 0), ("a", 1), ("é b", 0), ("é b", 1)]:
                assert stream.reached(*place) == model.offsets.get(place)
            with closing(SqliteStreamReader(log, "samples", 3)) as reader:
                after = data.draw(st.integers(0, len(model.records)))
                most = data.draw(st.none() | st.integers(0, 700))
                expected = model.records[after:]
                if most is not None:
                    sizes = [sum(len(r.payload) for r in expected[: n + 1]) for n in range(len(expected))]
                    expected = expected[: max(1, sum(size <= most for size in sizes))]
                for one in (reader, stream):
                    assert one.records(after, max_bytes=most) == expected
                    assert one.wait(after, 0) == (after < len(model.records))
    finally:
        stream.close()


def test_a_long_stream_is_read_whole_and_trimmed(tmp_path: Path) -> None:
    with closing(SqliteStream(tmp_path / "log", "numbers")) as stream:
        stream.append_all([Record("n", b"%d" % number) for number in range(25_000)])
        with closing(SqliteStreamReader(tmp_path / "log", "numbers")) as reader:
            assert [int(one.payload) for one in reader.records(0)] == list(range(25_000))
            assert stream.trim(21_000) == 21_000
            assert [int(one.payload) for one in reader.records(21_000)] == list(range(21_000, 25_000))
            with pytest.raises(LogError, match="must hold record 1, got a stream that begins at 21001"):
                reader.records(0)
            assert stream.trim(10**9) == 24_999
            assert stream.trim(5) == 24_999
            assert len(reader.records(24_999)) == 1
    with closing(SqliteStream(tmp_path / "log", "numbers")) as stream:
        assert stream.last_position() == 25_000
        assert stream.append_all([Record("n", b"")]) == 25_001


def test_what_a_consumer_has_not_committed_is_not_trimmed(tmp_path: Path) -> None:
    with closing(SqliteStream(tmp_path / "log", "s")) as stream:
        stream.append_all([Record("n", b"x")] * 10)
        with closing(Position(stream.path, "reader")) as position:
            position.register(4)
            assert stream.trim(8) == 4
            position.write(7)
            assert stream.trim(8) == 7


def test_each_partition_has_one_writer_and_any_readers(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with closing(SqliteStream(log, "s", 0)) as one, closing(SqliteStream(log, "s", 12)) as other:
        with pytest.raises(LogError, match=r"must have one owner, got a second one: process \d+"):
            SqliteStream(log, "s", 0)
        one.append_all([Record("t", b"1")])
        assert {path.name for path in one.path.parent.glob("*.db")} == {"0.db", "12.db"}
        assert other.last_position() == 0
        woken = threading.Event()
        with closing(SqliteStreamReader(log, "s", 12)) as reader:
            thread = threading.Thread(target=lambda: reader.wait(0) and woken.set())
            thread.start()
            other.append_all([Record("t", b"2")])
            thread.join()
            assert woken.is_set()
            ends = threading.Thread(target=reader.wait, args=(1,))
            ends.start()
            reader.close()
            ends.join()
            with pytest.raises(LogError, match="cannot read the stream"):
                reader.records(0)
    assert all(path.stat().st_mode & 0o077 == 0 for path in one.path.parent.parent.rglob("*"))
    with closing(SqliteStream(log, "s", 0)) as again:
        assert again.records(0) == [StoredRecord(1, "t", b"1", None)]


def test_what_is_no_record_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    with closing(SqliteStream(tmp_path / "log", "s")) as stream:
        good = Record("t", b"")
        for bad in (
            Record("", b""),
            Record("a b", b""),
            Record("t", "text"),  # type: ignore[arg-type]
            Record("t", b"", Origin("", 0, 0)),
            Record("t", b"", Origin("a", 0, -1)),
            ("t", b"", None),
        ):
            with pytest.raises(InputError):
                stream.append_all([good, bad])  # type: ignore[list-item]
        for records in (None, good.payload, {good}):
            with pytest.raises(InputError):
                stream.append_all(records)  # type: ignore[arg-type]
        assert stream.last_position() == 0
        for after in (-1, 1.5, None, True):
            with pytest.raises(InputError):
                stream.records(after)  # type: ignore[arg-type]
        with pytest.raises(LogError, match="must reach position 1, got a stream that ends at 0"):
            stream.records(1)
    for name, partition in (("", 0), ("a/b", 0), ("events", 0), ("control", 0), ("s", -1), ("s", 2**31)):
        with pytest.raises(InputError):
            SqliteStream(tmp_path / "log", name, partition)
    with pytest.raises(LogError, match="there must be a stream at"):
        SqliteStreamReader(tmp_path / "log", "s", 1)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE records SET payload = x'00' WHERE position = 2",
        "UPDATE records SET type = 'u' WHERE position = 2",
        "UPDATE records SET offset = 8 WHERE position = 2",
        "UPDATE records SET source = NULL WHERE position = 2",
        "UPDATE records SET position = 9 WHERE position = 2",
        "DELETE FROM records WHERE position = 2",
        "UPDATE records SET payload = 'text' WHERE position = 2",
    ],
)
def test_damage_is_seen(tmp_path: Path, change: str) -> None:
    with closing(SqliteStream(tmp_path / "log", "s")) as stream:
        stream.append_all([Record("t", b"%d" % n, Origin("a", 0, n)) for n in range(3)])
    with closing(sqlite3.connect(stream.path)) as connection, connection:
        connection.execute(change)
    with closing(SqliteStreamReader(tmp_path / "log", "s")) as reader:
        assert len(reader.records(0)) == len(reader.records(0, max_bytes=1)) == 1
        with pytest.raises(LogError, match="record 2"):
            reader.records(1)


@pytest.mark.parametrize("change", ["offset = 18", "partition = 1", "source = 'b'", "crc32 = 0"])
def test_a_spoiled_offset_makes_nothing_count_as_stored(tmp_path: Path, change: str) -> None:
    with closing(SqliteStream(tmp_path / "log", "s")) as stream:
        stream.append_all([Record("t", b"", Origin("a", 0, 2))])
    with closing(sqlite3.connect(stream.path)) as connection, connection:
        connection.execute(f"UPDATE reached SET {change}")
    with closing(SqliteStream(tmp_path / "log", "s")) as stream:
        with pytest.raises(
            LogError, match=re.escape(f"{stream.path} must have the rows of the table reached")
        ):
            stream.append_all([Record("t", b"", Origin("a", 0, 3))])
        with pytest.raises(LogError, match="the table reached"):
            stream.reached("a", 0)


def test_a_stream_that_lost_its_end_is_refused(tmp_path: Path) -> None:
    with closing(SqliteStream(tmp_path / "log", "s")) as stream:
        stream.append_all([Record("t", b"")] * 3)
    with closing(sqlite3.connect(stream.path)) as connection, connection:
        connection.execute("DELETE FROM records WHERE position = 3")
    with pytest.raises(LogError, match="must reach position 3, got a stream that ends at 2"):
        SqliteStream(tmp_path / "log", "s")


def test_a_writer_acknowledges_what_one_left_that_died_before_the_mark(tmp_path: Path) -> None:
    with closing(SqliteStream(tmp_path / "log", "s")) as stream:
        stream.append_all([Record("t", b"")] * 3)
    stream.path.with_name("0.db-mark").unlink()
    with closing(SqliteStreamReader(tmp_path / "log", "s")) as reader:
        assert reader.last_position() == 0
        SqliteStream(tmp_path / "log", "s").close()
        assert reader.last_position() == 3


def test_errors_name_the_stream(tmp_path: Path) -> None:
    with closing(SqliteStream(tmp_path / "log", "s")) as stream:
        stream.append_all([Record("t", b"")])
    with closing(sqlite3.connect(stream.path)) as connection, connection:
        connection.execute("DROP TABLE reached")
    stream = SqliteStream(tmp_path / "log", "s")
    with pytest.raises(
        LogError, match=f"cannot append to the stream {re.escape(str(stream.path))}: .*reached"
    ):
        stream.append_all([Record("t", b"")])
    stream.close()
    stream.path.write_bytes(b"no database, but long enough to look like one" * 50)
    with pytest.raises(LogError, match=re.escape(f"cannot open the stream {stream.path}: ")):
        SqliteStream(tmp_path / "log", "s")


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = path_of(tmp_path / "log", "s", 0)
    path.parent.mkdir(parents=True)
    for content, message in ((b"x" * 600, "not a database"), (None, "another SQLite database")):
        path.unlink(missing_ok=True)
        if content is None:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("CREATE TABLE t (x)")
        else:
            path.write_bytes(content)
        for kind in (SqliteStream, SqliteStreamReader):
            with pytest.raises(LogError, match=message):
                kind(tmp_path / "log", "s")
