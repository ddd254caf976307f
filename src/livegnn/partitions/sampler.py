"""Samples of a divided graph, with the bits of those of the undivided one: each node's owner draws for it,
from the same lists and with the same random numbers.
"""

from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

import livegnn._core as _core
from livegnn.errors import InputError, LiveGNNError
from livegnn.partitions.part import Reader

if TYPE_CHECKING:
    from livegnn.channels.frames import Buffer

Sample = TypeVar("Sample")
_UNIFORM: Final = 0


class PartitionedSampler:
    """The native sampler of the graph of names, whose edges are in `parts`. Its functions have the arguments
    and the errors of those of `_core.Sampler`; rows of edge features, which each part numbers for itself, are
    None.

    All parts answer as of one batch. If another one becomes visible meanwhile, the sample is drawn again,
    and the next batch waits for it then. writer: of the graph, held while a batch is applied.

    Raises `WorkerUnavailableError` for a sample that needs a part whose process is lost.

    Thread safety: any thread may call.
    """

    def __init__(self, names: _core.Graph, parts: Sequence[Reader], writer: RLock) -> None:
        self._native = _core.Sampler(names)
        self._parts, self._writer = tuple(parts), writer

    def nodes(self, graph: _core.Graph, type: int, by: int, *rest: Any) -> Any:
        """Nodes, uniformly. Raises `InputError` for others."""
        if by != _UNIFORM:
            raise InputError(
                "nodes of a divided graph can be drawn by='uniform' alone, as no part knows all degrees and "
                "weights: draw seeds uniformly, or from a table of your own"
            )
        return self._native.nodes(graph, type, by, *rest)

    def neighbors(self, graph: _core.Graph, edge_type: int, *rest: Any) -> Any:
        """Neighbours of each of some nodes."""
        *given, _, named = rest  # all of it but the number of threads
        return self._consistent(partial(self._draw_neighbors, graph, edge_type, given, named=named))

    def subgraph(self, graph: _core.Graph, *rest: Any) -> Any:
        """A subgraph by fan-outs."""
        *given, named = rest
        begin = partial(_core.DividedSample.begin_subgraph, self._native, graph, *given)
        return self._consistent(partial(self._draw, graph, begin, named=named))

    def query(self, graph: _core.Graph, seeds: Any, *rest: Any) -> Any:
        """A subgraph by one-hop queries."""
        *given, named = rest
        begin = partial(_core.DividedSample.begin_query, self._native, graph, [seeds], *given)
        return self._consistent(partial(self._draw, graph, begin, named=named))

    def _consistent(self, draw: Callable[[], Sample | None]) -> Sample:
        """`draw`, which returns None if it has seen two batches."""
        drawn = draw()
        if drawn is None:
            drawn = _core.holding(self._writer, draw)
        if drawn is None:
            raise LiveGNNError("the parts of the graph show different batches: start all parts again")
        return drawn

    def _draw(self, graph: _core.Graph, begin: Callable[[], _core.DividedSample], *, named: bool) -> Any:
        sample = begin()
        while asked := sample.ask(graph):
            if not sample.take(graph, self._ask(asked)):
                return None
        return None if asked is None else sample.finish(graph, named)

    def _draw_neighbors(
        self, graph: _core.Graph, edge_type: int, given: Sequence[Any], *, named: bool
    ) -> Any:
        drawn = _core.DividedNeighbors.begin(graph, edge_type, *given)
        return drawn.finish(graph, edge_type, self._ask(drawn.ask()), named)

    def _ask(self, questions: "Sequence[np.ndarray[tuple[int], np.dtype[np.uint8]]]") -> "list[Buffer]":
        """The answer of each part, empty if there is no question to it. All questions are sent before one
        answer is waited for."""
        waits = [
            part.ask(question.data) if question.size else None
            for part, question in zip(self._parts, questions, strict=True)
        ]
        return [b"" if wait is None else wait() for wait in waits]
