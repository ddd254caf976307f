"""Times of any form as float64 seconds since 1970: timestamps, dates, ISO text and numbers.

A time without a zone is one of UTC. A text may have slashes in its date: year, month and day.

Microseconds are rounded once, as `datetime.timestamp()` does it.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from livegnn.types import DoubleArray

if TYPE_CHECKING:
    import numpy.typing as npt

    _Forms: TypeAlias = tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]
    Refuse: TypeAlias = Callable[[npt.NDArray[np.bool_] | pa.Array, str], None]

PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
SECONDS: Final = {"min": 60, "h": 3600, "D": 86_400}
_INT64: Final = np.dtype(np.int64)
_EXACT: Final = 2**53
_MONTH: Final = r"(?:0[1-9]|1[0-2])"
_DAY: Final = r"(?:0[1-9]|[12]\d|3[01])"
_DATE: Final = rf"\d{{4}}(?:-{_MONTH}-{_DAY}|/{_MONTH}/{_DAY})"
_CLOCK: Final = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.(\d{1,9}))?)?"
_ZONE: Final = r"(Z|[+-](?:0\d|1\d|2[0-3])(?::?[0-5]\d)?)"
_ISO: Final = rf"{_DATE}(?:[T ]{_CLOCK}{_ZONE}?)?"
_PATTERN: Final = re.compile(_ISO.encode())
_MICROS: Final = 6  # digits
_FEW: Final = 200
_FORM: Final = (
    "a time as in 2026-03-01, 2026-03-01T12:30:00.5 or 2026-03-01T12:30:00+01:00 "
    "(numbers of a text file need a time_unit in the mapping)"
)


def to_seconds(values: pa.Array, unit: str, refuse: "Refuse") -> DoubleArray:
    """`values`, without nulls, as seconds. unit: of numbers. refuse: raises the first
    wrong value's error."""
    kind = values.type
    if pa.types.is_null(kind):
        return np.empty(0, dtype=np.float64)
    if pa.types.is_timestamp(kind):
        return _stamps(_integers(values), kind.unit)
    if pa.types.is_date(kind):
        days = values.cast(pa.date32()).cast(pa.int32()).to_numpy(zero_copy_only=False)
        return cast("DoubleArray", days.astype(np.float64) * SECONDS["D"])
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(values, refuse)
    if pa.types.is_decimal(kind):
        if kind.scale:
            values = values.cast(pa.float64())
        else:
            whole = pa.scalar(2**63 - 1, pa.int64())
            refuse(pc.greater(pc.abs(values), whole), "a time below 2^63")
            values = values.cast(pa.int64())
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        seconds = cast(
            "DoubleArray", numbers.astype(np.float64) * SECONDS.get(unit, 1) / PER_SECOND.get(unit, 1)
        )
        refuse(~np.isfinite(seconds), "a finite time")
        return seconds
    if unit in PER_SECOND and unit != "s":
        if numbers.dtype == np.uint64:
            refuse(numbers > np.uint64(2**63 - 1), "a time below 2^63")
        return _stamps(numbers.astype(_INT64), unit)
    seconds_each = SECONDS.get(unit, 1)
    most = _EXACT // seconds_each
    large = numbers > most if numbers.dtype.kind == "u" else (numbers > most) | (numbers < -most)
    refuse(large, "a time of at most 2^53 seconds (is time_unit another one?)")
    return cast("DoubleArray", numbers.astype(np.float64) * seconds_each)


def _integers(values: pa.Array) -> "npt.NDArray[np.int64]":
    return cast("npt.NDArray[np.int64]", values.cast(pa.int64()).to_numpy(zero_copy_only=False))


def _stamps(counts: "npt.NDArray[np.int64]", unit: str) -> DoubleArray:
    """Seconds of whole units since 1970. Nanoseconds are added to the rounded microseconds."""
    if unit != "ns":
        return _rounded(counts, PER_SECOND[unit])
    micros, rest = np.divmod(counts, 1000)
    return _rounded(micros, PER_SECOND["us"]) + rest / 1e9


def _rounded(counts: "npt.NDArray[np.int64]", per_second: int) -> DoubleArray:
    """The quotients, rounded once: large counts, which float64 may not hold, are divided in two parts."""
    seconds: DoubleArray = counts / np.float64(per_second)
    large = (counts > _EXACT) | (counts < -_EXACT)
    if large.any():
        whole, rest = np.divmod(counts[large], per_second)
        seconds[large] = whole + rest / np.float64(per_second)
    return seconds


def _texts(values: pa.Array, refuse: "Refuse") -> DoubleArray:
    """ISO 8601: a date, perhaps a clock, perhaps a zone; its date may have slashes."""
    texts = values.cast(pa.string())
    valid, zoned, nanos = _forms(texts) if len(texts) > _FEW else _forms_of_few(texts)
    refuse(~valid, _FORM)
    texts = pc.replace_substring(texts, "/", "-")
    seconds = np.zeros(len(texts), dtype=np.float64)
    for has_zone in (False, True):
        for fine in (False, True):
            at = np.flatnonzero((zoned == has_zone) & (nanos == fine))
            if not len(at):
                continue
            unit = "ns" if fine else "us"
            kind = pa.timestamp(unit, "UTC") if has_zone else pa.timestamp(unit)
            alike = texts if len(at) == len(texts) else texts.take(pa.array(at))
            try:
                stamps = alike.cast(kind)
            except pa.ArrowInvalid:
                _refuse_days(texts, at, kind, refuse)
                raise
            seconds[at] = _stamps(_integers(stamps), unit)
    return seconds


def _forms(texts: pa.Array) -> "_Forms":
    """Masks of the texts that are times, that have a zone, and that have more than six digits of a second."""
    patterns = (rf"^{_ISO}$", rf":[0-9.]+{_ZONE}$", r"\.\d{7,9}")
    valid, zoned, nanos = (
        pc.match_substring_regex(texts, one).to_numpy(zero_copy_only=False) for one in patterns
    )
    return valid, zoned, nanos


def _forms_of_few(texts: pa.Array) -> "_Forms":
    """As `_forms`, for which pyarrow compiles its patterns in each call: that takes longer than the texts."""
    found = [_PATTERN.fullmatch(one) for one in texts.view(pa.binary()).to_pylist()]
    parts = [(None, None) if one is None else one.groups() for one in found]
    valid = np.array([one is not None for one in found], dtype=bool)
    zoned = np.array([zone is not None for _, zone in parts], dtype=bool)
    nanos = np.array([len(fraction or b"") > _MICROS for fraction, _ in parts], dtype=bool)
    return valid, zoned, nanos


def _refuse_days(texts: pa.Array, at: "npt.NDArray[np.int64]", kind: pa.DataType, refuse: "Refuse") -> None:
    """Raises the error of the first text that names no day, as February 30."""
    for position in at.tolist():
        try:
            texts.slice(position, 1).cast(kind)
        except pa.ArrowInvalid:
            wrong = np.zeros(len(texts), dtype=bool)
            wrong[position] = True
            refuse(wrong, _FORM)
