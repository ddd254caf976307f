"""What all workers of one query agree on: the query, the graph's types, how many workers there are."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np

from livegnn import _core
from livegnn.arguments import switch, whole
from livegnn.errors import InputError
from livegnn.events.chunk import to_ids
from livegnn.graph import Graph, Schema
from livegnn.query import Query
from livegnn.sampling.query import edge_types_of, native_one_hops
from livegnn.types import JSON, EdgeType, IntArray
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from jaxtyping import Int64
    from numpy.typing import ArrayLike

_MOST_WORKERS = 1000
_MOST_NEIGHBORS = 1024
_MASK = 2**64 - 1

# How a seed finds its serving worker, as cpp/presampling/sampling_shard.h has it.
_SERVING = np.uint64(0xD1B54A32D192ED03)
_MIX = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)


@dataclass(frozen=True)
class WorkerPlan:
    """Raises `InputError` for what workers cannot do: text ids, parallel edges, edges that add up, features
    of edges, fan-outs above 1,024; and what `Query.check` raises.

    schema: of the graph whose events the log has. seed: of the random numbers. keep_edges: whether sampling
    workers keep whole lists of neighbours, so that samples are exact after removals too; without, memory
    grows with samples alone, and the place of a removed neighbour stays empty until another comes.
    replicas: how many serving workers may serve the same seeds.
    """

    schema: Schema
    query: Query
    sampling_workers: int = 1
    serving_workers: int = 1
    replicas: int = 1
    seed: int = 0
    keep_edges: bool = True
    edge_types: tuple[EdgeType, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema):
            raise InputError(f"schema must be a Schema, got {kind_of(self.schema)}")
        if not isinstance(self.query, Query):
            raise InputError(f"query must be a Query, got {kind_of(self.query)}")
        for name in ("sampling_workers", "serving_workers", "replicas"):
            object.__setattr__(self, name, whole(getattr(self, name), name, 1, _MOST_WORKERS))
        object.__setattr__(self, "seed", whole(self.seed, "seed", 0, _MASK))
        object.__setattr__(self, "keep_edges", switch(self.keep_edges, "keep_edges"))
        self.query.check(self.schema)
        _check_types(self.schema, self.query)
        object.__setattr__(self, "edge_types", tuple(edge_types_of(Graph(self.schema), self.query)))

    def to_json(self) -> dict[str, JSON]:
        """What two workers must have in common."""
        return {
            "schema": self.schema.to_json(),
            "query": self.query.to_json(),
            "sampling_workers": self.sampling_workers,
            "serving_workers": self.serving_workers,
            "replicas": self.replicas,
            "seed": self.seed,
            "keep_edges": self.keep_edges,
        }

    def serving_worker_of(self, ids: "ArrayLike") -> "Int64[IntArray, 'ids']":
        """The number of the serving worker of each seed. Raises InputError for what are no integers."""
        mixed = integer_ids(ids).astype(np.uint64) ^ _SERVING
        for shift, factor in _MIX:
            mixed = (mixed ^ (mixed >> shift)) * factor
        mixed ^= mixed >> np.uint64(31)
        return (mixed % np.uint64(self.serving_workers)).astype(np.int64)

    def make_shard(self, worker: int) -> _core.SamplingShard:
        """The tables of sampling worker `worker`, empty."""
        seed_type, num_types, edges, one_hops, widths = self._native()
        return _core.SamplingShard(
            seed_type,
            num_types,
            edges,
            one_hops,
            widths,
            worker,
            self.sampling_workers,
            self.serving_workers,
            self.seed,
            self.keep_edges,
        )

    def make_cache(self, worker: int) -> _core.SampleCache:
        """The cache of serving worker `worker`, empty."""
        return _core.SampleCache(*self._native(), worker, self.sampling_workers)

    def _native(
        self,
    ) -> tuple[
        int,
        int,
        list[tuple[int, int, bool, bool, bool]],
        list[tuple[int, bool, int, int, tuple[int, ...]]],
        list[int],
    ]:
        graph = Graph(self.schema)
        types = [
            (
                graph.node_type_index(name[0]),
                graph.node_type_index(name[2]),
                it.undirected,
                it.weighted,
                it.timed,
            )
            for name, it in self.schema.edge_types.items()
        ]
        widths = list(self.schema.node_types.values())
        seed_type = graph.node_type_index(self.query.seed_type)
        return seed_type, len(widths), types, native_one_hops(graph, self.query), widths


def integer_ids(ids: "ArrayLike") -> "Int64[IntArray, 'ids']":
    """Ids as workers have them. Raises InputError."""
    found = to_ids(cast("IntArray", ids), "ids") if np.size(cast("IntArray", ids)) else np.empty(0, np.int64)
    if found.dtype.kind == "U":
        raise InputError(f"ids must be integers, because workers take no others, got {found[0]!r}")
    return cast("IntArray", found)


def _check_types(schema: Schema, query: Query) -> None:
    if schema.text_ids:
        raise InputError(
            "workers take integer ids, got a schema with text ids: use a Presampler in the process of the "
            "graph"
        )
    for one in query.one_hop:
        edges = schema.edge_types[one.edge_type]
        if one.num_neighbors > _MOST_NEIGHBORS:
            raise InputError(
                f"a one-hop query must draw at most {_MOST_NEIGHBORS:,} neighbors to be sampled ahead, got "
                f"{one.num_neighbors:,}: sample it with sample_query"
            )
        if edges.duplicates != "replace" or edges.edge_dim:
            raise InputError(
                f"workers take edges that replace each other and have no features, got {one.edge_type!r} "
                f"with duplicates={edges.duplicates!r} and edge_dim={edges.edge_dim}: use a Presampler in "
                "the process of the graph"
            )
