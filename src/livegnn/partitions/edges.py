"""The edges of a divided graph, which its graph of names reads from the parts."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeVar

import numpy as np

import livegnn._core as _core
from livegnn.errors import WorkerUnavailableError
from livegnn.graph import Graph
from livegnn.inference import Engine
from livegnn.partitions.replacing import TRIES

if TYPE_CHECKING:
    from jaxtyping import UInt32
    from numpy.typing import NDArray

    Names = UInt32[NDArray[np.uint32], "3 edges"]


Found = TypeVar("Found")


class Counts(NamedTuple):
    """Counts of one part. edges: by edge type, the edges that begin at its nodes, and how many of these end
    in other parts. sent: bytes that it has sent to other parts."""

    edges: Sequence[Sequence[int]]
    sent: int

    @classmethod
    def of(cls, engine: Engine) -> Self:
        """Those of a part with this engine."""
        native = engine.core
        return cls(_core.edge_counts(native.graph.native), _core.exchanged_bytes(native.native))


class KeepsEdges(Protocol):
    """A part that keeps edges."""

    def expired(self, edge_type: int, horizon: float) -> "Names":
        """Sources, targets and keys of the edges of a type, by its index, that begin at nodes of the part and
        whose time is before `horizon`, in the order of `Graph.expired`. No batch may be applied meanwhile."""

    def counts(self) -> Counts:
        """Those of the part. Raises `WorkerUnavailableError` if it is lost."""


class EdgesOfParts:
    """parts: of which each answers for the edges of its own nodes. replace: has lost parts replaced, and then
    exchanges `parts`.

    Raises `WorkerUnavailableError` if a part is lost and not replaced. Thread safety: with `Graph.writer` of
    the names held.
    """

    def __init__(self, parts: Sequence[KeepsEdges]) -> None:
        self.parts = tuple(parts)
        self.replace: Callable[[], None] | None = None

    def expired(self, edge_type: int, horizon: float) -> "tuple[UInt32[NDArray[np.uint32], 'edges'], ...]":
        names = np.concatenate(self._ask(lambda part: part.expired(edge_type, horizon)), axis=1)
        # Each source has one owner, so the edges of a source stay in the order of its list.
        source, target, key = names[:, np.argsort(names[0], kind="stable")]
        return source, target, key

    def num_edges(self, edge_type: int) -> int:
        return sum(self._ask(lambda part: part.counts().edges[edge_type][0]))

    def _ask(self, ask: Callable[[KeepsEdges], Found]) -> list[Found]:
        for left in range(0 if self.replace is None else TRIES, -1, -1):
            if self.replace is not None:
                self.replace()
            try:
                return [ask(part) for part in self.parts]
            except WorkerUnavailableError:
                if not left:
                    raise
        raise AssertionError


def expired_of(graph: Graph, edge_type: int, horizon: float) -> "Names":
    """`KeepsEdges.expired` of a part in this process."""
    return np.stack(_core.holding(graph.writer, graph.core.expired, edge_type, horizon))
