"""The API of `livegnn serve`, over real sockets to a real process."""

import json
import math
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

import loopback
from livegnn import Engine, Events
from livegnn.http.keys import create_key
from owned import names_in
from scraped import documented_everywhere, scrape, types
from serving import Server, write_deployment
from streams import WIDTH, make_graph, make_model, make_overflow, make_stream
from waiting import REQUEST_SECONDS

DOCS = Path(__file__).parents[2] / "docs" / "server.md"
APPEND = f"/v1/events?wait=true&timeout={REQUEST_SECONDS}"
LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    deployment = write_deployment(tmp_path_factory.mktemp("deployment"))
    with Server(deployment) as server, loopback.Client(base_url=server.address) as client:
        yield client
        assert server.stop() == 0


def append(client: httpx.Client, events: Events, *, wait: bool = False) -> int:
    content, asked = events.to_json_lines(), {"wait": wait, "timeout": REQUEST_SECONDS}
    answer = client.post("/v1/events", params=asked, content=content, headers=LINES)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["seq"])


def test_keys_are_needed_from_the_first_request_on(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path)
    deployment.write_text(deployment.read_text(encoding="utf-8") + 'keys = "keys.json"\n', encoding="utf-8")
    reader = create_key(tmp_path / "keys.json", "reader", ["read"])
    writer = create_key(tmp_path / "keys.json", "writer", ["write"])
    body = {"events": [{"event": "set_features", "id": 1, "x": [1.0] * WIDTH}]}
    with Server(deployment) as server, loopback.Client(base_url=server.address) as client:
        assert client.get("/healthz").status_code == 200
        assert client.post("/v1/events", json=body).status_code == 401
        headers = {"authorization": f"Bearer {reader}"}
        refused = client.post("/v1/events", json=body, headers=headers)
        assert (refused.status_code, refused.json()["type"]) == (403, "/problems/key-forbids")
        accepted = client.post("/v1/events", json=body, headers={"authorization": f"Bearer {writer}"})
        asked = {"ids": "1", "min_seq": accepted.json()["seq"], "timeout": REQUEST_SECONDS}
        assert client.get("/v1/predictions", params=asked, headers=headers).status_code == 200
        elsewhere = {**headers, "host": "evil.example"}
        assert client.get("/v1/predictions?ids=1", headers=elsewhere).status_code == 421
        models = {**os.environ, "LIVEGNN_SERVER": server.address}
        command = [sys.executable, "-m", "livegnn", "model", "list"]
        assert subprocess.run(command, env=models, capture_output=True, check=False).returncode == 1
        subprocess.run(command, env={**models, "LIVEGNN_KEY": reader}, check=True, capture_output=True)
        assert server.stop() == 0


def test_a_caller_reads_its_own_writes(client: httpx.Client) -> None:
    for value in range(30):
        features = [float(value)] * WIDTH
        body = {"events": [{"event": "set_features", "id": 1, "x": features}]}
        seq = client.post("/v1/events", json=body).json()["seq"]
        answer = client.get(
            "/v1/predictions", params={"ids": "1,2", "min_seq": seq, "timeout": REQUEST_SECONDS}
        ).json()
        assert answer["seq"] >= seq
        assert answer["ids"] == [1, 2]
        supposed = client.post("/v1/what-if", json={"events": body["events"], "ids": [1, 2]}).json()
        assert supposed["predictions"] == answer["predictions"]  # it is so already
        assert supposed["changed"] == []


def test_predictions_are_those_of_the_engine(tmp_path: Path) -> None:
    stream = make_stream(20)
    engine = Engine(make_graph(), make_model(), threads=1)
    with (
        Server(write_deployment(tmp_path)) as server,
        loopback.Client(base_url=server.address) as client,
    ):
        for events in stream:
            append(client, events, wait=True)  # one entry a batch, so that the bits are comparable
            engine.apply(events)
        ids = engine.graph.ids().tolist()
        answer = client.post("/v1/predictions", json={"ids": ids}).json()
        assert np.array(answer["predictions"], np.float32).tolist() == engine.predict(ids).tolist()
        assert answer["seq"] == engine.seq


def test_what_if_says_what_would_happen(client: httpx.Client) -> None:
    before = client.get("/v1/predictions?ids=5").json()
    event = {"event": "set_features", "id": 5, "x": [9.0] * WIDTH}
    supposed = client.post("/v1/what-if", json={"events": [event], "ids": [5]}).json()
    assert 5 in supposed["changed"]
    assert supposed["predictions"] != before["predictions"]
    assert client.get("/v1/predictions?ids=5").json() == before
    seq = client.post(APPEND, json={"events": [event]}).json()["seq"]
    after = client.get("/v1/predictions", params={"ids": 5}).json()
    assert after["seq"] == seq
    assert after["predictions"] == supposed["predictions"]


def test_neighbors(client: httpx.Client) -> None:
    events = Events().add_nodes([7000, 7001], np.zeros((2, WIDTH))).add_edges(7000, 7001, weight=0.5)
    seq = append(client, events, wait=True)
    incoming = client.get("/v1/nodes/7001/neighbors").json()
    assert incoming == {"seq": seq, "id": 7001, "ids": [7000], "weight": [0.5], "time": None, "key": None}
    outgoing = client.get(
        f"/v1/nodes/7000/neighbors?direction=out&min_seq={seq}&timeout={REQUEST_SECONDS}"
    ).json()
    assert outgoing["ids"] == [7001]
    assert client.get("/v1/nodes/7000/neighbors?edge_type=node,to,node").json()["ids"] == []


def read_events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, object]]]:
    """Server-sent events: their names and data."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line and "data" in fields:
            yield fields["event"], json.loads(fields["data"])
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


def test_the_feed_tells_every_change(client: httpx.Client) -> None:
    with client.stream("GET", "/v1/changes") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = read_events(response.iter_lines())
        name, ready = next(events)
        assert name == "ready"
        ids = client.get("/v1/nodes/3/neighbors?direction=out").json()["ids"]
        last = ready["seq"]
        for value in (5.0, 6.0, 7.0):
            seq = append(client, Events().set_features(3, [value] * WIDTH))
            name, change = next(events)
            assert name == "change"
            assert change["seq"] == seq
            assert seq > last
            last = seq
            assert {3, *ids} >= set(change["ids"]) & {3, *ids} != set()
            assert change["affected"] >= len(change["ids"])
            assert change["seconds"] > 0
            wanted = {"ids": ",".join(map(str, change["ids"])), "min_seq": seq, "timeout": REQUEST_SECONDS}
            answer = client.get("/v1/predictions", params=wanted).json()
            assert answer["predictions"] == change["predictions"]


def test_a_reader_waits_until_its_event_is_visible(client: httpx.Client) -> None:
    seq = client.get("/healthz").json()["seq"]
    answers: list[httpx.Response] = []
    params = {"ids": 1, "min_seq": seq + 1, "timeout": REQUEST_SECONDS}
    reader = threading.Thread(target=lambda: answers.append(client.get("/v1/predictions", params=params)))
    reader.start()
    append(client, Events().add_nodes(1))
    reader.join()
    assert answers[0].json()["seq"] == seq + 1


def test_waiting_for_what_does_not_come_is_answered_with_503(client: httpx.Client) -> None:
    answer = client.get("/v1/predictions?ids=1&min_seq=1000000&timeout=0.01")
    assert answer.status_code == 503
    assert answer.json()["type"] == "/problems/timeout"
    assert "event 1000000 must be visible within 0.01 seconds" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error", "message"),
    [
        ("GET", "/v1/predictions?ids=998", None, 404, "/problems/unknown-node", "998"),
        (
            "GET",
            "/v1/predictions?ids=abc",
            None,
            400,
            "/problems/invalid-input",
            "ids must be integers in this graph, got 'abc'",
        ),
        ("GET", "/v1/predictions?ids=-1", None, 400, "/problems/invalid-input", "got -1"),
        ("GET", "/v1/predictions?ids=1_0", None, 400, "/problems/invalid-input", "got '1_0': write 17 as 17"),
        ("GET", "/v1/predictions?ids=%2B1", None, 400, "/problems/invalid-input", "got '+1'"),
        ("GET", "/v1/predictions?ids=1,%202", None, 400, "/problems/invalid-input", "got ' 2'"),
        ("GET", "/v1/predictions?ids=0001", None, 400, "/problems/invalid-input", "got '0001'"),
        ("GET", "/v1/predictions?ids=-0", None, 400, "/problems/invalid-input", "got '-0'"),
        ("GET", "/v1/predictions?ids=1,,2", None, 400, "/problems/invalid-input", "got ''"),
        ("GET", "/v1/predictions?ids=%D9%A1", None, 400, "/problems/invalid-input", "got '\u0661'"),
        (
            "GET",
            "/v1/predictions?ids=" + "9" * 5000,
            None,
            400,
            "/problems/invalid-input",
            "from 0 to 2^63 - 1, got 999",
        ),
        ("GET", "/v1/predictions?ids=9223372036854775808", None, 400, "/problems/invalid-input", "2^63"),
        ("GET", "/v1/nodes/01/neighbors", None, 400, "/problems/invalid-input", "got '01'"),
        ("GET", "/v1/nodes/01/explain?since=0", None, 400, "/problems/invalid-input", "got '01'"),
        (
            "GET",
            "/v1/nodes/1/explain?since=1_0",
            None,
            400,
            "/problems/invalid-input",
            "query.since: Value error, expected",
        ),
        ("GET", "/v1/predictions?ids=1&min_seq=1_0", None, 400, "/problems/invalid-input", "got '1_0'"),
        ("GET", "/v1/predictions?ids=1&min_seq=%200", None, 400, "/problems/invalid-input", "got ' 0'"),
        (
            "GET",
            "/v1/predictions?ids=1&timeout=1_0",
            None,
            400,
            "/problems/invalid-input",
            "expected a number as JSON",
        ),
        (
            "GET",
            "/v1/predictions?ids=1&timeout=nan",
            None,
            400,
            "/problems/invalid-input",
            "expected a number as JSON",
        ),
        (
            "GET",
            "/v1/predictions?ids=1&minseq=3",
            None,
            400,
            "/problems/invalid-input",
            (
                "the query may have the parameters ids, min_seq, timeout, output, model, got 'minseq': "
                "did you mean 'min_seq'?"
            ),
        ),
        (
            "GET",
            "/v1/predictions?ids=1&min_seq=0&min_seq=1",
            None,
            400,
            "/problems/invalid-input",
            "'min_seq' once, got it 2",
        ),
        (
            "GET",
            "/healthz?x=1",
            None,
            400,
            "/problems/invalid-input",
            "this address takes no parameters, got 'x'",
        ),
        ("GET", "/metrics?x", None, 400, "/problems/invalid-input", "got 'x'"),
        (
            "GET",
            "/v1/changes?since=1",
            None,
            400,
            "/problems/invalid-input",
            "the query may have the parameters ids, threshold, got 'since'",
        ),
        (
            "GET",
            "/v1/nodes/1/neighbors?directions=in",
            None,
            400,
            "/problems/invalid-input",
            "did you mean 'direction'?",
        ),
        (
            "POST",
            "/v1/events?waits=true",
            {"events": []},
            400,
            "/problems/invalid-input",
            "parameters wait, partial, timeout, source, position, got",
        ),
        (
            "POST",
            "/v1/what-if?wait=true",
            {"events": [], "ids": []},
            400,
            "/problems/invalid-input",
            "takes no parameters, got 'wait'",
        ),
        (
            "GET",
            "/v1/prediction?ids=1",
            None,
            404,
            "/problems/unknown-path",
            "nothing at /v1/prediction: /docs lists",
        ),
        (
            "GET",
            "/v1/events",
            None,
            405,
            "/problems/unknown-method",
            "/v1/events must be requested with POST, got GET",
        ),
        (
            "PUT",
            "/v1/predictions",
            {},
            405,
            "/problems/unknown-method",
            "requested with GET, HEAD, POST, got PUT",
        ),
        ("GET", "/v1/predictions", None, 400, "/problems/invalid-input", "query.ids must be given"),
        ("GET", "/v1/predictions?ids=1&min_seq=-1", None, 400, "/problems/invalid-input", "query.min_seq"),
        (
            "POST",
            "/v1/predictions",
            {"ids": ["a"]},
            400,
            "/problems/invalid-input",
            "ids must be integers in this graph",
        ),
        (
            "POST",
            "/v1/predictions",
            {"ids": [True]},
            400,
            "/problems/invalid-input",
            "got True at position 0",
        ),
        ("POST", "/v1/predictions", {"ids": [1], "idz": 2}, 400, "/problems/invalid-input", "body.idz"),
        ("POST", "/v1/predictions", {}, 400, "/problems/invalid-input", "body.ids must be given"),
        ("POST", "/v1/predictions", [], 400, "/problems/invalid-input", "body: Input should be"),
        (
            "POST",
            "/v1/predictions",
            {"ids": [1], "min_seq": "1_0"},
            400,
            "/problems/invalid-input",
            "body.min_seq",
        ),
        (
            "POST",
            "/v1/predictions",
            {"ids": [1], "min_seq": True},
            400,
            "/problems/invalid-input",
            "body.min_seq",
        ),
        (
            "POST",
            "/v1/predictions",
            {"ids": [1], "timeout": "10"},
            400,
            "/problems/invalid-input",
            "body.timeout",
        ),
        ("GET", "/v1/nodes/998/neighbors", None, 404, "/problems/unknown-node", "998"),
        (
            "GET",
            "/v1/nodes/1/neighbors?direction=up",
            None,
            400,
            "/problems/invalid-input",
            "query.direction",
        ),
        (
            "GET",
            "/v1/nodes/1/neighbors?edge_type=a,b",
            None,
            400,
            "/problems/invalid-input",
            "edge_type must be",
        ),
        (
            "GET",
            "/v1/nodes/1/neighbors?edge_type=a,b,c",
            None,
            400,
            "/problems/unknown-type",
            "('a', 'b', 'c')",
        ),
        (
            "POST",
            "/v1/events",
            [],
            400,
            "/problems/invalid-input",
            "an object with the one field 'events', got list",
        ),
        ("POST", "/v1/events", {"event": []}, 400, "/problems/invalid-input", "got ['event']"),
        (
            "POST",
            "/v1/events",
            {"events": {}},
            400,
            "/problems/invalid-input",
            "events must be a list of objects",
        ),
        (
            "POST",
            "/v1/events",
            {"events": [{"event": "x"}]},
            400,
            "/problems/invalid-input",
            "events[0]: expected 'event'",
        ),
        (
            "POST",
            "/v1/events",
            {"events": [{"event": "set_features", "id": 1, "x": [1, 2]}]},
            400,
            "/problems/invalid-input",
            "x must have 4 features for node type 'node', got 2",
        ),
        (
            "POST",
            "/v1/events",
            {"events": [{"event": "set_features", "id": 1, "x": [1e39, 0, 0, 0]}]},
            400,
            "/problems/invalid-input",
            "numbers that float32 can hold",
        ),
        (
            "POST",
            "/v1/events",
            {"events": [{"event": "add_edge", "src": 1, "dst": 2, "time": 3.0}]},
            400,
            "/problems/invalid-input",
            "('node', 'to', 'node') carry no times, got a column 'time'",
        ),
        (
            "POST",
            "/v1/events",
            {"events": [{"event": "add_edge", "src": 1, "dst": 2, "edge_attr": [3.0]}]},
            400,
            "/problems/invalid-input",
            "('node', 'to', 'node') carry no features, got a column 'edge_attr'",
        ),
        (
            "POST",
            "/v1/events",
            {"events": [{"event": "remove_edge", "src": 1, "dst": 2, "key": 0}]},
            400,
            "/problems/invalid-input",
            "('node', 'to', 'node') carry no keys, got a column 'key'",
        ),
        (
            "POST",
            "/v1/what-if",
            {"events": [{"event": "add_edge", "src": 1, "dst": 2, "time": 3.0}], "ids": [1]},
            400,
            "/problems/invalid-input",
            "got a column 'time'",
        ),
        (
            "POST",
            "/v1/what-if",
            {"events": [{"event": "add_node", "id": 7200, "x": make_overflow()}], "ids": [1]},
            400,
            "/problems/invalid-input",
            "node 7200 of type 'node' would be infinite or not a number",
        ),
        (
            "POST",
            "/v1/events",
            {"events": [{"event": "add_node", "id": 1, "node_type": "item"}]},
            400,
            "/problems/unknown-type",
            "'item'",
        ),
        (
            "POST",
            "/v1/what-if",
            {"events": [{"event": "remove_node", "id": 998}], "ids": [1]},
            404,
            "/problems/unknown-node",
            "998",
        ),
        ("POST", "/v1/what-if", {"events": [], "ids": [998]}, 404, "/problems/unknown-node", "998"),
    ],
)
def test_bad_requests_are_answered_with_a_typed_error_and_change_nothing(
    client: httpx.Client, method: str, path: str, body: object, status: int, error: str, message: str
) -> None:
    before = client.get("/healthz").json()
    answer = client.request(method, path, json=body) if body is not None else client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["type"] == error
    said = answer.json()["detail"]
    assert message in said
    # What only those can do who write Python is said to be so.
    assert not re.search(r"\w\(|\b(?!min_seq)[a-z_]+=", said.partition("in Python")[0]), said
    assert client.get("/healthz").json() == before


def test_bad_bodies_are_refused(client: httpx.Client) -> None:
    malformed = client.post(
        "/v1/events", content='{"event": "remove_node", "id": 1}\nnonsense', headers=LINES
    )
    assert malformed.status_code == 400
    assert malformed.json()["detail"].startswith("line 2: expected a JSON object")
    broken = client.post("/v1/events", content="{", headers={"content-type": "application/json"})
    assert broken.status_code == 400
    assert "the body must be JSON" in broken.json()["detail"]
    other = client.post("/v1/events", content="a,b", headers={"content-type": "text/csv"})
    assert other.status_code == 415
    assert other.json()["type"] == "/problems/unknown-media-type"
    large = client.post("/v1/events", content=bytes(65 * 2**20), headers=LINES)
    assert large.status_code == 413
    assert large.json()["type"] == "/problems/body-too-large"


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("/v1/events", '{"events": [], "events": [{"event": "remove_node", "id": 1}]}', "events"),
        ("/v1/events", '{"events": [{"event": "remove_node", "id": 1, "id": 2}]}', "id"),
        ("/v1/events", '{"events": [{"event": "remove_node", "id": 1, "i\\u0064": 2}]}', "id"),
        ("/v1/predictions", '{"ids": [1], "ids": [2]}', "ids"),
        ("/v1/predictions", '{"ids": [1], "timeout": 1, "timeout": 2}', "timeout"),
        ("/v1/what-if", '{"events": [], "ids": [1], "ids": [2]}', "ids"),
        (
            "/v1/what-if",
            '{"events": [{"event": "add_node", "event": "remove_node", "id": 1}], "ids": []}',
            "event",
        ),
    ],
)
def test_a_body_that_names_a_field_twice_is_refused(
    client: httpx.Client, path: str, body: str, key: str
) -> None:
    before = client.get("/healthz").json()
    answer = client.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    expected = f"each object of the body must have a field once, got {key!r} twice"
    assert answer.json() == {
        "type": "/problems/invalid-input",
        "title": "Invalid input",
        "status": 400,
        "detail": expected,
    }
    assert client.get("/healthz").json() == before


def test_every_body_is_read_alike(client: httpx.Client) -> None:
    for path in ("/v1/predictions", "/v1/what-if"):
        broken = client.post(path, content="{", headers={"content-type": "application/json"})
        assert broken.status_code == 400
        assert broken.json()["detail"].startswith("the body must be JSON, got b'{'")
        other = client.post(path, content="{}", headers=LINES)
        assert other.status_code == 415
        assert "must be application/json, got 'application/x-ndjson'" in other.json()["detail"]
        large = client.post(path, content=bytes(65 * 2**20))
        assert large.status_code == 413
        assert large.json()["type"] == "/problems/body-too-large"
    schema = client.get("/openapi.json").json()["paths"]["/v1/predictions"]["post"]["requestBody"]
    properties = schema["content"]["application/json"]["schema"]["properties"]
    assert set(properties) == {"ids", "min_seq", "timeout", "output", "model"}


def test_a_method_that_a_path_does_not_have_is_told_which_it_has(client: httpx.Client) -> None:
    assert client.delete("/v1/predictions").headers["allow"] == "GET, HEAD, POST"
    assert client.post("/v1/predictions", json={"ids": []}).json()["predictions"] == []


def test_an_entry_that_is_refused_in_its_turn_is_reported(client: httpx.Client) -> None:
    events = Events().set_features(1, [3.0] * WIDTH).remove_nodes(998)
    before = client.get("/v1/predictions?ids=1").json()["predictions"]
    answer = client.post(APPEND, content=events.to_json_lines(), headers=LINES)
    assert (answer.status_code, answer.json()["status"]) == (409, 409)
    assert answer.json()["type"] == "/problems/unknown-node"
    assert "998" in answer.json()["detail"]
    after = client.get(
        "/v1/predictions", params={"ids": 1, "min_seq": answer.json()["seq"], "timeout": REQUEST_SECONDS}
    ).json()
    assert after == {"seq": answer.json()["seq"], "ids": [1], "predictions": before}


def test_a_batch_after_which_a_value_would_not_be_finite_is_refused_with_the_node(
    client: httpx.Client,
) -> None:
    """Alone of all that is in the log: what comes with it and after it is applied."""
    fine = [1.0] * WIDTH
    append(client, Events().add_nodes(7100, fine), wait=True)
    before = client.get("/v1/predictions?ids=7100").json()["predictions"]
    refused = append(client, Events().set_features(7100, make_overflow()))
    following = append(client, Events().add_nodes(7101, fine))
    answer = client.post(
        APPEND,
        content=Events().set_features(7101, make_overflow()).to_json_lines(),
        headers=LINES,
    )
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/invalid-input"
    assert "node 7101 of type 'node' would be infinite" in answer.json()["detail"]
    after = client.get(
        "/v1/predictions",
        params={"ids": "7100,7101", "min_seq": answer.json()["seq"], "timeout": REQUEST_SECONDS},
    ).json()
    assert after["seq"] > following > refused
    assert after["predictions"] == before * 2
    append(client, Events().set_features(7100, [2.0] * WIDTH), wait=True)
    assert client.get("/v1/predictions?ids=7101").json()["predictions"] == before
    moved = client.get("/v1/predictions?ids=7100").json()["predictions"]
    assert moved != before
    assert np.isfinite(moved).all()


def test_no_events_are_no_entry(client: httpx.Client) -> None:
    before = client.get("/healthz").json()["log_seq"]
    assert client.post(APPEND, json={"events": []}).json() == {
        "seq": before,
        "status": "logged",
    }


def test_health(client: httpx.Client) -> None:
    answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"


def test_metrics_are_what_the_docs_list(client: httpx.Client) -> None:
    seq = append(client, Events().set_features(1, [2.0] * WIDTH), wait=True)
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    described = list(types(answer.text).items())
    page = DOCS.read_text(encoding="utf-8")
    assert described == re.findall(r"^\| `((?:livegnn|process)_\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert {name for name, _ in described} > set(documented_everywhere())
    values = scrape(answer.text)
    assert values["livegnn_seq"] == values["livegnn_log_seq"] == seq
    assert values["livegnn_up"] == 1
    assert values["livegnn_event_latency_seconds_count"] > 0
    assert values['livegnn_batch_seconds_bucket{le="+Inf"}'] == values["livegnn_batches_total"]
    assert values['livegnn_nodes{node_type="node"}'] >= 40
    assert (
        math.isnan(values["livegnn_checkpoint_age_seconds"]) or values["livegnn_checkpoint_age_seconds"] >= 0
    )
    for part in ("log", "checkpoints"):
        free, total = (values[f'livegnn_disk_{kind}_bytes{{part="{part}"}}'] for kind in ("free", "total"))
        assert 0 <= free <= total
    assert values["process_resident_memory_bytes"] > 0
    appends = 'livegnn_http_requests_total{method="POST",route="/v1/events",status="200"}'
    before = values[appends]
    append(client, Events().set_features(1, [2.0] * WIDTH))
    assert client.get("/v1/nodes/998/neighbors").status_code == 404
    assert client.get("/v1/nodes/999/neighbors").status_code == 404
    assert client.get("/v1/nowhere").status_code == 404
    values = scrape(client.get("/metrics").text)
    assert values[appends] == before + 1
    refused = 'method="GET",route="/v1/nodes/{id}/neighbors",status="404"'
    assert values[f"livegnn_http_requests_total{{{refused}}}"] >= 2
    assert values[f"livegnn_http_request_seconds_count{{{refused}}}"] >= 2
    assert values['livegnn_http_requests_total{method="GET",route="other",status="404"}'] >= 1


def test_every_route_is_documented(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    documented = re.findall(r"^## `(\w+ \S+)`$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    protocol = {route for route in routes if " /v2" in route}
    assert routes - protocol == set(documented)
    page = (DOCS.parent / "inference-protocol.md").read_text(encoding="utf-8")
    for route in protocol:
        path = route.split()[1].replace("{name}", "NAME").replace("/versions/{version}", "")
        assert f"{path}`" in page, route
    assert "/v2/models/NAME/versions/DIGEST" in page
    assert client.get("/docs").status_code == 200


def test_head_is_answered_without_a_body(client: httpx.Client) -> None:
    for path in ("/healthz", "/metrics", "/v1/predictions?ids=1", "/v1/changes", "/v1/predictions?ids=998"):
        answer = client.head(path)
        assert answer.status_code == (404 if path.endswith("998") else 200)
        assert answer.content == b""
    assert client.head("/healthz").headers["content-type"] == client.get("/healthz").headers["content-type"]


def test_clients_that_go_in_the_middle_of_a_request_leave_no_traceback(tmp_path: Path) -> None:
    with Server(write_deployment(tmp_path), stderr=subprocess.PIPE) as server:
        address = urlsplit(server.address)
        for request in (
            b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{",
            b"POST /v1/what-if HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
            b"GET /v1/predictions?ids=1&min_seq=99 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        ):
            with socket.create_connection((address.hostname, address.port)) as client:
                client.sendall(request)
                # Who is asked later is answered when what came before was taken in.
                assert loopback.get(server.address + "/healthz").status_code == 200
        assert loopback.get(server.address + "/healthz").status_code == 200
        server.process.terminate()
        _, log = server.process.communicate()
    assert {line.split()[1] for line in log.splitlines()} == {"INFO"}, log


def test_a_clean_stop_ends_the_feeds_and_keeps_everything(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path)
    with Server(deployment) as server, loopback.Client(base_url=server.address) as client:
        append(client, Events().set_features(1, [2.0] * WIDTH), wait=True)
        before = client.get("/v1/predictions?ids=1,2,3").json()
        with client.stream("GET", "/v1/changes") as response:
            lines = response.iter_lines()
            assert next(read_events(lines))[0] == "ready"
            assert server.stop() == 0
            assert [line for line in lines if line.startswith("event")] == []
    assert len(names_in(tmp_path / "checkpoints")) == 1
    with Server(deployment) as server:
        assert loopback.get(f"{server.address}/v1/predictions?ids=1,2,3").json() == before
