"""The removal of edges whose time to live is over: its times, its events, and the share of edges from which a
person must confirm it first.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from livegnn.arguments import check_function, check_int, check_positive, check_share
from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.events.builder import from_chunks
from livegnn.graph import Graph

_logger = logging.getLogger(__name__)

_BY_EVENTS: Final = 10  # of a few edges, half go every day
_BY_CLOCK: Final = 1000  # no event can change a clock


@dataclass(frozen=True)
class ExpiryPolicy:
    """The interval between expiries, in seconds of the runtime's clock, and the clock for the ages of edges.

    now: in the unit of the events' times; None: the latest time that an event had (`Graph.latest_time`), so
    that nothing expires without new events. With a separate clock, an event from the future does no harm.
    max_share: if more than this share of the edges that have a time to live would expire at once, nothing is
    removed until a person confirms it (`Loop.confirm_expiry`); with 1 that is never needed. ask_from: fewer
    edges than this expire unconfirmed at any share; by default 10 where events give the time, since a single
    wrong one can make all others old, and 1,000 with a clock.
    """

    every_seconds: float = 60.0
    now: Callable[[], float] | None = None
    max_share: float = 0.5
    ask_from: int | None = None

    def __post_init__(self) -> None:
        check_positive(self.every_seconds, "every_seconds")
        if self.now is not None:
            check_function(self.now, "now", "nothing, which says what time it is")
        check_share(self.max_share, "max_share")
        if self.ask_from is not None:
            check_int(self.ask_from, "ask_from", 1)

    @property
    def least_asked(self) -> int:
        """The number of edges from which a person must confirm: `ask_from`, or its default."""
        if self.ask_from is not None:
            return self.ask_from
        return _BY_EVENTS if self.now is None else _BY_CLOCK


class HeldExpiry(NamedTuple):
    """An expiry that waits for a person: at time `now`, `edges` of the `of` that can expire would go."""

    now: float
    edges: int
    of: int


class Expiry:
    """The policy at work on one graph. The runtime's loop owns it; any thread may call `confirm` and read
    `held`.
    """

    def __init__(self, graph: Graph, policy: ExpiryPolicy | None, clock: Callable[[], float]) -> None:
        self._types = [name for name, edges in graph.schema.edge_types.items() if edges.time_to_live]
        self._graph = graph
        self._policy = policy if self._types else None
        self._clock = clock
        self._time, self._seq = clock(), -1
        self._confirmed: float | None = None  # the time up to which a person lets edges expire
        self.held: HeldExpiry | None = None

    def until(self) -> float | None:
        """Seconds until edges may have expired, 0 if so, None if only an event can make it so."""
        policy = self._policy
        if self._confirmed is not None:
            return 0.0
        if policy is None or (policy.now is None and self._graph.seq == self._seq):
            return None
        return max(0.0, self._time + policy.every_seconds - self._clock())

    def begin(self) -> float | None:
        """Starts the next round: what time it is, None if there is nothing to expire at that time."""
        assert self._policy is not None
        now = self._confirmed
        if now is None:
            self._time, self._seq = self._clock(), self._graph.seq
            now = self._policy.now() if self._policy.now is not None else self._graph.latest_time
        if now is not None and len(self._graph.expired(now)):
            return now
        self._release()
        return None

    def removals(self, now: float, size: int) -> Iterator[Events]:
        """The edges that have expired at `now`, in parts of at most `size` events; nothing if a person must
        confirm it first.
        """
        self._seq = self._graph.seq
        expired = self._graph.expired(now)
        if now != self._confirmed and self._is_too_much(now, len(expired)):
            return
        for chunk in expired.chunks:
            for start in range(0, len(chunk.ids), size):
                yield from_chunks([chunk.part(slice(start, start + size))])
        self._release()  # now: a confirmed expiry continues if it is interrupted

    def confirm(self) -> HeldExpiry:
        """Lets the expiry that waits happen in the next round, and returns it.

        Raises `InputError` if none waits.
        """
        held = self.held
        if held is None:
            raise InputError(
                "expected an expiry that waits to be confirmed, got none: edges expire by themselves unless "
                "they are more than max_share of all"
            )
        self._confirmed = held.now
        return held

    def _is_too_much(self, now: float, edges: int) -> bool:
        """Whether a person must confirm it; says so in the log once, and keeps it as `held`."""
        assert self._policy is not None
        of = sum(self._graph.num_edges(name) for name in self._types)
        if edges < self._policy.least_asked or edges <= self._policy.max_share * of:
            return False
        if self.held is None:
            _logger.warning(
                "%d of %d edges would expire at time %r, more than the share of %g that may go at once: "
                "nothing expires until this is confirmed (Runtime.confirm_expiry, POST /v1/expiry/confirm). "
                "Look for an event whose time is too late, in another unit perhaps",
                edges,
                of,
                now,
                self._policy.max_share,
            )
        self.held = HeldExpiry(now, edges, of)
        return True

    def _release(self) -> None:
        if self.held is not None:
            _logger.warning("expiry resumed at event %d", self._graph.seq)
        self.held = self._confirmed = None
