"""Training on the current graph: PyG's loaders over a live graph, while events keep arriving.

Only this package and the model importer need torch. No other part of LiveGNN imports this package.
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
