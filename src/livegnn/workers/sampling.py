"""A sampling worker: follows the log, keeps the samples of the nodes that it owns, and publishes them.

    log ─────────────────────┐
    references of others ────┤─► step, recorded ─► shard ─► samples ─► streams of serving workers
    requests, changes ───────┘                          └─► references ─► streams of sampling workers

The published records are a function of the steps. A worker writes each step into a stream before it takes it,
so its replacement loads the last checkpoint, takes the same steps, and publishes the same records; records
that are stored already are left out by their origin. A worker serves one generation: one number of sampling
workers. When that changes, it continues to an event at which all of them end (handover.py), and those of the
next generation begin there.

Thread safety: `stop` may be called from any thread; everything else belongs to one.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Final, cast

from livegnn.arguments import check_int
from livegnn.errors import FileFormatError, LogError
from livegnn.log import AppliedBatch, Origin, Tail
from livegnn.log.streams import Record
from livegnn.runtime.history import schema_properties
from livegnn.types import JSON, State
from livegnn.workers.checkpoints import Checkpoints, Saved
from livegnn.workers.handover import find_generation, merge, path_of
from livegnn.workers.messages import (
    ALL,
    ANEW,
    CHANGE,
    END,
    REQUEST,
    STEP,
    Levels,
    Step,
    last_of,
    nonce_of,
    pack,
    pack_all,
    read_new,
    unpack,
)
from livegnn.workers.places import Place
from livegnn.workers.plan import WorkerPlan
from livegnn.workers.plan_record import begin_states
from livegnn.workers.plan_state import PlanState, same_numbers
from livegnn.workers.recorded_steps import Round, check_history, read_recorded
from livegnn.workers.sampling_streams import SamplingStreams
from livegnn.workers.shard_events import ShardEvents

_logger = logging.getLogger(__name__)
_IDLE_SECONDS: Final = 0.005
_PAUSE_SECONDS: Final = 0.5
_TRIES: Final = 60
_GOES_ON: Final = -1  # at no event does a worker stop


class SamplingWorker:
    """Sampling worker `worker` of `plan`, with its checkpoints in `directory`.

    The numbers of the plan count for the first worker of all; later ones take the numbers in effect
    (docs/workers.md). All sampling workers need the same directory if their number is ever to change.
    checkpoint_every: steps between two checkpoints. max_events: that a step takes at most, if a batch of the
    log has no more. trim: whether records that two checkpoints include may be deleted; without, all steps and
    the log are kept, so that a worker without a checkpoint can begin again. stopped: what `stop` sets.

    Raises LogError if another process is this worker, if the log is not the one of its checkpoint, has
    trimmed what it needs, or is of another graph than the plan, and if the earlier workers have not handed
    over to it yet; FileFormatError for checkpoints that are damaged, or of another plan; InputError.
    """

    def __init__(
        self,
        place: Place,
        plan: WorkerPlan,
        worker: int,
        directory: Path | str,
        *,
        checkpoint_every: int = 1000,
        max_events: int = 20_000,
        trim: bool = True,
        stopped: threading.Event | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._checkpoint_every = check_int(checkpoint_every, "checkpoint_every", 1)
        self._max_events = check_int(max_events, "max_events", 1)
        self._stopped, self._trim, self._closed = stopped or threading.Event(), trim, False
        self._fits = False  # whether the log is known to be of a graph with the plan's schema
        self._place = place
        self._state, before = find_generation(begin_states(place, plan), self.directory, worker, plan)
        self.generation, plan = self._state.generation, self._state.plan
        self.worker = int(worker)
        self._checkpoints = Checkpoints(path_of(self.directory, worker, self.generation))
        self._shard = plan.make_shard(worker)
        self._events = ShardEvents(self._shard, plan.schema)
        self._others = [other for other in range(plan.sampling_workers) if other != worker]
        self._seq = self._step = self._saved_step = self._tried_step = 0
        self._received = dict.fromkeys(self._others, 0)
        self._requests: dict[tuple[int, int], int] = {}
        self._levels = Levels(self._others, plan.query.num_hops)
        self._changes = Levels(self._others, plan.query.num_hops, self._state.number)
        self._stops = dict.fromkeys([worker, *self._others], _GOES_ON)  # the event at which each wants to end
        self._published: dict[int, list[int]] = {}  # the progress that was sent to each serving worker
        self._told: list[int] = []  # the progress of this worker that was sent to the other sampling workers
        self._before: Saved | None = None  # the last checkpoint
        self._saved_received = dict(self._received)  # at the previous one: the others need not keep these
        self._ends: dict[int, int] = {}  # of the streams of samples, at the last checkpoint
        self._digest: str | None = None  # of the log up to `seq`
        self._ended = False
        self._open(before)
        try:
            self._take_again()
            if self.generation and not self._streams.steps.last_position():
                self._record(Round(Step(self._seq, self._received, {}, self._states)))
        except BaseException:
            self.close()
            raise

    @property
    def plan(self) -> WorkerPlan:
        """The plan that is in effect here."""
        return self._state.plan

    @property
    def _states(self) -> int:
        """The number of states of the plan that were taken."""
        return self._state.number + 1

    @property
    def seq(self) -> int:
        """The last event that was taken."""
        return self._seq

    @property
    def levels(self) -> list[int]:
        """The events up to which effects that pass this number of times between workers were taken: see
        `Levels`."""
        return self._levels.after(self._seq)

    @property
    def ended(self) -> bool:
        """Whether this generation has ended, and the next one takes over: make the worker again."""
        return self._ended

    def run(self, before_each: Callable[[], None] | None = None) -> None:
        """Takes steps until `stop`, or until `ended`. Raises LogError if the log or a stream fails; then the
        worker is over. One that cannot be read is tried again for half a minute, because brokers restart.

        before_each: called in this thread before it looks for the next step, so it may call `save`.
        """
        failures = 0
        while not self._stopped.is_set() and not self._ended:
            if before_each:
                before_each()
            try:
                found = self._look()
            except LogError as error:
                failures += 1
                if failures > _TRIES:
                    raise
                _logger.warning("sampling worker %d cannot read, and tries again: %s", self.worker, error)
                self._stopped.wait(_PAUSE_SECONDS)
                continue
            failures = 0
            if found is None:
                self._tail.wait(_IDLE_SECONDS, batches=True)
            else:
                self._record(found)
        self.save()

    def stop(self) -> None:
        """Ends `run` after the step that it is in."""
        self._stopped.set()

    def close(self) -> None:
        """Lets another process be this worker; again does nothing."""
        self._closed = True
        self._opened.close()
        if self._ended and self.worker >= self.plan.sampling_workers:
            for name in (f"sampling-{self.worker}", f"sampling-{self.worker}-ahead"):
                self._place.forget(name)

    def step(self) -> bool:
        """Takes the arrived records, and publishes the results. False if there were none."""
        if self._ended or (found := self._look()) is None:
            return False
        self._record(found)
        return True

    def save(self) -> None:
        """Writes a checkpoint, and trims. Raises LogError if another is this worker, and OSError."""
        if self._closed:
            raise LogError(f"sampling worker {self.worker} is closed: another may have its place")
        if self._step == self._saved_step:
            return
        self._checkpoints.hold(self._tail)
        if not self._ended:
            # A step that takes nothing. A worker that was replaced may not write it, and so it does not write
            # over the checkpoint of its replacement.
            step = Step(self._seq, self._received, {}, self._states, self._digest)
            self._step = self._streams.steps.append_all([Record(STEP, step.to_bytes())])
        meta: dict[str, JSON] = {
            "plan": self.plan.to_json(),
            "worker": self.worker,
            "ended": self._ended,
            "state": self._state.to_bytes().decode(),
            "changes_at": self._states,
            "step": self._step,
            "received": [[k, at] for k, at in self._received.items()],
            "requests": [[*key, at] for key, at in self._requests.items()],
            "levels": cast("JSON", self._levels.to_json()),
            "changes": cast("JSON", self._changes.to_json()),
            "stops": [[k, at] for k, at in self._stops.items()],
            "published": [[j, list(told)] for j, told in self._published.items()],
            "told": list(self._told),
            "digest": self._digest,
        }
        self._checkpoints.write(State(meta, self._shard.save()), self._seq)
        self._saved_step = self._step
        before, self._before = self._before, Saved(self._step, self._seq, dict(self._received))
        if self._trim and before is not None:
            self._kept.commit(max(before.seq, self._kept.position))
            self._streams.steps.trim(before.step)
            self._saved_received = dict(before.received)
        # A serving worker that is further behind than a checkpoint requests everything again.
        for j, stream in self._streams.samples.items():
            stream.trim(self._ends.get(j, 0))
            self._ends[j] = stream.last_position()

    def _open(self, before: tuple[int, Sequence[State]] | None) -> None:
        """Opens its streams and the log, and loads what it begins with."""
        worker = self.worker
        with ExitStack() as opened:
            # First, because a worker that is refused here must not have taken the streams of the running one.
            # This tail holds the log back for the checkpoint before the last; the other reads ahead.
            self._kept: Tail = opened.enter_context(closing(self._place.tail(f"sampling-{worker}")))
            self._checkpoints.hold(self._kept)
            digest = self._load()
            if digest is None and before is not None:
                self._begin_after(*before)
            self._tail: Tail = self._place.tail(f"sampling-{worker}-ahead", after=self._seq)
            opened.callback(self._tail.close)
            check_history(self._tail, self._seq, digest)
            self._streams = SamplingStreams(self._place, self.generation, self.plan, worker, self._others)
            opened.callback(self._streams.close)
            self._open_serving()
            self._opened = opened.pop_all()

    # -- one step

    def _look(self) -> Round | None:
        """The next step and the records that it takes, None if nothing has arrived."""
        batches = self._next_batches()
        if batches and not self._fits:
            self._tail.check_bound(schema_properties(self.plan.schema))
            self._fits = True
        records = {k: read_new(self._streams.heard[k], at) for k, at in self._received.items()}
        asked = {key: read_new(stream, self._requests[key]) for key, stream in self._streams.asked.items()}
        # Last: records that others have sent because of a change follow it.
        states = self._next_states()
        if not batches and not any(records.values()) and not any(asked.values()) and not states:
            return None
        if batches:
            self._digest = self._tail.digest(batches[-1].batch.seq)
        seq = batches[-1].batch.seq if batches else self._seq
        step = Step(
            seq,
            {**self._received, **last_of(records, self._received)},
            last_of(asked, self._requests),
            self._states + len(states),
            self._digest,
        )
        return Round(step, batches, records, asked, states)

    def _record(self, found: Round) -> None:
        """Takes a step once it is in the stream of steps."""
        position = self._streams.steps.append_all([Record(STEP, found.step.to_bytes())])
        self._take(position, found)
        if self._ended:
            self._hand_over()
        elif position - max(self._saved_step, self._tried_step) >= self._checkpoint_every:
            self._tried_step = position
            try:
                self.save()
            except OSError as error:  # as that of a full disk: the steps are there, so nothing is lost
                _logger.warning("no checkpoint of sampling worker %d: %s", self.worker, error)

    def _take(self, position: int, found: Round) -> None:
        """Takes a step that is in the stream of steps. The order here is a part of the meaning of a step."""
        step = found.step
        newcomers = {j for state in found.states for j in self._change(state)}
        for applied in found.batches:
            self._events.apply(applied.events)
        for other, several in found.records.items():
            for record in several:
                numbers, blocks = unpack(record.payload)
                if blocks:
                    self._events.receive(blocks)
                if numbers:
                    self._hear(other, numbers)
        self._seq, self._received, self._step = step.seq, dict(step.received), position
        self._requests.update(step.requests)
        if self._states != step.states:
            raise LogError(
                f"a step must be taken with {step.states} states of the plan, got {self._states}. {ANEW}"
            )
        if self._stops[self.worker] == _GOES_ON and self._state.generation > self.generation:
            self._stops[self.worker] = self._seq
        if found.batches:
            self._tail.commit(step.seq)
        self._publish(position, found, newcomers)

    def _hear(self, other: int, numbers: Sequence[int]) -> None:
        """Reads the state of another sampling worker: see `_publish`."""
        hops = self._state.plan.query.num_hops + 1
        self._levels.of[other] = list(numbers[:hops])
        self._changes.of[other] = list(numbers[hops : 2 * hops])
        self._stops[other] = numbers[2 * hops]
        if numbers[-1]:  # its checkpoint has what is up to there
            self._streams.references[other].trim(numbers[-1])

    def _change(self, after: PlanState) -> Sequence[int]:
        """Takes a change of the plan; returns the serving workers that are new."""
        before, self._state = self._state, after
        if after.generation > self.generation:
            return []
        if after.next is not None:
            self._shard.begin_move(after.next.seed_owners.native)
        elif before.next is not None:
            self._shard.end_move(same_numbers(before.next, after.plan))
        self._open_serving()
        return range(before.serving_workers, after.serving_workers)

    def _publish(self, position: int, found: Round, newcomers: "set[int]") -> None:
        levels, changes = self.levels, self._changes.after(self._state.number)
        told = [levels[-1], changes[-1]]
        origin = Origin(f"sampling-{self.worker}", 0, position)
        change = Record(CHANGE, pack([], self._state.to_bytes()), origin)
        serving, sampling = self._shard.take_outbox()
        made: dict[int, list[Record]] = {j: [change] if found.states else [] for j in self._streams.samples}
        for j, records in made.items():
            # A new one requests everything, so the blocks of the change are not sent to it.
            blocks = b"" if j in newcomers else serving[j]
            if blocks or self._published.get(j) != told:
                records += pack_all(told, blocks, origin)
                self._published[j] = told
        for (j, _), several in found.requests.items():
            for record in several:
                nonce = nonce_of(record)
                if record.type == REQUEST and j in made and nonce is not None:
                    self._shard.publish_all(j)
                    everything, _ = self._shard.take_outbox()
                    begin = Record(ALL, pack([nonce], b""), origin)
                    made[j] += [begin, change, *pack_all(told, everything[j], origin)]
        stop = self._stops[self.worker]
        state = [*levels, *changes, stop]
        for k, stream in self._streams.references.items():
            if sampling[k] or self._told != state:
                stream.append_all(pack_all([*state, self._saved_received[k]], sampling[k], origin))
        self._told = state
        ends = self._ends_now(levels[-1], changes[-1])
        for j, records in made.items():
            if ends:
                records.append(Record(END, pack(told, b""), origin))
            if records:
                self._streams.samples[j].append_all(records)
        self._ended = ends
        self._close_serving()

    # -- the end of a generation

    def _ends_now(self, seq: int, changes: int) -> bool:
        """Whether all sampling workers are at the event at which they end, and nothing is under way."""
        last = self._last_event()
        return last is not None and seq >= last and changes == self._state.number

    def _hand_over(self) -> None:
        """Does the last work of a worker of this generation; a second call changes nothing."""
        self.save()
        if self.worker == 0:  # the log is kept for new workers from here on
            for other in range(len(self._others) + 1, self.plan.sampling_workers):
                with suppress(LogError):  # it follows already
                    self._place.tail(f"sampling-{other}", after=self._seq).close()
        self._streams.steps.append_all([Record(END, b"", Origin(f"sampling-{self.worker}", 0, self._step))])

    def _last_event(self) -> int | None:
        """The event at which this generation ends, once it is known."""
        wanted = self._stops.values()
        return None if min(wanted) == _GOES_ON else max(wanted)

    def _next_batches(self) -> Sequence[AppliedBatch]:
        if self._stops[self.worker] == _GOES_ON:
            return self._tail.batches(self._max_events)
        last = self._last_event()
        if last is None or self._seq >= last:
            return []
        return self._tail.batches(min(self._max_events, last - self._seq))

    def _next_states(self) -> Sequence[PlanState]:
        """Up to the one that ends this generation."""
        if self._state.generation > self.generation:
            return []
        self._streams.plan.read()
        found = self._streams.plan.states(self._state.plan, self._states)
        known = sum(state.generation == self.generation for state in found)
        return found[: known + 1]

    # -- serving workers

    def _open_serving(self) -> None:
        self._streams.open_serving(self._state)
        for key in self._streams.asked:
            self._requests.setdefault(key, 0)

    def _close_serving(self) -> None:
        self._streams.close_serving(self._state)
        for j in self._published.keys() - self._streams.samples.keys():
            del self._published[j]
            self._ends.pop(j, None)

    # -- replacing a worker

    def _load(self) -> str | None:
        """The state of the last checkpoint; returns the digest of its log, None without a checkpoint."""
        loaded = self._checkpoints.read()
        if loaded is None:
            return None
        seq, state = loaded
        if (state.meta["plan"], state.meta["worker"]) != (self.plan.to_json(), self.worker):
            raise FileFormatError(
                f"{self._checkpoints.path} must be of sampling worker {self.worker} of this plan, got one of "
                f"another. {ANEW}"
            )
        self._shard.load(dict(state.arrays))
        meta = cast("Mapping[str, list[list[int]]]", state.meta)
        self._state = PlanState.from_bytes(str(state.meta["state"]).encode(), self.plan)
        self._seq, self._step = seq, cast("int", state.meta["step"])
        self._received = dict(cast("list[tuple[int, int]]", meta["received"]))
        self._requests = {(j, replica): at for j, replica, at in meta["requests"]}
        self._levels.load(cast("list[tuple[int, list[int]]]", meta["levels"]))
        self._changes.load(cast("list[tuple[int, list[int]]]", meta["changes"]))
        self._stops = dict(cast("list[tuple[int, int]]", meta["stops"]))
        self._published = dict(cast("list[tuple[int, list[int]]]", meta["published"]))
        self._told = cast("list[int]", state.meta["told"])
        self._ended = bool(state.meta["ended"])
        self._saved_step, self._before = self._step, Saved(self._step, seq, dict(self._received))
        self._digest = cast("str | None", state.meta["digest"])
        return self._digest or ""

    def _begin_after(self, seq: int, states: Sequence[State]) -> None:
        """Takes the tables that the workers of the previous generation have handed over, at event `seq`."""
        self._shard.load(merge([state.arrays for state in states], self.plan, self.worker))
        self._seq = seq
        self._levels = Levels(self._others, self.plan.query.num_hops, seq)

    def _take_again(self) -> None:
        """The steps that were recorded after the checkpoint, and perhaps not taken whole."""
        now = Step(self._seq, self._received, self._requests, self._states, self._digest)
        for position, found in read_recorded(self._streams, self._tail, self.plan, now, self._step):
            self._digest = found.step.digest
            self._take(position, found)
        if self._ended:
            self._hand_over()
