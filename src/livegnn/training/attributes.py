"""The features and columns of a sample's nodes and edges, read when the sample was drawn.

PyG's loaders draw a sample first and then ask the feature store for rows, by the tensor of nodes that the
sampler made. In between, a batch of events may change or remove those nodes. So the sampler reads everything
together with the sample and stores it here, keyed by that tensor, for as long as the tensor lives.
"""

from typing import NamedTuple

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.data import Data, HeteroData

from livegnn.errors import InputError
from livegnn.types import EdgeType, NodeType


class Attributes(NamedTuple):
    """x: [nodes, channels] by node type. edges: `edge_weight` [edges], `time` [edges] and `edge_attr`
    [edges, channels] by edge type; only those that the type has."""

    x: dict[NodeType, Tensor]
    edges: dict[EdgeType, dict[str, Tensor]]


_kept: "WeakTensorKeyDictionary[Tensor, Attributes]" = WeakTensorKeyDictionary()


def keep(node: Tensor, attributes: Attributes) -> None:
    _kept[node] = attributes


def kept(node: Tensor) -> Attributes | None:
    """The attributes stored for this tensor object, or None; a tensor that is only equal does not match."""
    found: Attributes | None = _kept.get(node)
    return found


def add_edge_attributes(batch: Data | HeteroData) -> Data | HeteroData:
    """Adds `edge_weight`, `time` and `edge_attr` to the edges of a batch, if their types have them.

    Use it as the `transform` of PyG's own loaders, which ask feature stores only for nodes;
    `livegnn.training.NodeLoader` and `LinkLoader` call it themselves. Raises `InputError` unless a loader
    with a `LiveSampler` just made the batch.
    """
    hetero = isinstance(batch, HeteroData)
    nodes = [batch[name].n_id for name in batch.node_types] if hetero else [batch.n_id]
    attributes = kept(nodes[0]) if nodes else None
    if attributes is None:
        raise InputError(
            "add_edge_attributes needs a batch as a loader makes it with a LiveSampler: make it the first "
            "transform of the loader, and leave n_id as it is"
        )
    for edge_type, columns in attributes.edges.items():
        store = batch[edge_type] if hetero else batch
        for name, column in columns.items():
            store[name] = column
    return batch
