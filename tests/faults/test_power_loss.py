"""A log on a machine that loses power, at any write and flush, again and again: nothing acknowledged is lost.

Each seed is a history: appends alone and together, with keys, origins or neither, boundaries and flushes of
them, trims, clean stops; and a loss of power after some operation of the disk. What was not flushed is then
lost, kept, torn or written in another order. The history of what was acknowledged is held against the log
that is left, which goes on from there. LIVEGNN_FAULT_SEEDS says how many; the seed is in the failure.
"""

import os
import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

import livegnn.log.sqlite
import livegnn.log.sqlite.sequence
from crashing_disk import CrashingDisk, losses_ignored
from gate import draws
from livegnn import Events, InputError, LogError
from livegnn.log import Appended, Batch, Entry, Origin, Rejection
from livegnn.log.idempotency import Known
from livegnn.log.sqlite import SqliteLog, entry_rows
from livegnn.log.sqlite.entry_rows import RowWriter
from livegnn.log.sqlite.examination import examine
from livegnn.log.sqlite.sequence import Format
from livegnn.log.sqlite.tables import Keys, store_reached

SEEDS = int(os.environ.get("LIVEGNN_FAULT_SEEDS", draws(60, 150)))
LOSSES = 4  # in each history
STEPS = 40  # between two of them at most


@dataclass
class Witness:
    """What whoever appends was told."""

    acknowledged: dict[int, Events] = field(default_factory=dict)
    keys: dict[str, tuple[Events, int]] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)  # that were flushed
    offsets: dict[int, int] = field(default_factory=dict)  # by partition
    unsure: list[tuple[list[Events], list[str | None], list[Origin | None]]] = field(
        default_factory=list
    )  # at the last loss
    rejected: dict[int, Events] = field(default_factory=dict)  # entries, in batches that were flushed
    trimmed: int = 0  # acknowledged
    may_be_trimmed: int = 0  # asked for

    def is_new(self, origin: Origin) -> bool:
        """Whether an entry from there was not stored before; it is now."""
        before = self.offsets.get(origin.partition, -1)
        self.offsets[origin.partition] = max(before, origin.offset)
        return origin.offset > before


class Client:
    """Does random things to a log, and notes what it is told."""

    def __init__(self, draw: random.Random, witness: Witness) -> None:
        self.draw, self.witness, self.number = draw, witness, draw.randrange(10**9)
        self.recorded: list[Batch] = []
        self.rejected: dict[int, Events] = {}

    def events(self) -> Events:
        self.number += 1
        return Events().add_nodes([self.number * 100 + n for n in range(self.draw.choice([1, 1, 2, 30]))])

    def step(self, log: SqliteLog) -> None:
        kind = self.draw.random()
        if kind < 0.6:
            self.append(log)
        elif kind < 0.88:
            self.record(log)
        elif kind < 0.94:
            log.sync()
            self.note_flushed()
        else:
            self.trim(log)

    def note_flushed(self) -> None:
        self.witness.batches += self.recorded
        self.witness.rejected |= self.rejected
        self.recorded.clear()
        self.rejected.clear()

    def trim(self, log: SqliteLog) -> None:
        """It flushes all boundaries before it, since it deletes entries for good."""
        up_to = self.draw.randint(self.witness.trimmed, log.last_batch_seq())
        self.witness.may_be_trimmed = max(up_to, self.witness.may_be_trimmed)
        end = log.trim(up_to)
        assert self.witness.trimmed <= end <= up_to
        assert all(end < seq or seq <= up_to for seq in self.witness.acknowledged)
        if end > self.witness.trimmed:
            self.note_flushed()
        self.witness.trimmed = self.witness.may_be_trimmed = end

    def append(self, log: SqliteLog) -> None:
        known = list(self.witness.keys)
        entries: list[Events] = []
        keys: list[str | None] = []
        origins: list[Origin | None] = []
        offsets = dict(self.witness.offsets)
        for _ in range(self.draw.choice([1, 1, 1, 5, 60])):
            origins.append(None)
            if self.draw.random() < 0.2:
                partition = self.draw.randrange(3)
                offset = max(0, offsets.get(partition, -1) + self.draw.choice([-3, 0, 1, 1, 1, 4]))
                entries.append(self.events())
                keys.append(None)
                origins[-1] = Origin("topic", partition, offset)
                offsets[partition] = max(offset, offsets.get(partition, -1))
            elif known and self.draw.random() < 0.2:
                key = self.draw.choice(known)
                entries.append(self.witness.keys[key][0])
                keys.append(key)
            else:
                entries.append(self.events())
                keys.append(f"key {self.number}" if self.draw.random() < 0.3 else None)
        self.witness.unsure = [(entries, keys, origins)]
        outcomes = log.append_all(entries, keys, origins)
        self.witness.unsure = []
        for events, key, origin, outcome in zip(entries, keys, origins, outcomes, strict=True):
            assert isinstance(outcome, Appended)
            if origin is not None and not self.witness.is_new(origin):
                assert outcome.again
                continue
            if key in self.witness.keys:
                assert key is not None
                assert outcome == Appended(self.witness.keys[key][1], len(events), again=True)
                continue
            assert not outcome.again
            assert outcome.seq not in self.witness.acknowledged
            self.witness.acknowledged[outcome.seq] = events
            if key is not None:
                self.witness.keys[key] = (events, outcome.seq)

    def record(self, log: SqliteLog) -> None:
        after = log.last_batch_seq()
        entries = log.entries(after)
        if not entries:
            return
        end, events = self.draw.choice(entries)
        rejections = [Rejection(end, "InputError", "no")] if self.draw.random() < 0.1 else []
        if rejections:
            self.rejected[end] = events
        log.record_batch(Batch(after, end), *rejections)
        self.recorded.append(Batch(after, end))


def check(log: SqliteLog, witness: Witness) -> None:
    """What was acknowledged is there, once; what was not is there as a whole or not at all."""
    begin = log.first_seq() - 1
    assert witness.trimmed <= begin <= witness.may_be_trimmed
    entries = {entry.seq: entry.events for entry in log.entries(begin)}
    lost = [seq for seq, events in witness.acknowledged.items() if seq > begin and entries.get(seq) != events]
    assert lost == []
    lost = [seq for seq, events in witness.rejected.items() if log.entry(seq) != Entry(seq, events)]
    assert lost == []
    assert {*witness.rejected} <= {rejection.seq for rejection in log.rejections()}
    assert log.digest(begin) is not None
    more = [(seq, events) for seq, events in entries.items() if seq not in witness.acknowledged]
    if more:
        (unsure,) = witness.unsure
        fresh = [
            (events, key)
            for events, key, origin in zip(*unsure, strict=True)
            if key not in witness.keys and (origin is None or witness.is_new(origin))
        ]
        assert [events for _, events in more] == [events for events, _ in fresh]
        for (seq, events), (_, key) in zip(more, fresh, strict=True):
            witness.acknowledged[seq] = events
            if key is not None:
                witness.keys[key] = (events, seq)
    assert {part: log.position("topic", part) for part in range(3)} == {
        part: witness.offsets.get(part) for part in range(3)
    }
    ends = [batch.seq for batch in witness.batches if batch.seq >= begin]
    assert ends or begin == 0
    batches = log.batches(ends[0] if ends else 0)
    flushed = [batch for batch in witness.batches if not ends or batch.seq > ends[0]]
    assert batches[: len(flushed)] == flushed
    witness.batches += batches[len(flushed) :]
    witness.rejected |= {
        rejection.seq: entries[rejection.seq]
        for rejection in log.rejections(begin)
        if rejection.seq in entries
    }
    witness.trimmed = witness.may_be_trimmed = begin
    witness.unsure = []


@losses_ignored()
def run(seed: int, directory: Path) -> Witness:
    """One history. Raises what shows that something was lost."""
    draw, witness = random.Random(seed), Witness()
    place = directory / "0"
    place.mkdir()
    for loss in range(LOSSES):
        disk = CrashingDisk(f"power loss {seed} {loss} {secrets.token_hex(4)}", None)
        client = Client(draw, witness)
        dies_while_opening = draw.random() < 0.1
        log = None
        try:
            if dies_while_opening:
                disk.left = draw.randrange(30)
            log = SqliteLog(place / "log.db", vfs=disk.name)
            check(log, witness)
            if not dies_while_opening:
                disk.left = draw.randrange(120)
            for _ in range(draw.randrange(STEPS)):
                client.step(log)
            if draw.random() < 0.2:
                log.close()
        except BaseException as error:
            if not isinstance(error, LogError) or not disk.dead:
                if log is not None:
                    with suppress(LogError):
                        log.close()
                raise
        mark = (place / "log.db-mark").read_bytes() if (place / "log.db-mark").exists() else None
        place = directory / str(loss + 1)
        disk.lose_power(place, draw)
        if mark is not None and draw.random() < 0.5:
            (place / "log.db-mark").write_bytes(mark)
        if log is not None:
            with suppress(LogError):
                log.close()  # the machine is gone, but this process is not
    with closing(SqliteLog(place / "log.db")) as log:
        check(log, witness)
        assert examine(place / "log.db").problems == []
    return witness


@pytest.mark.parametrize("part", range(10))
def test_no_loss_of_power_takes_what_was_acknowledged(tmp_path: Path, part: int) -> None:
    first = int(os.environ.get("LIVEGNN_SEED", "0"))
    survived = 0
    for number in range(SEEDS // 10):
        seed = first + 10 * number + part
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            survived += len(run(seed, directory).acknowledged)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert survived > 0


def flush_nothing(patch: pytest.MonkeyPatch) -> None:
    connect = livegnn.log.sqlite.sequence.connect

    def connect_without(path: Path, format: Format, synchronous: str, vfs: str | None) -> object:
        return connect(path, format, "NORMAL", vfs)

    patch.setattr(livegnn.log.sqlite.sequence, "connect", connect_without)


def forget_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keys, "add", lambda self, known: None)


def store_keys_by_themselves(patch: pytest.MonkeyPatch) -> None:
    """Each key in a transaction of its own, after the entries."""
    store, add = SqliteLog._store, Keys.add
    later: list[tuple[Keys, Known]] = []

    def store_both(self: SqliteLog, given: Sequence[Any]) -> list[Appended | InputError]:
        later.clear()
        outcomes = store(self, given)
        for keys, one in later:
            add(keys, [one])
        return outcomes

    patch.setattr(Keys, "add", lambda self, known: later.extend((self, one) for one in known))
    patch.setattr(SqliteLog, "_store", store_both)


def store_origins_before_entries(patch: pytest.MonkeyPatch) -> None:
    add_all = livegnn.log.sqlite._add_all

    def add_and_commit(writer: RowWriter, given: Sequence[Any]) -> list[Appended | InputError]:
        outcomes = add_all(writer, given)
        if writer.reached:
            store_reached(writer._connection, writer.reached)
            writer._connection.execute("COMMIT")
            writer._connection.execute("BEGIN IMMEDIATE")
        return outcomes

    patch.setattr(livegnn.log.sqlite, "_add_all", add_and_commit)


def mark_too_early(patch: pytest.MonkeyPatch) -> None:
    store, add_all = SqliteLog._store, livegnn.log.sqlite._add_all
    writing: list[SqliteLog] = []

    def note_and_store(self: SqliteLog, given: Sequence[Any]) -> list[Appended | InputError]:
        writing[:] = [self]
        return store(self, given)

    def add_and_mark(writer: RowWriter, given: Sequence[Any]) -> list[Appended | InputError]:
        outcomes = add_all(writer, given)
        writing[0]._mark.write(writer.tail.seq)
        return outcomes

    patch.setattr(SqliteLog, "_store", note_and_store)
    patch.setattr(livegnn.log.sqlite, "_add_all", add_and_mark)


def sync_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SqliteLog, "sync", lambda self: None)


def trim_in_two_transactions(patch: pytest.MonkeyPatch) -> None:
    """Where the log begins is noted after the rows have gone."""

    class InParts:
        def __init__(self, connection: apsw.Connection) -> None:
            self.execute = connection.execute
            self.executemany = self.note
            self._connection = connection

        def note(self, *given: Any) -> None:
            self._connection.execute("COMMIT")
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(*given)

    step = entry_rows.trim_step
    patch.setattr(livegnn.log.sqlite, "trim_step", lambda c, up_to: step(InParts(c), up_to))  # type: ignore[arg-type]


def trim_refused_entries_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(entry_rows, "_keep_letters", lambda connection, begin, end: None)


def trim_too_much(patch: pytest.MonkeyPatch) -> None:
    step = entry_rows.trim_step
    patch.setattr(livegnn.log.sqlite, "trim_step", lambda c, up_to: step(c, up_to + 9))


@pytest.mark.parametrize(
    "spoil",
    [
        flush_nothing,
        forget_keys,
        store_keys_by_themselves,
        store_origins_before_entries,
        mark_too_early,
        sync_nothing,
        trim_in_two_transactions,
        trim_refused_entries_too,
        trim_too_much,
    ],
    ids=lambda it: it.__name__,
)
def test_a_log_with_a_mend_taken_out_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """The check can fail: without any of what keeps events, keys and boundaries, some seed shows it."""
    spoil(monkeypatch)
    for seed in range(150):
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            run(seed, directory)
        except (AssertionError, LogError):
            return
    raise AssertionError("no seed shows it")
