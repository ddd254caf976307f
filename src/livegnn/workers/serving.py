"""A serving worker: keeps the samples that its seeds can need, and answers with look-ups of its own.

It keeps nothing on disk for its next start. When it begins, and when it has missed something, it requests
everything from all sampling workers, with a number of its own, and takes the records of each from its answer
on. Changes of the plan are among the samples. When all sampling workers of a generation have ended, it
continues with those of the next, whose first blocks follow its last ones.

Invariant: `seq` is the least event up to which a sampling worker has published whole; 0 until each has
answered. Answers show all events up to it, and perhaps some of later ones. Thread safety: any thread may send
requests; one thread follows the streams, and is started by `start`.
"""

import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_int, check_not_negative, check_positive
from livegnn.backoff import Backoff
from livegnn.errors import InputError, LiveGNNError, LogError, ModelError, TimeoutExpired, UnknownNodeError
from livegnn.graph.node_ids import NodeIds
from livegnn.http.refusals import ProcessStops
from livegnn.inference import SampledForward
from livegnn.inference.predictions import Prediction
from livegnn.log.streams import ReadableStream, Record, StoredRecord
from livegnn.model import Model
from livegnn.network.outputs import Output
from livegnn.readiness import Readiness
from livegnn.sampling import HeteroSubgraph
from livegnn.sampling.request import chosen_seed
from livegnn.sampling.subgraph import hetero_subgraph
from livegnn.types import FloatArray, IntArray
from livegnn.workers.messages import (
    ALL,
    CHANGE,
    END,
    READY,
    REQUEST,
    requests_of,
    samples_for,
    steps_of,
    unpack,
)
from livegnn.workers.places import Place
from livegnn.workers.plan import WorkerPlan, integer_ids
from livegnn.workers.plan_model import fit_model, refuse_model
from livegnn.workers.plan_record import begin_states
from livegnn.workers.plan_state import PlanState
from livegnn.workers.progress import Progress

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64

    from livegnn.events.chunk import IdsLike
    from livegnn.workers.spill import SpilledCache

_IDLE_SECONDS: Final = 0.002
_PAUSES: Final = Backoff(_IDLE_SECONDS, 1.0)  # while the streams cannot be read
_BYTES_AT_ONCE: Final = 4 << 20
_FIRST: Final = np.zeros(1, np.int64)
_LOOK_SECONDS: Final = 1.0  # between looks at whether those that do not answer were replaced


class ServingWorker:
    """Serving worker `worker` of `plan`, or a replica of it.

    The numbers of the plan may be future ones: until the plan has changed, such a worker has no seeds
    (docs/workers.md). model: for predictions; its query must be that of the plan. budget_bytes, directory:
    with them, entries over this memory are stored in a RocksDB database there. Raises LogError if another
    process is this worker; ModelError; InputError.
    """

    def __init__(
        self,
        place: Place,
        plan: WorkerPlan,
        worker: int,
        model: Model | None = None,
        *,
        replica: int = 0,
        budget_bytes: int | None = None,
        directory: Path | str | None = None,
    ) -> None:
        self._forward, self._query = fit_model(model, plan)
        self._state = begin_states(place, plan)[-1]
        self.plan = replace(plan, seed=self._state.plan.seed)
        self._seed = chosen_seed(self.plan.seed)
        known, copies = self._state.serving_workers, self._state.replicas
        self.worker = check_int(worker, "worker", 0, max(plan.serving_workers, known) - 1)
        self.replica = check_int(replica, "replica", 0, max(plan.replicas, copies) - 1)
        self.model = model
        if (budget_bytes is None) != (directory is None):
            raise InputError("budget_bytes and directory must be given together, got only one of them")
        nodes, edges = plan.schema.node_types, dict.fromkeys(plan.edge_types, 0)
        self._places = None if self._forward is None else self._forward.places_of(nodes, edges)
        self._node_ids = NodeIds(text=False)
        self._place = plan.schema.node_type_index(plan.query.seed_type)
        self._knows_nodes = plan.schema.node_types[plan.query.seed_type] > 0
        self._changed = threading.Condition()
        self._stopped, self._stopping = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure: LiveGNNError | None = None
        self._unread: LogError | None = None  # why the streams cannot be read at present
        self._where = place
        self._whole: dict[int, int] = {}  # the event up to which each sampling worker has sent everything
        self._changes: dict[int, int] = {}  # and the change of the plan
        self._begun: set[int] = set()  # the workers that have begun to answer
        self._over: set[int] = set()  # the workers that have ended
        self._nonce = 0
        self._reported = -1  # the last change that it has reported as complete
        self._owners: tuple[WorkerPlan, ...] = (self._state.plan,)  # by each of these it has seeds
        self._seq, self._complete = 0, False
        self._read = ExitStack()  # the streams of the present generation
        self._cache: _core.SampleCache | SpilledCache = self._make_cache()
        with ExitStack() as opened:
            if budget_bytes is not None and directory is not None:
                self._cache = _spill(self._make_cache(), directory, budget_bytes)
                opened.callback(self._cache.close)
            self._open_streams()
            opened.callback(self._close_streams)
            self._opened = opened.pop_all()

    def _make_cache(self) -> _core.SampleCache:
        return replace(self._state.plan, query=self._query).make_cache(self.worker)

    # -- answers

    @property
    def seq(self) -> int:
        """The event up to which answers have seen all, 0 until all sampling workers have answered."""
        return self._seq

    @property
    def changes(self) -> int:
        """The change of the plan up to which it has all, -1 until all sampling workers have answered."""
        return min(self._changes.values()) if self._complete else -1

    @property
    def failure(self) -> LiveGNNError | None:
        """Why the worker has ended, if it has."""
        return self._failure

    def readiness(self) -> Readiness:
        """Whether the worker answers and follows the graph, and why not."""
        reasons = {}
        if self._failure is not None:
            reasons["worker"] = str(self._failure)
        elif self._thread is None or not self._thread.is_alive():
            reasons["worker"] = "it does not run"
        if self._unread is not None:
            reasons["streams"] = str(self._unread)
        if not self._complete:
            reasons["samples"] = "not all sampling workers have told what they know: every answer waits"
        return Readiness({**reasons, **self._progress.reasons()})

    def silent_seconds(self) -> Mapping[int, float]:
        """For how long each sampling worker has recorded no step though the log has events for it."""
        return self._progress.silent

    def memory(self) -> int:
        """Bytes of the cache."""
        return self._cache.bytes()

    def wait(self, min_seq: int, timeout: float = 10.0) -> int:
        """Blocks until `seq` is at least `min_seq`, and returns it.

        Raises TimeoutExpired after `timeout` seconds, ProcessStops, which is one, after `stop`, and the error
        that has ended the worker.
        """
        min_seq = check_int(min_seq, "min_seq", 0)
        timeout = check_not_negative(timeout, "timeout, in seconds,")
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._failure is not None or (self._complete and self._seq >= min_seq), timeout
            )
            if self._failure is not None:
                raise self._failure
            if not done:
                raise TimeoutExpired(
                    f"expected event {min_seq} within {round(timeout, 3):g} seconds, got as far as {self.seq}"
                )
            return self.seq

    def sample(self, seeds: "IdsLike", attributes: bool = True) -> HeteroSubgraph:
        """The sample of some seeds of this worker, as `Presampler.sample` returns it.

        Raises UnknownNodeError for a seed that is not in the graph, where seeds have features; an unknown
        seed without features has an empty sample. InputError for a seed of another worker.
        """
        asked = self._check(seeds)
        nodes, edges, (inverse,) = self._cache.sample(asked, attributes)
        drawn = dict(zip(self.plan.edge_types, edges, strict=True))
        return hetero_subgraph(
            self.plan.schema, self._node_ids, nodes, drawn, {self.plan.query.seed_type: inverse}, self._seed
        )

    def predict(
        self,
        ids: "IdsLike",
        *,
        min_seq: int = 0,
        timeout: float = 10.0,
        output: str | None = None,
        model: str | None = None,
    ) -> Prediction:
        """Predictions for seeds of this worker, each on its own sample, float32 [ids, channels].

        min_seq, timeout: as of `wait`. model: None, for it has one. Raises what `wait` and `sample` raise,
        and ModelError without a model.
        """
        refuse_model(model)
        forward, found = self._forward_to(output)
        seq = self.wait(min_seq, timeout)
        asked, places = _distinct(self._check(ids))
        cache = self._cache
        # A cache that spills searches missing rows between two looks, so each sample is taken by itself.
        if (
            isinstance(cache, _core.SampleCache)
            and self._places is not None
            and found.node_type == self.plan.query.seed_type
        ):
            values, done = cache.predict(forward.native, found.position, *self._places, asked)
            if done == len(asked):
                return Prediction(seq, values[places])
            forward.predict(self.sample(asked[done : done + 1]), output=output)  # says what is wrong with it
        return Prediction(seq, self.predict_on(self._samples(asked), output)[places])

    def predict_at_once(
        self, ids: "IdsLike", *, min_seq: int = 0, output: str | None = None, model: str | None = None
    ) -> Prediction | None:
        """Returns the result of `predict`; None where that would wait, or raise the reason of the end."""
        return self.predict(ids, output=output, model=model) if self.shows(min_seq) else None

    def shows(self, min_seq: int) -> bool:
        """Whether answers show this event now, so that a request need not wait."""
        return self._complete and min_seq <= self._seq and self._failure is None

    def predict_with_samples(
        self, ids: "IdsLike", *, min_seq: int = 0, timeout: float = 10.0, output: str | None = None
    ) -> tuple[Prediction, list[HeteroSubgraph]]:
        """The rows of `predict`, and the sample of each prediction. Raises the same errors."""
        self._forward_to(output)
        seq = self.wait(min_seq, timeout)
        asked, places = _distinct(self._check(ids))
        samples = self._samples(asked)
        values = self.predict_on(samples, output)[places]
        return Prediction(seq, values), [samples[place] for place in places.tolist()]

    def _forward_to(self, output: str | None) -> tuple[SampledForward, Output]:
        if self._forward is None:
            raise ModelError("predictions need a model, got a serving worker without one")
        return self._forward, self._forward.outputs.find(output)

    def _samples(self, asked: IntArray) -> list[HeteroSubgraph]:
        return [self.sample(asked[at : at + 1]) for at in range(len(asked))]

    def predict_on(
        self, samples: list[HeteroSubgraph], output: str | None
    ) -> "Float32[FloatArray, 'samples channels']":
        """The predictions on samples of one seed each."""
        forward, found = self._forward_to(output)
        rows = [forward.predict(sample, output=output) for sample in samples]
        return np.concatenate(rows) if rows else np.empty((0, forward.model.width(found.value)), np.float32)

    def _check(self, ids: "IdsLike") -> IntArray:
        asked = integer_ids(ids)
        owners = self._owners
        elsewhere = owners[0].serving_worker_of(asked) != self.worker
        for plan in owners[1:]:
            elsewhere &= plan.serving_worker_of(asked) != self.worker
        if elsewhere.any():
            seed = asked[elsewhere][:1]
            raise InputError(
                f"ids must be seeds of serving worker {self.worker}, got {seed.item()}, of worker "
                f"{owners[-1].serving_worker_of(seed).item()}"
            )
        if self._knows_nodes and len(asked):
            known = self._cache.has_features(self._place, asked)
            if not known.all():
                raise UnknownNodeError(
                    f"expected ids of {self.plan.query.seed_type!r} nodes, got {asked[~known][0].item()}, "
                    f"which is not there at event {self.seq}"
                )
        return asked

    # -- following

    def start(self) -> None:
        """Begins to follow, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name=f"serving-{self.worker}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it, and lets another process be this worker; again does nothing. Returns when it has ended,
        also if another thread ends it."""
        with self._stopping:
            self._stopped.set()
            if self._thread is not None:
                self._thread.join()
                self._thread = None
            self._opened.close()
            with self._changed:
                self._failure = self._failure or ProcessStops("the serving worker was stopped")
                self._changed.notify_all()

    def _run(self) -> None:
        try:
            self.begin()
            failures = 0
            while not self._stopped.is_set():
                try:
                    some, self._unread, failures = self.follow(), None, 0
                    self._progress.look_if_due(time.monotonic(), self._whole)
                except LogError as error:  # it may pass; until then answers stay as they were
                    some, self._unread, failures = False, error, failures + 1
                if not some:
                    self._stopped.wait(_PAUSES.after(failures) or _IDLE_SECONDS)
        except Exception as error:
            with self._changed:
                known = error if isinstance(error, LiveGNNError) else None
                self._failure = known or LiveGNNError(f"the serving worker has failed: {error!r}")
                self._changed.notify_all()
            if known is None:
                raise  # for the traceback

    def begin(self) -> None:
        """Requests everything, and skips earlier records. Raises LogError."""
        while True:
            for sender, stream in self._streams.items():
                self._after[sender] = stream.last_position()
            # Read after the positions: changes that it does not have yet follow them.
            newest = begin_states(self._where, self.plan)[-1]
            self._state = newest
            if newest.generation == self._generation:
                break
            self._open_streams()
        if self._belongs(newest):
            self._ask()
        self._update()

    def follow(self) -> bool:
        """Takes the arrived records. False if there were none. Raises LogError."""
        some = False
        for sender, stream in self._streams.items():
            try:
                if stream.last_position() <= self._after[sender]:
                    continue
                records = stream.records(self._after[sender], max_bytes=_BYTES_AT_ONCE)
            except LogError:
                # Trimmed before it was read, or lost: everything is requested again, if a worker answers.
                self._begin_anew()
                return True
            for record in records:
                self._take(sender, record)
                self._after[sender] = record.position
            some = some or bool(records)
        if some:
            self._update()
        if len(self._over) == len(self._streams):
            self._go_over()
        return some

    def _take(self, sender: int, record: StoredRecord) -> None:
        numbers, rest = unpack(record.payload)
        if record.type == CHANGE:
            self._change(PlanState.from_bytes(rest, self.plan))
        elif record.type == END:
            self._over.add(sender)
        elif record.type == ALL:
            # An answer to another worker repeats records that are here already.
            if sender in self._begun or numbers[0] == self._nonce:
                self._begun.add(sender)
                self._cache.restart(sender)
        elif sender in self._begun:
            if rest:
                self._cache.apply(rest)
            if numbers:
                self._whole[sender], self._changes[sender] = numbers

    def _change(self, state: PlanState) -> None:
        if state.number <= self._state.number:
            return
        before, self._state = self._state, state
        if not self._belongs(state):
            self._forget()
        elif not self._belongs(before):
            self._ask()
        self._update()

    def _belongs(self, state: PlanState) -> bool:
        return self.worker < state.serving_workers and self.replica < state.replicas

    def _update(self) -> None:
        """Notifies waiting threads, and the process that changes the plan, of its progress."""
        with self._changed:
            self._complete = len(self._whole) == len(self._streams)
            self._seq = min(self._whole.values()) if self._complete else 0
            state = self._state
            ready = self.changes >= state.number
            self._owners = (state.plan, state.next) if ready and state.next is not None else (state.plan,)
            self._changed.notify_all()
        if ready and self._reported < state.number:
            self._requests.append_all([Record(READY, b"%d" % state.number)])
            self._reported = state.number

    def _go_over(self) -> None:
        """To the sampling workers of the next generation, which begin where these have ended."""
        follows = len(self._begun) == len(self._streams)
        seq = self._seq
        self._open_streams()
        if not follows:
            self._forget()
            self.begin()
            return
        senders = self._streams.keys()
        self._begun = set(senders)
        with self._changed:
            self._whole = dict.fromkeys(senders, seq)
            self._changes = dict.fromkeys(senders, self._state.number)

    def _ask(self) -> None:
        self._nonce = secrets.randbits(62)
        self._requests.append_all([Record(REQUEST, b"%d" % self._nonce)])

    def _forget(self) -> None:
        self._begun.clear()
        self._whole.clear()
        self._changes.clear()
        self._cache.clear()

    def _begin_anew(self) -> None:
        for stream in self._streams.values():
            stream.last_position()  # raises if no broker answers
        self._forget()
        self._update()
        self.begin()

    def _close_streams(self) -> None:
        self._read.close()

    def _open_streams(self) -> None:
        """Those of the present generation, from their beginning on."""
        state = self._state
        samples = samples_for(state.generation, self.worker)
        requests = requests_of(state.generation, self.worker, self.replica)
        senders = state.plan.sampling_workers
        self._where.create({samples: senders, requests: 1, steps_of(state.generation): senders})
        with ExitStack() as opened:
            writer = self._where.write(requests, 0)
            opened.callback(writer.close)
            streams: dict[int, ReadableStream] = {}
            for sender in range(senders):
                streams[sender] = self._where.read(samples, sender)
                opened.callback(streams[sender].close)
            self._progress = Progress(self._where, state.generation, senders)
            opened.callback(self._progress.close)
            self._read, before = opened.pop_all(), self._read
        before.close()
        self._generation, self._requests, self._streams = state.generation, writer, streams
        self._after = dict.fromkeys(streams, 0)
        self._over = set()
        self._cache.restart_all(len(streams))


def _distinct(ids: "Int64[IntArray, 'ids']") -> "tuple[Int64[IntArray, 'distinct'], Int64[IntArray, 'ids']]":
    """Each id once, and the place of each of `ids` among them."""
    # One id, as most requests have: sorting it takes as long as its prediction.
    if len(ids) == 1:
        return ids, _FIRST
    distinct, places = np.unique(ids, return_inverse=True)
    return distinct, places


def _spill(cache: "_core.SampleCache", directory: Path | str, budget_bytes: int) -> "SpilledCache":
    try:
        from livegnn.workers.spill import SpilledCache
    except ModuleNotFoundError as error:
        raise InputError(
            f"a budget needs {error.name}, which is not installed: pip install 'livegnn[rocksdb]'"
        ) from error
    return SpilledCache(cache, directory, int(check_positive(budget_bytes, "budget_bytes")))
