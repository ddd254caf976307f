"""Samples of several hops that are kept ready while the graph changes (Helios, sections 4 and 5)."""

from livegnn.presampling.presampler import Presampler

__all__ = ["Presampler"]
