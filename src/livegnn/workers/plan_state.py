"""The plan at one moment: how many workers there are, and which serving workers have which seeds.

Each change is a record (plan_record.py) with the whole state after it. It was stored or it was not, so a
change never happens in part; each sampling worker takes it in one of its steps.

    plan ─► plan, next ─► next          serving workers: by both, until those of `next` have what they need
                      └─► plan          given up
    generation g, plan ─► generation g + 1, plan          sampling workers: at one event, see handover.py

Invariants: at most one change is under way; numbers of states grow by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import orjson

from livegnn.errors import FileFormatError, LogError
from livegnn.types import JSON
from livegnn.workers.plan import WorkerPlan

_NUMBERS: Final = ("sampling_workers", "serving_workers", "replicas", "moved")


@dataclass(frozen=True)
class PlanState:
    """number: of the state, from 0. generation: how often the number of sampling workers was changed.
    next: by which seeds are moved to other serving workers, if any are.
    """

    number: int
    generation: int
    plan: WorkerPlan
    next: WorkerPlan | None = None

    @property
    def serving_workers(self) -> int:
        """The number of serving workers, including those that are about to be removed or were just added."""
        return max(plan.serving_workers for plan in (self.plan, self.next or self.plan))

    @property
    def replicas(self) -> int:
        """The number of replicas that each serving worker may have now."""
        return max(plan.replicas for plan in (self.plan, self.next or self.plan))

    def to_bytes(self) -> bytes:
        """As JSON."""
        following = None if self.next is None else _numbers_of(self.next)
        state = [self.number, self.generation, self.plan.to_json(), _numbers_of(self.plan), following]
        return orjson.dumps(state)

    @classmethod
    def from_bytes(cls, payload: bytes, plan: WorkerPlan) -> "PlanState":
        """The state, with the rest of `plan`; a plan without a seed takes the seed of the state.

        Raises FileFormatError if workers of another plan have written it, LogError for anything else.
        """
        try:
            number, generation, common, present, following = orjson.loads(payload)
            if plan.seed is None:
                plan = replace(plan, seed=common["seed"])
            if common != orjson.loads(orjson.dumps(plan.to_json())):
                raise FileFormatError(
                    "workers of one log must have one plan (schema, query, seed, keep_edges), got another "
                    "than that of the workers before: start them beside another log, or remove the streams "
                    "and checkpoints of all workers"
                )
            after = None if following is None else _with_numbers(plan, following)
            return cls(int(number), int(generation), _with_numbers(plan, present), after)
        except (ValueError, TypeError, KeyError) as error:
            raise LogError(f"expected the state of a plan, got {payload[:80]!r}") from error


def recorded_numbers(payload: bytes) -> dict[str, JSON]:
    """The common part and the numbers in effect of a recorded state, by name. Raises LogError."""
    try:
        _, _, common, present, _ = orjson.loads(payload)
        return {**common, **dict(zip(_NUMBERS, present, strict=True))}
    except (ValueError, TypeError) as error:
        raise LogError(f"expected the state of a plan, got {payload[:80]!r}") from error


def numbers_of(plan: WorkerPlan) -> dict[str, JSON]:
    """The same of a plan."""
    return {**plan.to_json(), **dict(zip(_NUMBERS, _numbers_of(plan), strict=True))}


def same_numbers(one: WorkerPlan, other: WorkerPlan) -> bool:
    """Whether two plans have the same numbers of workers and the same moved seeds."""
    return _numbers_of(one) == _numbers_of(other)


def _numbers_of(plan: WorkerPlan) -> list[JSON]:
    moved = [[seed, worker] for seed, worker in plan.moved.items()]
    return [plan.sampling_workers, plan.serving_workers, plan.replicas, cast("JSON", moved)]


def _with_numbers(plan: WorkerPlan, numbers: Sequence[object]) -> WorkerPlan:
    sampling, serving, replicas, moved = cast("tuple[int, int, int, list[list[int]]]", numbers)
    return replace(
        plan,
        sampling_workers=sampling,
        serving_workers=serving,
        replicas=replicas,
        moved={seed: worker for seed, worker in moved},  # noqa: C416 (lists are not pairs)
    )
