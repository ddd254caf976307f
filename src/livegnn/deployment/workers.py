"""Sampling and serving workers of a deployment's log (see docs/workers.md)."""

import threading

from livegnn.arguments import convert
from livegnn.cluster import ClusterSpec
from livegnn.deployment import Deployment
from livegnn.deployment.worker_sections import place_of
from livegnn.errors import InputError
from livegnn.model import Model
from livegnn.sampling.model_query import fit_query
from livegnn.workers import (
    PlanState,
    SamplingWorker,
    ServingWorker,
    WorkerPlan,
    finish,
    resize,
)


def plan_workers(deployment: Deployment) -> WorkerPlan:
    """The plan of a deployment's workers. Raises InputError, ModelError, FileFormatError."""
    section = deployment.workers
    if section is None or deployment.model is None:
        missing = "[workers]" if section is None else "[model]"
        raise InputError(f"workers need a section {missing}, got none: docs/deployment.md")
    model = Model.load(deployment.model.path)
    schema = deployment.load_empty_schema("workers")
    fit_query(model, schema)
    assert model.query is not None
    return convert(section, WorkerPlan, schema=schema, query=model.query)


def open_sampling(
    deployment: Deployment, worker: int, stopped: threading.Event | None = None
) -> SamplingWorker:
    """A sampling worker, at the end of the steps that it has recorded; `stopped` ends its `run`.

    Raises LogError and as above.
    """
    spec, plan = _specify(deployment)
    return spec.open_sampling(plan, worker, None, stopped)


def resize_workers(deployment: Deployment, finishing: bool, timeout: float) -> PlanState:
    """Changes the plan in effect to the deployment's numbers, or finishes that: see `resize`, `finish`."""
    spec, plan = _specify(deployment)
    return (finish if finishing else resize)(spec.place, plan, timeout=timeout)


def open_serving(deployment: Deployment, worker: int, replica: int) -> ServingWorker:
    """A serving worker, not started yet. Raises LogError and as above."""
    spec, plan = _specify(deployment)
    return spec.open_serving(plan, worker, replica, None)


def cluster_spec(deployment: Deployment) -> tuple[ClusterSpec, WorkerPlan]:
    """The settings for all processes of a cluster, and the plan. Raises as `plan_workers`."""
    return _specify(deployment, shared=deployment.cluster.shared, listen=deployment.cluster.listen)


def _specify(deployment: Deployment, **of_cluster: bool | str) -> tuple[ClusterSpec, WorkerPlan]:
    plan = plan_workers(deployment)
    log, section = deployment.log, deployment.workers
    assert section is not None
    assert deployment.model is not None
    own = {"place": place_of(log, section.directory), "model": deployment.model.path}
    return convert(section, ClusterSpec, schema=plan.schema, **own, **of_cluster), plan
