"""What the nodes and edges of a sample carry, read in the moment in which they were drawn.

PyG's loaders draw first and ask the feature store for rows afterwards, by the tensor of nodes that the
sampler made. Between the two a batch of events may change or remove what was drawn. So the sampler reads
everything at once and leaves it here, under that very tensor, for as long as the tensor lives.
"""

from typing import NamedTuple

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.data import Data, HeteroData

from livegnn.errors import InputError
from livegnn.types import EdgeType, NodeType


class Attributes(NamedTuple):
    """x: [nodes, channels] by node type. edges: `edge_weight` [edges], `time` [edges] and `edge_attr`
    [edges, channels] by edge type; each where the type has it."""

    x: dict[NodeType, Tensor]
    edges: dict[EdgeType, dict[str, Tensor]]


_kept: "WeakTensorKeyDictionary[Tensor, Attributes]" = WeakTensorKeyDictionary()


def keep(node: Tensor, attributes: Attributes) -> None:
    _kept[node] = attributes


def kept(node: Tensor) -> Attributes | None:
    """What came with exactly this tensor, not one that is equal to it."""
    found: Attributes | None = _kept.get(node)
    return found


def add_edge_attributes(batch: Data | HeteroData) -> Data | HeteroData:
    """The batch with `edge_weight`, `time` and `edge_attr` of its edges, where their types have them.

    It is the `transform` to give to PyG's own loaders, which ask feature stores for nodes alone;
    `livegnn.training.NodeLoader` and `LinkLoader` call it themselves. Raises `InputError` if the batch is not
    one that a loader just made with a `LiveSampler`.
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
