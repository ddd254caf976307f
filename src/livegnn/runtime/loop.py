"""The one loop: take entries from the log, apply them to the graph and its views, write checkpoints.

    log ─► entries, whole, merged up to max_batch_events ─► graph.apply ─┬─ staged: boundaries into the log
                                                                         └─ committed: waiters, subscribers

Invariants: `seq` only grows and is the end of a recorded batch; a batch is recorded before it is visible; a
checkpoint is begun between batches; what expires is removed by events in the log, like any others, which
events that were appended before them do not contradict. Threads: one runs the loop and is the only one that
applies events; `append`, `read` and `wait` may be called from any.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import NoneType
from typing import Protocol, TypeAlias, TypeVar

from livegnn import _core
from livegnn.arguments import function, not_negative, switch, whole
from livegnn.errors import InputError, LiveGNNError, LogError, TimeoutExpired, is_disk_full
from livegnn.events import Chunk, Events
from livegnn.expiry import Expiry, ExpiryPolicy, HeldExpiry
from livegnn.graph import Claim, Graph, GraphDelta, View, check_columns
from livegnn.log import Appended, Batch, Log, Origin, Rejection, Write
from livegnn.log.group_commit import GroupCommit
from livegnn.log.keys import RETRY_KEY
from livegnn.runtime.ahead import Ahead, AheadPolicy
from livegnn.runtime.binding import schema_properties
from livegnn.runtime.checkpoints import CheckpointPolicy, Checkpoints
from livegnn.runtime.recovery import ViewFactory
from livegnn.runtime.replay import replay
from livegnn.runtime.statistics import Statistics
from livegnn.runtime.views import Rebuilding, Views, WhenViewFails
from livegnn.wording import kind_of

_logger = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_Outcomes: TypeAlias = Sequence[Appended | InputError]
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
        max_batch_events: int,
        checkpoints: CheckpointPolicy | None,
        expiry: ExpiryPolicy | None,
        ahead: AheadPolicy | None,
        when_view_fails: WhenViewFails,
        factories: Mapping[str, ViewFactory],
        clock: Callable[[], float],
    ) -> None:
        for given, policy, name in (
            (checkpoints, CheckpointPolicy, "checkpoints"),
            (expiry, ExpiryPolicy, "expiry"),
            (ahead, AheadPolicy, "ahead"),
        ):
            if not isinstance(given, (policy, NoneType)):
                raise InputError(f"{name} must be None or of the type {policy.__name__}, got {given!r}")
        function(clock, "clock", "nothing, which says seconds")
        if not all(callable(getattr(log, name, None)) for name in ("append_all", "writes", "bind")):
            raise InputError(f"log must be a Log, such as a SqliteLog, got {log!r}")
        max_batch_events = whole(max_batch_events, "max_batch_events", 1)
        self.log, self.graph = log, graph
        self.views = Views(graph, views)
        self.statistics = Statistics()
        self._max_batch_events = max_batch_events
        self._clock = clock
        self._appending = threading.RLock()  # taken first of all; by the loop, when it appends what expires
        self._expiring_thread: int | None = None  # which has it then
        self._group = GroupCommit(self._log_all)
        self._becoming_visible = threading.RLock()  # held while a batch is committed, and by those who read
        self._visible = threading.Condition()
        self._arrivals: dict[int, float] = {}
        self._thread: threading.Thread | None = None
        self._stopping = self._ended = False
        self._open_views: Mapping[str, View] = self.views
        self._failure: BaseException | None = None
        self._paused: BaseException | None = None
        self._retry = threading.Event()  # set by `stop`, so that nobody waits for space
        if log.last_seq() < graph.seq:
            raise LogError(
                f"the log must reach event {graph.seq}, where the graph is, got one that ends at "
                f"{log.last_seq()}: it is not the log of this graph"
            )
        log.bind(schema_properties(graph.schema))
        since = graph.seq
        replay(log, graph)
        self._seq = graph.seq
        with graph.writer:
            self._claim = graph.claim = Claim(self)
        self._checkpoints = Checkpoints(
            checkpoints,
            log,
            graph,
            self.views,
            self.statistics,
            self._clock,
            since=since,
            readers=self._becoming_visible,
        )
        self._expiry, self._ahead = Expiry(graph, expiry, clock), Ahead(ahead)
        self._rebuilding = Rebuilding(graph, self.views, when_view_fails, factories, self._view_changed)
        self._chores: list[Chore] = [self._rebuilding]

    # -- what a subclass adds

    def _count(self, change: GraphDelta) -> None:
        """Notes what a batch did, when it is visible and nobody has been told."""

    def _tell(self, change: GraphDelta, seconds: float) -> None:
        """Tells others of a batch, when it is visible and whoever waited for it goes on."""

    def _tell_end(self) -> None:
        """Tells others that no batch will come any more."""

    def _view_changed(self, name: str, view: View | None) -> None:
        """Notes that a view has failed (None), or was built again."""

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
        views, self._open_views = self._open_views, {}
        for view in views.values():
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
            _check_schema(self.graph, chunk)

    def append(self, events: Events, *, key: str | None = None) -> int:
        """Checks and logs events; returns the sequence number of the last one, for `wait`.

        key: an idempotency key, as of `Log.append`. Raises InputError, with nothing logged, if `check` does,
        or if the key came with other events before.
        """
        (outcome,) = self._append_all([events], [key], [None], self._append_one)
        if isinstance(outcome, InputError):
            raise outcome
        return outcome.seq

    def append_all(
        self,
        entries: Sequence[Events],
        keys: Sequence[str | None] | None = None,
        origins: Sequence[Origin | None] | None = None,
    ) -> Sequence[Appended | InputError]:
        """Appends each of `entries` as `append` does, with one flush of the disk for all.

        origins: where each came from, as of `Log.append_all`: what is delivered again is not logged again.
        Returns for each what became of it: an error concerns one entry. Raises LogError if none was logged.
        """
        if not isinstance(entries, (list, tuple)):
            raise InputError(f"entries must be a list of Events, got {kind_of(entries)}")
        keys = [None] * len(entries) if keys is None else keys
        origins = [None] * len(entries) if origins is None else origins
        for given, name in ((keys, "keys"), (origins, "origins")):
            if not isinstance(given, (list, tuple)) or len(given) != len(entries):
                raise InputError(
                    f"{name} must be None or a list of {len(entries)}, one for each entry, got {given!r}"
                )
        return self._append_all(entries, keys, origins, self._log_all)

    def _append_all(
        self,
        entries: Sequence[Events],
        keys: Sequence[str | None],
        origins: Sequence[Origin | None],
        log_all: Callable[[Sequence[Events], Sequence[str | None], Sequence[Origin | None]], _Outcomes],
    ) -> _Outcomes:
        started = self._clock()
        checked = [self._checked(events) for events in entries]
        good = [
            (one, key, origin)
            for one, key, origin in zip(checked, keys, origins, strict=True)
            if isinstance(one, Events)
        ]
        logged = log_all(*(list(column) for column in zip(*good, strict=True))) if good else []
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
        self, entries: Sequence[Events], keys: Sequence[str | None], origins: Sequence[Origin | None]
    ) -> _Outcomes:
        """Logs one entry, together with those of other threads."""
        if self._expiring_thread == threading.get_ident():
            return self._log_all(
                entries, keys, origins
            )  # the others wait until this thread has expired edges
        return [self._group.append(entries[0], keys[0])]

    def _log_all(
        self,
        entries: Sequence[Events],
        keys: Sequence[str | None],
        origins: Sequence[Origin | None] | None = None,
    ) -> _Outcomes:
        with self._appending:
            return self.log.append_all(entries, keys, origins)

    def wait(self, seq: int, timeout: float | None = None) -> int:
        """Returns when event `seq` is visible: the sequence number that is.

        Raises TimeoutExpired after `timeout` seconds, LiveGNNError if the loop ended before, or if the loop
        itself asks, in a subscriber, for what it has not come to, InputError for what is no sequence number.
        """
        seq = whole(seq, "seq", 0, _LARGEST_SEQ)
        if timeout is not None:  # what is longer the system cannot wait
            timeout = min(not_negative(timeout, "timeout, in seconds,"), threading.TIMEOUT_MAX)
        if self._seq < seq and threading.current_thread() is self._thread:
            raise LiveGNNError(
                f"a subscriber must not wait for event {seq}: the loop applies it when the subscriber returns"
            )
        with self._visible:
            done = self._visible.wait_for(lambda: self._seq >= seq or self._ended, timeout)
            if self._seq >= seq:
                return self._seq
        if not done:
            raise TimeoutExpired(f"event {seq} must be visible within {timeout} seconds, got to {self._seq}")
        raise LiveGNNError(
            f"event {seq} will not be visible: the runtime ended at {self._seq} ({self._failure})"
        )

    def rejection(self, seq: int) -> Rejection | None:
        """Why entry `seq` was not applied, None if it was (or was not reached yet)."""
        seq = whole(seq, "seq", 0, _LARGEST_SEQ)
        rejections = self.log.rejections(seq - 1, up_to=seq)
        return rejections[0] if rejections else None

    def retry(self, seq: int, *, any_time: bool = False) -> int:
        """Appends the events of entry `seq`, which was refused, again; returns the number of the new entry.

        Asked again, it returns the same. any_time: lets the times of its events through, however far they are
        ahead, until the process ends. Raises InputError if the entry was not refused.
        """
        any_time = switch(any_time, "any_time")
        entry = None if self.rejection(seq) is None else self.log.entry(seq)
        if entry is None:
            raise InputError(f"expected the number of an entry that was refused, got {seq}: see rejections")
        if any_time:
            self._ahead.allow(entry.events)
        return self.append(entry.events, key=f"{RETRY_KEY}{seq}")

    @property
    def held_expiry(self) -> HeldExpiry | None:
        """An expiry of so many edges that it waits for `confirm_expiry`; None if there is none."""
        return self._expiry.held

    def confirm_expiry(self) -> HeldExpiry:
        """Lets the expiry that waits happen, and returns it. Raises InputError if none waits."""
        held = self._expiry.confirm()
        self.log.wake()
        return held

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
        writes = self.log.writes(self._seq, max_events=self._max_batch_events)
        if writes:
            self._apply(writes)
        if self._expiry.until() == 0:
            self._expire()
        for chore in self._chores:
            if chore.until() == 0:
                chore.run()
        if self._checkpoints.until(self._seq) == 0:
            # Who calls this without `start` finds the checkpoint written.
            self._checkpoints.write(self._seq, beside=threading.current_thread() is self._thread)
        return bool(writes)

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
        finally:
            self._checkpoints.end()  # what this thread has forked ends with it

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
        commit, applied = ExitStack(), list[GraphDelta]()

        def record(delta: GraphDelta) -> None:
            self.log.record_batch(batch, rejection)
            commit.enter_context(self._becoming_visible)

        def let_go(change: GraphDelta) -> None:
            # First of all: whatever comes now, this batch will not be applied again.
            self._seq = batch.seq
            applied.append(change)
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

        try:
            with commit, self.graph.writer:
                # Its numbers are those of the log, whatever somebody has applied before.
                self.graph.seq = self._seq
                self._ahead.check(events, self.graph.latest_time)
                self._claim.give_turn()
                self.graph.apply(events, seq=batch.seq, on_staged=record, on_committed=let_go)
        except InputError:
            raise
        except Exception as error:
            self._rebuilding.blame(error)
            if not applied:
                self._commit(ends, events, rejection)  # without the views that failed
                return
        self._rebuilding.settle()
        self._tell(applied[0], self._clock() - started)

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
                while writes := self.log.writes(self._seq, max_events=self._max_batch_events):
                    self._apply(writes)
                for part in self._expiry.removals(now, self._max_batch_events):
                    self.log.append(part)
                    count += len(part)
            finally:
                self._expiring_thread = None
        if count:
            self.statistics.expired_edges.record(count)


def _check_schema(graph: Graph, chunk: Chunk) -> None:
    """Raises InputError for a type that the graph does not have, ids of the other kind, or columns."""
    if isinstance(chunk.type, str):
        graph.node_type_index(chunk.type)
    else:
        graph.edge_type_index(chunk.type)
    check_columns(graph.schema, chunk)
    expected = "text" if graph.schema.text_ids else "integers"
    for ids in (chunk.ids, chunk.dst):
        if ids is not None and (ids.dtype.kind == "U") != graph.schema.text_ids:
            raise InputError(f"ids must be {expected} in this graph, got {ids[0].item()!r}")
