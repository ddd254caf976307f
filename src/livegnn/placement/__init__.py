"""The placement of nodes: the workers that own them."""

from livegnn.placement.owners import Owners

__all__ = ["Owners"]
