"""A machine: the stages of a request on one machine, and its state.

With one stage a worker does all of a request. With two, sampling workers fetch the subgraph and inference
workers compute on it; each stage has a scheduler of its own, so they scale apart.

A machine is ready when each stage has opened a predictor and its last start or answer shows no trouble.
Nothing runs before the first request, so a health request makes a machine that is not ready try: a request
for no ids passes through, whose workers check that they can read the snapshot.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from livegnn.arguments import check_int
from livegnn.errors import (
    InputError,
    LiveGNNError,
    OverloadedError,
    SnapshotReplacedError,
    TimeoutExpired,
)
from livegnn.functions.bodies import (
    Answer,
    Asked,
    answer_error,
    answer_json,
    read_asked,
    read_infer_asked,
)
from livegnn.functions.messages import pack
from livegnn.functions.stage import Stage
from livegnn.http.inference_protocol import check_model
from livegnn.http.problems import PROBLEM_JSON, read_problem
from livegnn.http.refusals import ProcessStops, UnknownPath
from livegnn.http.request_counts import RequestCounts
from livegnn.readiness import Readiness

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from livegnn.http.metrics import Metrics
    from livegnn.remote.shared_memory import MemoryFile

_TRIAL_SECONDS: Final = 60.0
_HEALTH_SECONDS: Final = 2.0  # that a health request gives to a trial

_TRIES = 3


class Machine:
    """Answers requests through its stages, in order. Belongs to one event loop.

    stages: by name, such as "predict", or "sample" and "infer". concurrency: how many requests may be here;
    further ones are refused. memory: what workers have in common; the machine closes it. Raises InputError.

    counts: of the requests over HTTP, for metrics.
    """

    def __init__(
        self, stages: Mapping[str, Stage], *, concurrency: int, memory: "MemoryFile | None" = None
    ) -> None:
        if not stages:
            raise InputError("stages must have at least one stage, got none")
        self.stages, self.concurrency = dict(stages), check_int(concurrency, "concurrency", 1)
        self.requests = self.refused = 0
        self._draining = False
        self._trial: asyncio.Task[None] | None = None
        self.memory = memory
        self.counts = RequestCounts()
        self._metrics: Metrics | None = None

    async def predict(self, body: bytes) -> Answer:
        """The answer to the body of a request, errors included."""
        return await self._answer(partial(read_asked, body), list(self.stages.values()))

    async def infer(self, body: bytes, json_length: str | None, name: str, version: str | None) -> Answer:
        """The same in the Open Inference Protocol. json_length: the header `LENGTH`. name, version: of the
        model."""
        read = partial(read_infer_asked, body, json_length, name, version)
        return await self._answer(read, list(self.stages.values()))

    async def describe_model(self, name: str, version: str | None) -> Answer:
        """The inputs and outputs of the model, as a worker of the last stage has it."""

        def ask() -> Asked:
            check_model(name, None, "")
            return Asked([], version=version, describes=True)

        return await self._answer(ask, list(self.stages.values())[-1:])

    async def report_model_ready(self, name: str, version: str | None) -> Answer:
        """200 while the machine is ready, else 503."""
        try:
            check_model(name, None, "")
        except UnknownPath as error:
            return answer_error(error)
        ready = (await self.report_health()).status == 200
        if ready and version is not None:
            described = await self.describe_model(name, version)
            if described.status != 200:
                return described
        return answer_json({"name": name, "ready": ready}, 200 if ready else 503)

    async def _answer(self, read: Callable[[], Asked], stages: Sequence[Stage]) -> Answer:
        """The answer of some stages. read: returns the request; it is called once, and workers get only its
        result."""
        try:
            asked = read()
            if self._draining or self.requests >= self.concurrency:
                self.refused += 1
                full = f"{self.requests} requests are here, as many as may be: send it again later"
                raise ProcessStops() if self._draining else OverloadedError(full)
        except Exception as error:
            return answer_error(error)
        self.requests += 1
        try:
            async with asyncio.timeout(asked.timeout):
                return await self._go_through(pack(asked), stages)
        except TimeoutError:
            why = "; ".join(f"{name}: {reason}" for name, reason in self.readiness.reasons.items())
            said = f"no worker has answered within {asked.timeout:g} seconds"
            return answer_error(TimeoutExpired(f"{said}. {why}" if why else said))
        except Exception as error:
            return answer_error(error)
        finally:
            self.requests -= 1

    @property
    def readiness(self) -> Readiness:
        """Whether requests are taken and predictors have opened, and why not."""
        if self._draining:
            return Readiness({"node": "it stops"})
        reasons = {name: stage.trouble for name, stage in self.stages.items() if stage.trouble is not None}
        if not reasons:
            unopened = [name for name, stage in self.stages.items() if not stage.opened]
            reasons = dict.fromkeys(unopened, "it has not opened a predictor yet")
        return Readiness(reasons)

    async def report_health(self) -> Answer:
        """200, or 503 with why the machine is not ready: requests, and workers of each stage."""
        await self._try()
        readiness = self.readiness
        state = {
            name: {
                "requests": stage.scheduler.requests,
                "waiting": stage.scheduler.waiting,
                "workers": stage.scheduler.workers,
                "idle": stage.scheduler.idle,
                "starting": stage.scheduler.starting,
            }
            for name, stage in self.stages.items()
        }
        status = "ok" if readiness.ready else "stopping" if self._draining else "not ready"
        content: dict[str, object] = {"status": status, "requests": self.requests, "stages": state}
        if not readiness.ready:
            content["reasons"] = readiness.reasons
        return answer_json(content, 200 if readiness.ready else 503)

    async def _try(self) -> None:
        """Has predictors opened and checked, if they are not known to work, and waits for it for a moment."""
        if self._draining or self.readiness.ready:
            return
        if self._trial is None or self._trial.done():
            self._trial = asyncio.create_task(self._go_through_once())
        await asyncio.wait([self._trial], timeout=_HEALTH_SECONDS)

    async def _go_through_once(self) -> None:
        with contextlib.suppress(LiveGNNError, TimeoutError):  # what is wrong the stages say
            async with asyncio.timeout(_TRIAL_SECONDS):
                await self._go_through(pack(Asked([], checks=True)), list(self.stages.values()))

    async def report_metrics(self) -> Answer:
        """Metrics in Prometheus' text format. The first request for them loads their module."""
        from livegnn.http.metrics import CONTENT_TYPE, Metrics

        if self._metrics is None:
            self._metrics = Metrics(lambda: _collect(self), self.counts)
        return Answer(200, self._metrics.render(), content_type=CONTENT_TYPE)

    async def close(self, seconds: float = 0.0) -> None:
        """Takes no further request, gives present ones this number of seconds, and ends all workers."""
        self._draining = True
        if self._trial is not None:
            self._trial.cancel()
            await asyncio.wait([self._trial])
        for stage in self.stages.values():  # results of one are input of the next
            await stage.close(seconds)
        if self.memory is not None:
            memory, self.memory = self.memory, None
            memory.close()

    async def _go_through(self, message: bytes, stages: Sequence[Stage]) -> Answer:
        for _ in range(_TRIES):
            answer = Answer(200, message)
            for stage in stages:
                answer = await stage.call(answer.body)
                if answer.status != 200:
                    break
            if not _was_replaced(answer):
                break
        return answer


def _was_replaced(answer: Answer) -> bool:
    """Whether a newer snapshot has replaced that of a request, between two stages."""
    if answer.content_type != PROBLEM_JSON:
        return False
    return read_problem(answer.body).is_of(SnapshotReplacedError)


def _collect(machine: Machine) -> "Iterator[Metric]":
    from livegnn.http.metrics import counter, gauge, histogram

    figures = {name: stage.figures for name, stage in machine.stages.items()}
    schedulers = {name: stage.scheduler for name, stage in machine.stages.items()}
    yield gauge(
        "function_up", "1 while requests are taken and predictors have opened", machine.readiness.ready
    )
    yield gauge("function_requests", "Requests that wait or are executed", machine.requests)
    yield counter("function_refused_total", "Requests that were too many", machine.refused)
    if machine.memory is not None:
        shared = "Memory of the cache that workers share"
        yield gauge("function_shared_cache_bytes", shared, machine.memory.bytes)
    for shown, name, text in (
        ("waiting_requests", "waiting", "Requests that wait for a worker"),
        ("workers", "workers", "Workers that are warm or start"),
        ("idle_workers", "idle", "Idle workers"),
        ("starting_workers", "starting", "Workers that start"),
    ):
        numbers = {at: getattr(scheduler, name) for at, scheduler in schedulers.items()}
        yield gauge(f"function_{shown}", text, numbers, "stage")
    for shown, name, text in (
        ("answered_total", "answered", "Requests that a worker has answered"),
        ("failed_total", "failed", "Requests for which workers crashed or did not start"),
        ("store_requests_total", "store_requests", "Requests to the store, attempts included"),
        ("store_retries_total", "store_retries", "Requests to the store that were sent again"),
        ("store_bytes_total", "store_bytes", "Bytes read from the store"),
        ("launches_total", "launched", "Workers that were started"),
        ("dead_workers_total", "died", "Workers that ended by themselves, or could not be started"),
        ("stopped_workers_total", "stopped", "Workers that were ended because they were idle"),
    ):
        numbers = {at: getattr(each, name) for at, each in figures.items()}
        yield counter(f"function_{shown}", text, numbers, "stage")
    for name, text in (
        ("waiting_seconds", "From the arrival of a request until a worker begins with it"),
        ("executing_seconds", "Time of a worker for a request"),
        ("starting_seconds", "From the launch of a worker until it is ready"),
    ):
        times = {at: getattr(each, name) for at, each in figures.items()}
        yield histogram(f"function_{name}", text, times, "stage")
