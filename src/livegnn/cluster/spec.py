"""The settings that all processes of a cluster need: the place of the log, the graph's types, the numbers of
workers.
"""

import copy
import threading
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from livegnn.arguments import as_path, check_bool, check_int, check_not_negative, check_positive, convert
from livegnn.errors import InputError
from livegnn.http.access import AccessSettings
from livegnn.model import Model
from livegnn.query import Query
from livegnn.schema import Schema
from livegnn.wording import kind_of
from livegnn.workers import KafkaPlace, Place, SamplingWorker, ServingWorker, SqlitePlace, WorkerPlan
from livegnn.workers.plan import WorkerNumbers

_FILES: Final = ("model", "keys", "tls_certificate", "tls_key", "tls_clients")


@dataclass(frozen=True)
class Pace:
    """beat_seconds: the time between two requests for reports of the workers. checkpoint_seconds: the time
    between two checkpoints of all sampling workers; with 0, each writes one after a number of steps.
    """

    beat_seconds: float = 1.0
    checkpoint_seconds: float = 0.0

    def __post_init__(self) -> None:
        check_positive(self.beat_seconds, "beat_seconds")
        check_not_negative(self.checkpoint_seconds, "checkpoint_seconds")


@dataclass(frozen=True)
class _Log:
    place: SqlitePlace | KafkaPlace
    schema: Schema
    directory: Path


@dataclass(frozen=True)
class ClusterSpec(AccessSettings, WorkerNumbers, _Log):
    """Workers of one log, and the clients that serving workers admit. Paths are those of the machine that a
    worker runs on.

    place: of the log; in files of one machine only if all workers are on that one. directory: for
    checkpoints. shared: whether all machines see the same files there. If not, a worker that is placed on
    another machine reads the log from its beginning, so none of it and no step of a worker is trimmed.
    replicas: the most that a serving worker can have. model: a file, for predictions. budget_bytes: of a
    serving worker's cache, 0 for no limit. checkpoint_every: steps. listen: the addresses of serving workers:
    "loopback", and then all of them are on the coordinator's machine; or the address of their "node", which
    needs keys, or `insecure`.
    """

    model: Path | None = None
    budget_bytes: int = 0
    shared: bool = True
    checkpoint_every: int = 1000
    listen: str = "loopback"

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema):
            raise InputError(f"schema must be a Schema, got {kind_of(self.schema)}")
        if not isinstance(self.place, SqlitePlace | KafkaPlace):
            raise InputError(f"place must be a SqlitePlace or a KafkaPlace, got {kind_of(self.place)}")
        super().__post_init__()
        check_int(self.checkpoint_every, "checkpoint_every", 1)
        check_int(self.budget_bytes, "budget_bytes", 0)
        place = copy.copy(self.place)
        if isinstance(place, SqlitePlace):
            place.path = place.path.absolute()
        object.__setattr__(self, "place", place)
        object.__setattr__(self, "directory", as_path(self.directory, "directory").absolute())
        object.__setattr__(self, "shared", check_bool(self.shared, "shared"))
        if self.listen not in ("loopback", "node"):
            raise InputError(f"listen must be 'loopback' or 'node', got {self.listen!r}")
        if self.listen == "node":
            self.check_address("node", "listen")
        for name in _FILES:
            if (file := getattr(self, name)) is not None:
                object.__setattr__(self, name, as_path(file, name).absolute())

    def is_like(self, other: "ClusterSpec") -> bool:
        """Whether both are the same specification."""
        return vars(self.place) == vars(other.place) and all(
            getattr(self, one.name) == getattr(other, one.name) for one in fields(self) if one.name != "place"
        )

    def plan_of(self, query: Query) -> WorkerPlan:
        """Raises InputError for a query that does not fit the schema, or that workers cannot have."""
        return convert(self, WorkerPlan, query=query)

    def open_sampling(
        self, plan: WorkerPlan, number: int, node: str | None, stopped: threading.Event | None = None
    ) -> SamplingWorker:
        """A sampling worker on the machine of this address, or of no cluster. Raises as `SamplingWorker`."""
        return SamplingWorker(
            self._place_on(node),
            plan,
            number,
            self.directory,
            checkpoint_every=self.checkpoint_every,
            trim=self.shared,
            stopped=stopped,
        )

    def open_serving(self, plan: WorkerPlan, number: int, replica: int, node: str | None) -> ServingWorker:
        """A serving worker on the machine of this address, or of no cluster, not started. Raises as
        `ServingWorker` does."""
        return ServingWorker(
            self._place_on(node),
            plan,
            number,
            None if self.model is None else Model.load(self.model),
            replica=replica,
            budget_bytes=self.budget_bytes or None,
            directory=self._own(node) / f"serving-{number}-{replica}" if self.budget_bytes else None,
        )

    def _place_on(self, node: str | None) -> Place:
        """The place of the log; what a machine keeps of its own must not be that of another one."""
        place = copy.copy(self.place)
        if isinstance(place, KafkaPlace):
            place.folder = self._own(node)
            place.folder.mkdir(parents=True, exist_ok=True)
        return place

    def _own(self, node: str | None) -> Path:
        return self.directory if node is None else self.directory / ("node-" + node.replace(":", "-"))
