"""Files that a process holds open: what is written to them is found where they were opened, or refused."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import numpy as np
import pytest

from livegnn import Events
from livegnn.errors import LogError, LogMovedError, may_pass
from livegnn.log import Batch
from livegnn.log.consumers import Position, read_positions
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.open_files import OpenFiles
from livegnn.log.sqlite.sequence import LastAcknowledged
from livegnn.log.streams import Record
from livegnn.log.streams.sqlite import SqliteStream, path_of

SUFFIXES = ["", "-wal", "-shm", "-lock"]


def remove(path: Path) -> None:
    path.unlink()


def rename(path: Path) -> None:
    path.rename(path.with_name("aside"))


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


WAYS = [remove, rename, replace, move_folder]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_log_whose_file_is_gone_takes_nothing(
    tmp_path: Path, suffix: str, way: Callable[[Path], None]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with closing(SqliteLog(folder / "events.db")) as log:
        seq = log.append(Events().add_nodes(1))
        log.check_place()
        path = folder / f"events.db{suffix}"
        way(path)
        for write in (
            lambda: log.append(Events().add_nodes(2)),
            lambda: log.append(Events().add_nodes(2), key="a key"),
            lambda: log.bind({"a": "b"}),
            log.sync,
            log.probe,
            log.check_place,
            lambda: log.trim(1),
            lambda: log.forget_rejections(1),
        ):
            with pytest.raises(LogMovedError) as error:
                write()
            assert str(path) in str(error.value)
            assert may_pass(error.value)
        assert log.last_seq() == seq
        assert [entry.seq for entry in log.entries(0)] == [seq]


def test_a_log_that_is_put_back_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    with closing(SqliteLog(path)) as log:
        rename(path)
        with pytest.raises(LogMovedError, match=f"mv {tmp_path / 'aside'} {path}$"):
            log.append(Events().add_nodes(1))
        path.with_name("aside").rename(path)
        assert log.append(Events().add_nodes(1)) == 1
    with closing(SqliteLog(path)) as log:
        assert log.last_seq() == 1


def test_what_the_system_says_of_each_file(tmp_path: Path) -> None:
    """A file with another name is moved back, one without a name is copied, and nothing is written over."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    path = folder / "file"
    path.write_bytes(b"content")
    with path.open() as file:
        held = OpenFiles("the file", [path])
        held.check()
        rename(path)
        path.write_bytes(b"other")
        aside = path.with_name("aside")
        with pytest.raises(LogMovedError, match=f"mv '{path}' '{path}.other' && mv '{aside}' '{path}'$"):
            held.check()
        path.unlink()
        aside.unlink()
        copies = rf"cp /proc/{os.getpid()}/fd/{file.fileno()} '{path}'; then restart that process$"
        with pytest.raises(LogMovedError, match=f"back: {copies}"):
            held.check()
        folder.rmdir()
        with pytest.raises(LogMovedError, match=f"back: mkdir -p '{folder}' && {copies}"):
            held.check()
    with pytest.raises(LogMovedError, match=r"nothing is; put it back$"):
        held.check()
    held.release()
    held.check()


@pytest.mark.parametrize("way", [remove, rename, replace])
def test_a_mark_is_made_again(tmp_path: Path, way: Callable[[Path], None]) -> None:
    path = tmp_path / "mark"
    mark = LastAcknowledged(path)
    mark.write(1)
    way(path)
    mark.write(2)
    assert LastAcknowledged(path).read() == 2
    mark.close()


@pytest.mark.parametrize("way", WAYS)
def test_the_position_of_a_consumer_is_made_again(tmp_path: Path, way: Callable[[Path], None]) -> None:
    SqliteLog(tmp_path / "events.db").close()
    with closing(Position(tmp_path / "events.db", "me")) as position:
        position.write(1)
        way(position._path)
        position.write(2)
        assert read_positions(tmp_path / "events.db")["me"] == position.seq == 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_stream_whose_file_is_gone_takes_nothing(
    tmp_path: Path, suffix: str, way: Callable[[Path], None]
) -> None:
    with closing(SqliteStream(tmp_path / "events.db", "name")) as stream:
        stream.append_all([Record("kind", b"1")])
        path = path_of(tmp_path / "events.db", "name", 0)
        way(path.with_name(path.name + suffix))
        with pytest.raises(LogMovedError):
            stream.append_all([Record("kind", b"2")])
        assert stream.last_position() == 1


def test_a_closed_log_or_stream_says_that_it_is_closed(tmp_path: Path) -> None:
    """Their -wal is gone then, as it should be."""
    log, stream = SqliteLog(tmp_path / "events.db"), SqliteStream(tmp_path / "events.db", "name")
    log.close()
    stream.close()
    for write in (
        lambda: log.append(Events().add_nodes(1)),
        lambda: stream.append_all([Record("kind", b"1")]),
    ):
        with pytest.raises(LogError, match="closed"):
            write()


@pytest.mark.parametrize("size", [0, 4096, -1])
def test_a_log_that_is_cut_short_takes_nothing_more(tmp_path: Path, size: int) -> None:
    path = tmp_path / "events.db"
    with closing(SqliteLog(path)) as log:
        log.append(Events().add_nodes(1))
        checkpoint(path)
        whole = path.read_bytes()
        os.truncate(path, size % len(whole))
        for _ in range(2):
            for write in (lambda: log.append(Events().add_nodes(2)), log.sync, log.check_place):
                with pytest.raises(LogError, match=r"cut \d+ bytes off its end .* put back a copy") as raised:
                    write()
                assert not may_pass(raised.value)
            with path.open("r+b") as file:  # in place, as a later write would make it as long again
                file.write(whole)


def test_a_log_may_be_made_smaller_by_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    with closing(SqliteLog(path)) as log:
        for number in range(200):
            log.append(Events().set_features(np.arange(100), np.full((100, 8), number)))
        log.record_batch(Batch(0, log.last_seq()))
        checkpoint(path)
        before = path.stat().st_size
        log.trim(log.last_seq())
        with closing(apsw.Connection(str(path))) as other:
            other.execute("VACUUM")
        checkpoint(path)
        assert path.stat().st_size < before
        seq = log.append(Events().add_nodes(2))
        assert log.last_seq() == seq
        log.check_place()


def test_a_log_that_grows_while_another_thread_looks_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread has asked for the size when the file grows and another thread notes that."""
    path, look, grown = tmp_path / "events.db", os.stat, list[int]()
    with closing(SqliteLog(path)) as log:

        def look_and_grow(asked: Path | str, **options: bool) -> os.stat_result:
            found = look(asked, **options)
            if asked == str(path) and not grown:
                grown.append(found.st_size)
                log.append(Events().set_features(np.arange(1000), np.ones((1000, 8))))
                checkpoint(path)
                log.check_place()
            return found

        log.append(Events().add_nodes(1))
        checkpoint(path)
        log.check_place()
        monkeypatch.setattr(os, "stat", look_and_grow)
        log.check_place()
        assert path.stat().st_size > grown[0]
        log.check_place()


def checkpoint(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
