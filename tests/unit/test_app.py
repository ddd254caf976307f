"""The application around the routes: a dashboard below the API, errors of every kind."""

import asyncio
import math
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from faulty_disk import FaultyDisk
from livegnn import Engine, Events, Graph, LiveGNNError
from livegnn.errors import TimeoutExpired
from livegnn.expiry import ExpiryPolicy
from livegnn.graph import GraphDelta
from livegnn.log import Batch
from livegnn.log.consumers import Position
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Convolution, Model
from livegnn.runtime import AheadPolicy, CheckpointPolicy, Runtime
from livegnn.server import create_app, listen
from livegnn.types import State
from scraped import scrape
from streams import WIDTH, make_arrays, make_graph, make_model
from waiting import PATIENCE


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    log = SqliteLog(tmp_path / "events.db")
    graph = make_graph(text=True)
    yield Runtime(log, graph, Engine(graph, make_model(), threads=1))
    log.close()


def ask(
    app: FastAPI,
    method: str,
    path: str,
    body: object = None,
    content: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, json=body, content=content, headers=headers)

    return asyncio.run(request())


def test_a_dashboard_is_served_below_the_api(tmp_path: Path, runtime: Runtime) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text("<h1>risk</h1>", encoding="utf-8")
    app = create_app(runtime, dashboard=tmp_path / "page")
    assert ask(app, "GET", "/").text == "<h1>risk</h1>"
    assert ask(app, "GET", "/metrics").text.startswith("# HELP livegnn_up")
    assert ask(create_app(runtime), "GET", "/").status_code == 404


@pytest.mark.parametrize("text", ["01", "1_0", "%2B1", "%201", "1_0.5"])
def test_a_number_in_an_address_is_written_as_json_has_it(runtime: Runtime, text: str) -> None:
    app = create_app(runtime)
    asked = []
    for path, methods in app.openapi()["paths"].items():
        for method, described in methods.items():
            for one in described.get("parameters", []):
                kinds = {each.get("type") for each in (one["schema"], *one["schema"].get("anyOf", []))}
                if not kinds & {"integer", "number"} or one["in"] not in ("path", "query"):
                    continue
                address = re.sub(r"{.*?}", "1", path.replace(f"{{{one['name']}}}", text))
                address += f"?{one['name']}={text}" if one["in"] == "query" else ""
                answer = ask(app, method.upper(), address)
                assert answer.status_code == 400, (method, address, answer.text)
                assert f"{one['in']}.{one['name']}: Value error, expected" in answer.text, answer.text
                asked.append(address)
    assert len(asked) > 8


def test_every_error_has_one_shape(tmp_path: Path, runtime: Runtime) -> None:
    (tmp_path / "index.html").write_text("<h1>risk</h1>", encoding="utf-8")
    for app in (create_app(runtime), create_app(runtime, dashboard=tmp_path)):
        for method, path, status, kind, message in [
            (
                "GET",
                "/v1/nothing",
                404,
                "/problems/unknown-path",
                "there is nothing at /v1/nothing: /docs lists the paths",
            ),
            (
                "GET",
                "/v1/events",
                405,
                "/problems/unknown-method",
                "/v1/events must be requested with POST, got GET",
            ),
            (
                "PUT",
                "/v1/predictions",
                405,
                "/problems/unknown-method",
                "/v1/predictions must be requested with GET, HEAD, POST, got PUT",
            ),
            ("GET", "/v1/predictions?ids=zoe", 404, "/problems/unknown-node", None),
            (
                "GET",
                "/v1/predictions",
                400,
                "/problems/invalid-input",
                "query.ids must be given, got nothing",
            ),
            (
                "POST",
                "/v1/events/",
                404,
                "/problems/unknown-path",
                "there is nothing at /v1/events/: did you mean /v1/events?",
            ),
            (
                "GET",
                "/v1/nodes/zoe/neighbors/",
                404,
                "/problems/unknown-path",
                "there is nothing at /v1/nodes/zoe/neighbors/: did you mean /v1/nodes/zoe/neighbors?",
            ),
            (
                "GET",
                "/healthz?x=1",
                400,
                "/problems/invalid-input",
                "this address takes no parameters, got 'x'",
            ),
        ]:
            answer = ask(app, method, path)
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"
            problem = answer.json()
            assert problem.keys() == {"type", "title", "status", "detail"}
            assert (problem["type"], problem["status"]) == (kind, status)
            assert problem["detail"] == (problem["detail"] if message is None else message)
    answer = ask(app, "DELETE", "/index.html")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert answer.json()["type"] == "/problems/unknown-method"


def test_head_is_answered_as_get_is_without_a_body(runtime: Runtime) -> None:
    app = create_app(runtime)
    schema = ask(app, "GET", "/openapi.json").json()
    assert {method for path in schema["paths"].values() for method in path} == {
        "get",
        "post",
        "put",
        "delete",
    }
    paths = [path for path, methods in schema["paths"].items() if "get" in methods]
    assert len(paths) > 5
    for path in (*paths, "/v1/predictions?ids=n3", "/v1/nodes/n3/neighbors", "/docs", "/openapi.json"):
        # What follows changes never ends.
        get = ask(app, "HEAD" if path == "/v1/changes" else "GET", path)
        head = ask(app, "HEAD", path)
        assert head.status_code == get.status_code, path
        assert head.headers["content-type"] == get.headers["content-type"]
        assert head.content == b""
    assert ask(app, "HEAD", "/v1/predictions?ids=n3").status_code == 200
    changes = ask(app, "HEAD", "/v1/changes")
    assert changes.status_code == 200
    assert changes.headers["content-type"].startswith("text/event-stream")
    assert app.state.feed.clients == 0
    for last, status in (("12", 200), ("-1", 400), ("x", 400), (str(2**63), 400)):
        assert ask(app, "HEAD", "/v1/changes", headers={"last-event-id": last}).status_code == status
    for chosen, status in (
        ("ids=n3,n4&ids=n5&threshold=0.5", 200),
        ("threshold=1", 400),
        ("ids=n3&threshold=-1", 400),
    ):
        assert ask(app, "HEAD", f"/v1/changes?{chosen}").status_code == status
    answer = ask(app, "HEAD", "/v1/events")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert ask(app, "DELETE", "/healthz").headers["allow"] == "GET, HEAD"


def test_what_is_asked_is_not_told_back_at_length(runtime: Runtime) -> None:
    app, long = create_app(runtime), "x" * 60_000
    for method, path in [
        ("GET", f"/v1/{long}"),
        ("DELETE", f"/v1/nodes/{long}/neighbors"),
        ("POST", f"/v1/nodes/{long}/neighbors/"),
        ("GET", f"/v1/nodes/{long}/neighbors"),
        ("GET", f"/v1/predictions?ids={long}"),
        ("GET", f"/v1/predictions?ids=n3&min_seq={long}"),
        ("GET", f"/v1/predictions?{long}=1"),
        ("GET", f"/v1/nodes/n3/neighbors?edge_type={long}"),
        ("GET", f"/v1/nodes/n3/neighbors?direction={long}"),
    ]:
        answer = ask(app, method, path)
        assert answer.status_code in (400, 404, 405)
        message = answer.json()["detail"]
        an_id = path in (f"/v1/nodes/{long}/neighbors", f"/v1/predictions?ids={long}") and method == "GET"
        assert ("got one of 60,000" if an_id else "xxx") in message
        assert len(message) <= 2000
    for path in ("/v1/events", "/v1/predictions", "/v1/what-if"):
        for body in (
            {"ids": [long]},
            {"events": [{"event": "remove_node", "id": long}], "ids": []},
            {long: 1},
        ):
            answer = ask(app, "POST", path, body)
            assert answer.status_code in (400, 404)
            assert len(answer.json()["detail"]) <= 2000
    event = {"event": "remove_node", "id": "x" * 1024}
    assert ask(app, "POST", "/v1/events", {"events": [event]}).json() == {"seq": 1, "status": "logged"}
    runtime.step()
    rejection = runtime.rejection(1)
    assert rejection is not None
    assert len(rejection.message) <= 2000
    message = ask(app, "GET", f"/v1/{long}").json()["detail"]
    assert message.endswith("...: /docs lists the paths")
    assert len(message) < 200


@pytest.mark.parametrize("name", ["min_seq", "since"])
@pytest.mark.parametrize("seq", ["1" + 30 * "0", str(2**63), "1" + 5000 * "0", "-1"])
def test_sequence_numbers_that_no_event_will_have(runtime: Runtime, name: str, seq: str) -> None:
    app = create_app(runtime)
    path = "/v1/predictions?ids=n3&min_seq=" if name == "min_seq" else "/v1/nodes/n3/explain?since="
    answer = ask(app, "GET", path + seq)
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-input")
    assert f"query.{name}" in answer.json()["detail"]


@pytest.mark.parametrize("seq", ["1" + 30 * "0", str(2**63)])
def test_sequence_numbers_in_a_body_that_no_event_will_have(runtime: Runtime, seq: str) -> None:
    body = f'{{"ids": ["n3"], "min_seq": {seq}}}'.encode()
    answer = ask(create_app(runtime), "POST", "/v1/predictions", content=body)
    assert answer.status_code == 400
    assert "body.min_seq" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/events", "/v1/predictions", "/v1/what-if"])
def test_a_client_that_goes_in_the_middle_of_its_request(
    runtime: Runtime, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No traceback, nothing logged: what the application raises is what the server would write."""
    messages = [
        {"type": "http.request", "body": b'{"events": [', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, object]:
        return messages.pop(0)

    async def send(message: object) -> None:
        pass

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
        "server": ("test", 80),
        "client": ("test", 1),
    }
    asyncio.run(create_app(runtime)(scope, receive, send))  # type: ignore[arg-type]
    assert messages == []
    assert runtime.log.last_seq() == 0
    assert caplog.records == []


def test_what_nobody_foresaw_is_answered_too(runtime: Runtime) -> None:
    app = create_app(runtime)

    @app.get("/fails")
    def fail() -> None:
        raise OSError("the disk is gone")

    answer = ask(app, "GET", "/fails")
    assert (answer.status_code, answer.json()) == (
        500,
        {
            "type": "/problems/unforeseen",
            "title": "Unforeseen error",
            "status": 500,
            "detail": "the process failed, its log says where: OSError: the disk is gone",
        },
    )


def test_a_runtime_that_does_not_run_is_not_healthy(runtime: Runtime) -> None:
    app = create_app(runtime)
    assert ask(app, "GET", "/livez").json() == {"status": "ok"}
    answer = ask(app, "GET", "/readyz")
    assert (answer.status_code, answer.json()) == (503, ask(app, "GET", "/healthz").json())
    reasons = {"loop": "it does not run"}
    assert answer.json() == {"status": "stopped", "seq": 0, "log_seq": 0, "reasons": reasons}


def test_a_loop_that_has_failed_is_reported(runtime: Runtime) -> None:
    app = create_app(runtime)
    seq = runtime.append(Events().add_nodes("x"))
    runtime.log.record_batch(Batch(0, seq))  # as another process would
    runtime.start()
    with pytest.raises(LiveGNNError):
        runtime.wait(seq, PATIENCE)
    runtime.stop()
    answer = ask(app, "GET", "/healthz")
    assert answer.status_code == 503
    reasons = answer.json().pop("reasons")
    assert answer.json() == {"status": "failed", "seq": 0, "log_seq": 1, "reasons": reasons}
    reason = reasons["loop"]
    assert "does another process run on this log" in reason
    answer = ask(app, "GET", f"/v1/predictions?ids=n1&min_seq={seq}")
    assert answer.status_code == 500
    assert answer.json()["type"] == "/problems/failed"
    assert scrape(ask(app, "GET", "/metrics").text)["livegnn_up"] == 0


def test_outputs_by_name(tmp_path: Path) -> None:
    graph, log = make_graph(text=True), SqliteLog(tmp_path / "events.db")
    model = replace(make_model(), outputs={"out": "out", "hidden": "hidden"})
    app = create_app(Runtime(log, graph, Engine(graph, model, threads=1)))
    asked = {"ids": ["n1", "n2"], "output": "hidden"}
    read = ask(app, "GET", "/v1/predictions?ids=n1,n2&output=hidden")
    assert np.shape(read.json()["predictions"]) == (2, 8)
    assert ask(app, "POST", "/v1/predictions", asked).json() == read.json()
    supposed = ask(app, "POST", "/v1/what-if", {"events": [], **asked}).json()
    assert supposed["predictions"] == read.json()["predictions"]
    assert np.shape(ask(app, "GET", "/v1/predictions?ids=n1&output=out").json()["predictions"]) == (1, 3)
    for path, body in (("/v1/predictions", {}), ("/v1/what-if", {"events": []})):
        wrong = ask(app, "POST", path, {"ids": ["n1"], "output": "rows", **body})
        assert wrong.status_code == 400
        message = wrong.json()["detail"]
        assert message == "output must be one of the model's, 'out', 'hidden', got 'rows'"
    log.close()


SET = {"events": [{"event": "set_features", "id": "n1", "x": [1.0] * WIDTH}]}


def test_events_that_are_logged_and_not_visible_in_time_are_not_to_be_sent_again(runtime: Runtime) -> None:
    app = create_app(runtime)  # whose loop does not run
    answer = ask(app, "POST", "/v1/events?wait=true&timeout=0.001", SET)
    assert answer.status_code == 202
    assert answer.json().keys() == {"seq", "status", "problem"}
    assert (
        (answer.json()["seq"], answer.json()["status"]) == (runtime.log.last_seq(), "logged") == (1, "logged")
    )
    problem = answer.json()["problem"]
    assert (problem["type"], problem["status"]) == ("/problems/not-visible", 202)
    assert "event 1 is in the log" in problem["detail"]
    assert "do not send it again" in problem["detail"]
    runtime.step()
    assert ask(app, "GET", "/v1/predictions?ids=n1&min_seq=1").json()["seq"] == 1


def test_who_waits_for_a_loop_that_dies_is_told_at_once(runtime: Runtime) -> None:
    app = create_app(runtime)
    runtime.log.record_batch(Batch(0, 1))  # as another process would: the loop fails at the next entry
    runtime.start()
    answer = ask(app, "POST", "/v1/events?wait=true&timeout=300", SET)
    assert (answer.status_code, answer.json()["seq"]) == (202, 1)
    problem = answer.json()["problem"]
    assert problem["type"] == "/problems/not-visible"
    assert "the runtime ended at event 0" in problem["detail"]
    assert "after a restart" in problem["detail"]
    runtime.stop()


@pytest.mark.parametrize("query", ["", "?wait=true"])
def test_a_loop_that_has_ended_takes_no_events(runtime: Runtime, query: str) -> None:
    app = create_app(runtime)
    seq = runtime.append(Events().add_nodes("x"))
    runtime.log.record_batch(Batch(0, seq))
    runtime.start()
    with pytest.raises(LiveGNNError):
        runtime.wait(seq, PATIENCE)
    answer = ask(app, "POST", f"/v1/events{query}", SET)
    assert answer.status_code == 503
    assert answer.json().keys() == {"type", "title", "status", "detail"}
    assert answer.json()["type"] == "/problems/loop-ended"
    assert "nothing was logged" in answer.json()["detail"]
    assert runtime.log.last_seq() == seq
    runtime.stop()


def test_on_a_full_disk_events_are_refused_until_there_is_space(tmp_path: Path) -> None:
    disk = FaultyDisk("a server on a full disk")
    graph = make_graph(text=True)
    runtime = Runtime(SqliteLog(tmp_path / "full.db", vfs=disk.name), graph, Engine(graph, make_model()))
    app = create_app(runtime)
    seq = runtime.append(Events().add_nodes("x"))
    disk.full = True
    runtime.start()
    for _ in range(2):
        assert disk.refused.acquire(timeout=PATIENCE)
    answer = ask(app, "POST", "/v1/events", SET)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["type"] == "/problems/disk-full"
    answer = ask(app, "GET", "/healthz")
    assert (answer.status_code, answer.json()["status"]) == (503, "paused")
    reason = answer.json()["reasons"]["loop"]
    assert "is full" in reason or "no space" in reason
    disk.full = False
    runtime.wait(seq, PATIENCE)
    assert ask(app, "POST", "/v1/events?wait=true", SET).json() == {"seq": seq + 1, "status": "applied"}
    assert ask(app, "GET", "/healthz").json() == {"status": "ok", "seq": seq + 1, "log_seq": seq + 1}
    runtime.stop()
    runtime.log.close()


def test_text_ids(runtime: Runtime) -> None:
    app = create_app(runtime)
    runtime.append(
        Events().add_nodes(["a/b", "5", "x,y"], [[1.0] * WIDTH] * 3).add_edges("5", "a/b", weight=2)
    )
    runtime.step()
    expected = runtime.engine.predict(["5", "a/b"]).tolist()
    answer = ask(app, "GET", "/v1/predictions?ids=5&ids=a/b").json()
    assert answer["ids"] == ["5", "a/b"]
    assert np.array(answer["predictions"], np.float32).tolist() == expected
    neighbors = ask(app, "GET", "/v1/nodes/a/b/neighbors").json()
    assert neighbors == {"seq": 4, "id": "a/b", "ids": ["5"], "weight": [2.0], "time": None, "key": None}
    assert ask(app, "POST", "/v1/predictions", {"ids": ["x,y"]}).json()["ids"] == ["x,y"]
    for text in ("0005", "+5", " 5", "5_0", ""):  # texts, and other ones than "5"
        answer = ask(app, "GET", f"/v1/predictions?ids=5,{quote(text)}")
        assert answer.status_code == 404
        assert f"got {text!r}" in answer.json()["detail"]
    assert ask(app, "POST", "/v1/predictions", {"ids": []}).json() == {"seq": 4, "ids": [], "predictions": []}
    answer = ask(app, "POST", "/v1/predictions", {"ids": [5]})
    assert answer.status_code == 400
    assert answer.json()["detail"] == "ids must be text in this graph, got 5"
    event = {"event": "remove_node", "id": "5"}
    answer = ask(app, "POST", "/v1/what-if", {"events": [event], "ids": ["a/b"]}).json()
    assert answer["changed"] == ["a/b"]


def test_parallel_edges_come_and_go_one_by_one(tmp_path: Path) -> None:
    arrays = make_arrays()
    arrays |= {name: np.concatenate([arrays[name], arrays[name][:20]]) for name in ("src", "dst", "weight")}
    graph = Graph.from_edges(**arrays, parallel="keep")
    engine = Engine(graph, make_model(), threads=1)
    runtime = Runtime(SqliteLog(tmp_path / "log.db"), graph, engine)
    app = create_app(runtime)

    def apply(*events: dict[str, object]) -> None:
        answer = ask(app, "POST", "/v1/events", {"events": list(events)})
        assert answer.status_code == 200, answer.text
        runtime.step()
        assert runtime.rejection(answer.json()["seq"]) is None
        assert engine.verify().ok

    def edges() -> list[tuple[object, ...]]:
        found = ask(app, "GET", "/v1/nodes/7002/neighbors").json()
        return sorted(zip(found["ids"], found["key"], found["weight"], strict=True))

    add = {"event": "add_edge", "src": 1, "dst": 7002}
    apply({"event": "add_node", "id": 7002}, add | {"weight": 1.0}, add | {"weight": 2.0})
    assert edges() == [(1, 0, 1.0), (1, 1, 2.0)]
    apply(add | {"key": 0, "weight": 4.0}, add | {"key": 9, "weight": 8.0})
    assert edges() == [(1, 0, 4.0), (1, 1, 2.0), (1, 9, 8.0)]
    apply({"event": "remove_edge", "src": 1, "dst": 7002, "key": 1})
    assert edges() == [(1, 0, 4.0), (1, 9, 8.0)]
    runtime.log.close()


def test_an_explanation(tmp_path: Path) -> None:
    graph = make_graph()
    engine = Engine(graph, make_model(), threads=1, history=100)
    runtime = Runtime(SqliteLog(tmp_path / "log.db"), graph, engine)
    app = create_app(runtime)
    before = engine.predict(1)[0].tolist()
    runtime.append(Events().set_features([1, 2], [[2.0] * WIDTH] * 2).add_nodes(999, [1.0] * WIDTH))
    runtime.step()
    answer = ask(app, "GET", "/v1/nodes/1/explain?since=0").json()
    assert (answer["seq"], answer["since"], answer["id"]) == (3, 0, 1)
    np.testing.assert_allclose(answer["before"], before, atol=1e-4)
    np.testing.assert_allclose(answer["after"], engine.predict(1)[0], atol=1e-4)
    (first, *_) = answer["events"]
    assert (first["seq"], first["event"], first["type"], first["ids"]) == (1, "set_features", "node", [1])
    for shares in (answer["events"], answer["neighbors"]):
        total = np.sum([one["share"] for one in shares], axis=0)
        np.testing.assert_allclose(total, np.subtract(answer["after"], answer["before"]), atol=1e-9)
    assert ask(app, "GET", "/v1/nodes/999/explain?since=0").json()["before"] is None
    assert ask(app, "GET", "/v1/nodes/998/explain?since=0").status_code == 404
    refused = ask(app, "GET", "/v1/nodes/1/explain?since=4")
    assert (refused.status_code, refused.json()["type"]) == (400, "/problems/invalid-input")
    runtime.log.close()


def test_an_explanation_takes_no_longer_than_it_may(tmp_path: Path) -> None:
    graph = make_graph()
    engine = Engine(graph, make_model(), threads=1, history=100)
    runtime = Runtime(SqliteLog(tmp_path / "log.db"), graph, engine)
    app = create_app(runtime)
    runtime.append(Events().set_features([1, 2], [[2.0] * WIDTH] * 2))
    runtime.step()
    with pytest.raises(TimeoutExpired, match="got as far as event 1 of 2: ask for fewer events"):
        engine.explain(1, since=0, timeout=0)
    assert len(engine.explain(1, since=0, timeout=300).events) == len(engine.explain(1, since=0).events)
    path = "/v1/explain?id=1&since=0&timeout="
    answer = ask(app, "GET", path + "0.000000001")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/timeout")
    for wrong in ("0", "301", "nan", "-1"):
        assert ask(app, "GET", path + wrong).status_code == 400

    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with graph.writer:
            held.set()
            assert let_go.wait(PATIENCE)

    async def ask_three() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            waiting = [asyncio.create_task(client.get(path + "60")) for _ in range(2)]
            for _ in range(20):
                await asyncio.sleep(0)  # until both have their turn
            third = await client.get(path + "0.001")
            let_go.set()
            return [third, *await asyncio.gather(*waiting), await client.get(path + "60")]

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    third, *others = asyncio.run(ask_three())
    holder.join()
    assert third.status_code == 503
    assert "2 predictions are explained at a time" in third.json()["detail"]
    assert [other.status_code for other in others] == [200] * 3
    runtime.log.close()


def test_small_answers_are_sent_at_once() -> None:
    """Nagle's algorithm would hold the end of an answer back until its beginning was acknowledged."""

    async def delays_nothing() -> bool:
        accepted: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.set_result(writer)

        async with await asyncio.start_server(accept, sock=listen("127.0.0.1", 0)) as server:
            _, client = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer = await accepted
            option = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for end in (client, writer):
                end.close()
                await end.wait_closed()
        return bool(option)

    assert asyncio.run(delays_nothing())


def test_an_address_that_is_taken_is_refused() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        said = f"cannot listen at 127.0.0.1 port {port}, .* in use: another program .* or choose another host"
        with pytest.raises(OSError, match=said):
            listen("127.0.0.1", port)


@pytest.mark.parametrize(
    "path", ["/v1/predictions?ids=n3", "/v1/predictions", "/v1/nodes/n3/neighbors", "/healthz", "/metrics"]
)
def test_other_routes_answer_while_one_waits_for_a_batch_to_become_visible(
    runtime: Runtime, path: str
) -> None:
    """What a batch holds in that moment is held here by a question, until other routes have answered."""
    held, let_go = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def question() -> None:
        held.set()
        in_time.append(let_go.wait(PATIENCE))

    holder = threading.Thread(target=runtime.read, args=(question,))

    async def ask_both() -> tuple[httpx.Response, list[int]]:
        transport = httpx.ASGITransport(create_app(runtime))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            if path == "/v1/predictions":
                waiting = asyncio.create_task(client.post(path, json={"ids": ["n3"]}))
            else:
                waiting = asyncio.create_task(client.get(path))
            others = []
            for _ in range(20):
                await asyncio.sleep(0)  # to the other task: nothing else here lets it go on
                others.append((await client.get("/openapi.json")).status_code)
            let_go.set()
            return await waiting, others

    holder.start()
    held.wait()
    answer, others = asyncio.run(ask_both())
    holder.join()
    assert in_time == [True], "the event loop stood still"
    assert others == [200] * 20
    assert answer.status_code == (503 if path == "/healthz" else 200)


def test_other_routes_answer_while_one_computes_a_prediction(tmp_path: Path) -> None:
    """A lazy engine computes it, with a function of the user's, which goes on when others have answered."""
    entered, let_go = threading.Event(), threading.Event()
    in_time: list[bool] = []
    slow: list[bool] = []

    def update(h: np.ndarray, a: np.ndarray) -> np.ndarray:
        if slow:
            entered.set()
            in_time.append(let_go.wait(PATIENCE))
        return h + a

    log = SqliteLog(tmp_path / "events.db")
    graph = make_graph()
    model = Model.from_convolutions([Convolution(update=update)], in_channels=WIDTH)
    runtime = Runtime(log, graph, Engine(graph, model, threads=1, mode="lazy"))
    runtime.append(Events().set_features([3], np.zeros((1, WIDTH))))
    runtime.step()
    slow.append(True)

    async def ask_both() -> tuple[httpx.Response, int]:
        transport = httpx.ASGITransport(create_app(runtime))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            waiting = asyncio.create_task(client.get("/v1/predictions?ids=3"))
            await asyncio.get_running_loop().run_in_executor(None, entered.wait)
            other = (await client.get("/openapi.json")).status_code
            let_go.set()
            return await waiting, other

    answer, other = asyncio.run(ask_both())
    assert in_time == [True], "the event loop stood still"
    assert (answer.status_code, other) == (200, 200)
    log.close()


@pytest.mark.parametrize("times", [1, 3])
def test_a_retry_that_is_refused_as_well_says_so_when_it_is_asked_for_again(
    tmp_path: Path, times: int
) -> None:
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        runtime = Runtime(log, make_graph())
        app = create_app(runtime)
        event = {"event": "remove_node", "id": 999}
        ask(app, "POST", "/v1/events", {"events": [event]})
        runtime.step()
        for seq in range(1, 1 + times):
            path = f"/v1/rejections/{seq}/retry"
            logged = {"seq": seq + 1, "status": "logged"}
            assert [ask(app, "POST", path).json() for _ in range(2)] == [logged, logged]
            runtime.step()
            for _ in range(2):
                answer = ask(app, "POST", path)
                assert (answer.status_code, answer.json()["seq"]) == (409, seq + 1)
                assert answer.json()["type"] == "/problems/unknown-node"
                assert f"retry entry {seq + 1}, " in answer.json()["detail"]
        assert log.last_seq() == 1 + times
        ask(app, "POST", "/v1/events", {"events": [{"event": "add_node", "id": 999}]})
        assert ask(app, "POST", f"/v1/rejections/{1 + times}/retry").json()["seq"] == 3 + times
        runtime.step()
        applied = {"seq": 3 + times, "status": "logged"}
        assert ask(app, "POST", f"/v1/rejections/{1 + times}/retry").json() == applied


@pytest.mark.parametrize("seq", [-(2**70), -1, 0, 1, 7, 2**63 - 1, 2**63, 2**70])
def test_a_retry_of_what_was_not_refused_names_what_was_asked_for(tmp_path: Path, seq: int) -> None:
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        app = create_app(Runtime(log, make_graph()))
        ask(app, "POST", "/v1/events", {"events": [{"event": "add_node", "id": 999}]})
        answer = ask(app, "POST", f"/v1/rejections/{seq}/retry")
        assert answer.status_code == 400
        message = answer.json()["detail"]
        assert str(seq) in message
        assert "after" not in message
        assert ("an entry that was refused" in message) is (0 <= seq < 2**63), message


def test_an_expiry_that_waits_is_shown_and_confirmed(tmp_path: Path) -> None:
    log, nodes = SqliteLog(tmp_path / "events.db"), np.arange(20)
    graph = Graph.from_edges(nodes, np.roll(nodes, 1), time=nodes.astype(float), time_to_live=30.0)
    policy = ExpiryPolicy(1e-9, ask_from=5)
    runtime = Runtime(log, graph, expiry=policy, ahead=AheadPolicy(1e6))
    app = create_app(runtime)
    assert ask(app, "POST", "/v1/expiry/confirm").status_code == 400
    assert "held_expiry" not in ask(app, "GET", "/healthz").json()
    event = {"event": "add_edge", "src": 0, "dst": 5, "time": 1e9}
    assert ask(app, "POST", "/v1/events", {"events": [event]}).json() == {"seq": 1, "status": "logged"}
    runtime.step()
    (refused,) = ask(app, "GET", "/v1/rejections").json()["rejections"]
    assert "expected times at most 1e+06 ahead of the latest time" in refused["message"]
    assert ask(app, "POST", "/v1/rejections/1/retry?any_time=true").json()["seq"] == 2
    runtime.step()
    held = {"now": 1e9, "edges": 20, "of": 21}
    assert ask(app, "GET", "/healthz").json()["held_expiry"] == held
    assert scrape(ask(app, "GET", "/metrics").text)["livegnn_held_expiry_edges"] == 20
    assert ask(app, "POST", "/v1/expiry/confirm").json() == {"seq": 2, **held}
    while runtime.step() or runtime.seq < log.last_seq():
        pass
    assert "held_expiry" not in ask(app, "GET", "/healthz").json()
    assert scrape(ask(app, "GET", "/metrics").text)["livegnn_held_expiry_edges"] == 0
    assert graph.num_edges() == 1
    log.close()


def test_a_model_that_is_building_answers_503_and_not_as_a_typo(tmp_path: Path) -> None:
    log, graph = SqliteLog(tmp_path / "events.db"), make_graph()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    app = create_app(runtime)
    with graph.writer:  # so that the copy of the graph is not made
        runtime.models.deploy("new", make_model(seed=1), wait=False)
        assert [one["phase"] for one in ask(app, "GET", "/v1/models").json()["models"]][1:] == ["building"]
        for path in ("/v1/predictions?ids=4&model={}", "/v1/models/{}/comparison"):
            answer = ask(app, "GET", path.format("new"))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["type"] == "/problems/view-missing"
            assert ask(app, "GET", path.format("mew")).status_code == 400
    runtime.stop()
    log.close()


def test_a_view_that_is_built_again_is_shown_and_answers_503(tmp_path: Path) -> None:
    log, graph, seen = SqliteLog(tmp_path / "events.db"), make_graph(), []

    class Fragile(Engine):
        def prepare(self, change: GraphDelta) -> None:
            raise RuntimeError("its file is gone")

    def make(graph: Graph, state: State | None) -> Engine:
        paths = ("/v1/predictions?ids=4", "/healthz", "/metrics", "/v1/neighbors?id=4")
        seen.extend(ask(app, "GET", path) for path in paths)
        return Engine(graph, make_model(), threads=1)

    runtime = Runtime(
        log,
        graph,
        Fragile(graph, make_model(), threads=1),
        when_view_fails="rebuild",
        factories={"engine": make},
    )
    app = create_app(runtime)
    runtime.append(Events().remove_nodes(3))
    runtime.step()
    predictions, health, metrics, neighbors = seen
    assert predictions.status_code == 503
    assert predictions.json()["type"] == "/problems/view-missing"
    assert health.json()["missing_views"] == {"engine": "at event 0: RuntimeError: its file is gone"}
    assert scrape(metrics.text)["livegnn_missing_views"] == 1
    assert neighbors.status_code == 200
    assert ask(app, "GET", "/v1/predictions?ids=4").json()["seq"] == 1
    assert "missing_views" not in ask(app, "GET", "/healthz").json()
    log.close()


def test_metrics_show_what_waits_and_who_is_behind(tmp_path: Path) -> None:
    log, graph = SqliteLog(tmp_path / "events.db"), make_graph()
    kept = CheckpointPolicy(tmp_path / "kept", every_events=1, beside=False)
    (tmp_path / "kept").mkdir()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1), checkpoints=kept)
    app = create_app(runtime)
    with closing(log), closing(Position(tmp_path / "events.db", "training")) as position:
        for _ in range(3):
            runtime.append(Events().set_features(1, [1.0] * WIDTH))
        position.register(1)
        found = scrape(ask(app, "GET", "/metrics").text)
        assert found['livegnn_consumer_lag_events{consumer="training"}'] == 2
        assert found["livegnn_waiting_events"] == 3
        assert found["livegnn_oldest_waiting_seconds"] > 0
        assert math.isnan(found["livegnn_checkpoint_age_seconds"])
        while runtime.step():
            pass
        newest = next((tmp_path / "kept").glob("*.lgck"))
        os.utime(newest, (0, time.time() - 3600))
        found = scrape(ask(app, "GET", "/metrics").text)
        assert found["livegnn_waiting_events"] == found["livegnn_oldest_waiting_seconds"] == 0
        assert 3600 <= found["livegnn_checkpoint_age_seconds"] < 3700
        for part in ("log", "checkpoints"):
            assert found[f'livegnn_disk_free_bytes{{part="{part}"}}'] > 0
            total = found[f'livegnn_disk_total_bytes{{part="{part}"}}']
            assert total == shutil.disk_usage(tmp_path).total
        (tmp_path / "events.db-consumers" / "training").write_bytes(b"damaged, and longer than a line is" * 2)
        assert not [name for name in scrape(ask(app, "GET", "/metrics").text) if "consumer_lag" in name]
        runtime.stop()
