"""Transforms of raw columns, and their kinds (docs/raw-features.md)."""

from livegnn.network.transforms import (
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
    Transforms,
)

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
