"""The settings that all workers of one query share: the query, the graph's types, the numbers of workers.

A cluster and a deployment file have the same numbers: `WorkerNumbers` has their defaults and checks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_bool, check_int
from livegnn.errors import InputError
from livegnn.events.chunk import to_ids
from livegnn.placement import Owners
from livegnn.query import Query
from livegnn.sampling.query import edge_types_of, native_one_hops
from livegnn.schema import Schema
from livegnn.types import JSON, EdgeType, IntArray
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from jaxtyping import Int64
    from numpy.typing import ArrayLike

    from livegnn.events.chunk import IdsLike

_MOST_WORKERS: Final = 1000
_MOST_NEIGHBORS: Final = 1024
_MOST_MOVED: Final = 100_000
_MASK: Final = 2**64 - 1


@dataclass(frozen=True)
class WorkerNumbers:
    """The numbers of workers, and the division of seeds and edges among them. Raises `InputError`.

    seed: of the random numbers, 0 to 2^64 - 1; None: the seed of the workers of the log. The first one draws
    it, so that clients cannot choose ids for it. keep_edges: whether sampling workers keep whole lists of
    neighbours, so that samples are exact after any change of edges. Without, memory grows with samples alone,
    and samples are exact only while no edge is removed or added again: the place of a removed neighbour, or
    of one whose weight is not positive any more, stays empty until another is added; a neighbour with a lower
    weight keeps its place; an edge that arrives late counts as a new one. replicas: the number of serving
    workers that may serve the same seeds. moved: seeds that belong to another serving worker than their ids
    determine, with its number: a few very frequent ones. placement: the sampling workers that take an edge:
    those of its "source", its "target", or of "both" ends where the query needs both. With one end, queries
    that begin at the other, or follow undirected edges, are refused.
    """

    sampling_workers: int = field(default=1, metadata={"key": "sampling"})  # in a deployment file
    serving_workers: int = field(default=1, metadata={"key": "serving"})
    replicas: int = 1
    seed: int | None = None
    keep_edges: bool = True
    moved: Mapping[int, int] = field(default_factory=dict)
    placement: str = "both"

    def __post_init__(self) -> None:
        for name in ("sampling_workers", "serving_workers", "replicas"):
            object.__setattr__(self, name, check_int(getattr(self, name), name, 1, _MOST_WORKERS))
        if self.seed is not None:
            object.__setattr__(self, "seed", check_int(self.seed, "seed", 0, _MASK))
        object.__setattr__(self, "keep_edges", check_bool(self.keep_edges, "keep_edges"))
        if not isinstance(self.moved, Mapping) or len(self.moved) > _MOST_MOVED:
            raise InputError(
                f"moved must say the serving workers of at most {_MOST_MOVED:,} seeds, got "
                f"{kind_of(self.moved)}"
            )
        moved = {
            check_int(seed, "a seed that is moved", -(2**63), 2**63 - 1): check_int(
                worker, f"moved: the serving worker of seed {seed}", 0, self.serving_workers - 1
            )
            for seed, worker in sorted(self.moved.items())
        }
        object.__setattr__(self, "moved", moved)
        if self.placement not in ("source", "target", "both"):
            raise InputError(f"placement must be 'source', 'target' or 'both', got {self.placement!r}")

    @cached_property
    def node_owners(self) -> Owners:
        """The sampling worker of each node."""
        return Owners("modulo", self.sampling_workers)

    @cached_property
    def seed_owners(self) -> Owners:
        """The serving worker of each seed."""
        return Owners("jump", self.serving_workers, moved=self.moved)


@dataclass(frozen=True)
class _Sampled:
    schema: Schema
    query: Query


@dataclass(frozen=True)
class WorkerPlan(WorkerNumbers, _Sampled):
    """The numbers of workers that sample by `query`. schema: of the graph whose events the log has.

    Raises `InputError` for features that workers lack: text ids, parallel edges, edges that add up, features
    of edges, features with times, fan-outs above 1,024; and the errors of `Query.check`.
    """

    edge_types: tuple[EdgeType, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema):
            raise InputError(f"schema must be a Schema, got {kind_of(self.schema)}")
        if not isinstance(self.query, Query):
            raise InputError(f"query must be a Query, got {kind_of(self.query)}")
        super().__post_init__()
        self.query.check(self.schema)
        _check_types(self.schema, self.query)
        _check_placement(self.schema, self.query, self.placement)
        object.__setattr__(self, "edge_types", tuple(edge_types_of(self.schema, self.query)))

    def to_json(self) -> dict[str, JSON]:
        """The parts of the plan that all workers must share, without their numbers."""
        return {
            "schema": self.schema.to_json(),
            "query": self.query.to_json(),
            "seed": self.seed,
            "keep_edges": self.keep_edges,
        }

    def serving_worker_of(self, ids: "ArrayLike") -> "Int64[IntArray, 'ids']":
        """The serving worker of each seed. Raises InputError for values that are not integers."""
        return self.seed_owners.of_id(integer_ids(ids))

    def sampling_worker_of(self, ids: "Int64[IntArray, 'ids']") -> "Int64[IntArray, 'ids']":
        """The number of the sampling worker that owns each node."""
        return self.node_owners.of_id(np.asarray(ids, np.int64))

    def make_shard(self, worker: int) -> _core.SamplingShard:
        """The tables of sampling worker `worker`, empty. Raises InputError for a plan without a seed."""
        if self.seed is None:
            raise InputError("a sampling worker needs the seed of its log's workers, got a plan without one")
        seed_type, num_types, edges, one_hops, widths = self._native()
        shard = _core.SamplingShard(
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
        if self.moved:
            shard.begin_move(self.seed_owners.native)
            shard.end_move(True)
        return shard

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
        index = self.schema.node_type_index
        types = [
            (
                index(name[0]),
                index(name[2]),
                it.undirected,
                it.weighted,
                it.timed,
            )
            for name, it in self.schema.edge_types.items()
        ]
        widths = list(self.schema.node_types.values())
        seed_type = index(self.query.seed_type)
        return seed_type, len(widths), types, native_one_hops(self.schema, self.query), widths


def integer_ids(ids: "ArrayLike | IdsLike") -> "Int64[IntArray, 'ids']":
    """Ids as workers have them. Raises InputError."""
    found = to_ids(cast("IntArray", ids), "ids") if np.size(cast("IntArray", ids)) else np.empty(0, np.int64)
    if found.dtype.kind == "U":
        raise InputError(f"ids must be integers, because workers take no others, got {found[0].item()!r}")
    return cast("IntArray", found)


def _check_types(schema: Schema, query: Query) -> None:
    if schema.text_ids:
        raise InputError(
            "workers take integer ids, got a schema with text ids: use a Presampler in the process of the "
            "graph"
        )
    if schema.timed_features:
        raise InputError(
            "workers take features in the order in which they arrive, got a schema with "
            f"timed_features={list(schema.timed_features)!r}: use a Presampler in the process of the graph"
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


def _check_placement(schema: Schema, query: Query, placement: str) -> None:
    for one in query.one_hop:
        needed = "target" if one.direction == "in" else "source"
        undirected = schema.edge_types[one.edge_type].undirected
        if placement != "both" and (undirected or placement != needed):
            where = "both ends" if undirected else f"the {needed}"
            raise InputError(
                f"a one-hop query over {one.edge_type!r} needs its edges at {where}, got a plan with "
                f"placement={placement!r}: take 'both', or another query"
            )
