"""A sampler for PyG over the live graph: subgraphs around nodes and around links."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, TypeVar, cast

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

import livegnn._core as _core
from livegnn.arguments import as_times, check_bool, chosen_threads
from livegnn.errors import InputError, UnknownEdgeError, UnknownNodeError
from livegnn.graph import Graph
from livegnn.sampling.request import (
    NEIGHBORS_BY,
    NeighborsBy,
    check_graph,
    checked_hops,
    explanation,
    position_in,
    refuse_divided,
    sampler_of,
)
from livegnn.sampling.subgraph import DrawOptions, HeteroSubgraph, sample_native
from livegnn.training.attributes import Attributes, keep
from livegnn.training.columns import Name, NodeColumns, at_one_moment, columns_of
from livegnn.training.indices import unknown_seed, weights_by_number, whole_numbers
from livegnn.training.options import OneProcess
from livegnn.training.repeated_seeds import with_repeated_seeds
from livegnn.types import NO_INDEX, Array, DoubleArray, EdgeType, IntArray, NodeType

Gone = Literal["error", "skip"]
Put = dict[NodeColumns, dict[Name, Tensor]]
Result = TypeVar("Result")
Type = TypeVar("Type", NodeType, EdgeType)
_UNIFORM = 0


class LiveSampler(OneProcess, BaseSampler):
    """Draws neighbours as `livegnn.sampling.sample_subgraph` does, for PyG's `NodeLoader` and `LinkLoader`.

    num_neighbors: a number for each hop (-1: all), or such a list by edge type; omitted edge types are not
    sampled. `by`, `replace`, `disjoint`: as in `sample_subgraph`. If the loader has times for its seeds,
    subgraphs are disjoint and have only edges that are not later than their seed, as in PyG. `gone`: the
    treatment of seeds that are not in the graph. `"error"`: raise `UnknownNodeError`. `"skip"`: omit them,
    and links that lack an end, from the batch (`input_id` lists the remaining ones, and may be empty).
    `only_edges`: links are edges of the graph; removed ones are treated as `gone` says, with
    `UnknownEdgeError`. `threads`: as in `sample_subgraph`.

    Each sample, including its features, sees the graph either before or after a batch of events. Random
    numbers are drawn by torch: `torch.manual_seed` repeats the same batches if the graph has not changed.
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
        only_edges: bool = False,
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
        self.replace = check_bool(replace, "replace")
        self.disjoint = check_bool(disjoint, "disjoint")
        self.gone = gone
        self.only_edges = check_bool(only_edges, "only_edges")
        if only_edges:
            refuse_divided(graph, "whether links are edges", "leave only_edges out")
        self._negatives: tuple[NegativeSampling, _LiveNegatives] | None = None
        self.threads = None if threads is None else chosen_threads(threads)

    def sample_from_nodes(
        self, index: NodeSamplerInput, **kwargs: object
    ) -> SamplerOutput | HeteroSamplerOutput:
        """The subgraph around seeds. A repeated seed is repeated in `node`, with the same neighbours unless
        disjoint.

        Raises `UnknownNodeError` for a seed that is not in the graph, unless `gone="skip"`.
        """
        node_type = self._node_type(index.input_type)
        whole_numbers(index.node, "seeds")
        while True:
            try:
                sample, put = self._at_one_moment(partial(self._around, index, node_type))
                break
            except UnknownNodeError:
                if self.gone == "error":
                    raise
                index = index[self._present(node_type, index.node).nonzero().view(-1)]
        hetero = index.input_type is not None
        out = self._heterogeneous(sample, put) if hetero else self._homogeneous(sample, put)
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """The subgraph around links. Negative ends are drawn with replacement from the current nodes; as in
        PyG, a negative link may be an edge that exists. `src_weight` and `dst_weight` have an entry for each
        node, in the order in which `graph.ids` lists them at the first call with this `neg_sampling`; or,
        where ids are integers, for each id from 0 on. Nodes that are added later are not drawn.

        Raises `UnknownNodeError` for an end that is not in the graph, unless `gone="skip"`, and `InputError`
        if no node has a weight.
        """
        hetero = index.input_type is not None
        source, _, target = index.input_type if hetero else (self._node_type(None),) * 3
        whole_numbers(index.row, "seeds"), whole_numbers(index.col, "seeds")
        negatives = self._negatives_of(neg_sampling, (source, target))
        disjoint = self.disjoint or index.time is not None
        in_two = neg_sampling is None or neg_sampling.is_binary()

        def draw(
            seed: Tensor | dict[NodeType, Tensor], time: Tensor | dict[NodeType, Tensor] | None
        ) -> SamplerOutput | HeteroSamplerOutput:
            seeds = {name: whole_numbers(it, "seeds") for name, it in _by_type(seed, source).items()}
            times = None
            if time is not None:
                times = np.concatenate([_times(it) for it in _by_type(time, source).values()])
            sample = self._draw(seeds, times, disjoint=disjoint)
            if sample.batch is not None and in_two:
                sample = _with_links(sample, sum(map(len, seeds.values())) // 2)
            put = self._read_put(sample)
            return self._heterogeneous(sample, put) if hetero else self._homogeneous(sample, put)

        def around(links: EdgeSamplerInput) -> SamplerOutput | HeteroSamplerOutput:
            if self.only_edges:
                self._refuse_no_edges(links, (source, target))
            # PyG would draw negatives from this number of nodes, 0; `_LiveNegatives` ignores it.
            return edge_sample(links, draw, 0, disjoint, None, negatives)

        while True:
            try:
                return self._at_one_moment(partial(around, index))
            except (UnknownNodeError, UnknownEdgeError):
                here = self._present(source, index.row) & self._present(target, index.col)
                if self.only_edges:
                    here &= self._are_edges(index)
                if bool(here.all()):
                    continue  # a negative end was removed after it was drawn, or the link is back
                if self.gone == "error":
                    raise
                index = index[here.nonzero().view(-1)]

    def _negatives_of(
        self, neg_sampling: NegativeSampling | None, ends: tuple[NodeType, NodeType]
    ) -> "_LiveNegatives | None":
        """`neg_sampling` on the live graph. Weights belong to the nodes that the graph has when it is first
        asked for. Raises `InputError` if they do not fit.
        """
        if neg_sampling is None:
            return None
        if self._negatives is None or self._negatives[0] is not neg_sampling:
            self._negatives = neg_sampling, _LiveNegatives(neg_sampling, self.graph, ends)
        return self._negatives[1]

    def _around(self, index: NodeSamplerInput, node_type: NodeType) -> tuple[HeteroSubgraph, Put]:
        times = None if index.time is None else _times(index.time)
        drawn = self._draw({node_type: whole_numbers(index.node, "seeds")}, times)
        sample = with_repeated_seeds(drawn, node_type)
        return sample, self._read_put(sample)

    def _at_one_moment(self, read: Callable[[], Result]) -> Result:
        """`read`, of a moment in which no tensor changes that was put, nor, with `only_edges`, the graph."""
        columns = columns_of(self.graph)
        if not columns and not self.only_edges:
            return read()
        return at_one_moment(self.graph, columns, read, (lambda: self.graph.seq) if self.only_edges else None)

    def _read_put(self, sample: HeteroSubgraph) -> Put:
        numbers = cast("dict[NodeType, IntArray]", sample.node)  # ids were not asked for
        return {columns: columns.all_at(numbers) for columns in columns_of(self.graph)}

    def _edge_type(self, index: EdgeSamplerInput) -> int:
        return self.graph.edge_type_index(index.input_type)

    def _first_no_edge(self, index: EdgeSamplerInput) -> int | None:
        """The position of the first link that is not an edge, None if there is none."""
        row, col = (whole_numbers(end, "seeds") for end in (index.row, index.col))
        _, lacks, at = self.graph.native.edge_features_of(self._edge_type(index), row, col, None)
        return at if lacks else None

    def _refuse_no_edges(self, index: EdgeSamplerInput, ends: tuple[NodeType, NodeType]) -> None:
        at = self._first_no_edge(index)
        if at is None:
            return
        for name, end in zip(ends, (index.row, index.col), strict=True):
            if not bool(self._present(name, end[at : at + 1])):
                raise UnknownNodeError(unknown_seed(self.graph, int(end[at]), name))
        src, dst = self.graph.to_user_ids(np.array([int(index.row[at]), int(index.col[at])])).tolist()
        raise UnknownEdgeError(
            f"expected the ends of an edge, got {src!r} -> {dst!r}, which is not "
            "in the graph now: pass `gone='skip'` to omit it"
        )

    def _are_edges(self, index: EdgeSamplerInput) -> Tensor:
        are, begin = torch.ones(len(index.row), dtype=torch.bool), 0
        while (at := self._first_no_edge(index[torch.arange(begin, len(are))])) is not None:
            are[begin + at] = False
            begin += at + 1
        return are

    def _node_type(self, given: NodeType | None) -> NodeType:
        types = list(self.graph.schema.edge_types)
        if given is None and not (len(types) == 1 and types[0][0] == types[0][2]):
            raise InputError(
                "a graph of several types needs seeds with their type: (node_type, ids), "
                "or (edge_type, ids) for links"
            )
        return list(self.graph.schema.node_types)[self.graph.node_type_index(given)]

    def _present(self, node_type: NodeType, node: Tensor) -> Tensor:
        indices = self.graph.native.indices_of(
            self.graph.node_type_index(node_type), whole_numbers(node, "seeds")
        )
        return torch.from_numpy(indices != NO_INDEX)

    def _draw(
        self, seeds: dict[NodeType, IntArray], times: DoubleArray | None, *, disjoint: bool = False
    ) -> HeteroSubgraph:
        disjoint = self.disjoint or disjoint or times is not None
        drawn_by = int(torch.randint(2**63 - 1, ()))
        options = DrawOptions(self.by, self.replace, disjoint, "in", True, drawn_by, self.threads)
        try:
            return sample_native(self.graph, seeds, self.num_neighbors, times, options, named=False)
        except _core.SampleError as error:
            asked = {self.graph.node_type_index(name): it for name, it in seeds.items()}
            raise explanation(self.graph, error, asked, unknown_seed) from None

    def _homogeneous(self, sample: HeteroSubgraph, put: Put) -> SamplerOutput:
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
        keep(out, {node_type: out.node}, _attributes(sample, put, {edge_type: (out.row, out.col)}))
        return out

    def _heterogeneous(self, sample: HeteroSubgraph, put: Put) -> HeteroSamplerOutput:
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
        ends = {name: (out.row[name], out.col[name]) for name in out.row}
        keep(out, out.node, _attributes(sample, put, ends))
        return out


class _LiveNegatives(NegativeSampling):
    """Draws negative ends from the nodes of the current graph."""

    def __init__(self, given: NegativeSampling, graph: Graph, ends: tuple[NodeType, NodeType]) -> None:
        super().__init__(given.mode, given.amount, given.src_weight, given.dst_weight)
        self._graph = graph
        self._types = dict(zip(("src", "dst"), map(graph.node_type_index, ends), strict=True))
        self._pin = graph.pin()  # a text id that is added again gets its number, and so its weight, back
        weights = {"src": given.src_weight, "dst": given.dst_weight}
        self._weights = {
            end: weights_by_number(graph, name, weights[end], f"{end}_weight")
            for end, name in zip(("src", "dst"), ends, strict=True)
            if weights[end] is not None
        }

    def sample(
        self, num_samples: int, endpoint: Literal["src", "dst"], num_nodes: int | None = None
    ) -> Tensor:
        native, type_ = self._graph.native, self._types[endpoint]
        if endpoint in self._weights:
            numbers, weight = self._weights[endpoint]
            present = weight * torch.from_numpy(native.indices_of(type_, numbers) != NO_INDEX)
            if num_samples and not bool((present > 0).any()):
                raise InputError(
                    f"{endpoint}_weight must be above 0 for some node that is in the graph, of which to draw"
                )
            return torch.from_numpy(numbers)[torch.multinomial(present, num_samples, replacement=True)]
        seed = int(torch.randint(2**63 - 1, ()))
        return torch.from_numpy(
            sampler_of(self._graph).nodes(native, type_, _UNIFORM, False, True, num_samples, seed, False)
        )


def _with_links(sample: HeteroSubgraph, links: int) -> HeteroSubgraph:
    """Returns the sample with the number of the link in `batch`. Sources precede targets, and PyG takes
    `batch` modulo the number of positive links, which gives targets the wrong link unless the number of all
    links is a multiple of it.
    """
    assert sample.batch is not None
    return replace(
        sample, batch={name: np.where(it < links, it, it - links) for name, it in sample.batch.items()}
    )


def _by_type(given: Tensor | dict[NodeType, Tensor], node_type: NodeType) -> dict[NodeType, Tensor]:
    return given if isinstance(given, dict) else {node_type: given}


def _times(time: Tensor) -> DoubleArray:
    return np.ascontiguousarray(as_times(time.numpy(), "times of seeds"))


def _tensors(arrays: Mapping[Type, Array]) -> dict[Type, Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _attributes(sample: HeteroSubgraph, put: Put, ends: dict[EdgeType, tuple[Tensor, Tensor]]) -> Attributes:
    columns: dict[str, Mapping[EdgeType, Array]] = {
        "edge_weight": sample.edge_weight,
        "time": sample.time,
        "edge_attr": sample.edge_attr,
    }
    edges = {
        edge_type: {name: torch.from_numpy(it[edge_type]) for name, it in columns.items() if edge_type in it}
        for edge_type in sample.row
    }
    return Attributes(_tensors(sample.x), edges, put, ends)
