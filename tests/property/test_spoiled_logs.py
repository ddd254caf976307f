"""A log that is not as it was written is refused with LogError, or read as it was: there is no third way."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn import Events, LogError
from livegnn.log import Batch, Entry, Rejection
from livegnn.log.sqlite import SqliteLog

ENTRIES = 60
REJECTED = 7  # every so many entries
PAGE = 4096
SECTOR = 512


class Written:
    """A log that was closed: its bytes, and what it holds. No dataclass: Hypothesis shows all of one."""

    def __init__(self, content: bytes, entries: list[Entry]) -> None:
        self.content, self.entries = content, entries


def fill(log: SqliteLog) -> None:
    """Entries of many sizes, a batch for every two of them but the last, and some rejections."""
    rng = np.random.default_rng(0)
    after = 0
    for number in range(ENTRIES):
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
    log.close()
    content = path.read_bytes()
    assert len(content) > 8 * PAGE
    return Written(content, entries)


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


@settings(max_examples=300)
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
        for bit in range(8):
            hold(spoil(written.content, "flip", place, bit), written, next(directories))
