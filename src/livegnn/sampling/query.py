"""Samples the subgraph of a query, drawn from the graph as it is now."""

from typing import TYPE_CHECKING

from livegnn.arguments import as_array, check_bool, chosen_threads
from livegnn.errors import InputError
from livegnn.graph import Graph, Schema
from livegnn.query import NEIGHBORS_BY, Query
from livegnn.sampling.request import (
    bounds,
    check_graph,
    chosen_seed,
    explained,
    given_ids,
    native_ids,
    sampler_of,
)
from livegnn.sampling.subgraph import HeteroSubgraph, hetero_subgraph
from livegnn.types import EdgeType
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def sample_query(
    graph: Graph,
    seeds: "ArrayLike",
    query: Query,
    *,
    attributes: bool = False,
    until: float | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> HeteroSubgraph:
    """Samples the subgraph of `query`: each one-hop query draws with its own direction and strategy, for
    the nodes that its parents have added.

    seeds: ids of nodes of the query's seed type. A node occurs once and is drawn for once. The edges of a
    type are in the order of the hops, then of the one-hop queries; `row` is the source and `col` the target
    of an edge, in whichever direction it was drawn. attributes, until, seed, threads: as in
    `sample_subgraph`.

    Raises the errors of `Query.check` and `sample_subgraph`.
    """
    check_graph(graph)
    check_query(graph, query)
    ids = given_ids(seeds)
    if until is not None and as_array(until, "until").ndim > 0:
        raise InputError(f"until must be one time for all seeds of a query, got {until!r}")
    times = bounds(until, 0)
    used = chosen_seed(seed)
    type_ = graph.node_type_index(query.seed_type)
    with explained(graph, {type_: ids}):
        nodes, edges, (inverse,) = sampler_of(graph).query(
            graph.native,
            (type_, native_ids(graph, ids)),
            native_one_hops(graph.schema, query),
            check_bool(attributes, "attributes"),
            times,
            used,
            chosen_threads(threads),
            True,
        )
    drawn = dict(zip(edge_types_of(graph.schema, query), edges, strict=True))
    return hetero_subgraph(graph.schema, graph.node_ids, nodes, drawn, {query.seed_type: inverse}, used)


def check_query(graph: Graph, query: object) -> None:
    """Raises `InputError` unless `query` is a query that fits the graph."""
    if not isinstance(query, Query):
        raise InputError(f"expected the Query to sample by, got {kind_of(query)}")
    query.check(graph.schema)


def native_one_hops(schema: Schema, query: Query) -> list[tuple[int, bool, int, int, tuple[int, ...]]]:
    """The one-hop queries in the form that the native core takes."""
    return [
        (
            schema.edge_type_index(step.edge_type),
            step.direction == "in",
            step.num_neighbors,
            NEIGHBORS_BY.index(step.by),
            step.parents,
        )
        for step in query.one_hop
    ]


def edge_types_of(schema: Schema, query: Query) -> list[EdgeType]:
    """The edge types that a query draws along, in the order of the schema."""
    drawn = {step.edge_type for step in query.one_hop}
    return [name for name in schema.edge_types if name in drawn]
