"""A log is one file, whatever link leads to it; what is no such file is named."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from livegnn import Events, InputError, LogError
from livegnn.log import Batch
from livegnn.log.consumers import read_positions
from livegnn.log.location import Owner
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.examination import examine
from livegnn.log.sqlite.reader import SqliteReader
from livegnn.log.sqlite.tail import SqliteTail

NOBODY = 65534
READERS: dict[str, Callable[[Path], object]] = {
    "reader": SqliteReader,
    "tail": lambda path: SqliteTail(path, "one"),
    "examine": examine,
}
ALL: dict[str, Callable[[Path], object]] = {**READERS, "log": SqliteLog}


@pytest.fixture(params=["file", "folder", "twice", "relative"])
def link(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Another way to data/real.db, which need not be there yet."""
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "first.db").symlink_to(folder / "real.db")
    (tmp_path / "folder").symlink_to(folder)
    (tmp_path / "twice.db").symlink_to(tmp_path / "first.db")
    (tmp_path / "relative.db").symlink_to("data/real.db")
    return {
        "file": tmp_path / "first.db",
        "folder": tmp_path / "folder" / "real.db",
        "twice": tmp_path / "twice.db",
        "relative": tmp_path / "relative.db",
    }[request.param]


def fill(path: Path, entries: int = 50) -> SqliteLog:
    log = SqliteLog(path)
    for number in range(entries):
        log.append(Events().add_edges(number, number + 1))
    return log


def test_a_log_has_one_owner_by_all_its_names(link: Path, tmp_path: Path) -> None:
    real = tmp_path / "data" / "real.db"
    SqliteLog(real).close()
    for first, second in ((real, link), (link, real)):
        log = SqliteLog(first)
        with pytest.raises(LogError, match="must have one owner"):
            SqliteLog(second)
        log.close()
    assert {path.name for path in tmp_path.iterdir()} == {
        "data", "first.db", "folder", "twice.db", "relative.db",
    }  # fmt: skip


def test_consumers_and_the_mark_are_those_of_the_file(link: Path, tmp_path: Path) -> None:
    real = tmp_path / "data" / "real.db"
    log = fill(real)
    log.record_batch(Batch(0, 50))
    log.append(Events().add_edges(1, 2))
    log.record_batch(Batch(50, 51))
    tail = SqliteTail(link, "one")
    assert tail.wait(timeout=0)
    tail.commit(tail.entries(max_events=3)[-1].seq)
    assert read_positions(link) == read_positions(real) == {"one": 3}
    assert log.trim(51) == 3
    assert [entry.seq for entry in tail.entries()] == list(range(4, 52))
    tail.close()
    log.close()
    (tmp_path / "data" / "real.db-mark").write_bytes(b"%020d %08x\n" % (60, 0))  # no mark: it cannot be read
    assert examine(link).problems == []


def test_damage_beside_the_file_is_seen_by_the_link(link: Path, tmp_path: Path) -> None:
    log = fill(tmp_path / "data" / "real.db")
    wal = tmp_path / "data" / "real.db-wal"
    content = bytearray(wal.read_bytes())
    kept = (tmp_path / "data" / "real.db").read_bytes()
    log.close()
    content[len(content) // 2] ^= 1
    (tmp_path / "data" / "real.db").write_bytes(kept)
    wal.write_bytes(content)
    assert examine(link).problems
    with pytest.raises(LogError, match="must have the checksums of the written bytes"):
        SqliteLog(link)


@pytest.mark.parametrize("name", ALL)
def test_what_is_no_file_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "dangling.db").symlink_to(tmp_path / "gone.db")
    (tmp_path / "loop.db").symlink_to(tmp_path / "loop.db")
    (tmp_path / "folder.db").mkdir()
    os.mkfifo(tmp_path / "pipe.db")
    for file, message in (
        ("dangling.db", r"got a link to .*gone\.db, where nothing is"),
        ("loop.db", "cannot (open|examine) the event log"),
        ("folder.db", "must be a regular file, got a directory"),
        ("pipe.db", "must be a regular file, got a named pipe"),
        *([] if name == "log" else [("missing.db", "got no such file")]),
    ):
        with pytest.raises(LogError, match=message):
            ALL[name](tmp_path / file)
        assert not (tmp_path / "gone.db").exists()
    with pytest.raises(InputError, match="must name the file"):
        ALL[name](Path())
    assert len(list(tmp_path.iterdir())) == 4


def test_a_lock_that_is_removed_while_it_is_taken_is_taken_anew(tmp_path: Path) -> None:
    """Who held the old file holds nothing any more, so the new owner must hold the file that is there."""
    path = tmp_path / "lock"
    first = Owner(path, "it")
    path.unlink()
    second = Owner(path, "it")
    with pytest.raises(LogError, match="must have one owner"):
        Owner(path, "it")
    first.release()
    second.release()
    Owner(path, "it").release()


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[Path]:
    """A folder of somebody whom permissions hold, as which the test runs."""
    folder = Path(tempfile.mkdtemp(prefix="livegnn-backup-"))
    user = os.geteuid()
    if user == 0:
        os.chown(folder, NOBODY, -1)
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        if user == 0:
            os.seteuid(user)
        folder.chmod(0o700)
        shutil.rmtree(folder)


def test_a_log_in_a_folder_that_cannot_be_written_is_read(unprivileged: Path) -> None:
    """Where a part of it lies in its -wal, which SQLite must index beside it, it says what to do."""
    folder = unprivileged
    log = fill(folder / "a?b%20#.db")
    log.record_batch(Batch(0, 50))
    parts = {ending: (folder / f"a?b%20#.db{ending}").read_bytes() for ending in ("", "-wal")}
    log.close()
    folder.chmod(0o500)
    before = sorted(folder.iterdir())
    reader = SqliteReader(folder / "a?b%20#.db")
    assert [entry.seq for entry in reader.entries(0)] == list(range(1, 51))
    reader.close()
    found = examine(folder / "a?b%20#.db")
    assert (found.end, found.batches, found.problems) == (50, 1, [])
    assert sorted(folder.iterdir()) == before
    folder.chmod(0o700)
    for ending, content in parts.items():
        (folder / f"a?b%20#.db{ending}").write_bytes(content)
    folder.chmod(0o500)
    for name in ("reader", "examine"):
        with pytest.raises(LogError, match=r"copy .* and .*-wal to another folder"):
            READERS[name](folder / "a?b%20#.db")
