"""Following a log from another process: what is appended to it, in order, as soon as it is acknowledged.

The owner of the log does nothing for those who follow it, and does not know them. After each flush it writes
the mark (`LastAcknowledged`); a tail looks at the mark and reads no further. So it sees an entry only
when that survives a loss of power. It looks 500 times a second at most, so that a stream of entries is read
some at a time, and while there is nothing new less and less often, down to 200 times.

Locks: none of its own; one thread reads, and any may close.
"""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import livegnn._core as _core
from livegnn.arguments import check_int
from livegnn.backoff import Backoff
from livegnn.errors import LogError
from livegnn.interrupts import Flag
from livegnn.log import AppliedBatch, Batch, Entry
from livegnn.log.arguments import LARGEST_SEQ, deadline
from livegnn.log.consumers import ConsumerTail, Position, check_most, select_fitting
from livegnn.log.sqlite.reader import SqliteReader
from livegnn.log.sqlite.sequence import wait_for

_PAUSES: Final = Backoff(0.002, 0.005, 1.3)


class SqliteEnd:
    """The last applied event of the log at `path`. Raises LogError if there is no log. Thread-safe."""

    def __init__(self, path: Path | str) -> None:
        self._reader = SqliteReader(path)

    def read(self) -> int:
        """The last event of the last batch that survives a loss of power, 0 if there is none."""
        return min(self._reader.acknowledged(), self._reader.last_batch_seq())

    def close(self) -> None:
        """Again does nothing."""
        self._reader.close()


class SqliteTail(ConsumerTail):
    """Follows the log at `path` as the consumer `name`, from where it last was: see `commit`.

    after: begin after this event instead. A new name begins with the first entry that the log has. Raises
    LogError if there is no log, if another consumer has the name, or if the next events have been trimmed;
    InputError for an invalid name.
    """

    def __init__(self, path: Path | str, name: str, *, after: int | None = None) -> None:
        after = None if after is None else check_int(after, "after", 0, LARGEST_SEQ)
        self._closed = Flag()
        self._found = -math.inf  # when `wait` found something last
        with ExitStack() as opened:
            self._reader = SqliteReader(path)
            opened.callback(self._reader.close)
            self.path = self._reader.path
            try:
                self._position = opened.enter_context(closing(Position(self.path, name)))
                begin = self._position.seq if after is None else after
                if begin is None or begin != self._position.seq:
                    self._position.register(self._reader.first_seq() - 1 if begin is None else begin)
            except OSError as error:
                raise LogError(f"cannot follow the event log {self.path}: {error}") from error
            self._reader.check_begin(self.position)
            opened.pop_all()

    @property
    def name(self) -> str:
        return str(self.path)

    def entries(self, max_events: int | None = None) -> Sequence[Entry]:
        acknowledged = self._reader.acknowledged()
        if acknowledged <= self.position:
            return []
        return self._reader.entries(self.position, up_to=acknowledged, max_events=max_events)

    def batches(self, max_events: int | None = None) -> Sequence[AppliedBatch]:
        most = check_most(max_events)
        acknowledged = self._reader.acknowledged()
        if self._reader.last_batch_seq() <= self.position:
            return []
        recorded = self._reader.batches(self.position, most=most)  # each has an event or more
        found = [batch for batch in recorded if batch.seq <= acknowledged]
        return [self._applied(batch) for batch in select_fitting(found, most)]

    def _applied(self, batch: Batch) -> AppliedBatch:
        rejected = {one.seq for one in self._reader.rejections(batch.after, up_to=batch.seq)}
        writes = self._reader.writes(batch.after, up_to=batch.seq)
        return AppliedBatch.from_writes(batch, writes, rejected)

    def wait(self, timeout: float | None = None, *, batches: bool = False) -> bool:
        began, ends = time.monotonic(), deadline(timeout)
        self._closed.wait(max(0.0, min(self._found + _PAUSES.first, ends) - began))
        found = wait_for(lambda: self._has_more(batches), self._closed, ends, _PAUSES.pauses())
        if found:
            self._found = time.monotonic()
        return found

    def _has_more(self, batches: bool) -> bool:
        end = self._reader.acknowledged()
        if batches and end > self.position:
            end = min(end, self._reader.last_batch_seq())
        return end > self.position

    def _is_end(self, seq: int) -> bool:
        return seq <= self._reader.acknowledged() and self._reader.entry(seq) is not None

    def digest(self, seq: int) -> str | None:
        return self._reader.digest(seq)

    def check_bound(self, properties: Mapping[str, str]) -> None:
        self._reader.check_bound(properties)

    def bound(self) -> Mapping[str, str]:
        return self._reader.bound()

    def close(self) -> None:
        _core.settled(self._close, self._close)

    def _close(self) -> None:
        """Can be done again."""
        self._closed.set()
        self._reader.close()
        self._position.close()
