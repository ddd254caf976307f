"""Messages in Avro, as Confluent's serializer writes them: a zero byte, the number of a schema, and a record.

The schemas are those of a registry, by Confluent's client; records are read by fastavro. Records may have
the logical types of Avro, and the types of Kafka Connect and Debezium, which Kafka Connect's converter
writes as the property connect.name.
"""

import io
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

import fastavro
import orjson
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from fastavro.schema import SchemaParseException, UnknownType

from livegnn.connectors.connect_values import Converter, converters_of
from livegnn.connectors.kafka_partitions import Unreachable
from livegnn.connectors.row_messages import Converters, Row, RowChange, added_row, row_change
from livegnn.errors import InputError
from livegnn.types import JSON
from livegnn.wording import quoted

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema as RegisteredSchema

_MAGIC: Final = 0
_HEAD: Final = 5  # bytes: the zero and the number
_SECONDS: Final = 10  # for an answer of the registry
_NOT_FOUND: Final = (40401, 40402, 40403)
"""The registry's own codes: of a subject, a version and a schema. A proxy's 404 has none."""
_AVRO: Final = "AVRO"
_SCHEMAS: Final = 256  # that are kept
_Answer = TypeVar("_Answer")
_Named: TypeAlias = dict[str, dict[str, JSON]]
"""Schemas by their full names."""


class AvroRecords:
    """Reads records. registry: settings of `SchemaRegistryClient`, `url` among them.

    Raises InputError for wrong settings. Thread safety: one thread at a time.
    """

    def __init__(self, registry: Mapping[str, str]) -> None:
        self._where = registry.get("url", "")
        try:
            # The source asks again, and says what it waits for.
            self._client = SchemaRegistryClient({"timeout": _SECONDS, "max.retries": 0, **registry})
        except (ValueError, TypeError, OSError) as error:
            raise InputError(f"expected settings of a schema registry, got: {error}") from error
        self._schemas: dict[int, _Schema] = {}

    def parse_row(self, value: bytes) -> RowChange:
        """A message that is a row. Raises as `parse_change`."""
        return added_row(*self._split(value))

    def parse_change(self, value: bytes) -> RowChange | None:
        """A message of Debezium.

        Raises InputError for another message, and for a schema that the registry does not have; Unreachable
        if it does not answer.
        """
        return row_change(*self._split(value))

    def _split(self, value: bytes) -> tuple[Row, Converters]:
        """The record in a message, and the types of its columns that Avro has no name for."""
        if len(value) < _HEAD or value[0] != _MAGIC:
            raise InputError(
                f"expected Avro with the number of its schema, as Confluent's serializer writes it, got "
                f"{quoted(value)}"
            )
        number = int.from_bytes(value[1:_HEAD], "big")
        schema = self._schemas.get(number)
        if schema is None:
            if len(self._schemas) >= _SCHEMAS:
                self._schemas.clear()
            schema = self._schemas[number] = self._fetch(number)
        return schema.read(value), schema.converters

    def _fetch(self, number: int) -> "_Schema":
        found = self._ask(number, partial(self._client.get_schema, number))
        if not isinstance(found.schema_str, str):
            raise Unreachable(f"the schema registry at {self._where} answers without a schema")
        if found.schema_type not in (None, _AVRO):
            raise InputError(f"expected a schema of Avro, got number {number}, one of {found.schema_type}")
        named: _Named = {}
        try:
            self._add_references(number, found, named)
            return _Schema(orjson.loads(found.schema_str or ""), named)
        except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError) as error:
            raise InputError(f"expected a schema of Avro, got number {number}: {error}") from error

    def _add_references(self, number: int, schema: "RegisteredSchema", named: "_Named") -> None:
        """Reads the schemas that a schema names, and those that they name, into `named`."""
        for one in schema.references or ():
            ask = partial(self._client.get_version, one.subject or "", one.version or "latest")
            registered = self._ask(number, ask)
            self._add_references(number, registered.schema, named)
            fastavro.parse_schema(orjson.loads(registered.schema.schema_str or ""), named_schemas=named)

    def _ask(self, number: int, question: Callable[[], _Answer]) -> _Answer:
        try:
            return question()
        except SchemaRegistryError as error:
            if error.error_code in _NOT_FOUND:
                raise InputError(
                    f"expected a schema of the registry at {self._where}, got number {number}, which it does "
                    "not have"
                ) from error
            raise Unreachable(f"the schema registry at {self._where} answers: {error}") from error
        except Exception as error:  # of whatever HTTP client the registry's client has
            raise Unreachable(f"the schema registry at {self._where} does not answer: {error}") from error


class _Schema:
    """A schema, and how to read its records. named: the schemas that it may name."""

    def __init__(self, written: JSON, named: "_Named") -> None:
        if not isinstance(written, dict) or written.get("type") != "record":
            raise TypeError("it is not one of records")
        self._parsed = cast("dict[str, JSON]", fastavro.parse_schema(written, named_schemas=named))
        self._named = named
        self._found: dict[str | None, Mapping[str, Converter]] = {}

    def read(self, value: bytes) -> Row:
        """The record in a message."""
        stream = io.BytesIO(value)
        stream.seek(_HEAD)
        try:
            record = fastavro.schemaless_reader(stream, self._parsed)
        except Exception as error:  # a decoder of foreign bytes fails in many ways
            raise InputError(
                f"expected a record of its schema, got {quoted(value)}: {type(error).__name__}: {error}"
            ) from error
        if left := len(value) - stream.tell():
            raise InputError(f"expected a record of its schema, got one with {left} bytes after it")
        return cast("Row", record)

    def converters(self, field: str | None) -> Mapping[str, Converter]:
        """As `connect_values.converters_of`."""
        if field not in self._found:
            fields = self._fields(self._parsed)
            if field is not None:
                row = next((one["type"] for one in fields if one["name"] == field), None)
                fields = self._fields(_given(row))
            self._found[field] = converters_of({"fields": [_connect(one) for one in fields]}, None)
        return self._found[field]

    def _fields(self, kind: JSON) -> "list[dict[str, JSON]]":
        """Those of a record, which may be named; none of another kind."""
        record = self._named.get(kind, kind) if isinstance(kind, str) else kind
        found = record.get("fields", []) if isinstance(record, dict) else []
        return cast("list[dict[str, JSON]]", found)


def _given(kind: JSON) -> JSON:
    """The kind of a value that is not null."""
    return next((one for one in kind if one != "null"), None) if isinstance(kind, list) else kind


def _connect(field: "Mapping[str, JSON]") -> "dict[str, JSON]":
    """A field as Kafka Connect's JSON has it. fastavro converts what Avro itself has a logical type for."""
    kind = _given(field["type"])
    named = isinstance(kind, dict) and "logicalType" not in kind
    return {
        "field": field["name"],
        "name": cast("dict[str, JSON]", kind).get("connect.name") if named else None,
    }
