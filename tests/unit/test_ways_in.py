"""An entry that the door refuses is refused whichever way it takes, with the same words; none is logged.

Ways: `Runtime.append`, `append_all` alone and among others, with an origin, from Arrow, over HTTP as JSON
and as lines, whole, event by event, and with a key. An entry that `log.append` takes is rejected by the loop.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import numpy as np
import orjson
import pyarrow as pa
import pytest
from events_strategies import event_lists
from hypothesis import example, given
from hypothesis import strategies as st

from livegnn import EdgeSchema, Events, Graph, InputError, Schema
from livegnn.log import Appended, Origin
from livegnn.log.sqlite import SqliteLog, entry_rows
from livegnn.runtime import Runtime
from livegnn.server import create_app

SCHEMAS = {
    "plain": Schema({"node": 2}, {("node", "to", "node"): EdgeSchema()}),
    "all columns, of one named type": Schema(
        {"user": 1}, {("user", "follows", "user"): EdgeSchema(weighted=True, timed=True, edge_dim=2)}
    ),
    "text ids and keys": Schema(
        {"node": 0}, {("node", "to", "node"): EdgeSchema(duplicates="keep")}, text_ids=True
    ),
    "types without a default": Schema({"": 1, "a": 3}, {("a", "", ""): EdgeSchema()}),
}
NOT_FINITE = ("weight", "time", "x", None, None, None)


class World:
    """A runtime behind a server."""

    def __init__(self, folder: Path, schema: Schema) -> None:
        self.schema, self.log = schema, SqliteLog(folder / "events.db")
        self.runtime = Runtime(self.log, Graph(schema))
        self.app = create_app(self.runtime)
        ids = ["a"] if schema.text_ids else [1]
        self.good = self.runtime.check(Events().add_nodes(ids, node_type=next(iter(schema.node_types))))
        self.offset = 0

    def told(self, events: Events) -> str | None:
        """What `Runtime.append` says."""
        try:
            self.runtime.append(events)
        except InputError as error:
            return str(error)
        return None

    def of_python(self, events: Events) -> Iterator[tuple[str, object]]:
        """What other calls say."""
        append_all = self.runtime.append_all
        yield "append_all", str(append_all([events])[0])
        first, refused, last = append_all([self.good, events, self.good], ["first", "key", None])
        assert isinstance(first, Appended)
        assert isinstance(last, Appended)
        yield "append_all among others", str(refused)
        self.offset += 1
        yield (
            "append_all with an origin",
            str(append_all([events], None, [Origin("stream", 0, self.offset, b"payload")])[0]),
        )
        yield "a bad message", self.log.bad_messages(self.offset - 1)[-1].reason

    def of_http(self, events: Events) -> Iterator[tuple[str, object]]:
        """What the server says."""
        lines = events.to_json_lines().encode()
        body = orjson.dumps({"events": [orjson.loads(line) for line in lines.splitlines()]})
        for how in ("", "?partial=true"):
            for content, media_type in ((body, "application/json"), (lines, "application/x-ndjson")):
                for key in ({}, {"idempotency-key": "one"}):
                    if how and len(events) > 1:
                        continue  # each event is an entry of its own then
                    answer = asyncio.run(self.post(how, content, {"content-type": media_type, **key}))
                    assert answer.status_code == 400
                    told = answer.json()
                    error = told["refused"][0]["problem"] if how else told
                    yield f"{how} {media_type} {key}", error["detail"]

    async def post(self, how: str, content: bytes, headers: dict[str, str]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post(f"/v1/events{how}", content=content, headers=headers)


@pytest.fixture(scope="module", params=SCHEMAS.values(), ids=SCHEMAS.keys())
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("log"), request.param)
    yield world
    world.runtime.stop()
    world.log.close()


def spoil(events: Events, column: str | None, value: float) -> Events:
    """The events with one number that is not finite, in the last chunk that has such a column."""
    spoiled = Events.from_bytes(events.to_bytes())
    for chunk in reversed(spoiled.chunks):
        numbers = None if column is None else getattr(chunk, column)
        if numbers is not None and numbers.size:
            numbers.reshape(-1)[-1] = value
            break
    return spoiled


def from_arrow(events: Events) -> Events | None:
    """The events through a table of Arrow; None where a table cannot have them."""
    records = [orjson.loads(line) for line in events.to_json_lines().split("\n") if line]
    names = dict.fromkeys(name for one in records for name in one)  # pyarrow takes those of the first record
    rows = [{name: one.get(name) for name in names} for one in records]
    with suppress(pa.ArrowInvalid, pa.ArrowTypeError, InputError):
        return Events.from_arrow(pa.Table.from_pylist(rows))
    return None


def is_finite(events: Events) -> bool:
    columns = [column for one in events.chunks for column in (one.weight, one.time, one.x)]
    return all(column is None or np.isfinite(column).all() for column in columns)


@given(event_lists(), st.sampled_from(NOT_FINITE), st.sampled_from([np.nan, np.inf]))
@example(Events().remove_nodes([1]).add_nodes([2], node_type="other"), None, np.nan)
def test_what_is_refused_one_way_is_refused_every_way(
    world: World, drawn: Events, column: str | None, value: float
) -> None:
    events = spoil(drawn, column, value)
    before = world.log.last_seq()
    if (words := world.told(events)) is None:
        return
    assert world.log.last_seq() == before
    for way, told in world.of_python(events):
        assert told == words, way
    before = world.log.last_seq()
    if is_finite(events):
        for way, told in world.of_http(events):
            assert told == words, way
        table = from_arrow(events)
        assert table is None or world.told(table) == words
    assert world.log.last_seq() == before
    seq = world.log.append(events)
    while world.runtime.step():
        pass
    assert world.runtime.rejection(seq) is not None


def test_an_append_is_checked_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the door that it comes to first; neither the runtime nor the log does it again."""
    counts = {"values": 0, "text": 0}

    def count(name: str, check: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object) -> object:
            counts[name] += 1
            return check(*args)

        return counted

    monkeypatch.setattr(Events, "check", count("values", Events.check))
    monkeypatch.setattr(entry_rows, "check", count("text", entry_rows.check))
    name = next(iter(world.schema.node_types))
    records = [{"event": "add_node", "id": "b" if world.schema.text_ids else 2, "node_type": name}] * 3
    for key in ({}, {"idempotency_key": "two"}):
        counts.update(values=0, text=0)
        body = orjson.dumps({"events": [records[0] | key, *records[1:]]})
        headers = {"content-type": "application/json", "idempotency-key": "three"}
        answer = asyncio.run(world.post("", body, headers))
        assert answer.status_code == 200
        assert counts == {"values": 2 if key else 1, "text": 0}
    world.log.append(world.runtime.graph.with_types(Events.from_records(records)))
    assert counts["text"] == 1


def test_checked_events_are_of_one_schema_and_cannot_be_extended(world: World, tmp_path: Path) -> None:
    checked = world.runtime.check(world.good)
    assert checked is world.good
    with pytest.raises(InputError, match="cannot be extended"):
        checked.add_nodes(1)
    with closing(SqliteLog(tmp_path / "another.db")) as log:
        another = Runtime(log, Graph(Schema({"other": 1, "third": 1}, {})))
        with pytest.raises(InputError):
            another.check(checked)


def test_a_name_that_cannot_be_stored_spoils_no_other_entry(tmp_path: Path) -> None:
    """A schema may have it; the log, which stores entries together, must not come to it."""
    log = SqliteLog(tmp_path / "events.db")
    runtime = Runtime(log, Graph(Schema({"\ud800": 0, "good": 0}, {})))
    bad, good = (Events().add_nodes(1, node_type=name) for name in ("\ud800", "good"))
    refused, logged = runtime.append_all([bad, good])
    assert "the name of a type must be valid Unicode" in str(refused)
    assert logged == Appended(1, 1)
    runtime.stop()
    log.close()
