"""The contents of a log, read by any process: entries, batches, rejections, digests (see docs/log.md).

A reader changes nothing and needs no permission of the owner: its connection is read-only, and the process
that owns the log appends meanwhile. Each call sees the log at one moment. Locks: `_read`, for the connection.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import livegnn._core as _core
from livegnn.arguments import check_int
from livegnn.errors import FileFormatError, InputError, LogError
from livegnn.events import Events
from livegnn.log import BadMessage, Batch, Entry, ReadableLog, Rejection, Write
from livegnn.log.arguments import LARGEST_SEQ, check_range, check_text, new_properties
from livegnn.log.location import locate
from livegnn.log.sqlite.entry_rows import Row, begin_of, chain_before, chain_of
from livegnn.log.sqlite.sequence import SequenceReader, check_row, errors_as_log_errors, one
from livegnn.log.sqlite.tables import (
    FORMAT,
    LAST_BATCH,
    LAST_EVENT,
    bound_properties,
    find_bad,
    find_reached,
    forgotten_up_to,
)

_BEFORE: Final = "SELECT coalesce(max(seq), ?) FROM entries WHERE seq < ?"

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def _reads(
    method: "Callable[Concatenate[SqliteReader, _Given], _Answer]",
) -> "Callable[Concatenate[SqliteReader, _Given], _Answer]":
    """A method that uses the connection alone, and releases it at any exception from outside."""

    @wraps(method)
    def read(self: "SqliteReader", /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
        with self._errors("read"):
            return method(self, *args, **kwargs)

    @wraps(method)
    def call(self: "SqliteReader", /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
        return _core.holding(self._read, read, self, *args, **kwargs)

    return call


class SqliteReader(SequenceReader, ReadableLog):
    """The log at `path`, to be read. Thread-safe.

    vfs: the name of a file system that is registered with apsw, for tests.
    Raises LogError if there is no log at `path`, or one of another version.
    """

    def __init__(self, path: Path | str, *, vfs: str | None = None) -> None:
        with errors_as_log_errors("open", path):
            path = locate(path)
        super().__init__(path, FORMAT, vfs)

    @_reads
    def last_seq(self) -> int:
        return one(self._reads, LAST_EVENT)

    @_reads
    def position(self, source: str, partition: int) -> int | None:
        source = check_text(source, "source")
        partition = check_int(partition, "partition", 0, LARGEST_SEQ)
        reached = find_reached(self._reads, (source, partition))
        return None if reached is None else reached.offset

    @_reads
    def bad_messages(self, after: int = 0, *, most: int | None = None) -> Sequence[BadMessage]:
        after, most = check_range(after, most)
        return find_bad(self._reads, after, most)

    @_reads
    def first_seq(self) -> int:
        """The sequence number of the first event that the log holds or will hold: 1 if it was not trimmed."""
        return begin_of(self._reads).seq + 1

    @_reads
    def last_batch_seq(self) -> int:
        """The sequence number at which the last recorded batch ends, 0 if there is none."""
        return one(self._reads, LAST_BATCH)

    @_reads
    def check_begin(self, after: int) -> None:
        """Raises LogError if events that follow event `after` have been trimmed."""
        after = check_int(after, "after", 0, LARGEST_SEQ)
        self._refuse_trimmed(after)

    @_reads
    def writes(
        self, after: int, *, up_to: int | None = None, max_events: int | None = None
    ) -> Sequence[Write]:
        writes: list[Write] = []
        after, end = check_range(after, up_to, max_events)
        last = after
        reached = min(end, self._known_end())
        for row in self._reads.execute(f"{Row.SELECT} WHERE seq > ? ORDER BY seq", (after,)):
            stored = self._decode(Row(*row))
            write = stored.part(last, end) if stored.after <= last else stored
            if write is None and stored.seq > end:
                return writes
            if write is None or write.after != last:
                self._refuse_trimmed(after)
                raise LogError(
                    f"{self.path} must continue after event {last}, got the entry {stored.ends[0]} after "
                    f"{stored.after}"
                )
            if max_events is not None and write.seq > after + max_events:
                first = last if writes else int(write.ends[0])  # at least one
                whole = write.part(last, max(after + max_events, first))
                writes += [] if whole is None else [whole]
                return writes
            writes.append(write)
            last = write.seq
            if last >= end or stored.seq > end:  # its other entries are behind the end
                return writes
        if last < reached:
            self._refuse_trimmed(after)
            raise self._missing(last, reached)
        return writes

    def entry(self, seq: int) -> Entry | None:
        """The entry whose last event is `seq`, None if there is none.

        Trimmed entries are still there if they were refused and not appended again since.
        """
        return next(self.find_entries([check_int(seq, "seq", 0, LARGEST_SEQ)]))

    def find_entries(self, seqs: Sequence[int]) -> Iterator[Entry | None]:
        write: Write | None = None
        for seq in seqs:
            entry = None if write is None or seq > write.seq else write.entry(seq)
            if entry is None:
                write, letter = self._find_write(seq)
                entry = None if write is None else write.entry(seq)
                if entry is None and letter is not None:
                    entry = self._read_letter(seq, letter)
            yield entry

    @_reads
    def _find_write(self, seq: int) -> tuple[Write | None, bytes | None]:
        """The row stored with event `seq`, and the letter of a refused entry of this number, if any."""
        end = self._known_end()
        row = self._reads.execute(f"{Row.SELECT} WHERE seq >= ? ORDER BY seq LIMIT 1", (seq,)).fetchone()
        begin = before = begin_of(self._reads).seq
        if row is not None:
            before = one(self._reads, _BEFORE, (begin, row[0]))
        letter: Any = self._reads.execute("SELECT payload FROM dead_letters WHERE seq = ?", (seq,)).fetchone()
        write = None if row is None else self._decode(Row(*row))
        if begin < seq <= end and (write is None or write.after != before):
            raise self._missing(seq - 1, end)
        return write, None if letter is None else letter[0]

    def _read_letter(self, seq: int, payload: bytes) -> Entry:
        try:
            return Entry(seq, Events.from_bytes(payload))
        except (FileFormatError, InputError) as error:
            raise self._damaged(seq, error) from error

    def _known_end(self) -> int:
        """The last event that must be there: one in the log, or one that was acknowledged."""
        return max(self._mark.read(), one(self._reads, LAST_EVENT))

    def _missing(self, last: int, reached: int) -> LogError:
        return LogError(
            f"{self.path} must go on after event {last}, since it reaches event {reached}, got no entry: it "
            "is damaged, see livegnn log verify. Restore it from a copy"
        )

    def _refuse_trimmed(self, after: int) -> None:
        begin = begin_of(self._reads).seq
        if after < begin:
            raise LogError(
                f"{self.path} begins after event {begin}, because earlier events were trimmed, so reading "
                f"cannot continue from event {after}: it takes a graph, a checkpoint or a position at event "
                f"{begin} or later"
            )

    def _decode(self, row: Row) -> Write:
        try:
            return row.decode()
        except (FileFormatError, InputError) as error:
            raise self._damaged(row.seq, error) from error

    def _damaged(self, seq: int, error: Exception) -> LogError:
        return LogError(f"{self.path} must hold the events of entry {seq}, got: {error}")

    @_reads
    def batches(self, after: int, *, most: int | None = None) -> Sequence[Batch]:
        after, most = check_range(after, most)
        end = one(self._reads, LAST_BATCH)
        rows: list[Any] = self._reads.execute(
            "SELECT after, seq FROM batches WHERE seq > ? ORDER BY seq LIMIT ?", (after, most)
        ).fetchall()
        reached = one(self._reads, LAST_EVENT)
        self._refuse_trimmed(after)
        if reached < end:
            raise LogError(
                f"{self.path} must reach event {end}, where its last batch ends, got entries up to event "
                f"{reached}: it is damaged"
            )
        if end < after:
            raise LogError(
                f"{self.path} must have a batch that ends at event {after}, got none after event {end}: it "
                "is not the log of this graph"
            )
        last = after
        for begin, seq in rows:
            if begin != last or seq <= begin:
                raise LogError(
                    f"{self.path} must have a batch that begins after event {last}, got one from {begin} to "
                    f"{seq}"
                )
            last = seq
        if last < end and len(rows) < most:
            raise LogError(
                f"{self.path} must have batches up to event {end}, got none after event {last}: it is damaged"
            )
        return [Batch(*row) for row in rows]

    @_reads
    def rejections(
        self, after: int = 0, *, up_to: int | None = None, most: int | None = None
    ) -> Sequence[Rejection]:
        after, end = check_range(after, up_to)
        _, most = check_range(after, most)
        rows: list[Any] = self._reads.execute(
            "SELECT seq, error, message, row_crc32 FROM rejections "
            "WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            (after, end, most),
        ).fetchall()
        return [Rejection(*check_row(row, "rejections", self.path)) for row in rows]

    def listed(self, after: int = 0, *, most: int | None = None) -> Sequence[Rejection]:
        return self.rejections(max(after, self._forgotten_up_to()), most=most)

    @_reads
    def _forgotten_up_to(self) -> int:
        return forgotten_up_to(self._reads)

    @_reads
    def bound(self) -> Mapping[str, str]:
        return bound_properties(self._reads)

    def check_bound(self, properties: Mapping[str, str]) -> None:
        new_properties(str(self.path), self.bound(), properties, replace=False)

    @_reads
    def digest(self, seq: int) -> str | None:
        """A text for the history up to event `seq`, which no other history has.

        None where a part of it was written by a version that kept no digests, and where it was trimmed.
        """
        seq = check_int(seq, "seq", 0, LARGEST_SEQ)
        found = self._reads.execute(f"{Row.SELECT} WHERE seq >= ? ORDER BY seq LIMIT 1", (seq,)).fetchone()
        row = None if found is None else Row(*found)
        if row is not None and row.seq == seq:
            chain = row.chain
        else:
            chain = chain_before(self._reads, LARGEST_SEQ if row is None else row.seq)
        if seq < begin_of(self._reads).seq:
            return None
        if row is not None and row.seq != seq and chain is not None:
            within = self._decode(row).part(row.seq - row.count, seq)  # a batch may end within a row
            if within is not None:
                chain = chain_of(chain, within.seq, None, within.events.to_bytes())
        return None if chain is None else chain.hex()
