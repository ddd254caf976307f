"""Sampling and serving workers of a deployment's log (see docs/workers.md)."""

import threading

from livegnn.arguments import convert
from livegnn.cluster import ClusterSpec
from livegnn.deployment import Deployment
from livegnn.errors import InputError
from livegnn.model import Model
from livegnn.sampling.model_query import fit_query
from livegnn.workers import (
    KafkaPlace,
    PlanState,
    SamplingWorker,
    ServingWorker,
    SqlitePlace,
    WorkerPlan,
    finish,
    resize,
)


def plan_workers(deployment: Deployment) -> tuple[WorkerPlan, Model]:
    """The plan of a deployment's workers, and its model. Raises InputError, ModelError, FileFormatError."""
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
    return convert(section, WorkerPlan, schema=graph.schema, query=model.query), model


def open_sampling(
    deployment: Deployment, worker: int, stopped: threading.Event | None = None
) -> SamplingWorker:
    """A sampling worker, at the end of the steps that it has recorded; `stopped` ends its `run`.

    Raises LogError and as above.
    """
    plan, _ = plan_workers(deployment)
    assert deployment.workers is not None
    return SamplingWorker(_place_of(deployment), plan, worker, deployment.workers.directory, stopped=stopped)


def resize_workers(deployment: Deployment, finishing: bool, timeout: float) -> PlanState:
    """Changes the plan in effect to the deployment's numbers, or finishes that: see `resize`, `finish`."""
    plan, _ = plan_workers(deployment)
    return (finish if finishing else resize)(_place_of(deployment), plan, timeout=timeout)


def open_serving(deployment: Deployment, worker: int, replica: int) -> ServingWorker:
    """A serving worker, not started yet. Raises LogError and as above."""
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


def cluster_spec(deployment: Deployment) -> tuple[ClusterSpec, WorkerPlan]:
    """What the processes of a cluster must know, and the plan. Raises as `plan_workers`."""
    plan, _ = plan_workers(deployment)
    assert deployment.model is not None
    cluster = deployment.cluster
    own = {"place": _place_of(deployment), "schema": plan.schema, "model": deployment.model.path}
    spec = convert(deployment.workers, ClusterSpec, **own, shared=cluster.shared, listen=cluster.listen)
    return spec, plan


def _place_of(deployment: Deployment) -> SqlitePlace | KafkaPlace:
    log = deployment.log
    if log.path is not None:
        return SqlitePlace(log.path)
    assert deployment.workers is not None
    return KafkaPlace(log.kafka, log.topic, deployment.workers.directory)
