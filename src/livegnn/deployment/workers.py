"""Sampling and serving workers of a deployment's log (see docs/workers.md)."""

import threading
from typing import TYPE_CHECKING

from livegnn.deployment import Deployment
from livegnn.errors import InputError
from livegnn.model import Model
from livegnn.sampling.model_query import fit_query

if TYPE_CHECKING:
    from livegnn.cluster import ClusterSpec
    from livegnn.workers import (
        KafkaPlace,
        PlanState,
        SamplingWorker,
        ServingWorker,
        SqlitePlace,
        WorkerPlan,
    )


def plan_workers(deployment: Deployment) -> "tuple[WorkerPlan, Model]":
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
    deployment: Deployment, worker: int, stopped: threading.Event | None = None
) -> "SamplingWorker":
    """A sampling worker, at the end of the steps that it has recorded; `stopped` ends its `run`.

    Raises LogError and as above.
    """
    from livegnn.workers import SamplingWorker

    plan, _ = plan_workers(deployment)
    assert deployment.workers is not None
    return SamplingWorker(_place_of(deployment), plan, worker, deployment.workers.directory, stopped=stopped)


def resize_workers(deployment: Deployment, finishing: bool, timeout: float) -> "PlanState":
    """Changes the plan in effect to the deployment's numbers, or finishes that: see `resize`, `finish`."""
    from livegnn.workers import finish, resize

    plan, _ = plan_workers(deployment)
    return (finish if finishing else resize)(_place_of(deployment), plan, timeout=timeout)


def open_serving(deployment: Deployment, worker: int, replica: int) -> "ServingWorker":
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


def cluster_spec(deployment: Deployment) -> "tuple[ClusterSpec, WorkerPlan]":
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


def _place_of(deployment: Deployment) -> "SqlitePlace | KafkaPlace":
    from livegnn.workers import KafkaPlace, SqlitePlace

    log = deployment.log
    if log.path is not None:
        return SqlitePlace(log.path)
    assert deployment.workers is not None
    return KafkaPlace(log.kafka, log.topic, deployment.workers.directory)
