"""The effect of a batch on predictions, and the work of batches and queries."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from livegnn.graph import Graph
from livegnn.types import Ids, IntArray

if TYPE_CHECKING:
    from jaxtyping import Int64, Shaped

    from livegnn.inference.followed_edges import ScoreChanges

_NONE: "Final[Mapping[str, ScoreChanges]]" = MappingProxyType({})


class Update:
    """The effect of a batch on the predictions.

    seq: the sequence number that they now reflect. affected: how many nodes the batch computed again or, in a
    lazy engine, reached. exact: whether `changed` compares values; a lazy engine has not computed them.
    seconds: how long the batch took, including the graph's part. late_features: as of `GraphDelta`. edges:
    the edges whose scores it has changed, for each edge output that the engine follows.
    """

    __slots__ = (
        "_changed",
        "_graph",
        "_ids",
        "_pin",
        "affected",
        "edges",
        "exact",
        "late_features",
        "seconds",
        "seq",
    )

    def __init__(
        self,
        graph: Graph,
        changed: "Int64[IntArray, 'nodes']",
        *,
        seq: int,
        affected: int,
        seconds: float,
        exact: bool = True,
        late_features: int = 0,
        edges: "Mapping[str, ScoreChanges]" = _NONE,
    ) -> None:
        self._graph = graph
        self._changed = changed
        self._ids: Ids | None = None
        if graph.node_ids.texts is not None:
            self._pin = graph.pin()
            self._pin.close()
        self.seq = seq
        self.affected = affected
        self.exact = exact
        self.seconds = seconds
        self.late_features = late_features
        self.edges = edges

    @property
    def changed(self) -> "Shaped[Ids, 'nodes']":
        """Ids of nodes whose prediction has changed, including added nodes.

        If not `exact`: ids of all nodes that the batch reached, whose predictions may have changed.
        """
        if self._ids is None:
            self._ids = self._graph.to_user_ids(self._changed)
        return self._ids

    @property
    def num_changed(self) -> int:
        """The length of `changed`, without computing the ids."""
        return len(self._changed)

    @property
    def empty(self) -> bool:
        """Whether it has changed no prediction, and no score of a followed edge output."""
        return not len(self._changed) and all(one.empty for one in self.edges.values())

    def __repr__(self) -> str:
        return (
            f"Update(seq={self.seq}, changed={len(self._changed)} nodes, affected={self.affected}, "
            f"seconds={self.seconds:.6f})"
        )


@dataclass(frozen=True)
class QueryWork:
    """The work that queries of a lazy engine have done since it was made.

    rows: computed rows, of values of any layer. edges: in-edges that were aggregated. recomputed: aggregates
    that were computed from all in-edges, rather than from those that changed.
    """

    rows: int
    edges: int
    recomputed: int


@dataclass(frozen=True)
class Work:
    """The work that a batch caused.

    affected: nodes whose prediction was computed again. edges: messages that were added, subtracted, or both.
    nodes: rows read and written for them; a row counts once for each aggregate that reads it. recomputed:
    aggregates that were computed again from all neighbours.
    """

    affected: int
    edges: int
    nodes: int
    recomputed: int
