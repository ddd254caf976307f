"""When edges that have outlived their time to live are due to be removed, and in which events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from livegnn.arguments import above_zero, function
from livegnn.events import Events
from livegnn.events.builder import from_chunks
from livegnn.graph import Graph


@dataclass(frozen=True)
class ExpiryPolicy:
    """How often edges expire, in seconds of the runtime's clock, and what time it is.

    now: in the unit of the events' times; None: the latest time that an event had (`Graph.latest_time`), so
    that nothing expires while nothing happens. With a clock of its own an event from the future does no harm.
    """

    every_seconds: float = 60.0
    now: Callable[[], float] | None = None

    def __post_init__(self) -> None:
        above_zero(self.every_seconds, "every_seconds")
        if self.now is not None:
            function(self.now, "now", "nothing, which says what time it is")


class Expiry:
    """The policy at work on one graph. Thread safety: none, the runtime's loop owns it."""

    def __init__(self, graph: Graph, policy: ExpiryPolicy | None, clock: Callable[[], float]) -> None:
        lives = any(edges.time_to_live is not None for edges in graph.schema.edge_types.values())
        self._graph = graph
        self._policy = policy if lives else None
        self._clock = clock
        self._time, self._seq = clock(), -1

    def until(self) -> float | None:
        """Seconds until edges may have expired, 0 if so, None if only an event can make it so."""
        policy = self._policy
        if policy is None or (policy.now is None and self._graph.seq == self._seq):
            return None
        return max(0.0, self._time + policy.every_seconds - self._clock())

    def begin(self) -> float | None:
        """Starts the next round: what time it is, None if there is nothing to expire at that time."""
        assert self._policy is not None
        self._time, self._seq = self._clock(), self._graph.seq
        now = self._policy.now() if self._policy.now is not None else self._graph.latest_time
        return now if now is not None and len(self._graph.expired(now)) else None

    def removals(self, now: float, size: int) -> Iterator[Events]:
        """What has expired at `now`, in parts of at most `size` events."""
        self._seq = self._graph.seq
        for chunk in self._graph.expired(now).chunks:
            for start in range(0, len(chunk.ids), size):
                yield from_chunks([chunk.part(slice(start, start + size))])
