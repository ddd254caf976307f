"""What follows a graph, and what a graph says of one node."""

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from livegnn.graph.delta import GraphDelta
from livegnn.types import DoubleArray, FloatArray, Ids, Keys

if TYPE_CHECKING:
    from livegnn import _core


@runtime_checkable
class View(Protocol):
    """Something that is derived from a graph and kept fresh.

    For each batch `prepare` is called before the graph changes, then, unless any view raised, `commit` after
    it, and when all views have committed, `publish`, for those whom the view tells of the batch. What
    `native` holds is committed together with the graph, under the same lock. `commit` must not raise, and
    `publish` nothing but interrupts: the batch has happened.
    """

    native: "tuple[_core.Engine, _core.Prepared] | None"

    def prepare(self, delta: GraphDelta) -> None: ...
    def commit(self, delta: GraphDelta) -> None: ...
    def publish(self, delta: GraphDelta) -> None: ...


class Neighbors(NamedTuple):
    """The neighbours of a node: ids, and weights, times and features [ids, channels] of the edges to them,
    where the edge type has them; `key` where it keeps parallel edges."""

    ids: Ids
    weight: FloatArray | None
    time: DoubleArray | None
    features: FloatArray | None
    key: Keys | None = None
