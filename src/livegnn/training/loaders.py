"""PyG's loaders with LiveGNN's sampler and stores: they take a graph and seeds, and yield batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric import loader as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, NegativeSampling, SamplerOutput

from livegnn.arguments import as_array, as_times, check_function
from livegnn.errors import InputError
from livegnn.graph import Graph
from livegnn.sampling.request import NeighborsBy, check_graph
from livegnn.training.attributes import add_edge_attributes
from livegnn.training.indices import all_numbers, as_seeds
from livegnn.training.options import checked_options
from livegnn.training.sampler import Gone, LiveSampler
from livegnn.training.stores import LiveFeatureStore, LiveGraphStore
from livegnn.types import EdgeType, NodeType
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

FanOuts: TypeAlias = Sequence[int] | Mapping[EdgeType, Sequence[int]]
Batch: TypeAlias = Data | HeteroData
Output: TypeAlias = SamplerOutput | HeteroSamplerOutput
Transform: TypeAlias = Callable[[Batch], Batch]


class _LiveLoader:
    """The difference of both loaders to PyG's: they leave out batches without a seed, and fork workers
    between two batches of events, because one that is forked within would keep a half-applied graph."""

    _graph: Graph
    num_workers: int

    def filter_fn(self, out: Output) -> Batch | None:
        return super().filter_fn(out) if len(out.metadata[0]) else None  # type: ignore[misc]

    def _get_iterator(self) -> Iterator[Batch]:
        with self._graph.writer if self.num_workers > 0 else nullcontext():
            batches = super()._get_iterator()  # type: ignore[misc]
        return (batch for batch in batches if batch is not None)


class NodeLoader(_LiveLoader, pyg.NodeLoader):
    """PyG's `NodeLoader` on a live graph. A batch has the seeds first (`batch_size` of them, at the positions
    `input_id` of the input), then their neighbours hop by hop, with `x`, and with `edge_weight`, `time` and
    `edge_attr` if the edges have them.

    input_nodes: ids, or (node type, ids); a mask of all nodes in the order of `graph.ids` instead of ids;
    None, also instead of the ids: all nodes of the current graph. input_time: a time for each of them.
    features: a store that adds labels and other tensors to batches. `by`, `replace`, `disjoint`, `gone`,
    `threads`: as in `LiveSampler`; with `gone="skip"` an empty batch is omitted. All other arguments are
    those of PyG and torch: `batch_size`, `shuffle`, `transform`, ...

    With `num_workers` above 0, the workers are forked when an epoch begins and see the graph of that moment.
    Leave it at 0 for batches of the latest graph; sampling has its own threads.
    """

    def __init__(
        self,
        graph: Graph,
        num_neighbors: FanOuts,
        input_nodes: "ArrayLike | tuple[NodeType | None, ArrayLike | None] | None" = None,
        *,
        input_time: "ArrayLike | None" = None,
        by: NeighborsBy = "uniform",
        replace: bool = False,
        disjoint: bool = False,
        gone: Gone = "error",
        features: LiveFeatureStore | None = None,
        transform: Transform | None = None,
        threads: int | None = None,
        **kwargs: object,
    ) -> None:
        """Raises `InputError`, `UnknownTypeError`, and `UnknownNodeError` for a text that is not a known id.
        PyG and torch check the arguments that are passed on to them."""
        check_graph(graph)
        stores, transform = _batch_settings(graph, features, transform)
        pin = graph.pin()
        node_type, ids = (
            input_nodes if _is_typed(input_nodes) else (None, cast("ArrayLike | None", input_nodes))
        )
        if node_type is not None:
            graph.node_type_index(node_type)
        if ids is None:
            numbers, marked = torch.from_numpy(all_numbers(graph, node_type)), None
        else:
            numbers, marked = as_seeds(graph, node_type, ids)
        pin.close()
        if marked is not None:
            kwargs.setdefault("input_id", marked)
        super().__init__(
            stores,
            LiveSampler(
                graph, num_neighbors, by=by, replace=replace, disjoint=disjoint, gone=gone, threads=threads
            ),
            input_nodes=numbers if node_type is None else (node_type, numbers),
            input_time=None if input_time is None else _times(input_time, len(numbers)),
            transform=transform,
            **checked_options(graph, kwargs),
        )
        self._graph, self._pin = graph, pin  # a seed keeps its number if its node is removed and added again


class LinkLoader(_LiveLoader, pyg.LinkLoader):
    """PyG's `LinkLoader` on a live graph. A batch has the neighbourhoods of both ends of links, with optional
    negative links.

    edge_label_index: ids [2, links], or (edge type, ids); None, also instead of the ids: all edges of the
    current graph; edges that are removed later are treated as `gone` says. edge_label_time: a time for each.
    neg_sampling: as in PyG; negative ends are nodes that exist when the batch is drawn, and weights are as in
    `LiveSampler.sample_from_edges`. All other arguments are as in `NodeLoader`.
    """

    def __init__(
        self,
        graph: Graph,
        num_neighbors: FanOuts,
        edge_label_index: "ArrayLike | tuple[EdgeType | None, ArrayLike | None] | None" = None,
        *,
        edge_label: Tensor | None = None,
        edge_label_time: "ArrayLike | None" = None,
        neg_sampling: NegativeSampling | str | None = None,
        by: NeighborsBy = "uniform",
        replace: bool = False,
        disjoint: bool = False,
        gone: Gone = "error",
        features: LiveFeatureStore | None = None,
        transform: Transform | None = None,
        threads: int | None = None,
        **kwargs: object,
    ) -> None:
        """Raises the errors of `NodeLoader`, and `UnknownEdgeError` for an edge that was removed."""
        check_graph(graph)
        stores, transform = _batch_settings(graph, features, transform)
        pin = graph.pin()
        edge_type, ids = (
            edge_label_index
            if _is_typed(edge_label_index)
            else (None, cast("ArrayLike | None", edge_label_index))
        )
        link = list(graph.schema.edge_types)[graph.edge_type_index(edge_type)]
        index = _links(graph, link, ids)
        pin.close()
        _check_labels(edge_label, index.shape[1])
        negatives = _negatives(neg_sampling)
        sampler = LiveSampler(
            graph,
            num_neighbors,
            by=by,
            replace=replace,
            disjoint=disjoint,
            gone=gone,
            only_edges=ids is None,
            threads=threads,
        )
        sampler._negatives_of(negatives, (link[0], link[2]))
        super().__init__(
            stores,
            sampler,
            edge_label_index=(edge_type, index),
            edge_label=edge_label,
            edge_label_time=None if edge_label_time is None else _times(edge_label_time, index.shape[1]),
            neg_sampling=negatives,
            transform=transform,
            **checked_options(graph, kwargs),
        )
        self._graph, self._pin = graph, pin


Type = TypeVar("Type", NodeType, EdgeType)


def _is_typed(
    seeds: "ArrayLike | tuple[Type | None, ArrayLike | None] | None",
) -> "TypeGuard[tuple[Type | None, ArrayLike | None]]":
    """Whether `seeds` is (type, ids) rather than ids; type None means the only one. A tuple of two text ids
    is not."""
    if not (isinstance(seeds, tuple) and len(seeds) == 2):
        return False
    first, second = seeds
    if first is None:
        return True
    if isinstance(first, str):
        return not isinstance(second, str)
    return isinstance(first, tuple) and len(first) == 3 and all(isinstance(part, str) for part in first)


def _links(graph: Graph, edge_type: EdgeType, ids: "ArrayLike | None") -> Tensor:
    """The numbers of the ends of links, [2, links]; None: all edges."""
    if ids is None:
        return torch.stack(LiveGraphStore(graph).get_edge_index(edge_type, "coo"))
    ends = as_array(ids, "edge_label_index", "ids")
    if ends.ndim != 2 or len(ends) != 2:
        raise InputError(f"edge_label_index must have the shape (2, links), got {ends.shape}")
    src, dst = cast("Sequence[ArrayLike]", ids if isinstance(ids, (list, tuple)) else ends)
    if as_array(src, "edge_label_index", "ids").dtype == np.bool_:
        raise InputError("edge_label_index must be ids of the ends of links, got a mask: pass links[:, mask]")
    return torch.stack(
        [as_seeds(graph, name, end)[0] for name, end in zip(edge_type[::2], (src, dst), strict=True)]
    )


def _times(times: "ArrayLike", count: int) -> Tensor:
    column = torch.from_numpy(as_times(times, "times of seeds"))
    if column.shape != (count,):
        raise InputError(
            f"there must be a time for each of {count} seeds, got the shape {tuple(column.shape)}"
        )
    return column


def _batch_settings(
    graph: Graph, features: LiveFeatureStore | None, transform: Transform | None
) -> tuple[tuple[LiveFeatureStore, LiveGraphStore], Transform]:
    """The stores of a loader, and its transform after that of the edges. Raises `InputError`."""
    if features is None:
        features = LiveFeatureStore(graph)
    elif not (isinstance(features, LiveFeatureStore) and features.graph is graph):
        kind = "one of another graph" if isinstance(features, LiveFeatureStore) else kind_of(features)
        raise InputError(f"features must be a LiveFeatureStore of the graph to sample from, got {kind}")
    stores = features, LiveGraphStore(graph)
    if transform is None:
        return stores, add_edge_attributes
    check_function(transform, "transform", "a batch")
    return stores, lambda batch: transform(add_edge_attributes(batch))


def _check_labels(edge_label: object, count: int) -> None:
    if edge_label is None:
        return
    if not isinstance(edge_label, Tensor) or edge_label.shape[:1] != (count,):
        came = tuple(edge_label.shape) if isinstance(edge_label, Tensor) else kind_of(edge_label)
        raise InputError(f"edge_label must be a tensor with a row for each of {count} links, got {came}")


def _negatives(given: NegativeSampling | str | None) -> NegativeSampling | None:
    if given is None or isinstance(given, NegativeSampling):
        return given
    try:
        return cast("NegativeSampling", NegativeSampling.cast(given))
    except (ValueError, TypeError):
        raise InputError(
            f"neg_sampling must be 'binary', 'triplet' or a NegativeSampling, got {given!r}"
        ) from None
