"""Messages in Avro: as the same rows in JSON, with the types of Avro and Kafka Connect, and wrong ones."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import registry
from gate import draws
from livegnn import Events, InputError
from livegnn.connectors.avro import AvroRecords
from livegnn.connectors.kafka_partitions import Unreachable
from livegnn.connectors.row_messages import RowMessages, parse_change, parse_row
from livegnn.graph import EdgeSchema, Schema
from livegnn.tables import EdgeRows, NodeRows, TableMapping, TableReader
from registry import Registry, message

PAYS = ("user", "pays", "user")
SCHEMA = Schema({"user": 1}, {PAYS: EdgeSchema(weighted=True, timed=True, duplicates="keep")}, text_ids=True)
MAPPING = TableMapping(
    [NodeRows("sender", node_type="user", x=["age"], nulls={"age": 0})],
    [EdgeRows("sender", "receiver", PAYS, weight="amount", time="at", key="id", where={"status": "paid"})],
)
READER = TableReader(MAPPING, SCHEMA, "payments")
ROW = {"id": 7, "sender": "ann", "receiver": "bob", "amount": 2.5, "at": 10, "status": "paid", "age": 31}
FIELDS = {
    "id": "long",
    "sender": "string",
    "receiver": "string",
    "amount": "double",
    "at": "long",
    "status": {"type": "enum", "name": "Status", "symbols": ["paid", "open"]},
    "age": ["null", "int"],
}


def record(name: str, **others: Any) -> dict[str, Any]:
    fields = [{"name": one, "type": kind} for one, kind in {**FIELDS, **others}.items()]
    return {"type": "record", "name": name, "fields": fields}


def envelope(**others: Any) -> dict[str, Any]:
    """As Debezium has it: the second row is a name."""
    fields = [
        {"name": "before", "type": ["null", record("Value", **others)]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": []}},
        {"name": "op", "type": "string"},
    ]
    return {"type": "record", "name": "Envelope", "namespace": "shop.payments", "fields": fields}


@pytest.fixture(scope="module")
def served() -> Iterator[Registry]:
    with registry.served(Registry()) as found:
        yield found


@pytest.fixture
def records(served: Registry) -> AvroRecords:
    served.status = 200
    return AvroRecords({"url": served.url})


def decode(records: AvroRecords, *values: bytes, changes: bool = False) -> list[Events | InputError]:
    return RowMessages(READER, records.parse_change if changes else records.parse_row).decode(values)


ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(0, 2**32 - 1) | st.just(-1),
        "sender": st.sampled_from(["ann", "bob", "ä\u2603"]),
        "receiver": st.sampled_from(["ann", "bob", ""]),
        "amount": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "at": st.integers(0, 2**40),
        "status": st.sampled_from(["paid", "open"]),
        "age": st.none() | st.integers(0, 120),
    }
)


@settings(max_examples=draws(30, 1000))
@given(changes=st.lists(st.tuples(st.sampled_from("crud"), ROWS, ROWS), max_size=6))
def test_avro_means_what_json_means(served: Registry, changes: list[tuple[str, Any, Any]]) -> None:
    served.status = 200
    records = AvroRecords({"url": served.url})
    row, change = record("Row"), envelope()
    numbers = served.add(row), served.add(change)
    for kind, schema, number in (("rows", row, numbers[0]), ("debezium", change, numbers[1])):
        contents: list[Any] = [new for _, _, new in changes]
        if kind == "debezium":
            contents = [
                {
                    "before": old if op in "ud" else None,
                    "after": None if op == "d" else new,
                    "source": {},
                    "op": op,
                }
                for op, old, new in changes
            ]
        read = decode(
            records, *(message(number, schema, one) for one in contents), changes=kind == "debezium"
        )
        plain = RowMessages(READER, parse_row if kind == "rows" else parse_change)
        expected = plain.decode([orjson.dumps(one) for one in contents])
        assert list(map(said, read)) == list(map(said, expected))
    del served.schemas[numbers[0]], served.schemas[numbers[1]]


def said(found: Events | InputError) -> object:
    return str(found) if isinstance(found, InputError) else found


MICROS = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * 10**6
SECONDS = MICROS / 10**6
LONG = {"type": "long", "connect.version": 1}


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize(
    ("column", "kind", "value", "expected"),
    [
        ("at", {"type": "long", "logicalType": "timestamp-micros"}, MICROS, SECONDS),
        (
            "at",
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(2026, 3, 1, 12, tzinfo=UTC),
            SECONDS,
        ),
        ("at", {"type": "int", "logicalType": "date"}, date(2026, 3, 1), SECONDS - 43200),
        ("at", {**LONG, "connect.name": "io.debezium.time.MicroTimestamp"}, MICROS, SECONDS),
        ("at", ["null", {**LONG, "connect.name": "io.debezium.time.Timestamp"}], MICROS // 1000, SECONDS),
        (
            "at",
            {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"},
            "2026-03-01T12:00:00Z",
            SECONDS,
        ),
        (
            "at",
            {
                "type": "long",
                "logicalType": "timestamp-millis",
                "connect.name": "org.apache.kafka.connect.data.Timestamp",
            },
            datetime(2026, 3, 1, 12, tzinfo=UTC),
            SECONDS,
        ),
        (
            "amount",
            {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
            Decimal("12.25"),
            12.25,
        ),
        (
            "amount",
            {
                "type": "record",
                "name": "VariableScaleDecimal",
                "connect.name": "io.debezium.data.VariableScaleDecimal",
                "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
            },
            {"scale": 1, "value": b"\x7d"},
            12.5,
        ),
        ("sender", {"type": "string", "logicalType": "uuid"}, UUID(int=7), str(UUID(int=7))),
        ("sender", "long", 12, "12"),
        (
            "at",
            {**LONG, "connect.name": "io.debezium.time.MicroTime"},
            5,
            "expected points in time, got values of",
        ),
        (
            "at",
            {"type": "int", "logicalType": "time-millis"},
            datetime(2026, 3, 1).time(),
            "column 'at': expected ",
        ),
        ("sender", "bytes", b"ann", "column 'sender': expected "),
    ],
)
def test_types_of_avro_and_of_kafka_connect(
    served: Registry,
    records: AvroRecords,
    changes: bool,
    column: str,
    kind: Any,
    value: Any,
    expected: object,
) -> None:
    row = {**ROW, "sender": "ann", "at": 10, column: value}
    schema = envelope(**{column: kind}) if changes else record("Row", **{column: kind})
    content = {"before": None, "after": row, "source": {}, "op": "c"} if changes else row
    (found,) = decode(records, message(served.add(schema), schema, content), changes=changes)
    if isinstance(found, InputError):
        assert str(expected) in str(found)
        return
    nodes, edges = found.chunks
    assert {"at": edges.time, "amount": edges.weight, "sender": nodes.ids}[column].tolist() == [expected]  # type: ignore[union-attr]


def test_wrong_messages_are_named(served: Registry, records: AvroRecords) -> None:
    schema = record("Row")
    number = served.add(schema)
    whole = message(number, schema, ROW)
    no_schema = served.add({})
    served.schemas[no_schema]["schema"] = "{"
    protobuf = served.add({}, schemaType="PROTOBUF")
    text = served.add("string")
    named = served.add({"type": "record", "name": "A", "fields": [{"name": "a", "type": "Nobody"}]})
    for value, says in (
        (b"{}", "expected Avro with the number of its schema"),
        (b"", "expected Avro with the number of its schema"),
        (b"\x01" + whole[1:], "expected Avro with the number of its schema"),
        (whole[:-3], "expected a record of its schema"),
        (whole[:5], "expected a record of its schema"),
        (whole + b"xy", "one with 2 bytes after it"),
        (b"\0" + (999).to_bytes(4, "big"), "got number 999, which it does not have"),
        (b"\0" + no_schema.to_bytes(4, "big"), f"got number {no_schema}"),
        (b"\0" + protobuf.to_bytes(4, "big"), "one of PROTOBUF"),
        (b"\0" + text.to_bytes(4, "big"), "not one of records"),
        (b"\0" + named.to_bytes(4, "big"), "expected a schema of Avro"),
    ):
        wrong, right = decode(records, value, whole)
        assert says in str(wrong), value
        assert isinstance(right, Events)
        assert len(right) == 2
    served.schemas.clear()


@settings(max_examples=draws(100, 20000))
@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_bad_message(served: Registry, data: bytes) -> None:
    served.status = 200
    number = served.add(envelope())
    records = AvroRecords({"url": served.url})
    (found,) = decode(records, b"\0" + number.to_bytes(4, "big") + data, changes=True)
    assert isinstance(found, (Events, InputError))
    del served.schemas[number]


def test_schemas_that_name_others(served: Registry, records: AvroRecords) -> None:
    """In the registry they are references. A schema is asked for once."""
    value = record("shop.Value", at={**LONG, "connect.name": "io.debezium.time.MicroTimestamp"})
    named = {"type": "record", "name": "shop.Envelope", "fields": []}
    named["fields"] = [
        {"name": "before", "type": ["null", "shop.Value"]},
        {"name": "after", "type": ["null", "shop.Value"]},
        {"name": "op", "type": "string"},
    ]
    reference = {"name": "shop.Value", "subject": "values", "version": 2}
    number = served.add(named, references=[reference])
    inner = {"subject": "values", "version": 2, "id": 1, "schema": orjson.dumps(value).decode()}
    served.subjects["values", 2] = inner
    whole = {**named, "fields": [{"name": "before", "type": ["null", value]}, *named["fields"][1:]]}  # type: ignore[misc]
    content = {"before": None, "after": {**ROW, "at": MICROS}, "op": "c"}
    (first,) = decode(records, message(number, whole, content), changes=True)
    assert isinstance(first, Events)
    assert first.chunks[1].time is not None
    assert first.chunks[1].time.tolist() == [SECONDS]
    asked = served.asked
    assert decode(records, message(number, whole, content), changes=True) == [first]
    assert served.asked == asked


def test_a_registry_that_does_not_answer_is_no_fault_of_the_message(served: Registry) -> None:
    schema = record("Row")
    value = message(served.add(schema), schema, ROW)
    for status in (401, 403, 500, 503):
        served.status = status
        with pytest.raises(Unreachable, match=f"the schema registry at {served.url} answers: .*{status}"):
            decode(AvroRecords({"url": served.url}), value)
    served.status = 200
    served.is_away = True
    with pytest.raises(Unreachable, match="answers: "):
        decode(AvroRecords({"url": served.url}), value)
    served.is_away = False
    served.schemas[99] = {"other": 1}
    with pytest.raises(Unreachable, match="answers without a schema"):
        decode(AvroRecords({"url": served.url}), b"\0\0\0\0" + bytes([99]))
    del served.schemas[99]
    with pytest.raises(Unreachable, match=r"the schema registry at http://127.0.0.1:1 does not answer"):
        decode(AvroRecords({"url": "http://127.0.0.1:1"}), value)
    again = AvroRecords({"url": served.url, "basic.auth.user.info": "ann:secret"})
    assert isinstance(decode(again, value)[0], Events)
    assert served.keys[-1] == "Basic YW5uOnNlY3JldA=="


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "ftp://here"},
        {},
        {"url": "http://here", "ssl.ca.location": "nowhere"},
        {"url": "http://a", "b": "c"},
    ],
)
def test_settings_of_a_registry_are_checked(settings: dict[str, str]) -> None:
    with pytest.raises(InputError, match="expected settings of a schema registry, got: "):
        AvroRecords(settings)
