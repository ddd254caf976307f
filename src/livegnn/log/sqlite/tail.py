"""Following a log from another process: what is appended to it, in order, as soon as it is acknowledged.

The owner of the log does nothing for those who follow it, and does not know them. After each flush it writes
the mark (`last_acknowledged.py`); a tail looks at the mark and reads no further. So it sees an entry only
when that survives a loss of power. It looks 500 times a second at most, so that a stream of entries is read
some at a time, and while there is nothing new less and less often, down to 200 times.

Locks: none of its own; one thread reads, and any may close.
"""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from typing import Final

import livegnn._core as _core
from livegnn.arguments import check_int, check_not_negative
from livegnn.backoff import Backoff
from livegnn.errors import InputError, LogError
from livegnn.interrupts import Flag
from livegnn.log import AppliedBatch, Batch, Entry, Tail
from livegnn.log.arguments import LARGEST_SEQ
from livegnn.log.consumers import Position
from livegnn.log.location import beside
from livegnn.log.sqlite.last_acknowledged import LastAcknowledged, wait_for
from livegnn.log.sqlite.reader import SqliteReader

_PAUSES: Final = Backoff(0.002, 0.005, 1.3)


class SqliteTail:
    """Follows the log at `path` as the consumer `name`, from where it last was: see `commit`.

    after: begin after this event instead. A new name begins with the first entry that the log has. Raises
    LogError if there is no log, if another consumer has the name, or if what comes next has been trimmed;
    InputError for what is no name.
    """

    def __init__(self, path: Path | str, name: str, *, after: int | None = None) -> None:
        after = None if after is None else check_int(after, "after", 0, LARGEST_SEQ)
        self._closed = Flag()
        self._found = -math.inf  # when `wait` found something last
        with ExitStack() as opened:
            self._reader = SqliteReader(path)
            opened.callback(self._reader.close)
            self.path = self._reader.path
            self._mark = LastAcknowledged(beside(self.path, "-mark"))
            try:
                self._position = opened.enter_context(Position(self.path, name))
                begin = self._position.seq if after is None else after
                if begin is None or begin != self._position.seq:
                    self._position.register(self._reader.first_seq() - 1 if begin is None else begin)
            except OSError as error:
                raise LogError(f"cannot follow the event log {self.path}: {error}") from error
            self._reader.check_begin(self.position)
            opened.pop_all()

    @property
    def name(self) -> str:
        """Where the log is, as messages call it."""
        return str(self.path)

    @property
    def position(self) -> int:
        """The last event that was committed: reading goes on after it."""
        assert self._position.seq is not None
        return self._position.seq

    def entries(self, max_events: int | None = None) -> Sequence[Entry]:
        """The acknowledged entries after `position`: as many as fit into `max_events`, at least one.

        Raises LogError for an entry that is damaged, missing, or was trimmed.
        """
        acknowledged = self._mark.read()
        if acknowledged <= self.position:
            return []
        return self._reader.entries(self.position, up_to=acknowledged, max_events=max_events)

    def batches(self, max_events: int | None = None) -> Sequence[AppliedBatch]:
        """The batches after `position` that the owner has applied, with the events of each: as many as fit
        into `max_events`, at least one.

        Whoever applies the same batches to the same graph gets the same bits. Raises LogError as `entries`
        does, and if `position` is not the end of a batch.
        """
        acknowledged = self._mark.read()
        if self._reader.last_batch_seq() <= self.position:
            return []
        most = None if max_events is None else max(1, max_events)  # each has an event or more
        recorded = self._reader.batches(self.position, most=most)
        found = [batch for batch in recorded if batch.seq <= acknowledged]
        if max_events is not None:
            sizes = accumulate(batch.seq - batch.after for batch in found)
            found = found[: max(1, sum(size <= max_events for size in sizes))]
        return [self._applied(batch) for batch in found]

    def _applied(self, batch: Batch) -> AppliedBatch:
        rejected = {one.seq for one in self._reader.rejections(batch.after, up_to=batch.seq)}
        writes = self._reader.writes(batch.after, up_to=batch.seq)
        return AppliedBatch.from_writes(batch, writes, rejected)

    def wait(self, timeout: float | None = None, *, batches: bool = False) -> bool:
        """Blocks until `entries`, or `batches` if asked, has something; False after `timeout` seconds, or if
        the tail was closed.
        """
        began = time.monotonic()
        ends = math.inf if timeout is None else began + check_not_negative(timeout, "timeout, in seconds,")
        self._closed.wait(max(0.0, min(self._found + _PAUSES.first, ends) - began))
        found = wait_for(lambda: self._has_more(batches), self._closed, ends, _PAUSES.pauses())
        if found:
            self._found = time.monotonic()
        return found

    def _has_more(self, batches: bool) -> bool:
        end = self._mark.read()
        if batches and end > self.position:
            end = min(end, self._reader.last_batch_seq())
        return end > self.position

    def commit(self, seq: int) -> None:
        """Notes that everything up to `seq`, the number of an entry, was dealt with: reading goes on after
        it, and the log may be trimmed up to there.

        It survives the death of the process. A loss of power may take it back: then entries come again.
        Raises InputError for a number that is not an entry's, or is before `position`; LogError.
        """
        seq = check_int(seq, "seq", 0, LARGEST_SEQ)
        if seq == self.position:
            return
        if not self.position < seq <= self._mark.read() or self._reader.entry(seq) is None:
            raise InputError(
                f"expected the number of an acknowledged entry after {self.position}, the present position, "
                f"got {seq}"
            )
        try:
            self._position.write(seq)
        except OSError as error:
            raise LogError(f"cannot note the position {seq} in {self.path}: {error}") from error

    def digest(self, seq: int) -> str | None:
        """A text for the history up to event `seq`, the end of a batch, which no other history has."""
        return self._reader.digest(seq)

    def check_bound(self, properties: Mapping[str, str]) -> None:
        """Raises LogError if the log is bound to other values of some of `properties`."""
        self._reader.check_bound(properties)

    def bound(self) -> Mapping[str, str]:
        """What the log is bound to."""
        return self._reader.bound()

    def close(self) -> None:
        """Ends a `wait` that is going on, and lets another process take the name; again does nothing."""
        _core.settled(self._close, self._close)

    def _close(self) -> None:
        """Can be done again."""
        self._closed.set()
        self._reader.close()
        self._position.close()


_: type[Tail] = SqliteTail
