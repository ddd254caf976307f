"""The query and the replicas of the workers of a log: records of a stream beside the log.

So a new coordinator, on any machine, continues with the same registration, and two coordinators cannot give
the workers of one log different ones.

| record | payload |
|---|---|
| `plan` | `WorkerPlan.to_json` and the numbers of workers, as JSON; there is one |
| `replicas` | the number of a serving worker, and how many replicas it is to have; the last one counts |
"""

from dataclasses import replace
from typing import Final, cast

import orjson

from livegnn.arguments import check_int
from livegnn.cluster.spec import ClusterSpec
from livegnn.errors import InputError, LogError
from livegnn.log.streams import Record, StoredRecord
from livegnn.query import Query
from livegnn.types import JSON
from livegnn.workers import WorkerPlan
from livegnn.workers.messages import REGISTERED, read_all

PLAN: Final = "plan"
REPLICAS: Final = "replicas"


class Registration:
    """The registration for the log of `spec`. Thread safety: none.

    Raises LogError if another process has the right to register, or if the log's workers are those of another
    plan than `spec` makes.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        spec.place.create({REGISTERED: 1})
        self._stream = spec.place.write(REGISTERED, 0)
        self.plan: WorkerPlan | None = None
        self.replicas = dict.fromkeys(range(spec.serving_workers), 1)
        try:
            for record in read_all(self._stream):
                self._take(record)
        except BaseException:
            self.close()
            raise

    def register(self, query: Query) -> WorkerPlan:
        """The plan of `query`, from now on that of the log's workers; the same again does nothing.

        Raises InputError for a query that does not fit the schema, and if there is another one; what is
        registered stays as it was.
        """
        plan = self._spec.plan_of(query)
        if self.plan is not None and plan.seed is None:
            plan = replace(plan, seed=self.plan.seed)
        if self.plan is None:
            self._stream.append_all([Record(PLAN, orjson.dumps(_to_json(plan)))])
            self.plan = plan
        elif self.plan != plan:
            raise InputError(
                f"the query of a log's workers must stay {self.plan.query!r}, got {query!r}: take "
                "another log, or remove the streams worker-* and the checkpoints of the workers"
            )
        return self.plan

    def replicate(self, serving_worker: int, replicas: int) -> None:
        """Notes how many replicas a serving worker is to have. Raises InputError."""
        number = check_int(serving_worker, "serving_worker", 0, self._spec.serving_workers - 1)
        count = check_int(replicas, "replicas", 1, self._spec.replicas)
        if self.replicas[number] != count:
            self._stream.append_all([Record(REPLICAS, orjson.dumps([number, count]))])
            self.replicas[number] = count

    def close(self) -> None:
        """Lets another process register; again does nothing."""
        self._stream.close()

    def _take(self, record: StoredRecord) -> None:
        try:
            content = orjson.loads(record.payload)
            if record.type == PLAN:
                plan = self._spec.plan_of(Query.from_json(content["query"]))
                if self._spec.seed is None:  # workers of before had one that was registered
                    plan = replace(plan, seed=content["seed"])
                _check_same(_to_json(plan), content)
                self.plan = plan
            else:
                number, count = content
                if number in self.replicas:
                    self.replicas[number] = min(int(count), self._spec.replicas)
        except (ValueError, TypeError, KeyError) as error:
            raise LogError(
                f"expected a record of {REGISTERED!r}, got {record.payload[:80]!r}: {error}"
            ) from error


def _to_json(plan: WorkerPlan) -> dict[str, JSON]:
    numbers = {name: getattr(plan, name) for name in ("sampling_workers", "serving_workers", "replicas")}
    told: dict[str, JSON] = {**plan.to_json(), **numbers}
    if plan.moved:  # as in records from before there was a choice
        told["moved"] = [[seed, worker] for seed, worker in plan.moved.items()]
    if plan.placement != "both":
        told["placement"] = plan.placement
    return told


def _check_same(plan: dict[str, JSON], registered: dict[str, JSON]) -> None:
    for name in sorted(plan.keys() | registered.keys()):
        said, kept = plan.get(name), registered.get(name)
        if cast("object", orjson.loads(orjson.dumps(said))) != kept:
            raise LogError(
                f"{name} of the workers must be {kept!r:.200}, as was registered for this log, got "
                f"{said!r:.200}: change it back, or remove the streams worker-* and the checkpoints of "
                "the workers"
            )
