"""Entries from a stream that delivers again: each is stored once, and the log says where to go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livegnn import Events, Graph, InputError
from livegnn.log import Appended, BadMessage, Batch, Origin
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime

ONE = Events().add_nodes(1)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "log.db")
    yield log
    log.close()


def test_what_is_delivered_again_is_stored_once(log: SqliteLog) -> None:
    two = Events().add_nodes([2, 3])
    origins = [
        Origin("a", 0, 5),
        Origin("a", 1, 5),
        Origin("a", 0, 5),
        None,
        Origin("a", 0, 9),
        Origin("b", 0, 0),
    ]
    assert log.position("a", 0) is None
    assert list(log.append_all([ONE, two, ONE, two, ONE, ONE], origins=origins)) == [
        Appended(1, 1),
        Appended(3, 2),
        Appended(1, 1, again=True),
        Appended(5, 2),
        Appended(6, 1),
        Appended(7, 1),
    ]
    for again in range(2):
        assert [log.position(*place) for place in (("a", 0), ("a", 1), ("b", 0), ("b", 1))] == [9, 5, 0, None]
        assert list(
            log.append_all([ONE] * 3, origins=[Origin("a", 0, 4), Origin("a", 0, 9), Origin("b", 0, 0)])
        ) == [
            Appended(6, 1, again=True),
            Appended(6, 1, again=True),
            Appended(7, 1, again=True),
        ]
        assert log.last_seq() == 7
        if not again:
            log.close()
            log = SqliteLog(log.path)
    log.close()


def test_an_entry_without_events_or_with_a_known_key_counts(log: SqliteLog) -> None:
    assert log.append(ONE, key="x") == 1
    assert list(log.append_all([Events()], origins=[Origin("a", 0, 3)])) == [Appended(1, 0)]
    assert log.position("a", 0) == 3
    assert list(log.append_all([ONE], ["x"], [Origin("a", 0, 4)])) == [Appended(1, 1, again=True)]
    assert log.position("a", 0) == 4
    (refused,) = log.append_all([Events().add_nodes(1, node_type="\ud800")], origins=[Origin("a", 0, 5)])
    assert isinstance(refused, InputError)
    assert log.position("a", 0) == 4
    assert log.last_seq() == 1


@pytest.mark.parametrize(
    "origin",
    [
        ("a", 0),
        ("", 0, 0),
        ("a", -1, 0),
        ("a", 0, -1),
        ("a", 0, 2**63),
        ("a", 0, 1.0),
        ("a", 0, 1, "text"),
        ("a", 0, 1, b"", 2),
        ("a\n", 0, 0),
        "a00",
        3,
        True,
    ],
)
def test_what_is_no_origin_is_refused(log: SqliteLog, origin: Origin) -> None:
    first, wrong = log.append_all([ONE, ONE], origins=[None, origin])
    assert first == Appended(1, 1)
    assert "an origin must be (source, partition, offset)" in str(wrong)


def test_positions_outlive_a_trim(log: SqliteLog) -> None:
    for offset in range(5):
        log.append_all([ONE], origins=[Origin("a", 0, offset)])
    log.record_batch(Batch(0, 5))
    assert log.trim(5) == 4
    assert log.position("a", 0) == 4
    assert list(log.append_all([ONE], origins=[Origin("a", 0, 2)])) == [Appended(5, 1, again=True)]


@given(st.lists(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 6)), max_size=6), max_size=6))
def test_any_deliveries_are_as_from_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[tuple[int, int]]]
) -> None:
    log = SqliteLog(tmp_path_factory.mktemp("log") / "log.db")
    reached: dict[int, int] = {}
    stored = 0
    for group in groups:
        wanted = []
        for partition, offset in group:
            wanted.append(offset <= reached.get(partition, -1))
            reached[partition] = max(offset, reached.get(partition, -1))
            stored += not wanted[-1]
        outcomes = log.append_all([ONE] * len(group), origins=[Origin("a", *one) for one in group])
        assert [outcome.again for outcome in outcomes if isinstance(outcome, Appended)] == wanted
    assert log.last_seq() == stored
    assert {partition: log.position("a", partition) for partition in reached} == reached
    log.close()


def test_what_cannot_be_stored_is_kept_with_its_payload_and_counts(log: SqliteLog) -> None:
    broken, torn = InputError("no JSON"), Events().add_nodes(1, node_type="\ud800")
    entries = [ONE, broken, torn, ONE, broken]
    origins = [Origin("a", 0, offset, b"x" * 400 * offset) for offset in range(3, 8)]
    kept = [
        BadMessage(1, "a", 0, 4, "no JSON", b"x" * 1024, 1600),
        BadMessage(2, "a", 0, 5, "a type must be valid Unicode, got '\\ud800'", b"x" * 1024, 2000),
        BadMessage(3, "a", 0, 7, "no JSON", b"x" * 1024, 2800),
    ]
    outcomes = log.append_all(entries, origins=origins)
    assert [type(one) for one in outcomes] == [Appended, InputError, InputError, Appended, InputError]
    for _ in range(2):
        assert log.append_all(entries, origins=origins) == [
            Appended(2, size, again=True) for size in (1, 0, 1, 1, 0)
        ]
        listed = log.bad_messages()
        assert [one._replace(reason="") for one in listed] == [one._replace(reason="") for one in kept]
        assert [one.reason for one in listed][::2] == ["no JSON", "no JSON"]
        assert "Unicode" in listed[1].reason or "ud800" in listed[1].reason
        assert log.bad_messages(1, most=1) == listed[1:2]
        assert log.position("a", 0) == 7
        log.close()
        log = SqliteLog(log.path)
    log.close()


def test_what_cannot_be_read_is_kept_only_where_its_payload_is_given(log: SqliteLog) -> None:
    error = InputError("no JSON")
    outcomes = log.append_all([error, error, ONE], origins=[None, Origin("a", 0, 1), None])
    assert list(outcomes) == [error, error, Appended(1, 1)]
    assert (log.position("a", 0), list(log.bad_messages())) == (None, [])


def test_a_runtime_keeps_what_it_refuses_itself(log: SqliteLog) -> None:
    runtime = Runtime(log, Graph())
    wrong = Events().add_nodes("text")
    entries = [ONE, InputError("no JSON"), wrong, wrong, ONE]
    origins = [
        Origin("a", 0, 1, b"1"),
        Origin("a", 0, 2, b"2"),
        Origin("a", 0, 3, b"3"),
        Origin("a", 1, 4),
        None,
    ]
    first, *refused, last = runtime.append_all(entries, None, origins)
    assert (first, last) == (Appended(1, 1), Appended(2, 1))
    assert all(isinstance(one, InputError) for one in refused)
    assert [one[:4] + one[5:] for one in log.bad_messages()] == [
        (1, "a", 0, 2, b"2", 1),
        (2, "a", 0, 3, b"3", 1),
    ]
    assert "integers" in log.bad_messages()[1].reason
    assert (log.position("a", 0), log.position("a", 1)) == (3, None)
    runtime.stop()


def test_a_runtime_passes_them_on(log: SqliteLog) -> None:
    """And what it refuses by itself does not move the others."""
    runtime = Runtime(log, Graph())
    wrong = Events().add_nodes("text")
    outcomes = runtime.append_all([wrong, ONE, ONE], None, [Origin("a", 0, n) for n in (1, 2, 2)])
    assert isinstance(outcomes[0], InputError)
    assert list(outcomes[1:]) == [Appended(1, 1), Appended(1, 1, again=True)]
    assert log.position("a", 0) == 2
    with pytest.raises(InputError, match="origins must be None or a list of 1, one for each entry"):
        runtime.append_all([ONE], None, [])
    runtime.stop()
