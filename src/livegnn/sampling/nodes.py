"""Samples nodes of the current graph, uniformly, by degree or by weight; and neighbours of many nodes."""

from typing import TYPE_CHECKING, NamedTuple

from livegnn.arguments import check_bool, chosen_threads, is_incoming
from livegnn.errors import InputError
from livegnn.graph import Graph
from livegnn.sampling.request import (
    NEIGHBORS_BY,
    NODES_BY,
    Direction,
    NeighborsBy,
    NodesBy,
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
from livegnn.types import DoubleArray, EdgeType, FloatArray, Ids, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, Int64, Shaped
    from numpy.typing import ArrayLike


def sample_nodes(
    graph: Graph,
    count: int,
    *,
    by: NodesBy = "uniform",
    replace: bool = False,
    node_type: NodeType | None = None,
    edge_type: EdgeType | None = None,
    direction: Direction = "out",
    seed: int | None = None,
) -> "Shaped[Ids, 'nodes']":
    """Ids of `count` nodes, in the order in which they were drawn (PlatoD2GL, section III: node sampling).

    by: `"uniform"`: every node of `node_type` with the same probability. `"degree"`: in proportion to the
    number of out-edges of `edge_type` (in-edges, with `direction="in"`). `"weight"`: in proportion to the sum
    of their weights; a weight below 0 counts as 0. replace: draw with replacement. Without it, each draw
    takes one of the remaining nodes, from the same distribution; if fewer than `count` can be drawn, all of
    them are returned. seed: random by default; the same seed draws the same nodes again.

    Drawing by degree or weight visits every node of the type once.
    Raises `InputError`, also for `"weight"` on edges without weights, and `UnknownTypeError`.
    """
    check_graph(graph)
    strategy = position_in(NODES_BY, by, "by")
    incoming = is_incoming(direction)
    if strategy == 0:
        if edge_type is not None:
            raise InputError("edge_type says whose edges count by 'degree' or 'weight'; by is 'uniform'")
        type_ = graph.node_type_index(node_type)
    else:
        type_ = graph.edge_type_index(edge_type)
        drawn = list(graph.schema.edge_types)[type_][2 if incoming else 0]
        if node_type not in (None, drawn):
            raise InputError(
                f"node_type must be {drawn!r}, at the {direction!r} end of the edge type, got {node_type!r}"
            )
    number = checked_count(count, "count")
    with explained(graph, {}):
        replace, seed = check_bool(replace, "replace"), chosen_seed(seed)
        ids = sampler_of(graph).nodes(graph.native, type_, strategy, incoming, replace, number, seed, True)
    return graph.node_ids.named(ids)


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
    node_type = graph.node_type_index(target if incoming else source)
    nodes = given_ids(ids)
    times = bounds(until, len(nodes))
    used = chosen_seed(seed)
    with explained(graph, {node_type: nodes}):
        rowptr, drawn, weight, time, edge = sampler_of(graph).neighbors(
            graph.native,
            index,
            native_ids(graph, nodes),
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
