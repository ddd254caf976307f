"""Whatever comes as an argument of a log: a call works, or says in the project's own words what is wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from livegnn import Events, InputError
from livegnn.errors import LiveGNNError
from livegnn.log import Batch, Origin
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.reader import SqliteReader
from livegnn.log.sqlite.tail import SqliteTail

NONSENSE: list[Any] = [
    None, "x", "\ud800", "a\0b", "", b"x", 3, -1, 1.5, float("nan"), True, 2**31, 2**63, 2**64, -(2**63),
    [], [[]], [None], [5], {}, {1}, {"a": 1}, {"\ud800": "a"}, {"a": "\ud800"}, object(), range(3),
    iter([1]), np.array([1, 2]), np.float32(1), ["\ud800"], [Events(), 5], [("a", 1, 2)], [("\ud800", 1, 2)],
]  # fmt: skip
ONE = Events().add_nodes(1)
CALLS: dict[str, Callable[[SqliteLog, Any], object]] = {
    "append": lambda log, it: log.append(it),
    "append, key": lambda log, it: log.append(ONE, key=it),
    "append_all": lambda log, it: log.append_all(it),
    "append_all, one": lambda log, it: log.append_all([ONE, it]),
    "append_all, keys": lambda log, it: log.append_all([ONE], it),
    "append_all, origins": lambda log, it: log.append_all([ONE], None, it),
    "append_all, origin": lambda log, it: log.append_all([ONE], None, [Origin(it, it, it, it)]),
    "position": lambda log, it: log.position(it, 0),
    "position, partition": lambda log, it: log.position("a", it),
    "bind": lambda log, it: log.bind(it),
    "bind, value": lambda log, it: log.bind({"a": it}),
    "check_bound": lambda log, it: log.check_bound(it),
    "entries": lambda log, it: log.entries(it),
    "entries, up_to": lambda log, it: log.entries(0, up_to=it),
    "entries, max_events": lambda log, it: log.entries(0, max_events=it),
    "entry": lambda log, it: log.entry(it),
    "batches": lambda log, it: log.batches(it),
    "batches, most": lambda log, it: log.batches(0, most=it),
    "rejections": lambda log, it: log.rejections(it),
    "rejections, up_to": lambda log, it: log.rejections(0, up_to=it),
    "bad_messages": lambda log, it: log.bad_messages(it),
    "bad_messages, most": lambda log, it: log.bad_messages(0, most=it),
    "digest": lambda log, it: log.digest(it),
    "trim": lambda log, it: log.trim(it),
    "check_begin": lambda log, it: log.check_begin(it),
    "SqliteLog": lambda log, it: SqliteLog(it if not isinstance(it, str) else it and log.path.parent / it),
    "SqliteReader": lambda log, it: SqliteReader(it),
    "SqliteTail": lambda log, it: SqliteTail(log.path, it).close(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_works_or_says_what_is_wrong(name: str, tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "events.db")
    log.append(ONE)
    log.record_batch(Batch(0, 1))
    for given in NONSENSE:
        before = log.last_seq()
        try:
            CALLS[name](log, given)
        except LiveGNNError:
            assert log.last_seq() == before
        except Exception as error:
            raise AssertionError(f"{name} of {given!r} raises {type(error).__name__}: {error}") from error
    assert [entry.seq for entry in log.entries(0)] == list(range(1, log.last_seq() + 1))
    log.close()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("append", None),
        ("append_all, one", 5),
        ("append_all, keys", ["a", "b"]),
        ("append_all, keys", "a"),
        ("append_all, origins", []),
        ("bind", {"a": "\ud800"}),
        ("bind", None),
        ("position", "\ud800"),
        ("entries", -1),
        ("entries", "a"),
        ("entries, up_to", -5),
        ("SqliteLog", ""),
    ],
)
def test_what_is_wrong_is_an_input_error(name: str, given: object, tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "events.db")
    with pytest.raises(InputError):
        CALLS[name](log, given)
    log.close()
