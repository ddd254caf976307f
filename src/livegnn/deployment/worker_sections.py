"""`[workers]` and `[cluster]`: processes beside the server, and their watch (docs/workers.md, parts.md)."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import livegnn._core as _core
from livegnn.arguments import check_int
from livegnn.cluster import Pace, Patience
from livegnn.deployment.sections import LogSection
from livegnn.errors import InputError, LogError
from livegnn.http.access import AccessSettings
from livegnn.log.streams.sqlite import is_made, path_of
from livegnn.workers import KafkaPlace, SqlitePlace
from livegnn.workers.messages import steps_of
from livegnn.workers.plan import WorkerNumbers


@dataclass(frozen=True)
class _Directory:
    directory: Path


@dataclass(frozen=True)
class WorkersSection(AccessSettings, WorkerNumbers, _Directory):
    """`[workers]`: their numbers, the directory of their checkpoints, and the clients that serving workers
    and the front end admit. budget_bytes: of a serving worker's cache, beyond which it uses the disk; 0 for
    no limit. Raises InputError.
    """

    budget_bytes: int = 0

    def __post_init__(self) -> None:
        for seed in map(str, self.moved):  # TOML has no other keys
            if not seed.removeprefix("-").isdecimal():
                raise InputError(f"moved must have ids as keys, got {seed!r}")
        object.__setattr__(self, "moved", {int(seed): worker for seed, worker in self.moved.items()})
        super().__post_init__()


@dataclass(frozen=True)
class ClusterSection(Pace, Patience):
    """`[cluster]`: Ray, which runs the workers, and how they are watched. ray: the address of its head node,
    or "auto" for the Ray of this machine; empty to start one on this machine for workers, and none for parts.
    shared: whether the directories of `[workers]` and `[checkpoint]` have the same files on all machines.
    listen: as of `ClusterSpec`. partitions: the number of parts of the graph, each in a process of its own
    that the server starts, on the machines of Ray if `ray` is given; 0 for a graph in one piece. owners: the
    rule of `Owners` for the nodes of each part, or "metis": METIS divides the graph that is there, and Fennel
    places nodes that arrive. partition: a file, whose partition divides the graph that is there instead.
    fronts: a file by which fronts find the parts; without it, parts answer their server alone.
    """

    ray: str = ""
    namespace: str = "livegnn"
    shared: bool = True
    listen: str = "loopback"
    partitions: int = 0
    owners: str = "jump"
    partition: Path | None = None
    fronts: Path | None = None

    def __post_init__(self) -> None:
        Pace.__post_init__(self)
        Patience.__post_init__(self)
        if self.listen not in ("loopback", "node"):
            raise InputError(f"listen must be 'loopback' or 'node', got {self.listen!r}")
        check_int(self.partitions, "partitions", 0, _core.MAX_PARTS)
        if self.owners not in ("jump", "modulo", "fennel", "metis"):
            raise InputError(f"owners must be 'jump', 'modulo', 'fennel' or 'metis', got {self.owners!r}")
        if self.fronts is not None and not self.partitions:
            raise InputError(
                f"fronts is for a graph in parts, got {str(self.fronts)!r} without partitions: write "
                "partitions, or leave out fronts"
            )
        if self.partition is not None and self.owners not in ("fennel", "metis"):
            raise InputError(
                f"partition is for owners = 'fennel' or 'metis', got it with {self.owners!r}: a hash of ids "
                "needs no file"
            )


def place_of(log: LogSection, folder: Path) -> SqlitePlace | KafkaPlace:
    """The place of a deployment's log. folder: for positions in Kafka."""
    if log.path is None:
        return KafkaPlace(log.kafka, log.topic, folder, client=log.client)
    return SqlitePlace(log.path)


def hold_log(section: WorkersSection, log: LogSection) -> None:
    """Has the log kept for sampling workers that were never started: they read it from its beginning. From
    then on each of them holds what it needs. Raises LogError.
    """
    if log.path is None or log.keep == "all" or is_made(path_of(log.path, steps_of(0), 0)):
        return
    for worker in range(section.sampling_workers):
        with suppress(LogError):  # it starts at this moment
            SqlitePlace(log.path).tail(f"sampling-{worker}").close()
