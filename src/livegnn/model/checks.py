"""Checks of the widths and edge types that callers pass to functions that make a model."""

import numpy as np

from livegnn.errors import ModelError
from livegnn.types import EdgeType
from livegnn.wording import shown


def to_edge_type(value: object, name: str) -> EdgeType:
    """The edge type as a tuple, from a tuple or a list of three names. Raises `ModelError`."""
    if isinstance(value, tuple | list) and len(value) == 3 and all(isinstance(one, str) for one in value):
        source, relation, target = value
        return str(source), str(relation), str(target)
    raise ModelError(
        f"{name}: edge types must be (source type, relation, target type), got {shown(value)}: write them "
        "as in ('user', 'buys', 'item')"
    )


def check_width(value: object, name: str, least: int) -> None:
    """Raises `ModelError` unless a number of channels is a whole number of at least `least`. NumPy integers
    are accepted, booleans are not."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ModelError(
            f"{name} must be a whole number of at least {least}, got {shown(value)}: give the number of "
            "channels"
        )
