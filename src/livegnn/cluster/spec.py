"""The settings that all processes of a cluster need: the place of the log, the graph's types, the numbers of
workers.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

from livegnn.arguments import as_path, check_bool, check_int
from livegnn.errors import InputError
from livegnn.model import Model
from livegnn.query import Query
from livegnn.schema import Schema
from livegnn.wording import kind_of
from livegnn.workers import KafkaPlace, Place, SamplingWorker, ServingWorker, SqlitePlace, WorkerPlan


class Pace(NamedTuple):
    """beat_seconds: how often workers are asked how they are. checkpoint_seconds: how often all sampling
    workers write a checkpoint, 0 for never: then each writes one after so many steps. checkpoint_timeout: the
    seconds that this may take.
    """

    beat_seconds: float = 1.0
    checkpoint_seconds: float = 0.0
    checkpoint_timeout: float = 60.0


@dataclass(frozen=True)
class ClusterSpec:
    """Workers of one log. Paths are those of the machine that a worker runs on.

    place: where the log is; in files of one machine only if all nodes are on that one. directory: for
    checkpoints. shared: whether all nodes see the same files there. If not, a worker that is placed on
    another node reads the log from its beginning, so none of it and no step of a worker is trimmed.
    replicas: the most that a serving worker can have. model: a file, for predictions. budget_bytes: of a
    serving worker's cache, 0 for no limit. checkpoint_every: steps. listen: where serving workers
    listen: at "loopback", and then all of them are on the coordinator's machine; or at the address of their
    "node", where whoever reaches it may ask them. The others are of `WorkerPlan`.
    """

    place: SqlitePlace | KafkaPlace
    schema: Schema
    directory: Path
    sampling_workers: int = 1
    serving_workers: int = 1
    replicas: int = 1
    seed: int | None = None
    keep_edges: bool = True
    model: Path | None = None
    budget_bytes: int = 0
    shared: bool = True
    checkpoint_every: int = 1000
    moved: Mapping[int, int] = field(default_factory=dict)
    placement: str = "both"
    listen: str = "loopback"

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema):
            raise InputError(f"schema must be a Schema, got {kind_of(self.schema)}")
        if not isinstance(self.place, SqlitePlace | KafkaPlace):
            raise InputError(f"place must be a SqlitePlace or a KafkaPlace, got {kind_of(self.place)}")
        for name in ("sampling_workers", "serving_workers", "replicas", "checkpoint_every"):
            check_int(getattr(self, name), name, 1)
        check_int(self.budget_bytes, "budget_bytes", 0)
        place = copy.copy(self.place)
        if isinstance(place, SqlitePlace):
            place.path = place.path.absolute()
        object.__setattr__(self, "place", place)
        object.__setattr__(self, "directory", as_path(self.directory, "directory").absolute())
        object.__setattr__(self, "shared", check_bool(self.shared, "shared"))
        if self.listen not in ("loopback", "node"):
            raise InputError(f"listen must be 'loopback' or 'node', got {self.listen!r}")
        if self.model is not None:
            object.__setattr__(self, "model", as_path(self.model, "model").absolute())

    def is_like(self, other: "ClusterSpec") -> bool:
        """Whether both are the same specification."""
        return vars(self.place) == vars(other.place) and all(
            getattr(self, one.name) == getattr(other, one.name) for one in fields(self) if one.name != "place"
        )

    def plan_of(self, query: Query) -> WorkerPlan:
        """Raises InputError for a query that does not fit the schema, or that workers cannot have."""
        return WorkerPlan(
            self.schema,
            query,
            self.sampling_workers,
            self.serving_workers,
            self.replicas,
            self.seed,
            self.keep_edges,
            self.moved,
            self.placement,
        )

    def open_sampling(self, plan: WorkerPlan, number: int, node: str) -> SamplingWorker:
        """A sampling worker on the node of this address. Raises what `SamplingWorker` raises."""
        return SamplingWorker(
            self._place_on(node),
            plan,
            number,
            self.directory,
            checkpoint_every=self.checkpoint_every,
            trim=self.shared,
        )

    def open_serving(self, plan: WorkerPlan, number: int, replica: int, node: str) -> ServingWorker:
        """A serving worker on the node of this address, not started yet. Raises as `ServingWorker` does."""
        return ServingWorker(
            self._place_on(node),
            plan,
            number,
            None if self.model is None else Model.load(self.model),
            replica=replica,
            budget_bytes=self.budget_bytes or None,
            directory=self._own(node) / f"serving-{number}-{replica}" if self.budget_bytes else None,
        )

    def _place_on(self, node: str) -> Place:
        """The place of the log; what a node keeps of its own must not be that of another one."""
        place = copy.copy(self.place)
        if isinstance(place, KafkaPlace):
            place.folder = self._own(node)
            place.folder.mkdir(parents=True, exist_ok=True)
        return place

    def _own(self, node: str) -> Path:
        return self.directory / ("node-" + node.replace(":", "-"))
