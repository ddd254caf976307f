"""`[workers]`: sampling and serving workers of the deployment's log (see docs/workers.md)."""

import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from livegnn.arguments import above_zero, not_negative
from livegnn.errors import InputError, LogError
from livegnn.model import Model
from livegnn.sampling.model_query import fit_query

if TYPE_CHECKING:
    from livegnn.cluster import ClusterSpec, Pace, Patience
    from livegnn.deployment import Deployment
    from livegnn.workers import (
        KafkaPlace,
        PlanState,
        SamplingWorker,
        ServingWorker,
        SqlitePlace,
        WorkerPlan,
    )


@dataclass(frozen=True)
class WorkersSection:
    """`[workers]`: how many there are, and where each keeps its checkpoints. budget_bytes: of a serving
    worker's cache, beyond which it goes to the disk; 0 for no limit. The other fields are of `WorkerPlan`.
    Raises InputError.
    """

    directory: Path
    sampling: int = 1
    serving: int = 1
    replicas: int = 1
    seed: int | None = None
    keep_edges: bool = True
    budget_bytes: int = 0
    moved: dict[str, int] | None = None
    placement: str = "both"

    def __post_init__(self) -> None:
        for seed in self.moved or ():
            if not seed.removeprefix("-").isdecimal():
                raise InputError(f"moved must have ids as keys, got {seed!r}")


@dataclass(frozen=True)
class ClusterSection:
    """`[cluster]`: Ray, which runs the workers, and how they are watched. ray: the address of its head node;
    empty to start one on this machine. shared: whether `directory` of `[workers]` has the same files on all
    machines. listen: as of `ClusterSpec`. The other fields are of `Patience` and `Pace`.
    """

    ray: str = ""
    namespace: str = "livegnn"
    shared: bool = True
    listen: str = "loopback"
    beat_seconds: float = 1.0
    silent_seconds: float = 10.0
    stuck_seconds: float = 60.0
    start_seconds: float = 120.0
    checkpoint_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in ("beat_seconds", "silent_seconds", "stuck_seconds", "start_seconds"):
            above_zero(getattr(self, name), name)
        not_negative(self.checkpoint_seconds, "checkpoint_seconds")
        if self.listen not in ("loopback", "node"):
            raise InputError(f"listen must be 'loopback' or 'node', got {self.listen!r}")

    def patience(self) -> "Patience":
        """When a worker is given up."""
        from livegnn.cluster import Patience

        return Patience(self.silent_seconds, self.stuck_seconds, self.start_seconds)

    def pace(self) -> "Pace":
        """How often workers are asked, and write checkpoints."""
        from livegnn.cluster import Pace

        return Pace(self.beat_seconds, self.checkpoint_seconds)


def plan_workers(deployment: "Deployment") -> "tuple[WorkerPlan, Model]":
    """The plan of a deployment's workers, and its model. Raises InputError, ModelError, FileFormatError."""
    from livegnn.workers import WorkerPlan

    section = deployment.workers
    if section is None or deployment.model is None:
        missing = "[workers]" if section is None else "[model]"
        raise InputError(f"workers need a section {missing}, got none: docs/deployment.md")
    model = Model.load(deployment.model.path)
    graph = deployment.load_graph()
    if any(graph.num_nodes(name) for name in graph.schema.node_types):
        raise InputError(
            f"the graph in {deployment.graph.path} must be empty, because workers know what the log says "
            "alone: append its nodes and edges as events"
        )
    deployment.complete_schema(graph)
    fit_query(model, graph.schema)
    assert model.query is not None
    plan = WorkerPlan(
        graph.schema,
        model.query,
        section.sampling,
        section.serving,
        section.replicas,
        section.seed,
        section.keep_edges,
        {int(seed): worker for seed, worker in (section.moved or {}).items()},
        section.placement,
    )
    return plan, model


def open_sampling(
    deployment: "Deployment", worker: int, stopped: threading.Event | None = None
) -> "SamplingWorker":
    """A sampling worker, at the end of the steps that it has recorded; `stopped` ends its `run`.

    Raises LogError and as above.
    """
    from livegnn.workers import SamplingWorker

    plan, _ = plan_workers(deployment)
    assert deployment.workers is not None
    return SamplingWorker(_place_of(deployment), plan, worker, deployment.workers.directory, stopped=stopped)


def resize_workers(deployment: "Deployment", finishing: bool, timeout: float) -> "PlanState":
    """Changes the plan in effect to the deployment's numbers, or finishes that: see `resize`, `finish`."""
    from livegnn.workers import finish, resize

    plan, _ = plan_workers(deployment)
    return (finish if finishing else resize)(_place_of(deployment), plan, timeout=timeout)


def open_serving(deployment: "Deployment", worker: int, replica: int) -> "ServingWorker":
    """A serving worker, not started yet. Raises LogError and as above."""
    from livegnn.workers import ServingWorker

    plan, model = plan_workers(deployment)
    section = deployment.workers
    assert section is not None
    spilled = section.directory / f"serving-{worker}-{replica}" if section.budget_bytes else None
    return ServingWorker(
        _place_of(deployment),
        plan,
        worker,
        model,
        replica=replica,
        budget_bytes=section.budget_bytes or None,
        directory=spilled,
    )


def cluster_spec(deployment: "Deployment") -> "tuple[ClusterSpec, WorkerPlan]":
    """What the processes of a cluster must know, and the plan. Raises as `plan_workers`."""
    from livegnn.cluster import ClusterSpec

    plan, _ = plan_workers(deployment)
    section, model = deployment.workers, deployment.model
    assert section is not None
    assert model is not None
    spec = ClusterSpec(
        _place_of(deployment),
        plan.schema,
        section.directory,
        section.sampling,
        section.serving,
        section.replicas,
        section.seed,
        section.keep_edges,
        model=model.path,
        budget_bytes=section.budget_bytes,
        moved=plan.moved,
        placement=plan.placement,
        shared=deployment.cluster.shared,
        listen=deployment.cluster.listen,
    )
    return spec, plan


def hold_log(deployment: "Deployment") -> None:
    """Has the log kept for sampling workers that were never started: they read it from its beginning. From
    then on each of them holds what it needs. Raises LogError.
    """
    from livegnn.log.streams.sqlite import is_made, path_of
    from livegnn.workers import SqlitePlace
    from livegnn.workers.messages import CHANGES

    section, log = deployment.workers, deployment.log
    if section is None or log.path is None or log.keep == "all" or is_made(path_of(log.path, CHANGES, 0)):
        return
    for worker in range(section.sampling):
        with suppress(LogError):  # it starts at this moment
            SqlitePlace(log.path).tail(f"sampling-{worker}").close()


def _place_of(deployment: "Deployment") -> "SqlitePlace | KafkaPlace":
    from livegnn.workers import KafkaPlace, SqlitePlace

    log = deployment.log
    if log.path is not None:
        return SqlitePlace(log.path)
    assert deployment.workers is not None
    return KafkaPlace(log.kafka, log.topic, deployment.workers.directory)
