"""When workers start and end, and which of them answers which request (FaaS-GNN, section 4.4).

A `Scheduler` is a state and its transitions: at an event (`arrive`, `started`, `finished`, `died`,
`withdraw`, `tick`, `drain`) it returns the actions to take, in order. It has no clock and no worker: time is
an argument, in seconds, and the caller launches and stops workers. A call that is refused with InputError has
changed nothing. A decision takes constant time, except `withdraw` and `died`.

Each warm worker has a queue. A request is sent to an idle worker, or waits in the shortest queue of a warm
one, or, while none is warm, in the temporary queue. A worker that has finished takes from the temporary
queue, then from its own, then from the end of the longest. So no worker is idle while a request waits.

Belongs to one thread at a time.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from livegnn.arguments import check_int, check_not_negative
from livegnn.backoff import Backoff
from livegnn.errors import InputError
from livegnn.functions.options import KEEP_ALIVE

ATTEMPTS: Final = 2
"""The executions of a request whose worker crashes. One that kills its workers must not kill all of them."""

FAILED_STARTS: Final = 3
"""After this number in a row, and with no worker warm, requests fail that have waited for all of them."""

_PAUSES = Backoff(0.1, 30.0)  # between a failed start and the next
_PATIENT_PAUSES = _PAUSES._replace(longest=2.0)  # where the start itself has been repeated for long


class Policy(Enum):
    """The conditions under which a worker is launched for a request, and the workers that may execute the
    request."""

    LOAD_AWARE = "launch when requests exceed workers; any idle worker takes the next request"
    EAGER = "launch always; any idle worker takes the next request"
    BOUND = "launch always; the request waits for this worker alone"


@dataclass(frozen=True)
class Limits:
    """The limits of a scheduler.

    max_workers: warm and starting ones together. max_waiting: the number of requests over `max_workers` that
    may wait, further ones are refused; None: any number. keep_alive: seconds for which a worker may be idle.
    Raises InputError.
    """

    max_workers: int
    max_waiting: int | None = None
    keep_alive: float = KEEP_ALIVE

    def __post_init__(self) -> None:
        check_int(self.max_workers, "max_workers", 1)
        if self.max_waiting is not None:
            check_int(self.max_waiting, "max_waiting", 0)
        check_not_negative(self.keep_alive, "keep_alive")


class Launch(NamedTuple):
    """Start this worker; say `started` or `died` of it."""

    worker: int


class Assign(NamedTuple):
    """Let this worker, which is warm and has nothing to do, execute this request."""

    worker: int
    request: int


class Stop(NamedTuple):
    """End this worker, which is idle, or starts without a request for it. It is not named again."""

    worker: int


class Refuse(NamedTuple):
    """The request that has arrived is one too many, or arrived after `drain`."""

    request: int


class Fail(NamedTuple):
    """Workers with this request crashed, or do not start; the request is removed."""

    request: int


Decision: TypeAlias = Launch | Assign | Stop | Refuse | Fail


class Scheduler:
    """The workers and the requests of one machine, or of one of its stages.

    Workers are numbered from 0 in the order of their launches; requests have any numbers that the caller
    gives them, each once.
    """

    def __init__(self, limits: Limits, policy: Policy = Policy.LOAD_AWARE) -> None:
        self._limits, self._policy = limits, policy
        self._requests: dict[int, _Request] = {}
        self._arrivals = self._launches = 0
        self._unplaced: deque[int] = deque()  # the temporary queue, in the order of arrival
        self._queues = _Queues()  # of workers that execute something
        self._running: dict[int, int] = {}  # by worker
        self._idle: dict[int, float] = {}  # since when; the longest idle one first
        self._starting: dict[int, int | None] = {}  # with the request that is bound to it
        self._failed_starts = 0  # since one succeeded
        self._all_failed_starts = 0
        self._pause_ends = 0.0
        self.draining = False
        """Whether `drain` was called."""

    @property
    def requests(self) -> int:
        """The number of requests that wait or are executed."""
        return len(self._requests)

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return len(self._requests) - len(self._running)

    @property
    def idle(self) -> int:
        """The number of warm workers without a request."""
        return len(self._idle)

    @property
    def starting(self) -> int:
        """The number of workers that start."""
        return len(self._starting)

    @property
    def workers(self) -> int:
        """The number of workers that are warm or start."""
        return len(self._idle) + len(self._running) + len(self._starting)

    def arrive(self, request: int, now: float) -> list[Decision]:
        """A request has arrived."""
        if request in self._requests:
            raise InputError(f"a request must have a new number, got {request} again")
        limits = self._limits
        most = None if limits.max_waiting is None else limits.max_workers + limits.max_waiting
        if self.draining or (most is not None and len(self._requests) >= most):
            return [Refuse(request)]
        self._requests[request] = _Request(self._arrivals, self._all_failed_starts)
        self._arrivals += 1
        if self._idle:
            worker, _ = self._idle.popitem()  # the one that has been used last; others may reach their end
            return [self._execute(worker, request)]
        decisions: list[Decision] = []
        naive = self._policy is not Policy.LOAD_AWARE
        if (naive or self.requests > self.workers) and self._may_launch(now):
            decisions.append(self._launch())
            if self._policy is Policy.BOUND:
                self._starting[self._launches - 1] = request
                return decisions
        warm = None if self._policy is Policy.BOUND else self._queues.shortest()
        if warm is None:
            self._unplaced.append(request)
        else:
            self._queues.push(warm, request)
        return decisions

    def started(self, worker: int, now: float) -> list[Decision]:
        """A worker that was to be launched is warm."""
        if worker not in self._starting:
            raise InputError(f"worker {worker} must have been launched to be started, and started once")
        bound = self._starting.pop(worker)
        self._failed_starts = 0
        if bound is not None:
            return [self._execute(worker, bound)]
        return [*self._take(worker, now), *self._launch_missing(now)]

    def finished(self, worker: int, now: float) -> list[Decision]:
        """A worker has answered its request."""
        if worker not in self._running:
            raise InputError(
                f"only a worker with a request can finish one, got worker {worker}, which has none"
            )
        del self._requests[self._running.pop(worker)]
        return self._take(worker, now)

    def died(self, worker: int, now: float, *, hopeless: bool = False) -> list[Decision]:
        """A worker has ended by itself, or could not be started. Others get its requests.

        hopeless: of a start that has tried for its full time, so that no request waits for another one.
        """
        decisions: list[Decision] = []
        if worker in self._starting:
            bound = self._starting.pop(worker)
            self._give_back(() if bound is None else (bound,))
            self._failed_starts += 1
            self._pause_ends = now + (_PATIENT_PAUSES if hopeless else _PAUSES).after(self._failed_starts)
            self._all_failed_starts += 1
            decisions += self._fail_waiting(0 if hopeless else FAILED_STARTS)
        elif worker in self._running:
            lost = self._running.pop(worker)
            waiting = self._queues.remove(worker)
            found = self._requests[lost]
            found.attempts += 1
            if found.attempts < ATTEMPTS:
                waiting.appendleft(lost)
            else:
                del self._requests[lost]
                decisions.append(Fail(lost))
            self._give_back(waiting)
        elif worker in self._idle:
            del self._idle[worker]
        else:
            raise InputError(f"worker {worker} must have been launched to die, and die once")
        while self._idle and self._unplaced:
            idle, _ = self._idle.popitem()
            decisions.append(self._execute(idle, self._unplaced.popleft()))
        return [*decisions, *self._launch_missing(now)]

    def withdraw(self, request: int) -> bool:
        """The client no longer waits for a request. Returns whether the request is removed: one that is
        executed stays until its end."""
        if request not in self._requests:
            raise InputError(f"request {request} must be here to be withdrawn")
        if request in self._running.values():
            self._requests[request].attempts = ATTEMPTS  # it is not executed again
            return False
        del self._requests[request]
        if request in self._unplaced:
            self._unplaced.remove(request)
        elif not self._queues.discard(request):
            worker = next(worker for worker, bound in self._starting.items() if bound == request)
            self._starting[worker] = None
        return True

    def tick(self, now: float) -> list[Decision]:
        """Time has passed: stops workers that were idle for long, and starts some after a pause."""
        decisions: list[Decision] = []
        while self._idle:
            worker, since = next(iter(self._idle.items()))
            if since + self._limits.keep_alive > now:
                break
            del self._idle[worker]
            decisions.append(Stop(worker))
        return [*decisions, *self._launch_missing(now)]

    def next_tick(self) -> float | None:
        """The time at which `tick` has something to do; None: not before another event."""
        times = [since + self._limits.keep_alive for since in list(self._idle.values())[:1]]
        if self._failed_starts and not self._starting and self._wants_more():
            times.append(self._pause_ends)
        return min(times, default=None)

    def drain(self) -> list[Decision]:
        """No further request is taken; workers end when those that are here are answered."""
        self.draining = True
        unneeded = [worker for worker in self._starting if not self._requests]
        stopped = [*self._idle, *unneeded]
        self._idle.clear()
        for worker in unneeded:
            del self._starting[worker]
        return [Stop(worker) for worker in stopped]

    def _take(self, worker: int, now: float) -> list[Decision]:
        """The next request or action for an idle worker."""
        request = self._next_for(worker)
        if request is not None:
            return [self._execute(worker, request)]
        self._queues.remove(worker)
        if not self.draining:
            self._idle[worker] = now
            return []
        if self._requests:
            return [Stop(worker)]
        return [Stop(worker), *self.drain()]

    def _next_for(self, worker: int) -> int | None:
        if self._unplaced:
            return self._unplaced.popleft()
        if (own := self._queues.pop_first(worker)) is not None:
            return own
        longest = self._queues.longest()
        return None if longest is None else self._queues.pop_last(longest)

    def _execute(self, worker: int, request: int) -> Assign:
        self._running[worker] = request
        self._queues.add(worker)
        return Assign(worker, request)

    def _give_back(self, requests: Collection[int]) -> None:
        """Puts requests without a worker into the temporary queue, each by when it arrived."""
        if requests:
            both = [*self._unplaced, *requests]
            self._unplaced = deque(sorted(both, key=lambda request: self._requests[request].arrival))

    def _fail_waiting(self, starts: int) -> list[Decision]:
        """Fails requests that have waited for this number of failed starts, unless a worker is warm or
        starts."""
        if self._running or self._idle or self._starting:
            return []
        most = self._all_failed_starts - starts
        failed = [request for request in self._unplaced if self._requests[request].failed_starts <= most]
        for request in failed:
            self._unplaced.remove(request)
            del self._requests[request]
        return [Fail(request) for request in failed]

    def _wants_more(self) -> bool:
        return self.requests > self.workers and self.workers < self._limits.max_workers

    def _may_launch(self, now: float) -> bool:
        """After a failed start one worker at a time is tried, and after a pause."""
        if self._failed_starts and (self._starting or now < self._pause_ends):
            return False
        return self.workers < self._limits.max_workers

    def _launch_missing(self, now: float) -> list[Decision]:
        launched: list[Decision] = []
        while self._wants_more() and self._may_launch(now):
            launched.append(self._launch())
        return launched

    def _launch(self) -> Launch:
        worker = self._launches
        self._launches += 1
        self._starting[worker] = None
        return Launch(worker)


class _Request:
    """arrival: the number of earlier requests. failed_starts: the number of failed starts of workers before
    it. attempts: the number of workers that crashed while they executed it."""

    __slots__ = ("arrival", "attempts", "failed_starts")

    def __init__(self, arrival: int, failed_starts: int) -> None:
        self.arrival, self.failed_starts, self.attempts = arrival, failed_starts, 0


class _Queues:
    """A queue for each worker that executes something, found by the worker and by its length."""

    def __init__(self) -> None:
        self._of: dict[int, deque[int]] = {}
        self._workers: dict[int, dict[int, None]] = {}  # by the length of their queues; there are few lengths

    def add(self, worker: int) -> None:
        """Adds an empty queue, if the worker has none."""
        if worker not in self._of:
            self._of[worker] = deque()
            self._workers.setdefault(0, {})[worker] = None

    def remove(self, worker: int) -> deque[int]:
        """Removes a queue; returns what was in it."""
        queue = self._of.pop(worker, None)
        if queue is None:
            return deque()
        self._leave(worker, len(queue))
        return queue

    def push(self, worker: int, request: int) -> None:
        queue = self._of[worker]
        queue.append(request)
        self._move(worker, len(queue) - 1, len(queue))

    def pop_first(self, worker: int) -> int | None:
        queue = self._of.get(worker)
        if not queue:
            return None
        request = queue.popleft()
        self._move(worker, len(queue) + 1, len(queue))
        return request

    def pop_last(self, worker: int) -> int:
        queue = self._of[worker]
        request = queue.pop()
        self._move(worker, len(queue) + 1, len(queue))
        return request

    def discard(self, request: int) -> bool:
        for worker, queue in self._of.items():
            if request in queue:
                queue.remove(request)
                self._move(worker, len(queue) + 1, len(queue))
                return True
        return False

    def shortest(self) -> int | None:
        """The worker of a shortest queue, the one whose queue has been so long for the longest time."""
        return next(iter(self._workers[min(self._workers)])) if self._workers else None

    def longest(self) -> int | None:
        """The worker of a longest queue that is not empty."""
        most = max(self._workers, default=0)
        return next(iter(self._workers[most])) if most else None

    def _move(self, worker: int, before: int, after: int) -> None:
        self._leave(worker, before)
        self._workers.setdefault(after, {})[worker] = None

    def _leave(self, worker: int, length: int) -> None:
        same = self._workers[length]
        del same[worker]
        if not same:
            del self._workers[length]
