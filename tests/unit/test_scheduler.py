"""The scheduler, example by example; its rules at large are in property/test_scheduling.py."""

import pytest

from livegnn.errors import InputError
from livegnn.functions.options import KEEP_ALIVE
from livegnn.functions.scheduler import (
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


def busy(workers: int, **limits: object) -> Scheduler:
    """With `workers` that execute the requests 0, 1, ..., at time 0."""
    scheduler = Scheduler(Limits(limits.pop("max_workers", workers), **limits))
    for number in range(workers):
        assert scheduler.arrive(number, 0.0) == [Launch(number)]
    for number in range(workers):
        assert scheduler.started(number, 0.0) == [Assign(number, number)]
    return scheduler


def test_figure_11() -> None:
    """A request more than containers launches one and waits in the shortest queue; a container that becomes
    idle takes from the tail of a queue."""
    scheduler = busy(2)
    assert scheduler.arrive(2, 1.0) == []  # queue of 0
    assert scheduler.arrive(3, 1.0) == []  # queue of 1
    assert scheduler.arrive(4, 1.0) == []  # queue of 0
    assert scheduler.finished(1, 2.0) == [Assign(1, 3)], "its own queue first"
    assert scheduler.finished(1, 3.0) == [Assign(1, 4)], "then the tail of the longest"
    assert scheduler.finished(0, 4.0) == [Assign(0, 2)]


def test_starting_workers_count() -> None:
    scheduler = Scheduler(Limits(8))
    assert scheduler.arrive(0, 0.0) == [Launch(0)]
    assert scheduler.started(0, 1.0) == [Assign(0, 0)]
    assert scheduler.arrive(1, 1.0) == [Launch(1)]
    assert scheduler.finished(0, 2.0) == [Assign(0, 1)], "the warm one takes it while the other starts"
    assert scheduler.arrive(2, 2.0) == [], "two requests, two workers: one starts and is enough"
    assert scheduler.started(1, 3.0) == [Assign(1, 2)]


def test_keep_alive_is_ten_minutes() -> None:
    assert KEEP_ALIVE == 600.0
    scheduler = busy(2)
    scheduler.finished(0, 10.0)
    scheduler.finished(1, 20.0)
    assert scheduler.next_tick() == 610.0
    assert scheduler.tick(609.9) == []
    assert scheduler.tick(610.0) == [Stop(0)]
    assert scheduler.tick(620.0) == [Stop(1)]
    assert (scheduler.workers, scheduler.next_tick()) == (0, None)
    assert scheduler.arrive(9, 700.0) == [Launch(2)]


def test_the_worker_that_was_used_last_is_used_again() -> None:
    scheduler = busy(3)
    for worker in (2, 0, 1):
        scheduler.finished(worker, 1.0)
    assert scheduler.arrive(7, 2.0) == [Assign(1, 7)]


def test_more_than_there_may_be_are_refused() -> None:
    scheduler = Scheduler(Limits(2, max_waiting=1))
    for number in range(3):
        scheduler.arrive(number, 0.0)
    assert scheduler.arrive(3, 0.0) == [Refuse(3)]
    scheduler.withdraw(2)
    assert scheduler.arrive(4, 0.0) == []


def test_starts_that_fail_pause_and_then_requests_fail() -> None:
    scheduler = Scheduler(Limits(4))
    assert [scheduler.arrive(number, 0.0) for number in range(2)] == [[Launch(0)], [Launch(1)]]
    assert scheduler.died(0, 0.0) == [], "another one still starts"
    assert scheduler.died(1, 0.0) == []
    assert scheduler.next_tick() == pytest.approx(0.2)
    assert scheduler.tick(0.1) == []
    assert scheduler.tick(0.2) == [Launch(2)], "one at a time"
    assert FAILED_STARTS == 3
    assert scheduler.died(2, 0.3) == [Fail(0), Fail(1)]
    assert scheduler.next_tick() is None
    assert scheduler.arrive(5, 0.3) == []
    assert scheduler.next_tick() == pytest.approx(0.7)
    assert scheduler.tick(0.7) == [Launch(3)]
    assert scheduler.started(3, 1.0) == [Assign(3, 5)]
    assert scheduler.arrive(6, 1.0) == [Launch(4)], "the pause is over"


def test_a_request_waits_for_three_starts_and_not_for_those_before_it() -> None:
    scheduler, now = Scheduler(Limits(1)), 0.0
    assert scheduler.arrive(0, now) == [Launch(0)]
    failed = []
    for worker in range(7):
        found = scheduler.died(worker, now)
        failed.append([one.request for one in found if isinstance(one, Fail)])
        scheduler.arrive(worker + 1, now)  # the first one that the next start is for
        due = scheduler.next_tick()
        assert due is not None
        now = due
        assert scheduler.tick(now) == [Launch(worker + 1)]
    assert failed == [[], [], [0], [1], [2], [3], [4]]


@pytest.mark.parametrize("hopeless", [False, True])
def test_starts_may_fail_for_days(hopeless) -> None:
    scheduler, now, longest = Scheduler(Limits(1)), 0.0, 0.0
    assert scheduler.arrive(0, now) == [Launch(0)]
    for worker in range(3000):
        failed = scheduler.died(worker, now, hopeless=hopeless)
        if failed:
            scheduler.arrive(worker + 1, now)
        due = scheduler.next_tick()
        assert due is not None
        longest, now = max(longest, due - now), due
        assert scheduler.tick(now) == [Launch(worker + 1)]
    assert longest == pytest.approx(2.0 if hopeless else 30.0)


def test_a_start_that_was_patient_fails_who_waits() -> None:
    """No other start is waited for, and the pause before it stays short."""
    scheduler, now = Scheduler(Limits(2)), 0.0
    assert [scheduler.arrive(number, now) for number in range(3)] == [[Launch(0)], [Launch(1)], []]
    assert scheduler.died(0, now, hopeless=True) == [], "another one still starts"
    assert scheduler.died(1, now, hopeless=True) == [Fail(0), Fail(1), Fail(2)]
    for number in range(3, 20):
        assert scheduler.arrive(number, now) == []
        due = scheduler.next_tick()
        assert due is not None
        assert due <= now + 2.0
        now = due + 3.0
        ((worker,),) = scheduler.tick(due)
        assert scheduler.died(worker, now, hopeless=True) == [Fail(number)]
    scheduler.arrive(20, now)
    due = scheduler.next_tick()
    assert due is not None
    ((worker,),) = scheduler.tick(due)
    assert scheduler.started(worker, due) == [Assign(worker, 20)]
    assert scheduler.arrive(21, due) == [Launch(worker + 1)]
    assert scheduler.died(worker + 1, due, hopeless=True) == [], "a worker is warm"
    assert scheduler.finished(worker, due) == [Assign(worker, 21)]


def test_naive_policies_launch_where_nobody_is_idle() -> None:
    eager, bound = Scheduler(Limits(8), Policy.EAGER), Scheduler(Limits(8), Policy.BOUND)
    for scheduler in (eager, bound):
        assert scheduler.arrive(0, 0.0) == [Launch(0)]
        assert scheduler.started(0, 1.0) == [Assign(0, 0)]
        assert scheduler.arrive(1, 1.0) == [Launch(1)]
    assert eager.finished(0, 2.0) == [Assign(0, 1)]
    assert bound.finished(0, 2.0) == [], "idle, while the request waits for its own worker"
    assert (bound.idle, bound.waiting) == (1, 1)
    assert eager.arrive(2, 3.0) == [Launch(2)], "though two requests have two workers"
    assert bound.arrive(2, 3.0) == [Assign(0, 2)]
    assert bound.started(1, 4.0) == [Assign(1, 1)]


def test_a_refused_call_changes_nothing() -> None:
    scheduler = busy(1)
    for call in (
        lambda: scheduler.arrive(0, 1.0),
        lambda: scheduler.started(0, 1.0),
        lambda: scheduler.started(5, 1.0),
        lambda: scheduler.finished(5, 1.0),
        lambda: scheduler.died(5, 1.0),
        lambda: scheduler.withdraw(5),
    ):
        with pytest.raises(InputError):
            call()
    assert (scheduler.requests, scheduler.workers, scheduler.idle) == (1, 1, 0)
    assert scheduler.finished(0, 1.0) == []
    with pytest.raises(InputError):
        scheduler.finished(0, 1.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_workers", 0),
        ("max_workers", 1.5),
        ("max_waiting", -1),
        ("keep_alive", -1.0),
        ("keep_alive", None),
    ],
)
def test_wrong_limits_are_refused(name, value) -> None:
    with pytest.raises(InputError, match=name):
        Limits(**({"max_workers": 1} | {name: value}))
