"""The builder: what it accepts, what it refuses, and that a refusal leaves it as it was."""

from collections.abc import Callable

import numpy as np
import pytest
from events_strategies import event_lists
from hypothesis import given, settings

from livegnn import Events, InputError


def test_each_call_appends_one_chunk_and_returns_the_builder() -> None:
    events = Events()
    returned = (
        events.add_edges([1, 2], [3, 4], weight=[0.5, 2], time=[1, 2])
        .remove_edges(1, 3)
        .set_features([1], [[1.0, 2.0]])
        .add_nodes(["a", "b"])
        .remove_nodes(7, node_type="item")
    )
    assert returned is events
    assert len(events) == 7
    assert [chunk.kind for chunk in events.chunks] == [
        "add_edges",
        "remove_edges",
        "set_features",
        "add_nodes",
        "remove_nodes",
    ]
    edges = events.chunks[0]
    assert edges.type == ("node", "to", "node")
    assert edges.ids.dtype == np.int64
    assert edges.weight is not None
    assert edges.weight.dtype == np.float32
    assert edges.time is not None
    assert edges.time.dtype == np.float64
    assert events.chunks[2].x is not None
    assert events.chunks[2].x.shape == (1, 2)
    assert events.chunks[3].ids.dtype.kind == "U"
    assert events.chunks[4].type == "item"


def test_scalars_are_one_event() -> None:
    events = (
        Events().add_edges(1, "b", weight=0.5, time=3).set_features("b", [1, 2, 3]).add_nodes(np.int32(4))
    )
    assert len(events) == 3
    features = Events().add_edges(1, 2, edge_attr=[1, 2, 3]).chunks[0].x
    assert features is not None
    assert features.tolist() == [[1, 2, 3]]
    x = events.chunks[1].x
    assert x is not None
    assert x.tolist() == [[1, 2, 3]]
    assert events.chunks[2].ids.tolist() == [4]
    src, dst = np.array([5, 6])
    edge = Events().add_edges(src, dst, edge_attr=np.ones(2)).chunks[0]
    assert edge.dst is not None
    assert [*edge.ids.tolist(), *edge.dst.tolist()] == [5, 6]
    with pytest.raises(InputError, match="from 0 to 2\\^63 - 1, got -5"):
        Events().add_edges(-src, dst)


def test_arrays_of_the_right_form_are_not_copied() -> None:
    src, dst, weight = np.array([1, 2]), np.array([2, 3]), np.ones(2, dtype=np.float32)
    chunk = Events().add_edges(src, dst, weight=weight).chunks[0]
    assert chunk.ids is src
    assert chunk.dst is dst
    assert chunk.weight is weight


def test_columns_become_contiguous() -> None:
    ids = np.arange(6)[::2]
    x = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
    chunk = Events().set_features(ids, x).chunks[0]
    assert chunk.ids.flags.c_contiguous
    assert chunk.x is not None
    assert chunk.x.flags.c_contiguous
    assert chunk.x.tolist() == x.tolist()


def test_empty_arrays_are_no_events() -> None:
    events = Events().add_edges([], []).remove_nodes(np.empty(0, dtype=np.int64))
    assert len(events) == 0
    assert events.chunks == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.add_edges([1.0], [2]), "integers below 2^63 or text, got float64"),
        (lambda e: e.add_edges(1, 2.5), "integers below 2^63 or text, got float64"),
        (lambda e: e.add_edges([True], [2]), "got booleans"),
        (lambda e: e.add_edges(True, 2), "got bool"),
        (lambda e: e.add_edges(np.array([True]), [2]), "got bool"),
        (lambda e: e.add_edges([1, -2], [3, 4]), "src must be ids from 0 to 2^63 - 1, got -2 at position 1"),
        (lambda e: e.add_edges(1, -4), "dst must be ids from 0 to 2^63 - 1, got -4"),
        (lambda e: e.add_edges(2**63, 1), "got 9223372036854775808"),
        (lambda e: e.add_edges([2**70], [1]), "src must be integers below 2^63"),
        (lambda e: e.add_edges(np.array([2**63], dtype=np.uint64), [1]), "got 9223372036854775808"),
        (lambda e: e.add_edges([1, "a"], [1, 2]), "got a mixture"),
        (lambda e: e.add_edges([None], [1]), "got NoneType"),
        (lambda e: e.add_edges([[1]], [[2]]), "one dimension, got shape (1, 1)"),
        (lambda e: e.add_edges([[1], [2, 3]], [1, 2]), "src must be an array"),
        (lambda e: e.add_edges(["a\0"], [1]), "without NUL"),
        (lambda e: e.add_edges("a\0", 1), "without NUL"),
        (lambda e: e.add_edges([1, 2], [3]), "of the same length, got 2 and 1"),
        (lambda e: e.remove_edges([1, 2], 3), "of the same length, got 2 and 1"),
        (lambda e: e.add_edges([1, 2], [3, 4], weight=[1]), "weight must have one value for each of the 2"),
        (lambda e: e.add_edges([1], [3], weight=[[1]]), "got shape (1, 1)"),
        (lambda e: e.add_edges([1], [3], weight=["heavy"]), "weight must be numbers, got <U5"),
        (
            lambda e: e.add_edges([1, 2], [3, 4], edge_attr=[[1]]),
            "edge_attr must be of shape (2, width), a row",
        ),
        (lambda e: e.add_edges([1], 3, edge_attr=[1]), "a row for each edge, got shape (1,)"),
        (lambda e: e.add_edges(1, 3, edge_attr=["a"]), "edge_attr must be numbers, got <U1"),
        (lambda e: e.add_edges([1], [3], time=[1j]), "time must be numbers, got complex128"),
        (lambda e: e.add_edges([1], [3], time=[True]), "time must be numbers, got bool"),
        (lambda e: e.add_edges(1, 2, edge_type=("a", "b")), "got ('a', 'b')"),
        (lambda e: e.remove_edges(1, 2, edge_type="to"), "got 'to'"),
        (
            lambda e: e.set_features([1, 2], [[1.0]]),
            "x must be of shape (2, width), a row for each id, got shape (1, 1)",
        ),
        (lambda e: e.set_features([1], [1.0]), "got shape (1,)"),
        (lambda e: e.set_features([1, 2], [[1.0], [1.0, 2.0]]), "x must be an array of numbers"),
        (lambda e: e.add_nodes([1], [["red"]]), "x must be numbers"),
        (lambda e: e.remove_nodes([-1]), "got -1 at position 0"),
        (lambda e: e.add_nodes([1], node_type=3), "node_type must be text, got 3"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(call: Callable[[Events], Events], message: str) -> None:
    events = Events().add_edges(1, 2)
    with pytest.raises(InputError) as error:
        call(events)
    assert message in str(error.value)
    assert events == Events().add_edges(1, 2)
    assert len(events) == 1


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (
            Events().add_edges([1, 2], [3, 4], weight=[1, np.nan]),
            "weight must be finite, got nan in event 1 (edge 2 -> 4 of type ('node', 'to', 'node'))",
        ),
        (
            Events().add_nodes(9).add_edges(1, 2, time=np.inf),
            "time must be finite, got inf in event 1 (edge 1 -> 2 of type ('node', 'to', 'node'))",
        ),
        (
            Events().set_features(["a", "b"], [[0, 1], [1, -np.inf]]),
            "x must be finite, got -inf in column 1 in event 1 (node 'b' of type 'node')",
        ),
        (
            Events().add_edges([1, 5], [2, 6], edge_attr=[[0, 1], [np.nan, 1]]),
            (
                "edge_attr must be finite, got nan in column 0 in event 1 (edge 5 -> 6 of type "
                "('node', 'to', 'node'))"
            ),
        ),
        (Events().add_edges(1, 2, weight=1e39), "weight must be finite, got inf"),
    ],
)
def test_check_finds_values_that_cannot_be_stored(events: Events, message: str) -> None:
    with pytest.raises(InputError) as error:
        events.check()
    assert message in str(error.value)


def test_check_accepts_good_values() -> None:
    Events().add_edges(["a"], [1], weight=[-0.0], time=[1e300]).set_features(1, [3.4e38]).check()


def test_concatenate_joins_neighbours_of_the_same_columns_only() -> None:
    parts = [
        Events().add_edges(1, 2),
        Events().add_edges(2, 3).add_edges(3, 4, weight=1),
        Events(),
        Events().add_edges("a", "b", weight=2),
        Events().set_features(1, [1, 2]).set_features(2, [1]),
    ]
    joined = Events.concatenate(parts)
    assert joined == Events().add_edges([1, 2], [2, 3]).add_edges(3, 4, weight=1).add_edges(
        "a", "b", weight=2
    ).set_features(1, [1, 2]).set_features(2, [1])
    assert len(joined) == 6


@settings(deadline=None, max_examples=50)
@given(event_lists(), event_lists())
def test_concatenate_keeps_every_event_in_order(a: Events, b: Events) -> None:
    joined = Events.concatenate([a, b])
    assert len(joined) == len(a) + len(b)
    assert joined.to_json_lines() == a.to_json_lines() + b.to_json_lines()


def test_equality_is_bit_for_bit() -> None:
    assert Events().add_edges(1, 2, weight=np.nan) == Events().add_edges(1, 2, weight=np.nan)
    assert Events().add_edges(1, 2, weight=0.0) != Events().add_edges(1, 2, weight=-0.0)
    assert Events().add_edges(1, 2) != Events().add_edges("1", "2")
    assert Events().add_edges(1, 2) != Events().remove_edges(1, 2)
    assert Events().add_nodes(["a"]) == Events().add_nodes(np.array(["a"], dtype="U9"))
    assert Events() != []


@pytest.mark.parametrize("size", [1, 3, 4, 100])
def test_parts_are_the_same_events_in_order(size):
    events = (
        Events()
        .add_nodes([1, 2, 3, 4], np.arange(8).reshape(4, 2))
        .add_edges(
            [1, 2, 3, 4, 1], [2, 3, 4, 1, 3], weight=np.arange(5), time=np.arange(5), edge_attr=np.eye(5)
        )
        .remove_edges([1, 2], [2, 3])
    )
    parts = list(events.parts(size))
    assert max(map(len, parts)) <= size
    assert Events.concatenate(parts) == events
    with pytest.raises(InputError, match="size, a number of events, must be an integer of at least 1, got 0"):
        list(events.parts(0))
    with pytest.raises(InputError, match="expected Events, got dict: give a list of them"):
        Events.concatenate([{}])
