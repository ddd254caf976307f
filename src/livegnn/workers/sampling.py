"""A sampling worker: follows the log, keeps the samples of the nodes that it owns, and publishes them.

    log ─────────────────────┐
    references of others ────┤─► step, recorded ─► shard ─► samples ─► streams of serving workers
    requests ────────────────┘                          └─► references ─► streams of sampling workers

What comes out is a function of the steps. A worker writes each step into a stream before it takes it, so
whoever replaces it loads the last checkpoint, takes the same steps, and publishes the same records; those
that were stored before are left out by their origin.

Invariant: `levels[h]` is an event such that all effects of events up to it that pass from worker to worker
at most h times were taken here. An effect passes at most once for each hop, so what was published is whole
up to event `levels[-1]`.
Thread safety: `stop` may be called from any thread; everything else belongs to one.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, cast

from livegnn import checkpoint
from livegnn.arguments import whole
from livegnn.errors import FileFormatError, LogError
from livegnn.log import AppliedBatch, Origin, Tail
from livegnn.log.streams import ReadableStream, Record, StoredRecord
from livegnn.runtime.binding import schema_properties
from livegnn.types import JSON, State
from livegnn.workers.messages import (
    ALL,
    REQUESTS,
    STEP,
    STEPS,
    Step,
    pack,
    pack_all,
    references_for,
    samples_for,
    streams_of,
    unpack,
)
from livegnn.workers.places import Place
from livegnn.workers.plan import WorkerPlan
from livegnn.workers.shard_events import ShardEvents

_logger = logging.getLogger(__name__)
_IDLE_SECONDS: Final = 0.005
_BYTES_AT_ONCE: Final = 16 << 20
_MOST_DIGITS: Final = 19


class SamplingWorker:
    """Sampling worker `worker` of `plan`, with its checkpoints in `directory`.

    checkpoint_every: steps between two checkpoints. max_events: that a step takes at most, if a batch of the
    log has no more. trim: whether what the checkpoint has may go; without, all steps and the log are kept, so
    that a worker without the checkpoint can begin anew. Raises LogError if another process is this worker, or
    if the log has trimmed what it needs; FileFormatError for a checkpoint that is damaged, or of another
    plan; InputError.
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
    ) -> None:
        self.plan = plan
        self._trim = trim
        self.worker = whole(worker, "worker", 0, plan.sampling_workers - 1)
        self._checkpoint_every = whole(checkpoint_every, "checkpoint_every", 1)
        self._max_events = whole(max_events, "max_events", 1)
        self.path = Path(directory) / f"sampling-{worker}.checkpoint"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._stopped = threading.Event()
        self._closed = False
        self._fits = False  # whether the log's graph is known to have the schema of the plan
        self._shard = plan.make_shard(worker)
        self._events = ShardEvents(self._shard, plan.schema)
        self._others = [other for other in range(plan.sampling_workers) if other != worker]
        self._seq = self._step = self._saved_step = 0
        self._received = dict.fromkeys(self._others, 0)
        self._requests = dict.fromkeys(range(plan.serving_workers * plan.replicas), 0)
        self._levels_of = {other: [0] * (plan.query.num_hops + 1) for other in self._others}
        self._published = [-1] * plan.serving_workers  # up to which event each was told
        self._told = [-1]  # the levels that the other sampling workers were told
        self._ends: dict[int, int] = {}  # of the streams of samples, at the last checkpoint
        with ExitStack() as opened:
            place.create(streams_of(plan))
            self._steps = place.write(STEPS, worker)
            opened.callback(self._steps.close)
            self._samples = {j: place.write(samples_for(j), worker) for j in range(plan.serving_workers)}
            self._references = {k: place.write(references_for(k), worker) for k in self._others}
            self._from = {k: place.read(references_for(worker), k) for k in self._others}
            self._asked = {j: place.read(REQUESTS, j) for j in self._requests}
            for streams in (self._samples, self._references, self._from, self._asked):
                for stream in cast("Mapping[int, ReadableStream]", streams).values():
                    opened.callback(stream.close)
            self._load()
            self._tried_step = self._saved_step  # when a checkpoint was last due
            # The first holds the log back until a checkpoint has what is before it; the second reads ahead.
            self._kept: Tail = place.tail(f"sampling-{worker}")
            opened.callback(self._kept.close)
            self._tail: Tail = place.tail(f"sampling-{worker}-ahead", after=self._seq)
            opened.callback(self._tail.close)
            self._opened = opened.pop_all()
        try:
            self._take_again()
        except BaseException:
            self.close()
            raise

    @property
    def seq(self) -> int:
        """The last event that was taken."""
        return self._seq

    @property
    def levels(self) -> list[int]:
        """Up to which event what passes so many times between workers was taken: see the module."""
        levels = [self._seq]
        for passes in range(self.plan.query.num_hops):
            before = [levels[passes], *(of[passes] for of in self._levels_of.values())]
            levels.append(min(before))
        return levels

    def run(self, before_each: Callable[[], None] | None = None) -> None:
        """Takes steps until `stop`. Raises LogError if the log or a stream fails; then the worker is over.

        before_each: called in this thread before it looks for the next step, so it may call `save`.
        """
        while not self._stopped.is_set():
            if before_each is not None:
                before_each()
            if not self.step():
                self._tail.wait(_IDLE_SECONDS, batches=True)
        self.save()

    def stop(self) -> None:
        """Ends `run` after the step that it is in."""
        self._stopped.set()

    def close(self) -> None:
        """Lets another process be this worker; again does nothing."""
        self._closed = True
        self._opened.close()

    def step(self) -> bool:
        """Takes what has come, and publishes what follows from it. False if nothing had come."""
        batches = self._tail.batches(self._max_events)
        seq = batches[-1].batch.seq if batches else self._seq
        records = {k: self._read(self._from[k], at) for k, at in self._received.items()}
        asked = {j: self._read(self._asked[j], at) for j, at in self._requests.items()}
        if not batches and not any(records.values()) and not any(asked.values()):
            return False
        if batches and not self._fits:
            self._tail.check_bound(schema_properties(self.plan.schema))
            self._fits = True
        step = Step(seq, _ends(records, self._received), _ends(asked, self._requests))
        position = self._steps.append_all([Record(STEP, step.to_bytes())])
        self._take(position, step, batches, records, asked)
        if position - self._tried_step >= self._checkpoint_every:
            self._tried_step = position
            try:
                self.save()
            except OSError as error:  # as that of a full disk: the steps are there, so nothing is lost
                _logger.warning("no checkpoint of sampling worker %d: %s", self.worker, error)
        return True

    def save(self) -> None:
        """Writes a checkpoint, and trims what is needed no longer. Raises LogError after `close`."""
        if self._closed:
            raise LogError(f"sampling worker {self.worker} is closed: another may have its place")
        if self._step == self._saved_step:
            return
        meta: dict[str, JSON] = {
            "plan": self.plan.to_json(),
            "worker": self.worker,
            "step": self._step,
            "received": [[k, at] for k, at in self._received.items()],
            "requests": [[j, at] for j, at in self._requests.items()],
            "levels": [[k, list(levels)] for k, levels in self._levels_of.items()],
            "published": list(self._published),
            "told": list(self._told),
        }
        checkpoint.write(self.path, {"sampling": State(meta, self._shard.save())}, self._seq)
        self._saved_step = self._step
        if self._trim:
            if self._seq > self._kept.position:
                self._kept.commit(self._seq)
            self._steps.trim(self._step)
        # A serving worker that is further behind than a checkpoint asks for everything anew.
        for j, stream in self._samples.items():
            stream.trim(self._ends.get(j, 0))
            self._ends[j] = stream.last_position()

    # -- one step

    def _take(
        self,
        position: int,
        step: Step,
        batches: Sequence[AppliedBatch],
        records: Mapping[int, Sequence[StoredRecord]],
        asked: Mapping[int, Sequence[StoredRecord]],
    ) -> None:
        """Takes a step that is in the stream of steps. The order here is a part of what a step means."""
        for applied in batches:
            self._events.apply(applied.events)
        for other, several in records.items():
            for record in several:
                levels, blocks = unpack(record.payload)
                if blocks:
                    self._shard.receive(blocks)
                self._levels_of[other] = list(levels) or self._levels_of[other]
        self._seq, self._received, self._requests = step.seq, dict(step.received), dict(step.requests)
        self._step = position
        if batches:
            self._tail.commit(step.seq)
        self._publish(position, asked)

    def _publish(self, position: int, asked: Mapping[int, Sequence[StoredRecord]]) -> None:
        levels = self.levels
        origin = Origin(f"sampling-{self.worker}", 0, position)
        serving, sampling = self._shard.take_outbox()
        made: dict[int, list[Record]] = {}
        for j, blocks in enumerate(serving):
            if blocks or self._published[j] != levels[-1]:
                made[j] = pack_all([levels[-1]], blocks, origin)
                self._published[j] = levels[-1]
        for partition, several in asked.items():
            j = partition % self.plan.serving_workers
            for record in several:
                nonce = _nonce(record)
                if nonce is None:
                    continue
                self._shard.publish_all(j)
                everything, _ = self._shard.take_outbox()
                begin = Record(ALL, pack([nonce], b""), origin)
                made.setdefault(j, []).extend([begin, *pack_all([levels[-1]], everything[j], origin)])
        for k, stream in self._references.items():
            if sampling[k] or self._told != levels:
                stream.append_all(pack_all(levels, sampling[k], origin))
        self._told = levels
        for j, records in made.items():
            self._samples[j].append_all(records)

    def _read(self, stream: ReadableStream, after: int) -> Sequence[StoredRecord]:
        if stream.last_position() <= after:
            return []
        return stream.records(after, max_bytes=_BYTES_AT_ONCE)

    # -- replacing a worker

    def _load(self) -> None:
        """The state of the last checkpoint, if there is one."""
        if not self.path.exists():
            return
        found = checkpoint.read(self.path)
        state = found.states.get("sampling")
        if state is None or (state.meta["plan"], state.meta["worker"]) != (self.plan.to_json(), self.worker):
            raise FileFormatError(
                f"{self.path} must be of sampling worker {self.worker} of this plan, got one of another: "
                "name another directory"
            )
        self._shard.load(dict(state.arrays))
        meta = cast("Mapping[str, list[list[int]]]", state.meta)
        self._seq, self._step = found.seq, cast("int", state.meta["step"])
        self._received = dict(cast("list[tuple[int, int]]", meta["received"]))
        self._requests = dict(cast("list[tuple[int, int]]", meta["requests"]))
        self._levels_of = {k: list(cast("list[int]", levels)) for k, levels in meta["levels"]}
        self._published = cast("list[int]", state.meta["published"])
        self._told = cast("list[int]", state.meta["told"])
        self._saved_step = self._step

    def _take_again(self) -> None:
        """The steps that were recorded after the checkpoint, and perhaps not taken whole."""
        if self._steps.last_position() < self._step:
            raise LogError(
                f"{self.path} is of step {self._step}, the stream {STEPS!r} ends at "
                f"{self._steps.last_position()}: it was removed, or is of another log. Remove the "
                "checkpoints and the streams of all workers, and let them read the log from its beginning"
            )
        while self._steps.last_position() > self._step:
            try:
                found = self._steps.records(self._step, max_bytes=_BYTES_AT_ONCE)
            except LogError as error:
                raise LogError(f"{self.path} is older than the steps that are kept: {error}") from error
            if not found:
                return
            for record in found:
                step = Step.from_bytes(record.payload)
                self._take(
                    record.position,
                    step,
                    self._batches_up_to(step.seq),
                    {k: _read_up_to(self._from[k], self._received[k], at) for k, at in step.received.items()},
                    {
                        j: _read_up_to(self._asked[j], self._requests[j], at)
                        for j, at in step.requests.items()
                    },
                )

    def _batches_up_to(self, seq: int) -> Sequence[AppliedBatch]:
        found: list[AppliedBatch] = []
        at = self._seq
        while at < seq:
            some = [one for one in self._tail.batches(seq - at) if one.batch.seq <= seq]
            if not some:
                raise LogError(
                    f"the log must have batches up to event {seq}, which sampling worker {self.worker} has "
                    f"taken before, got them up to {at}: it has lost its end, or is another one"
                )
            found += some
            at = some[-1].batch.seq
            self._tail.commit(at)
        return found


def _read_up_to(stream: ReadableStream, after: int, up_to: int) -> Sequence[StoredRecord]:
    found: list[StoredRecord] = []
    while after < up_to:
        some = stream.records(after, max_bytes=_BYTES_AT_ONCE)
        if not some:
            raise LogError(f"a stream between workers must reach position {up_to}, got one that ends before")
        found += [record for record in some if record.position <= up_to]
        after = some[-1].position
    return found


def _ends(records: Mapping[int, Sequence[StoredRecord]], before: Mapping[int, int]) -> dict[int, int]:
    return {key: several[-1].position if several else before[key] for key, several in records.items()}


def _nonce(record: StoredRecord) -> int | None:
    """The number of a request; None for what no serving worker has written, which nobody waits for."""
    return int(record.payload) if record.payload.isdigit() and len(record.payload) <= _MOST_DIGITS else None
