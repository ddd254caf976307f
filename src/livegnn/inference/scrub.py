"""Looking for drift beside the stream: random aggregates are computed anew and compared, by channel."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from livegnn import _core
from livegnn.arguments import above_zero, whole
from livegnn.compiler.plan import Plan
from livegnn.graph import Graph

if TYPE_CHECKING:
    from livegnn.inference.engine import Engine


@dataclass(frozen=True)
class Scrubbed:
    """What a look at some kept rows saw.

    difference: the largest one of a channel to the same row computed anew, as a part of the channel's
    magnitude: the largest of its own, the mean one of its messages, and that of as many typical ones over the
    graph. Infinity where only one of the two is finite. not_finite: rows that hold an infinity or NaN. rows:
    how many were compared.
    """

    difference: float
    not_finite: int
    rows: int


def scrub(native: _core.Engine, graph: Graph, plan: Plan, sample: int, seed: int) -> Scrubbed:
    """Compares `sample` rows of each aggregate and each context of an engine that is settled."""
    rng = np.random.default_rng(seed)
    difference, not_finite, rows = 0.0, 0, 0
    for kept in plan.kept.values():
        if kept.propagation is None and kept.context is None:
            continue
        nodes = graph.native.indices(graph.node_type_index(plan.node_type(kept.name)))
        chosen = rng.choice(nodes, min(sample, len(nodes)), replace=False)
        if kept.propagation is not None:
            largest, lost = native.scrub(kept.propagation, chosen)
        else:
            assert kept.context is not None
            largest, lost = native.scrub_context(kept.context, chosen)
        difference, not_finite, rows = max(difference, largest), not_finite + lost, rows + len(chosen)
    return Scrubbed(difference, not_finite, rows)


@dataclass(frozen=True)
class ScrubPolicy:
    """How often, in seconds of the runtime's clock, and how many nodes for each aggregate.

    A round costs what `sample` nodes and their in-neighbours cost, and batches wait for it.
    """

    every_seconds: float = 10.0
    sample: int = 16

    def __post_init__(self) -> None:
        above_zero(self.every_seconds, "every_seconds")
        whole(self.sample, "sample", 1)


class Scrub:
    """The policy at work on one engine. Thread safety: none, the runtime's loop owns it.

    rounds: how many there were. last, largest: the largest difference that the last one saw, and any of them,
    as parts of a channel's magnitude (`Scrubbed`). not_finite: how many rows that the last one saw are not.
    """

    def __init__(self, engine: "Engine", policy: ScrubPolicy | None, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._policy = policy
        self._clock = clock
        self._time, self._seq = clock(), engine.seq
        self.rounds = 0
        self.last = self.largest = 0.0
        self.not_finite = 0

    def until(self) -> float | None:
        """Seconds until a round is due, 0 if it is, None if only an event can make it so."""
        if self._policy is None or self._engine.seq == self._seq:
            return None
        return max(0.0, self._time + self._policy.every_seconds - self._clock())

    def run(self) -> None:
        """One round, of other nodes than the rounds before."""
        assert self._policy is not None
        self._time, self._seq = self._clock(), self._engine.seq
        seen = self._engine.scrubbed(self._policy.sample, seed=self.rounds)
        self.last, self.not_finite = seen.difference, seen.not_finite
        self.largest = max(self.largest, self.last)
        self.rounds += 1
