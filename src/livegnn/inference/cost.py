"""The work that a batch would cause, before it is applied."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

import livegnn._core as _core
from livegnn.events import Events
from livegnn.graph import Graph
from livegnn.inference.native_engine import NativeEngine
from livegnn.inference.update import Work

RECENT: Final = 64
"""The number of batches whose work and time an engine remembers."""
_ALIKE: Final = 8  # batches of the nearest size

RecentBatch = tuple[tuple[int, int, int, int], float]
"""The numbers of `Work` of a batch, and its seconds."""


@dataclass(frozen=True)
class Cost:
    """The work that a batch would cause at most. Rows that keep their bits are only found by computing them,
    so a batch may do less.

    predictions: nodes whose first output may change. rows: rows that may be computed again, of all values
    of the model. edges: messages along edges, once for each propagation. seconds: an estimate, from the
    batches of the nearest sizes among the last ones; None before the first batch.
    """

    predictions: int
    rows: int
    edges: int
    seconds: float | None


class Costing:
    """Says what batches cost, and would cost. An `Engine` is one."""

    graph: Graph
    core: NativeEngine
    _recent: list[RecentBatch | None]  # a ring, of which `_turn` is the last batch
    _turn: int

    @property
    def last_work(self) -> Work:
        """The work that the last batch caused."""
        last = self._recent[self._turn]
        return Work(0, 0, 0, 0) if last is None else Work(*last[0])

    def cost(self, events: Events) -> Cost:
        """The work that a batch of these events would cause at most, without applying or computing it: the
        nodes that they reach are found along the edges, which takes a small part of the batch's time.

        A lazy engine would only mark these rows, and compute some of them when they are read. Raises the
        errors of `apply`.
        """
        return _core.holding(self.graph.writer, self._cost, events)

    def _cost(self, events: Events) -> Cost:
        staged = self.graph.stage(events)
        predictions, rows, edges = self.core.native.reach(staged.native)
        batches = [one for one in self._recent if one is not None]
        return Cost(predictions, rows, edges, estimate_seconds(batches, rows + edges))


def estimate_seconds(batches: Sequence[RecentBatch], touched: int) -> float | None:
    """The seconds of a batch that touches as many rows and edges; None without measured batches."""
    if not batches:
        return None
    sizes = np.array([max(1, work[1] + work[2]) for work, _ in batches], np.float64)
    seconds = np.array([one for _, one in batches])
    apart = np.abs(np.log(sizes / max(1, touched)))
    near = np.argsort(apart, kind="stable")[:_ALIKE]
    scaled = seconds[near] * (max(1, touched) / sizes[near])
    return float(max(np.median(scaled), seconds.min()))
