"""Values of Kafka Connect and Debezium that are not plain JSON: decimals, dates and times of a schema.

The names of the types are those of the documentation of Kafka Connect (logical types) and of Debezium
("temporal types", "decimal types").
"""

import base64
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Final, NamedTuple, cast

import pyarrow as pa

from livegnn.errors import InputError
from livegnn.types import JSON
from livegnn.wording import quoted

_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"
_TIMES: Final = {
    "org.apache.kafka.connect.data.Date": pa.date32(),
    "org.apache.kafka.connect.data.Timestamp": pa.timestamp("ms"),
    "io.debezium.time.Date": pa.date32(),
    "io.debezium.time.Timestamp": pa.timestamp("ms"),
    "io.debezium.time.MicroTimestamp": pa.timestamp("us"),
    "io.debezium.time.NanoTimestamp": pa.timestamp("ns"),
}
_NO_TIMES: Final = ("Time", "MicroTime", "NanoTime", "MicroDuration", "NanoDuration", "Interval", "Year")
"""The last words of types whose values are not points in time."""
_ISO_DATE: Final = "io.debezium.time.IsoDate"
_EXACT: Final = Context(prec=1_000)  # digits; the usual context would round to 28


class Converter(NamedTuple):
    """The type of a column in a schema. name: of the type. scale: digits after the point of a decimal."""

    name: str
    scale: int = 0

    def check_time(self) -> None:
        """Raises ValueError unless the values are points in time."""
        if self.name.rpartition(".")[2] in _NO_TIMES:
            raise ValueError(f"points in time, got values of {self.name}: map another column")

    def convert(self, values: Sequence[JSON]) -> pa.Array:
        """The values as a column. Raises ValueError, which says what was expected, and pyarrow's errors."""
        if self.name == _ISO_DATE:
            return pa.array([one.removesuffix("Z") if isinstance(one, str) else one for one in values])
        if self.name not in (*_TIMES, _DECIMAL, _VARIABLE):
            return pa.array(values)
        kind = _TIMES.get(self.name)
        if kind is not None:
            width = pa.int32() if kind == pa.date32() else pa.int64()
            try:
                return pa.array(values, width).cast(kind)
            except (pa.ArrowException, OverflowError, TypeError) as error:
                raise ValueError(f"numbers of {self.name}, got {error}") from error
        try:
            return pa.array([None if value is None else self._decimal(value) for value in values])
        except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"decimals of {self.name}, got one that cannot be read: {error!r}") from error

    def _decimal(self, value: JSON) -> Decimal:
        if self.name == _VARIABLE:
            fields = cast("Mapping[str, JSON]", value)
            return _unscaled(cast("str", fields["value"]), cast("int", fields["scale"]))
        return _unscaled(cast("str", value), self.scale)


def converters_of(schema: JSON, field: str | None) -> Mapping[str, Converter]:
    """The columns of a row that need one, by name. field: of the row in the schema; None if the schema is its
    own. Raises InputError for a schema of another form.
    """
    try:
        fields = _fields(schema)
        if field is not None:
            fields = _fields(next(one for one in fields if one["field"] == field))
        found = {cast("str", one["field"]): _converter(one) for one in fields}
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise InputError(
            f"expected a schema of Kafka Connect beside the payload, got {quoted(schema)}"
        ) from error
    return {name: one for name, one in found.items() if one is not None}


def _fields(schema: JSON) -> "list[dict[str, JSON]]":
    return cast("list[dict[str, JSON]]", cast("dict[str, JSON]", schema)["fields"])


def _converter(field: "Mapping[str, JSON]") -> Converter | None:
    name = field.get("name")
    if name == _DECIMAL:
        parameters = cast("Mapping[str, str]", field["parameters"])
        return Converter(_DECIMAL, int(parameters["scale"]))
    if not isinstance(name, str):
        return None
    known = name in (_VARIABLE, _ISO_DATE, *_TIMES) or name.rpartition(".")[2] in _NO_TIMES
    return Converter(name) if known else None


def _unscaled(text: str | bytes, scale: int) -> Decimal:
    """The decimal of big-endian bytes, in Base64 or, in Avro, as they are."""
    data = text if isinstance(text, bytes) else base64.b64decode(text, validate=True)
    whole = int.from_bytes(data, "big", signed=True)
    return Decimal(whole).scaleb(-scale, _EXACT)
