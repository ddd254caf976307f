"""Checks of the widths, edge types and tensors that callers pass to make a model."""

import numpy as np

from livegnn.arguments import as_array
from livegnn.errors import ModelError
from livegnn.types import EdgeType, FloatArray
from livegnn.wording import show


def to_edge_type(value: object, name: str) -> EdgeType:
    """The edge type as a tuple, from a tuple or a list of three names. Raises `ModelError`."""
    if isinstance(value, tuple | list) and len(value) == 3 and all(isinstance(one, str) for one in value):
        source, relation, target = value
        return str(source), str(relation), str(target)
    raise ModelError(
        f"{name}: edge types must be (source type, relation, target type), got {show(value)}: write them "
        "as in ('user', 'buys', 'item')"
    )


def check_width(value: object, name: str, least: int) -> None:
    """Raises `ModelError` unless a number of channels is a whole number of at least `least`. NumPy integers
    are accepted, booleans are not."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ModelError(
            f"{name} must be a whole number of at least {least}, got {show(value)}: give the number of "
            "channels"
        )


def frozen_tensor(name: str, array: FloatArray) -> FloatArray:
    """Returns a read-only copy. Raises `ModelError` if it is not float32, or has NaN or infinity."""
    given = as_array(array, f"tensor {name!r}")
    if given.dtype != np.float32:
        raise ModelError(
            f"tensor {name!r} must be float32, got {given.dtype}: convert it with .astype(numpy.float32)"
        )
    if not np.isfinite(given).all():
        raise ModelError(
            f"tensor {name!r} must be finite, got NaN or infinity: the training has diverged, or never set it"
        )
    frozen = np.array(given, dtype=np.float32, order="C")
    frozen.flags.writeable = False
    return frozen
