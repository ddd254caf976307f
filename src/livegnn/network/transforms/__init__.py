"""Transforms of raw columns: fitted in Python, computed by the first steps of a model."""

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
