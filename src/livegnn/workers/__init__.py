"""Sampling and serving workers: samples drawn in some processes, and served in others (Helios).

Sampling workers follow the log, each for the nodes that it owns, and publish samples and features to the
serving workers whose seeds need them. All messages between them are records of streams beside the log.
"""

from livegnn.workers.places import KafkaPlace, Place, SqlitePlace
from livegnn.workers.plan import WorkerPlan
from livegnn.workers.plan_state import PlanState
from livegnn.workers.resizing import finish, resize
from livegnn.workers.sampling import SamplingWorker
from livegnn.workers.serving import ServingWorker

__all__ = [
    "KafkaPlace",
    "Place",
    "PlanState",
    "SamplingWorker",
    "ServingWorker",
    "SqlitePlace",
    "WorkerPlan",
    "finish",
    "resize",
]
