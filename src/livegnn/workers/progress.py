"""The progress of sampling workers, as a serving worker sees it: whether its rows go stale without a word.

A sampling worker records a step before it takes it. So one that lives records a step soon after the log has
a batch that it has not taken, and one that has ended, or stands still, does not. A worker counts as silent
while the log has events after its last step and its stream of steps stays as it is. Without new events none
is silent, whether it lives or not: the rows are those of the whole log.

Thread safety: one thread looks; any may read `silent` and `readiness`.
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from typing import Final, NamedTuple

from livegnn.errors import LogError
from livegnn.log.streams import ReadableStream, StoredRecord
from livegnn.workers.messages import END, STEP, Step, steps_of
from livegnn.workers.places import LogEnd, Place

LOOK_SECONDS: Final = 1.0
"""Between two looks."""
SILENT_SECONDS: Final = 10.0
"""After which a silent worker is a reason not to be ready."""


class Silence(NamedTuple):
    """For how long a sampling worker has been silent. reached: its last event; end: that of the log."""

    seconds: float
    reached: int
    end: int


class _Sender:
    """A sampling worker, by its stream of steps. over: whether it has ended for another generation."""

    def __init__(self, steps: ReadableStream) -> None:
        self.steps = steps
        self.position, self.reached, self.over = -1, 0, False
        self.silent: float | None = None  # since it was first seen to be

    def look(self, end: int, least: int, passed: float) -> Silence:
        """least: an event that it has reached for sure. passed: seconds since the look before."""
        position = self.steps.last_position()
        if moved := position != self.position:
            last = _last_record(self.steps, position)
            if last is not None and last.type == STEP:
                self.reached = Step.from_bytes(last.payload).seq
            self.over = last is not None and last.type == END
            self.position = position
        reached = max(self.reached, least)
        waits = reached < end and not (moved or self.over)
        self.silent = None if not waits else 0.0 if self.silent is None else self.silent + passed
        return Silence(self.silent or 0.0, reached, end)


class Progress:
    """The sampling workers of one generation. Raises LogError where their streams are missing."""

    def __init__(self, place: Place, generation: int, workers: int) -> None:
        self._place = place
        self._end: LogEnd | None = None
        self._looked: float | None = None
        self._silences: Mapping[int, Silence] = {}
        self._unread: LogError | None = None
        with ExitStack() as opened:
            self._senders: dict[int, _Sender] = {}
            for worker in range(workers):
                steps = opened.enter_context(closing(place.read(steps_of(generation), worker)))
                self._senders[worker] = _Sender(steps)
            self._opened = opened.pop_all()

    @property
    def silent(self) -> Mapping[int, float]:
        """For how many seconds each sampling worker has left events waiting without a step."""
        return {
            worker: self._silences[worker].seconds if worker in self._silences else 0.0
            for worker in self._senders
        }

    def look_if_due(self, now: float, reached: Mapping[int, int]) -> None:
        """Looks, once in `LOOK_SECONDS`. now: of a clock that only moves forward. reached: an event that
        each worker has reached for sure; workers that are missing are not looked at."""
        before = self._looked
        if before is not None and now - before < LOOK_SECONDS:
            return
        self._looked = now
        # A process that was stopped for an hour has seen no silence of an hour.
        passed = 0.0 if before is None else min(now - before, 2 * LOOK_SECONDS)
        try:
            if self._end is None:
                self._end = self._opened.enter_context(closing(self._place.end()))
            end = self._end.read()
            self._silences = {
                worker: sender.look(end, reached[worker], passed)
                for worker, sender in self._senders.items()
                if worker in reached
            }
            self._unread = None
        except LogError as error:  # it may pass; until then nothing is known
            self._silences, self._unread = {}, error

    def reasons(self) -> dict[str, str]:
        """Why rows are stale, or may be."""
        if self._unread is not None:
            return {"log": f"whether sampling workers take its events is not known: {self._unread}"}
        told = [
            f"sampling worker {worker} has recorded no step for {seconds:.0f} seconds, and has not taken "
            f"events {reached + 1} to {end} of the log"
            for worker, (seconds, reached, end) in self._silences.items()
            if seconds >= SILENT_SECONDS
        ]
        return {"sampling": "; ".join(told)} if told else {}

    def close(self) -> None:
        """Ends the reading; again does nothing."""
        self._opened.close()


def _last_record(stream: ReadableStream, end: int) -> StoredRecord | None:
    """The last record before position `end`, None if it is not found: in Kafka the last position may be the
    mark of a transaction, and the record is before it."""
    for back in (2, 1):
        with suppress(LogError):  # trimmed
            if found := stream.records(max(0, end - back)):
                return found[-1]
    return None
