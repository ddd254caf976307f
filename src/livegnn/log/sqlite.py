"""The event log in one SQLite file: embedded, durable, and readable with any SQLite tool (see docs/log.md).

Appends are committed with synchronous=FULL: when `append` returns, the events are on the disk and survive a
loss of power. Appends that wait at the same time share one flush, and one row. Boundaries are committed with
synchronous=NORMAL, which costs no flush: they survive the death of the process, and `sync` makes them durable
before a checkpoint relies on them. Reads have a connection of their own (`log/reader.py`), so that they never
wait for a flush.

Invariants: the sequence numbers of entries are contiguous; a batch begins where the one before it ended; one
process appends. Locks: `GroupCommit`'s, then `_write` for both writers (SQLite has one at a time); `_read`;
`_appended` for waiters. `log/wal.py` and `log/mark.py` find what SQLite would lose without a word.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from livegnn.arguments import whole
from livegnn.errors import FileFormatError, InputError, LogError, may_pass
from livegnn.events import Events
from livegnn.log import Appended, Batch, Origin, Rejection
from livegnn.log.arguments import LARGEST_SEQ, check_entries, check_events
from livegnn.log.bad_messages import store_bad
from livegnn.log.binding import bind_properties, bound_properties, new_properties
from livegnn.log.checksums import add_checksum
from livegnn.log.consumers import read_positions
from livegnn.log.database import (
    LAST_BATCH,
    LAST_EVENT,
    check_sqlite,
    connect,
    errors_as_log_errors,
    make_private,
    one,
    transaction,
)
from livegnn.log.directories import Directories
from livegnn.log.group_commit import GroupCommit
from livegnn.log.keys import Keys
from livegnn.log.location import beside, locate
from livegnn.log.mark import Mark
from livegnn.log.origins import store_reached
from livegnn.log.owner import Owner
from livegnn.log.reader import SqliteReader
from livegnn.log.rows import RowWriter, Tail, chain_before
from livegnn.log.trimming import forget_retried, trim_step
from livegnn.log.wal import find_damage

_logger = logging.getLogger(__name__)
_SMALLEST_PAGE = 512  # of any SQLite database
_DAY: Final = 86_400


class SqliteLog(SqliteReader):
    """A log at `path`, made when it is missing. Thread-safe.

    keep_keys_seconds: for how long at least an idempotency key is known. vfs: the name of a file system that
    is registered with apsw, for tests.
    Raises LogError for a file of another kind, one that has lost what was appended to it, or one that another
    process owns.
    """

    def __init__(self, path: Path | str, *, keep_keys_seconds: float = _DAY, vfs: str | None = None) -> None:
        check_sqlite()
        with errors_as_log_errors("open", path):
            self.path = locate(path, new=True)
        self.directories = Directories(self, str(self.path))
        self._write = threading.Lock()
        self._appended = threading.Condition()
        self._woken = False
        with self._errors("open"), ExitStack() as opened:
            self._owner = Owner(beside(self.path, "-lock"), f"the event log {self.path}")
            opened.callback(self._owner.release)
            make_private(self.path)
            self._refuse_remains()
            self._refuse_damage()
            self._mark = Mark(beside(self.path, "-mark"))
            opened.callback(self._mark.close)
            acknowledged = self._mark.read()
            self._appends = opened.enter_context(closing(connect(self.path, "FULL", vfs)))
            self._boundaries = opened.enter_context(closing(connect(self.path, "NORMAL", vfs)))
            super().__init__(self.path, vfs=vfs)
            opened.callback(self._reads.close)
            self._last = self._find_end(acknowledged)
            self._tail: Tail | None = None
            self._keys = Keys(self._appends, keep_keys_seconds)
            self._group = GroupCommit(self.append_all)
            self._settled = False
            try:
                with self._writing("open"):
                    pass
            except LogError as error:
                if not may_pass(error):
                    raise
                _logger.warning("the log is read, and cannot be written to yet: %s", error)
            opened.pop_all()

    @contextmanager
    def _writing(self, action: str) -> Iterator[None]:
        """The lock of those who write. Whoever is the first of them settles what was left at the start."""
        with self._write, self._errors(action):
            if not self._settled:
                self._settle()
            yield

    def _settle(self) -> None:
        """Makes durable what a process left that died while it appended, before anything comes after it."""
        # Then the write-ahead file begins anew at the next append: what a crash left at its end is never
        # taken for what a later one did.
        self._appends.execute("PRAGMA wal_checkpoint(PASSIVE)")
        if self._mark.read() < self._last:
            self._flush()
            self._mark.write(self._last)
        self._settled = True

    def append(self, events: Events, *, key: str | None = None) -> int:
        """Stores events durably, as one entry; returns the sequence number of the last one.

        No events are no entry. key: an idempotency key. If an entry with it was appended before, nothing is
        stored, and the number is that of the earlier entry. Raises InputError for text that cannot be stored,
        or if the earlier entry had other events; LogError if the disk fails.
        """
        check_events(events)
        return self._group.append(events, key).seq if len(events) or key is not None else self._last

    def append_all(
        self,
        entries: Sequence[Events | InputError],
        keys: Sequence[str | None] | None = None,
        origins: Sequence[Origin | None] | None = None,
    ) -> Sequence[Appended | InputError]:
        """Stores each of `entries` as `append` does, with one flush for all.

        entries: an InputError stands for events that could not be read. origins: as of `Log.append_all`.
        Returns for each what became of it: an error concerns one entry. Raises LogError if none was stored.
        """
        keys, origins = check_entries(entries, keys, origins)
        with self._writing("append to"):
            writer = RowWriter(self._find_tail(), self._keys, self._appends)
            outcomes = [_add(writer, *given) for given in zip(entries, keys, origins, strict=True)]
            writer.finish()
            self._store(writer)
        with self._appended:
            self._appended.notify_all()
        return outcomes

    def _find_tail(self) -> Tail:
        """The end of the log; asked of the file if an interrupt came between a commit and what notes it."""
        if self._tail is None:
            end = one(self._appends, LAST_EVENT)
            self._tail = Tail(end, chain_before(self._appends, LARGEST_SEQ) or b"")
            self._last = end
        return self._tail

    def _store(self, writer: RowWriter) -> None:
        self._tail = None
        insert = "INSERT INTO entries VALUES (?, ?, ?, ?, ?)"
        if len(writer.rows) == 1 and not writer.known and not writer.reached:
            # A transaction of one statement. Each more would have to wait for the interpreter's lock.
            self._appends.execute(insert, writer.rows[0])
        elif writer.rows or writer.reached:
            with transaction(self._appends):
                self._appends.executemany(insert, writer.rows)
                if writer.known:
                    self._keys.add(writer.known.values())
                store_reached(self._appends, writer.reached)
                if writer.bad:
                    store_bad(self._appends, writer.bad)
        self._tail = writer.tail
        if self._last != writer.tail.seq:
            self._last = writer.tail.seq
            self._mark.write(self._last)

    def last_seq(self) -> int:
        """The sequence number of the last event that was appended, 0 for an empty log."""
        return self._last

    def wait(self, after: int, timeout: float | None) -> bool:
        """Blocks until there is an event after `after`; False after `timeout` seconds or a `wake`."""
        with self._appended:
            self._appended.wait_for(lambda: self._last > after or self._woken, timeout)
            self._woken = False
            return self._last > after

    def wake(self) -> None:
        """Makes the `wait` that is going on, or else the next one, return."""
        with self._appended:
            self._woken = True
            self._appended.notify_all()

    def record_batch(self, batch: Batch, rejection: Rejection | None = None) -> None:
        """Stores the boundaries of a batch that is about to become visible, with what was rejected in it.

        Raises LogError if it does not begin where the last recorded batch ended.
        """
        if rejection is not None and not batch.after < rejection.seq <= batch.seq:
            raise LogError(
                f"cannot record a batch in {self.path}: {rejection} must be of an entry of {batch}"
            )
        with self._writing("record a batch in"), transaction(self._boundaries):
            last = one(self._boundaries, LAST_BATCH)
            if batch.after != last:
                raise LogError(
                    f"{self.path} must be continued after event {last}, got a batch after event "
                    f"{batch.after}: does another process run on this log?"
                )
            self._boundaries.execute("INSERT INTO batches VALUES (?, ?)", (batch.seq, batch.after))
            if rejection is not None:
                self._boundaries.execute(
                    "INSERT INTO rejections VALUES (?, ?, ?, ?)", add_checksum(rejection)
                )

    def sync(self) -> None:
        """Returns when all recorded batches are durable too, whoever reads the file meanwhile."""
        with self._writing("flush"):
            self._flush()

    def probe(self) -> None:
        """Writes what `sync` writes. Raises LogError if the disk would not take events."""
        self.sync()

    def _flush(self) -> None:
        with transaction(self._appends):
            # A commit with synchronous=FULL flushes the write-ahead file, and so all earlier commits.
            row = add_checksum(("synced", str(self._last)))
            self._appends.execute("REPLACE INTO properties VALUES (?, ?, ?)", row)

    def bind(self, properties: Mapping[str, str], *, replace: bool = False) -> None:
        """Binds the log to what it belongs to: stores, durably, each property that it has no value of yet.

        Raises LogError, with nothing stored, if it has another value of one: it belongs to something else.
        replace: take the new values instead.
        """
        with self._write, self._errors("bind"):
            known = bound_properties(self._appends)
            if not new_properties(str(self.path), known, properties, replace):
                return  # a start on a full disk writes nothing
        with self._writing("bind"), transaction(self._appends):
            bind_properties(self._appends, self.path, properties, replace)

    def trim(self, up_to: int) -> int:
        """Deletes whole rows at or before event `up_to`, of which no batch and no consumer needs any more.

        Returns the last event that is deleted now, durably; 0 if none is. Refused entries that were not
        appended again can still be read. Appends wait for a small part of it at most. Raises LogError.
        """
        up_to = whole(up_to, "up_to", 0, LARGEST_SEQ)
        with self._errors("trim"):
            up_to = min([up_to, *read_positions(self.path, flush=True).values()])
            with self._writing("trim"), transaction(self._appends):
                forget_retried(self._appends)
        end: int | None = self.first_seq() - 1
        while end is not None:
            began = time.monotonic()
            trimmed, end = end, self._trim_step(up_to)
            time.sleep(time.monotonic() - began)  # so that appends come between
        return trimmed

    def _trim_step(self, up_to: int) -> int | None:
        with self._writing("trim"), transaction(self._appends):
            self._keys.forget_old()
            try:
                return trim_step(self._appends, min(up_to, one(self._appends, LAST_BATCH)))
            except (FileFormatError, InputError) as error:
                raise LogError(
                    f"{self.path} must hold the events of refused entries, got: {error}"
                ) from error

    def close(self) -> None:
        """Closes the file, into which SQLite moves its write-ahead file, and lets another process own it.

        Raises LogError if the disk fails; nothing is lost, and the log is closed.
        """
        with self._write, self._read, self._errors("close"), ExitStack() as opened:
            opened.callback(self._owner.release)
            opened.callback(self.directories.release)
            opened.callback(self._mark.close)
            for connection in (self._appends, self._boundaries, self._reads):
                opened.callback(connection.close)

    def _refuse_remains(self) -> None:
        """Raises LogError for a file that is too short to be a page: SQLite would begin a new one in it."""
        size = self.path.stat().st_size
        if 0 < size < _SMALLEST_PAGE:
            raise LogError(
                f"{self.path} must have at least one page of {_SMALLEST_PAGE} bytes, got {size} bytes: it is "
                "truncated"
            )

    def _refuse_damage(self) -> None:
        """Raises LogError for a write-ahead file of which SQLite would drop appends without a word."""
        path = beside(self.path, "-wal")
        damage = find_damage(path)
        if damage is not None:
            place = f"frame {damage.frame}" if damage.frame else "its header"
            raise LogError(
                f"{path} must have the checksums of what was written, but {place} has not, and appends "
                "that were acknowledged follow. Restore the log and this file from a copy; or, to go on "
                "without what follows, keep a copy, then: "
                f"sqlite3 {self.path} 'PRAGMA wal_checkpoint(TRUNCATE)'"
            )

    def _known_end(self) -> int:
        return self._last

    def _find_end(self, acknowledged: int) -> int:
        """The last event. Raises LogError if there were others after it: acknowledged ones, or batches."""
        last = one(self._reads, LAST_EVENT)
        batch = one(self._reads, LAST_BATCH)
        if last < batch:
            raise LogError(
                f"{self.path} must reach event {batch}, where its last batch ends, got entries up to event "
                f"{last}: it has lost its end"
            )
        if last < acknowledged:
            raise LogError(
                f"{self.path} must reach event {acknowledged}, which was acknowledged, got a log that ends "
                f"at {last}: it has lost its end or its -wal file, or is an older one. Restore it; or, to go "
                f"on with what it has, remove {self._mark.path}"
            )
        return last


def _add(
    writer: RowWriter, events: Events | InputError, key: str | None, origin: Origin | None
) -> Appended | InputError:
    try:
        return writer.add(events, key, origin)
    except InputError as error:
        return error
