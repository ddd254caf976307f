"""What callers pass, checked before anything is done with it: numbers, switches, functions, an id."""

import operator
from typing import TYPE_CHECKING, SupportsIndex, cast

import numpy as np

from livegnn.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def whole(value: object, name: str, least: int, most: int | None = None) -> int:
    """`value` as an integer from `least` to `most`. NumPy's integers are integers, True is none.

    Raises `InputError`.
    """
    if not isinstance(value, (bool, np.bool_)) and hasattr(value, "__index__"):
        number = operator.index(cast("SupportsIndex", value))
        if least <= number and (most is None or number <= most):
            return number
    between = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise InputError(f"{name} must be an integer {between}, got {value!r}")


def above_zero(value: object, name: str) -> float:
    """`value`, if it is a number above 0. Raises `InputError`."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if number and cast("float", value) > 0:
        return cast("float", value)
    raise InputError(f"{name} must be a number above 0, got {value!r}")


def switch(value: object, name: str) -> bool:
    """`value`, if it is True or False. A text such as "no" would count as True.

    Raises `InputError`.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise InputError(f"{name} must be True or False, got {value!r}")


def function(value: object, name: str, of: str) -> None:
    """Raises `InputError` for what cannot be called. of: what it would be called with."""
    if not callable(value):
        raise InputError(f"{name} must be a function of {of}, got {value!r}")


def one_id(value: "ArrayLike") -> "NDArray[np.generic]":
    """An id as an array of it. Raises `InputError` where there are several, or none."""
    asked = np.atleast_1d(np.asarray(value))
    if asked.shape != (1,):
        raise InputError(f"expected the id of one node, got {value!r}")
    return asked
