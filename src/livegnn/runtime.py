"""The one loop: take entries from the log, apply them as a batch, publish what changed, write checkpoints.

    log ─► entries, whole, merged up to max_batch_events ─► graph.apply ─┬─ staged: boundaries into the log
                                                                         └─ committed: waiters, subscribers

Invariants: `seq` only grows and is the end of a recorded batch; a batch is recorded before it is visible; a
checkpoint is written between batches; what expires is removed by events in the log, like any others, which
events that were appended before them do not contradict. Threads: one runs the loop and is the only one that
applies events; `append`, `predict`, `wait`, `what_if` and `subscribe` may be called from any.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import NamedTuple, TypeVar

import numpy as np

from livegnn import _core, checkpoint
from livegnn.arguments import above_zero, as_path, function, not_negative, whole
from livegnn.errors import FileFormatError, InputError, LiveGNNError, LogError, ModelError, TimeoutExpired
from livegnn.events import Chunk, Events
from livegnn.events.chunk import IdsLike
from livegnn.expiry import Expiry, ExpiryPolicy
from livegnn.graph import Graph, GraphDelta, check_columns, without_strays
from livegnn.histogram import COUNTS, SECONDS, Histogram
from livegnn.inference import Engine, NonFinite, Scrub, ScrubPolicy, Update
from livegnn.log import Batch, Entry, Log, Rejection
from livegnn.model import Model
from livegnn.types import FloatArray, Ids, State
from livegnn.wording import kind_of

_logger = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_LARGEST_SEQ = 2**63 - 1


class Change(NamedTuple):
    """What a batch changed: the nodes with another prediction at `seq`: `ids[n]`, `predictions[n, out]`."""

    seq: int
    ids: Ids
    predictions: FloatArray
    affected: int
    seconds: float


class Supposition(NamedTuple):
    """Predictions `values[n, out]` as if events had happened after `seq`, and whose would be another."""

    seq: int
    values: FloatArray
    changed: Ids


class Prediction(NamedTuple):
    """Rows of the model's output, `values[n, out]`, as they are after event `seq`."""

    seq: int
    values: FloatArray


@dataclass(frozen=True)
class CheckpointPolicy:
    """Where checkpoints go, when one is due (None: never for that reason), and how many are kept.

    One more is written on a clean shutdown. Checkpoints are only due when there were events since the last.
    """

    directory: Path
    every_events: int | None = 100_000
    every_seconds: float | None = None
    keep: int = 2

    def __post_init__(self) -> None:
        if self.every_events is not None:
            whole(self.every_events, "every_events", 1)
        if self.every_seconds is not None:
            above_zero(self.every_seconds, "every_seconds, None for never,")
        if not isinstance(self.directory, Path):
            raise InputError(f"directory must be a pathlib.Path, got {self.directory!r}")
        whole(self.keep, "keep, a number of checkpoints,", 1)


@dataclass(frozen=True)
class Statistics:
    """What the runtime did so far, for metrics."""

    latency_seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))  # from append to visible
    batch_seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    batch_events: Histogram = field(default_factory=lambda: Histogram(COUNTS))
    affected_nodes: Histogram = field(default_factory=lambda: Histogram(COUNTS))
    changed_nodes: Histogram = field(default_factory=lambda: Histogram(COUNTS))
    checkpoint_seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    failed_checkpoint_seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    rejected_entries: Histogram = field(default_factory=lambda: Histogram(COUNTS))  # counts their events
    expired_edges: Histogram = field(
        default_factory=lambda: Histogram(COUNTS)
    )  # each time that there were any


def list_checkpoints(directory: Path) -> list[Path]:
    """The checkpoints in `directory`, the newest first."""
    return sorted(directory.glob("checkpoint-*.lgck"), reverse=True)


def restore(
    model: Model,
    initial: Callable[[], Graph],
    *,
    directory: Path | None = None,
    threads: int | None = None,
    features_dir: Path | None = None,
    history: int = 0,
    state_dir: Path | None = None,
    non_finite: NonFinite = "refuse",
    log: Log | None = None,
) -> tuple[Graph, Engine]:
    """Graph and engine of the newest checkpoint in `directory` that is whole, else of `initial`.

    A checkpoint that cannot be used is passed over with a warning; the log makes up for it. A `Runtime` on
    what is returned replays the rest of the log. features_dir: as in `Graph`, for a checkpoint's graph.
    history, state_dir, non_finite: as in `Engine`. log: the one that will be replayed; raises LogError if it
    is not the one that led to the checkpoint.
    """

    def make(graph: Graph, state: State | None) -> Engine:
        return Engine(
            graph,
            model,
            threads=threads,
            state=state,
            history=history,
            state_dir=state_dir,
            non_finite=non_finite,
        )

    for path in list_checkpoints(as_path(directory, "directory")) if directory is not None else []:
        try:
            saved = checkpoint.read(path)
            graph = Graph.from_state(saved.states["graph"], features_dir=features_dir)
            graph_and_engine = graph, make(graph, saved.states["engine"])
        except (FileFormatError, ModelError, KeyError) as error:
            _logger.warning("passing over the checkpoint %s: %s", path, error)
        else:
            if log is not None:
                _check_history(log, path, saved)
            return graph_and_engine
    graph = initial()
    return graph, make(graph, None)


def _check_history(log: Log, path: Path, saved: checkpoint.Checkpoint) -> None:
    """Raises LogError if `log` has led to something else than a checkpoint."""
    known = saved.states.get("log")  # older checkpoints do not say it
    if known is None or log.last_seq() < saved.seq:  # a runtime refuses what is too short
        return
    if (digest := log.digest(saved.seq)) != known.meta.get("crc32"):
        raise LogError(
            f"the log must hold what led to the checkpoint {path}, entries up to event {saved.seq} with the "
            f"CRC-32 {known.meta.get('crc32')}, got {digest}: it is not the log of this graph. Put back the "
            "log that the checkpoints belong to, or move the checkpoints away"
        )


class Runtime:
    """Keeps `graph` and `engine` at the end of `log`.

    Making one replays the batches that the log recorded after `graph.seq`, exactly as they were. Raises
    LogError if the log does not lead on from there, InputError if the engine is not one on this graph, or if
    settings make no sense.
    """

    def __init__(
        self,
        log: Log,
        graph: Graph,
        engine: Engine,
        *,
        max_batch_events: int = 4096,
        checkpoints: CheckpointPolicy | None = None,
        expiry: ExpiryPolicy | None = ExpiryPolicy(),  # noqa: B008
        scrub: ScrubPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(graph, Graph) or not isinstance(engine, Engine):
            got = f"{kind_of(graph)} and {kind_of(engine)}"
            raise InputError(f"expected a Graph and an Engine, got {got}: write Runtime(log, graph, engine)")
        if engine.graph is not graph:
            raise InputError(
                "expected an engine on the runtime's graph, got one on another: write "
                "Runtime(log, engine.graph, engine)"
            )
        for given, policy, name in (
            (checkpoints, CheckpointPolicy, "checkpoints"),
            (expiry, ExpiryPolicy, "expiry"),
            (scrub, ScrubPolicy, "scrub"),
        ):
            if not isinstance(given, (policy, NoneType)):
                raise InputError(f"{name} must be None or of the type {policy.__name__}, got {given!r}")
        function(clock, "clock", "nothing, which says seconds")
        max_batch_events = whole(max_batch_events, "max_batch_events", 1)
        self.log, self.graph, self.engine = log, graph, engine
        self.statistics = Statistics()
        self._max_batch_events = max_batch_events
        self._checkpoints = checkpoints
        self._clock = clock
        self._appending = threading.RLock()  # taken first of all; by the loop, when it appends what expires
        self._becoming_visible = threading.RLock()  # held while a batch is committed, and by those who read
        self._no_predictions = np.empty((0, engine.model.width(engine.model.output)), np.float32)
        self._visible = threading.Condition()
        self._arrivals: dict[int, float] = {}
        self._subscribers: list[Callable[[Change], None]] = []
        self._at_end: list[Callable[[], None]] = []
        self._subscriber_failures = 0
        self._thread: threading.Thread | None = None
        self._stopping = self._ended = False
        self._failure: BaseException | None = None
        if log.last_seq() < graph.seq:
            raise LogError(
                f"the log must reach event {graph.seq}, where the graph is, got one that ends at "
                f"{log.last_seq()}: it is not the log of this graph"
            )
        self._replay()
        self._seq = self._checkpoint_seq = graph.seq
        self._checkpoint_time = clock()
        self._expiry = Expiry(graph, expiry, clock)
        self.scrub = Scrub(engine, scrub, clock)

    @property
    def seq(self) -> int:
        """The last event that answers reflect."""
        return self._seq

    @property
    def failure(self) -> BaseException | None:
        """What stopped the loop, None while all is well."""
        return self._failure

    @property
    def running(self) -> bool:
        """Whether the loop runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def subscriber_failures(self) -> int:
        """How often a subscriber raised, those of the engine among them."""
        return self._subscriber_failures + self.engine.subscriber_failures

    def start(self) -> None:
        """Runs the loop in a thread of its own until `stop`."""
        if self._thread is not None:
            raise LiveGNNError("a runtime can be started once: make another one")
        self._thread = threading.Thread(target=self._run, name="livegnn-runtime", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the loop after the batch that it is at, and writes a checkpoint; again does nothing."""
        self._stopping = True
        self.log.wake()
        if self._thread is not None:
            self._thread.join()
        self._end()
        if self._failure is None:
            self._write_checkpoint()

    def check(self, events: Events) -> None:
        """Raises InputError for events that the graph could never take, whatever comes before them.

        Whether the nodes exist is known only when the events' turn comes: see `rejection`.
        """
        named = self.graph.with_types(events)
        named.check()
        for chunk in named.chunks:
            _check_schema(self.graph, chunk)

    def append(self, events: Events) -> int:
        """Checks and logs events; returns the sequence number of the last one, for `wait`.

        Raises InputError, with nothing logged, if `check` does.
        """
        self.check(events)
        events = self.graph.with_types(events)
        started = self._clock()
        with self._appending:
            seq = self.log.append(events)
        with self._visible:
            if seq > self._seq:
                self._arrivals[seq] = started
            elif len(events):
                self.statistics.latency_seconds.record(self._clock() - started)
        return seq

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

    def predict(self, ids: IdsLike, *, output: str | None = None) -> Prediction:
        """The model's output for nodes, with the sequence number that it reflects, `values[n, out]`.

        output: which one, as of `Engine.predict`. Raises UnknownNodeError, and InputError if there is no such
        output.
        """
        return Prediction(*self.read(lambda: self.engine.predict(ids, output=output)))

    def read(self, question: Callable[[], _Answer]) -> tuple[int, _Answer]:
        """The answer to a question about graph or engine, with the sequence number that it reflects.

        It waits for a batch only while that becomes visible, and a batch for it: a question must be quick.
        """
        _core.refuse_in_function()
        with self._becoming_visible:
            return self.engine.seq, question()

    def predict_at_once(self, ids: IdsLike, *, output: str | None = None) -> Prediction | None:
        """What `predict` returns, if that is there to be read: None where it would have to wait or to
        compute, or if there is no such node.
        """
        if not self._becoming_visible.acquire(blocking=False):
            return None
        try:
            values = self.engine.predict_at_once(ids, output=output)
            return None if values is None else Prediction(self.engine.seq, values)
        finally:
            self._becoming_visible.release()

    def what_if(self, events: Events, ids: IdsLike, *, output: str | None = None) -> Supposition:
        """What `predict(ids)` would say if `events` happened now; nothing is kept. Raises InputError."""
        self.check(events)
        with self.graph.writer:
            answer = self.engine.what_if(events)
            return Supposition(self.engine.seq, answer.predict(ids, output=output), answer.changed)

    def subscribe(
        self, callback: Callable[[Change], None], *, on_end: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Calls `callback` after every batch, in order, from the loop's thread; returns what ends that.

        A callback must return quickly; what it raises is logged, counted (`subscriber_failures`) and
        otherwise ignored. It must not wait for events that come later. on_end: called once, when the loop has
        failed or the runtime is stopped, and no batch will come any more.

        Raises InputError for what cannot be called.
        """
        function(callback, "callback", "a Change")
        if on_end is not None:
            function(on_end, "on_end", "nothing")
        with self._visible:
            self._subscribers.append(callback)
            if on_end is not None:
                self._at_end.append(on_end)

        def unsubscribe() -> None:
            with self._visible:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)
                if on_end in self._at_end:
                    self._at_end.remove(on_end)

        return unsubscribe

    def step(self) -> bool:
        """Does one round of the loop without waiting; returns whether there were entries."""
        entries = self.log.entries(self._seq, max_events=self._max_batch_events)
        if entries:
            self._apply(list(entries))
        if self._expiry.until() == 0:
            self._expire()
        if self.scrub.until() == 0:
            self.scrub.run()
        if self._until_checkpoint() == 0:
            self._write_checkpoint()
        return bool(entries)

    def _run(self) -> None:
        try:
            while not self._stopping:
                if not self.step():
                    due = [
                        until
                        for until in (self._expiry.until(), self.scrub.until(), self._until_checkpoint())
                        if until is not None
                    ]
                    self.log.wait(self._seq, min(due, default=None))
        except BaseException as error:
            _logger.exception("the runtime ended at event %d", self._seq)
            self._failure = error
            self._end()

    def _end(self) -> None:
        """Lets those go who wait for what will not come."""
        with self._visible:
            self._ended = True
            self._visible.notify_all()
            callbacks, self._at_end = self._at_end, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                self._subscriber_failures += 1
                _logger.exception("a subscriber to the end of the loop failed")

    def _replay(self) -> None:
        """Applies the recorded batches after the graph's position, with their boundaries and rejections."""
        for batch in self.log.batches(self.graph.seq):
            rejected = {rejection.seq for rejection in self.log.rejections(batch.after, up_to=batch.seq)}
            entries = self.log.entries(batch.after, up_to=batch.seq)
            if not entries or entries[-1].seq != batch.seq:
                raise LogError(
                    f"the log must hold the entries of its batch {batch}, got {len(entries)} of them"
                )
            events = Events.concatenate(entry.events for entry in entries if entry.seq not in rejected)
            try:
                with self.engine.trusting():
                    self.graph.apply(without_strays(self.graph.schema, events), seq=batch.seq)
            except InputError as error:
                raise LogError(
                    f"batch {batch} was applied before, so it must apply again, but: {error}. "
                    "This log is not of this graph, or the graph it began with has changed"
                ) from error

    def _apply(self, entries: list[Entry]) -> None:
        """Applies entries as one batch or, if that is refused, one by one, to find those to blame."""
        if len(entries) > 1:
            try:
                self._commit(entries, Events.concatenate(entry.events for entry in entries))
            except InputError:
                pass
            else:
                return
        for entry in entries:
            try:
                self._commit([entry], entry.events)
            except InputError as error:
                self._commit([entry], Events(), Rejection(entry.seq, type(error).__name__, str(error)))

    def _commit(self, entries: list[Entry], events: Events, rejection: Rejection | None = None) -> None:
        """Applies one batch and publishes it. Raises InputError with nothing changed or recorded."""
        batch = Batch(self._seq, entries[-1].seq)
        started = self._clock()
        commit = ExitStack()

        def record(delta: GraphDelta) -> None:
            self.log.record_batch(batch, rejection)
            commit.enter_context(self._becoming_visible)

        def let_go(update: Update) -> None:
            # First of all: whatever comes now, this batch will not be applied again.
            self._seq = batch.seq
            commit.close()
            self._count(entries, update, self._clock() - started, rejection)
            with self._visible:
                now = self._clock()
                for entry in entries:
                    arrival = self._arrivals.pop(entry.seq, None)
                    if arrival is not None:
                        self.statistics.latency_seconds.record(now - arrival)
                self._visible.notify_all()

        with commit, self.graph.writer:
            # Its numbers are those of the log, whatever somebody has applied beside it.
            self.graph.seq = self._seq
            update = self.engine.apply(events, seq=batch.seq, on_staged=record, on_committed=let_go)
        self._publish(self._describe(update, self._clock() - started))

    def _publish(self, change: Change) -> None:
        with self._visible:
            subscribers = list(self._subscribers)
        for callback in subscribers:
            try:
                callback(change)
            except Exception:
                self._subscriber_failures += 1
                _logger.exception("a subscriber to the changes of batch %d failed", change.seq)

    def _describe(self, update: Update, seconds: float) -> Change:
        ids = update.changed
        predictions = self._no_predictions
        if self._subscribers and len(ids):
            try:
                predictions = self.engine.predict(ids)
            except Exception:
                # Of a lazy engine, which computes them now, by a function of the model that fails.
                _logger.exception("the predictions that batch %d changed cannot be told", update.seq)
                predictions = np.full((len(ids), self._no_predictions.shape[1]), np.nan, np.float32)
        return Change(update.seq, ids, predictions, update.affected, seconds)

    def _count(
        self, entries: list[Entry], update: Update, seconds: float, rejection: Rejection | None
    ) -> None:
        count = sum(len(entry.events) for entry in entries)
        if rejection is not None:
            self.statistics.rejected_entries.record(count)
            return
        self.statistics.batch_seconds.record(seconds)
        self.statistics.batch_events.record(count)
        self.statistics.affected_nodes.record(update.affected)
        self.statistics.changed_nodes.record(update.num_changed)

    def _expire(self) -> None:
        """Appends the removal of what has expired to the log, from where it comes back as any other event."""
        now = self._expiry.begin()
        if now is None:
            return
        with self._appending:
            # What waits may renew an edge, or remove its node, so it comes first, and no other comes between.
            while entries := self.log.entries(self._seq, max_events=self._max_batch_events):
                self._apply(list(entries))
            count = 0
            for part in self._expiry.removals(now, self._max_batch_events):
                self.log.append(part)
                count += len(part)
        if count:
            self.statistics.expired_edges.record(count)

    def _until_checkpoint(self) -> float | None:
        """Seconds until a checkpoint is due, 0 if it is, None if only an event can make it so."""
        policy, since = self._checkpoints, self._seq - self._checkpoint_seq
        if policy is None or not since:
            return None
        if policy.every_events is not None and since >= policy.every_events:
            return 0.0
        if policy.every_seconds is None:
            return None
        return max(0.0, self._checkpoint_time + policy.every_seconds - self._clock())

    def _write_checkpoint(self) -> None:
        """Writes a checkpoint if there were events since the last, and removes those that are too many."""
        policy = self._checkpoints
        if policy is None or self._seq == self._checkpoint_seq:
            return
        started = self._clock()
        try:
            self.log.sync()
            policy.directory.mkdir(parents=True, exist_ok=True)
            for leftover in policy.directory.glob("checkpoint-*.partial"):
                leftover.unlink()  # of a process that was killed while it wrote
            path = policy.directory / f"checkpoint-{self._seq:020d}.lgck"
            checkpoint.write(path, self._states(), self._seq)
            for old in list_checkpoints(policy.directory)[policy.keep :]:
                old.unlink()
        except (OSError, InputError, LogError, MemoryError) as error:
            # The log still has everything: go on, and try again when the next one is due.
            _logger.error("no checkpoint at event %d: %s", self._seq, str(error) or type(error).__name__)
            self.statistics.failed_checkpoint_seconds.record(self._clock() - started)
        else:
            self.statistics.checkpoint_seconds.record(self._clock() - started)
        self._checkpoint_seq, self._checkpoint_time = self._seq, self._clock()

    def _states(self) -> Mapping[str, State]:
        log = State({"crc32": self.log.digest(self._seq)}, {})
        return {"graph": self.graph.state(), "engine": self.engine.state(), "log": log}


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
