"""`Cluster`: the workers of a log in a Ray cluster, as a process sees them that has joined it."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from livegnn.arguments import check_not_negative
from livegnn.cluster.coordinator import Coordinator, WorkerState
from livegnn.cluster.spec import ClusterSpec, Pace
from livegnn.cluster.watch import Patience
from livegnn.errors import InputError, LiveGNNError, LogError, TimeoutExpired
from livegnn.model import Model
from livegnn.query import Query
from livegnn.workers import WorkerPlan
from livegnn.workers.plan_model import fit_model

if TYPE_CHECKING:
    from ray.actor import ActorHandle

_NAME: Final = "coordinator"
_THREADS: Final = 16
_SECONDS: Final = 60.0  # that an answer of the coordinator may take

_Answer = TypeVar("_Answer")


class Cluster:
    """A client of the coordinator of a log's workers. `Cluster.start` makes one. Any thread may call it.

    Each call raises TimeoutExpired if the coordinator does not answer within a minute, and LogError if it
    cannot.
    """

    def __init__(self, spec: ClusterSpec, coordinator: "ActorHandle[Any]") -> None:
        self.spec = spec
        self._coordinator = coordinator

    @classmethod
    def start(
        cls,
        spec: ClusterSpec,
        *,
        namespace: str = "livegnn",
        patience: Patience | None = None,
        pace: Pace | None = None,
    ) -> "Cluster":
        """Starts a coordinator, or finds the one that runs in this namespace of Ray. Call `ray.init` before.

        A coordinator that is found keeps its own patience and pace. Raises InputError if it was made with
        another specification; LogError if the log cannot be opened.
        """
        if not ray.is_initialized():
            raise InputError(
                "a cluster needs a process that has joined Ray, got one that has not: ray.init()"
            )
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        made = ray.remote(Coordinator).options(
            name=_NAME,
            namespace=namespace,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=_THREADS,
            scheduling_strategy=here,
        )
        before = _is_there(namespace)
        cluster = cls(
            spec,
            cast("ActorHandle[Any]", made.remote(spec, patience or Patience(), pace or Pace(), namespace)),
        )
        try:
            cluster._ask(int, "begin", spec)
        except LiveGNNError:
            if not before:
                ray.kill(cluster._coordinator)
            raise
        return cluster

    @classmethod
    def find(cls, spec: ClusterSpec, *, namespace: str = "livegnn") -> "Cluster":
        """The cluster that runs in this namespace of Ray. Raises InputError if there is none, or if it was
        started with another specification."""
        if not _is_there(namespace):
            raise InputError(
                f"a cluster must run in the namespace {namespace!r} of this Ray, got none: start it with "
                "livegnn cluster up"
            )
        cluster = cls(spec, ray.get_actor(_NAME, namespace=namespace))
        cluster._ask(int, "begin", spec)
        return cluster

    def register(self, query: Query) -> WorkerPlan:
        """Registers the query of the workers and starts them; again with the same query does nothing.

        Raises InputError for a query that does not fit the schema, and if there is another one, and
        ModelError for one that does not fit the model: then nothing changes.
        """
        plan = self.spec.plan_of(query)
        if self.spec.model is not None and self.spec.model.exists():  # a driver elsewhere may have none
            fit_model(Model.load(self.spec.model), plan)
        self._ask(type(None), "register", query.to_json())
        return plan

    def replicate(self, serving_worker: int, replicas: int) -> None:
        """Has `replicas` workers answer for the seeds of one serving worker. Raises InputError."""
        self._ask(type(None), "replicate", serving_worker, replicas)

    def replicas(self) -> dict[int, int]:
        """The number of workers that are to answer for the seeds of each serving worker."""
        return self._ask(dict, "replicas")

    def drain(self, machine: str, on: bool = True, timeout: float = 30.0) -> list[str]:
        """As `Coordinator.drain`. Raises InputError."""
        timeout = check_not_negative(timeout, "timeout, in seconds,")
        return self._ask(list, "drain", machine, on, timeout, patience=timeout + _SECONDS)

    def addresses(self) -> list[list[str]]:
        """For each serving worker the addresses of those that can answer; none while all are replaced."""
        return cast("list[list[str]]", self._ask(list, "addresses"))

    def workers(self) -> list[WorkerState]:
        """The state of each worker."""
        return cast("list[WorkerState]", self._ask(list, "workers"))

    def said(self) -> list[str]:
        """The workers that were started and ended, and why: the last thousand lines."""
        return cast("list[str]", self._ask(list, "said"))

    def checkpoint(self, timeout: float = 60.0) -> int:
        """Has all sampling workers write a checkpoint, and waits; returns the least of their events.

        Raises TimeoutExpired that names those that have not within `timeout` seconds.
        """
        timeout = check_not_negative(timeout, "timeout, in seconds,")
        return self._ask(int, "checkpoint", timeout, patience=timeout + _SECONDS)

    def stop(self, timeout: float = 30.0) -> None:
        """Ends workers and coordinator. Sampling workers write a checkpoint, if that takes less than this
        number of seconds."""
        try:
            self._ask(type(None), "stop", timeout, patience=2 * timeout + _SECONDS)
        finally:
            with suppress(RayError, ValueError):
                ray.kill(self._coordinator)

    def _ask(self, kind: type[_Answer], method: str, *given: object, patience: float = _SECONDS) -> _Answer:
        try:
            answer = ray.get(getattr(self._coordinator, method).remote(*given), timeout=patience)
        except RayTaskError as error:
            if isinstance(error.cause, LiveGNNError):
                raise error.cause from None
            raise LogError(f"the coordinator has failed: {error}") from error
        except GetTimeoutError as error:
            raise TimeoutExpired(
                f"expected an answer of the coordinator within {patience:.0f} seconds, got none: is "
                "Ray's head node there?"
            ) from error
        except RayError as error:
            raise LogError(f"the coordinator does not answer: {error}") from error
        assert isinstance(answer, kind)
        return answer


def _is_there(namespace: str) -> bool:
    with suppress(ValueError):
        ray.get_actor(_NAME, namespace=namespace)
        return True
    return False
