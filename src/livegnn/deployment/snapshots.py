"""`[snapshots]`: a snapshot of the graph in object storage, which follows it (see docs/snapshots.md)."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

from livegnn.errors import InputError, SnapshotError
from livegnn.graph import Graph
from livegnn.log.directories import Directories, Record
from livegnn.partitions.divided import Partitions
from livegnn.partitions.snapshots import PartsSnapshotView
from livegnn.runtime import Runtime
from livegnn.snapshots.objects import open_objects
from livegnn.snapshots.ownership import check_owner
from livegnn.snapshots.view import SnapshotView
from livegnn.snapshots.writer import Direction
from livegnn.types import State

_logger = logging.getLogger(__name__)

_PATIENCE = 5.0  # seconds that a start waits for a store


@dataclass(frozen=True)
class SnapshotsSection:
    """`[snapshots]`: the URL of a store or the path of a folder; how many seconds apart snapshots are; which
    lists of directed edges they have; for how many seconds a replaced one stays readable.
    """

    url: str
    interval: float = 60.0
    directions: str = "both"
    grace: float = 600.0

    def __post_init__(self) -> None:
        if not self.url:
            raise InputError("url must be that of a store, or the path of a folder, got an empty one")
        for name in ("interval", "grace"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be seconds above 0, and finite, got {getattr(self, name)!r}")
        if self.directions not in ("in", "out", "both"):
            raise InputError(f"directions must be 'in', 'out' or 'both', got {self.directions!r}")

    def beside(self, directory: Path) -> "SnapshotsSection":
        """The same, with the path of a folder relative to `directory`."""
        return self if "://" in self.url else replace(self, url=str(directory / self.url))

    @property
    def folder(self) -> Path | None:
        """The folder, if they are in one."""
        return None if "://" in self.url else Path(self.url)

    def refuse_foreign(self, directories: Directories) -> None:
        """Raises InputError if the store says now that its snapshots belong to another log.

        If it cannot be reached, the view checks before it writes.
        """
        objects = open_objects(self.url, patience=_PATIENCE)
        try:
            check_owner(objects, directories.record())
        except SnapshotError as error:
            _logger.warning("%s does not say whose snapshots it holds: %s", self.url, error)
        finally:
            objects.close()

    def factory(self, record: Record | None = None) -> "SnapshotFactory":
        """The factory of the view, which writes nothing before `start_snapshots` or the first batch of its
        own.

        record: of the log that the snapshots belong to. Raises InputError for a URL that names no store.
        """
        return SnapshotFactory(self, record)


class SnapshotFactory:
    """Makes the view of a section: of a graph in one piece, as a `ViewFactory`, or in parts. Raises
    InputError for a URL that names no store."""

    def __init__(self, section: SnapshotsSection, record: Record | None) -> None:
        named: tuple[str, ...] = ("in", "out") if section.directions == "both" else (section.directions,)
        self._directions = cast("tuple[Direction, ...]", named)
        self._section, self._record = section, record
        self._objects = open_objects(section.url)

    def __call__(self, graph: Graph, state: State | None) -> SnapshotView:
        return self._make(partial(SnapshotView, graph, state=state))

    def of_parts(self, parts: Partitions) -> SnapshotView:
        """The view of a graph in parts."""
        return self._make(partial(PartsSnapshotView, parts))

    def _make(self, make: Callable[..., SnapshotView]) -> SnapshotView:
        return make(
            self._objects,
            interval=self._section.interval,
            directions=self._directions,
            grace=self._section.grace,
            start=False,
            owner=self._record,
        )


def start_snapshots(runtime: Runtime) -> None:
    """Lets the view of `[snapshots]` write at its interval, once the runtime has replayed its log."""
    view = runtime.views.find(SnapshotView.name)
    if isinstance(view, SnapshotView):
        view.start()
