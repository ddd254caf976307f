"""The event log in one SQLite file: embedded, durable, and readable with any SQLite tool (see docs/log.md).

Appends are committed with synchronous=FULL: when `append` returns, the events are on the disk and survive a
loss of power. Appends that wait at the same time share one flush, and one row. Boundaries are committed with
synchronous=NORMAL, which costs no flush: they survive the death of the process, and `sync` makes them durable
before a checkpoint relies on them. Reads have a connection of their own (`reader.py`), so that they never
wait for a flush.

Invariants: the sequence numbers of entries are contiguous; a batch begins at the end of the previous one; one
process appends. Locks: `GroupCommit`'s, then `_write` for both writers (SQLite has one at a time); `_read`;
`_state` for waiters. `wal_check.py` and `LastAcknowledged` find losses that SQLite does not report.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import livegnn._core as _core
from livegnn.arguments import check_int
from livegnn.errors import FileFormatError, InputError, LogError, as_value, may_pass
from livegnn.events import Events
from livegnn.log import Appended, Batch, Given, Origin, Outcomes, Rejection
from livegnn.log.arguments import LARGEST_SEQ, check_rejections, new_properties
from livegnn.log.idempotency import check_origin
from livegnn.log.location import beside, locate
from livegnn.log.owned import OwnedLog
from livegnn.log.sqlite.entry_rows import End, RowWriter, begin_of, chain_before, forget_retried, trim_step
from livegnn.log.sqlite.reader import SqliteReader
from livegnn.log.sqlite.sequence import (
    OwnedSequence,
    add_checksum,
    connect,
    errors_as_log_errors,
    one,
    roll_back,
)
from livegnn.log.sqlite.tables import (
    FORMAT,
    LAST_BATCH,
    LAST_EVENT,
    Keys,
    bind_properties,
    forget_entries,
    forget_messages,
    store_bad,
    store_reached,
)
from livegnn.log.sqlite.wal_check import find_damage

_logger = logging.getLogger(__name__)
_DAY: Final = 86_400
_INSERT: Final = "INSERT INTO entries VALUES (?, ?, ?, ?, ?)"
_RECORD: Final = f"INSERT INTO batches SELECT ?, ? WHERE ? = ({LAST_BATCH})"


class SqliteLog(SqliteReader, OwnedSequence, OwnedLog):
    """A log at `path`, made when it is missing. Thread-safe.

    keep_keys_seconds: for how long at least an idempotency key is known. vfs: the name of a file system that
    is registered with apsw, for tests.
    Raises LogError for a file of another kind, one that has lost what was appended to it, or one that another
    process owns.
    """

    takes_joined = True

    def __init__(self, path: Path | str, *, keep_keys_seconds: float = _DAY, vfs: str | None = None) -> None:
        with errors_as_log_errors("open", path):
            path = locate(path, new=True)
        OwnedLog.__init__(self, str(path))
        OwnedSequence.__init__(self, path, FORMAT, vfs)
        with self._errors("open"), ExitStack() as opened:
            opened.callback(super()._close)
            self._boundaries = opened.enter_context(closing(connect(path, FORMAT, "NORMAL", vfs)))
            self._tail: End | None = None
            self._keys = Keys(self._appends, keep_keys_seconds)
            try:
                with self._errors("open"):
                    self._settle()
            except LogError as error:
                if not may_pass(error):
                    raise
                _logger.warning("the log is read, and cannot be written to yet: %s", error)
            opened.pop_all()

    def _append_group(self, given: Sequence[Given]) -> Outcomes:
        with self._errors("append to"):
            return _core.settled(self._append_all, self._note_end, given)

    def _append_all(self, given: Sequence[Given]) -> Outcomes:
        outcomes = _core.holding(self._write, self._store, given)
        self._notify()
        return outcomes

    def _store(self, given: Sequence[Given]) -> Outcomes:
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

    def _store_rows(self, writer: RowWriter, given: Sequence[Given]) -> Outcomes:
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
        self._notify()

    def last_seq(self) -> int:
        if self._tail is None:  # an append is at work, or was interrupted
            with self._errors("read"):
                _core.if_free(self._write, self._find_tail)
        return self._last

    def record_batch(self, batch: Batch, *rejections: Rejection) -> None:
        check_rejections(str(self.path), batch, rejections)
        with self._errors("record a batch in"):
            if rejections:
                self._transact(self._boundaries, self._record_with, batch, rejections)
            else:
                _core.holding(self._write, self._record, batch)

    def _record(self, batch: Batch) -> None:
        """In a transaction of one statement: each more would have to wait for the interpreter's lock."""
        self._files.check()
        self._settle()
        roll_back(self._boundaries)
        self._boundaries.execute(_RECORD, (batch.seq, batch.after, batch.after))
        if self._boundaries.changes() != 1:
            raise self._no_continuation(batch)

    def _record_with(self, batch: Batch, rejections: Sequence[Rejection]) -> None:
        self._boundaries.execute(_RECORD, (batch.seq, batch.after, batch.after))
        if self._boundaries.changes() != 1:
            raise self._no_continuation(batch)
        self._boundaries.executemany(
            "INSERT INTO rejections VALUES (?, ?, ?, ?)", map(add_checksum, rejections)
        )

    def _no_continuation(self, batch: Batch) -> LogError:
        last = one(self._boundaries, LAST_BATCH)
        return LogError(
            f"{self.path} must be continued after event {last}, got a batch after event {batch.after}: does "
            "another process run on this log?"
        )

    def sync(self) -> None:
        with self._errors("flush"):
            self._transact(self._appends, self._flush)

    def probe(self) -> None:
        self.sync()

    def check_place(self) -> None:
        with self._errors("append to"):
            self._files.check()

    def _flush(self) -> None:
        row = add_checksum(("synced", str(self._last)))
        self._appends.execute("REPLACE INTO properties VALUES (?, ?, ?)", row)

    def bind(self, properties: Mapping[str, str], *, replace: bool = False) -> None:
        """Implements `Log.bind`. replace: take the new values, even if the log has other ones."""
        if not new_properties(str(self.path), self.bound(), properties, replace):
            return  # a start on a full disk writes nothing
        with self._errors("bind"):
            self._transact(self._appends, bind_properties, self._appends, self.path, properties, replace)

    def forget_rejections(self, up_to: int) -> int:
        up_to = check_int(up_to, "up_to", 0, LARGEST_SEQ)
        with self._errors("forget what is in"):
            return self._transact(self._appends, self._forget_rejections, up_to)

    def _forget_rejections(self, up_to: int) -> int:
        up_to = min(up_to, one(self._appends, LAST_BATCH))
        return forget_entries(self._appends, up_to, begin_of(self._appends).seq)

    def forget_bad_messages(self, source: str, partition: int, up_to: int) -> int:
        check_origin((source, partition, up_to))
        with self._errors("forget what is in"):
            return self._transact(self._appends, forget_messages, self._appends, source, partition, up_to)

    def _begin_trim(self) -> int:
        forget_retried(self._appends)
        return begin_of(self._appends).seq

    def _trim_some(self, up_to: int) -> int | None:
        self._keys.forget_old()
        try:
            return trim_step(self._appends, min(up_to, one(self._appends, LAST_BATCH)))
        except (FileFormatError, InputError) as error:
            raise LogError(f"{self.path} must hold the events of refused entries, got: {error}") from error

    def _close(self) -> None:
        with ExitStack() as opened:
            opened.callback(super()._close)
            opened.callback(self.directories.release)
            opened.callback(self._boundaries.close)

    def _refuse_damage(self, path: Path) -> None:
        """Also for a write-ahead file of which SQLite would drop appends without a word."""
        super()._refuse_damage(path)
        wal = beside(path, "-wal")
        damage = find_damage(wal)
        if damage is not None:
            place = f"frame {damage.frame}" if damage.frame else "its header"
            raise LogError(
                f"{wal} must have the checksums of the written bytes, but {place} has not, and appends "
                "that were acknowledged follow. Restore the log and this file from a copy; or, to continue "
                "without these appends, keep a copy, then: "
                f"sqlite3 {path} 'PRAGMA wal_checkpoint(TRUNCATE)'"
            )

    def _known_end(self) -> int:
        return self._last

    def _find_end(self, acknowledged: int) -> int:
        """As of `OwnedSequence`, or if a batch is after it."""
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


def _add_all(writer: RowWriter, given: Sequence[Given]) -> Outcomes:
    outcomes = [_add(writer, *one) for one in given]
    writer.finish()
    return outcomes


def _add(
    writer: RowWriter, events: Events | InputError, key: str | None, origin: Origin | None
) -> Appended | InputError:
    try:
        return writer.add(events, key, origin)
    except InputError as error:
        return as_value(error)
