"""Looking for drift beside the stream: random aggregates are computed anew and compared."""

from collections.abc import Callable
from dataclasses import dataclass

from livegnn.errors import InputError
from livegnn.inference.engine import Engine


@dataclass(frozen=True)
class ScrubPolicy:
    """How often, in seconds of the runtime's clock, and how many nodes for each aggregate.

    A round costs what `sample` nodes and their in-neighbours cost, and batches wait for it.
    """

    every_seconds: float = 10.0
    sample: int = 16

    def __post_init__(self) -> None:
        if not self.every_seconds > 0:
            raise InputError(f"every_seconds must be above 0, got {self.every_seconds}")
        if self.sample < 1:
            raise InputError(f"sample must be at least 1, got {self.sample}")


class Scrub:
    """The policy at work on one engine. Thread safety: none, the runtime's loop owns it.

    rounds: how many there were. last, largest: the largest difference that the last one saw, and any of them,
    as parts of the aggregate's magnitude (`Engine.scrub`).
    """

    def __init__(self, engine: Engine, policy: ScrubPolicy | None, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._policy = policy
        self._clock = clock
        self._time, self._seq = clock(), engine.seq
        self.rounds = 0
        self.last = self.largest = 0.0

    def until(self) -> float | None:
        """Seconds until a round is due, 0 if it is, None if only an event can make it so."""
        if self._policy is None or self._engine.seq == self._seq:
            return None
        return max(0.0, self._time + self._policy.every_seconds - self._clock())

    def run(self) -> None:
        """One round, of other nodes than the rounds before."""
        assert self._policy is not None
        self._time, self._seq = self._clock(), self._engine.seq
        self.last = self._engine.scrub(self._policy.sample, seed=self.rounds)
        self.largest = max(self.largest, self.last)
        self.rounds += 1
