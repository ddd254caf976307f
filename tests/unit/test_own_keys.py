"""Keys that LiveGNN gives to entries itself: no client's key takes the place of one, whatever it says."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import Events, Graph, InputError
from livegnn.log.idempotency import OwnKey, check_key, part_key, retry_key, stored_key
from livegnn.log.kafka.message import decode, encode
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app

NODE = {"event": "add_node", "id": 5}
WRONG = {"event": "add_edge", "src": 5, "dst": 6}  # which names a node that is not there


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    with closing(SqliteLog(tmp_path / "log.db", keep_keys_seconds=1000)) as log:
        runtime = Runtime(log, Graph())
        yield runtime
        runtime.stop()


def drain(runtime: Runtime) -> None:
    while runtime.step():
        pass


def post(runtime: Runtime, *events: dict[str, object], key: str | bytes | None = None) -> httpx.Response:
    """What a server of `runtime` answers to these events, with a key in the header."""
    headers: dict[bytes, bytes] = {}
    if key is not None:
        headers[b"idempotency-key"] = key.encode() if isinstance(key, str) else key

    async def talk() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(runtime), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post("/v1/events", json={"events": events}, headers=headers)

    return asyncio.run(talk())


def keys_of(runtime: Runtime) -> set[str]:
    rows = runtime.log._appends.execute("SELECT key FROM keys").fetchall()
    return {key for (key,) in rows}


def test_a_client_cannot_stand_in_the_way_of_a_retry(runtime: Runtime) -> None:
    """Nor have the refused entry deleted."""
    runtime.append(Events().add_edges(1, 2))
    drain(runtime)
    (refused,) = runtime.log.rejections()
    assert post(runtime, NODE, key=f"retry of {refused.seq}").status_code == 200
    drain(runtime)
    for number in (1, 2, 7):
        runtime.append(Events().add_nodes(number))
        drain(runtime)
    assert runtime.log.trim(refused.seq) == refused.seq
    runtime.log.trim(4)
    assert runtime.log.rejections() == [refused]
    again = runtime.retry(refused.seq)
    assert again == runtime.log.last_seq()
    drain(runtime)
    assert runtime.graph.num_edges() == 1


def test_no_key_of_our_own_is_taken_by_a_client(runtime: Runtime) -> None:
    """All that we store, in each way that a client can say a key; each is refused, and then ours works."""
    assert post(runtime, WRONG).status_code == 200
    drain(runtime)
    (refused,) = runtime.log.rejections()
    runtime.retry(refused.seq)
    several = [NODE, {**NODE, "id": 6, "idempotency_key": "one"}, {**NODE, "id": 7}]
    assert post(runtime, *several, key="mine").status_code == 200
    own = keys_of(runtime) - {"mine", "one"}
    assert own == {retry_key(refused.seq), part_key("mine", 2)}

    known, last = keys_of(runtime), runtime.log.last_seq()
    for key in map(str, own):
        assert type(key) is str
        node = {**NODE, "id": 99}
        for answer in (
            post(runtime, node, key=key),
            post(runtime, {**node, "idempotency_key": key}),
        ):
            assert answer.status_code == 400, answer.text
        with pytest.raises(InputError, match="printable"):
            runtime.append(Events().add_nodes(99), key=key)
        with pytest.raises(InputError, match="printable"):
            runtime.log.append(Events().add_nodes(99), key=key)
        with pytest.raises(InputError, match="printable"):
            encode([Events().add_nodes(99)], [key])
        shown = key[1:]  # what a client can say is another key
        assert post(runtime, node, key=shown).status_code == 200
    assert keys_of(runtime) == known | {key[1:] for key in own}
    assert runtime.log.last_seq() == last + len(own)
    assert post(runtime, *several, key="mine").json()["seq"] == last
    drain(runtime)
    assert runtime.retry(refused.seq) < last


@given(st.text(max_size=40))
@example("retry of 1")
@example(str(retry_key(1)))
@example(str(part_key("a", 1)))
@settings(max_examples=draws(100, 2000))
def test_what_a_client_may_say_is_none_of_ours(key: str) -> None:
    try:
        check_key(key)
    except InputError:
        return
    assert not isinstance(stored_key(key), OwnKey)


def test_our_own_keys_survive_a_message() -> None:
    """Of a log in Kafka, where the owner reads them back."""
    keys = [retry_key(17), "retry of 17", part_key("a", 3), None]
    entries = [Events().add_nodes(number) for number in range(4)]
    found = decode(encode(entries, keys)).keys
    assert list(found) == keys
    assert [isinstance(key, OwnKey) for key in found] == [True, False, True, False]
