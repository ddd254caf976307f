"""The scheduler against the paper's rules, written out with lists, through everything that can happen."""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from livegnn.errors import InputError
from livegnn.functions.scheduler import (
    ATTEMPTS,
    FAILED_STARTS,
    Assign,
    Fail,
    Launch,
    Limits,
    Policy,
    Refuse,
    Scheduler,
    Stop,
)


class Oracle:
    """Every worker is a record in one list, every choice a search through it."""

    def __init__(self, limits: Limits, policy: Policy) -> None:
        self.limits, self.policy = limits, policy
        self.workers: list[dict] = []
        self.temporary: list[int] = []
        self.order: list[int] = []  # of all requests, by arrival
        self.deaths: dict[int, int] = {}
        self.waited: dict[int, int] = {}  # by request: starts that have failed since it arrived
        self.launches = self.changes = self.failures = 0
        self.resume = 0.0
        self.draining = False

    def named(self, number: int) -> dict:
        return next(worker for worker in self.workers if worker["number"] == number)

    def of(self, state: str) -> list[dict]:
        return [worker for worker in self.workers if worker["state"] == state]

    def changed(self, worker: dict) -> None:
        """Ties between queues go to the one that has been so long for the longest time."""
        self.changes += 1
        worker["changed"] = self.changes

    def execute(self, worker: dict, request: int) -> Assign:
        if worker["state"] != "busy":
            worker.update(state="busy", queue=[])
            self.changed(worker)
        worker["request"] = request
        return Assign(worker["number"], request)

    def may_launch(self, now: float) -> bool:
        if self.failures and (self.of("starting") or now < self.resume):
            return False
        return len(self.workers) < self.limits.max_workers

    def launch(self) -> Launch:
        worker = {"number": self.launches, "state": "starting", "bound": None, "queue": []}
        self.workers.append(worker)
        self.launches += 1
        return Launch(worker["number"])

    def launch_missing(self, now: float) -> list:
        found = []
        while len(self.order) > len(self.workers) and self.may_launch(now):
            found.append(self.launch())
        return found

    def arrive(self, request: int, now: float) -> list:
        most = self.limits.max_waiting
        if self.draining or (most is not None and len(self.order) >= self.limits.max_workers + most):
            return [Refuse(request)]
        self.order.append(request)
        self.deaths[request] = 0
        if idle := self.of("idle"):
            return [self.execute(max(idle, key=lambda worker: worker["changed"]), request)]
        found = []
        wanted = self.policy is not Policy.LOAD_AWARE or len(self.order) > len(self.workers)
        if wanted and self.may_launch(now):
            found.append(self.launch())
            if self.policy is Policy.BOUND:
                self.workers[-1]["bound"] = request
                return found
        if self.of("busy") and self.policy is not Policy.BOUND:
            least = min(self.of("busy"), key=lambda worker: (len(worker["queue"]), worker["changed"]))
            least["queue"].append(request)
            self.changed(least)
        else:
            self.temporary.append(request)
        return found

    def take(self, worker: dict, now: float) -> list:
        longest = max(
            self.of("busy"), key=lambda one: (len(one["queue"]), -one["changed"]), default={"queue": []}
        )
        if self.temporary:
            return [self.execute(worker, self.temporary.pop(0))]
        if worker["queue"]:
            request = worker["queue"].pop(0)
            self.changed(worker)
            return [self.execute(worker, request)]
        if longest["queue"]:
            request = longest["queue"].pop()
            self.changed(longest)
            return [self.execute(worker, request)]
        if self.draining:
            self.workers.remove(worker)
            return [Stop(worker["number"]), *([] if self.order else self.drain())]
        worker.update(state="idle", since=now)
        self.changed(worker)
        return []

    def started(self, number: int, now: float) -> list:
        worker = self.named(number)
        self.failures = 0
        if worker["bound"] is not None:
            return [self.execute(worker, worker["bound"])]
        return [*self.take(worker, now), *self.launch_missing(now)]

    def finished(self, number: int, now: float) -> list:
        worker = self.named(number)
        self.order.remove(worker["request"])
        return self.take(worker, now)

    def died(self, number: int, now: float) -> list:
        worker, found = self.named(number), []
        self.workers.remove(worker)
        back = list(worker["queue"])
        if worker["state"] == "starting":
            back += [] if worker["bound"] is None else [worker["bound"]]
            self.resume = now + min(0.1 * 2**self.failures, 30.0)
            self.failures += 1
            self.waited = {one: self.waited.get(one, 0) + 1 for one in self.order}
            if not self.workers:
                failed = [one for one in self.order if self.waited[one] >= FAILED_STARTS]
                found = [Fail(one) for one in failed]
                self.order = [one for one in self.order if one not in failed]
                back += self.temporary
        elif worker["state"] == "busy":
            self.deaths[worker["request"]] += 1
            if self.deaths[worker["request"]] < ATTEMPTS:
                back.append(worker["request"])
            else:
                self.order.remove(worker["request"])
                found.append(Fail(worker["request"]))
        self.temporary = [one for one in self.order if one in self.temporary or one in back]
        while self.temporary and (idle := self.of("idle")):
            last = max(idle, key=lambda worker: worker["changed"])
            found.append(self.execute(last, self.temporary.pop(0)))
        return [*found, *self.launch_missing(now)]

    def withdraw(self, request: int) -> bool:
        if any(worker["request"] == request for worker in self.of("busy")):
            self.deaths[request] = ATTEMPTS
            return False
        self.order.remove(request)
        if request in self.temporary:
            self.temporary.remove(request)
        for worker in self.workers:
            if request in worker["queue"]:
                worker["queue"].remove(request)
                self.changed(worker)
            if worker.get("bound") == request:
                worker["bound"] = None
        return True

    def tick(self, now: float) -> list:
        found = []
        for worker in sorted(self.of("idle"), key=lambda worker: worker["changed"]):
            if worker["since"] + self.limits.keep_alive <= now:
                self.workers.remove(worker)
                found.append(Stop(worker["number"]))
        return [*found, *self.launch_missing(now)]

    def drain(self) -> list:
        self.draining = True
        gone = sorted(self.of("idle"), key=lambda worker: worker["changed"])
        gone += [] if self.order else self.of("starting")
        self.workers = [worker for worker in self.workers if worker not in gone]
        return [Stop(worker["number"]) for worker in gone]


class Machine(RuleBasedStateMachine):
    """What happens to both, and what can be seen from the decisions alone."""

    @initialize(
        policy=st.sampled_from(Policy),
        workers=st.integers(1, 5),
        waiting=st.none() | st.integers(0, 6),
        keep_alive=st.sampled_from([0.0, 5.0, 600.0]),
    )
    def begin(self, policy: Policy, workers: int, waiting: int | None, keep_alive: float) -> None:
        self.policy, self.limits = policy, Limits(workers, waiting, keep_alive)
        self.scheduler, self.oracle = Scheduler(self.limits, policy), Oracle(self.limits, policy)
        self.now, self.arrivals = 0.0, 0
        self.starting: list[int] = []
        self.executing: dict[int, int] = {}
        self.idle: dict[int, float] = {}
        self.here: set[int] = set()
        self.done: set[int] = set()
        self.began: dict[int, int] = {}  # how often a request was given to a worker
        self.lost: dict[int, int] = {}  # how often it was given back

    def obey(self, decisions: list, expected: list) -> None:
        assert decisions == expected
        for decision in decisions:
            match decision:
                case Launch(worker):
                    before = len(self.starting) + len(self.executing) + len(self.idle)
                    assert before < self.limits.max_workers
                    if self.policy is Policy.LOAD_AWARE:
                        assert len(self.here) > before, "requests must exceed workers"
                    self.starting.append(worker)
                case Assign(worker, request):
                    assert worker in self.idle
                    assert request in self.here - self.done - set(self.executing.values())
                    self.began[request] = self.began.get(request, 0) + 1
                    assert self.began[request] == self.lost.get(request, 0) + 1, "run once, but for a death"
                    del self.idle[worker]
                    self.executing[worker] = request
                case Stop(worker):
                    self.idle.pop(worker, None) if worker in self.idle else self.starting.remove(worker)
                case Refuse(request):
                    self.here.remove(request)
                case Fail(request):
                    self.here.remove(request)

    @rule()
    def arrive(self) -> None:
        request = self.arrivals
        self.arrivals += 1
        self.here.add(request)
        self.obey(self.scheduler.arrive(request, self.now), self.oracle.arrive(request, self.now))

    @precondition(lambda self: self.starting)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(self.starting))
        self.starting.remove(worker)
        self.idle[worker] = self.now
        self.obey(self.scheduler.started(worker, self.now), self.oracle.started(worker, self.now))

    @precondition(lambda self: self.executing)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.executing)))
        request = self.executing.pop(worker)
        self.here.remove(request)
        self.done.add(request)
        self.idle[worker] = self.now
        self.obey(self.scheduler.finished(worker, self.now), self.oracle.finished(worker, self.now))

    @precondition(lambda self: self.starting or self.executing or self.idle)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted([*self.starting, *self.executing, *self.idle])))
        if worker in self.starting:
            self.starting.remove(worker)
        self.idle.pop(worker, None)
        if (request := self.executing.pop(worker, None)) is not None:
            self.lost[request] = self.lost.get(request, 0) + 1
        self.obey(self.scheduler.died(worker, self.now), self.oracle.died(worker, self.now))

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.here)))
        gone = self.scheduler.withdraw(request)
        assert gone == self.oracle.withdraw(request) == (request not in self.executing.values())
        if gone:
            self.here.remove(request)

    @rule(seconds=st.sampled_from([0.0, 0.05, 1.0, 5.0, 40.0, 599.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.obey(self.scheduler.tick(self.now), self.oracle.tick(self.now))
        due = self.scheduler.next_tick()
        assert due is None or due > self.now, "nothing is left to do for this moment"
        assert all(self.now - since < self.limits.keep_alive for since in self.idle.values())
        assert not self.idle or due is not None, "workers that are idle end some time"

    @precondition(lambda self: self.arrivals > 12)
    @rule()
    def drain(self) -> None:
        self.obey(self.scheduler.drain(), self.oracle.drain())

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        waiting = self.here - set(self.executing.values())
        assert self.scheduler.requests == len(self.here)
        assert self.scheduler.waiting == len(waiting)
        assert (self.scheduler.idle, self.scheduler.starting) == (len(self.idle), len(self.starting))
        assert self.scheduler.workers == len(self.idle) + len(self.starting) + len(self.executing)
        assert self.scheduler.workers <= self.limits.max_workers
        if self.policy is not Policy.BOUND:
            assert not (waiting and self.idle), "no worker is idle while a request waits"
        if waiting and not (self.executing or self.starting or self.idle):
            assert self.scheduler.next_tick() is not None, "what waits for nobody is started after a pause"
        for worker in [*self.idle, *self.executing]:
            with pytest.raises(InputError):
                self.scheduler.started(worker, self.now)

    def teardown(self) -> None:
        """Whatever is left is answered once workers start and live, and then nothing runs."""
        if not hasattr(self, "scheduler"):
            return
        while self.here:
            if self.starting:
                worker = self.starting.pop(0)
                self.idle[worker] = self.now
                self.obey(self.scheduler.started(worker, self.now), self.oracle.started(worker, self.now))
            elif self.executing:
                worker, request = self.executing.popitem()
                self.here.remove(request)
                self.idle[worker] = self.now
                self.obey(self.scheduler.finished(worker, self.now), self.oracle.finished(worker, self.now))
            else:
                due = self.scheduler.next_tick()
                assert due is not None
                self.now = max(self.now, due)
                self.obey(self.scheduler.tick(self.now), self.oracle.tick(self.now))
        while self.starting:
            worker = self.starting.pop(0)
            self.idle[worker] = self.now
            self.obey(self.scheduler.started(worker, self.now), self.oracle.started(worker, self.now))
        while self.idle:
            due = self.scheduler.next_tick()
            assert due is not None
            self.now = max(self.now, due)
            self.obey(self.scheduler.tick(self.now), self.oracle.tick(self.now))
        assert self.scheduler.workers == 0, "scaled to zero"


TestScheduler = Machine.TestCase
TestScheduler.settings = settings(stateful_step_count=60, max_examples=100)
