"""The record of the plan, as the coordinator owns it while it runs (workers/plan_record.py).

So a new coordinator, on any machine, continues with the same query, replicas and drained machines, and two
coordinators cannot give the workers of one log different ones.
"""

from contextlib import suppress
from dataclasses import replace
from typing import cast

import orjson

from livegnn.arguments import check_int
from livegnn.cluster.spec import ClusterSpec
from livegnn.errors import InputError, LogError
from livegnn.query import Query
from livegnn.types import JSON
from livegnn.workers import WorkerPlan
from livegnn.workers.plan_record import PlanWriter
from livegnn.workers.plan_state import numbers_of


class Registration:
    """The record of the plan for the log of `spec`. Thread safety: none.

    plan: of the workers of the cluster, None before it is registered. Raises LogError if another process owns
    the record, or if the log's workers are those of another plan than `spec` makes.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._record = PlanWriter.open(spec.place)
        self.plan: WorkerPlan | None = None
        try:
            recorded = self._record.numbers
            if self._record.in_cluster and recorded is not None:
                self.plan = self._check_same(recorded)
        except BaseException:
            self.close()
            raise

    @property
    def replicas(self) -> dict[int, int]:
        """The number of replicas that each serving worker is to have."""
        wanted, most = self._record.replicas, self._spec.replicas
        return {number: min(wanted.get(number, 1), most) for number in range(self._spec.serving_workers)}

    @property
    def drained(self) -> set[str]:
        """The machines that take no workers."""
        return set(self._record.drained)

    def register(self, query: Query) -> WorkerPlan:
        """The plan of `query`, from now on that of the log's workers; the same again does nothing.

        Raises InputError for a query that does not fit the schema, and if there is another one, LogError if
        workers that were started by hand have other numbers; the record stays as it was.
        """
        plan = self._spec.plan_of(query)
        recorded = self._record.numbers
        if recorded is None:
            self._record.begin(plan)
        elif recorded["query"] != _as_read(query.to_json()):
            raise InputError(
                f"the query of a log's workers must stay {recorded['query']!r:.200}, got {query!r}: take "
                "another log, or remove the streams worker-* and plan and the checkpoints of the workers"
            )
        recorded = self._record.numbers
        assert recorded is not None
        self.plan = self._check_same(recorded)
        self._record.set_cluster(True)
        return self.plan

    def replicate(self, serving_worker: int, replicas: int) -> None:
        """Notes how many replicas a serving worker is to have. Raises InputError."""
        number = check_int(serving_worker, "serving_worker", 0, self._spec.serving_workers - 1)
        self._record.set_replicas(number, check_int(replicas, "replicas", 1, self._spec.replicas))

    def drain(self, machine: str, on: bool) -> None:
        """Notes whether a machine takes no workers."""
        self._record.set_drained(machine, on)

    def release(self) -> None:
        """Notes that the cluster has ended its workers, and closes."""
        with suppress(LogError):  # another coordinator has the record now
            self._record.set_cluster(False)
        self.close()

    def close(self) -> None:
        """Lets another process have the record; again does nothing."""
        self._record.close()

    def _check_same(self, recorded: dict[str, JSON]) -> WorkerPlan:
        """The plan that is recorded. Raises LogError unless `spec` makes the same."""
        plan = self._spec.plan_of(Query.from_json(cast("dict[str, JSON]", recorded["query"])))
        if plan.seed is None:
            plan = replace(plan, seed=cast("int", recorded["seed"]))
        numbers = cast("dict[str, JSON]", _as_read(numbers_of(plan)))
        for name, said in sorted(numbers.items()):
            if said != recorded.get(name):
                raise LogError(
                    f"{name} of the workers must be {recorded.get(name)!r:.200}, as the record of the plan "
                    f"says, got {said!r:.200}: change it back, or remove the streams worker-* and plan and "
                    "the checkpoints of the workers"
                )
        return plan


def _as_read(value: JSON) -> object:
    return cast("object", orjson.loads(orjson.dumps(value)))
