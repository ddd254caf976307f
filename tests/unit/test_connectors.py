"""Sources, where no broker is needed: arguments, what is appended together, skipping, how they are shown."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livegnn import Events, Graph, InputError
from livegnn.connectors import kafka, skip
from livegnn.connectors.kafka import KafkaTopic
from livegnn.connectors.kafka_partitions import Arrived
from livegnn.errors import SourceError
from livegnn.log import BadMessage, Origin
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from scraped import scrape

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    log = SqliteLog(tmp_path / "log.db")
    one = Runtime(log, Graph())
    yield one
    one.stop()
    log.close()


def test_wrong_arguments_are_refused(runtime: Runtime) -> None:
    with pytest.raises(InputError, match="begin must be 'first' or 'last', got 'end'"):
        KafkaTopic(runtime, NOWHERE, "topic", begin="end")
    for name in ("", "a\n", 3):
        with pytest.raises(InputError, match="text of 1 to 255 printable characters"):
            KafkaTopic(runtime, NOWHERE, "topic", name=name)


@given(st.lists(st.none() | st.binary(max_size=400), max_size=30), st.integers(1, 900))
def test_messages_are_grouped_in_order_up_to_a_size(values: list[bytes | None], most: int) -> None:
    arrived = [Arrived(0, offset, value) for offset, value in enumerate(values)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka, "_MOST_BYTES", most)
        groups = list(kafka._grouped(arrived))
    assert [one for group in groups for one in group] == arrived
    sizes = [[len(one.value or b"") for one in group] for group in groups]
    assert all(sum(group) <= most or len(group) == 1 for group in sizes)
    assert all(sum(one) + next_[0] > most for one, next_ in itertools.pairwise(sizes))


def test_a_message_is_events_or_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'{"event": "add_node", "id": 1}\n'
    assert kafka.decode_safely(kafka.decode_lines, [line * 2])[0] == Events().add_nodes([1, 1])
    assert kafka.decode_safely(kafka.decode_lines, [b""])[0] == Events()
    assert "line 2: expected a JSON object" in str(kafka.decode_safely(kafka.decode_lines, [line + b"{"])[0])
    assert kafka.decode_safely(kafka.decode_lines, [None])[0] == Events()
    monkeypatch.setattr(kafka, "_LARGEST", 40)
    assert "at most 40 bytes, got 62" in str(kafka.decode_safely(kafka.decode_lines, [line * 2])[0])


def test_a_tombstone_is_counted_and_not_kept(runtime: Runtime) -> None:
    source = KafkaTopic(runtime, NOWHERE, "topic", settings={"socket.timeout.ms": 1000})
    source._partitions._next = {0: 0}
    line = b'{"event": "add_node", "id": 900}\n'
    for _ in range(2):  # what is delivered again is not counted again
        assert source._store([Arrived(0, at, None) for at in range(100)])
        assert source._store([Arrived(0, 100, line), Arrived(0, 101, None), Arrived(0, 102, b"{")])
    assert (source.tombstones, source.bad, source.stored) == (101, 1, 103)
    assert runtime.log.last_seq() == 1
    assert runtime.log.position("topic", 0) == 102
    assert [bad.offset for bad in runtime.log.bad_messages()] == [102]
    source.stop()


def test_what_is_skipped_is_listed_and_nothing_is_read_twice(runtime: Runtime) -> None:
    log = runtime.log
    assert skip(log, "a", 0, 5) == 0
    log.append_all([Events().add_nodes(1)], None, [Origin("a", 0, 7)])
    assert skip(log, "a", 0, 10) == 8
    assert log.bad_messages() == [
        BadMessage(1, "a", 0, 4, "messages 0 to 4 were skipped on request", b"", 0),
        BadMessage(2, "a", 0, 9, "messages 8 to 9 were skipped on request", b"", 0),
    ]
    for offset in (10, 3):
        with pytest.raises(InputError, match=f"after 10, where the source 'a' continues .* got {offset}"):
            skip(log, "a", 0, offset)
    for wrong in ((0, 0), (-1, 5), (0, 2.0)):
        with pytest.raises(InputError, match="must be an integer"):
            skip(log, "a", *wrong)
    assert (log.position("a", 0), len(log.bad_messages())) == (9, 2)


def test_how_sources_stand_is_shown(runtime: Runtime) -> None:
    app = create_app(runtime)

    async def read(path: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get(path)

    def shown(path: str) -> httpx.Response:
        return asyncio.run(read(path))

    source = KafkaTopic(runtime, NOWHERE, "topic", name='the "first"', settings={"socket.timeout.ms": 1000})
    runtime.sources[source.name] = source
    assert shown("/healthz").json()["sources"] == {source.name: {"status": "ok", "lag": 0}}
    source._partitions.lag = {0: 3, 1: 4}
    source.stored, source.bad, source.waits = 9, 2, "for a broker"
    assert shown("/healthz").json()["sources"] == {
        source.name: {"status": "waits", "lag": 7, "reason": "for a broker"}
    }
    label = 'source="the "first""'
    found = scrape(shown("/metrics").text)
    for name, value in (
        (f"livegnn_source_up{{{label}}}", 1),
        (f"livegnn_source_waits{{{label}}}", 1),
        (f'livegnn_source_lag_messages{{partition="1",{label}}}', 4),
        (f"livegnn_source_messages_total{{{label}}}", 9),
        (f"livegnn_source_bad_messages_total{{{label}}}", 2),
    ):
        assert found[name] == value
    source._partitions.missing = SourceError("the topic is gone")
    assert shown("/healthz").json()["sources"][source.name]["status"] == "failed"
    assert shown("/healthz").json()["sources"][source.name]["reason"] == "the topic is gone"
    assert scrape(shown("/metrics").text)[f"livegnn_source_up{{{label}}}"] == 0
    source.stop()


def test_bad_messages_are_listed_page_by_page(runtime: Runtime) -> None:
    values = [b"\xff\xc3", "ä".encode(), b"{", b"{{"]
    origins = [Origin("a", 0, offset, value) for offset, value in enumerate(values)]
    runtime.append_all([InputError("no")] * 4, None, origins)
    app = create_app(runtime)

    async def read(path: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get(path)

    listed: list[dict[str, object]] = []
    while page := asyncio.run(
        read(f"/v1/rejections?limit=3&bad_after={listed[-1]['number'] if listed else 0}")
    ).json()["bad_messages"]:
        listed += page
    assert [one["payload"] for one in listed] == [r"\xff\xc3", "ä", "{", "{{"]
    assert listed[0] == {
        "number": 1,
        "source": "a",
        "partition": 0,
        "offset": 0,
        "reason": "no",
        "payload": r"\xff\xc3",
        "size": 2,
    }
