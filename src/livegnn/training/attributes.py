"""The features and columns of a sample's nodes and edges, read when the sample was drawn.

PyG's loaders draw a sample first and then ask the feature store for rows, by the tensor of nodes that the
sampler made. In between, a batch of events may change or remove those nodes. So the sampler reads everything
together with the sample and keeps it at the sampler's output, for as long as that, or a copy of it, lives. A
batch that is made of it takes what it needs: its `n_id` keeps nothing else alive.
"""

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from livegnn.errors import InputError
from livegnn.types import EdgeType, NodeType

if TYPE_CHECKING:
    from livegnn.training.columns import Name, NodeColumns


@dataclass(eq=False)
class Attributes:
    """x: [nodes, channels] by node type. edges: `edge_weight` [edges], `time` [edges] and `edge_attr`
    [edges, channels] by edge type; only those that the type has. put: the tensors of each feature store.
    ends: the edges that were drawn, (row, col) by edge type."""

    x: dict[NodeType, Tensor]
    edges: dict[EdgeType, dict[str, Tensor]]
    put: "dict[NodeColumns, dict[Name, Tensor]]"
    ends: dict[EdgeType, tuple[Tensor, Tensor]]

    def __post_init__(self) -> None:
        self._versions = {edge_type: _versions(*ends) for edge_type, ends in self.ends.items()}

    def __reduce__(self) -> tuple[object, ...]:
        return type(None), ()  # another process has no use for them: its tensors are others

    def are_drawn(self, edge_type: EdgeType, edge_index: Tensor | None) -> bool:
        """Whether `edge_index` [2, edges] has the edges that were drawn, in the same order."""
        row, col = self.ends[edge_type]
        if edge_index is None:
            return False
        unchanged = _versions(row, col) == self._versions[edge_type]
        return unchanged and torch.equal(edge_index[0], row) and torch.equal(edge_index[1], col)


# By tensor of nodes: what was read for it, and its version, which a change in place moves on.
_kept: "WeakTensorKeyDictionary[Tensor, tuple[weakref.ref[Attributes], int]]" = WeakTensorKeyDictionary()


def keep(
    out: SamplerOutput | HeteroSamplerOutput, nodes: "dict[NodeType, Tensor]", attributes: Attributes
) -> None:
    """Keeps `attributes` for as long as `out` or a copy of it lives, to be found by each tensor of nodes."""
    out.livegnn_attributes = attributes
    for node in nodes.values():
        _kept[node] = weakref.ref(attributes), *_versions(node)


def kept(node: Tensor) -> Attributes | None:
    """The attributes kept for this tensor object, or None. Neither a tensor that is only equal matches, nor
    one that was changed.
    """
    attributes, *version = _kept.get(node, (None, None))
    return None if attributes is None or tuple(version) != _versions(node) else attributes()


def add_edge_attributes(batch: Data | HeteroData) -> Data | HeteroData:
    """Adds `edge_weight`, `time` and `edge_attr` to the edges of a batch, if their types have them.

    Use it as the `transform` of PyG's own loaders, which ask feature stores only for nodes;
    `livegnn.training.NodeLoader` and `LinkLoader` call it themselves. Raises `InputError` unless a loader
    with a `LiveSampler` is just making the batch, and if the edges are not those that were drawn.
    """
    hetero = isinstance(batch, HeteroData)
    nodes = [batch[name].n_id for name in batch.node_types] if hetero else [batch.n_id]
    attributes = kept(nodes[0]) if nodes else None
    if attributes is None:
        raise InputError(
            "add_edge_attributes needs a batch as a loader makes it with a LiveSampler: make it the first "
            "transform of the loader, leave n_id as it is, and, with num_workers above 0, leave out "
            "filter_per_worker=False"
        )
    found = [(edge_type, columns) for edge_type, columns in attributes.edges.items() if columns]
    for edge_type, _ in found:
        edge_index = (batch[edge_type] if hetero else batch).get("edge_index")
        if not attributes.are_drawn(edge_type, edge_index):
            raise InputError(
                f"edges of {edge_type!r} have weights, times or features of their own, and are not those "
                "that were drawn: they were changed by transform_sampler_output, or by a transform before "
                "add_edge_attributes. Leave transform_sampler_output out, and change edges in a transform "
                "after add_edge_attributes, which sees their columns: ToUndirected(reduce='mean') say"
            )
    for edge_type, columns in found:
        store = batch[edge_type] if hetero else batch
        for name, column in columns.items():
            store[name] = column
    return batch


def _versions(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(tensor._version for tensor in tensors)
