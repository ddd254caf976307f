"""The record of the plan: the stream `plan` beside the log, with one record for each change.

It says who works on the log: the plan of sampling and serving workers and its changes, the replicas, the
machines that take no process, and whether a cluster runs the workers.

| record | payload |
|---|---|
| `state` | a `PlanState`, from number 0 on |
| `cluster` | JSON: whether the coordinator of a cluster runs the workers; the last one counts |
| `replicas` | JSON: the number of a serving worker, and how many replicas it is to have; the last counts |
| `drained` | JSON: a machine, by address or the beginning of Ray's id, and whether it takes none |

One process at a time can write: it owns the stream. SQLite refuses another one, Kafka ends the earlier one.
The coordinator of a cluster owns it as long as it runs. Without a cluster a process owns it for one change:
the first worker of all, `resize`, `finish`, and `livegnn cluster drain` for parts. Any process reads.

Thread safety: none, except `DrainedMachines`.
"""

import logging
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Final, Self

import orjson

from livegnn.backoff import Backoff
from livegnn.errors import InputError, LogError
from livegnn.log import Origin
from livegnn.log.streams import ReadableStream, Record, RecordStream, StoredRecord
from livegnn.sampling.request import chosen_seed
from livegnn.types import JSON
from livegnn.workers.older_plan import read_older
from livegnn.workers.places import Place
from livegnn.workers.plan import WorkerPlan
from livegnn.workers.plan_state import PlanState, recorded_numbers

_logger = logging.getLogger(__name__)

PLAN: Final = "plan"
STATE: Final = "state"
CLUSTER: Final = "cluster"
REPLICAS: Final = "replicas"
DRAINED: Final = "drained"

_SOURCE: Final = "plan"  # of states: the stream has one of each number
_TRIES: Final = 200
_PAUSES: Final = Backoff(0.01, 0.05)


class PlanReader:
    """The record as it was when `read` was called last. Each call raises LogError.

    in_cluster: whether a cluster runs the workers. replicas: of serving workers, where they were set.
    drained: the machines that take no process.
    """

    def __init__(self, stream: ReadableStream) -> None:
        self._stream = stream
        self._at = 0
        self._states: list[bytes] = []
        self.in_cluster = False
        self.replicas: dict[int, int] = {}
        self.drained: set[str] = set()
        self.read()

    @classmethod
    def open(cls, place: Place) -> Self:
        """Raises LogError if there is no record yet."""
        stream = place.read(PLAN, 0)
        try:
            return cls(stream)
        except BaseException:
            stream.close()
            raise

    def read(self) -> bool:
        """Takes the records that were added; returns whether there were any."""
        before = self._at
        # In Kafka, what ends a stream may be no record.
        while self._stream.last_position() > self._at and (some := self._stream.records(self._at)):
            for record in some:
                self._take(record)
            self._at = some[-1].position
        return self._at > before

    def states(self, plan: WorkerPlan, after: int = 0) -> Sequence[PlanState]:
        """The states without the first `after` ones, as of `PlanState.from_bytes`."""
        return [PlanState.from_bytes(payload, plan) for payload in self._states[after:]]

    @property
    def numbers(self) -> dict[str, JSON] | None:
        """As of `recorded_numbers`, of the last state; None if there is none."""
        return recorded_numbers(self._states[-1]) if self._states else None

    def close(self) -> None:
        """Again does nothing."""
        self._stream.close()

    def _take(self, record: Record | StoredRecord) -> None:
        try:
            if record.type == STATE:
                self._states.append(record.payload)
                return
            content = orjson.loads(record.payload)
            if record.type == CLUSTER:
                self.in_cluster = bool(content)
            elif record.type == REPLICAS:
                number, count = content
                self.replicas[int(number)] = int(count)
            elif record.type == DRAINED:
                machine, on = content
                (self.drained.add if on else self.drained.discard)(str(machine))
            else:
                raise ValueError(f"a record of type {record.type!r}")
        except (ValueError, TypeError) as error:
            raise _unexpected(record.payload, error) from error


class PlanWriter(PlanReader):
    """The record with the right to write it. Raises LogError if another process has it."""

    _stream: RecordStream

    @classmethod
    def open(cls, place: Place) -> Self:
        """Makes the stream if it is missing, and takes the records of an older version into it."""
        place.create({PLAN: 1})
        stream = place.write(PLAN, 0)
        try:
            writer = cls(stream)
            if not writer._at:
                writer._append(read_older(place, STATE, CLUSTER, _SOURCE))
        except BaseException:
            stream.close()
            raise
        return writer

    def append_state(self, state: PlanState) -> None:
        """Stores a state, unless there is one of its number."""
        if state.number >= len(self._states):
            self._append([Record(STATE, state.to_bytes(), Origin(_SOURCE, 0, state.number))])

    def begin(self, plan: WorkerPlan) -> None:
        """Stores `plan` as the first state, unless there is one; draws its seed if it has none."""
        if not self._states:
            self.append_state(PlanState(0, 0, replace(plan, seed=chosen_seed(plan.seed))))

    def set_cluster(self, on: bool) -> None:
        """Notes whether a cluster runs the workers."""
        if on != self.in_cluster:
            self._append([Record(CLUSTER, orjson.dumps(on))])

    def set_replicas(self, serving_worker: int, count: int) -> None:
        """Notes how many replicas a serving worker is to have."""
        if self.replicas.get(serving_worker, 1) != count:
            self._append([Record(REPLICAS, orjson.dumps([serving_worker, count]))])

    def set_drained(self, machine: str, on: bool) -> None:
        """Notes whether a machine takes no process."""
        if on != (machine in self.drained):
            self._append([Record(DRAINED, orjson.dumps([machine, on]))])

    def _append(self, records: Sequence[Record]) -> None:
        if not records:
            return
        self._at = self._stream.append_all(records)
        for record in records:  # which Kafka may show to this process only later
            self._take(record)


class DrainedMachines:
    """The machines that take no process, as a process follows them. Thread-safe."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._record: PlanReader | None = None

    def begin(self) -> None:
        """Makes the record if it is missing, so that reading it is cheap. Raises LogError."""
        self._place.create({PLAN: 1})

    def read(self) -> Collection[str]:
        """Their names, as they were when the record could be read last; none while there is no record."""
        with self._lock:
            try:
                if self._record is None:
                    self._record = PlanReader.open(self._place)
                self._record.read()
            except LogError as error:
                _logger.debug("the machines that take no process are not known: %s", error)
            return set() if self._record is None else set(self._record.drained)


def read_plan(place: Place) -> PlanReader | None:
    """The record as it is now, None if there is none. Raises LogError."""
    try:
        stream = place.read(PLAN, 0)
    except LogError:  # it does not exist
        return None
    with closing(stream):
        return PlanReader(stream)


def begin_states(place: Place, plan: WorkerPlan) -> Sequence[PlanState]:
    """All states. The first worker of all says that `plan` is the first, and draws its seed if it has none.
    Raises LogError, FileFormatError."""
    failure: LogError | None = None
    for pause in islice(_PAUSES.pauses(), _TRIES):
        try:
            if (found := read_plan(place)) and (states := found.states(plan)):
                return states
            with closing(PlanWriter.open(place)) as writer:
                writer.begin(plan)
        except LogError as error:  # another worker makes the stream, or says the plan
            failure = error
            time.sleep(pause)
    raise LogError(f"the stream {PLAN!r} must hold a plan, got none: {failure}") from failure


def refuse_in_cluster(place: Place) -> None:
    """Raises InputError if the coordinator of a cluster runs the workers: it alone changes their plan."""
    found = read_plan(place)
    if found is None or not found.in_cluster:
        return
    raise InputError(
        "the plan of workers must be changed by the process that starts them, here the coordinator of a "
        "cluster, got a change beside it: end it with livegnn cluster down (after a crash of all machines "
        "start it first), start the workers by hand, and call again; then the cluster may be started with "
        "the new numbers"
    )


def _unexpected(payload: bytes, error: Exception) -> LogError:
    return LogError(f"expected a record of {PLAN!r}, got {payload[:80]!r}: {error}")
