"""A scheduler at work: its decisions carried out on the workers of a host.

Belongs to one event loop. Each request is a future; each launch, execution and end of a worker is a task.
"""

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import Coroutine
from typing import Final

from livegnn.arguments import check_positive
from livegnn.errors import (
    FileFormatError,
    InputError,
    LiveGNNError,
    ObjectDamagedError,
    ObjectMissingError,
    OverloadedError,
    SnapshotError,
    StoreUnavailableError,
    TimeoutExpired,
    WorkersFailed,
)
from livegnn.functions.bodies import Answer
from livegnn.functions.scheduler import (
    Assign,
    Decision,
    Fail,
    Launch,
    Limits,
    Policy,
    Refuse,
    Scheduler,
    Stop,
)
from livegnn.functions.worker_host import Worker, WorkerDied, WorkerHost
from livegnn.histogram import SECONDS, Histogram
from livegnn.http.problems import PROBLEM_JSON, read_problem
from livegnn.http.refusals import ProcessStops

_UNREADABLE: Final = (
    FileFormatError,
    ObjectDamagedError,
    ObjectMissingError,
    SnapshotError,
    StoreUnavailableError,
)
_log = logging.getLogger(__name__)


class StageFigures:
    """Counts of a stage since it began, for metrics."""

    def __init__(self) -> None:
        self.launched = self.died = self.stopped = self.answered = self.failed = 0
        self.store_requests = self.store_retries = self.store_bytes = 0
        self.waiting_seconds = Histogram(SECONDS)
        self.executing_seconds = Histogram(SECONDS)
        self.starting_seconds = Histogram(SECONDS)


class _Call:
    """A request that is here."""

    __slots__ = ("arrived", "body", "future")

    def __init__(self, body: bytes, arrived: float) -> None:
        self.body, self.arrived = body, arrived
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()


class Stage:
    """Executes requests on the workers of `host`, as many as its scheduler launches.

    seconds: which a worker has for one request; then it is killed and the request fails.
    """

    def __init__(
        self,
        host: WorkerHost,
        limits: Limits,
        policy: Policy = Policy.LOAD_AWARE,
        *,
        seconds: float = math.inf,
    ) -> None:
        self.figures = StageFigures()
        self.scheduler = Scheduler(limits, policy)
        self._host, self._limits = host, limits
        self._seconds = seconds if seconds == math.inf else check_positive(seconds, "seconds")
        self._numbers = itertools.count()
        self._calls: dict[int, _Call] = {}
        self._launches: dict[int, asyncio.Task[None]] = {}
        self._workers: dict[int, Worker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._reason = "no worker has crashed"
        self.opened = False
        """Whether a worker has started, and with it opened its predictor."""
        self.trouble: str | None = None
        """Why the last worker that was started did not, or its last answer says that the snapshot cannot be
        read; None if neither is so."""
        self._failure: type[LiveGNNError] = WorkersFailed

    async def call(self, body: bytes) -> Answer:
        """The answer of a worker. Raises OverloadedError if there are too many requests, ProcessStops after
        `close`, and WorkersFailed.

        If it is cancelled, the request is withdrawn; one that is executed is finished, and forgotten.
        """
        number, call = next(self._numbers), _Call(body, self._now())
        self._calls[number] = call
        try:
            self._obey(self.scheduler.arrive(number, self._now()))
            return await call.future
        except asyncio.CancelledError:
            self._withdraw(number)
            raise
        finally:
            self._calls.pop(number, None)

    async def close(self, seconds: float = 0.0) -> None:
        """Takes no further request, gives present ones this number of seconds, and ends all workers."""
        self._obey(self.scheduler.drain())
        if waited := [call.future for call in self._calls.values()]:
            await asyncio.wait(waited, timeout=seconds)
        for call in self._calls.values():
            if not call.future.done():
                call.future.set_exception(ProcessStops())
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._launches.values()):
            task.cancel()
        workers, self._workers = list(self._workers.values()), {}
        await asyncio.gather(*(worker.kill() for worker in workers), return_exceptions=True)
        while rest := [*self._tasks, *self._launches.values()]:
            await asyncio.gather(*rest, return_exceptions=True)
        await self._host.close()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _obey(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Launch(worker):
                    self._launches[worker] = asyncio.create_task(self._launch(worker))
                case Assign(worker, request):
                    self._begin(self._execute(worker, self._workers[worker], request))
                case Stop(worker):
                    self._stop(worker)
                case Refuse(request):
                    self._fail(request, ProcessStops() if self.scheduler.draining else self._overloaded())
                case Fail(request):
                    self.figures.failed += 1
                    self._fail(request, self._failure(f"workers fail or do not start: {self._reason}"))
        self._set_timer()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.scheduler.next_tick()
        if due is not None:
            self._timer = asyncio.get_running_loop().call_at(due, self._tick)

    def _tick(self) -> None:
        self._obey(self.scheduler.tick(self._now()))

    async def _launch(self, worker: int) -> None:
        began = self._now()
        self.figures.launched += 1
        try:
            started = await self._host.launch(worker)
        except Exception as error:
            del self._launches[worker]
            problem = error.problem if isinstance(error, WorkerDied) else None
            away = problem is not None and problem.is_of(StoreUnavailableError)
            self._failure = StoreUnavailableError if away else WorkersFailed
            self.trouble = str(error)
            self._note_death(worker, str(error), hopeless=away)  # it has asked as long as it has patience
        except asyncio.CancelledError:
            self._launches.pop(worker, None)
            raise
        else:
            del self._launches[worker]
            seconds = self._now() - began
            self.figures.starting_seconds.record(seconds)
            _log.info("worker %d started in %.2f s", worker, seconds, extra={"worker": worker})
            self._workers[worker] = started
            self.opened, self.trouble = True, None
            self._begin(self._watch(worker, started))
            self._obey(self.scheduler.started(worker, self._now()))

    async def _execute(self, worker: int, running: Worker, request: int) -> None:
        call = self._calls.get(request)
        if call is None:  # withdrawn between the decision and this
            self._obey(self.scheduler.finished(worker, self._now()))
            return
        began = self._now()
        self.figures.waiting_seconds.record(began - call.arrived)
        try:
            async with asyncio.timeout(None if self._seconds == math.inf else self._seconds):
                answer = await running.call(call.body)
        except TimeoutError:
            self._fail(
                request, TimeoutExpired(f"expected an answer of a worker within {self._seconds:g} seconds")
            )
            self._withdraw(request)
            await running.kill()
            self._bury(worker, "was killed, because a request took too long")
        except Exception as error:
            await running.kill()
            self._bury(worker, str(error))
        else:
            self.figures.executing_seconds.record(self._now() - began)
            self.figures.answered += 1
            self.figures.store_requests += answer.store_requests
            self.figures.store_retries += answer.store_retries
            self.figures.store_bytes += answer.store_bytes
            self._judge(answer)
            if not call.future.done():
                call.future.set_result(answer)
            if worker in self._workers:
                self._obey(self.scheduler.finished(worker, self._now()))

    def _judge(self, answer: Answer) -> None:
        """A warm worker shows, as a start does, whether the stage can work; not every error says so."""
        if answer.status < 500:
            self.trouble = None
        elif answer.content_type == PROBLEM_JSON:
            problem = read_problem(answer.body)
            if any(problem.is_of(kind) for kind in _UNREADABLE):
                self.trouble = f"the last answer was: {problem.title}: {problem.detail}"

    async def _watch(self, worker: int, running: Worker) -> None:
        """A worker may die while it is idle. One that executes something is buried where that is noticed."""
        reason = await running.ended()
        if worker in self._workers:
            self._bury(worker, reason)

    def _bury(self, worker: int, reason: str) -> None:
        if self._workers.pop(worker, None) is not None:
            self._note_death(worker, reason)

    def _note_death(self, worker: int, reason: str, *, hopeless: bool = False) -> None:
        self.figures.died += 1
        self._reason = reason
        _log.warning("worker %d: %s", worker, reason)
        self._obey(self.scheduler.died(worker, self._now(), hopeless=hopeless))

    def _stop(self, worker: int) -> None:
        self.figures.stopped += 1
        if (launch := self._launches.get(worker)) is not None:
            launch.cancel()
            self._tasks.add(launch)
            launch.add_done_callback(self._tasks.discard)
            del self._launches[worker]
        else:
            self._begin(self._end(self._workers.pop(worker)))

    async def _end(self, running: Worker) -> None:
        with contextlib.suppress(WorkerDied):
            await running.stop()

    def _withdraw(self, request: int) -> None:
        with contextlib.suppress(InputError):  # it may be finished already
            self.scheduler.withdraw(request)

    def _fail(self, request: int, error: Exception) -> None:
        call = self._calls.get(request)
        if call is not None and not call.future.done():
            call.future.set_exception(error)

    def _overloaded(self) -> OverloadedError:
        """The error for one request too many, with the time until there is room: one median execution."""
        executed = self.figures.executing_seconds
        return OverloadedError(
            f"{self.scheduler.requests} requests are here, as many as this node takes: send it again later, "
            "or to another node",
            retry_after=executed.quantile(0.5) if executed.count else 1.0,
        )
