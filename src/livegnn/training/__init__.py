"""Training on the graph as it is now: PyG's loaders over a live graph, while events keep arriving.

The one room beside the model importer that needs torch; nothing of LiveGNN imports it.
"""

from livegnn.training.attributes import add_edge_attributes
from livegnn.training.loaders import LinkLoader, NodeLoader
from livegnn.training.sampler import LiveSampler
from livegnn.training.stores import LiveFeatureStore, LiveGraphStore

__all__ = [
    "LinkLoader",
    "LiveFeatureStore",
    "LiveGraphStore",
    "LiveSampler",
    "NodeLoader",
    "add_edge_attributes",
]
