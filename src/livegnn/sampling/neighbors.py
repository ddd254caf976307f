"""Neighbours of many nodes, some for each."""

from typing import TYPE_CHECKING, NamedTuple

from livegnn.arguments import switch
from livegnn.graph import Graph
from livegnn.graph.core import chosen_threads
from livegnn.sampling.request import (
    NEIGHBORS_BY,
    Direction,
    NeighborsBy,
    bounds,
    check_graph,
    checked_count,
    chosen_seed,
    explained,
    given_ids,
    is_incoming,
    native_ids,
    position_in,
    sampler_of,
)
from livegnn.types import DoubleArray, EdgeType, FloatArray, Ids, IntArray

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, Int64, Shaped
    from numpy.typing import ArrayLike


class NeighborSample(NamedTuple):
    """Neighbours of node `i` are those from `rowptr[i]` to `rowptr[i + 1]`.

    rowptr: int64 [nodes + 1]. ids: [neighbours]. weight, time: float32, float64 [neighbours], None where the
    edge type has none. edge: int64 [neighbours], rows of the edges' features, None where it has none. seed:
    with it, the sample can be drawn again.
    """

    rowptr: "Int64[IntArray, 'offsets']"
    ids: "Shaped[Ids, 'neighbors']"
    weight: "Float32[FloatArray, 'neighbors'] | None"
    time: "Float64[DoubleArray, 'neighbors'] | None"
    edge: "Int64[IntArray, 'neighbors'] | None"
    seed: int


def sample_neighbors(
    graph: Graph,
    ids: "ArrayLike",
    num_neighbors: int,
    *,
    by: NeighborsBy = "uniform",
    replace: bool = False,
    until: "ArrayLike | None" = None,
    edge_type: EdgeType | None = None,
    direction: Direction = "in",
    seed: int | None = None,
    threads: int | None = None,
) -> NeighborSample:
    """`num_neighbors` neighbours of each node, or all with -1 (PlatoD2GL, section V-C).

    ids: nodes, one may occur several times; each occurrence has draws of its own. by: `"uniform"`: every
    neighbour alike. `"weight"`: in proportion to the weights of the edges; one whose weight is not above 0 is
    never drawn, with -1 neither. `"latest"`: those with the greatest times, the latest first, equal ones in
    the order of `Graph.ids`. replace: a neighbour may be drawn again. Without replacement, each draw
    takes one of those that are left, from the same distribution; a node with fewer neighbours than asked for
    gives all of them. until: only edges whose time is at most this: one time, or one for each node.
    direction: `"in"`: neighbours that point at a node, `"out"`: that it points at. threads: by default as
    many as the process may use; the sample does not depend on it.

    Raises `UnknownNodeError`, `UnknownTypeError`, and `InputError`, also for `"weight"` on edges without
    weights, and for `"latest"` or `until` on edges without times.
    """
    check_graph(graph)
    strategy = position_in(NEIGHBORS_BY, by, "by")
    incoming = is_incoming(direction)
    index = graph.edge_type_index(edge_type)
    source, _, target = list(graph.schema.edge_types)[index]
    here = graph.node_type_index(target if incoming else source)
    asked = given_ids(ids)
    times = bounds(until, len(asked))
    used = chosen_seed(seed)
    with explained(graph, {here: asked}):
        rowptr, drawn, weight, time, edge = sampler_of(graph).neighbors(
            graph.native,
            index,
            native_ids(graph, asked),
            checked_count(num_neighbors),
            strategy,
            switch(replace, "replace"),
            incoming,
            times,
            used,
            chosen_threads(threads),
            True,
        )
    return NeighborSample(rowptr, graph.node_ids.named(drawn), weight, time, edge, used)
