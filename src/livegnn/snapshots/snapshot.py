"""A snapshot as what needs a graph reads it: rows, degrees, neighbours and features, many of each at once.

`livegnn.snapshots.snapshot_source` opens one of a store.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np

from livegnn.errors import FileFormatError, ObjectMissingError, SnapshotError
from livegnn.graph import Schema
from livegnn.snapshots.manifest import FOLDER, Manifest, generation_of, is_path, path_of
from livegnn.snapshots.objects import Objects
from livegnn.snapshots.stores import ObjectInfo
from livegnn.types import DoubleArray, EdgeType, FloatArray, Ids, IntArray, Keys, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, Int64, Shaped, UInt32
    from numpy.typing import NDArray

    from livegnn.inference import Degrees

T = TypeVar("T")

_ATTEMPTS = 5


class Neighbors(NamedTuple):
    """The neighbours of some rows, one row after the other: those of row i from `offsets[i]` up to
    `offsets[i + 1]`, by their rows, in the order of the graph; and the columns that the edge type has.
    """

    offsets: "Int64[IntArray, 'rows+1']"
    rows: "Int64[IntArray, 'entries']"
    weight: "Float32[FloatArray, 'entries'] | None" = None
    time: "Float64[DoubleArray, 'entries'] | None" = None
    edge_attr: "Float32[FloatArray, 'entries channels'] | None" = None
    key: "UInt32[Keys, 'entries'] | None" = None

    def loops_by_key(self, rows: "Int64[IntArray, 'nodes']") -> "Neighbors":
        """The same lists, of these nodes, with the parallel loops of each in the order of their keys: a layer
        that adds loops keeps the last one, and a list is in the order in which its edges were added and
        removed."""
        if self.key is None:
            return self
        segment = np.repeat(np.arange(len(rows)), np.diff(self.offsets))
        at = np.flatnonzero(rows[segment] == self.rows)
        ordered = at[np.lexsort((self.key[at], segment[at]))]
        if np.array_equal(at, ordered):
            return self
        place = np.arange(len(segment))
        place[at] = ordered
        return self._replace(
            weight=None if self.weight is None else self.weight[place],
            time=None if self.time is None else self.time[place],
            edge_attr=None if self.edge_attr is None else self.edge_attr[place],
            key=self.key[place],
        )


class Snapshot(Protocol):
    """A graph at one event. All methods raise `UnknownTypeError` for a type that it does not have, and
    `SnapshotError` if it cannot be read.
    """

    seq: int
    """The event up to which it shows everything."""

    schema: Schema

    @property
    def confined(self) -> bool:
        """Whether memory is limited, so that it is read in one thread at a time."""

    @property
    def identity(self) -> str:
        """Names what it shows: snapshots of one identity have the same graph in the same rows."""

    @property
    def layout(self) -> str:
        """Names where all of it lies: snapshots of one layout have the same identity, and the same index."""

    def rows_of(
        self, ids: "Shaped[Ids, 'ids']", node_type: NodeType | None = None
    ) -> "Int64[IntArray, 'ids']":
        """The rows of nodes; -1 where there is no such node."""

    def ids_of(
        self, rows: "Int64[IntArray, 'rows']", node_type: NodeType | None = None
    ) -> "Shaped[Ids, 'rows']":
        """The ids of nodes; -1, or an empty text, where a row has no node."""

    def degrees(
        self,
        edge_type: EdgeType | None,
        rows: "Int64[IntArray, 'rows']",
        direction: str = "in",
    ) -> "Degrees":
        """How many edges each of these nodes has, loops among them, and the sums of their weights."""

    def index(
        self, edge_type: EdgeType | None, rows: "Int64[IntArray, 'rows']", direction: str = "in"
    ) -> "Shaped[NDArray[np.void], 'rows']":
        """Where the lists of these nodes are, and what they sum to, as `records.index_type` says."""

    def neighbors(
        self,
        edge_type: EdgeType | None,
        rows: "Int64[IntArray, 'rows']",
        direction: str = "in",
        *,
        index: "Shaped[NDArray[np.void], 'rows'] | None" = None,
    ) -> Neighbors:
        """The lists of neighbours of these nodes. index: what `index` returned for them, if that is known."""

    def features(
        self, node_type: NodeType | None, rows: "Int64[IntArray, 'rows']"
    ) -> "Float32[FloatArray, 'rows channels']":
        """The features of these nodes."""


class Source(Protocol):
    """The newest snapshot of a store."""

    def newest(self) -> Snapshot:
        """The newest snapshot; the same object as before if there is no newer one."""
        ...

    @property
    def read_so_far(self) -> tuple[int, int]:
        """Requests to the store, and bytes that came from it."""
        ...

    @property
    def refused(self) -> str | None:
        """Why a newer snapshot was not taken; None if none was refused."""
        ...

    def require(self, check: Callable[[Snapshot], None]) -> None:
        """Takes no snapshot from now on that `check` refuses with `ModelError`; the one before stays."""
        ...

    def confine(self, room: int) -> None:
        """Requests have so many bytes, of which reading takes a quarter at most, beside what is read."""
        ...

    def read(self, request: Callable[[Snapshot], T]) -> T:
        """What `request` returns of the snapshot that was opened last; of the newest one if that was
        replaced meanwhile."""
        ...


def list_manifests(objects: Objects, after: int = 0) -> list[ObjectInfo]:
    """The manifests of a store that are newer than generation `after`, the oldest first."""
    found = objects.list(FOLDER, path_of(after) if after else "")
    return [one for one in found if is_path(one.path)]


def read_newest_manifest(objects: Objects, after: int = 0) -> Manifest | None:
    """The newest manifest of a store; None if there is none newer than generation `after`.

    Raises `FileFormatError` if it is damaged.
    """
    for _ in range(_ATTEMPTS):
        found = list_manifests(objects, after)
        if not found:
            return None
        try:
            path, where = found[-1].path, f"{found[-1].path} in {objects.url}"
            manifest = Manifest.from_bytes(objects.get(path), where)
        except ObjectMissingError:
            continue  # a newer one has come, and this one was collected between the two requests
        if manifest.path != path:
            raise FileFormatError(
                f"{where} must be the manifest of that name, got the one of {manifest.path}: remove it"
            )
        return manifest
    raise SnapshotError(f"the manifests of {objects.url} vanish faster than they can be read: try again")


def read_past_damage(objects: Objects) -> tuple[Manifest | None, int]:
    """The newest manifest that can be read, None if none can; and the generation of the newest one if that
    cannot, else 0.
    """
    try:
        return read_newest_manifest(objects), 0
    except FileFormatError:
        found = list_manifests(objects)
    for one in reversed(found):
        try:
            manifest = Manifest.from_bytes(objects.get(one.path), one.path)
        except (FileFormatError, ObjectMissingError):
            continue
        if manifest.path == one.path:
            return manifest, 0 if one is found[-1] else generation_of(found[-1].path)
    return None, generation_of(found[-1].path) if found else 0
