"""Samples neighbours of many nodes."""

from typing import TYPE_CHECKING, NamedTuple

from livegnn.arguments import check_bool, chosen_threads, is_incoming
from livegnn.graph import Graph
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
    native_ids,
    position_in,
    sampler_of,
)
from livegnn.types import DoubleArray, EdgeType, FloatArray, Ids, IntArray

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, Int64, Shaped
    from numpy.typing import ArrayLike


class NeighborSample(NamedTuple):
    """Sampled neighbours in CSR form: those of node `i` are at positions `rowptr[i]` to `rowptr[i + 1]`.

    rowptr: int64 [nodes + 1]. ids: [neighbours]. weight, time: float32, float64 [neighbours], None if the
    edge type has none. edge: int64 [neighbours], rows of the edges' features, None if it has none. seed: the
    seed with which the sample can be drawn again.
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

    ids: nodes; a node may occur several times, and each occurrence is sampled independently. by: `"uniform"`:
    every neighbour with the same probability. `"weight"`: in proportion to the weights of the edges; an edge
    whose weight is not above 0 is never drawn, not even with -1. `"latest"`: the neighbours with the greatest
    times, latest first, ties in the order of `Graph.ids`. replace: draw with replacement. Without it, each
    draw takes one of the remaining neighbours, from the same distribution; a node with fewer neighbours than
    requested gives all of them. until: use only edges whose time is at most this: one time, or one for each
    node. direction: `"in"`: along in-edges, `"out"`: along out-edges. threads: by default as many as the
    process may use; the sample does not depend on it.

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
            check_bool(replace, "replace"),
            incoming,
            times,
            used,
            chosen_threads(threads),
            True,
        )
    return NeighborSample(rowptr, graph.node_ids.named(drawn), weight, time, edge, used)
