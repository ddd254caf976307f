"""A graph as partitioners read it: nodes of all types with one numbering, and undirected neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import livegnn._core as _core

if TYPE_CHECKING:
    from jaxtyping import Int64, UInt16, UInt32
    from numpy.typing import NDArray

    from livegnn.graph import Graph
    from livegnn.types import IntArray


@dataclass(frozen=True)
class NumberedGraph:
    """Nodes of all types, numbered one type after the other, and their neighbours over edges of all types.

    type_starts: the number of the first node of each type, then the number of all nodes. lists: starts,
    neighbours and weights of each node's list; a weight is a number of edges, in both directions.
    in_degrees: the edges at whose target a node is.
    """

    type_starts: "Int64[IntArray, 'types+1']"
    lists: "tuple[IntArray, IntArray, IntArray]"
    in_degrees: "Int64[IntArray, 'nodes']"

    @classmethod
    def from_edges(
        cls,
        num_nodes: Sequence[int],
        edges: "Sequence[tuple[int, UInt32[NDArray[np.uint32], 'n'], int, UInt32[NDArray[np.uint32], 'n']]]",
    ) -> "NumberedGraph":
        """A graph of `num_nodes` nodes by type. edges: source type, sources, target type, targets; ends are
        positions among the nodes of their types, and an undirected edge is listed in both directions.
        """
        starts = np.concatenate([[0], np.cumsum(num_nodes)]).astype(np.int64)
        in_degrees = np.zeros(starts[-1], np.int64)
        for _, _, target_type, targets in edges:
            first, end = starts[target_type], starts[target_type + 1]
            in_degrees[first:end] += np.bincount(targets, minlength=end - first)
        listed = [
            (sources, targets, int(starts[source_type]), int(starts[target_type]))
            for source_type, sources, target_type, targets in edges
        ]
        return cls(starts, _core.join_edges(int(starts[-1]), listed), in_degrees)

    @classmethod
    def of(cls, graph: "Graph") -> "NumberedGraph":
        """The nodes of a graph in the order of `graph.ids`. The caller must hold `graph.writer`."""
        native, schema = graph.native, graph.schema
        places, num_nodes = [], []
        for index in range(len(schema.node_types)):
            nodes = native.indices(index)
            place = np.zeros(native.capacity(index), np.uint32)
            place[nodes] = np.arange(len(nodes), dtype=np.uint32)
            places.append(place)
            num_nodes.append(len(nodes))
        edges = []
        for index, (source, _, target) in enumerate(schema.edge_types):
            sources, targets, *_ = native.coo(index)
            ends = schema.node_type_index(source), schema.node_type_index(target)
            edges.append((ends[0], places[ends[0]][sources], ends[1], places[ends[1]][targets]))
        return cls.from_edges(num_nodes, edges)

    @property
    def num_nodes(self) -> int:
        return int(self.type_starts[-1])

    def cut(self, owners: "UInt16[NDArray[np.uint16], 'nodes']") -> float:
        """The share of edges between nodes of different owners, except those of a node to itself."""
        between, every = _core.count_cut(self.lists, owners)
        return between / every if every else 0.0

    def balance(self, owners: "UInt16[NDArray[np.uint16], 'nodes']", workers: int) -> list[float]:
        """The most nodes that one worker owns over the mean, for each type; 1.0 if there are none."""
        found = []
        for first, end in zip(self.type_starts[:-1], self.type_starts[1:], strict=True):
            most = np.bincount(owners[first:end], minlength=workers).max()
            found.append(float(most * workers / (end - first)) if end > first else 1.0)
        return found

    def even_out(self, owners: "UInt16[NDArray[np.uint16], 'nodes']", workers: int) -> int:
        """Moves the least connected nodes out of workers with too many of a type; returns how many."""
        return _core.even_out(self.lists, self.type_starts, workers, owners)

    def rebalance(
        self,
        owners: "UInt16[NDArray[np.uint16], 'nodes']",
        workers: int,
        *,
        nodes: "Int64[IntArray, 'movable'] | None" = None,
        passes: int = 1,
        budget: int | None = None,
    ) -> int:
        """Places nodes again by Fennel's rule, those first that gain most; returns how many moved.

        owners: changed. nodes: those that may move, each once; None: all at the boundary of their part.
        passes: the largest number of passes, of which one that moves none is the last. budget: the most
        moves.
        """
        movable = self.boundary(owners) if nodes is None else nodes
        most = len(owners) * passes if budget is None else budget
        return _core.refine(self.lists, self.type_starts, workers, owners, movable, passes, most)

    def boundary(self, owners: "UInt16[NDArray[np.uint16], 'nodes']") -> "Int64[IntArray, 'boundary']":
        """The nodes that have a neighbour of another owner."""
        starts, neighbors, _ = self.lists
        own = np.repeat(owners, np.diff(starts))
        differs = np.concatenate([[0], np.cumsum(own != owners[neighbors])])
        return np.flatnonzero(differs[starts[1:]] != differs[starts[:-1]])
