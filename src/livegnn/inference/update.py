"""What a batch did to predictions, and what work it and queries were."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from livegnn.graph import Graph
from livegnn.types import Ids, IntArray

if TYPE_CHECKING:
    from jaxtyping import Int64, Shaped


class Update:
    """What a batch did to the predictions.

    seq: the sequence number that they now reflect. affected: how many nodes were computed again, or, by a
    lazy engine, reached. exact: whether `changed` was seen by comparing values; a lazy engine has not
    computed any. seconds: how long the batch took, the graph's part included.
    """

    __slots__ = ("_changed", "_graph", "_ids", "_pin", "affected", "exact", "seconds", "seq")

    def __init__(
        self,
        graph: Graph,
        changed: "Int64[IntArray, 'nodes']",
        *,
        seq: int,
        affected: int,
        seconds: float,
        exact: bool = True,
    ) -> None:
        self._graph = graph
        self._changed = changed
        self._ids: Ids | None = None
        self._pin = graph.pin()
        self._pin.close()
        self.seq = seq
        self.affected = affected
        self.exact = exact
        self.seconds = seconds

    @property
    def changed(self) -> "Shaped[Ids, 'nodes']":
        """Ids of nodes whose prediction has another value than before, added nodes among them.

        If not `exact`: of nodes whose prediction may have, since the batch reached them.
        """
        if self._ids is None:
            self._ids = self._graph.to_user_ids(self._changed)
        return self._ids

    @property
    def num_changed(self) -> int:
        """How many `changed` has, which costs nothing."""
        return len(self._changed)

    def __repr__(self) -> str:
        return (
            f"Update(seq={self.seq}, changed={len(self._changed)} nodes, affected={self.affected}, "
            f"seconds={self.seconds:.6f})"
        )


@dataclass(frozen=True)
class QueryWork:
    """What queries of a lazy engine have computed since it was made.

    rows: of values of any layer. edges: in-edges of nodes that were summed. recomputed: sums and maxima that
    were taken over all in-edges, rather than over those that changed.
    """

    rows: int
    edges: int
    recomputed: int


@dataclass(frozen=True)
class Work:
    """What a batch touched.

    affected: nodes whose prediction was computed again. edges: messages that were added, taken back, or both.
    nodes: rows read and written for them, a row counted again for each aggregate that reads it. recomputed:
    aggregates that were computed from all their neighbours.
    """

    affected: int
    edges: int
    nodes: int
    recomputed: int
