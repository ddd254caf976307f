"""A log that is not as it was written is refused with LogError, or read as it was: there is no third way."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import Events, LogError
from livegnn.log import Batch, Entry, Rejection
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.sequence import LastAcknowledged
from livegnn.log.sqlite.wal_check import find_damage

ENTRIES = 61
REJECTED = 7  # every so many entries
PAGE = 4096
SECTOR = 512
FLIPPED = draws(4, 1)  # of the bits of a head, one in so many


class Written:
    """A log: its bytes when it was closed, and as a kill would have left it; what it holds.

    No dataclass: Hypothesis shows all of one.
    """

    def __init__(
        self, content: bytes, killed: tuple[bytes, bytes], flushed: int, entries: list[Entry]
    ) -> None:
        self.content, self.killed, self.flushed, self.entries = content, killed, flushed, entries


def fill(log: SqliteLog) -> None:
    """Entries of many sizes, a batch for every two of them but the last, and some rejections."""
    rng = np.random.default_rng(0)
    after = 0
    for number in range(ENTRIES - 1):
        count = int(rng.integers(1, 40))
        seq = log.append(Events().add_nodes(rng.integers(0, 2**62, count), rng.normal(size=(count, 4))))
        if number % REJECTED == 0:
            log.record_batch(Batch(after, seq), Rejection(seq, "InputError", "this node was there: " * 9))
            after = seq
        elif number % 2:
            log.record_batch(Batch(after, seq))
            after = seq


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    path = tmp_path_factory.mktemp("log") / "log.db"
    log = SqliteLog(path)
    fill(log)
    entries = list(log.entries(0))
    log.append(Events().add_nodes([1, 2]))
    entries.append(log.entries(entries[-1].seq)[0])
    flushed = path.with_name("log.db-wal").stat().st_size
    killed = path.read_bytes(), path.with_name("log.db-wal").read_bytes()
    log.close()
    content = path.read_bytes()
    assert len(content) > 8 * PAGE
    return Written(content, killed, flushed, entries)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new directory each time, so that nothing is left of the log before."""

    def make() -> Iterator[Path]:
        while True:
            yield tmp_path_factory.mktemp("spoiled")

    return make()


def read(path: Path) -> list[Entry]:
    """All that a log holds; it is closed whatever happens."""
    log = SqliteLog(path)
    try:
        entries = list(log.entries(0))
        assert log.last_seq() == (entries[-1].seq if entries else 0)
        log.batches(0)
        log.rejections()
        return entries
    finally:
        log.close()


def spoil(content: bytes, kind: str, place: int, value: int) -> bytes:
    """Does something to a file: where and with what is taken modulo what there is."""
    data = bytearray(content)
    byte, sector = place % len(data), place % (len(data) // SECTOR)
    if kind == "flip":
        data[byte] ^= 1 << value % 8
    elif kind == "set":
        data[byte] = value % 256
    elif kind == "zero":
        data[sector * SECTOR : (sector + 1) * SECTOR] = bytes(SECTOR)
    elif kind == "cut":
        del data[max(byte, 1) :]  # an empty file is a new log
    else:
        pages = len(data) // PAGE
        one, other = (slice(n % pages * PAGE, (n % pages + 1) * PAGE) for n in (place, value))
        data[one], data[other] = data[other], data[one]
    return bytes(data)


def hold(content: bytes, written: Written, directory: Path) -> None:
    path = directory / "log.db"
    path.write_bytes(content)
    refusal = ""
    try:
        entries = read(path)
    except LogError as error:
        refusal = str(error)
    if refusal:
        assert str(path) in refusal
        assert len(refusal.splitlines()) == 1
        return
    same = entries == written.entries
    assert same, f"{len(entries)} entries, others than the {len(written.entries)} that were written"


@settings(max_examples=150)
@given(
    kind=st.sampled_from(["flip", "set", "zero", "cut", "swap"]),
    place=st.integers(0, 2**31),
    value=st.integers(0, 2**31),
)
def test_a_spoiled_log_is_refused_or_whole(
    written: Written, directories: Iterator[Path], kind: str, place: int, value: int
) -> None:
    hold(spoil(written.content, kind, place, value), written, next(directories))


def test_a_log_is_cut_anywhere_and_any_sector_is_lost(written: Written, directories: Iterator[Path]) -> None:
    for place in [*range(1, 1024, 7), *range(1024, len(written.content), 997)]:
        hold(spoil(written.content, "cut", place, 0), written, next(directories))
    for sector in range(len(written.content) // SECTOR):
        hold(spoil(written.content, "zero", sector, 0), written, next(directories))


def test_any_bit_of_the_first_page_s_head_is_flipped(written: Written, directories: Iterator[Path]) -> None:
    """Where a bit decides what the file is: its header, and how many tables there are."""
    for place in range(108):
        for bit in range(place % FLIPPED, 8, FLIPPED):
            hold(spoil(written.content, "flip", place, bit), written, next(directories))


def hold_wal(wal: bytes, written: Written, directory: Path) -> None:
    """Without a mark, the last entries may be missing, as if their append had not come to its end."""
    path = directory / "log.db"
    for name, missing in (("log.db-mark", 0), ("no mark", 2)):
        path.write_bytes(written.killed[0])
        path.with_name("log.db-wal").write_bytes(wal)
        LastAcknowledged(path.with_name(name)).write(written.entries[-1].seq)
        try:
            entries = read(path)
        except LogError:
            path.with_name("log.db-mark").unlink(missing_ok=True)
            continue
        path.with_name("log.db-mark").unlink(missing_ok=True)
        assert len(entries) >= ENTRIES - missing
        same = entries == written.entries[: len(entries)]
        assert same, f"{len(entries)} entries, others than were written"


@settings(max_examples=150)
@given(
    kind=st.sampled_from(["flip", "set", "zero"]),
    place=st.integers(0, 2**31),
    value=st.integers(0, 2**31),
)
def test_a_spoiled_write_ahead_file_is_refused_or_loses_what_a_crash_could_take(
    written: Written, directories: Iterator[Path], kind: str, place: int, value: int
) -> None:
    hold_wal(spoil(written.killed[1], kind, place, value), written, next(directories))


def test_any_bit_of_the_heads_in_a_write_ahead_file_is_flipped(
    written: Written, directories: Iterator[Path]
) -> None:
    wal = written.killed[1]
    frames = (len(wal) - 32) // (PAGE + 24)
    heads = [32 + frame * (PAGE + 24) for frame in range(0, frames, 9)]
    for place in [*range(32), *(head + byte for head in heads for byte in range(24))]:
        hold_wal(spoil(wal, "flip", place, place % 7), written, next(directories))


def test_a_write_ahead_file_that_was_cut_or_lost_is_told(
    written: Written, directories: Iterator[Path]
) -> None:
    main, wal = written.killed
    for size in [*range(0, len(wal) - 1, 5003), len(wal) - 1, None]:
        path = next(directories) / "log.db"
        path.write_bytes(main)
        if size is not None:
            path.with_name("log.db-wal").write_bytes(wal[:size])
        mark = path.with_name("log.db-mark")
        LastAcknowledged(mark).write(written.entries[-1].seq)
        lost = size is None or size < written.flushed
        if lost:
            with pytest.raises(LogError, match=f"event {written.entries[-1].seq}, which was acknowledged"):
                SqliteLog(path)
            mark.unlink()  # as the message says
        entries = read(path)
        assert entries == written.entries[: len(entries)]
        assert (len(entries) < ENTRIES) == lost


@pytest.mark.parametrize("content", [b"", b"0", bytes(30), b"%020d 00000000\n" % 99])
def test_a_mark_that_cannot_be_read_says_nothing(written: Written, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log.db").write_bytes(written.content)
    (tmp_path / "log.db-mark").write_bytes(content)
    assert read(tmp_path / "log.db") == written.entries
    log = SqliteLog(tmp_path / "log.db")
    assert LastAcknowledged(tmp_path / "log.db-mark").read() == written.entries[-1].seq  # written anew
    seq = log.append(Events().add_nodes(1))
    assert LastAcknowledged(tmp_path / "log.db-mark").read() == seq
    log.close()


def test_an_append_whose_mark_cannot_be_written_is_in_the_log(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    (tmp_path / "log.db-mark").mkdir()
    assert log.append(Events().add_nodes(1)) == 1
    log.close()


def test_what_a_write_ahead_file_lost_in_its_middle_is_told(written: Written, tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    path.write_bytes(written.killed[0])
    wal = spoil(written.killed[1], "flip", len(written.killed[1]) // 2, 2)
    path.with_name("log.db-wal").write_bytes(wal)
    with pytest.raises(LogError, match=r"log.db-wal must have the checksums .* but frame \d+ has not"):
        SqliteLog(path)
    assert path.with_name("log.db-wal").read_bytes() == wal
    with sqlite3.connect(path) as connection:  # what the message says
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    entries = read(path)
    assert entries == written.entries[: len(entries)]
    assert 0 < len(entries) < ENTRIES


def test_boundaries_that_a_loss_of_power_took_are_no_damage(tmp_path: Path) -> None:
    """They are not flushed: any of them may be missing before others, and before one append, the last."""
    log = SqliteLog(tmp_path / "log.db")
    wal_path = tmp_path / "log.db-wal"
    for number in range(8):
        log.append(Events().add_nodes(number))
    flushed = wal_path.stat().st_size
    for number in range(7):
        log.record_batch(Batch(number, number + 1), Rejection(number + 1, "InputError", "no"))
    log.append(Events().add_nodes(8))
    main, wal = (tmp_path / "log.db").read_bytes(), wal_path.read_bytes()
    log.close()
    assert len(wal) > flushed + 8 * PAGE
    for place in range(flushed, len(wal), SECTOR):
        crashed = tmp_path / str(place)
        crashed.mkdir()
        (crashed / "log.db").write_bytes(main)
        (crashed / "log.db-wal").write_bytes(wal[:place] + bytes(SECTOR) + wal[place + SECTOR :])
        assert len(read(crashed / "log.db")) >= 8


def test_a_write_ahead_file_that_is_written_over_is_no_damage(tmp_path: Path) -> None:
    """After it was moved into the database it is written from its beginning; older frames stay behind."""
    log = SqliteLog(tmp_path / "log.db")
    for number in range(20):
        log.append(Events().add_nodes(number))
    log.sync()
    for number in range(20, 26):
        log.append(Events().add_nodes(number))
        assert find_damage(tmp_path / "log.db-wal") is None
        for path in (tmp_path / "log.db", tmp_path / "log.db-wal"):
            path.with_name(f"{number}{path.name[3:]}").write_bytes(path.read_bytes())
    log.close()
    assert [len(read(tmp_path / f"{number}.db")) for number in range(20, 26)] == list(range(21, 27))
