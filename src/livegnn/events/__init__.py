"""What can happen to a graph: edges and nodes that come and go, features that change."""

from livegnn.events.builder import Events
from livegnn.events.chunk import Chunk, Kind

__all__ = ["Chunk", "Events", "Kind"]
