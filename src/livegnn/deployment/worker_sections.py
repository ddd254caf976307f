"""`[workers]` and `[cluster]`: processes beside the server, and their watch (see docs/workers.md)."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from livegnn.arguments import check_not_negative, check_positive
from livegnn.deployment.sections import LogSection
from livegnn.errors import InputError, LogError

if TYPE_CHECKING:
    from livegnn.cluster import Pace, Patience


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
            check_positive(getattr(self, name), name)
        check_not_negative(self.checkpoint_seconds, "checkpoint_seconds")
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


def hold_log(section: WorkersSection, log: LogSection) -> None:
    """Has the log kept for sampling workers that were never started: they read it from its beginning. From
    then on each of them holds what it needs. Raises LogError.
    """
    from livegnn.log.streams.sqlite import is_made, path_of
    from livegnn.workers import SqlitePlace
    from livegnn.workers.messages import CHANGES

    if log.path is None or log.keep == "all" or is_made(path_of(log.path, CHANGES, 0)):
        return
    for worker in range(section.sampling):
        with suppress(LogError):  # it starts at this moment
            SqlitePlace(log.path).tail(f"sampling-{worker}").close()
