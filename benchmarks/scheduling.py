"""What the scheduler of a node takes to decide: for each request its arrival and its end, and the starts and
stops of workers between them.

Requests arrive at random and take times of an exponential distribution; starts take three times as long as a
request. The load goes up and down, so that workers start, queue, take requests from each other, idle and end.
Nothing is executed: a heap of events stands for the workers, and only the calls of the scheduler are timed.

What it must cost
-----------------
An arrival is a look into a few dicts and one deque, and so is an end: some tens of operations of the
interpreter, 2 to 4 us each. The aim is 0.1 ms. With more workers it does not take longer, because queues are
found by their length.
"""

from __future__ import annotations

import heapq
import time

import numpy as np
from numpy.typing import NDArray

from livegnn.functions.scheduler import Assign, Decision, Launch, Limits, Policy, Scheduler
from report import Report, arguments

REQUESTS, QUICK_REQUESTS = 200_000, 20_000
EXECUTION, START = 0.05, 0.15  # seconds, simulated
AIM_MS = 0.1


class Node:
    """A scheduler and simulated workers. `seconds`: what each request takes, its arrival and its end."""

    def __init__(self, workers: int, policy: Policy, requests: int) -> None:
        self.scheduler = Scheduler(Limits(workers, keep_alive=1.0), policy)
        self.random = np.random.default_rng(0)
        self.events: list[tuple[float, int, int, int]] = []  # time, order, worker, its request or -1
        self.seconds = np.zeros(requests)
        self.launches = self.order = 0

    def run(self, arrivals: NDArray[np.float64]) -> None:
        for request, at in enumerate(arrivals.tolist()):
            while self.events and self.events[0][0] <= at:
                self.happen()
            began = time.perf_counter()
            decisions = self.scheduler.arrive(request, at)
            self.obey(decisions, at, began, request)
        while self.events:
            self.happen()

    def happen(self) -> None:
        now, _, worker, request = heapq.heappop(self.events)
        began = time.perf_counter()
        if request < 0:
            decisions = self.scheduler.started(worker, now)
        else:
            decisions = self.scheduler.finished(worker, now)
        self.obey(decisions, now, began, request)

    def obey(self, decisions: list[Decision], now: float, began: float, request: int) -> None:
        due = self.scheduler.next_tick()
        if due is not None and due <= now:
            decisions += self.scheduler.tick(now)
        if request >= 0:
            self.seconds[request] += time.perf_counter() - began
        for decision in decisions:
            self.order += 1
            if isinstance(decision, Launch):
                self.launches += 1
                heapq.heappush(self.events, (now + START, self.order, decision.worker, -1))
            elif isinstance(decision, Assign):
                end = now + self.random.exponential(EXECUTION)
                heapq.heappush(self.events, (end, self.order, decision.worker, decision.request))


def arrivals(count: int, workers: int, peak: float = 1.3) -> NDArray[np.float64]:
    """Times of requests whose rate goes up to `peak` times what the workers can do, and down to a tenth."""
    random = np.random.default_rng(1)
    load = peak * (0.55 + 0.45 * np.sin(np.linspace(0, 20 * np.pi, count)))
    return np.cumsum(random.exponential(EXECUTION / workers, count) / load)


def main() -> None:
    options = arguments(__doc__).parse_args()
    report = Report("scheduling")
    count = QUICK_REQUESTS if options.quick else REQUESTS
    aim = None if options.quick else AIM_MS
    for workers in (4, 64, 1024):
        node = Node(workers, Policy.LOAD_AWARE, count)
        node.run(arrivals(count, workers))
        taken = node.seconds * 1e3
        report.add(f"a request, {workers} workers", float(np.median(taken)), "ms", aim=aim)
        report.add(f"99th percentile, {workers} workers", float(np.percentile(taken, 99)), "ms", aim=aim)
    for policy in Policy:
        node = Node(64, policy, count)
        node.run(arrivals(count, 64, peak=0.6))
        report.add(f"workers launched, {policy.name.lower().replace('_', '-')}", node.launches, "workers")
    report.finish(options.json)


if __name__ == "__main__":
    main()
