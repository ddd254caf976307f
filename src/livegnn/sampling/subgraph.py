"""Samples subgraphs: several hops of neighbours around seeds, in the form of PyG's sampler outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast, overload

import numpy as np

from livegnn.arguments import as_array, check_bool, chosen_threads, is_incoming
from livegnn.errors import InputError
from livegnn.graph import Graph, Schema
from livegnn.graph.node_ids import NodeIds
from livegnn.sampling.request import (
    NEIGHBORS_BY,
    Direction,
    NeighborsBy,
    bounds,
    check_graph,
    checked_hops,
    chosen_seed,
    explained,
    given_ids,
    native_ids,
    position_in,
    sampler_of,
)
from livegnn.types import DoubleArray, EdgeType, FloatArray, Ids, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, Int64, Shaped, UInt32
    from numpy.typing import ArrayLike, NDArray

    import livegnn._core as _core


@dataclass(frozen=True)
class Subgraph:
    """Nodes and edges that were reached from the seeds, as in PyG's `SamplerOutput`.

    node: ids [nodes], the seeds first, then hop by hop. row, col: int64 [edges], source and target of each
    edge as positions in `node`. edge: int64 [edges], rows of the edges' features, None if the edge type has
    none. batch: int64 [nodes], for disjoint subgraphs the seed that each node belongs to, else None.
    num_sampled_nodes: counts for the seeds and for each hop. num_sampled_edges: counts for each hop. inverse:
    int64 [seeds], the position of each seed in `node`; a repeated seed is there once, unless disjoint. seed:
    the seed with which the sample can be drawn again. With `attributes`, and if the types have them: x:
    features of nodes, float32 [nodes, channels]; edge_weight, time: float32, float64 [edges]; edge_attr:
    features of edges, float32 [edges, channels]; all as they were when the sample was drawn.
    """

    node: "Shaped[Ids, 'nodes']"
    row: "Int64[IntArray, 'edges']"
    col: "Int64[IntArray, 'edges']"
    edge: "Int64[IntArray, 'edges'] | None"
    batch: "Int64[IntArray, 'nodes'] | None"
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    inverse: "Int64[IntArray, 'seeds']"
    seed: int
    x: "Float32[FloatArray, 'nodes channels'] | None"
    edge_weight: "Float32[FloatArray, 'edges'] | None"
    time: "Float64[DoubleArray, 'edges'] | None"
    edge_attr: "Float32[FloatArray, 'edges edge_channels'] | None"


@dataclass(frozen=True, kw_only=True)
class HeteroSubgraph:
    """A `Subgraph` by node type and by edge type, as in PyG's `HeteroSamplerOutput`.

    There are entries for every node type of the graph and every requested edge type. `row` has positions
    among the nodes of the edge type's source type, `col` among those of its target type. In `batch`, the
    seeds of all types are numbered in the given order. `x`, `edge_weight`, `time` and `edge_attr` have only
    the types with such columns, and are empty without `attributes`.
    """

    node: "dict[NodeType, Shaped[Ids, '_']]" = field(default_factory=dict)
    row: "dict[EdgeType, Int64[IntArray, '_']]" = field(default_factory=dict)
    col: "dict[EdgeType, Int64[IntArray, '_']]" = field(default_factory=dict)
    edge: "dict[EdgeType, Int64[IntArray, '_'] | None]" = field(default_factory=dict)
    batch: "dict[NodeType, Int64[IntArray, '_']] | None" = None
    num_sampled_nodes: dict[NodeType, list[int]] = field(default_factory=dict)
    num_sampled_edges: dict[EdgeType, list[int]] = field(default_factory=dict)
    inverse: "dict[NodeType, Int64[IntArray, '_']]"
    seed: int
    x: "dict[NodeType, Float32[FloatArray, '_ _']]" = field(default_factory=dict)
    edge_weight: "dict[EdgeType, Float32[FloatArray, '_']]" = field(default_factory=dict)
    time: "dict[EdgeType, Float64[DoubleArray, '_']]" = field(default_factory=dict)
    edge_attr: "dict[EdgeType, Float32[FloatArray, '_ _']]" = field(default_factory=dict)


FanOuts = Mapping[EdgeType, Sequence[int]]


class DrawOptions(NamedTuple):
    """The strategy of drawing neighbours, and the contents of the sample: as in `sample_subgraph`."""

    by: NeighborsBy
    replace: bool
    disjoint: bool
    direction: Direction
    attributes: bool
    seed: int | None
    threads: int | None


@overload
def sample_subgraph(
    graph: Graph,
    seeds: "Mapping[NodeType, ArrayLike]",
    num_neighbors: Sequence[int] | FanOuts,
    *,
    by: NeighborsBy = "uniform",
    replace: bool = False,
    until: "float | Mapping[NodeType, ArrayLike] | None" = None,
    disjoint: bool = False,
    direction: Direction = "in",
    attributes: bool = False,
    seed: int | None = None,
    threads: int | None = None,
) -> HeteroSubgraph: ...


@overload
def sample_subgraph(
    graph: Graph,
    seeds: "Sequence[int | str] | Shaped[Ids, 'seeds']",
    num_neighbors: Sequence[int],
    *,
    by: NeighborsBy = "uniform",
    replace: bool = False,
    until: "ArrayLike | None" = None,
    disjoint: bool = False,
    direction: Direction = "in",
    edge_type: EdgeType | None = None,
    attributes: bool = False,
    seed: int | None = None,
    threads: int | None = None,
) -> Subgraph: ...


def sample_subgraph(
    graph: Graph,
    seeds: "ArrayLike | Mapping[NodeType, ArrayLike]",
    num_neighbors: Sequence[int] | FanOuts,
    *,
    by: NeighborsBy = "uniform",
    replace: bool = False,
    until: "ArrayLike | Mapping[NodeType, ArrayLike] | None" = None,
    disjoint: bool = False,
    direction: Direction = "in",
    edge_type: EdgeType | None = None,
    attributes: bool = False,
    seed: int | None = None,
    threads: int | None = None,
) -> Subgraph | HeteroSubgraph:
    """A subgraph of several hops around the seeds: hop h draws `num_neighbors[h]` neighbours for each node
    that the hop before added (PlatoD2GL, section III: subgraph sampling).

    seeds: ids, for a `Subgraph` over one edge type; or ids by node type, for a `HeteroSubgraph`, where each
    hop draws along every edge type that leads to a node of the hop before. num_neighbors: one number for each
    hop (-1: all, 0: none); by edge type, or the same for all of them. by, replace: as in `sample_neighbors`.
    until: use only edges whose time is at most this: one time; with `disjoint` also one for each seed.
    disjoint: a node that is reached from two seeds becomes two nodes; otherwise a node occurs once.
    direction: `"in"`: draw along in-edges, as message-passing layers need; the neighbours were drawn for the
    node at `col`. `"out"`: draw along out-edges, for the node at `row`. attributes: also return the columns
    of nodes and edges from the same state of the graph; they may have changed if they are read later.
    threads: by default as many as the process may use; the sample does not depend on it.

    Raises what `sample_neighbors` raises, and `InputError` if the numbers of hops differ.
    """
    check_graph(graph)
    options = DrawOptions(by, replace, disjoint, direction, attributes, seed, threads)
    if isinstance(seeds, Mapping):
        if edge_type is not None:
            raise InputError("seeds by node type take num_neighbors by edge type, not an edge_type")
        if not isinstance(num_neighbors, Mapping):
            num_neighbors = dict.fromkeys(graph.schema.edge_types, num_neighbors)
        times = _bounds_by_type(until, seeds, disjoint=disjoint)
        return _sample(graph, dict(seeds), dict(num_neighbors), times, options)
    if isinstance(num_neighbors, Mapping):
        raise InputError("num_neighbors by edge type needs seeds by node type")
    name = list(graph.schema.edge_types)[graph.edge_type_index(edge_type)]
    source, _, target = name
    if source != target:
        raise InputError(f"edge type {name!r} joins two node types: give seeds by node type")
    if isinstance(until, Mapping):
        raise InputError("until by node type needs seeds by node type")
    ids = given_ids(seeds)
    sample = _sample(graph, {source: ids}, {name: num_neighbors}, bounds(until, len(ids)), options)
    return Subgraph(
        node=sample.node[source],
        row=sample.row[name],
        col=sample.col[name],
        edge=sample.edge[name],
        batch=None if sample.batch is None else sample.batch[source],
        num_sampled_nodes=sample.num_sampled_nodes[source],
        num_sampled_edges=sample.num_sampled_edges[name],
        inverse=sample.inverse[source],
        seed=sample.seed,
        x=sample.x.get(source),
        edge_weight=sample.edge_weight.get(name),
        time=sample.time.get(name),
        edge_attr=sample.edge_attr.get(name),
    )


def sample_metapath(
    graph: Graph,
    seeds: "ArrayLike",
    metapath: Sequence[tuple[EdgeType, int]],
    *,
    by: NeighborsBy = "uniform",
    replace: bool = False,
    until: "ArrayLike | None" = None,
    disjoint: bool = False,
    direction: Direction = "out",
    attributes: bool = False,
    seed: int | None = None,
    threads: int | None = None,
) -> HeteroSubgraph:
    """Samples a subgraph along a path of edge types: hop h draws only along the h-th of them (PlatoD2GL,
    section VII-C: subgraphs over meta-paths).

    seeds: ids of nodes of the type where the path begins. metapath: edge types, each with the number of
    neighbours to draw for a node. direction: `"out"`: follow the edges, so that each edge type begins with
    the node type where the previous one ended; `"in"`: follow them backwards. Everything else is as in
    `sample_subgraph`: a hop draws for the nodes that the previous hop added, not for earlier ones.

    Raises the errors of `sample_subgraph`, and `InputError` if the path is empty or has a gap.
    """
    check_graph(graph)
    if not isinstance(metapath, Sequence):
        raise InputError(f"a meta-path must be a list of (edge type, number of neighbours), got {metapath!r}")
    if not metapath:
        raise InputError("a meta-path must have at least one edge type, got none")
    names = list(graph.schema.edge_types)
    fan_outs: dict[EdgeType, Sequence[int]] = {}
    at = start = ""
    for hop, step in enumerate(metapath):
        if not isinstance(step, Sequence) or len(step) != 2:
            raise InputError(
                f"each step of a meta-path must be (edge type, number of neighbours), got {step!r}"
            )
        edge_type, count = step
        name = names[graph.edge_type_index(edge_type)]
        begin, end = (name[2], name[0]) if is_incoming(direction) else (name[0], name[2])
        if hop == 0:
            start = begin
        elif begin != at:
            raise InputError(
                f"the meta-path has a gap before {name!r}: it is at node type {at!r}, not {begin!r}"
            )
        at = end
        counts = list(fan_outs.get(name, [0] * len(metapath)))
        counts[hop] = count
        fan_outs[name] = counts
    ids = given_ids(seeds)
    options = DrawOptions(by, replace, disjoint, direction, attributes, seed, threads)
    return _sample(graph, {start: ids}, fan_outs, bounds(until, len(ids)), options)


def _bounds_by_type(
    until: "ArrayLike | Mapping[NodeType, ArrayLike] | None",
    seeds: "Mapping[NodeType, ArrayLike]",
    *,
    disjoint: bool,
) -> DoubleArray | None:
    """`until` as one time, or as one for each seed in the order of `seeds`. Raises `InputError`."""
    if not isinstance(until, Mapping):
        if until is not None and as_array(until, "until").ndim > 0:
            raise InputError("until must be one time, or times by node type, as the seeds are")
        return bounds(until, 0)
    if set(until) != set(seeds):
        raise InputError(f"until must have the node types of the seeds, {sorted(seeds)}, got {sorted(until)}")
    if not disjoint:
        raise InputError(
            "a time for each seed needs disjoint=True: a node that two seeds share has no time of its own"
        )
    columns = []
    for name, ids in seeds.items():
        count = len(given_ids(ids))
        columns.append(np.broadcast_to(cast("DoubleArray", bounds(until[name], count)), (count,)))
    return np.concatenate(columns) if columns else None


def _sample(
    graph: Graph,
    seeds: "Mapping[NodeType, ArrayLike]",
    fan_outs: FanOuts,
    times: DoubleArray | None,
    options: DrawOptions,
) -> HeteroSubgraph:
    checked = {name: given_ids(ids) for name, ids in seeds.items()}
    with explained(graph, {graph.node_type_index(name): ids for name, ids in checked.items()}):
        numbers = {name: native_ids(graph, ids) for name, ids in checked.items()}
        return sample_native(graph, numbers, fan_outs, times, options, named=True)


def sample_native(
    graph: Graph,
    seeds: "Mapping[NodeType, Int64[IntArray, '...'] | UInt32[NDArray[np.uint32], '...']]",
    fan_outs: FanOuts,
    times: "Float64[DoubleArray, 'seeds'] | None",
    options: DrawOptions,
    *,
    named: bool,
) -> HeteroSubgraph:
    """`sample_subgraph` for ids in the form that the native core takes.

    times: one, or one for each seed. named: whether `node` has the user's ids rather than internal numbers.

    Raises `_core.SampleError`, which `explained` turns into an error of LiveGNN.
    """
    strategy = position_in(NEIGHBORS_BY, options.by, "by")
    disjoint = check_bool(options.disjoint, "disjoint")
    edge_types = list(graph.schema.edge_types)
    counts = {graph.edge_type_index(name): checked_hops(hops) for name, hops in fan_outs.items()}
    # In the order of the schema, so that the sample does not depend on the order of a dictionary.
    ordered = sorted(counts.items())
    used = chosen_seed(options.seed)
    nodes, edges, inverse = sampler_of(graph).subgraph(
        graph.native,
        [(graph.node_type_index(name), numbers) for name, numbers in seeds.items()],
        ordered,
        strategy,
        check_bool(options.replace, "replace"),
        disjoint,
        is_incoming(options.direction),
        check_bool(options.attributes, "attributes"),
        times,
        used,
        chosen_threads(options.threads),
        named,
    )
    drawn = [edge_types[type_] for type_, _ in ordered]
    return hetero_subgraph(
        graph.schema,
        graph.node_ids,
        nodes,
        dict(zip(drawn, edges, strict=True)),
        dict(zip(seeds, inverse, strict=True)),
        used,
        disjoint=disjoint,
    )


def hetero_subgraph(
    schema: Schema,
    node_ids: NodeIds,
    nodes: "Sequence[_core.NodesOfType]",
    by_edge_type: "Mapping[EdgeType, _core.EdgesOfType]",
    inverse: "dict[NodeType, Int64[IntArray, '_']]",
    seed: int,
    *,
    disjoint: bool = False,
) -> HeteroSubgraph:
    """A sample as the native core gives it. nodes: for every node type of the graph."""
    named = node_ids.named
    sample = HeteroSubgraph(batch={} if disjoint else None, inverse=inverse, seed=seed)
    # One pass: a small sample takes a few microseconds, of which each dictionary is a part.
    for name, (ids, batch, sampled, x) in zip(schema.node_types, nodes, strict=True):
        sample.node[name] = named(ids)
        sample.num_sampled_nodes[name] = sampled
        if sample.batch is not None:
            sample.batch[name] = batch
        if x is not None:
            sample.x[name] = x
    for edge_type, (row, col, edge, sampled, weight, time, attr) in by_edge_type.items():
        sample.row[edge_type] = row
        sample.col[edge_type] = col
        sample.edge[edge_type] = edge
        sample.num_sampled_edges[edge_type] = sampled
        if weight is not None:
            sample.edge_weight[edge_type] = weight
        if time is not None:
            sample.time[edge_type] = time
        if attr is not None:
            sample.edge_attr[edge_type] = attr
    return sample
