"""The streams of a sampling worker: records that it reads from others, and writes for them (messages.py).

Thread safety: none; one worker owns them.
"""

from collections.abc import Iterable
from contextlib import ExitStack

from livegnn.log.streams import ReadableStream, RecordStream
from livegnn.workers.messages import (
    references_for,
    requests_of,
    samples_for,
    steps_of,
    streams_of,
)
from livegnn.workers.places import Place
from livegnn.workers.plan import WorkerPlan
from livegnn.workers.plan_record import PlanReader
from livegnn.workers.plan_state import PlanState


class SamplingStreams:
    """Those of sampling worker `worker` of a generation.

    steps: its own. plan: the record of the plan. references: to other sampling workers, by number; heard:
    from them. samples: to serving workers, by number; asked: from them, by number and replica. Raises
    LogError if another process is this worker.
    """

    def __init__(
        self, place: Place, generation: int, plan: WorkerPlan, worker: int, others: Iterable[int]
    ) -> None:
        self._place, self._generation, self._worker = place, generation, worker
        self._senders = plan.sampling_workers
        self.samples: dict[int, RecordStream] = {}
        self.asked: dict[tuple[int, int], ReadableStream] = {}
        with ExitStack() as opened:
            place.create(streams_of(generation, plan))
            self.steps: RecordStream = place.write(steps_of(generation), worker)
            opened.callback(self.steps.close)
            self.plan = PlanReader.open(place)
            opened.callback(self.plan.close)
            self.references = {k: place.write(references_for(generation, k), worker) for k in others}
            self.heard = {k: place.read(references_for(generation, worker), k) for k in self.references}
            for stream in [*self.references.values(), *self.heard.values()]:
                opened.callback(stream.close)
            self._opened = opened.pop_all()

    def open_serving(self, state: PlanState) -> None:
        """Opens those of serving workers that were not there before."""
        for j in range(state.serving_workers):
            name = samples_for(self._generation, j)
            if j not in self.samples:
                self._place.create({name: self._senders})
                self.samples[j] = self._place.write(name, self._worker)
                self._opened.callback(self.samples[j].close)
            for replica in range(state.replicas):
                name = requests_of(self._generation, j, replica)
                if (j, replica) not in self.asked:
                    self._place.create({name: 1})
                    self.asked[j, replica] = self._place.read(name, 0)
                    self._opened.callback(self.asked[j, replica].close)

    def close_serving(self, state: PlanState) -> None:
        """Closes the streams of serving workers that were removed."""
        for j in [j for j in self.samples if j >= state.serving_workers]:
            self.samples.pop(j).close()
        for j, replica in list(self.asked):
            if j >= state.serving_workers or replica >= state.replicas:
                self.asked.pop((j, replica)).close()

    def close(self) -> None:
        """Lets another process have them; again does nothing."""
        self._opened.close()
