"""Transforms of raw columns: fitted in Python, computed by the first steps of a model."""

from livegnn.network.transforms.transforms import Transforms

__all__ = ["Transforms"]
