"""Appends of many requests at once: one write for all, and each gets its own answer, once."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from time import perf_counter

import apsw
import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faulty_disk import FaultyDisk
from gate import draws
from livegnn import Engine, Events, Graph, LogError
from livegnn.http.small_reads import end_turn
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import appends, create_app, small_appends
from livegnn.server.append_requests import AppendRequests, GivenBody
from livegnn.server.appends import Appender, Outcome
from livegnn.server.bodies import JSON_TYPE, LINE_TYPES, Limits
from livegnn.server.entries import GivenEntry
from livegnn.server.feed import Feed
from streams import make_graph, make_model


def make_runtime(path: Path, vfs: str | None = None) -> Runtime:
    graph = make_graph()
    return Runtime(SqliteLog(path, vfs=vfs), graph, Engine(graph, make_model(), threads=1))


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    runtime = make_runtime(tmp_path / "events.db")
    yield runtime
    runtime.stop()
    runtime.log.close()


def run(runtime: Runtime, talk: Callable[[httpx.AsyncClient], Awaitable[object]]) -> None:
    """Lets a client talk to a server of the runtime, in one event loop."""

    async def serve() -> None:
        transport = httpx.ASGITransport(create_app(runtime), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await talk(client)

    asyncio.run(serve())


def post(
    client: httpx.AsyncClient, *events: dict[str, object], key: str | None = None
) -> Awaitable[httpx.Response]:
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post("/v1/events", json={"events": events}, headers=headers)


def test_latency_begins_when_the_head_of_a_request_is_here(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 1000.0
    early = small_appends.perf_counter() - seconds  # a body took as long to arrive
    monkeypatch.setattr(small_appends, "perf_counter", lambda: early)

    async def talk(client: httpx.AsyncClient) -> None:
        assert (await post(client, {"event": "add_node", "id": 1})).status_code == 200

    run(runtime, talk)
    assert runtime.oldest_age() >= seconds
    runtime.step()
    assert runtime.statistics.latency_seconds.total >= seconds


def test_a_request_with_a_key_takes_effect_once(runtime: Runtime) -> None:
    """A retried request must not bring an edge back that was removed meanwhile."""
    add: dict[str, object] = {"event": "add_edge", "src": 3, "dst": 4}
    remove: dict[str, object] = {"event": "remove_edge", "src": 3, "dst": 4}

    async def talk(client: httpx.AsyncClient) -> None:
        first, removed = await post(client, add, key="a"), await post(client, remove)
        again = await client.post(
            "/v1/events?wait=true", json={"events": [add]}, headers={"Idempotency-Key": "a"}
        )
        assert [one.json()["seq"] for one in (first, removed, again)] == [1, 2, 1]
        assert [one.json()["status"] for one in (first, removed, again)] == ["logged", "logged", "applied"]
        assert "idempotent-replayed" not in first.headers
        assert again.headers["idempotent-replayed"] == "true"
        other, long = await post(client, remove, key="a"), await post(client, add, key="x" * 256)
        assert (other.status_code, long.status_code) == (400, 400)
        assert "same events each time" in other.json()["detail"]

    runtime.start()
    run(runtime, talk)
    runtime.wait(2)
    assert runtime.log.last_seq() == 2
    assert 3 not in runtime.graph.neighbors(4).ids


def test_a_key_survives_a_crash(tmp_path: Path) -> None:
    first = make_runtime(tmp_path / "events.db")
    seq = first.append(Events().add_edges(3, 4), key="a")
    copied = tmp_path / "copy"
    copied.mkdir()
    for path in tmp_path.glob("events.db*"):  # as a kill leaves them
        (copied / path.name).write_bytes(path.read_bytes())
    second = make_runtime(copied / "events.db")
    assert second.append(Events().add_edges(3, 4), key="a") == seq == second.log.last_seq()
    for runtime in (first, second):
        runtime.stop()
        runtime.log.close()


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from([None, "a", "b", "c"]), st.booleans()),
        min_size=1,
        max_size=40,
    )
)
def test_each_of_many_requests_gets_its_own_answer(
    tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[int, str | None, bool]]
) -> None:
    """The answers are those of a log that takes one request after another."""
    runtime = make_runtime(tmp_path_factory.mktemp("log") / "events.db")

    async def talk(client: httpx.AsyncClient) -> None:
        answers = await asyncio.gather(
            *(
                post(client, {"event": "add_node" if good else "fly", "id": 1000 + id}, key=key)
                for id, key, good in asked
            )
        )
        seen: dict[str, tuple[int, int]] = {}
        log = 0
        for (id, key, good), answer in zip(asked, answers, strict=True):
            if not good or (key in seen and seen[key][0] != id):
                assert answer.status_code == 400
                continue
            if key in seen:
                assert answer.json() == {"seq": seen[key][1], "status": "logged"}
                continue
            log += 1
            assert answer.json() == {"seq": log, "status": "logged"}
            if key is not None:
                seen[key] = (id, log)
            assert runtime.log.entries(log - 1, up_to=log)[0].events == Events().add_nodes(1000 + id)
        assert runtime.log.last_seq() == log

    run(runtime, talk)
    runtime.stop()
    runtime.log.close()


def test_requests_at_once_share_a_flush(tmp_path: Path) -> None:
    """The first is written alone; those that come meanwhile are written together."""
    disk = FaultyDisk("requests at once")
    runtime = make_runtime(tmp_path / "events.db", disk.name)
    disk.syncs.clear()

    async def talk(client: httpx.AsyncClient) -> None:
        answers = await asyncio.gather(
            *(post(client, {"event": "add_node", "id": id}) for id in range(900, 1000))
        )
        assert sorted(answer.json()["seq"] for answer in answers) == list(range(1, 101))

    run(runtime, talk)
    assert disk.syncs["events.db-wal"] < 20
    runtime.stop()
    runtime.log.close()


def test_threads_that_append_at_once_share_flushes(tmp_path: Path) -> None:
    disk = FaultyDisk("threads at once")
    runtime = make_runtime(tmp_path / "events.db", disk.name)
    together = threading.Barrier(8)
    seqs: list[int] = []

    def append(thread: int) -> None:
        together.wait()
        seqs.extend(runtime.append(Events().add_nodes(1000 + 100 * thread + n)) for n in range(25))

    threads = [threading.Thread(target=append, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seqs) == list(range(1, 201))
    assert disk.syncs["events.db-wal"] < 200
    runtime.stop()
    runtime.log.close()


def reading(*entries: Events) -> Callable[[], list[GivenEntry]]:
    return lambda: [GivenEntry(events, None, position) for position, events in enumerate(entries)]


def nodes(*ids: int) -> Events:
    return Events().add_nodes(list(ids))


def test_a_request_that_is_admitted_is_logged_whole(tmp_path: Path) -> None:
    """One with a key and several entries is written twice; what others append between fills no room of it."""
    graph = make_graph()
    runtime = Runtime(SqliteLog(tmp_path / "events.db"), graph, max_waiting_events=2)
    appender = Appender(runtime)

    async def append() -> None:
        plain, keyed = await asyncio.gather(
            appender.append(reading(nodes(900, 901, 902, 903)), None, perf_counter()),
            appender.append(reading(nodes(904), nodes(905)), "key", perf_counter()),
        )
        assert [one.became.seq for one in (*plain, *keyed)] == [4, 5, 6]

    asyncio.run(append())
    assert runtime.log.last_seq() == 6
    runtime.stop()
    runtime.log.close()


USUAL, LINE = b'{"events":[{"event":"add_node","id":%b}]}', b'{"event":"add_node","id":%b}'
POSTED = {
    "a node": (USUAL % b"900", JSON_TYPE),
    "another node": (USUAL % b"901 ", JSON_TYPE),
    "unusual text": (USUAL % b'"\\u0061"', JSON_TYPE),
    "text in a graph of integers": (USUAL % b'"a"', JSON_TYPE),
    "an unusual number": (USUAL % b"1.0", JSON_TYPE),
    "no events": (b'{"events":[]}', JSON_TYPE),
    "no JSON": (b"{", JSON_TYPE),
    "many events": (b'{"events":[%b]}' % b",".join([b'{"event":"remove_node","id":1}'] * 300), JSON_TYPE),
    "a line": (LINE % b"903", LINE_TYPES[0]),
    "lines": (LINE % b"904" + b"\n" + LINE % b"905", LINE_TYPES[0]),
    "another media type": (USUAL % b"906", "text/plain"),
}


@settings(deadline=None, max_examples=draws(30, 500))
@given(st.lists(st.sampled_from(list(POSTED)), min_size=1, max_size=12))
def test_requests_that_are_joined_leave_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, posted: list[str]
) -> None:
    """As if each had been read, checked and added to the log by itself."""
    left: list[object] = []
    for joins in (False, True):
        runtime = make_runtime(tmp_path_factory.mktemp("log") / "events.db")
        log = runtime.log
        assert isinstance(log, SqliteLog)
        log.takes_joined = joins
        requests = AppendRequests(runtime, Feed(runtime), Limits())

        async def append(requests: AppendRequests = requests) -> list[object]:
            given = [GivenBody(*POSTED[one], None, perf_counter()) for one in posted]
            return await asyncio.gather(*map(requests.append, given), return_exceptions=True)

        answers = [repr(one) for one in asyncio.run(append())]
        rows = apsw.Connection(str(log.path)).execute("SELECT * FROM entries ORDER BY seq").fetchall()
        left.append((answers, rows, log.last_seq(), len(runtime._arrivals)))
        runtime.stop()
        log.close()
    assert left[0] == left[1]


def test_a_write_waits_for_half_as_many_requests_as_the_last_one_had(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appends, "_WAIT_SECONDS", 3600.0)
    appender = Appender(runtime)

    async def append() -> None:
        ids = iter(range(900, 1000))

        def begin(count: int) -> list[Awaitable[list[Outcome]]]:
            return [appender.append(reading(nodes(next(ids))), None, perf_counter()) for _ in range(count)]

        await asyncio.gather(*begin(8))
        few = begin(3)
        for _ in range(100):
            await end_turn()
        assert runtime.log.last_seq() == 8
        await asyncio.gather(*few, *begin(1))
        assert runtime.log.last_seq() == 12
        monkeypatch.setattr(appends, "_WAIT_SECONDS", 0.0)
        await asyncio.gather(*begin(1))  # as the other clients have ended
        monkeypatch.setattr(appends, "_WAIT_SECONDS", 3600.0)
        await asyncio.gather(*begin(1))
        assert runtime.log.last_seq() == 14

    asyncio.run(append())


@pytest.mark.parametrize("room", range(0, 24, 2))
def test_a_request_whose_error_says_that_nothing_was_logged_left_nothing(tmp_path: Path, room: int) -> None:
    """The disk is full at any moment of a group of requests. One with a key is whole when sent again."""
    disk = FaultyDisk(f"a group {room}")
    runtime = make_runtime(tmp_path / "events.db", disk.name)
    appender = Appender(runtime)

    async def append() -> None:
        requests = [
            (reading(nodes(900, 901)), None),
            (reading(nodes(902), nodes(903), nodes(904)), "key"),
            (reading(nodes(905)), "other"),
        ]
        disk.room = room
        answers = await asyncio.gather(
            *(appender.append(read, key, perf_counter()) for read, key in requests), return_exceptions=True
        )
        disk.empty()
        for (read, key), answer in zip(requests, answers, strict=True):
            if isinstance(answer, BaseException):
                assert isinstance(answer, LogError)
                if key is None:
                    assert 900 not in logged()
                await appender.append(read, key, perf_counter())

    def logged() -> list[int]:
        lines = "".join(entry.events.to_json_lines() for entry in runtime.log.entries(0))
        return [json.loads(line)["id"] for line in lines.splitlines()]

    asyncio.run(append())
    assert sorted(logged()) == list(range(900, 906))
    runtime.stop()
    runtime.log.close()


def test_requests_end_with_the_client_that_sent_them(runtime: Runtime) -> None:
    """What a client that has gone has sent is logged or not; those beside it get their answers."""

    async def talk(client: httpx.AsyncClient) -> None:
        tasks = [asyncio.ensure_future(post(client, {"event": "add_node", "id": 900 + n})) for n in range(9)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        told = [one.json()["seq"] for one in answers if isinstance(one, httpx.Response)]
        assert len(set(told)) == len(told) >= 4
        assert (await post(client, {"event": "add_node", "id": 999})).status_code == 200

    run(runtime, talk)


MIXED = [
    {"event": "add_node", "id": 900},
    {"event": "fly"},
    {"event": "add_edge", "src": 900, "dst": 10**9},
    {"event": "set_features", "id": 1, "x": [1.0]},
    {"event": "add_edge", "src": 900, "dst": 1},
]


@pytest.mark.parametrize("lines", [False, True])
def test_with_partial_the_good_events_are_applied_and_each_bad_one_is_named(
    runtime: Runtime, lines: bool
) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        body = b"\n".join(map(orjson.dumps, MIXED)) if lines else orjson.dumps({"events": MIXED})
        headers = {
            "content-type": "application/x-ndjson" if lines else "application/json",
            "idempotency-key": "a",
        }
        answer = await client.post("/v1/events?wait=true&partial=true", content=body, headers=headers)
        assert answer.status_code == 200
        told = answer.json()
        assert (told["seq"], told["status"]) == (3, "applied")
        refused = {one["position"]: (one.get("seq"), one["problem"]["type"]) for one in told["refused"]}
        assert refused == {
            1: (None, "/problems/invalid-input"),
            2: (2, "/problems/unknown-node"),
            3: (None, "/problems/invalid-input"),
        }
        assert [one["problem"]["status"] for one in told["refused"]] == [400, 409, 400]
        assert "expected 'event' to be one of" in told["refused"][0]["problem"]["detail"]
        again = await client.post("/v1/events?wait=true&partial=true", content=body, headers=headers)
        assert again.json() == told
        none = await client.post("/v1/events?partial=true", json={"events": [{"event": "fly"}]})
        assert (none.status_code, len(none.json()["refused"])) == (400, 1)
        assert none.json().keys() == {"type", "title", "status", "detail", "refused"}
        assert none.headers["content-type"] == "application/problem+json"
        whole = await client.post("/v1/events", json={"events": MIXED})
        assert (whole.status_code, whole.json().keys()) == (400, {"type", "title", "status", "detail"})

    runtime.start()
    run(runtime, talk)
    assert runtime.log.last_seq() == 3
    assert runtime.graph.neighbors(1).ids.tolist().count(900) == 1


@pytest.mark.parametrize("sent", [" a", "a ", "\ta \t", "a"])
def test_what_is_around_the_value_of_a_header_is_not_of_the_key(runtime: Runtime, sent: str) -> None:
    """A server in front may take it away, or a client add it: it is one key (RFC 9110, section 5.5)."""

    async def talk(client: httpx.AsyncClient) -> None:
        answers = [
            await client.post("/v1/events", json={"events": [keyed(900, None)]}, headers=[(name, value)])
            for name, value in ((b"idempotency-key", b"a"), (b"idempotency-key", sent.encode()))
        ]
        assert [answer.json() for answer in answers] == [{"seq": 1, "status": "logged"}] * 2
        empty = await client.post("/v1/events", json={"events": []}, headers=[(b"idempotency-key", b" \t")])
        assert (empty.status_code, "1 to 255" in empty.json()["detail"]) == (400, True)

    run(runtime, talk)
    assert runtime.log.last_seq() == 1


def keyed(id: int, key: str | None) -> dict[str, object]:
    return {"event": "add_node", "id": id} | ({} if key is None else {"idempotency_key": key})


def body_of(events: list[dict[str, object]], lines: bool) -> tuple[bytes, dict[str, str]]:
    if lines:
        return b"\n\n".join(map(orjson.dumps, events)), {"content-type": "application/x-ndjson"}
    return orjson.dumps({"events": events}), {"content-type": "application/json"}


def test_events_with_a_position_take_effect_once(runtime: Runtime) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        async def send(position: object, *ids: int, more: str = "", key: str | None = None) -> httpx.Response:
            body, headers = body_of([keyed(one, key) for one in ids], lines=True)
            address = f"/v1/events?source=rows&position={position}{more}"
            return await client.post(address, content=body, headers=headers)

        async def position(source: str = "rows") -> object:
            answer = await client.get("/v1/events/position", params={"source": source})
            return answer.json()["position"]

        assert await position() is None
        first = await send(4, 900, 901)
        assert first.json() == {"seq": 2, "status": "logged"}
        for again in (await send(4, 900, 901), await send(3, 902)):
            assert (again.json(), again.headers["idempotent-replayed"]) == (first.json(), "true")
        assert (await send(5, 902)).json()["seq"] == 3
        assert (await position(), await position("other")) == (5, None)
        at_once = await asyncio.gather(
            *(send(6, 903) for _ in range(3)), *(post(client, keyed(904, None)) for _ in range(3))
        )
        assert len({one.json()["seq"] for one in at_once[:3]}) == 1
        for refused, says in (
            (await send(7, 905, key="a"), "one entry without idempotency keys"),
            (await send(7, 905, more="&partial=true"), "without partial"),
            (await client.post("/v1/events?source=rows", json={"events": []}), "given together"),
            (await send("07", 905), "leading zeros"),
            (await client.get("/v1/events/position?source=%00"), "printable"),
        ):
            assert refused.status_code == 400
            assert says in refused.json()["detail"]
        assert await position() == 6

    run(runtime, talk)
    logged = [entry.events for entry in runtime.log.entries(0)]
    assert logged[:2] == [Events().add_nodes([900, 901]), Events().add_nodes([902])]
    assert runtime.log.last_seq() == 7
    assert logged.count(Events().add_nodes([903])) == 1
    assert runtime.log.position("client rows", 0) == 6


@pytest.mark.parametrize("lines", [False, True])
def test_an_event_with_a_key_is_an_entry_that_takes_effect_once(runtime: Runtime, lines: bool) -> None:
    given = [keyed(900, "a"), keyed(901, None), keyed(902, None), keyed(903, "b"), keyed(900, "a")]

    async def talk(client: httpx.AsyncClient) -> None:
        body, headers = body_of(given, lines)
        first = await client.post("/v1/events", content=body, headers=headers | {"idempotency-key": "c"})
        assert first.json() == {"seq": 4, "status": "logged", "refused": []}
        assert "idempotent-replayed" not in first.headers
        again = await client.post("/v1/events", content=body, headers=headers | {"idempotency-key": "c"})
        assert (again.json(), again.headers["idempotent-replayed"]) == (first.json(), "true")
        one, headers = body_of(given[:1], lines)
        alone = await client.post("/v1/events", content=one, headers=headers)
        assert (alone.json(), alone.headers["idempotent-replayed"]) == (
            {"seq": 1, "status": "logged"},
            "true",
        )
        part = await client.post("/v1/events?partial=true", content=one, headers=headers)
        assert part.json() == {"seq": 1, "status": "logged", "refused": []}

    run(runtime, talk)
    assert [entry.seq for entry in runtime.log.entries(0)] == [1, 3, 4]
    assert runtime.log.entries(1)[0].events == Events().add_nodes([901, 902])


@pytest.mark.parametrize("lines", [False, True])
def test_a_key_of_another_event_is_refused_and_a_bad_event_stops_all(runtime: Runtime, lines: bool) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        async def send(*events: dict[str, object]) -> httpx.Response:
            body, headers = body_of([*events], lines)
            return await client.post("/v1/events?wait=true", content=body, headers=headers)

        answer = await send(keyed(900, "a"), keyed(901, "a"), keyed(900, "b"), keyed(902, None))
        told = answer.json()
        assert (told["seq"], told["status"]) == (3, "applied")
        assert [(one["position"], one.get("seq")) for one in told["refused"]] == [(1, None)]
        assert "same events each time, got 'a'" in told["refused"][0]["problem"]["detail"]
        wide = {"event": "set_features", "id": 1, "x": [1.0]}
        missing = {"event": "remove_edge", "src": 900, "dst": 10**9, "idempotency_key": "d"}
        for bad, message in (
            (wide, "features"),
            ({"event": "fly"}, "line 3" if lines else "events[1]"),
            (keyed(903, ""), "an idempotency key must be text of 1 to 255"),
            (
                {"event": "add_node", "id": 1, "idempotency_key": 3},
                "expected 'idempotency_key' to be text, got 3",
            ),
            ({"event": "add_node", "id": 1, "idempotency_key": None}, "to be text, got None"),
        ):
            answer = await send(keyed(904, "c"), bad)
            if bad == keyed(903, ""):  # found out by the log
                assert [one["position"] for one in answer.json()["refused"]] == [1]
                continue
            assert answer.status_code == 400, bad
            assert message in answer.json()["detail"]
        answer = await send(missing, keyed(905, None), missing)
        assert [(one["position"], one["problem"]["type"]) for one in answer.json()["refused"]] == [
            (0, "/problems/unknown-node"),
            (2, "/problems/unknown-node"),
        ]

    runtime.start()
    run(runtime, talk)
    assert runtime.log.last_seq() == 6


def test_the_key_of_a_parallel_edge_is_another_thing(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1], parallel="keep")
    runtime = Runtime(SqliteLog(tmp_path / "events.db"), graph)
    edge: dict[str, object] = {"event": "add_edge", "src": 0, "dst": 1, "idempotency_key": "a"}

    async def talk(client: httpx.AsyncClient) -> None:
        await post(client, edge | {"key": 7}, edge | {"key": 8, "idempotency_key": "b"}, edge | {"key": 7})

    run(runtime, talk)
    events = [entry.events for entry in runtime.log.entries(0)]
    assert events == [Events().add_edges(0, 1, key=7), Events().add_edges(0, 1, key=8)]
    runtime.stop()
    runtime.log.close()


@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from([None, "a", "b", "c"])), max_size=12),
    st.booleans(),
    st.booleans(),
)
def test_events_with_keys_are_as_from_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, given: list[tuple[int, str | None]], lines: bool, escaped: bool
) -> None:
    """The name of the field may be written with escapes."""
    runtime = make_runtime(tmp_path_factory.mktemp("log") / "events.db")
    effects: list[int] = []
    known: dict[str, int] = {}
    refused = []
    for position, (id, key) in enumerate(given):
        if key in known:
            if known[key] != id:
                refused.append(position)
            continue
        if key is not None:
            known[key] = id
        effects.append(1000 + id)

    async def talk(client: httpx.AsyncClient) -> None:
        body, headers = body_of([keyed(1000 + id, key) for id, key in given], lines)
        if escaped:
            body = body.replace(b"idempotency_key", b"\\u0069dempotency_key")
        answer = await client.post("/v1/events", content=body, headers=headers)
        if "refused" in answer.json():
            assert [one["position"] for one in answer.json()["refused"]] == refused
        assert answer.json()["seq"] == len(effects)

    run(runtime, talk)
    logged = Events.concatenate([entry.events for entry in runtime.log.entries(0)])
    assert logged == Events().add_nodes(effects) if effects else not len(logged)
    runtime.stop()
    runtime.log.close()


def test_refused_entries_are_listed_and_can_be_appended_again(runtime: Runtime) -> None:
    bad: dict[str, object] = {"event": "add_edge", "src": 900, "dst": 901}

    async def talk(client: httpx.AsyncClient) -> None:
        refused = await client.post("/v1/events?wait=true", json={"events": [bad, bad]})
        assert (refused.status_code, refused.json()["status"], refused.json()["seq"]) == (409, 409, 2)
        listed = (await client.get("/v1/rejections")).json()
        (one,) = listed["rejections"]
        assert (listed["seq"], one["seq"], one["error"], one["events"]) == (
            2,
            2,
            "UnknownNodeError",
            [bad, bad],
        )
        assert (await client.get("/v1/rejections?after=2")).json()["rejections"] == []
        await post(client, {"event": "add_node", "id": 900}, {"event": "add_node", "id": 901})
        first, second = [await client.post("/v1/rejections/2/retry") for _ in range(2)]
        assert first.json() == second.json() == {"seq": 6, "status": "logged"}
        assert (await client.get("/v1/predictions?ids=901&min_seq=6")).status_code == 200
        for seq in ("6", "1", "99", "-1", "x", "1e3"):
            assert (await client.post(f"/v1/rejections/{seq}/retry")).status_code == 400

    runtime.start()
    run(runtime, talk)
    assert runtime.graph.neighbors(901).ids.tolist() == [900]


@pytest.mark.parametrize("length", [1, 255])
def test_a_key_holds_whatever_becomes_of_its_request(runtime: Runtime, length: int) -> None:
    """One entry or several, with keys of their own or not, bad ones among them, each by itself or not."""
    bad: dict[str, object] = {"event": "add_node", "id": "x"}
    ids = iter(range(1000, 2000))

    def bodies(partial: bool) -> list[list[dict[str, object]]]:
        a, b, c, d, e = (next(ids) for _ in range(5))
        shapes = [
            [keyed(a, None)],
            [keyed(b, None), keyed(c, f"own {c}")],
            [keyed(d, f"own {d}"), keyed(e, None)],
        ]
        if partial:
            shapes += [[keyed(next(ids), None), bad, keyed(next(ids), None)], [bad, keyed(next(ids), None)]]
        return shapes

    async def talk(client: httpx.AsyncClient) -> None:
        async def send(events: list[dict[str, object]], key: str, partial: bool) -> httpx.Response:
            headers = {"Idempotency-Key": key, "content-type": "application/json"}
            path = f"/v1/events?partial={partial}".lower()
            return await client.post(path, content=orjson.dumps({"events": events}), headers=headers)

        number = 0
        for first_partial in (False, True):
            for second_partial in (False, True):
                for first in bodies(first_partial):
                    for second in bodies(second_partial):
                        number += 1
                        key = f"{number:04}".rjust(length, "k")[-max(length, 4) :]
                        answer = await send(first, key, first_partial)
                        assert answer.status_code == 200
                        last = runtime.log.last_seq()
                        again = await send(first, key, first_partial)
                        assert again.status_code == 200
                        assert again.headers["idempotent-replayed"] == "true"
                        assert again.json()["seq"] == answer.json()["seq"]
                        assert runtime.log.last_seq() == last
                        own = sum("idempotency_key" in one for one in second[:1])
                        other = await send(second, key, second_partial)
                        assert runtime.log.last_seq() == last + own  # what comes before, with its own key
                        assert (other.status_code == 400) == (own == 0)
                        assert "must have the same events" in other.text
                        of_another = await send(second[-1:], f"{key} 0"[-255:], False)
                        assert of_another.status_code == 200

    run(runtime, talk)


def test_a_request_has_one_key(runtime: Runtime) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        headers = [("idempotency-key", "a"), ("idempotency-key", "b")]
        answer = await client.post("/v1/events", json={"events": [keyed(1000, None)]}, headers=headers)
        assert (answer.status_code, "one header Idempotency-Key, got 2" in answer.text) == (400, True)

    run(runtime, talk)
