"""The one loop: take entries from the log, apply them to the graph and its views, write checkpoints.

    log ─► entries, whole, merged: `Pace` says how many ─► graph.apply ─┬─ staged: boundaries into the log
                                                                        └─ committed: waiters, subscribers

Invariants: `seq` only grows and is the end of a recorded batch; a batch is recorded before it is visible; a
checkpoint is written between batches; what expires is removed by events in the log, like any others, which
events that were appended before them do not contradict. Threads: one runs the loop and is the only one that
applies events; `append`, `read` and `wait` may be called from any.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import NoneType
from typing import Protocol, TypeVar

from livegnn import _core
from livegnn.arguments import function, not_negative, whole
from livegnn.errors import InputError, LiveGNNError, LogError, TimeoutExpired, is_disk_full
from livegnn.events import Events
from livegnn.expiry import Expiry, ExpiryPolicy
from livegnn.graph import Claim, Graph, GraphDelta, View, without_strays
from livegnn.log import Appended, Batch, Log, Rejection, Write
from livegnn.log.group_commit import Commit, GroupCommit
from livegnn.runtime.admission import Admission
from livegnn.runtime.checkpoints import CheckpointPolicy, Checkpoints
from livegnn.runtime.checks import check_schema, views_by_name
from livegnn.runtime.pace import Pace
from livegnn.runtime.statistics import Statistics
from livegnn.wording import kind_of

_logger = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_LARGEST_SEQ = 2**63 - 1
_RETRY_SECONDS = 0.5  # on a full disk


class Chore(Protocol):
    """Something that the loop does between batches, from time to time."""

    def until(self) -> float | None:
        """Seconds until it is due, 0 if it is, None if only an event can make it so."""

    def run(self) -> None:
        """One round."""


class Loop:
    """Keeps `graph` and `views` of it at the end of `log`.

    Making one replays the batches that the log recorded after `graph.seq`, exactly as they were. Raises
    LogError if the log does not lead on from there, InputError if a view is not one of this graph, if two
    have one name, or if settings make no sense.
    """

    def __init__(
        self,
        log: Log,
        graph: Graph,
        views: Sequence[View],
        *,
        pace: Pace,
        admission: Admission,
        checkpoints: CheckpointPolicy | None,
        expiry: ExpiryPolicy | None,
        clock: Callable[[], float],
    ) -> None:
        for given, policy, name in (
            (checkpoints, CheckpointPolicy, "checkpoints"),
            (expiry, ExpiryPolicy, "expiry"),
        ):
            if not isinstance(given, (policy, NoneType)):
                raise InputError(f"{name} must be None or of the type {policy.__name__}, got {given!r}")
        function(clock, "clock", "nothing, which says seconds")
        if not all(callable(getattr(log, name, None)) for name in ("append_all", "writes", "last_seq")):
            raise InputError(f"log must be a Log, such as a SqliteLog, got {log!r}")
        self.log, self.graph = log, graph
        self.views = views_by_name(graph, views)
        self.statistics = Statistics()
        self.pace, self.admission = pace, admission
        self._clock = clock
        self._appending = threading.RLock()  # taken first of all; by the loop, when it appends what expires
        self._expiring_thread: int | None = None  # which has it then
        self._group = GroupCommit(self._log_all)
        self._becoming_visible = threading.RLock()  # held while a batch is committed, and by those who read
        self._visible = threading.Condition()
        self._arrivals: dict[int, float] = {}
        self._thread: threading.Thread | None = None
        self._stopping = self._ended = False
        self._open_views: Sequence[View] = tuple(self.views.values())
        self._failure: BaseException | None = None
        self._paused: BaseException | None = None
        self._retry = threading.Event()  # set by `stop`, so that nobody waits for space
        if log.last_seq() < graph.seq:
            raise LogError(
                f"the log must reach event {graph.seq}, where the graph is, got one that ends at "
                f"{log.last_seq()}: it is not the log of this graph"
            )
        self._replay()
        self._seq = graph.seq
        with graph.writer:
            self._claim = graph.claim = Claim(self)
        self._checkpoints = Checkpoints(
            checkpoints, log, graph, self.views.values(), self.statistics, self._clock
        )
        self._expiry = Expiry(graph, expiry, clock)
        self._chores: list[Chore] = []

    # -- what a subclass adds

    def _count(self, change: GraphDelta) -> None:
        """Notes what a batch did, when it is visible and nobody has been told."""

    def _tell(self, change: GraphDelta, seconds: float) -> None:
        """Tells others of a batch, when it is visible and whoever waited for it goes on."""

    def _tell_end(self) -> None:
        """Tells others that no batch will come any more."""

    @property
    def seq(self) -> int:
        """The last event that answers reflect."""
        return self._seq

    @property
    def failure(self) -> BaseException | None:
        """What stopped the loop, None while all is well."""
        return self._failure

    @property
    def paused(self) -> BaseException | None:
        """Why the loop waits for space on a disk; None if it does not."""
        return self._paused

    @property
    def running(self) -> bool:
        """Whether the loop runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Runs the loop in a thread of its own until `stop`."""
        if self._thread is not None:
            raise LiveGNNError("a runtime can be started once: make another one")
        self._thread = threading.Thread(target=self._run, name="livegnn-runtime", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the loop after the batch that it is at, writes a checkpoint, and closes the views; again does
        nothing."""
        self._stopping = True
        self._retry.set()
        self.log.wake()
        if self._thread is not None:
            self._thread.join()
        self._end()
        if self._failure is None:
            self._checkpoints.write(self._seq)
        views, self._open_views = self._open_views, ()
        for view in views:
            view.close()
        with self.graph.writer:
            if self.graph.claim is self._claim:
                self.graph.claim = None

    def check(self, events: Events) -> None:
        """Raises InputError for events that the graph could never take, whatever comes before them.

        Whether the nodes exist is known only when the events' turn comes: see `rejection`.
        """
        named = self.graph.with_types(events)
        named.check()
        for chunk in named.chunks:
            check_schema(self.graph, chunk)

    def append(self, events: Events, *, key: str | None = None, room_timeout: float | None = 0.0) -> int:
        """Checks and logs events; returns the sequence number of the last one, for `wait`.

        key: an idempotency key, as of `Log.append`. room_timeout: as of `admit`. Raises OverloadedError, and
        InputError if `check` does or if the key came with other events before, with nothing logged.
        """
        self.admit(room_timeout)
        (outcome,) = self._append_all([events], [key], self._append_one)
        if isinstance(outcome, InputError):
            raise outcome
        return outcome.seq

    def append_all(
        self, entries: Sequence[Events], keys: Sequence[str | None] | None = None
    ) -> Sequence[Appended | InputError]:
        """Appends each of `entries` as `append` does, with one flush of the disk for all.

        Returns for each what became of it: an error concerns one entry. Raises LogError or OverloadedError
        if none was logged.
        """
        if not isinstance(entries, (list, tuple)):
            raise InputError(f"entries must be a list of Events, got {kind_of(entries)}")
        if keys is None:
            keys = [None] * len(entries)
        if not isinstance(keys, (list, tuple)) or len(keys) != len(entries):
            raise InputError(
                f"keys must be None or a list of {len(entries)}, one for each entry, got {keys!r}"
            )
        self.admit()
        return self._append_all(entries, keys, self._log_all)

    def admit(self, room_timeout: float | None = 0.0) -> None:
        """Returns if events are taken in: see `Admission`. Raises OverloadedError if they are not.

        room_timeout: seconds to wait for that, None for ever; the loop itself, in a subscriber, never waits.
        """
        if room_timeout is not None:
            not_negative(room_timeout, "room_timeout, in seconds,")
        if self._takes_in():
            return
        if room_timeout != 0.0 and threading.current_thread() is not self._thread:
            self._wait_until(self._takes_in, room_timeout, "room_timeout")
        if not self._takes_in():
            raise self.admission.refuse(self.waiting)

    def _takes_in(self) -> bool:
        return self.admission.is_open(self.waiting) or self._ended

    @property
    def waiting(self) -> int:
        """How many events wait for their turn."""
        return self.log.last_seq() - self._seq

    def _append_all(
        self, entries: Sequence[Events], keys: Sequence[str | None], log_all: Commit
    ) -> Sequence[Appended | InputError]:
        started = self._clock()
        checked = [self._checked(events) for events in entries]
        good = [(one, key) for one, key in zip(checked, keys, strict=True) if isinstance(one, Events)]
        logged = log_all([events for events, _ in good], [key for _, key in good]) if good else []
        with self._visible:
            for outcome in logged:
                if isinstance(outcome, InputError) or outcome.again:
                    continue
                if outcome.seq > self._seq:
                    self._arrivals[outcome.seq] = started
                elif outcome.size:
                    self.statistics.latency_seconds.record(self._clock() - started)
        rest = iter(logged)
        return [next(rest) if isinstance(one, Events) else one for one in checked]

    def _checked(self, events: Events) -> Events | InputError:
        try:
            self.check(events)
            return self.graph.with_types(events)
        except InputError as error:
            return error

    def _append_one(
        self, entries: Sequence[Events], keys: Sequence[str | None]
    ) -> Sequence[Appended | InputError]:
        """Logs one entry, together with those of other threads."""
        if self._expiring_thread == threading.get_ident():
            return self._log_all(entries, keys)  # the others wait until this thread has expired edges
        return [self._group.append(entries[0], keys[0])]

    def _log_all(
        self, entries: Sequence[Events], keys: Sequence[str | None]
    ) -> Sequence[Appended | InputError]:
        with self._appending:
            return self.log.append_all(entries, keys)

    def wait(self, seq: int, timeout: float | None = None) -> int:
        """Returns when event `seq` is visible: the sequence number that is.

        Raises TimeoutExpired after `timeout` seconds, LiveGNNError if the loop ended before, or if the loop
        itself asks, in a subscriber, for what it has not come to, InputError for what is no sequence number.
        """
        seq = whole(seq, "seq", 0, _LARGEST_SEQ)
        if self._seq < seq and threading.current_thread() is self._thread:
            raise LiveGNNError(
                f"a subscriber must not wait for event {seq}: the loop applies it when the subscriber returns"
            )
        done = self._wait_until(lambda: self._seq >= seq, timeout, "timeout")
        if self._seq >= seq:
            return self._seq
        if not done:
            raise TimeoutExpired(f"event {seq} must be visible within {timeout} seconds, got to {self._seq}")
        raise LiveGNNError(
            f"event {seq} will not be visible: the runtime ended at {self._seq} ({self._failure})"
        )

    def _wait_until(self, ready: Callable[[], bool], timeout: float | None, name: str) -> bool:
        """Whether, after a batch, it was `ready` within `timeout` seconds, or the loop has ended."""
        if timeout is not None:  # what is longer the system cannot wait
            timeout = min(not_negative(timeout, f"{name}, in seconds,"), threading.TIMEOUT_MAX)
        with self._visible:
            return self._visible.wait_for(lambda: ready() or self._ended, timeout)

    def rejection(self, seq: int) -> Rejection | None:
        """Why entry `seq` was not applied, None if it was (or was not reached yet)."""
        seq = whole(seq, "seq", 0, _LARGEST_SEQ)
        rejections = self.log.rejections(seq - 1, up_to=seq)
        return rejections[0] if rejections else None

    def retry(self, seq: int) -> int:
        """Appends the events of entry `seq`, which was refused, again; returns the number of the new entry.

        Asked again, it returns the same. It is never pushed back. Raises InputError if the entry was not
        refused.
        """
        entry = None if self.rejection(seq) is None else self.log.entry(seq)
        if entry is None:
            raise InputError(f"expected the number of an entry that was refused, got {seq}: see rejections")
        (outcome,) = self._append_all([entry.events], [f"retry of {seq}"], self._append_one)
        if isinstance(outcome, InputError):
            raise outcome
        return outcome.seq

    def read(self, question: Callable[[], _Answer]) -> tuple[int, _Answer]:
        """The answer to a question about the graph or a view, with the sequence number that it reflects.

        It waits for a batch only while that becomes visible, and a batch for it: a question must be quick.
        """
        function(question, "question", "nothing")
        _core.refuse_in_function()
        with self._becoming_visible:
            return self.graph.seq, question()

    def step(self) -> bool:
        """Does one round of the loop without waiting; returns whether there were entries."""
        worked = self._apply_waiting()
        if self._expiry.until() == 0:
            self._expire()
        for chore in self._chores:
            if chore.until() == 0:
                chore.run()
        if self._checkpoints.until(self._seq) == 0:
            self._checkpoints.write(self._seq)
        return worked

    def _apply_waiting(self) -> bool:
        """Applies a batch of entries that wait; returns whether there were any."""
        started, after = self._clock(), self._seq
        writes = self.log.writes(after, max_events=self.pace.choose(self.waiting, self._age))
        if writes:
            self._apply(writes)
            if self.admission.limited:
                self.pace.learn(self._seq - after, self._clock() - started)
                self.admission.learn()
        return bool(writes)

    def _age(self) -> float:
        """For how many seconds the oldest entry waits, 0 if that is not known, as after a restart."""
        with self._visible:
            oldest = next(iter(self._arrivals.values()), None)
        return 0.0 if oldest is None else self._clock() - oldest

    def _run(self) -> None:
        try:
            while not self._stopping:
                if not self._step_or_pause():
                    waits = [chore.until() for chore in self._chores]
                    waits += [self._expiry.until(), self._checkpoints.until(self._seq)]
                    self.log.wait(self._seq, min((one for one in waits if one is not None), default=None))
        except BaseException as error:
            _logger.exception("the runtime ended at event %d", self._seq)
            self._failure = error
            self._end()

    def _step_or_pause(self) -> bool:
        """What `step` does and returns. On a full disk it waits for a moment; nothing is lost or skipped."""
        try:
            worked = self.step()
        except (LogError, OSError) as error:
            if not is_disk_full(error):
                raise
            if self._paused is None:
                _logger.error("paused at event %d until there is space: %s", self._seq, error)
            self._paused = error
            self._retry.wait(_RETRY_SECONDS)
            return True
        if self._paused is not None:
            _logger.warning("there is space again: going on at event %d", self._seq)
            self._paused = None
        return worked

    def _end(self) -> None:
        """Wakes those who wait for events that will never become visible."""
        with self._visible:
            self._ended = True
            self._visible.notify_all()
        self._tell_end()

    def _replay(self) -> None:
        """Applies the recorded batches after the graph's position, with their boundaries and rejections."""
        for batch in self.log.batches(self.graph.seq):
            rejected = {rejection.seq for rejection in self.log.rejections(batch.after, up_to=batch.seq)}
            writes = self.log.writes(batch.after, up_to=batch.seq)
            if not writes or writes[-1].seq != batch.seq:
                raise LogError(
                    f"the log must hold the entries of its batch {batch}, got {len(writes)} writes"
                )
            events = Events.concatenate(
                [entry.events for write in writes for entry in write.entries() if entry.seq not in rejected]
                if rejected
                else [write.events for write in writes]
            )
            try:
                self.graph.apply(without_strays(self.graph.schema, events), seq=batch.seq, trusted=True)
            except InputError as error:
                raise LogError(
                    f"batch {batch} was applied before, so it must apply again, but: {error}. "
                    "This log is not of this graph, or the graph it began with has changed"
                ) from error

    def _apply(self, writes: Sequence[Write]) -> None:
        """Applies entries as one batch or, if that is refused, one by one, to find those to blame."""
        ends = [end for write in writes for end in write.ends.tolist()]
        if len(ends) > 1:
            try:
                self._commit(ends, Events.concatenate(write.events for write in writes))
            except InputError:
                pass
            else:
                return
        for write in writes:
            for entry in write.entries():
                try:
                    self._commit([entry.seq], entry.events)
                except InputError as error:
                    self._commit(
                        [entry.seq], Events(), Rejection(entry.seq, type(error).__name__, str(error))
                    )

    def _commit(self, ends: list[int], events: Events, rejection: Rejection | None = None) -> None:
        """Applies one batch, of the entries that end at `ends`, and publishes it.

        Raises InputError with nothing changed or recorded.
        """
        batch = Batch(self._seq, ends[-1])
        started = self._clock()
        commit = ExitStack()

        def record(delta: GraphDelta) -> None:
            self.log.record_batch(batch, rejection)
            commit.enter_context(self._becoming_visible)

        def let_go(change: GraphDelta) -> None:
            # First of all: whatever comes now, this batch will not be applied again.
            self._seq = batch.seq
            commit.close()
            self._record(batch, self._clock() - started, rejection)
            if rejection is None:
                self._count(change)
            with self._visible:
                now = self._clock()
                for end in ends:
                    arrival = self._arrivals.pop(end, None)
                    if arrival is not None:
                        self.statistics.latency_seconds.record(now - arrival)
                self._visible.notify_all()

        with commit, self.graph.writer:
            # Its numbers are those of the log, whatever somebody has applied before.
            self.graph.seq = self._seq
            self._claim.give_turn()
            change = self.graph.apply(events, seq=batch.seq, on_staged=record, on_committed=let_go)
        self._tell(change, self._clock() - started)

    def _record(self, batch: Batch, seconds: float, rejection: Rejection | None) -> None:
        count = batch.seq - batch.after
        if rejection is not None:
            self.statistics.rejected_entries.record(count)
            return
        self.statistics.batch_seconds.record(seconds)
        self.statistics.batch_events.record(count)

    def _expire(self) -> None:
        """Appends the removal of what has expired to the log, from where it comes back as any other event."""
        now = self._expiry.begin()
        if now is None:
            return
        count = 0
        with self._appending:
            self._expiring_thread = threading.get_ident()
            try:
                # What waits may renew an edge, or remove its node, so it comes first, and nothing comes
                # between.
                while self._apply_waiting():
                    pass
                for part in self._expiry.removals(now, self.pace.size):
                    self.log.append(part)
                    count += len(part)
            finally:
                self._expiring_thread = None
        if count:
            self.statistics.expired_edges.record(count)
