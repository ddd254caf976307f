"""Columns of a table as ids, weights, times, keys and features; errors name the row of a wrong value."""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livegnn.arguments import LONGEST_TEXT
from livegnn.errors import InputError
from livegnn.tables.times import to_seconds
from livegnn.texts import text_code
from livegnn.types import MISSING, DoubleArray, FloatArray, IntArray, Keys
from livegnn.wording import quoted

UUID: Final = pa.binary(16)
_LARGEST_ID: Final = 2**63 - 1
_LARGEST_KEY: Final = 2**32 - 1
_DASHES: Final = (8, 13, 18, 23)
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


class WrongKindError(InputError):
    """A column of another kind than the mapping needs. column: its name."""

    def __init__(self, message: str, column: str) -> None:
        super().__init__(message)
        self.column = column


class WrongValuesError(InputError):
    """Values of one column that cannot be accepted. rows: the numbers of their rows; the message names the
    first."""

    def __init__(self, message: str, rows: "npt.NDArray[np.int64]") -> None:
        super().__init__(message)
        self.rows = rows


class Column(NamedTuple):
    """Values of one column. rows: the number of each in its table. place: of the table and entry."""

    name: str
    values: pa.Array
    rows: "npt.NDArray[np.int64]"
    place: str

    def refuse(self, wrong: "npt.NDArray[np.bool_] | pa.Array", expected: str) -> None:
        """Raises a `WrongValuesError` for the `wrong` values, if there is one."""
        at = np.flatnonzero(np.asarray(wrong, dtype=bool))
        if len(at):
            raise self.error(at, expected)

    def error(self, at: "npt.NDArray[np.int64]", expected: str) -> WrongValuesError:
        """The error for the values at the positions `at`."""
        first = int(at[0])
        try:
            got = quoted(_shown(self.values[first]))
        except (UnicodeDecodeError, pa.ArrowException, ValueError, OverflowError):
            got = f"a value of {self.values.type} that cannot be shown"
        return WrongValuesError(
            f"{self.place}row {self.rows[first]}, column {self.name!r}: expected {expected}, got {got}",
            self.rows[at],
        )


def _shown(value: pa.Scalar) -> object:
    """A value for people."""
    if pa.types.is_temporal(value.type) or pa.types.is_decimal(value.type):
        return str(value)
    return cast("object", value.as_py())


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values of a column: without dictionaries, runs and extensions; of text, one of two."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    return pa.large_string() if str(kind) == "string_view" else kind


def plain(column: pa.Array) -> pa.Array:
    """The same values as an array of `plain_type`."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(column.storage)
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(column))
    return column.cast(pa.large_string()) if str(kind) == "string_view" else column


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def expected_of(role: str, kind: pa.DataType, *, text_ids: bool) -> str | None:
    """The kinds that a column of this role must have, or None if `kind` is one."""
    if pa.types.is_null(kind):
        return None
    if role == "id":
        if text_ids:
            fits, expected = is_text(kind) or kind == UUID or _is_whole(kind), "text, UUIDs or integers"
        else:
            fits, expected = _is_whole(kind), "integers (ids that are text need a schema with text_ids)"
    elif role == "key":
        fits, expected = _is_whole(kind), "integers"
    elif role == "text":
        fits, expected = is_text(kind), "text"
    elif role == "time":
        stamped = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
        fits, expected = (
            stamped or is_text(kind) or is_number(kind),
            "timestamps, dates, ISO text or numbers",
        )
    elif role == "lists" or (role == "features" and is_list(kind)):
        inner = kind.value_type if is_list(kind) else None
        fits, expected = (
            inner is not None and (is_number(inner) or pa.types.is_null(inner)),
            "lists of numbers",
        )
    elif role == "features":
        fits, expected = is_number(kind) or pa.types.is_boolean(kind), "numbers"
    else:
        fits, expected = is_number(kind), "numbers"
    return None if fits else expected


def to_id_column(column: Column, *, text_ids: bool) -> pa.Array:
    """Ids as int64 or, with `text_ids`, large_string; integers are then written in decimal."""
    values = column.values
    if pa.types.is_null(values.type):
        return pa.array([], pa.large_string() if text_ids else pa.int64())
    if values.type == UUID:
        return _uuids(values)
    if is_text(values.type):
        return _texts(column)
    if pa.types.is_decimal(values.type):
        values = _whole(column, 0, _LARGEST_ID, "an id from 0 to 2^63 - 1")
        column = column._replace(values=values)
    if not pa.types.is_unsigned_integer(values.type):
        column.refuse(pc.less(values, 0), "an id from 0 to 2^63 - 1")
    if pa.types.is_uint64(values.type):
        column.refuse(pc.greater(values, pa.scalar(_LARGEST_ID, pa.uint64())), "an id from 0 to 2^63 - 1")
    ids = values.cast(pa.int64())
    return ids.cast(pa.large_string()) if text_ids else ids


def _texts(column: Column) -> pa.Array:
    """Text ids, checked by the rules of `events`, here with the row."""
    texts = column.values.cast(pa.large_string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raise column.error(np.array([_not_utf8(texts)]), "an id that is UTF-8") from None
    column.refuse(pc.match_substring(texts, "\0"), "an id without NUL characters")
    column.refuse(
        pc.greater(pc.utf8_length(texts), LONGEST_TEXT), f"an id of at most {LONGEST_TEXT:,} characters"
    )
    return texts


def _not_utf8(texts: pa.Array) -> int:
    for at, one in enumerate(texts.cast(pa.large_binary()).to_pylist()):
        try:
            one.decode()
        except UnicodeDecodeError:
            return at
    return 0


def _uuids(values: pa.Array) -> pa.Array:
    """UUIDs of 16 bytes as text: 8-4-4-4-12 digits in lower case."""
    n = len(values)
    raw = np.frombuffer(values.buffers()[1] or b"", dtype=np.uint8)
    raw = raw[16 * values.offset : 16 * (values.offset + n)].reshape(n, 16)
    digits = np.stack([_DIGITS[raw >> 4], _DIGITS[raw & 15]], axis=-1).reshape(n, 32)
    text = np.full((n, 36), ord("-"), dtype=np.uint8)
    text[:, [at for at in range(36) if at not in _DASHES]] = digits
    ends = np.arange(0, 36 * n + 1, 36, dtype=np.int64)
    return pa.Array.from_buffers(
        pa.large_string(), n, [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(text.tobytes())]
    )


def _whole(column: Column, least: int, most: int, expected: str) -> pa.Array:
    """Decimals without digits after the point as int64."""
    values = column.values
    below, above = pa.scalar(least, pa.int64()), pa.scalar(most, pa.int64())
    column.refuse(pc.or_(pc.less(values, below), pc.greater(values, above)), expected)
    return values.cast(pa.int64())


def to_keys(column: Column) -> Keys:
    """Keys of parallel edges."""
    expected = "a key from 0 to 2^32 - 1"
    values = column.values
    if pa.types.is_null(values.type):
        return np.empty(0, dtype=np.uint32)
    if pa.types.is_decimal(values.type):
        values = _whole(column, 0, _LARGEST_KEY, expected)
    numbers = values.to_numpy(zero_copy_only=False)
    column.refuse((numbers < 0) | (numbers > _LARGEST_KEY), expected)
    return cast("Keys", numbers.astype(np.uint32))


def to_numbers(column: Column) -> FloatArray:
    """Weights or features as float32, all finite."""
    if pa.types.is_float32(column.values.type):  # nearly always: no copy
        floats = cast("FloatArray", column.values.to_numpy(zero_copy_only=False))
    else:
        with np.errstate(over="ignore"):
            floats = _float64(column.values).astype(np.float32)
    column.refuse(~np.isfinite(floats), "a finite number that float32 can hold")
    return floats


def to_times(column: Column, unit: str | None) -> DoubleArray:
    """Times in seconds since 1970. unit: of numbers, by default seconds."""
    return to_seconds(column.values, unit or "s", column.refuse)


def to_codes(column: Column) -> FloatArray:
    """The codes of texts; `MISSING` for a null."""
    values = column.values.cast(pa.large_string()).dictionary_encode()
    codes = np.array([text_code(one) for one in values.dictionary.to_pylist()], dtype=np.float32)
    places = values.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)
    return cast("FloatArray", np.append(codes, np.float32(MISSING))[places])


def to_matrix(columns: Sequence[Column], width: int, codes: Collection[str] = ()) -> FloatArray:
    """Features [rows, width], of one column of lists or of `width` columns of numbers. codes: the names of
    columns of text."""
    if len(columns) == 1 and is_list(columns[0].values.type):
        return _lists(columns[0], width)
    read = [to_codes(one) if one.name in codes else to_numbers(one) for one in columns]
    return np.ascontiguousarray(np.stack(read, axis=1))


def _lists(column: Column, width: int) -> FloatArray:
    lengths = pc.list_value_length(column.values).to_numpy(zero_copy_only=False)
    column.refuse(lengths != width, f"a list of {width} numbers")
    inner = column.values.flatten()
    rows, within = np.repeat(column.rows, width), inner.is_null().to_numpy(zero_copy_only=False)
    at = np.flatnonzero(within)
    if len(at):
        raise column.error(np.unique(at // width), f"a list of {width} numbers without a null")
    return to_numbers(column._replace(values=inner, rows=rows)).reshape(len(column.values), width)


def _float64(values: pa.Array) -> DoubleArray:
    if pa.types.is_null(values.type):
        return np.empty(0, dtype=np.float64)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    return cast("DoubleArray", values.to_numpy(zero_copy_only=False).astype(np.float64))


def count_rows(first: int, n: int) -> IntArray:
    """The numbers of `n` rows from `first` on."""
    return cast("IntArray", np.arange(first, first + n, dtype=np.int64))
