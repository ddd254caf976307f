"""Checks an engine for drift again and again, between batches."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from livegnn.arguments import check_int, check_positive

if TYPE_CHECKING:
    from livegnn.inference.engine import Engine  # a deployment names a policy before it needs an engine


@dataclass(frozen=True)
class ScrubPolicy:
    """The interval between scrubs, in seconds of the runtime's clock, and the number of nodes for each
    aggregate.

    The cost of a round is that of `sample` nodes and their in-neighbours, and batches wait for it.
    """

    every_seconds: float = 10.0
    sample: int = 16

    def __post_init__(self) -> None:
        check_positive(self.every_seconds, "every_seconds")
        check_int(self.sample, "sample", 1)


class Scrub:
    """Applies a policy to one engine. Not thread-safe: the runtime's loop owns it.

    rounds: number of rounds so far. last, largest: the largest difference in the last round, and in any
    round, as fractions of a channel's magnitude (`Scrubbed`). not_finite: rows of the last round that are not
    finite.
    """

    def __init__(self, engine: "Engine", policy: ScrubPolicy | None, clock: Callable[[], float]) -> None:
        self._engine: Engine | None = engine
        self._policy = policy
        self._clock = clock
        self._time, self._seq = clock(), engine.seq
        self.rounds = 0
        self.last = self.largest = 0.0
        self.not_finite = 0

    def follow(self, engine: "Engine | None") -> None:
        """Scrubs another engine from now on, or none."""
        self._engine = engine

    def until(self) -> float | None:
        """Seconds until a round is due, 0 if one is due, None if none is due before the next event."""
        if self._policy is None or self._engine is None or self._engine.seq == self._seq:
            return None
        return max(0.0, self._time + self._policy.every_seconds - self._clock())

    def run(self) -> None:
        """Runs one round, with a new random sample of nodes."""
        assert self._policy is not None
        assert self._engine is not None
        self._time, self._seq = self._clock(), self._engine.seq
        seen = self._engine.scrubbed(self._policy.sample, seed=self.rounds)
        self.last, self.not_finite = seen.difference, seen.not_finite
        self.largest = max(self.largest, self.last)
        self.rounds += 1
