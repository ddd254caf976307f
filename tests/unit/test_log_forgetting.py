"""What was refused is forgotten up to an event or an offset; a replay, and numbers, are as before."""

import asyncio
from contextlib import closing
from pathlib import Path

import httpx

from livegnn import Events, InputError
from livegnn.log import Batch, Origin, Rejection
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.examination import examine
from livegnn.runtime import Runtime
from livegnn.server import create_app
from streams import make_graph


def filled(path: Path) -> SqliteLog:
    """Ten entries, of which 2, 4 and 8 are refused, and bad messages at offsets 1 to 6 of two partitions."""
    log = SqliteLog(path)
    for number in range(1, 11):
        log.append(Events().add_nodes(number))
        refused = [Rejection(number, "InputError", "no")] if number in (2, 4, 8) else []
        log.record_batch(Batch(number - 1, number), *refused)
    for at in range(1, 7):
        log.append_all([InputError(f"bad {at}")], None, [Origin("s", at % 2, at, b"{")])
    return log


def test_refused_entries_are_forgotten(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "events.db")) as log:
        assert log.forget_rejections(4) == 2
        assert [one.seq for one in log.listed()] == [8]
        assert [one.seq for one in log.rejections()] == [2, 4, 8], "a replay needs them"
        assert log.forget_rejections(4) == 0
        assert log.trim(9) == 9
        assert [one.seq for one in log.rejections()] == [8]
        assert log.entry(2) is None
        assert log.entry(8) is not None
        assert log.forget_rejections(8) == 1
        assert log.rejections() == []
        assert log.entry(8) is None
    assert examine(tmp_path / "events.db").problems == []


def test_bad_messages_are_forgotten_and_numbers_stay_their_own(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "events.db")) as log:
        assert log.forget_bad_messages("s", 0, 4) == 2
        assert [(bad.number, bad.offset) for bad in log.bad_messages()] == [(1, 1), (3, 3), (5, 5), (6, 6)]
        assert log.forget_bad_messages("s", 0, 6) == 1
        assert log.forget_bad_messages("s", 1, 3) == 2
        assert log.forget_bad_messages("other", 0, 100) == 0
        assert log.position("s", 0) == 6
        log.append_all([InputError("bad 8")], None, [Origin("s", 0, 8, b"{")])
        assert [(bad.number, bad.offset) for bad in log.bad_messages(3)] == [(5, 5), (7, 8)]
        assert examine(log.path).problems == []
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        log.forget_bad_messages("s", 0, 8)
        log.append_all([InputError("bad 9")], None, [Origin("s", 0, 9, b"{")])
        assert [bad.number for bad in log.bad_messages()] == [5, 8]
    assert examine(tmp_path / "events.db").problems == []


def test_routes_forget(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "events.db")) as log:
        app = create_app(Runtime(log, make_graph()))

        async def ask(method: str, path: str) -> httpx.Response:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path)

        def asked(method: str, path: str) -> dict[str, object]:
            found: dict[str, object] = asyncio.run(ask(method, path)).json()
            return found

        assert asked("DELETE", "/v1/rejections?up_to=4") == {"seq": 10, "forgotten": 2}
        assert asked("DELETE", "/v1/bad-messages?source=s&partition=1&up_to=5") == {"seq": 10, "forgotten": 3}
        listed = asked("GET", "/v1/rejections")
        assert [one["seq"] for one in listed["rejections"]] == [8]  # type: ignore[attr-defined]
        assert [one["offset"] for one in listed["bad_messages"]] == [2, 4, 6]  # type: ignore[attr-defined]
