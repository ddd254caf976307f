"""Changes to a graph: edges and nodes that are added and removed, features that are set."""

from livegnn.events.builder import Events
from livegnn.events.chunk import Chunk, Kind

__all__ = ["Chunk", "Events", "Kind"]
