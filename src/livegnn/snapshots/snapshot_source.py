"""Opens the newest snapshot of a store, and keeps to the newest.

A request whose snapshot was replaced under it begins again.
"""

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from livegnn.errors import ModelError, ObjectMissingError, SnapshotError, SnapshotReplacedError
from livegnn.snapshots.manifest import read_newest_manifest
from livegnn.snapshots.objects import Objects, as_objects
from livegnn.snapshots.snapshot import Snapshot

T = TypeVar("T")

_ATTEMPTS = 5
_log = logging.getLogger(__name__)


def open_snapshot(where: str | Objects) -> Snapshot:
    """The newest snapshot of a store. Raises `SnapshotError` if there is none or it cannot be read."""
    return SnapshotSource(where).newest()


class SnapshotSource:
    """The newest snapshot of a store, as it changes. where: the URL of a store, or an opened one.

    Thread safety: any thread may call; a snapshot that was handed out does not change.
    """

    def __init__(self, where: str | Objects) -> None:
        self.objects = as_objects(where)
        self._current: Snapshot | None = None
        self._check: Callable[[Snapshot], None] | None = None
        self._refused: tuple[int, ModelError] | None = None  # the generation, and why
        self._opening = threading.Lock()

    @property
    def current(self) -> Snapshot:
        """The snapshot that was opened last; the newest one if none was."""
        current = self._current
        return self.newest() if current is None else current

    @property
    def read_so_far(self) -> tuple[int, int]:
        """Requests to the store, and bytes read from it."""
        return self.objects.requests, self.objects.bytes_read

    @property
    def retries_so_far(self) -> int:
        """The requests to the store that were sent again."""
        return self.objects.retries

    def require(self, check: Callable[[Snapshot], None]) -> None:
        """Takes no snapshot from now on that `check` refuses with `ModelError`; the previous one stays."""
        self._check = check

    @property
    def refused(self) -> str | None:
        """Why a newer snapshot was not taken; None if none was refused."""
        refused = self._refused
        return None if refused is None else f"the snapshot {refused[0]} does not fit the model: {refused[1]}"

    def newest(self) -> Snapshot:
        """The newest snapshot that is taken: one request if it is the current one. Raises `SnapshotError`,
        and the `ModelError` of `require` if there is no other snapshot."""
        with self._opening:
            for _ in range(_ATTEMPTS):
                current = self._current
                generation = 0 if current is None else current.manifest.generation
                if current is not None and self._refused is not None:
                    generation = max(generation, self._refused[0])
                manifest = read_newest_manifest(self.objects, generation)
                if manifest is None:
                    if current is not None:
                        return current
                    raise self._none()
                try:
                    return self._take(Snapshot(self.objects, manifest))
                except SnapshotReplacedError:
                    continue
        raise SnapshotError(
            f"the snapshots of {self.objects.url} are replaced faster than they open: try again"
        )

    def check(self) -> None:
        """Raises `SnapshotError` if the store has neither the current snapshot nor a newer one any more, and
        `FileFormatError` if the newest is damaged. Takes none."""
        current = self._current
        if (
            read_newest_manifest(self.objects, 0 if current is None else current.manifest.generation - 1)
            is None
        ):
            raise self._none()

    def _none(self) -> SnapshotError:
        return SnapshotError(
            f"expected a snapshot in {self.objects.url}, found none: write one with "
            "`livegnn snapshot write`, or name the right place"
        )

    def _take(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, or the current one if it is refused."""
        try:
            if self._check is not None:
                self._check(snapshot)
        except ModelError as error:
            if self._current is None:
                raise
            self._refused = snapshot.manifest.generation, error
            _log.warning(
                "predictions stay on the snapshot %d: %s", self._current.manifest.generation, self.refused
            )
            return self._current
        self._current, self._refused = snapshot, None
        return snapshot

    def confine(self, room: int) -> None:
        """Gives requests this number of bytes; reading takes a quarter at most, beside its result."""
        self.objects.confine(room // 4)

    def read(self, request: Callable[[Snapshot], T]) -> T:
        """The result of `request` on the current snapshot; if that was replaced and collected meanwhile,
        on the newest one."""
        for _ in range(_ATTEMPTS):
            try:
                return request(self.current)
            except SnapshotReplacedError:
                self.newest()
                if self._refused is not None:
                    raise self._refused[1] from None
            except ObjectMissingError:
                if not self._forget_removed():
                    raise
        raise SnapshotError(f"the snapshots of {self.objects.url} are replaced faster than they are read")

    def _forget_removed(self) -> bool:
        """Whether the store has lost the manifest of the current snapshot. It was emptied then, and the next
        writer begins with the first generation."""
        with self._opening:
            if self._current is None:
                return True
            try:
                self.objects.size(self._current.manifest.path)
            except ObjectMissingError:
                self._current = None
                return True
            return False
