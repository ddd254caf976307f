"""Samples nodes of the current graph, uniformly, by degree or by weight."""

from typing import TYPE_CHECKING

from livegnn.arguments import check_bool, is_incoming
from livegnn.errors import InputError
from livegnn.graph import Graph
from livegnn.sampling.request import (
    NODES_BY,
    Direction,
    NodesBy,
    check_graph,
    checked_count,
    chosen_seed,
    explained,
    position_in,
    sampler_of,
)
from livegnn.types import EdgeType, Ids, NodeType

if TYPE_CHECKING:
    from jaxtyping import Shaped


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
        ids = sampler_of(graph).nodes(
            graph.native,
            type_,
            strategy,
            incoming,
            check_bool(replace, "replace"),
            number,
            chosen_seed(seed),
            True,
        )
    return graph.node_ids.named(ids)
