"""Intake: it checks, admits and logs events, and lets clients wait until their events are visible.

Thread safety: every method may be called from any thread.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import livegnn._core as _core
from livegnn.arguments import check_bool, check_int, check_not_negative
from livegnn.errors import InputError, LiveGNNError, LogError, TimeoutExpired, as_value
from livegnn.events import Chunk, Events
from livegnn.events.binary import check_type
from livegnn.events.builder import CheckedEvents, JoinedEvents
from livegnn.events.growing import growth_of
from livegnn.graph import Graph, Growth, Schema, check_columns, grown_schema
from livegnn.interrupts import Background
from livegnn.log import Appended, Given, Log, Origin, Outcomes, Rejection, seq_of
from livegnn.log.idempotency import retry_key
from livegnn.log_lines import Seldom
from livegnn.runtime.admission import Admission
from livegnn.runtime.future_events import Ahead, AheadPolicy
from livegnn.runtime.log_watch import LogWatch
from livegnn.runtime.quality_stand import QualityStand
from livegnn.runtime.statistics import Statistics
from livegnn.wording import kind_of

_LARGEST_SEQ = 2**63 - 1
_LINE_SECONDS = 1.0  # between two lines of the log about appends
_AT_ONCE = 0.0
_logger = logging.getLogger(__name__)


class Source(Protocol):
    """A reader of a stream into the log of a runtime. Every method may be called from any thread."""

    def start(self) -> None:
        """Reads in a thread of its own until `stop`, from where the log says that it was. Raises InputError
        if a source of this name reads already."""

    def stop(self) -> None:
        """Ends it after what it is appending; again does nothing."""

    @property
    def name(self) -> str:
        """The name under which the log keeps how far the stream was read."""

    @property
    def failure(self) -> BaseException | None:
        """The error that ended it, None while it works."""

    @property
    def waits(self) -> str | None:
        """The reason why it waits, None while it reads."""

    @property
    def stored(self) -> int:
        """The number of messages that it has stored in the log, including bad ones."""

    @property
    def bad(self) -> int:
        """The number of stored messages that were stored as bad messages instead of events."""

    @property
    def tombstones(self) -> int:
        """The stored messages without a value, which a compacted topic has for deleted keys: no events."""

    @property
    def lag(self) -> Mapping[int, int]:
        """The number of unread messages by partition, as far as is known."""


class SinkStand(Protocol):
    """The state of a writer of predictions. Any thread may read it."""

    @property
    def waits(self) -> str | None:
        """The reason why the last write failed, after which it waits; None if it did not fail."""

    @property
    def lag(self) -> int:
        """The number of rows that were not sent yet, at most."""

    @property
    def oldest_age(self) -> float:
        """The seconds since the oldest change that was not sent yet; 0 if all are sent."""

    @property
    def sent(self) -> int:
        """The number of rows that were sent."""

    @property
    def failures(self) -> int:
        """The number of writes that failed."""


class Intake:
    """The part of a loop that clients call to append events, and to wait for them."""

    fixed_schema: str | None = None
    """What cannot follow a growth of the schema beside the graph and its views; None if there is nothing."""

    def __init__(
        self,
        log: Log,
        graph: Graph,
        admission: Admission,
        ahead: AheadPolicy | None,
        clock: Callable[[], float],
    ) -> None:
        self.log, self.graph, self.admission = log, graph, admission
        self.statistics = Statistics()
        self.sources: dict[str, Source] = {}
        """The readers of other streams into the log, by name, from their start on."""
        self.sinks: dict[str, SinkStand] = {}
        """The writers of predictions to other systems, by name, from their start on."""
        self.quality: QualityStand | None = None
        """The quality of predictions, if it is computed."""
        self._clock = clock
        self._log_watch = LogWatch(log)
        self._ahead = Ahead(ahead)
        self._refused, self._failed = Seldom(_LINE_SECONDS), Seldom(_LINE_SECONDS)
        self._visible = threading.Condition()
        self._arrivals: dict[int, float] = {}
        self._thread: Background | None = None
        self._ended = False
        self._failure: BaseException | None = None
        self._seq = graph.seq

    def check(self, events: Events) -> CheckedEvents:
        """Returns the events as they are logged. Raises InputError if no graph state could accept them.

        Whether the nodes exist is known only when the events are applied: see `rejection`.
        """
        if isinstance(events, CheckedEvents) and events.schema is self.graph.schema:
            return events
        named = self.graph.with_types(events)
        named.check()
        if (growth := growth_of(named.chunks)) is not None:
            self.check_growth(growth)
            return CheckedEvents(named, self.graph.schema)
        for chunk in named.chunks:
            check_schema(self.graph, chunk)
        for chunk in named.chunks:
            check_type(chunk.type)
        return CheckedEvents(named, self.graph.schema)

    def check_growth(self, growth: Growth) -> Schema:
        """Returns the schema after a growth. Raises InputError if the graph, one of its views or another part
        of the deployment (`fixed_schema`) cannot follow it."""
        if self.fixed_schema is not None:
            raise InputError(f"expected a deployment whose schema can grow, got one with {self.fixed_schema}")
        return _core.holding(self.graph.writer, self._check_growth, growth)

    def _check_growth(self, growth: Growth) -> Schema:
        for view in self.graph.views.current():
            view.check_growth(growth)
        return grown_schema(self.graph.core, growth)

    def grow(self, growth: Growth, *, key: str | None = None, timeout: float | None = None) -> int:
        """Adds types and columns to the schema, as an event of the log; returns its sequence number when the
        graph has them. Batches wait meanwhile, and reads go on.

        key: as in `append`. timeout: seconds to wait, None for ever; of a runtime that was not started, the
        caller applies it, with `step`. Raises InputError if the graph or a view cannot follow the growth:
        nothing is logged then, or, if only an earlier event made it so, it is a refused entry. Raises
        TimeoutExpired, with the event in the log.
        """
        seq = self.append(Events().grow(growth), key=key)
        if self._thread is None:
            return seq
        self.wait(seq, timeout)
        if (refused := self.rejection(seq)) is not None:
            raise InputError(refused.message)
        return seq

    def append(self, events: Events, *, key: str | None = None, room_timeout: float | None = 0.0) -> int:
        """Checks and logs events; returns the sequence number of the last one, for `wait`.

        key: an idempotency key, as in `Log.append`. room_timeout: as in `admit`. Raises OverloadedError, and
        InputError if `check` does or if the key was used with other events, with nothing logged.
        """
        self.admit(room_timeout)
        return seq_of(self._append_all([(events, key, None)]))

    def append_all(
        self,
        entries: Sequence[Events | InputError],
        keys: Sequence[str | None] | None = None,
        origins: Sequence[Origin | None] | None = None,
        *,
        admitted: bool = False,
        ages: Sequence[float] | None = None,
    ) -> Outcomes:
        """Appends each of `entries` as `append` does, with one flush of the disk for all.

        entries: an InputError stands for events that could not be read, and `JoinedEvents`, if the log takes
        them, for several entries without keys. origins: the origin of each, as in `Log.append_all`: an entry
        that is delivered again is not logged again, and a refused entry is kept as a bad message if its
        origin has the payload. admitted: whether `admit` was called for them before. ages: the seconds since
        each arrived, of several that are joined too, which are a part of its latency; by default 0. Returns
        the outcome of each, of joined ones that of the last: an error concerns one entry. Raises LogError or
        OverloadedError if none was logged.
        """
        if not isinstance(entries, (list, tuple)):
            raise InputError(f"entries must be a list of Events, got {kind_of(entries)}")
        keys = [None] * len(entries) if keys is None else keys
        origins = [None] * len(entries) if origins is None else origins
        count = sum(map(_count, entries))
        ages = [0.0] * count if ages is None else ages
        for given, name, size in (
            (keys, "keys", len(entries)),
            (origins, "origins", len(entries)),
            (ages, "ages", count),
        ):
            if not isinstance(given, (list, tuple)) or len(given) != size:
                raise InputError(
                    f"{name} must be None or a list of {size}, one for each entry, got {given!r}"
                )
        if not check_bool(admitted, "admitted"):
            self.admit()
        return self._append_all(list(zip(entries, keys, origins, strict=True)), ages)

    def admit(self, room_timeout: float | None = _AT_ONCE) -> None:
        """Returns if events are accepted: see `Admission`. Raises OverloadedError if they are not.

        room_timeout: seconds to wait for that, None for ever; the loop itself, in a subscriber, never waits.
        """
        if room_timeout is not None and room_timeout is not _AT_ONCE:  # a request does not say how long
            check_not_negative(room_timeout, "room_timeout, in seconds,")
        if self._takes_in():
            return
        if room_timeout != 0.0 and threading.current_thread() is not self._thread:
            self._wait_until(self._takes_in, room_timeout, "room_timeout")
        if not self._takes_in():
            refusal = self.admission.refuse(self.waiting)
            if count := self._refused.count():
                told = {"count": count}
                _logger.info("appends refused since the last such line: %d: %s", count, refusal, extra=told)
            raise refusal

    def _takes_in(self) -> bool:
        return self.admission.is_open(self.waiting) or self._ended

    @property
    def log_seq(self) -> int | None:
        """The last event in the log; None while the log cannot be read."""
        try:
            return self.log.last_seq()
        except LogError:
            return None

    @property
    def waiting(self) -> int:
        """The number of events that wait to be applied."""
        return self.log.last_seq() - self._seq

    def _append_all(self, given: Sequence[Given], ages: Sequence[float] = (0.0,)) -> Outcomes:
        started = self._clock()
        rows = [(try_check(self, events), key, origin) for events, key, origin in given]
        places = [at for at, one in enumerate(rows) if isinstance(one[0], Events) or _has_payload(one[2])]
        wanted = [rows[at] for at in places]
        logged: Outcomes = []
        if wanted:
            try:
                logged = self.log.group.append(wanted)
            except LogError as error:
                self._log_watch.note(error)
                if count := self._failed.count():
                    told = {"count": count}
                    _logger.info("appends failed since the last such line: %d: %s", count, error, extra=told)
                raise
        if any(isinstance(one, Appended) and one.size and not one.again for one in logged):
            self._log_watch.note(None)
        rest = iter(logged)
        outcomes = [
            events if isinstance(events, InputError) and not _has_payload(origin) else next(rest)
            for events, _, origin in rows
        ]
        _core.holding(self._visible, self._note_arrivals, rows, outcomes, [started - age for age in ages])
        return outcomes

    def _note_arrivals(self, rows: Sequence[Given], outcomes: Outcomes, arrivals: Sequence[float]) -> None:
        """arrivals: of each entry, on the clock."""
        times = iter(arrivals)
        for (events, _, _), outcome in zip(rows, outcomes, strict=True):
            if isinstance(outcome, InputError) or outcome.again:
                next(times)
                continue
            ends = events.ends(outcome.seq) if isinstance(events, JoinedEvents) else (outcome.seq,)
            for end, arrival in zip(ends, times, strict=False):
                if end > self._seq:
                    self._arrivals[end] = arrival
                elif outcome.size:
                    self.statistics.latency_seconds.record(self._clock() - arrival)

    def wait(self, seq: int, timeout: float | None = None) -> int:
        """Waits until event `seq` is visible; returns the last visible sequence number.

        Raises TimeoutExpired after `timeout` seconds, LiveGNNError if the loop ended before, or if the loop
        itself, in a subscriber, waits for an event that it has not applied, InputError if `seq` is not a
        sequence number.
        """
        seq = check_int(seq, "seq", 0, _LARGEST_SEQ)
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
        """Returns whether, after a batch, it was `ready` within `timeout` seconds, or the loop has ended."""
        if timeout is not None:  # the system limits a wait
            timeout = min(check_not_negative(timeout, f"{name}, in seconds,"), threading.TIMEOUT_MAX)
        return _core.holding(self._visible, self._visible.wait_for, lambda: ready() or self._ended, timeout)

    def rejection(self, seq: int) -> Rejection | None:
        """Returns why entry `seq` was not applied, None if it was (or was not reached yet)."""
        seq = check_int(seq, "seq", 0, _LARGEST_SEQ)
        if not seq:
            return None
        rejections = self.log.rejections(seq - 1, up_to=seq)
        return rejections[0] if rejections else None

    def retry(self, seq: int, *, any_time: bool = False) -> int:
        """Appends the events of entry `seq`, which was refused, again; returns the number of the new entry.

        A second call returns the same number. Admission never refuses it. any_time: accepts the times of its
        events, however far they are ahead, until the process ends. Raises InputError if the entry was not
        refused.
        """
        any_time = check_bool(any_time, "any_time")
        entry = None if self.rejection(seq) is None else self.log.entry(seq)
        if entry is None:
            raise InputError(f"expected the number of an entry that was refused, got {seq}: see rejections")
        if any_time:
            self._ahead.allow(entry.events)
        return seq_of(self._append_all([(entry.events, retry_key(seq), None)]))


def try_check(intake: Intake, events: Events | InputError) -> CheckedEvents | InputError:
    """Returns the result of `Intake.check`, or the error that it raises."""
    if isinstance(events, InputError):
        return events
    try:
        return intake.check(events)
    except InputError as error:
        return as_value(error)


def _count(events: Events | InputError) -> int:
    """The number of entries that it stands for."""
    return len(events.sizes) if isinstance(events, JoinedEvents) else 1


def _has_payload(origin: Origin | None) -> bool:
    return isinstance(origin, Origin) and origin.payload is not None


def check_schema(graph: Graph, chunk: Chunk) -> None:
    """Raises InputError for a type that the graph does not have, ids of the other kind, or wrong columns."""
    if isinstance(chunk.type, str):
        graph.node_type_index(chunk.type)
    else:
        graph.edge_type_index(chunk.type)
    check_columns(graph.schema, chunk)
    expected = "text" if graph.schema.text_ids else "integers"
    for ids in (chunk.ids, chunk.dst):
        if ids is not None and (ids.dtype.kind == "U") != graph.schema.text_ids:
            raise InputError(f"ids must be {expected} in this graph, got {ids[0].item()!r}")
