"""Checks of the arguments that callers pass: numbers, switches, functions, arrays, paths."""

import contextlib
import operator
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeVar, cast

import numpy as np

from livegnn.errors import InputError
from livegnn.texts import Texts
from livegnn.wording import quoted

if TYPE_CHECKING:
    from jaxtyping import Float64, Shaped
    from numpy.typing import NDArray


_MAX_THREADS: Final = 1024

FLOAT32_END: Final = 2**128 - 2**103 - 2**74
"""The least integer that is infinite after rounding to float64, then to float32."""

_Made = TypeVar("_Made")


def check_int(value: object, name: str, least: int, most: int | None = None) -> int:
    """`value` as an integer from `least` to `most`. NumPy's integers are accepted, booleans are not.

    Raises `InputError`.
    """
    if not isinstance(value, (bool, np.bool_)):
        try:
            number = operator.index(cast("SupportsIndex", value))
        except TypeError:  # arrays and tensors always have __index__, but it may fail
            number = least - 1
        if least <= number and (most is None or number <= most):
            return number
    between = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise InputError(f"{name} must be an integer {between}, got {quoted(value)}")


def convert(source: object, type_: type[_Made], **others: object) -> _Made:
    """`source` as another dataclass: `others`, and the fields that both have; the rest has its defaults."""
    names = [it.name for it in fields(cast("Any", type_)) if it.init and hasattr(source, it.name)]
    return type_(**{**{name: getattr(source, name) for name in names}, **others})


def chosen_threads(threads: int | None) -> int:
    """`threads`, or as many as the process may use. Raises `InputError`."""
    if threads is None:
        return min(len(os.sched_getaffinity(0)), _MAX_THREADS)
    return check_int(threads, "threads", 1, _MAX_THREADS)


def check_positive(value: object, name: str) -> float:
    """`value`, if it is a number above 0. Raises `InputError`."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if number and cast("float", value) > 0:
        return cast("float", value)
    raise InputError(f"{name} must be a number above 0, got {quoted(value)}")


def check_bool(value: object, name: str) -> bool:
    """`value`, if it is True or False; a text such as "no", which Python treats as true, is refused.

    Raises `InputError`.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise InputError(f"{name} must be True or False, got {quoted(value)}")


def check_function(value: object, name: str, of: str) -> None:
    """Raises `InputError` if `value` is not callable. of: the arguments of the call, for the message."""
    if not callable(value):
        raise InputError(f"{name} must be a function of {of}, got {quoted(value)}")


def check_not_negative(value: object, name: str) -> float:
    """`value`, if it is a number of at least 0. Raises `InputError`."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if number and cast("float", value) >= 0:
        return cast("float", value)
    raise InputError(f"{name} must be a number of at least 0, got {quoted(value)}")


def check_share(value: object, name: str) -> float:
    """`value`, if it is a number above 0 and at most 1. Raises `InputError`."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if number and 0 < cast("float", value) <= 1:
        return cast("float", value)
    raise InputError(f"{name} must be a number above 0 and at most 1, got {quoted(value)}")


def as_path(value: object, name: str) -> Path:
    """`value` as a path. Raises `InputError`, also for a number, which `open` takes for a file descriptor."""
    if isinstance(value, (str, os.PathLike)) and isinstance(text := os.fspath(value), str):
        try:
            if b"\0" not in os.fsencode(text):
                return Path(text)
        except UnicodeEncodeError:
            pass  # half of a surrogate pair, which no file name contains
    raise InputError(f"{name} must be a path, as text or a pathlib.Path, got {quoted(value)}")


LONGEST_TEXT: Final = 1024
"""Characters of a text id. NumPy gives each text of an array the room of the longest."""


def check_lengths(texts: "Sequence[object]", name: str) -> None:
    """Raises `InputError` if a text has more than `LONGEST_TEXT` characters."""
    longest = max((len(one) for one in texts if isinstance(one, str)), default=0)
    if longest > LONGEST_TEXT:
        raise InputError(
            f"{name} must be texts of at most {LONGEST_TEXT:,} characters, got one of {longest:,}"
        )


def as_array(value: object, name: str, of: str = "numbers") -> "Shaped[NDArray[np.generic], '...']":
    """`value` as an array, without a copy if it is one. of: the expected content, for the message.

    Raises `InputError` if it is not an array, such as rows of different lengths, and for masked entries.
    """
    if _has_masked(value):
        raise InputError(
            f"{name} must have no masked entries, of which NumPy keeps the values: leave them out with "
            ".compressed(), or say what they are with .filled(value)"
        )
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise InputError(f"{name} must be an array of {of}, got {type(value).__name__}: {error}") from error


def listed_ids(value: object, name: str = "ids") -> "Shaped[NDArray[np.generic], '...'] | Texts":
    """Ids as an array, or texts as they are; a single id is an array of length 1. Raises `InputError`."""
    if type(value) is list and len(value) == 1 and type(value[0]) is int and 0 <= value[0] < 2**63:
        return np.array(value)  # the most frequent question takes a microsecond less
    if type(value) is np.int64:  # an element of an array
        return np.array([value])
    if isinstance(value, Texts):
        return value
    if isinstance(value, (str, list, tuple)):
        check_lengths([value] if isinstance(value, str) else value, name)
    array = plain_numbers(np.atleast_1d(as_array(value, name, "integers or text")))
    return as_text(value, array, name) if array.dtype.kind in "UO" else array


def plain_numbers(array: "Shaped[NDArray[np.generic], '...']") -> "Shaped[NDArray[np.generic], '...']":
    """`array`; if it holds real numbers as Python objects, as a column of pandas may, as `int64`, as `uint64`
    if one is too large for that, or as `float64` if one is a fraction. Larger numbers stay objects.
    """
    if array.dtype.kind != "O" or not array.size:
        return array
    kinds = set(map(type, array.ravel().tolist()))
    if bool in kinds or not all(issubclass(kind, (int, float, np.integer, np.floating)) for kind in kinds):
        return array
    whole = all(issubclass(kind, (int, np.integer)) for kind in kinds)
    for dtype in (np.int64, np.uint64) if whole else (np.float64,):
        with contextlib.suppress(OverflowError):
            return array.astype(dtype)
    return array


_FLOAT64 = np.dtype(np.float64)
_FRACTION_BITS: Final = 53  # of a float64: whole numbers from 2^53 on may lie between two of them
_FLOAT64_BITS: Final = 1023  # a whole number of as many bits is finite in float64


def as_times(value: object, name: str = "time") -> "Float64[NDArray[np.float64], '...']":
    """`value` as float64, without a copy if it is that. Every entry for times uses this check.

    Raises `InputError` for dates, durations, booleans and text, whose unit is not known, and for a number
    that float64 cannot hold: nanoseconds since 1970 would be rounded to 256 of them.
    """
    if type(value) is np.ndarray and value.dtype is _FLOAT64:
        return value
    if isinstance(value, (list, tuple)) or (type(value) is np.ndarray and value.dtype.kind == "O"):
        _check_listed_times(value, name)
    array = plain_numbers(as_array(value, name))
    if array.size and array.dtype.kind not in "iuf":
        unit = (
            ": say in which unit dates are, with np.asarray(dates, 'datetime64[s]').astype(np.int64) for "
            "seconds, and give all times in it"
        )
        raise InputError(
            f"{name} must be numbers, got {array.dtype}{unit if array.dtype.kind in 'mMO' else ''}"
        )
    times = np.asarray(array, dtype=np.float64, order="C")
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        # Exact are those whose bits below the last one of their float64 are 0.
        below = np.maximum(np.frexp(times)[1] - _FRACTION_BITS, 0).astype(array.dtype)
        one, most = array.dtype.type(1), array.dtype.type(62)  # NumPy 1 makes float64 of uint64 and int
        inexact = (array & ((one << np.minimum(below, most)) - one)) != 0
        if inexact.any():
            raise _inexact_time(array[inexact].flat[0], name)
    elif array.dtype.kind == "f" and array.dtype.itemsize > 8 and bool((times != array).any()):
        raise _inexact_time(array[times != array].flat[0], name)
    return times


def one_time(value: object, name: str) -> float:
    """`value`, if it is one time. Raises `InputError` as `as_times` does, and for several and for NaN."""
    times = as_times(value, name)
    if times.ndim != 0 or np.isnan(times):
        raise InputError(f"{name} must be one time, a number, got {quoted(value)}")
    return float(times)


def _check_listed_times(value: object, name: str) -> None:
    """NumPy makes numbers of a boolean among numbers, and rounds an integer among fractions."""
    for one in np.asarray(value, dtype=object).ravel().tolist():
        if isinstance(one, (bool, np.bool_)):
            raise InputError(f"{name} must be numbers, got bool")
        check_whole_time(one, name)


def check_whole_time(value: object, name: str) -> None:
    """Raises `InputError` if `value` is an integer that float64 does not hold."""
    if type(value) is not int or not abs(value) >> _FRACTION_BITS:
        return
    if abs(value) >> _FLOAT64_BITS or int(float(value)) != value:
        raise _inexact_time(value, name)


def _inexact_time(time: object, name: str) -> InputError:
    return InputError(
        f"{name} must be what float64 holds exactly, as it does whole numbers up to 2^53, got {time}: "
        "count in a larger unit, microseconds since 1970 say, or from a later moment, and give all times so"
    )


def check_texts(ids: "Shaped[NDArray[np.generic], '...']", whose: str) -> None:
    """Raises `InputError` if an array of objects has one that is not a text. whose: begins the message."""
    for id in ids.ravel().tolist():
        if not isinstance(id, str):
            raise InputError(f"{whose} text, got {quoted(id)}")


def as_text(
    value: object, array: "Shaped[NDArray[np.generic], '...']", name: str
) -> "Shaped[NDArray[np.generic], '...']":
    """`array`; if it holds text, contiguous and in native byte order.

    Raises `InputError` for a text with a NUL, or with half of a surrogate pair, which is not valid Unicode,
    and for numbers and other objects beside texts, of which NumPy would make texts.
    value: what `array` was made from. A text or a list is checked itself, because NumPy drops NULs at the end
    of a text, which would make it another id.
    """
    if array.dtype.kind == "U":
        width = max(1, array.itemsize // np.dtype(np.uint32).itemsize)
        if width > LONGEST_TEXT:
            check_lengths(array.ravel().tolist(), name)
        array = array.astype(f"=U{width}", order="C", copy=False)
        if not isinstance(value, (str, list, tuple)):
            points = array.view(np.uint32).reshape(*array.shape, width)
            inner = (points[..., :-1] == 0) & (points[..., 1:] != 0)
            if not (inner.any() or (points & 0xFFFFF800 == 0xD800).any()):
                return array
    given = (
        [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else array.tolist()
    )
    texts = [text for text in cast("list[object]", given) if isinstance(text, str)]
    if texts and len(texts) < len(given):
        other = next(one for one in given if not isinstance(one, str))
        if not isinstance(other, (list, tuple)):  # rows of a table, which no caller takes for ids
            raise InputError(f"{name} must be all integers or all text, got {quoted(other)} beside text")
    joined = "".join(texts)
    if "\0" in joined:
        bad = next(text for text in texts if "\0" in text)
        raise InputError(f"{name} must be text without NUL characters, got {quoted(str(bad))}")
    try:
        joined.isascii() or joined.encode()
    except UnicodeEncodeError as error:
        bad = next(text for text in texts if joined[error.start] in text)
        raise InputError(
            f"{name} must be valid Unicode, got {quoted(str(bad))}, with half of a surrogate pair"
        ) from None
    return array


def one_id(value: object) -> "Shaped[NDArray[np.generic], '1']":
    """An id as an array of length 1. Raises `InputError` if there is not exactly one."""
    asked = np.asarray(listed_ids(value))
    if asked.shape != (1,):
        raise InputError(f"expected the id of one node, got {quoted(value)}")
    return asked


def _has_masked(value: object) -> bool:
    if type(value) is np.ndarray:
        return False
    if isinstance(value, (list, tuple)):
        kinds = set(map(type, value))
        inside = any(issubclass(kind, (list, tuple, np.ma.MaskedArray)) for kind in kinds)
        return inside and any(map(_has_masked, value))
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


def is_incoming(direction: object) -> bool:
    """Whether a direction is "in" (in-edges) rather than "out" (out-edges). Raises `InputError`."""
    if not isinstance(direction, str) or direction not in ("in", "out"):
        raise InputError(f"direction must be 'in' or 'out', got {quoted(direction)}")
    return direction == "in"
