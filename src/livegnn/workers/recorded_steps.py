"""The inputs of steps that a sampling worker has recorded: its replacement takes the same again.

Thread safety: none.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from livegnn.errors import LogError
from livegnn.log import AppliedBatch, Tail
from livegnn.log.streams import StoredRecord
from livegnn.workers.messages import ANEW, END, Step, read_new, read_up_to
from livegnn.workers.plan import WorkerPlan
from livegnn.workers.plan_state import PlanState
from livegnn.workers.sampling_streams import SamplingStreams


class Round(NamedTuple):
    """A step and what it takes: batches of the log, records of other sampling workers, requests of serving
    workers by number and replica, states of the plan.
    """

    step: Step
    batches: Sequence[AppliedBatch] = ()
    records: Mapping[int, Sequence[StoredRecord]] = MappingProxyType({})
    requests: Mapping[tuple[int, int], Sequence[StoredRecord]] = MappingProxyType({})
    states: Sequence[PlanState] = ()


def read_recorded(
    streams: SamplingStreams, tail: Tail, plan: WorkerPlan, now: Step, position: int
) -> Iterator[tuple[int, Round]]:
    """The steps after `position` in the stream of steps, each with its own position.

    now: the inputs taken until then. The caller takes each step before it requests the next one. Raises
    LogError if an input of these steps is missing or has changed.
    """
    steps = streams.steps
    if steps.last_position() < position:
        raise LogError(
            f"the stream of steps must reach step {position}, of which the checkpoint is, got one that ends "
            f"at {steps.last_position()}: it was removed, or is of another log. {ANEW}"
        )
    while steps.last_position() > position:
        try:
            found = read_new(steps, position)
        except LogError as error:
            raise LogError(
                f"the checkpoint is older than the steps that are kept: {error}. {ANEW}"
            ) from error
        if not found:
            return
        for record in found:
            if record.type == END:
                return
            step = Step.from_bytes(record.payload)
            took = Round(
                step,
                _read_batches(tail, now.seq, step),
                {k: read_up_to(streams.heard[k], now.received[k], at) for k, at in step.received.items()},
                {
                    key: read_up_to(streams.asked[key], now.requests.get(key, 0), at)
                    for key, at in step.requests.items()
                },
                _read_states(streams, plan, now.states, step.states),
            )
            yield record.position, took
            requests = {**now.requests, **step.requests}  # of some workers there may be none in a step
            now, position = step._replace(requests=requests), record.position


def check_history(tail: Tail, seq: int, digest: str | None) -> None:
    """Raises LogError if the log up to an event is not the one that was there before."""
    ours = tail.digest(seq) if digest else None
    if ours is not None and ours != digest:
        raise LogError(
            f"the log must have the history up to event {seq} that this worker has taken, got another one: "
            f"it was started again, or restored. {ANEW}"
        )


def _read_states(streams: SamplingStreams, plan: WorkerPlan, after: int, up_to: int) -> Sequence[PlanState]:
    """The states of the plan without the first `after`, up to `up_to` in all."""
    streams.plan.read()
    found = streams.plan.states(plan, after)[: up_to - after]
    if len(found) < up_to - after:
        raise LogError(
            f"the record of the plan must have {up_to} states, which were taken before, got "
            f"{after + len(found)}: it has lost its end, or is another one. {ANEW}"
        )
    return found


def _read_batches(tail: Tail, after: int, step: Step) -> Sequence[AppliedBatch]:
    found: list[AppliedBatch] = []
    at = after
    while at < step.seq:
        some = [one for one in tail.batches(step.seq - at) if one.batch.seq <= step.seq]
        if not some:
            raise LogError(
                f"the log must have batches up to event {step.seq}, which were taken before, got them up to "
                f"{at}: it has lost its end, or is another one. {ANEW}"
            )
        found += some
        at = some[-1].batch.seq
        if at == step.seq:
            check_history(tail, at, step.digest)
        tail.commit(at)
    return found
