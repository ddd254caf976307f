"""One bit of the number of a row flips: whoever reads gets all that was appended, or a LogError; never less.

SQLite has no checksums. Its rows are found by their number, so a wrong one hides its row, or those after it.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from gate import EXPLORING
from livegnn import Events, LogError
from livegnn.log import Batch
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.reader import SqliteReader
from livegnn.log.sqlite.tail import SqliteTail

ENTRIES = 40
PAGE = 4096
LEAF = 0x0D  # the first byte of a page of rows


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several pages of rows, that was closed."""
    path = tmp_path_factory.mktemp("written") / "log.db"
    log = SqliteLog(path)
    for number in range(ENTRIES):
        ends = [number + one for one in range(10)]
        log.append(Events().add_edges(ends, ends), key=f"key {number}" if number % 2 else None)
        if number % 4 == 3:
            log.record_batch(Batch(log.last_seq() - 40, log.last_seq()))
    log.close()
    return path


def varint(page: bytes, at: int) -> int:
    """Where an integer of SQLite that begins at `at` ends."""
    end = next((one for one in range(at, at + 8) if page[one] < 0x80), at + 8)
    return end + 1


def row_numbers(content: bytes) -> Iterator[int]:
    """The places of all bytes of row numbers (section 1.6 of SQLite's file format)."""
    for begin in range(0, len(content), PAGE):
        page = content[begin : begin + PAGE]
        header = 100 if begin == 0 else 0
        if page[header] != LEAF:
            continue
        for cell in range(int.from_bytes(page[header + 3 : header + 5])):
            place = int.from_bytes(page[header + 8 + 2 * cell :][:2])
            number = varint(page, place)
            yield from range(begin + number, begin + varint(page, number))


def of_owner(path: Path) -> tuple[int, int]:
    log = SqliteLog(path)
    try:
        assert [log.entry(seq) is None for seq in range(10, 10 * ENTRIES + 1, 10)] == [False] * ENTRIES
        return len(log.entries(0)), len(log.batches(0))
    finally:
        log.close()


def of_reader(path: Path) -> tuple[int, int]:
    reader = SqliteReader(path)
    try:
        writes: list[int] = []
        last = 0
        while found := reader.writes(last, max_events=30):
            writes += [write.seq for write in found]
            last = found[-1].seq
        return len(writes), len(reader.batches(0))
    finally:
        reader.close()


def of_tail(path: Path) -> tuple[int, int]:
    tail = SqliteTail(path, "one")
    try:
        entries = batches = 0
        batches = len(tail.batches())
        while tail.wait(timeout=0):
            found = tail.entries(max_events=30)
            assert found, "it waits for what it does not return"
            entries += len(found)
            tail.commit(found[-1].seq)
        return entries, batches
    finally:
        tail.close()


WAYS: Sequence[Callable[[Path], tuple[int, int]]] = (of_owner, of_reader, of_tail)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_nobody_reads_less_than_what_was_appended(
    way: Callable[[Path], tuple[int, int]], written: Path, tmp_path: Path
) -> None:
    content = written.read_bytes()
    whole = (ENTRIES, ENTRIES // 4)
    refused = 0
    # In the gate each of the ways reads a third of the flips: some of every byte, and together all.
    part = slice(None) if EXPLORING else slice(WAYS.index(way), None, len(WAYS))
    places = list(row_numbers(content))
    assert len(places) > 2 * ENTRIES
    for place, bit in [(place, bit) for place in places for bit in range(8)][part]:
        shutil.copy(f"{written}-mark", tmp_path / "log.db-mark")
        spoiled = bytearray(content)
        spoiled[place] ^= 1 << bit
        (tmp_path / "log.db").write_bytes(spoiled)
        try:
            assert way(tmp_path / "log.db") == whole, (place, bit)
        except LogError:
            refused += 1
        for path in tmp_path.iterdir():
            shutil.rmtree(path) if path.is_dir() else os.unlink(path)
    assert refused > ENTRIES
