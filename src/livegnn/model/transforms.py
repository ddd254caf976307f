"""Transforms of raw columns, and their kinds (docs/raw-features.md)."""

from livegnn.network.transforms.kinds import (
    Branches,
    Bucket,
    Clip,
    Cyclic,
    Fill,
    Indicate,
    Kind,
    Log,
    OneHot,
    Ordinal,
    Quantile,
    Standardize,
)
from livegnn.network.transforms.transforms import Transforms

__all__ = [
    "Branches",
    "Bucket",
    "Clip",
    "Cyclic",
    "Fill",
    "Indicate",
    "Kind",
    "Log",
    "OneHot",
    "Ordinal",
    "Quantile",
    "Standardize",
    "Transforms",
]
