"""Checks for drift between batches: computes kept rows again from their inputs, and compares them channel by
channel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import livegnn._core as _core
from livegnn.compiler.plan import Plan
from livegnn.graph import Graph
from livegnn.inference.native_engine import NativeEngine

if TYPE_CHECKING:
    import numpy.typing as npt

    _Indices = npt.NDArray[np.uint32]
    _Part = tuple["Scrubbed", int]
    _ReadCurrent = Callable[[Callable[[], _Part]], _Part]

_PART = 1 << 14
"""The number of node indices whose rows `scrub_all` compares at a time."""


@dataclass(frozen=True)
class Scrubbed:
    """The result of comparing some kept rows with the same rows computed again.

    difference: the largest difference of a channel, as a fraction of the channel's magnitude; infinity if
    only one of the two values is finite. The magnitude of an aggregate is the largest of three: the channel's
    own, the mean one of its messages, and that of as many typical messages over the graph; that of another
    row is its own, or the mean one of the compared rows if that is larger. not_finite: the number of rows
    that hold an infinity or NaN. rows: how many were compared.
    """

    difference: float
    not_finite: int
    rows: int


def scrub(native: _core.Engine, graph: Graph, plan: Plan, sample: int, seed: int) -> Scrubbed:
    """Compares `sample` rows of each value that is kept; a lazy engine must show its current rows."""
    rng = np.random.default_rng(seed)
    return _compare(
        native, graph, plan, lambda nodes: rng.choice(nodes, min(sample, len(nodes)), replace=False)
    )


def scrub_all(engine: NativeEngine, read_current: "_ReadCurrent") -> Scrubbed:
    """Compares all rows, some nodes at a time: a batch waits for one part at most. All rows of a node are
    compared at the same moment. read_current: as `Engine.read_current`.
    """
    difference, not_finite, rows, first = 0.0, 0, 0, 0
    while True:
        part, end = read_current(partial(_compare_part, engine, first))
        difference = max(difference, part.difference)
        not_finite, rows, first = not_finite + part.not_finite, rows + part.rows, first + _PART
        if first >= end:
            return Scrubbed(difference, not_finite, rows)


def _compare_part(engine: NativeEngine, first: int) -> "_Part":
    """Compares the rows of the nodes from index `first` on. Also returns the number of indices."""
    graph = engine.graph
    end = max(graph.native.capacity(index) for index in range(len(graph.schema.node_types)))

    def choose(nodes: "_Indices") -> "_Indices":
        return nodes[(nodes >= first) & (nodes < first + _PART)]

    return _compare(engine.native, graph, engine.plan, choose), end


def _compare(
    native: _core.Engine, graph: Graph, plan: Plan, choose: "Callable[[_Indices], _Indices]"
) -> Scrubbed:
    difference, not_finite, rows = 0.0, 0, 0
    for kept in plan.kept.values():
        if not kept.stored:
            continue
        nodes = choose(graph.native.indices(graph.node_type_index(plan.node_type(kept.name))))
        if kept.propagation is not None:
            largest, lost = native.scrub(kept.propagation, nodes)
        elif kept.context is not None:
            largest, lost = native.scrub_context(kept.context, nodes)
        else:
            largest, lost = native.scrub_rows(kept.index, nodes)
        difference, not_finite, rows = max(difference, largest), not_finite + lost, rows + len(nodes)
    return Scrubbed(difference, not_finite, rows)
