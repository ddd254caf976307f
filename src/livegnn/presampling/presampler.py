"""A view that keeps the samples of a query ready: drawn when the graph changes, put together on request."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import livegnn._core as _core
from livegnn.arguments import check_bool, chosen_threads
from livegnn.errors import FileFormatError, InputError
from livegnn.graph import Graph, View
from livegnn.query import Query
from livegnn.sampling.query import check_query, edge_types_of, native_one_hops
from livegnn.sampling.request import check_graph, chosen_seed, explanation, given_ids, native_ids
from livegnn.sampling.subgraph import HeteroSubgraph, hetero_subgraph
from livegnn.types import IntArray, State

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Shaped
    from numpy.typing import ArrayLike, NDArray

_MOST_NEIGHBORS = 1024


class SamplesView(View):
    """The common part of `Presampler` and engines on samples; its arguments are those of `Presampler`."""

    native: _core.Presampling

    def __init__(
        self,
        graph: Graph,
        query: Query,
        *,
        seed: int | None = None,
        state: State | None = None,
        threads: int | None = None,
        name: str = "presampling",
    ) -> None:
        if not isinstance(name, str) or not name:
            raise InputError(f"name must be the text that names the view, got {name!r}")
        self.name = name
        check_graph(graph)
        super().__init__(graph)
        check_query(graph, query)
        for position, one_hop in enumerate(query.one_hop):
            if one_hop.num_neighbors > _MOST_NEIGHBORS:
                raise InputError(
                    f"one-hop query {position} must draw at most {_MOST_NEIGHBORS:,} neighbors to be sampled "
                    f"ahead, got {one_hop.num_neighbors:,}: sample it with sample_query"
                )
        self.query = query
        self._schema = graph.schema
        wanted_seed = None if seed is None else chosen_seed(seed)
        with graph.writer:
            self.seed = chosen_seed(wanted_seed) if state is None else self._seed_of(state, wanted_seed)
            self._seed_type = graph.node_type_index(query.seed_type)
            self._edge_types = edge_types_of(graph.schema, query)
            self.native = _core.Presampling(
                graph.native,
                self._seed_type,
                native_one_hops(graph.schema, query),
                self.seed,
                chosen_threads(threads),
            )
            graph.attach(self)

    def sample(self, seeds: "ArrayLike", attributes: bool = True) -> HeteroSubgraph:
        """Returns the sample for some nodes, built from the stored samples, in the form of `sample_query`.

        seeds: ids of nodes of the query's seed type. A node occurs once and is looked up once. attributes: as
        in `sample_subgraph`. Raises `UnknownNodeError` and `InputError`.
        """
        graph = self.graph
        ids = given_ids(seeds)
        try:
            drawn = self.native.sample(native_ids(graph, ids), check_bool(attributes, "attributes"), True)
        except _core.SampleError as error:
            raise explanation(graph, error, {self._seed_type: ids}) from None
        return self._named(*drawn)

    def _samples_of_each(self, ids: "Shaped[NDArray[np.generic], 'ids']") -> list[HeteroSubgraph]:
        """The sample of each node by itself, all of one moment. Raises what `sample` raises."""
        graph = self.graph
        try:
            drawn = self.native.samples(native_ids(graph, ids), True, True)
        except _core.SampleError as error:
            raise explanation(graph, error, {self._seed_type: ids}) from None
        return [self._named(*sample) for sample in drawn]

    def _named(
        self, nodes: "list[_core.NodesOfType]", edges: "list[_core.EdgesOfType]", inverse: list[IntArray]
    ) -> HeteroSubgraph:
        drawn = dict(zip(self._edge_types, edges, strict=True))
        return hetero_subgraph(
            self._schema,
            self.graph.node_ids,
            nodes,
            drawn,
            {self.query.seed_type: inverse[0]},
            self.seed,
        )

    def state(self) -> State:
        """The query and the seed. The samples are a function of them and of the graph. A start draws them
        again: that takes no longer than to read them.
        """
        with self.graph.writer:
            query, seed = self.query.to_json(), self.seed
            return State({"kind": self.name, "seq": self.seq, "query": query, "seed": seed}, {})

    def _seed_of(self, state: State, given: int | None) -> int:
        """The seed of a state. Raises `FileFormatError` for another kind, event, query or seed."""
        kind, seq, seed = (state.meta.get(name) for name in ("kind", "seq", "seed"))
        if (kind, seq) != (self.name, self.seq):
            raise FileFormatError(
                f"expected the state of {self.name!r} at event {self.seq}, got {dict(state.meta)}"
            )
        if state.meta.get("query") != self.query.to_json():
            raise FileFormatError(f"expected the samples of {self.query!r}, got {state.meta.get('query')}")
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**64:
            raise FileFormatError(f"expected the seed of the samples, got {seed!r}")
        if given not in (None, seed):
            raise FileFormatError(f"expected the samples of seed {given}, got those of {seed}")
        return seed


class Presampler(SamplesView):
    """The samples of `query` for any node of its seed type, as of the last batch.

    It keeps the sampled neighbours of each node for each one-hop query. A batch changes those of the nodes
    that it touches, so the look-ups for a sample are limited by the query (`Query.most_lookups`), not by
    degrees.

    The sample of a node is a function of the graph, the query and `seed`: it stays the same until the node's
    neighbours change, and does not depend on how the graph became what it is. Over all seeds of random
    numbers it has the distribution of `sample_query`; `by="latest"` gives the same neighbours.

    query: fan-outs are at most 1,024. seed: of the random numbers, 0 to 2^64 - 1; random by default, or that
    of `state`. state: what `state()` returned; its query and seed must be those given. threads: for the first
    samples of all nodes, by default as many as the process may use. name: of the view; the views of a graph
    have names of their own, and each query is a view.

    Thread safety: any number of threads may call `sample` while batches are applied.
    Raises the errors of `Query.check`, and `InputError`; `FileFormatError` for a state that does not fit.
    """

    @staticmethod
    def factory(
        query: Query, *, seed: int | None = None, threads: int | None = None, name: str = "presampling"
    ) -> "Callable[[Graph, State | None], Presampler]":
        """Returns a maker of the view, for `restore` and for the section `[views]` of a deployment."""
        return lambda graph, state: Presampler(
            graph, query, seed=seed, state=state, threads=threads, name=name
        )
