"""Events as JSON lines: exact both ways; a bad line is named with what was expected and what came."""

import json
import re

import numpy as np
import pytest
from events_strategies import event_lists
from hypothesis import given, settings

from livegnn import Events, InputError
from livegnn.events.json_lines import FIELDS


@settings(deadline=None)
@given(event_lists())
def test_round_trip(events: Events) -> None:
    assert Events.from_json_lines(events.to_json_lines()) == Events.concatenate([events])
    assert Events.from_json_lines(events.to_json_lines().encode()) == Events.concatenate([events])


@settings(deadline=None, max_examples=50)
@given(event_lists())
def test_records_are_parsed_lines(events: Events) -> None:
    records = [json.loads(line) for line in events.to_json_lines().split("\n") if line]
    assert Events.from_records(records) == Events.concatenate([events])


def test_all_five_events() -> None:
    events = Events.from_json_lines(
        """
{"event": "add_edge", "src": 1, "dst": 2, "weight": 0.5, "time": 12.0, "edge_type": ["user", "rates", "item"]}
{"event": "add_edge", "src": 2, "dst": 2, "weight": 1, "time": 13, "edge_type": ["user", "rates", "item"]}
{"event": "add_edge", "src": 2, "dst": 3, "edge_attr": [0.5, 1]}
{"event": "add_edge", "src": 3, "dst": 4, "edge_attr": [7]}
{"event": "remove_edge", "src": "a", "dst": "b"}

{"event": "set_features", "id": 3, "x": [1, 2.5]}
{"event": "add_node", "id": 3, "node_type": "item"}
{"event": "remove_node", "id": 3}
"""
    )
    expected = (
        Events()
        .add_edges([1, 2], [2, 2], weight=[0.5, 1], time=[12, 13], edge_type=("user", "rates", "item"))
        .add_edges(2, 3, edge_attr=[0.5, 1])
        .add_edges(3, 4, edge_attr=[7])
        .remove_edges("a", "b")
        .set_features(3, [1, 2.5])
        .add_nodes(3, node_type="item")
        .remove_nodes(3)
    )
    assert events == expected


GOOD = '{"event": "add_edge", "src": 1, "dst": 2}'


@pytest.mark.parametrize(
    ("event", "name"), [(event, name) for event, fields in FIELDS.items() for name in sum(fields, ())]
)
def test_a_field_that_is_null_is_refused(event: str, name: str) -> None:
    """It would be as good as left out: an edge without the weight that its sender did not know."""
    values = {"src": 1, "dst": 2, "id": 3, "x": [1], "edge_attr": [1], "edge_type": ["a", "b", "c"]}
    record = {"event": event} | {
        one: values.get(one, "item" if one == "node_type" else 1) for one in sum(FIELDS[event], ())
    }
    assert len(Events.from_records([record])) == 1
    record[name] = None
    message = f"expected a value for '{name}', got null"
    if name in FIELDS[event][1]:
        message += ": leave the field out where there is none"
    with pytest.raises(InputError, match=re.escape(f"events[0]: {message}")):
        Events.from_records([record])
    with pytest.raises(InputError, match=re.escape(f"line 2: {message}")):
        Events.from_json_lines(GOOD + "\n" + json.dumps(record))


@pytest.mark.parametrize(
    ("line", "expected", "came"),
    [
        ("{", "expected a JSON object", "'{'"),
        ("nonsense", "expected a JSON object", "nonsense"),
        ("[1, 2]", "expected a JSON object", "[1, 2]"),
        ("null", "expected a JSON object", "None"),
        ("{}", "expected 'event' to be one of add_edge", "None"),
        ('{"event": "add_edges", "src": 1, "dst": 2}', "expected 'event' to be one of", "'add_edges'"),
        ('{"event": ["add_edge"]}', "expected 'event' to be one of", "['add_edge']"),
        ('{"event": "add_edge", "src": 1}', "expected a field 'dst'", "'src': 1"),
        ('{"event": "add_edge", "src": null, "dst": 1}', "expected a value for 'src'", "null"),
        ('{"event": null, "src": 2, "dst": 1}', "expected 'event' to be one of", "None"),
        (
            '{"event": "add_edge", "src": 1, "dst": 2, "wieght": 1}',
            "has the fields src, dst, weight",
            "did you mean 'weight'?",
        ),
        (
            '{"event": "remove_edge", "src": 1, "dst": 2, "weight": 1}',
            "remove_edge has the fields",
            "'weight'",
        ),
        ('{"event": "add_edge", "src": -1, "dst": 2}', "expected 'src' to be an integer from 0", "-1"),
        ('{"event": "add_edge", "src": 1.0, "dst": 2}', "expected 'src' to be an integer", "1.0"),
        ('{"event": "add_edge", "src": true, "dst": 2}', "expected 'src' to be an integer", "True"),
        (
            '{"event": "add_edge", "src": 1, "dst": 9223372036854775808}',
            "expected 'dst' to be an integer",
            "9223372036854775808",
        ),
        ('{"event": "add_edge", "src": "a\\u0000", "dst": 2}', "expected 'src' to be an integer", "\\x00"),
        (
            '{"event": "add_edge", "src": 1, "dst": 2, "weight": "1"}',
            "expected 'weight' to be a finite number",
            "'1'",
        ),
        (
            '{"event": "add_edge", "src": 1, "dst": 2, "weight": 1e39}',
            "expected 'weight' to be a finite number",
            "1e+39",
        ),
        ('{"event": "add_edge", "src": 1, "dst": 2, "weight": NaN}', "expected a JSON object", "NaN"),
        (
            '{"event": "add_edge", "src": 1, "dst": 2, "time": [1]}',
            "expected 'time' to be a finite number",
            "[1]",
        ),
        (
            '{"event": "add_edge", "src": 1, "dst": 2, "edge_type": "to"}',
            "expected 'edge_type' to be [source",
            "'to'",
        ),
        (
            '{"event": "add_edge", "src": 1, "dst": 2, "edge_type": ["a", "b"]}',
            "expected 'edge_type'",
            "['a', 'b']",
        ),
        ('{"event": "set_features", "id": 1}', "expected a field 'x'", "'id': 1"),
        ('{"event": "set_features", "id": 1, "x": 3}', "expected 'x' to be a list of numbers", "3"),
        (
            '{"event": "set_features", "id": 1, "x": [1, null]}',
            "expected 'x' to be a list of numbers",
            "None",
        ),
        ('{"event": "set_features", "id": 1, "x": [true]}', "expected 'x' to be a list of numbers", "True"),
        ('{"event": "set_features", "id": 1, "x": [1e39]}', "numbers that float32 can hold", "1e+39"),
        (
            '{"event": "add_edge", "src": 1, "dst": 2, "edge_attr": [true]}',
            "expected 'edge_attr' to be a list",
            "True",
        ),
        ('{"event": "add_edge", "src": 1, "dst": 2, "x": [1]}', "add_edge has the fields", "'x'"),
        ('{"event": "add_node", "id": 1, "node_type": 2}', "expected 'node_type' to be text", "2"),
        ('{"event": "remove_node", "id": 1, "id": 2}', "expected each field once", "'id' twice"),
        ('{"event": "add_edge", "src": "a:b", "src": "c", "dst": ":"}', "each field once", "'src' twice"),
        ('{"event": "remove_node", "id": [1]}', "expected 'id' to be an integer", "[1]"),
    ],
)
def test_a_malformed_line_is_named(line: str, expected: str, came: str) -> None:
    with pytest.raises(InputError) as error:
        Events.from_json_lines(f"{GOOD}\n\n{line}\n{GOOD}")
    message = str(error.value)
    assert message.startswith("line 3: ")
    assert expected in message
    assert came in message


def test_text_that_is_not_utf8_is_named() -> None:
    with pytest.raises(InputError, match=r"^line 2: expected a JSON object"):
        Events.from_json_lines(f"{GOOD}\n".encode() + b'{"event": "remove_node", "id": "\xff"}')
    with pytest.raises(InputError, match="JSON lines must be text or bytes, got 5"):
        Events.from_json_lines(5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="valid Unicode"):
        Events.from_json_lines('{"event": "remove_node", "id": "\ud800"}')


def test_a_bad_record_is_named_by_its_position() -> None:
    with pytest.raises(InputError, match=r"^events\[1\]: expected 'event' to be one of"):
        Events.from_records([{"event": "remove_node", "id": 1}, {"event": "explode"}])
    with pytest.raises(InputError, match="events must be a list of objects"):
        Events.from_records("add_edge")


def test_values_that_json_cannot_hold_are_refused() -> None:
    with pytest.raises(InputError, match="weight must be finite"):
        Events().add_edges(1, 2, weight=float("nan")).to_json_lines()
    with pytest.raises(InputError, match="valid Unicode"):
        Events().add_nodes("\ud800").to_json_lines()


def test_records_may_have_texts_of_numpy() -> None:
    """As the ids of neighbours are."""
    ids = np.array(["ann", "bob"])
    record = {"event": "add_edge", "src": ids[0], "dst": ids[1]}
    assert Events.from_records([record]) == Events().add_edges(["ann"], ["bob"])
