"""A whole log, examined: whether all of it is undamaged, and fits together.

It reads each row once, at one moment of the log, while other processes append. Thread safety: none is needed,
an examination has a connection to itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import apsw
import numpy as np

from livegnn.errors import FileFormatError, InputError
from livegnn.events import Events
from livegnn.log.location import beside, locate
from livegnn.log.sqlite.entry_rows import Row, begin_of, chain_of
from livegnn.log.sqlite.sequence import LastAcknowledged, connect_to_read, errors_as_log_errors, is_whole
from livegnn.log.sqlite.tables import CHECKED, FORMAT, forgotten_messages
from livegnn.log.sqlite.wal_check import find_damage
from livegnn.types import IntArray

_MOST_PROBLEMS: Final = 20


@dataclass
class Examination:
    """The contents of a log, and its damage: `problems`, at most 20, none if it is whole.

    begin: the last event before the log's first; end: its last.
    """

    begin: int
    end: int = 0
    rows: int = 0
    entries: int = 0
    batches: int = 0
    last_batch: int = 0
    rejections: int = 0
    dead_letters: int = 0
    keys: int = 0
    origins: int = 0
    bad_messages: int = 0
    problems: list[str] = field(default_factory=list)


def examine(path: Path | str) -> Examination:
    """Examines the log at `path`. Raises LogError if it cannot be read at all, or is another file."""
    with errors_as_log_errors("examine", path):
        path = locate(path)
        # Before the log is read, so that no append falls between the two.
        acknowledged = LastAcknowledged(beside(path, "-mark")).read()
        damage = find_damage(beside(path, "-wal"))
        connection = connect_to_read(path, FORMAT)
        try:
            connection.execute("BEGIN")
            found = Examination(begin_of(connection).seq)
            if damage is not None:
                found.problems.append(f"{path.name}-wal is damaged at frame {damage.frame}")
            found.problems += _Problems(connection, found).all()
            if found.end < acknowledged:
                found.problems.append(f"event {acknowledged} was acknowledged, the log ends at {found.end}")
        finally:
            connection.close()
    del found.problems[_MOST_PROBLEMS:]
    return found


class _Problems:
    """Finds problems, one after the other, and counts the rows that it reads."""

    def __init__(self, connection: apsw.Connection, found: Examination) -> None:
        self._connection, self._found = connection, found
        self._ends: list[IntArray] = []

    def all(self) -> Iterator[str]:
        yield from self._in_pages()
        yield from self._in_rows()
        yield from self._in_checksums()
        ends = np.concatenate([np.array([self._found.begin]), *self._ends])
        for name, problems in (
            ("batches", self._in_batches),
            ("rejections", self._in_rejections),
            ("keys", self._in_keys),
            ("bad messages", self._in_bad_messages),
        ):
            try:
                yield from problems(ends)
            except TypeError as error:  # columns of SQLite hold values of any type
                yield f"{name} must hold numbers and texts: {error}"

    def _in_pages(self) -> Iterator[str]:
        for (said,) in self._connection.execute("PRAGMA integrity_check"):
            if said != "ok":
                yield " ".join(str(said).split())

    def _in_checksums(self) -> Iterator[str]:
        for table, columns in CHECKED.items():
            for row in self._connection.execute(f"SELECT {columns}, row_crc32 FROM {table}"):  # noqa: S608
                if not is_whole(row):
                    yield f"a row of {table} is not as it was written: {row[:-1]!r:.160}"

    def _in_rows(self) -> Iterator[str]:
        last, chain = begin_of(self._connection)
        for values in self._connection.execute(f"{Row.SELECT} ORDER BY seq"):
            row: Any = Row(*values)
            self._found.rows += 1
            if type(row.seq) is not int:  # if the text of the schema is damaged
                yield f"the row after event {last} must have a number, got {row.seq!r:.80}"
                continue
            try:
                if row.seq - row.count != last:
                    yield f"entries must go on after event {last}, got a row after {row.seq - row.count}"
                write = row.decode()
            except (FileFormatError, InputError, TypeError) as error:
                yield f"the row that ends at event {row.seq} is not as it was written: {error}"
                self._ends.append(np.array([row.seq], np.int64))
            else:
                self._ends.append(write.ends)
                self._found.entries += len(write.ends)
                if row.chain is None and chain:
                    yield f"the row that ends at event {row.seq} has no chain"
                # The first row after those of version 1, which have no chain, begins one.
                elif row.chain not in (None, chain_of(chain or b"", row.seq, row.counts, row.payload)):
                    yield f"the chain of the row that ends at event {row.seq} is not that of its history"
            last, chain = row.seq, row.chain
        self._found.end = last

    def _in_batches(self, ends: IntArray) -> Iterator[str]:
        begin = last = self._found.begin
        for after, seq in self._connection.execute("SELECT after, seq FROM batches ORDER BY seq"):
            self._found.batches += 1
            # The first batch may begin before a log that was trimmed.
            if after != last and not (self._found.batches == 1 and after < begin):
                yield f"batches must go on after event {last}, got one after {after}"
            if seq > begin and not _holds(ends, seq):
                yield f"the batch that ends at event {seq} must end with an entry"
            last = self._found.last_batch = seq

    def _in_rejections(self, ends: IntArray) -> Iterator[str]:
        letters = {}
        for seq, payload in self._connection.execute("SELECT seq, payload FROM dead_letters ORDER BY seq"):
            self._found.dead_letters += 1
            letters[seq] = True
            try:
                Events.from_bytes(payload)
            except (FileFormatError, InputError, TypeError) as error:
                yield f"the dead letter of entry {seq} is not as it was written: {error}"
        for seq, *texts in self._connection.execute(
            "SELECT seq, error, message FROM rejections ORDER BY seq"
        ):
            self._found.rejections += 1
            kept = letters.pop(seq, False)
            if not all(isinstance(text, str) for text in texts):
                yield f"the rejection of entry {seq} must say in text why, got {texts!r}"
            if not (kept if seq <= self._found.begin else _holds(ends, seq)):
                yield f"the rejection of entry {seq} is of an entry that is not there"
            if seq > self._found.last_batch:
                yield f"the rejection of entry {seq} must be in a batch, got it after the last"
        for seq in letters:
            yield f"the dead letter of entry {seq} has no rejection"

    def _in_keys(self, ends: IntArray) -> Iterator[str]:
        for number, key, seq in self._connection.execute("SELECT number, key, seq FROM keys ORDER BY number"):
            self._found.keys += 1
            if type(number) is not int:
                yield f"the key {key!r} must have a number, got {number!r:.80}"
            if seq > self._found.begin and not _holds(ends, seq):
                yield f"the key {key!r} is of entry {seq}, which is not there"
        for source, partition, seq in self._connection.execute("SELECT source, partition, seq FROM origins"):
            self._found.origins += 1
            if seq > self._found.begin and not _holds(ends, seq):
                yield f"the origin {source!r}, {partition} is of entry {seq}, which is not there"

    def _in_bad_messages(self, ends: IntArray) -> Iterator[str]:
        rows = self._connection.execute(
            "SELECT number, payload, bad_messages.offset, origins.offset FROM bad_messages "
            "LEFT JOIN origins USING (source, partition) ORDER BY number"
        )
        forgotten, last = forgotten_messages(self._connection).deleted, 0
        for number, payload, offset, reached in rows:
            self._found.bad_messages += 1
            before, last = last, number
            forgotten -= number - before - 1
            if number <= before or forgotten < 0:
                yield f"bad messages must be numbered without gaps, got number {number} after {before}"
                forgotten = max(forgotten, 0)
            if not isinstance(payload, bytes):
                yield f"bad message {number} must have a payload of bytes, got {payload!r:.80}"
            if reached is None or offset > reached:
                yield f"bad message {number} has the offset {offset}, but its partition was read to {reached}"


def _holds(ends: IntArray, seq: Any) -> bool:
    """Whether an entry ends at `seq`."""
    place = int(np.searchsorted(ends, seq))
    return place < len(ends) and int(ends[place]) == seq
