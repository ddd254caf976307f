"""Why a prediction, or the score of an edge, moved: the events and neighbours that moved it, each with its
share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from livegnn.types import DoubleArray, EdgeType, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float64
    from numpy.typing import ArrayLike

_SHOWN = 10  # shares of each kind, where an explanation is printed

End: TypeAlias = Literal["source", "target"]
"""Which end of an edge."""


@dataclass(frozen=True, eq=False)
class EventShare:
    """The movement of the prediction when one event was applied.

    seq: the event's sequence number. kind: as in JSON lines, such as ``"add_edge"``. type: the type of its
    node or edge. ids: the id of the node, or of both ends of the edge. share: float64 [outputs].
    """

    seq: int
    kind: str
    type: NodeType | EdgeType
    ids: tuple[int | str, ...]
    share: "Float64[DoubleArray, 'channels']"

    @property
    def what(self) -> str:
        """The event in words."""
        return f"{self.kind} {' -> '.join(map(str, self.ids))}"


@dataclass(frozen=True, eq=False)
class NeighborShare:
    """The movement of the prediction caused by the messages of one neighbour.

    edge_type: the type of the edges from the neighbour; None for the node itself. id: the neighbour's id.
    share: float64 [outputs]. reverse: the edges lead to the neighbour, and messages go from their targets to
    their sources. end: of a score, the end of the edge whose neighbour it is.
    """

    edge_type: EdgeType | None
    id: int | str
    share: "Float64[DoubleArray, 'channels']"
    reverse: bool = False
    end: End | None = None

    @property
    def what(self) -> str:
        """The neighbour in words."""
        end = "" if self.end is None else f"{self.end}: "
        if self.edge_type is None:
            return end + "itself"
        return f"{end}{self.id} {self.edge_type[1]}{' in reverse' if self.reverse else ''}"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Shares:
    """A movement from sequence number `since` to `seq`, as a whole and in shares.

    before, after: the values then and now, float64 [outputs], computed from scratch; `before` is None if
    there was none, and counts as zeros. events: in the order of the log. neighbors: by edge type and id, the
    node itself last. Shares of zero are left out.
    """

    since: int
    seq: int
    before: "Float64[DoubleArray, 'channels'] | None"
    after: "Float64[DoubleArray, 'channels']"
    events: list[EventShare]
    neighbors: list[NeighborShare]

    @property
    def movement(self) -> "Float64[DoubleArray, 'channels']":
        """`after` minus `before`, float64 [outputs]."""
        return self.after if self.before is None else self.after - self.before

    def top(
        self, count: int = _SHOWN, *, channel: int | None = None
    ) -> tuple[list[EventShare], list[NeighborShare]]:
        """The events and the neighbours with the largest shares, the largest first.

        channel: the output channel to sort by; by default, each share's largest magnitude over channels.
        """
        channels = slice(None) if channel is None else slice(channel, channel + 1 or None)

        def size(one: EventShare | NeighborShare) -> float:
            return float(-np.abs(one.share[channels]).max(initial=0))

        return sorted(self.events, key=size)[:count], sorted(self.neighbors, key=size)[:count]

    def _describe(self, moved: str) -> list[str]:
        """The lines of the explanation. moved: what it is about."""
        events, neighbors = self.top()
        lines = [f"{moved}, from event {self.since} to {self.seq}: {_numbers(self.movement)}"]
        for title, shown, number in (
            ("events", [(f"{one.seq} {one.what}", one.share) for one in events], len(self.events)),
            ("neighbors", [(one.what, one.share) for one in neighbors], len(self.neighbors)),
        ):
            width = max((len(what) for what, _ in shown), default=0)
            lines.append(title + (f" (the largest {len(shown)} of {number})" if number > len(shown) else ""))
            lines += [f"  {what:<{width}}  {_numbers(share)}" for what, share in shown] or ["  none"]
        return lines


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Explanation(Shares):
    """The movement of the prediction of the node `id`; `before` is None if it was not in the graph. The
    shares of the events add up to `movement`, and so do those of the neighbours."""

    id: int | str

    def __repr__(self) -> str:
        return "\n".join(self._describe(f"node {self.id}"))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EdgeExplanation(Shares):
    """The movement of the score of the edge `source` -> `target`; `before` is None if it, or an end of a pair
    of nodes, was not in the graph.

    output: the edge output. key: of an edge of a type that keeps parallel ones. neighbors: those of the
    source, then those of the target, each with its `end`. edge_share: of the edge itself, its columns and its
    existence, float64 [outputs]. The shares of the events add up to `movement`, and so do those of the
    neighbours with `edge_share`.
    """

    source: int | str
    target: int | str
    key: int | None
    output: str
    edge_share: "Float64[DoubleArray, 'channels']"

    def __repr__(self) -> str:
        keyed = "" if self.key is None else f" with the key {self.key}"
        lines = self._describe(f"{self.output} of {self.source} -> {self.target}{keyed}")
        return "\n".join([*lines, "the edge itself", f"  {_numbers(self.edge_share)}"])


def _numbers(values: "ArrayLike") -> str:
    return np.array2string(np.asarray(values), precision=4, suppress_small=True, max_line_width=100_000)
