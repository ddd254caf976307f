"""Other numbers of workers, and seeds on other serving workers, while events and requests continue.

A change is announced by one record (plan_record.py), so it has happened or it has not, wherever this process
ends; the next call resumes it. Serving workers change in two records: after the first, seeds have their old
and their new workers, after the second, the new ones alone.
"""

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final

from livegnn.arguments import check_not_negative
from livegnn.errors import InputError, LogError, TimeoutExpired
from livegnn.workers.messages import END, READY, read_all, requests_of, steps_of
from livegnn.workers.places import Place
from livegnn.workers.plan import WorkerPlan
from livegnn.workers.plan_record import PlanWriter, begin_states, refuse_in_cluster
from livegnn.workers.plan_state import PlanState, same_numbers

_PAUSE: Final = 0.05
_MARKS: Final = 3  # that may follow a record in Kafka


def resize(place: Place, plan: WorkerPlan, *, timeout: float = 600.0) -> PlanState:
    """Changes the plan in effect to the numbers of `plan`; returns the new state.

    Serving workers, replicas and moved seeds: returns when all serving workers of both plans have their data.
    Requests for seeds may then go to the workers of either plan, until `finish`. A change under way is
    cancelled by a call with the old plan. Sampling workers: returns when the old ones have ended; the new
    ones continue.

    Raises InputError if both change at once, if another change is under way, or if the workers are those of a
    cluster, which would keep the old plan; TimeoutExpired: the change stays announced, and calling again
    waits again; LogError.
    """
    ends = time.monotonic() + check_not_negative(timeout, "timeout, in seconds,")
    now = begin_states(place, plan)[-1]
    refuse_in_cluster(place)
    plan = replace(plan, seed=now.plan.seed)
    if now.next is not None:
        if same_numbers(plan, now.plan):
            return _append(place, replace(now, number=now.number + 1, next=None))
        _check_next(plan, now)
    elif not same_numbers(plan, now.plan):
        _wait(ends, "those of the change before", lambda: _sampling_have_begun(place, now))
        sampling = replace(now.plan, sampling_workers=plan.sampling_workers)
        if plan.sampling_workers == now.plan.sampling_workers:
            now = _append(place, replace(now, number=now.number + 1, next=plan))
        elif same_numbers(plan, sampling):
            now = _append(place, PlanState(now.number + 1, now.generation + 1, plan))
        else:
            raise InputError(
                "sampling workers and serving workers change one after the other, got other numbers of both: "
                "change the number of the sampling workers first"
            )
    if now.next is not None:
        _wait(ends, "all serving workers to have what they need", lambda: _serving_are_ready(place, now))
    else:
        _wait(ends, "the sampling workers before to end", lambda: _sampling_have_ended(place, now))
    return now


def finish(place: Place, plan: WorkerPlan, *, timeout: float = 600.0) -> PlanState:
    """Ends a change of serving workers to the numbers of `plan`: the workers before lose the seeds that the
    new ones have. To be called when requests go to the new ones; does nothing if it was done.

    Raises InputError if no such change is under way, or if the workers are those of a cluster;
    TimeoutExpired, LogError.
    """
    ends = time.monotonic() + check_not_negative(timeout, "timeout, in seconds,")
    now = begin_states(place, plan)[-1]
    refuse_in_cluster(place)
    plan = replace(plan, seed=now.plan.seed)
    if now.next is None and same_numbers(plan, now.plan):
        return now
    if now.next is None:
        raise InputError("there must be a change of the plan to finish, got none: resize first")
    _check_next(plan, now)
    _wait(ends, "all serving workers to have what they need", lambda: _serving_are_ready(place, now))
    return _append(place, PlanState(now.number + 1, now.generation, now.next))


def _check_next(plan: WorkerPlan, now: PlanState) -> None:
    assert now.next is not None
    if not same_numbers(plan, now.next):
        raise InputError(
            f"a change to {now.next.serving_workers} serving workers with {now.next.replicas} replicas is "
            "under way, got another one: finish it first, or go back to the plan before"
        )


def _append(place: Place, state: PlanState) -> PlanState:
    with closing(PlanWriter.open(place)) as writer:
        writer.append_state(state)
    newest = begin_states(place, state.plan)[-1]
    if newest != state:
        raise LogError("the plan must be changed by one process at a time, got another change meanwhile")
    return state


def _wait(ends: float, what: str, done: Callable[[], bool]) -> None:
    while not done():
        if time.monotonic() > ends:
            raise TimeoutExpired(
                f"expected {what}, got some that have not: see that all workers run, and call again"
            )
        time.sleep(_PAUSE)


def _serving_are_ready(place: Place, state: PlanState) -> bool:
    assert state.next is not None
    return all(
        _is_ready(place, requests_of(state.generation, worker, replica), state.number)
        for worker in range(state.next.serving_workers)
        for replica in range(state.next.replicas)
    )


def _is_ready(place: Place, stream: str, number: int) -> bool:
    """Whether a serving worker has reported that it has all of change `number`."""
    place.create({stream: 1})
    with closing(place.read(stream, 0)) as found:
        told = read_all(found)
        return any(record.type == READY and int(record.payload) >= number for record in told)


def _sampling_have_begun(place: Place, state: PlanState) -> bool:
    """Workers of the first generation need not have begun, because no worker hands over to them."""
    return state.generation == 0 or all(
        _last_position(place, state.generation, worker) for worker in range(state.plan.sampling_workers)
    )


def _sampling_have_ended(place: Place, state: PlanState) -> bool:
    """Those of the generation before this state's."""
    if state.generation == 0:
        return True
    before = [one for one in begin_states(place, state.plan) if one.generation < state.generation][-1]
    return all(_has_ended(place, before.generation, worker) for worker in range(before.plan.sampling_workers))


def _last_position(place: Place, generation: int, worker: int) -> int:
    try:
        stream = place.read(steps_of(generation), worker)
    except LogError:  # it does not exist yet
        return 0
    with closing(stream):
        return stream.last_position()


def _has_ended(place: Place, generation: int, worker: int) -> bool:
    """Whether the last record of a worker's steps, which stays when it trims them, is its end."""
    with closing(place.read(steps_of(generation), worker)) as stream:
        last = stream.last_position()
        with suppress(LogError):  # earlier records were trimmed
            for after in range(last - 1, max(-1, last - 1 - _MARKS), -1):  # Kafka's marks are not records
                if found := stream.records(after):
                    return found[-1].type == END
        return False
