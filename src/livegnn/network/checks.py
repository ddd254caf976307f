"""Checks of the widths, edge types, names and tensors that callers pass to make a model."""

from collections.abc import Mapping

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


def check_outputs(outputs: Mapping[str, str], edge_outputs: Mapping[str, str], output: str) -> None:
    """Raises `ModelError` unless outputs have names, each once, and the first is the prediction, `output`."""
    for which, given in (("outputs", outputs), ("edge_outputs", edge_outputs)):
        for name, value in given.items():
            if not isinstance(name, str) or not name or not isinstance(value, str):
                raise ModelError(f"{which} must map names to names of values, got {name!r}: {value!r}")
    twice = sorted(set(outputs) & set(edge_outputs))
    if twice:
        raise ModelError(f"{twice[0]!r} must be the name of an output or of an edge output, got both")
    first = next(iter(outputs.values()))
    if first != output:
        raise ModelError(
            f"the first of the outputs must be the output {output!r}, got {first!r}: put that first"
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
