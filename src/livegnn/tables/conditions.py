"""Conditions that a row must meet to give a node or an edge: `where` of a mapping."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args

from livegnn.errors import InputError
from livegnn.wording import kind_of, quoted

if TYPE_CHECKING:
    import pyarrow as pa

Test: TypeAlias = Literal["equal", "one_of", "at_least", "at_most", "not_null"]
_SINGLE: Final = (str, bool, int, float, datetime, date)
_INT64: Final = range(-(2**63), 2**63)


class Condition(NamedTuple):
    """A test of the values of a column. A null meets none."""

    column: str
    test: Test
    value: object


def parse_conditions(where: object) -> tuple[Condition, ...]:
    """The conditions of `where`: by column, a value, a list of values, or a table of tests."""
    if not isinstance(where, Mapping):
        raise InputError(f"where must be a table from columns to values, got {kind_of(where)}")
    conditions: list[Condition] = []
    for column, wanted in where.items():
        if not isinstance(column, str) or not column:
            raise InputError(f"where must name columns, got {quoted(column)}")
        if isinstance(wanted, Mapping):
            if not wanted:
                raise InputError(f"where of {column!r} must have a test, {_tests()}, got none")
            conditions += [_condition(column, test, value) for test, value in wanted.items()]
        else:
            test: Test = "one_of" if isinstance(wanted, (list, tuple)) else "equal"
            conditions.append(_condition(column, test, wanted))
    return tuple(conditions)


def _tests() -> str:
    return ", ".join(get_args(Test))


def _condition(column: str, test: object, value: object) -> Condition:
    if test not in get_args(Test):
        raise InputError(f"where of {column!r} must be among {_tests()}, got {quoted(test)}")
    if test == "not_null":
        if value is not True:
            raise InputError(f"where of {column!r}: not_null must be true, or left out, got {quoted(value)}")
        return Condition(column, "not_null", True)
    if test == "one_of":
        if not isinstance(value, (list, tuple)) or not value:
            raise InputError(f"where of {column!r}: one_of must be a list of values, got {quoted(value)}")
        return Condition(column, "one_of", tuple(_single(column, one) for one in value))
    return Condition(column, test, _single(column, value))  # type: ignore[arg-type]


def _single(column: str, value: object) -> object:
    fits = isinstance(value, _SINGLE) and (type(value) is not int or value in _INT64)
    if not fits or value != value:  # noqa: PLR0124 - NaN
        raise InputError(
            f"where of {column!r} must be text, a number below 2^63, true, false, a time or a date, "
            f"got {quoted(value)}"
        )
    return value


def meets(column: "pa.Array", condition: Condition) -> "pa.Array":
    """Whether each value of `column` meets the condition. Requires: `check_condition` passed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if condition.test == "not_null":
        return column.is_valid()
    if condition.test == "one_of":
        assert isinstance(condition.value, tuple)
        found = pa.array([False] * len(column), pa.bool_())
        for one in condition.value:
            found = pc.or_(found, meets(column, Condition(condition.column, "equal", one)))
        return found
    if pa.types.is_null(column.type):
        return pa.array([False] * len(column), pa.bool_())
    compare = {"equal": pc.equal, "at_least": pc.greater_equal, "at_most": pc.less_equal}[condition.test]
    value = condition.value
    if pa.types.is_uint64(column.type) and type(value) is int:
        if value < 0:  # below all of them
            return column.is_valid() if condition.test == "at_least" else pa.array([False] * len(column))
        return compare(column, pa.scalar(value, pa.uint64())).fill_null(False)
    return compare(column, _scalar(value, column.type)).fill_null(False)


def check_condition(condition: Condition, kind: "pa.DataType", place: str) -> None:
    """Raises InputError if values of a column of this kind cannot be compared with those of the condition."""
    import pyarrow as pa

    values = condition.value if condition.test == "one_of" else (condition.value,)
    assert isinstance(values, tuple)
    if condition.test == "not_null" or pa.types.is_null(kind):
        return
    for value in values:
        if not _comparable(value, kind):
            raise InputError(
                f"{place}: expected values that {quoted(value)} can be compared with, got {kind}"
            )


def _comparable(value: object, kind: "pa.DataType") -> bool:
    import pyarrow as pa

    if isinstance(value, bool):
        return bool(pa.types.is_boolean(kind))
    if isinstance(value, str):
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
    if isinstance(value, (datetime, date)):
        whole = isinstance(value, datetime)
        return bool(pa.types.is_timestamp(kind) or (not whole and pa.types.is_date(kind)))
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _scalar(value: object, kind: "pa.DataType") -> "pa.Scalar":
    """`value` as it is compared with values of this kind. A time without a zone is one of UTC."""
    import pyarrow as pa

    if isinstance(value, date) and not isinstance(value, datetime):
        days = pa.scalar(value, pa.date32())
        return days if pa.types.is_date(kind) else days.cast(pa.timestamp("us")).cast(kind)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return pa.scalar(value, pa.timestamp("us")).cast(pa.timestamp("us", kind.tz))
        zoned = pa.scalar(value, pa.timestamp("us", "UTC"))
        return zoned.cast(pa.timestamp("us", kind.tz)) if kind.tz else zoned.cast(pa.timestamp("us"))
    if type(value) is int:
        return pa.scalar(value, pa.int64())
    return pa.scalar(value)
