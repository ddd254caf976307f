"""A machine: the stages of a request on one machine, and its state.

With one stage a worker does all of a request. With two, sampling workers fetch the subgraph and inference
workers compute on it; each stage has a scheduler of its own, so they scale apart.

A machine is ready when each stage has opened a predictor. Nothing runs before the first request, so a health
request makes it try: a request for no ids passes through, until one has opened all predictors.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

from livegnn.arguments import check_int
from livegnn.errors import (
    InputError,
    LiveGNNError,
    OverloadedError,
    SnapshotReplacedError,
    TimeoutExpired,
)
from livegnn.functions.bodies import Answer, answer_error, answer_json, read_asked
from livegnn.functions.stage import Stage
from livegnn.http.problems import PROBLEM_JSON, read_problem
from livegnn.http.refusals import ProcessStops
from livegnn.readiness import Readiness
from livegnn.server.prometheus import CONTENT_TYPE, counter, gauge, histogram

if TYPE_CHECKING:
    from livegnn.remote.shared_memory import MemoryFile

_NO_IDS: Final = b'{"ids": []}'
_TRIAL_SECONDS: Final = 60.0
_HEALTH_SECONDS: Final = 2.0  # that whoever asks for health gives to a trial

_TRIES = 3


class Machine:
    """Answers requests through its stages, in order. Belongs to one event loop.

    stages: by name, such as "predict", or "sample" and "infer". concurrency: how many requests may be here;
    further ones are refused. memory: what workers have in common; the machine closes it. Raises InputError.
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

    async def predict(self, body: bytes) -> Answer:
        """The answer to the body of a request, errors included."""
        try:
            asked = read_asked(body)
            if self._draining or self.requests >= self.concurrency:
                self.refused += 1
                full = f"{self.requests} requests are here, as many as may be: send it again later"
                raise ProcessStops() if self._draining else OverloadedError(full)
        except Exception as error:
            return answer_error(error)
        self.requests += 1
        try:
            async with asyncio.timeout(asked.timeout):
                return await self._go_through(body)
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
        """Has predictors opened, if that is not known to work, and waits for it for a moment."""
        if self._draining or self.readiness.ready:
            return
        if self._trial is None or self._trial.done():
            self._trial = asyncio.create_task(self._go_through_once())
        await asyncio.wait([self._trial], timeout=_HEALTH_SECONDS)

    async def _go_through_once(self) -> None:
        with contextlib.suppress(LiveGNNError, TimeoutError):  # what is wrong the stages say
            async with asyncio.timeout(_TRIAL_SECONDS):
                await self._go_through(_NO_IDS)

    async def report_metrics(self) -> Answer:
        """Metrics in Prometheus' text format."""
        return Answer(200, _render(self).encode(), content_type=CONTENT_TYPE)

    async def close(self, seconds: float = 0.0) -> None:
        """Takes no further request, gives present ones this number of seconds, and ends all workers."""
        self._draining = True
        if self._trial is not None:
            self._trial.cancel()
            await asyncio.wait([self._trial])
        for stage in self.stages.values():  # what leaves one goes into the next
            await stage.close(seconds)
        if self.memory is not None:
            memory, self.memory = self.memory, None
            memory.close()

    async def _go_through(self, body: bytes) -> Answer:
        for _ in range(_TRIES):
            answer = Answer(200, body)
            for stage in self.stages.values():
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


def _render(machine: Machine) -> str:
    stages = machine.stages.items()
    schedulers = {name: stage.scheduler for name, stage in stages}
    parts = [
        gauge("function_up", "", machine.readiness.ready),
        gauge("function_requests", "", machine.requests),
        counter("function_refused_total", "", machine.refused),
    ]
    if machine.memory is not None:
        parts.append(gauge("function_shared_cache_bytes", "", machine.memory.bytes))
    for shown, name in (
        ("waiting_requests", "waiting"),
        ("workers", "workers"),
        ("idle_workers", "idle"),
        ("starting_workers", "starting"),
    ):
        numbers = {at: getattr(scheduler, name) for at, scheduler in schedulers.items()}
        parts.append(gauge(f"function_{shown}", "", numbers, "stage"))
    for shown, name in (
        ("answered_total", "answered"),
        ("failed_total", "failed"),
        ("store_requests_total", "store_requests"),
        ("store_bytes_total", "store_bytes"),
        ("launches_total", "launched"),
        ("dead_workers_total", "died"),
        ("stopped_workers_total", "stopped"),
    ):
        numbers = {at: getattr(stage.figures, name) for at, stage in stages}
        parts.append(counter(f"function_{shown}", "", numbers, "stage"))
    for name in ("waiting_seconds", "executing_seconds", "starting_seconds"):
        times = {at: getattr(stage.figures, name) for at, stage in stages}
        parts.append(histogram(f"function_{name}", "", times, "stage"))
    return "\n".join([*chain.from_iterable(parts), ""])
