"""The placement of nodes: the workers that own them, and partitioners that choose them."""

from livegnn.placement.owners import Owners
from livegnn.placement.partition import Partition, partition_graph

__all__ = ["Owners", "Partition", "partition_graph"]
