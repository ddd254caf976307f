"""What follows a graph, and what a graph says of one node."""

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from livegnn.graph.delta import GraphDelta
from livegnn.types import DoubleArray, FloatArray, Ids

if TYPE_CHECKING:
    from livegnn import _core


@runtime_checkable
class View(Protocol):
    """Something that is derived from a graph and kept fresh.

    For each batch `prepare` is called before the graph changes, then, unless any view raised, `commit` after
    it. What `native` holds is committed together with the graph, under the same lock.
    """

    native: "tuple[_core.Engine, _core.Prepared] | None"

    def prepare(self, delta: GraphDelta) -> None: ...
    def commit(self, delta: GraphDelta) -> None: ...


class Neighbors(NamedTuple):
    """The neighbours of a node: ids, and weights, times and features [ids, channels] of the edges to them,
    where the edge type has them."""

    ids: Ids
    weight: FloatArray | None
    time: DoubleArray | None
    features: FloatArray | None
