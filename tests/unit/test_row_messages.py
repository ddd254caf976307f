"""Messages that are rows, or changes of rows in all forms of Debezium, as events by a mapping."""

import base64
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import Events, InputError
from livegnn.connectors import row_messages
from livegnn.connectors.row_messages import UNAVAILABLE, Parse, RowMessages, parse_change, parse_row, to_table
from livegnn.errors import UnknownNodeError
from livegnn.graph import EdgeSchema, Graph, Schema
from livegnn.tables import EdgeRows, NodeRows, TableMapping, TableReader

PAYS = ("user", "pays", "user")
SCHEMA = Schema({"user": 1}, {PAYS: EdgeSchema(weighted=True, timed=True, duplicates="keep")}, text_ids=True)
MAPPING = TableMapping(
    [NodeRows("sender", node_type="user", x=["age"])],
    [EdgeRows("sender", "receiver", PAYS, weight="amount", time="at", key="id", where={"status": "paid"})],
)
ROW = {"id": 7, "sender": "ann", "receiver": "bob", "amount": 2.5, "at": 10, "status": "paid", "age": 31}
ADDED = (
    Events()
    .add_nodes(["ann"], [[31]], node_type="user")
    .add_edges(["ann"], ["bob"], weight=[2.5], time=[10], key=[7], edge_type=PAYS)
)
REMOVED = Events().remove_edges(["ann"], ["bob"], key=[7], edge_type=PAYS)
NAMES = ("io.debezium.time.MicroTimestamp", "org.apache.kafka.connect.data.Decimal")


def messages(parse: Parse) -> RowMessages:
    return RowMessages(TableReader(MAPPING, SCHEMA, "payments"), parse)


def decode(content: object, parse: Parse = parse_change) -> Events | InputError:
    value = content if isinstance(content, bytes) or content is None else json.dumps(content).encode()
    (found,) = messages(parse).decode([value])
    return found


def refusal(content: object, parse: Parse = parse_change) -> str:
    found = decode(content, parse)
    assert isinstance(found, InputError)
    return str(found)


def schema_of(*names: str, **types: dict[str, Any]) -> dict[str, Any]:
    """Of Kafka Connect, of an envelope with rows in the fields `names`; without names, of a row."""
    fields = [{"field": name, "type": "string", **types.get(name, {})} for name in ROW]
    row = {"type": "struct", "fields": fields}
    return {"type": "struct", "fields": [{**row, "field": name} for name in names]} if names else row


def test_a_row_is_added() -> None:
    assert decode(ROW, parse_row) == ADDED
    assert decode({**ROW, "status": "open", "extra": [1]}, parse_row) == Events().add_nodes(
        ["ann"], [[31]], node_type="user"
    )
    assert decode(None, parse_row) == Events()


@pytest.mark.parametrize("with_schema", [False, True])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"before": None, "after": ROW, "op": "c", "source": {}}, ADDED),
        ({"before": None, "after": ROW, "op": "r", "ts_ms": 1}, ADDED),
        ({"after": ROW, "op": "u"}, ADDED),
        ({"before": ROW, "after": {**ROW, "id": 8}, "op": "u"}, "another key"),
        ({"before": ROW, "after": {**ROW, "status": "void"}, "op": "u"}, "no edge any more"),
        ({"before": ROW, "after": {**ROW, "sender": UNAVAILABLE}, "op": "u"}, ADDED),
        ({"before": ROW, "after": None, "op": "d"}, REMOVED),
        ({"op": "m", "after": None, "message": {}}, Events()),
        ({"op": "m", "ts_ms": 1, "source": {}, "message": {}}, Events()),
        (ROW, ADDED),
        ({**ROW, "__op": "u", "__deleted": "false"}, ADDED),
        ({**ROW, "__deleted": "true"}, REMOVED),
        ({**ROW, "__op": "d"}, REMOVED),
    ],
)
def test_each_form_of_debezium(content: dict[str, Any], expected: Any, with_schema: bool) -> None:
    if expected == "another key":
        expected = Events.concatenate([ADDED])
        found = decode(content)
        assert isinstance(found, Events)
        kinds = [(one.kind, None if one.key is None else one.key.tolist()) for one in found.chunks]
        assert kinds == [("add_nodes", None), ("remove_edges", [7]), ("add_edges", [8])]
        return
    if expected == "no edge any more":
        expected = Events.concatenate([Events().add_nodes(["ann"], [[31]], node_type="user"), REMOVED])
    if with_schema:
        schema = schema_of("before", "after") if "op" in content else schema_of()
        content = {"schema": schema, "payload": content}
    assert decode(content) == expected
    spaced = json.dumps(content, indent=1).encode()
    compact = json.dumps(content, separators=(",", ":")).encode()
    assert decode(spaced) == decode(compact) == decode(compact + b"\n") == expected


@pytest.mark.parametrize("others", [[], [None], [{"op": "c", "after": {**ROW, "id": 8}}]])
def test_a_delete_needs_no_time(others: list[Any]) -> None:
    """Of an old row the source may know the keys alone, and a column without a value has no kind."""
    (edge,) = MAPPING.edges
    mapping = TableMapping(edges=[replace(edge, time_unit="ms", where={})])
    reader = RowMessages(TableReader(mapping, SCHEMA, "payments"), parse_change)
    messages = [{"op": "d", "before": {**ROW, "at": None}}, *others]
    found = reader.decode([None if one is None else json.dumps(one).encode() for one in messages])
    assert found[0] == REMOVED
    skips = replace(edge, time_unit="ms", nulls={"at": "skip"})
    reader = RowMessages(TableReader(TableMapping(edges=[skips]), SCHEMA, "payments"), parse_row)
    assert reader.decode([json.dumps({**ROW, "at": None}).encode()]) == [Events()]


WRONG = st.sampled_from(
    [("amount", "NaN"), ("amount", 1e300), ("amount", None), ("at", "infinity"), ("at", None), ("age", "old")]
)
RIGHT = st.tuples(st.sampled_from(["amount", "at", "age"]), st.integers(1, 9))


@settings(max_examples=draws(30, 1000))
@given(
    versions=st.lists(
        st.tuples(st.one_of(RIGHT, WRONG, st.just(("status", "void"))), st.booleans()), min_size=1, max_size=8
    ),
    nodes=st.sampled_from([None, False, True]),
    judged=st.booleans(),
)
def test_a_version_of_a_row_that_is_wrong_keeps_none_of_the_later_ones_out(
    versions: list[tuple[tuple[str, Any], bool]], nodes: bool | None, judged: bool
) -> None:
    """The graph has the last version that can be read, and a message for each of the others. nodes: whether a
    node is removed with its row; None without nodes."""
    where = {"status": "paid", **({"amount": {"at_least": 0.5}} if judged else {})}
    edges = [replace(MAPPING.edges[0], where=where)]
    given = [] if nodes is None else [replace(MAPPING.nodes[0], removes=nodes)]
    mapping = replace(MAPPING, nodes=given, edges=edges)
    graph = Graph(replace(SCHEMA, auto_add=["user"]))
    reader = RowMessages(TableReader(mapping, graph.schema, "payments"), parse_change)
    graph.apply(
        Events()
        .add_nodes(["ann"], [[0]], node_type="user")
        .add_edges(["bob"], ["ann"], edge_type=PAYS, key=[3], time=[1], weight=[1])
    )
    before, edge = None, None
    for (name, value), both in versions:
        after = {**ROW, name: value, **({"status": "void"} if both else {})}
        (found,) = reader.decode([json.dumps({"before": before, "after": after, "op": "u"}).encode()])
        wrong = value in ("NaN", 1e300, None, "infinity") or (nodes is not None and value == "old")
        gives = "void" not in after.values() and not (judged and after["amount"] is None)
        if gives:  # of a row that gives nothing, fewer values are read
            assert isinstance(found, InputError) == wrong, found
        if not isinstance(found, InputError):
            with suppress(UnknownNodeError):  # there is nothing to remove
                graph.apply(found)
            edge = (after["amount"], after["at"]) if gives else None
        assert edges_of(graph) == ([edge] if edge else [])
        assert len(graph.neighbors("ann", direction="in").ids) == 1  # an edge of another table
        before = after
    if edges_of(graph):
        (found,) = reader.decode([json.dumps({"before": before, "after": None, "op": "d"}).encode()])
        assert isinstance(found, Events)
        graph.apply(found)
        assert edges_of(graph) == []


def edges_of(graph: Graph) -> list[tuple[float, float]]:
    """Weights and times of the edges between the two nodes."""
    if not graph.num_edges():
        return []
    near = graph.neighbors("bob", direction="in")
    assert near.weight is not None
    assert near.time is not None
    return list(zip(near.weight.tolist(), near.time.tolist(), strict=True))


def test_tombstones_are_no_events() -> None:
    assert decode(None) == decode({"schema": None, "payload": None}) == Events()


def decimal(unscaled: int) -> str:
    return base64.b64encode(unscaled.to_bytes(12, "big", signed=True)).decode()


def test_decimals_and_times_have_the_types_of_the_schema() -> None:
    at = datetime(2026, 5, 4, 3, 2, 1, 500_000, tzinfo=UTC)
    expected = (
        Events()
        .add_nodes(["ann"], [[31]], node_type="user")
        .add_edges(["ann"], ["bob"], weight=[-2.5], time=[at.timestamp()], key=[7], edge_type=PAYS)
    )
    micros, days = int(at.timestamp() * 1e6), int(at.timestamp() // 86_400)
    amount = {"name": NAMES[1], "type": "bytes", "parameters": {"scale": "4"}}
    variable = {"name": "io.debezium.data.VariableScaleDecimal", "type": "struct"}
    for name, value in (
        ("io.debezium.time.MicroTimestamp", micros),
        ("io.debezium.time.NanoTimestamp", micros * 1000),
        ("io.debezium.time.Timestamp", micros // 1000),
        ("org.apache.kafka.connect.data.Timestamp", micros // 1000),
        ("io.debezium.time.ZonedTimestamp", "2026-05-04T05:02:01.5+02:00"),
        ("io.debezium.time.IsoTimestamp", "2026-05-04T03:02:01.5Z"),
    ):
        schema = schema_of("before", "after", at={"name": name, "type": "int64"}, amount=amount)
        row = {**ROW, "at": value, "amount": decimal(-25_000)}
        assert decode({"schema": schema, "payload": {"op": "c", "after": row}}) == expected
    schema = schema_of(at={"name": "io.debezium.time.Date", "type": "int32"}, amount=variable)
    row = {**ROW, "at": days, "amount": {"scale": 1, "value": decimal(-25)}}
    found = decode({"schema": schema, "payload": row})
    assert isinstance(found, Events)
    (_, edges) = found.chunks
    assert edges.time is not None
    assert edges.time.tolist() == [days * 86_400]
    assert edges.weight is not None
    assert edges.weight.tolist() == [-2.5]
    schema = schema_of(at={"name": "io.debezium.time.IsoDate"})
    found = decode({"schema": schema, "payload": {**ROW, "at": "1960-01-01Z"}})
    assert isinstance(found, Events)
    (_, edges) = found.chunks
    assert edges.time is not None
    assert edges.time.tolist() == [-3653 * 86_400]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "expected a JSON object, got b'{'"),
        (b"\xff", "expected a JSON object"),
        ([ROW], "expected a JSON object"),
        ({"op": "t", "after": None}, "emptied at once"),
        ({"op": "t", "source": {}, "ts_ms": 1}, "emptied at once"),
        ({**ROW, "__op": "t"}, "emptied at once"),
        ({"op": ["c"], "after": ROW}, "expected the operation"),
        ({**ROW, "age": [1, 2]}, "column 'age': expected a list of 1 numbers"),
        (b'{"id": 1, "id": 2}', "expected each field once, got 'id' twice"),
        (b'{"schema":{"fields":[]},"payload":{"id":1,"id":2}}', "expected each field once, got 'id' twice"),
        (b'{"schema":{"fields":[]},"payload":{"id":1}]', "expected a JSON object"),
        ({**ROW, "amount": True}, "column 'amount': expected numbers, got bool"),
        ({"op": "d", "before": {"id": 7}}, "expected the whole old row, got null in"),
        (
            {"schema": schema_of(at={"name": "io.debezium.time.MicroTime"}), "payload": {**ROW, "at": 5}},
            "column 'at': expected points in time, got values of io.debezium.time.MicroTime",
        ),
        ({"op": "d", "before": None}, "set REPLICA IDENTITY FULL"),
        ({"op": "c", "after": [1]}, "expected a row in 'after', got [1]"),
        ({"op": "c", "after": {**ROW, "sender": UNAVAILABLE}}, "column 'sender': expected its value"),
        ({"op": "d", "before": {**dict.fromkeys(ROW), "id": 7}}, "expected the whole old row, got null in"),
        ({"op": "d", "before": {**ROW, "sender": None}}, "column 'sender': expected a value"),
        ({"op": "c", "after": {"id": 7}}, "expected a column 'sender', got 'id'"),
        ({**ROW, "amount": "much"}, "column 'amount': expected"),
        ({**ROW, "amount": {"a": 1}}, "column 'amount': expected"),
        ({**ROW, "id": 2**70}, "column 'id': expected"),
        ({**ROW, "at": None}, "column 'at': expected a value"),
        ({"schema": 3, "payload": ROW}, "expected a schema of Kafka Connect"),
        ({"schema": schema_of("before"), "payload": {"op": "c", "after": ROW}}, "expected a schema of Kafka"),
        ({"schema": schema_of(), "payload": 3}, "expected a row in 'payload', got 3"),
        (
            {"schema": schema_of(amount={"name": NAMES[1], "parameters": {"scale": "2"}}), "payload": ROW},
            "column 'amount': expected decimals of org.apache.kafka.connect.data.Decimal, got one",
        ),
        ({"schema": schema_of(at={"name": NAMES[0]}), "payload": {**ROW, "at": "now"}}, "column 'at': exp"),
    ],
)
def test_wrong_messages_say_what_is_wrong(content: Any, says: str) -> None:
    assert says in refusal(content)
    if isinstance(content, dict):
        assert says in refusal(json.dumps(content, separators=(",", ":")).encode())


def test_a_list_is_not_one_of_several_features() -> None:
    reader = TableReader(TableMapping([NodeRows("id", x=["a", "b"])]), Schema({"node": 2}), "users")
    (found,) = RowMessages(reader, parse_row).decode([b'{"id": 1, "a": 1, "b": [2]}'])
    assert "column 'b': expected numbers, got list" in str(found)


def drawn_message(random: Random) -> bytes | None:
    """Rows, changes, tombstones, and what is none of these, with values of several kinds."""
    row = {
        "id": random.choice([1, 2, 3, "4", None, 2**40, 2**63, 2**70]),
        "sender": random.choice(["ann", "bob", 5, "6", None]),
        "receiver": random.choice(["ann", "cy", 5]),
        "amount": random.choice([1, 2.5, -1e30, "much", 1e-6, True]),
        "at": random.choice([1, 2.5, "2026-01-02T03:04:05Z"]),
        "status": random.choice(["paid", "paid", "open", None]),
        "age": random.choice([1, 1e9, 2.5, True, [1], 2**64]),
    }
    other = {**row, "receiver": random.choice(["ann", "cy"]), "id": random.choice([1, 2])}
    content: object = random.choice(
        [
            row,
            {"op": "u", "before": row, "after": other},
            {"op": "u", "before": None, "after": row},
            {"op": "d", "before": other},
            {"op": "c", "after": row},
            {"schema": schema_of(), "payload": row},
            {"schema": schema_of(at={"name": NAMES[0], "type": "int64"}), "payload": {**row, "at": 5}},
            {"op": "x"},
        ]
    )
    return random.choice([json.dumps(content).encode(), json.dumps(content).encode(), b"{", None])


@settings(max_examples=draws(40, 2000))
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 40))
@example(seed=15237, size=6)  # a number that makes another one's column real
def test_a_message_means_the_same_alone_and_in_a_group(seed: int, size: int) -> None:
    random = Random(seed)
    values = [drawn_message(random) for _ in range(size)]
    reader = messages(parse_change)
    together = reader.decode(values)
    for value, found in zip(values, together, strict=True):
        (alone,) = reader.decode([value])
        assert str(found) == str(alone)
        assert isinstance(alone, InputError) or found == alone


@pytest.mark.parametrize("wrong", ["NaN", -1e300, None])
@pytest.mark.parametrize("corrects", [False, True])
def test_wrong_rows_in_a_group_cost_few_reads(
    wrong: Any, corrects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few wrong rows after changes, or wrong rows before all changes, which correct them."""

    def message(id: int) -> bytes:
        row = {"id": id, "sender": "ann", "receiver": "bob", "at": 1, "status": "paid", "age": 1}
        new = wrong if id % 100 == 7 and not corrects else 1
        changed = {"before": {**row, "amount": wrong if corrects else 2}, "after": {**row, "amount": new}}
        return json.dumps({"op": "u", **changed}).encode()

    rows = 0

    def count(some: Sequence[Any], *others: Any, **named: Any) -> Any:
        nonlocal rows
        rows += len(some)
        return to_table(some, *others, **named)

    monkeypatch.setattr(row_messages, "to_table", count)
    found = messages(parse_change).decode([message(at) for at in range(1000)])
    refused = [] if corrects else list(range(7, 1000, 100))
    assert [at for at, one in enumerate(found) if isinstance(one, InputError)] == refused
    assert rows <= 2 * (3 * 1000 + 10 * 5)  # old and new ones


EDGES_ALONE = TableMapping(edges=MAPPING.edges)
NODES_ALONE = TableMapping(nodes=MAPPING.nodes)


@settings(max_examples=draws(40, 2000))
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 40), right=st.booleans())
def test_joined_messages_are_those_that_are_read_one_by_one(seed: int, size: int, right: bool) -> None:
    random = Random(seed)
    for mapping in (EDGES_ALONE, NODES_ALONE, MAPPING):
        reader = RowMessages(TableReader(mapping, SCHEMA, "payments"), parse_change)
        values = [drawn_message(random) for _ in range(size)]
        if right:
            values = [
                one for one in values if one is not None and isinstance(reader.decode([one])[0], Events)
            ]
        joined = reader.join(values)
        if joined is None:
            continue
        alone = reader.decode(values)
        assert all(isinstance(one, Events) for one in alone)
        assert joined[1] == list(map(len, alone))  # type: ignore[arg-type]
        assert joined[0] == Events.concatenate(alone)  # type: ignore[arg-type]


def test_messages_that_cannot_be_joined() -> None:
    edges, both = (
        RowMessages(TableReader(one, SCHEMA, "payments"), parse_change) for one in (EDGES_ALONE, MAPPING)
    )
    row = json.dumps(ROW).encode()
    unpaid = json.dumps({**ROW, "status": "open"}).encode()
    joined = edges.join([row, unpaid, row])
    assert joined is not None
    assert (len(joined[0]), joined[1]) == (2, [1, 0, 1])
    assert both.join([row, row]) is None
    for other in (
        None,
        b"{",
        json.dumps({**ROW, "sender": None}).encode(),
        json.dumps({**ROW, "sender": 5}).encode(),
        json.dumps({"op": "u", "before": ROW, "after": ROW}).encode(),
        json.dumps({"op": "d", "before": ROW}).encode(),
        json.dumps({"op": "m"}).encode(),
    ):
        assert edges.join([row, other]) is None
