"""The event log in one SQLite file: embedded, durable, and readable with any SQLite tool (see docs/log.md).

Appends are committed with synchronous=FULL: when `append` returns, the events are on the disk and survive a
loss of power. Appends that wait at the same time share one flush, and one row. Boundaries are committed with
synchronous=NORMAL, which costs no flush: they survive the death of the process, and `sync` makes them durable
before a checkpoint relies on them. Reads have a connection of their own (`reader.py`), so that they never
wait for a flush.

Invariants: the sequence numbers of entries are contiguous; a batch begins where the one before it ended; one
process appends. Locks: `GroupCommit`'s, then `_write` for both writers (SQLite has one at a time); `_read`;
`_appended` for waiters. `wal_check.py` and `last_acknowledged.py` find what SQLite would lose without a word.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeAlias, TypeVar

import apsw

import livegnn._core as _core
from livegnn.arguments import check_int
from livegnn.errors import FileFormatError, InputError, LogError, may_pass
from livegnn.events import Events
from livegnn.log import Appended, Batch, Origin, Rejection
from livegnn.log.arguments import LARGEST_SEQ, check_entries, check_events, check_rejections
from livegnn.log.binding import new_properties
from livegnn.log.consumers import read_positions
from livegnn.log.directories import Directories
from livegnn.log.group_commit import GroupCommit
from livegnn.log.location import beside, locate
from livegnn.log.origins import check_origin
from livegnn.log.owner import Owner
from livegnn.log.sqlite.checksums import add_checksum
from livegnn.log.sqlite.database import (
    LAST_BATCH,
    LAST_EVENT,
    check_sqlite,
    connect,
    errors_as_log_errors,
    make_private,
    one,
    roll_back,
)
from livegnn.log.sqlite.entry_rows import End, RowWriter, begin_of, chain_before
from livegnn.log.sqlite.forgetting import forget_entries, forget_messages
from livegnn.log.sqlite.last_acknowledged import LastAcknowledged
from livegnn.log.sqlite.open_files import OpenFiles
from livegnn.log.sqlite.reader import SqliteReader
from livegnn.log.sqlite.tables import Keys, bind_properties, store_bad, store_reached
from livegnn.log.sqlite.trimming import forget_retried, trim_step
from livegnn.log.sqlite.wal_check import find_damage

_logger = logging.getLogger(__name__)
_SMALLEST_PAGE = 512  # of any SQLite database
_DAY: Final = 86_400
_INSERT: Final = "INSERT INTO entries VALUES (?, ?, ?, ?, ?)"

_Given: TypeAlias = tuple[Events | InputError, str | None, Origin | None]
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


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
            self._mark = LastAcknowledged(beside(self.path, "-mark"))
            opened.callback(self._mark.close)
            acknowledged = self._mark.read()
            self._appends = opened.enter_context(closing(connect(self.path, "FULL", vfs)))
            self._boundaries = opened.enter_context(closing(connect(self.path, "NORMAL", vfs)))
            super().__init__(self.path, vfs=vfs)
            opened.callback(self._reads.close)
            files = [self.path, *(beside(self.path, ending) for ending in ("-wal", "-shm", "-lock"))]
            self._files = OpenFiles(f"the event log {self.path}", files)
            self._last = self._find_end(acknowledged)
            self._tail: End | None = None
            self._keys = Keys(self._appends, keep_keys_seconds)
            self._group = GroupCommit(self.append_all)
            self._settled = False
            try:
                with self._errors("open"):
                    self._settle()
            except LogError as error:
                if not may_pass(error):
                    raise
                _logger.warning("the log is read, and cannot be written to yet: %s", error)
            opened.pop_all()

    def _settle(self) -> None:
        """Makes durable what a process left that died while it appended, before anything comes after it: the
        first of those who write does. The caller holds `_write`.
        """
        if self._settled:
            return
        # Then the write-ahead file begins anew at the next append: what a crash left at its end is never
        # taken for what a later one did.
        self._appends.execute("PRAGMA wal_checkpoint(PASSIVE)")
        if self._mark.read() < self._last:
            _core.transact(self._appends, self._flush)
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
        given = list(zip(entries, *check_entries(entries, keys, origins), strict=True))
        with self._errors("append to"):
            return _core.settled(self._append_all, self._note_end, given)

    def _append_all(self, given: "Sequence[_Given]") -> "list[Appended | InputError]":
        outcomes = _core.holding(self._write, self._store, given)
        _core.holding(self._appended, self._appended.notify_all)
        return outcomes

    def _store(self, given: "Sequence[_Given]") -> "list[Appended | InputError]":
        self._files.check()
        self._settle()
        tail, self._tail = self._find_tail(), None
        writer = RowWriter(tail, self._keys, self._appends)
        if any(key is not None or origin is not None for _, key, origin in given):
            # Keys and offsets are looked up within the transaction: what they say is committed.
            outcomes = _core.transact(self._appends, self._store_rows, writer, given)
        else:
            outcomes = _add_all(writer, given)
            if len(writer.rows) == 1:
                # A transaction of one statement. Each more would have to wait for the interpreter's lock.
                self._appends.execute(_INSERT, writer.rows[0])
            elif writer.rows:
                _core.transact(self._appends, self._appends.executemany, _INSERT, writer.rows)
        self._end_at(writer.tail)
        return outcomes

    def _store_rows(self, writer: RowWriter, given: "Sequence[_Given]") -> "list[Appended | InputError]":
        outcomes = _add_all(writer, given)
        self._appends.executemany(_INSERT, writer.rows)
        if writer.known:
            self._keys.add(writer.known.values())
        store_reached(self._appends, writer.reached)
        if writer.bad:
            store_bad(self._appends, writer.bad)
        return outcomes

    def _find_tail(self) -> End:
        """The end of the log; read from the file if an interrupt prevented that a commit was noted."""
        if self._tail is None:
            roll_back(self._appends)
            end = one(self._appends, LAST_EVENT)
            self._end_at(End(end, chain_before(self._appends, LARGEST_SEQ) or b""))
        assert self._tail is not None
        return self._tail

    def _end_at(self, tail: End) -> None:
        if self._last != tail.seq:
            self._mark.write(tail.seq)
            self._last = tail.seq
        self._tail = tail

    def _note_end(self) -> None:
        """Finds the end of the log, after an append that raised, and notifies waiting threads."""
        _core.holding(self._write, self._find_tail)
        _core.holding(self._appended, self._appended.notify_all)

    def last_seq(self) -> int:
        """The sequence number of the last event that was appended, 0 for an empty log."""
        if self._tail is None:  # an append is at work, or was interrupted
            with self._errors("read"):
                _core.if_free(self._write, self._find_tail)
        return self._last

    def wait(self, after: int, timeout: float | None) -> bool:
        """Blocks until there is an event after `after`; False after `timeout` seconds or a `wake`."""
        return _core.holding(self._appended, self._wait, after, timeout)

    def _wait(self, after: int, timeout: float | None) -> bool:
        self._appended.wait_for(lambda: self._last > after or self._woken, timeout)
        self._woken = False
        return self._last > after

    def wake(self) -> None:
        """Makes the `wait` that is going on, or else the next one, return."""
        self._woken = True
        _core.holding(self._appended, self._appended.notify_all)

    def record_batch(self, batch: Batch, *rejections: Rejection) -> None:
        """Stores the boundaries of a batch that is about to become visible, with what was rejected in it.

        Raises LogError if it does not begin where the last recorded batch ended.
        """
        check_rejections(str(self.path), batch, rejections)
        with self._errors("record a batch in"):
            self._transact(self._boundaries, self._record_batch, batch, rejections)

    def _record_batch(self, batch: Batch, rejections: Sequence[Rejection]) -> None:
        last = one(self._boundaries, LAST_BATCH)
        if batch.after != last:
            raise LogError(
                f"{self.path} must be continued after event {last}, got a batch after event "
                f"{batch.after}: does another process run on this log?"
            )
        self._boundaries.execute("INSERT INTO batches VALUES (?, ?)", (batch.seq, batch.after))
        self._boundaries.executemany(
            "INSERT INTO rejections VALUES (?, ?, ?, ?)", map(add_checksum, rejections)
        )

    def _transact(
        self,
        connection: apsw.Connection,
        function: Callable[_Arguments, _Answer],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Answer:
        """Calls `function` in a transaction, as the only one who writes."""

        def transact() -> _Answer:
            self._files.check()
            self._settle()
            return _core.transact(connection, function, *args, **kwargs)

        return _core.holding(self._write, transact)

    def sync(self) -> None:
        """Returns when all recorded batches are durable too, whoever reads the file meanwhile."""
        with self._errors("flush"):
            self._transact(self._appends, self._flush)

    def probe(self) -> None:
        """Writes what `sync` writes. Raises LogError if the disk would not take events."""
        self.sync()

    def check_place(self) -> None:
        """Raises LogError if the log is not where it was opened, so that no start would find it."""
        with self._errors("append to"):
            self._files.check()

    def _flush(self) -> None:
        # A commit with synchronous=FULL flushes the write-ahead file, and so all earlier commits.
        row = add_checksum(("synced", str(self._last)))
        self._appends.execute("REPLACE INTO properties VALUES (?, ?, ?)", row)

    def bind(self, properties: Mapping[str, str], *, replace: bool = False) -> None:
        """Binds the log to what it belongs to: stores, durably, each property that it has no value of yet.

        Raises LogError, with nothing stored, if it has another value of one: it belongs to something else.
        replace: take the new values instead.
        """
        if not new_properties(str(self.path), self.bound(), properties, replace):
            return  # a start on a full disk writes nothing
        with self._errors("bind"):
            self._transact(self._appends, bind_properties, self._appends, self.path, properties, replace)

    def forget_rejections(self, up_to: int) -> int:
        """Refused entries up to event `up_to` are not listed any more, and deleted as soon as no replay can
        come by them. Returns how many were listed. Raises LogError.
        """
        up_to = check_int(up_to, "up_to", 0, LARGEST_SEQ)
        with self._errors("forget what is in"):
            return self._transact(self._appends, self._forget_rejections, up_to)

    def _forget_rejections(self, up_to: int) -> int:
        up_to = min(up_to, one(self._appends, LAST_BATCH))
        return forget_entries(self._appends, up_to, begin_of(self._appends).seq)

    def forget_bad_messages(self, source: str, partition: int, up_to: int) -> int:
        """Deletes the bad messages of a partition of a source up to offset `up_to`; returns how many.

        Where the source goes on stays as it is. Raises LogError.
        """
        check_origin((source, partition, up_to))
        with self._errors("forget what is in"):
            return self._transact(self._appends, forget_messages, self._appends, source, partition, up_to)

    def trim(self, up_to: int) -> int:
        """Deletes whole rows at or before event `up_to`, of which no batch and no consumer needs any more.

        Returns the last event that is deleted now, durably; 0 if none is. Refused entries that were not
        appended again can still be read. Appends wait for a small part of it at most. Raises LogError.
        """
        up_to = check_int(up_to, "up_to", 0, LARGEST_SEQ)
        with self._errors("trim"):
            up_to = min([up_to, *read_positions(self.path, flush=True).values()])
            self._transact(self._appends, forget_retried, self._appends)
        end: int | None = self.first_seq() - 1
        while end is not None:
            began = time.monotonic()
            trimmed, end = end, self._trim_step(up_to)
            time.sleep(time.monotonic() - began)  # so that appends come between
        return trimmed

    def _trim_step(self, up_to: int) -> int | None:
        with self._errors("trim"):
            return self._transact(self._appends, self._trim_some, up_to)

    def _trim_some(self, up_to: int) -> int | None:
        self._keys.forget_old()
        try:
            return trim_step(self._appends, min(up_to, one(self._appends, LAST_BATCH)))
        except (FileFormatError, InputError) as error:
            raise LogError(f"{self.path} must hold the events of refused entries, got: {error}") from error

    def close(self) -> None:
        """Closes the file, into which SQLite moves its write-ahead file, and lets another process own it.

        Raises LogError if the disk fails; nothing is lost, and the log is closed.
        """
        with self._errors("close"):
            both = partial(_core.holding, self._read, _core.settled, self._close, self._close)
            _core.holding(self._write, both)

    def _close(self) -> None:
        """Can be done again."""
        with ExitStack() as opened:
            opened.callback(self._owner.release)
            opened.callback(self._files.release)
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
                f"at {last}: it has lost its end or its -wal file, or is an older one. Restore it; or, to "
                f"continue with its events, remove {self._mark.path}"
            )
        return last


def _add_all(writer: RowWriter, given: "Sequence[_Given]") -> "list[Appended | InputError]":
    outcomes = [_add(writer, *one) for one in given]
    writer.finish()
    return outcomes


def _add(
    writer: RowWriter, events: Events | InputError, key: str | None, origin: Origin | None
) -> Appended | InputError:
    try:
        return writer.add(events, key, origin)
    except InputError as error:
        return error
