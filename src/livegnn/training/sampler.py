"""A sampler for PyG over the live graph: subgraphs around nodes and around links."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample

from livegnn import _core
from livegnn.arguments import switch
from livegnn.errors import InputError, UnknownNodeError
from livegnn.graph import Graph
from livegnn.graph.core import chosen_threads
from livegnn.sampling.request import (
    NEIGHBORS_BY,
    NeighborsBy,
    check_graph,
    checked_hops,
    explained,
    position_in,
    sampler_of,
)
from livegnn.sampling.subgraph import HeteroSubgraph, sample_native
from livegnn.training.attributes import Attributes, keep
from livegnn.training.repeated_seeds import with_repeated_seeds
from livegnn.training.stores import NO_NODE
from livegnn.types import Array, DoubleArray, EdgeType, IntArray, NodeType

Gone = Literal["error", "skip"]
Name = TypeVar("Name", NodeType, EdgeType)
_UNIFORM = 0


class LiveSampler(BaseSampler):
    """Draws neighbours as `livegnn.sampling.sample_subgraph` does, for PyG's `NodeLoader` and `LinkLoader`.

    num_neighbors: a number for each hop (-1: all), or such a list by edge type; omitted edge types are not
    sampled. by, replace, disjoint: as in `sample_subgraph`. If the loader has times for its seeds, subgraphs
    are disjoint and have only edges that are not later than their seed, as in PyG. gone: how to treat seeds
    that are not in the graph. `"error"`: raise `UnknownNodeError`. `"skip"`: omit them, and links that lack
    an end, from the batch (`input_id` lists the remaining ones); an empty batch is an error. threads: as in
    `sample_subgraph`.

    Each sample, including its features, sees the graph either before or after a batch of events. Random
    numbers come from torch: `torch.manual_seed` repeats the same batches if the graph has not changed.
    `edge_permutation` is None: `e_id` are rows of the edges' features, valid only until the next batch of
    events; `add_edge_attributes` adds the columns of edges to a batch.
    """

    def __init__(
        self,
        graph: Graph,
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]],
        *,
        by: NeighborsBy = "uniform",
        replace: bool = False,
        disjoint: bool = False,
        gone: Gone = "error",
        threads: int | None = None,
    ) -> None:
        """Raises `InputError` and `UnknownTypeError`."""
        check_graph(graph)
        position_in(NEIGHBORS_BY, by, "by")
        position_in(("error", "skip"), gone, "gone")
        if not isinstance(num_neighbors, Mapping):
            num_neighbors = dict.fromkeys(graph.schema.edge_types, num_neighbors)
        if not num_neighbors:
            raise InputError("num_neighbors must name at least one edge type to draw along, got {}")
        edge_types = list(graph.schema.edge_types)
        self.graph = graph
        self.num_neighbors = {
            edge_types[graph.edge_type_index(edge_type)]: checked_hops(hops)
            for edge_type, hops in num_neighbors.items()
        }
        self.by = by
        self.replace = switch(replace, "replace")
        self.disjoint = switch(disjoint, "disjoint")
        self.gone = gone
        self.threads = None if threads is None else chosen_threads(threads)

    def sample_from_nodes(
        self, index: NodeSamplerInput, **kwargs: object
    ) -> SamplerOutput | HeteroSamplerOutput:
        """The subgraph around seeds. A repeated seed is repeated in `node`, with the same neighbours unless
        disjoint.

        Raises `UnknownNodeError` for a seed that is not in the graph, or, with `gone="skip"`, if none is.
        """
        node_type = self._node_type(index.input_type)
        while True:
            try:
                times = None if index.time is None else _times(index.time)
                sample = self._draw({node_type: _numbers(index.node)}, times)
                break
            except UnknownNodeError:
                here = self._present(node_type, index.node)
                if self.gone == "error" or not bool(here.any()):
                    raise
                index = index[here.nonzero().view(-1)]
        sample = with_repeated_seeds(sample, node_type)
        out = self._homogeneous(sample) if index.input_type is None else self._heterogeneous(sample)
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """The subgraph around links. Negative ends are drawn with replacement from the current nodes; as in
        PyG, a negative link may be an edge that exists. `src_weight` and `dst_weight` have an entry for each
        internal number from 0 on; numbers without a node are not drawn.

        Raises `UnknownNodeError` for an end that is not in the graph, or, with `gone="skip"`, if no link has
        both ends.
        """
        hetero = index.input_type is not None
        source, _, target = index.input_type if hetero else (self._node_type(None),) * 3
        negatives = None if neg_sampling is None else _LiveNegatives(neg_sampling, self.graph, source, target)
        disjoint = self.disjoint or index.time is not None

        def draw(
            seed: Tensor | dict[NodeType, Tensor], time: Tensor | dict[NodeType, Tensor] | None
        ) -> SamplerOutput | HeteroSamplerOutput:
            seeds = {name: _numbers(it) for name, it in _by_type(seed, source).items()}
            times = None
            if time is not None:
                times = np.concatenate([_times(it) for it in _by_type(time, source).values()])
            sample = self._draw(seeds, times, disjoint=disjoint)
            if sample.batch is not None and (neg_sampling is None or neg_sampling.is_binary()):
                # Sources come before targets. PyG takes `batch` modulo the number of positive links, which
                # gives targets the wrong link unless the number of all links is a multiple of it.
                links = sum(map(len, seeds.values())) // 2
                batch = {name: np.where(it < links, it, it - links) for name, it in sample.batch.items()}
                sample = replace(sample, batch=batch)
            return self._heterogeneous(sample) if hetero else self._homogeneous(sample)

        while True:
            try:
                # PyG would draw negatives from this number of nodes, 0; `_LiveNegatives` ignores it.
                out = edge_sample(index, draw, 0, disjoint, None, negatives)
                break
            except UnknownNodeError:
                here = self._present(source, index.row) & self._present(target, index.col)
                if bool(here.all()):
                    continue  # a negative end was removed after it was drawn
                if self.gone == "error" or not bool(here.any()):
                    raise
                index = index[here.nonzero().view(-1)]
        return out

    def _node_type(self, given: NodeType | None) -> NodeType:
        types = list(self.graph.schema.edge_types)
        if given is None and not (len(types) == 1 and types[0][0] == types[0][2]):
            raise InputError(
                "a graph of several types needs seeds with their type: (node_type, ids), "
                "or (edge_type, ids) for links"
            )
        return list(self.graph.schema.node_types)[self.graph.node_type_index(given)]

    def _present(self, node_type: NodeType, node: Tensor) -> Tensor:
        indices = self.graph.native.indices_of(self.graph.node_type_index(node_type), _numbers(node))
        return torch.from_numpy(indices != NO_NODE)

    def _draw(
        self, seeds: dict[NodeType, IntArray], times: DoubleArray | None, *, disjoint: bool = False
    ) -> HeteroSubgraph:
        try:
            return sample_native(
                self.graph,
                seeds,
                self.num_neighbors,
                times,
                by=self.by,
                replace=self.replace,
                disjoint=self.disjoint or disjoint or times is not None,
                direction="in",
                attributes=True,
                seed=int(torch.randint(2**63 - 1, ())),
                threads=self.threads,
                named=False,
            )
        except _core.SampleError:
            with explained(self.graph, {self.graph.node_type_index(name): it for name, it in seeds.items()}):
                raise

    def _homogeneous(self, sample: HeteroSubgraph) -> SamplerOutput:
        (edge_type,) = self.graph.schema.edge_types
        node_type = edge_type[0]
        edge, batch = sample.edge[edge_type], sample.batch
        out = SamplerOutput(
            node=torch.from_numpy(sample.node[node_type]),
            row=torch.from_numpy(sample.row[edge_type]),
            col=torch.from_numpy(sample.col[edge_type]),
            edge=None if edge is None else torch.from_numpy(edge),
            batch=None if batch is None else torch.from_numpy(batch[node_type]),
            num_sampled_nodes=sample.num_sampled_nodes[node_type],
            num_sampled_edges=sample.num_sampled_edges[edge_type],
        )
        keep(out.node, _attributes(sample))
        return out

    def _heterogeneous(self, sample: HeteroSubgraph) -> HeteroSamplerOutput:
        edges = {name: None if it is None else torch.from_numpy(it) for name, it in sample.edge.items()}
        out = HeteroSamplerOutput(
            node=_tensors(sample.node),
            row=_tensors(sample.row),
            col=_tensors(sample.col),
            edge=edges,
            batch=None if sample.batch is None else _tensors(sample.batch),
            num_sampled_nodes=sample.num_sampled_nodes,
            num_sampled_edges=sample.num_sampled_edges,
        )
        attributes = _attributes(sample)
        for node in out.node.values():
            keep(node, attributes)
        return out


class _LiveNegatives(NegativeSampling):
    """Draws negative ends from the nodes of the current graph."""

    def __init__(self, given: NegativeSampling, graph: Graph, source: NodeType, target: NodeType) -> None:
        super().__init__(given.mode, given.amount, given.src_weight, given.dst_weight)
        self._graph = graph
        self._types = {"src": graph.node_type_index(source), "dst": graph.node_type_index(target)}

    def sample(
        self, num_samples: int, endpoint: Literal["src", "dst"], num_nodes: int | None = None
    ) -> Tensor:
        native, type_ = self._graph.native, self._types[endpoint]
        weight = self.src_weight if endpoint == "src" else self.dst_weight
        if weight is not None:
            there = native.indices_of(type_, np.arange(len(weight))) != NO_NODE
            return torch.multinomial(weight * torch.from_numpy(there), num_samples, replacement=True)
        seed = int(torch.randint(2**63 - 1, ()))
        return torch.from_numpy(
            sampler_of(self._graph).nodes(native, type_, _UNIFORM, False, True, num_samples, seed, False)
        )


def _by_type(given: Tensor | dict[NodeType, Tensor], node_type: NodeType) -> dict[NodeType, Tensor]:
    return given if isinstance(given, dict) else {node_type: given}


def _numbers(node: Tensor) -> IntArray:
    return np.ascontiguousarray(node.numpy(), dtype=np.int64)


def _times(time: Tensor) -> DoubleArray:
    return np.ascontiguousarray(time.numpy(), dtype=np.float64)


def _tensors(arrays: Mapping[Name, Array]) -> dict[Name, Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _attributes(sample: HeteroSubgraph) -> Attributes:
    columns: dict[str, Mapping[EdgeType, Array]] = {
        "edge_weight": sample.edge_weight,
        "time": sample.time,
        "edge_attr": sample.edge_attr,
    }
    edges = {
        edge_type: {name: torch.from_numpy(it[edge_type]) for name, it in columns.items() if edge_type in it}
        for edge_type in sample.row
    }
    return Attributes(_tensors(sample.x), edges)
