"""The loop: it takes entries from the log, applies them to the graph and its views, and writes checkpoints.

    log ─► entries, whole, merged: `Pace` says how many ─► graph.apply ─┬─ staged: boundaries into the log
                                                                        └─ committed: waiters, subscribers

Invariants: `seq` only grows and is the end of a recorded batch; a batch is recorded before it is visible; a
checkpoint begins between batches; expired edges are removed by events in the log, like any others, which do
not contradict events that were appended before them. Threads: one runs the loop and is the only one that
applies events; `append`, `read` and `wait` may be called from any.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import TypeVar

import livegnn._core as _core
from livegnn.arguments import check_function
from livegnn.errors import InputError, LiveGNNError, LogError, may_pass
from livegnn.events import Events
from livegnn.expiry import Expiry, ExpiryPolicy, HeldExpiry
from livegnn.graph import Claim, Graph, GraphDelta, Transaction, View
from livegnn.interrupts import Background, Flag
from livegnn.log import Batch, Log, Rejection, Write
from livegnn.readiness import Readiness
from livegnn.runtime.admission import Admission
from livegnn.runtime.between_batches import BetweenBatches, SteadyClock, Task
from livegnn.runtime.checkpoints import CheckpointPolicy, Checkpoints
from livegnn.runtime.future_events import AheadPolicy
from livegnn.runtime.growing import read_batch
from livegnn.runtime.history import check_reaches, schema_properties
from livegnn.runtime.intake import Intake
from livegnn.runtime.pace import Pace
from livegnn.runtime.recovery import ViewFactory
from livegnn.runtime.refusals import commit_apart
from livegnn.runtime.replay import replay
from livegnn.runtime.turn import Turn
from livegnn.runtime.views import Rebuilding, Views, WhenViewFails, check_build

_logger = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_LONGEST_ROUND = 60.0  # seconds of a round, after which the loop does not count as running
_RETRY_SECONDS = 0.5  # on a full disk, or while another program holds the log's lock


class Loop(Intake):
    """The loop that keeps `graph` and `views` of it at the end of `log`.

    Creating one replays the batches that the log recorded after `graph.seq`, exactly as they were. Raises
    LogError if the log does not continue from there, InputError if a view is not one of this graph, if two
    have one name, or if settings are not valid.
    """

    _paused: BaseException | None = None
    _round_began: float | None = None  # None while the loop waits for something to do
    _stopped = False  # whether the end has been logged
    _turn: Turn | None = None  # the batch that is being applied, or was interrupted

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
        ahead: AheadPolicy | None,
        when_view_fails: WhenViewFails,
        factories: Mapping[str, ViewFactory],
        build: Mapping[str, ViewFactory],
        clock: Callable[[], float],
    ) -> None:
        for given, policy, name in (
            (checkpoints, CheckpointPolicy, "checkpoints"),
            (expiry, ExpiryPolicy, "expiry"),
            (ahead, AheadPolicy, "ahead"),
        ):
            if not isinstance(given, (policy, NoneType)):
                raise InputError(f"{name} must be None or of the type {policy.__name__}, got {given!r}")
        check_function(clock, "clock", "nothing, which says seconds")
        if not all(callable(getattr(log, name, None)) for name in ("append_all", "writes", "bind")):
            raise InputError(f"log must be a Log, such as a SqliteLog, got {log!r}")
        clock = clock if clock is time.monotonic else SteadyClock(clock)
        super().__init__(log, graph, admission, ahead, clock)
        self.views = Views(graph, views)
        self.pace = pace
        self._becoming_visible = threading.RLock()  # held while a batch is committed, and by readers
        self._stopping, self._spacing, self._began = False, 0.0, 0.0
        check_build(build, self.views)
        self._open_views: Mapping[str, View] = self.views
        self._retry = Flag()  # set by `stop`, to end a wait for space
        check_reaches(log, graph)
        log.bind(schema_properties(graph.schema))
        since = graph.seq
        replay(log, graph)
        self.views.build(graph, build)
        self._seq = graph.seq
        self._claim = Claim(self, self._becoming_visible)
        _core.holding(graph.writer, setattr, graph.core, "claim", self._claim)
        self._checkpoints = Checkpoints(
            checkpoints,
            log,
            graph,
            self.views,
            self.statistics,
            self._clock,
            since=since,
            readers=self._becoming_visible,
            needed_after=self._needed_after,
        )
        self._expiry = Expiry(graph, expiry, clock)
        self._rebuilding = Rebuilding(
            graph, self.views, when_view_fails, factories, self._view_changed, self._drop
        )
        self._between_batches = BetweenBatches(log.wake)
        self._tasks: list[Task] = [self._rebuilding, self._between_batches]

    # -- methods that a subclass adds

    def _count(self, change: GraphDelta) -> None:
        """Notes the effect of a batch, when it is visible and no subscriber has been called."""

    def _tell(self, change: GraphDelta, seconds: float) -> None:
        """Notifies subscribers of a batch, when it is visible and the threads that waited for it continue."""

    def _tell_end(self) -> None:
        """Notifies subscribers that there are no more batches."""

    def _view_changed(self, name: str, view: View | None) -> None:
        """Notes that a view has failed (None), or was built again."""

    def _needed_after(self) -> int | None:
        """Returns the event after which others than checkpoints need the log; None if none does."""
        return None

    def _drop(self, name: str, reason: str) -> bool:
        """Returns whether the loop continues without a view that has failed, for good."""
        return False

    def _find_view_reasons(self) -> dict[str, str]:
        """Returns the reasons why views do not answer, by the failed part."""
        return {}

    @property
    def seq(self) -> int:
        """The last event that answers reflect."""
        return self._seq

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped the loop, None if there is none."""
        return self._failure

    @property
    def paused(self) -> BaseException | None:
        """The error for which the loop waits, of a full disk or the log's lock; None if it does not wait."""
        return self._paused

    @property
    def running(self) -> bool:
        """Whether the loop runs."""
        return self._thread is not None and self._thread.is_alive()

    def readiness(self) -> Readiness:
        """Returns whether events are accepted and become visible, and predictions can be read, and why not.

        It may write a probe to the log, and takes a second at most.
        """
        reasons = self._find_loop_reasons()
        if self.running and (reason := self._log_watch.find_reason()) is not None:
            reasons["log"] = reason
        if (lost := self.log.directories.hold_again()) is not None:
            reasons["directories"] = lost
        if (lost := self._checkpoints.find_loss()) is not None:
            reasons["checkpoints"] = lost
            self.log.wake()  # one is due
        try:
            waiting = self.waiting
        except LogError as error:
            reasons.setdefault("log", str(error))
        else:
            if not self.admission.is_open(waiting):
                reasons["backlog"] = self.admission.explain(waiting)
        for name, source in dict(self.sources).items():
            if source.failure is not None:
                reasons[f"source {name}"] = str(source.failure)
        return Readiness(reasons | self._find_view_reasons())

    def _find_loop_reasons(self) -> dict[str, str]:
        if (reason := self._failure or self._paused) is not None:
            return {"loop": str(reason)}
        if not self.running:
            return {"loop": "it does not run"}
        if (began := self._round_began) is not None and self._clock() - began > _LONGEST_ROUND:
            return {"loop": f"it has been at one batch for {self._clock() - began:.0f} s"}
        return {}

    def start(self) -> None:
        """Runs the loop in a thread of its own until `stop`."""
        if self._thread is not None:
            raise LiveGNNError("a runtime can be started once: make another one")
        self._thread = Background(self._run, "livegnn-runtime")
        self._thread.start()

    def stop(self) -> None:
        """Ends the loop after its batch, writes a checkpoint, closes views; a second call does nothing."""
        if self._thread is not None and not self._stopping:
            _logger.info("stops after event %d", self._seq, extra={"event": self._seq})
        self._stopping = True
        self._retry.set()
        self.log.wake()
        if self._thread is not None:
            self._thread.join()
        if self._failure is None:
            self._settle_turn()
        self._end()
        if self._failure is None:
            self._checkpoints.write(self._seq)
        views, self._open_views = self._open_views, {}
        for view in reversed(list(views.values())):  # a later view may read an earlier one to the end
            view.close()
        _core.holding(self.graph.writer, self._give_up_claim)
        if self._thread is not None and not self._stopped:
            self._stopped = True
            _logger.info("stopped at event %d", self._seq, extra={"event": self._seq})

    def _give_up_claim(self) -> None:
        if self.graph.core.claim is self._claim:
            self.graph.core.claim = None

    @property
    def side_failures(self) -> Mapping[str, str]:
        """The last errors of parts that the loop continues without: "checkpoint", and views by name."""
        views = {name: view.failure for name, view in dict(self.views).items()}
        failures = {"checkpoint": self._checkpoints.failure, **views}
        return {name: reason for name, reason in failures.items() if reason is not None}

    @property
    def checkpoint_directory(self) -> Path | None:
        """The directory of the checkpoints; None if none are written."""
        return self._checkpoints.directory

    def checkpoint_age(self) -> float | None:
        """The seconds since the newest checkpoint was written; None if there is none."""
        return self._checkpoints.newest_age()

    @property
    def held_expiry(self) -> HeldExpiry | None:
        """An expiry of too many edges, which waits for `confirm_expiry`; None if there is none."""
        return self._expiry.held

    def confirm_expiry(self) -> HeldExpiry:
        """Lets the waiting expiry happen, and returns it. Raises InputError if none waits."""
        held = self._expiry.confirm()
        self.log.wake()
        return held

    def read(self, question: Callable[[], _Answer]) -> tuple[int, _Answer]:
        """Returns the answer to a question about graph or views, and the sequence number that it reflects.

        A question waits only while a batch becomes visible, and delays that batch: it must be quick.
        """
        check_function(question, "question", "nothing")
        _core.refuse_in_function()
        return _core.holding(self._becoming_visible, lambda: (self.graph.seq, question()))

    def read_at_once(self, question: Callable[[], _Answer]) -> tuple[int, _Answer] | None:
        """Returns the result of `read`; None if that would have to wait. For event loops."""
        if not callable(question):
            check_function(question, "question", "nothing")
        found: list[tuple[int, _Answer]] = []
        _core.if_free(self._becoming_visible, lambda: found.append((self.graph.core.seq, question())))
        return found[0] if found else None

    def step(self) -> bool:
        """Does one round of the loop without waiting; returns whether there were entries."""
        self._settle_turn()
        worked = self._apply_waiting()
        if self._expiry.until() == 0:
            self._expire()
        for task in self._tasks:
            if task.until() == 0:
                task.run()
        if self._checkpoints.until(self._seq) == 0:
            # A caller without `start` finds the checkpoint written.
            self._checkpoints.write(self._seq, beside=threading.current_thread() is self._thread)
        return worked

    def _apply_waiting(self) -> bool:
        """Applies a batch of waiting entries; returns whether there were any."""
        started, after = self._clock(), self._seq
        writes = read_batch(self.log, after, self.pace.choose(self.waiting, self.oldest_age))
        if writes:
            self._apply(writes)
            if self.admission.limited:
                self.pace.learn(self._seq - after, self._clock() - started)
                self.admission.learn()
        return bool(writes)

    def oldest_age(self) -> float:
        """Returns the seconds that the oldest entry has waited, 0 if unknown, as after a restart."""
        oldest = _core.holding(self._visible, lambda: next(iter(self._arrivals.values()), None))
        return 0.0 if oldest is None else self._clock() - oldest

    def _keep_apart(self, seconds: float) -> None:
        """Lets batches begin at least `seconds` apart from now on, so that they are larger, and cost less."""
        self._spacing = seconds

    def _run(self) -> None:
        self._between_batches.begin()
        try:
            while not self._stopping:
                if self._spacing and (early := self._began + self._spacing - self._clock()) > 0:
                    self._retry.wait(early)
                self._began = self._round_began = self._clock()
                if not self._step_or_pause():
                    self._round_began = None
                    waits = [task.until() for task in self._tasks]
                    waits += [self._expiry.until(), self._checkpoints.until(self._seq)]
                    self.log.wait(self._seq, min((one for one in waits if one is not None), default=None))
        except BaseException as error:
            _logger.exception("the runtime ended at event %d", self._seq)
            self._failure = error
            self._end()
        finally:
            self._checkpoints.end()  # a child that this thread has forked ends with it

    def _step_or_pause(self) -> bool:
        """Calls `step`; returns its result. After an error that may pass it waits; nothing is skipped."""
        try:
            worked = self.step()
        except (LogError, OSError) as error:
            if not may_pass(error):
                raise
            if self._paused is None:
                _logger.error("paused at event %d until this has passed: %s", self._seq, error)
            self._paused = error
            self._retry.wait(_RETRY_SECONDS)
            return True
        if self._paused is not None:
            _logger.warning("that has passed: going on at event %d", self._seq)
            self._paused = None
        return worked

    def _end(self) -> None:
        """Wakes threads that wait for events that will never become visible."""
        self._ended = True
        _core.holding(self._visible, self._visible.notify_all)
        self._between_batches.end()
        self._tell_end()

    def _apply(self, writes: Sequence[Write]) -> None:
        """Applies entries as one batch or, if that is refused, without the entries that are to blame."""
        ends = [end for write in writes for end in write.ends.tolist()]
        if len(ends) > 1:
            try:
                self._commit(ends, Events.concatenate(write.events for write in writes))
            except InputError:
                pass
            else:
                return
        commit_apart(writes, self._seq, self.graph, self._ahead, self._commit)

    def _commit(self, ends: list[int], events: Events, rejections: Sequence[Rejection] = ()) -> None:
        """Applies one batch, of the entries that end at `ends`, and publishes it.

        events: of the entries that are not rejected. Raises InputError with nothing changed or recorded.
        """
        batch = Batch(self._seq, ends[-1])
        self._turn = Turn(batch, ends, events, rejections, self._clock())
        _core.settled(self._take_turn, self._settle_turn)

    def _take_turn(self) -> None:
        turn = self._turn
        assert turn is not None
        while not turn.visible:
            try:
                _core.holding(self.graph.writer, self._apply_turn, turn)
            except InputError:
                raise
            except Exception as error:
                self._rebuilding.blame(error)  # raises, or continues without the failed views
        self._finish_turn(turn)

    def _apply_turn(self, turn: Turn) -> None:
        def record(change: GraphDelta) -> None:
            turn.records = True
            try:
                self.log.record_batch(turn.batch, *turn.rejections)
            except LogError as error:
                # A full disk may have recorded it. After a refusal, boundaries in the log are not ours.
                turn.records = may_pass(error)
                raise
            turn.recorded = True

        if not turn.recorded:
            self._ahead.check(turn.events, self.graph.latest_time)
        turn.transaction = Transaction(
            self.graph.core,
            self.graph.views,
            turn.events,
            seq=turn.batch.seq,
            after=turn.batch.after,  # the numbers of the log, even if other events were applied before
            on_staged=None if turn.recorded else record,
            tell=lambda change: map(self._show, iter((turn,)), iter((change,))),
            trusted=turn.recorded,
            claim=self._claim,
            rejects=bool(turn.rejections) and not len(turn.events),
            sheltered=self._is_sheltered(),
        )
        turn.transaction.run()

    def _is_sheltered(self) -> bool:
        """Returns whether this is the loop's own thread, which receives no signal: a `SystemExit` there is
        raised by a view or a subscriber.
        """
        return threading.current_thread() is self._thread

    def _settle_turn(self) -> None:
        """Finishes the batch that an exception from outside has interrupted: a recorded batch is applied."""
        turn = self._turn
        if turn is None:
            return
        if turn.visible:
            self._finish_turn(turn)
        elif turn.recorded or (turn.records and turn.batch in self.log.batches(turn.batch.after)[:1]):
            turn.recorded = True
            self._take_turn()
        else:
            self._forget(turn)

    def _finish_turn(self, turn: Turn) -> None:
        assert turn.transaction is not None
        assert turn.transaction.delta is not None
        change = turn.transaction.delta
        self._show(turn, change)
        self._rebuilding.settle()
        self._tell(change, self._clock() - turn.began)
        self._forget(turn)

    def _forget(self, turn: Turn) -> None:
        self._turn = None
        turn.transaction = None  # which holds the turn: else the batch stays until Python looks for cycles

    def _show(self, turn: Turn, change: GraphDelta) -> None:
        """Counts a visible batch, and wakes threads that wait for it: each once."""
        self._seq = turn.batch.seq
        if not turn.counted:
            turn.counted = True
            self._record(turn, self._clock() - turn.began)
            if len(turn.rejections) < len(turn.ends):
                self._count(change)
        if not turn.woken:
            _core.holding(self._visible, self._wake, turn.ends)
            turn.woken = True

    def _wake(self, ends: list[int]) -> None:
        now = self._clock()
        for end in ends:
            arrival = self._arrivals.pop(end, None)
            if arrival is not None:
                self.statistics.latency_seconds.record(now - arrival)
        self._visible.notify_all()

    def _record(self, turn: Turn, seconds: float) -> None:
        begin, rejected = turn.batch.after, {one.seq for one in turn.rejections}
        count = turn.batch.seq - begin
        for end in turn.ends if rejected else ():
            if end in rejected:
                self.statistics.rejected_entries.record(end - begin)
                count -= end - begin
            begin = end
        if count:
            self.statistics.batch_seconds.record(seconds)
            self.statistics.batch_events.record(count)

    def _expire(self) -> None:
        """Appends the removal of expired edges to the log, from which it is applied like any other event."""
        now = self._expiry.begin()
        if now is None:
            return
        self.log.group.alone(partial(self._append_expired, now))

    def _append_expired(self, now: float) -> None:
        # Waiting events may renew an edge, or remove its node: apply them first, with nothing in between.
        while self._apply_waiting():
            pass
        count = 0
        for part in self._expiry.removals(now, self.pace.size):
            self.log.append(part)
            count += len(part)
        if count:
            self.statistics.expired_edges.record(count)
