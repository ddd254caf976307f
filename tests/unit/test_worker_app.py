"""Serving workers over HTTP, and the front end before them: real servers on loopback."""

import json
import re
import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import numpy as np
import pytest

import loopback
from livegnn.errors import InputError, TimeoutExpired
from livegnn.http.guard import Access
from livegnn.http.inference_protocol import AnswerForm, write_infer, write_request
from livegnn.log.sqlite import SqliteLog
from livegnn.readiness import Readiness
from livegnn.server import listen
from livegnn.workers import ServingWorker, SqlitePlace
from livegnn.workers.app import create_serving_app
from livegnn.workers.front import Addresses, create_front
from ports import closed_port
from scraped import documented_everywhere, scrape, types
from served import served
from serving_workers import EDGE, NODES, PLAN, QUERY, Setting
from streams import make_model
from waiting import PATIENCE, REQUEST_SECONDS, wait_until

PATHS = ("/v1/predictions", "/v1/samples")


def serving_front(workers: Addresses | Callable[[], Addresses]) -> AbstractContextManager[str]:
    return served(create_front(PLAN, workers))


def closed_address() -> str:
    """Where nobody listens."""
    return f"http://127.0.0.1:{closed_port()}"


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with ExitStack() as opened:
        yield Setting(tmp_path_factory.mktemp("workers"), opened)


@pytest.fixture(scope="module")
def front(setting: Setting) -> Iterator[str]:
    """The address of a front end, one of whose workers has an address more, where nobody answers."""
    addresses = [[closed_address(), setting.addresses[0]], [setting.addresses[1]]]
    with serving_front(addresses) as address:
        yield address


def ask(address: str, path: str = "/v1/predictions", **content: object) -> httpx.Response:
    return loopback.post(address + path, json=content)


def test_the_front_end_answers_as_an_engine_does(setting: Setting, front: str) -> None:
    ids = np.random.default_rng(2).permutation(NODES)
    expected = setting.engine.predict(ids)
    for _ in range(4):  # the first address of worker 0 never answers
        answer = ask(front, ids=ids.tolist(), min_seq=setting.seq).json()
        assert (answer["seq"], answer["ids"]) == (setting.seq, ids.tolist())
        np.testing.assert_array_equal(np.float32(answer["predictions"]), expected)
    for id in range(3):
        answer = ask(front, ids=[id]).json()
        np.testing.assert_array_equal(np.float32(answer["predictions"]), setting.engine.predict([id]))
    assert ask(front, ids=[]).json() == {"seq": setting.seq, "ids": [], "predictions": []}


def test_samples_come_with_their_nodes_and_edges(setting: Setting, front: str) -> None:
    answer = ask(front, "/v1/samples", ids=[3, 4, 5]).json()
    for id, sample in zip([3, 4, 5], answer["samples"], strict=True):
        expected = setting.engine.samples_for([id])[0]
        assert sample["nodes"]["node"][0] == id
        assert set(sample["nodes"]["node"]) == set(expected.node["node"].tolist())
        assert len(sample["edges"][0]["row"]) == len(expected.row[EDGE])


def test_small_requests_are_answered_as_all_others(setting: Setting) -> None:
    mine = np.flatnonzero(PLAN.serving_worker_of(np.arange(NODES)) == 0).tolist()
    others = np.flatnonzero(PLAN.serving_worker_of(np.arange(NODES)) == 1).tolist()
    bodies: list[dict[str, object]] = [
        {"ids": mine[:1]},
        {"ids": mine[:8], "min_seq": setting.seq},
        {"ids": mine[:1] * 3},
        {"ids": mine + mine},
        {"ids": []},
        {"ids": [mine[0], others[0]]},
        {"ids": [2**64]},
        {"ids": [2**63]},
        {"ids": [-1]},
        {"ids": [True]},
        {"ids": [1.0]},
        {"ids": ["1"]},
        {"ids": mine[:1], "min_seq": -1},
        {"ids": mine[:1], "min_seq": True},
        {"ids": mine[:1], "more": 1},
    ]
    for path in PATHS:
        for body in bodies:
            text = json.dumps(body)
            one, other = (
                loopback.post(setting.addresses[0] + path, content=text, headers={"content-type": kind})
                # The media type with a parameter that nobody needs goes the way of the framework.
                for kind in ("application/json", "application/json; of=livegnn")
            )
            assert one.status_code == other.status_code, body
            assert one.json() == other.json()
    for text in ("", "[1]", '{"ids": [1], "ids": [2]}', '{"ids": [1', '{"ids": ' + "[" * 5000):
        answer = loopback.post(setting.addresses[0] + "/v1/predictions", content=text)
        assert answer.status_code == httpx.codes.BAD_REQUEST, answer.text


def test_metrics_of_a_worker_and_of_the_front_end(setting: Setting) -> None:
    mine = int(np.flatnonzero(PLAN.serving_worker_of(np.arange(NODES)) == 0)[0])
    counted = 'livegnn_http_requests_total{method="POST",route="/v1/predictions",status="200"}'
    page = (Path(__file__).parents[2] / "docs" / "workers.md").read_text(encoding="utf-8")
    with serving_front([[address] for address in setting.addresses]) as front:
        for address, kind in ((setting.addresses[0], "worker"), (front, "front end")):
            before = scrape(loopback.get(address + "/metrics").text).get(counted, 0)
            assert ask(address, ids=[mine]).status_code == 200  # past the framework
            assert ask(address, ids=[mine], timeout=5.0).status_code == 200
            assert ask(address, "/v1/nowhere").status_code == httpx.codes.NOT_FOUND
            answer = loopback.get(address + "/metrics")
            assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            documented = re.findall(rf"^\| `(livegnn_\w+)` \| (?:both|{kind}) \|", page, re.MULTILINE)
            assert list(types(answer.text)) == [*documented, *documented_everywhere()]
            found = scrape(answer.text)
            assert (found["livegnn_up"], found[counted]) == (1, before + 2)
            assert found['livegnn_http_requests_total{method="POST",route="other",status="404"}'] >= 1
            if kind == "worker":
                assert found["livegnn_seq"] == setting.seq
                assert found['livegnn_memory_bytes{part="samples"}'] == setting.workers[0].memory()
            else:
                assert [found[f'livegnn_answering_replicas{{worker="{n}"}}'] for n in (0, 1)] == [1, 1]
    with serving_front([[setting.addresses[0]], [closed_address()]]) as front:
        assert ask(front, ids=list(range(NODES))).status_code == httpx.codes.SERVICE_UNAVAILABLE
        found = scrape(loopback.get(front + "/metrics").text)
        assert (found["livegnn_up"], found['livegnn_answering_replicas{worker="1"}']) == (0, 0)


def test_what_there_is_not(setting: Setting, front: str) -> None:
    for address in (setting.addresses[0], front):
        for path, method, status, message in (
            ("/v1/predictions/", "POST", 404, "did you mean /v1/predictions?"),
            ("/nowhere", "GET", 404, "there are"),
            ("/v1/samples", "GET", 405, "must be requested with POST"),
            ("/v1/predictions?min_seq=9", "POST", 400, "takes no parameters, got 'min_seq'"),
        ):
            answer = loopback.request(method, address + path, json={"ids": []})
            assert (answer.status_code, message in answer.json()["detail"]) == (status, True), path
    for path in ("/v1/health", "/readyz", "/livez"):
        assert loopback.head(setting.addresses[0] + path).status_code == httpx.codes.OK
    hosts = (
        "localhost:80",
        "nonsense",
        "http://",
        "",
        "http://h:1/",
        "http://h:1?a=b",
        "http://h:1#a",
        "http://h..x:1",
    )
    for address in (*hosts, "http://a b:1", "http://h:1\n", "http://%41:1", f"http://{'a' * 300}:1", 5, None):
        with pytest.raises(InputError, match="an address must be such as"):
            create_front(PLAN, [[address], [address]])  # type: ignore[list-item]
    for wrong in (None, 5, "ab", [None, None], ["http://h:1", "http://h:1"]):
        with pytest.raises(InputError, match="workers must have"):
            create_front(PLAN, wrong)  # type: ignore[arg-type]


ODD = (
    b"200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n{}",
    b"302 Found\r\ncontent-type: application/json\r\nlocation: /v1/health\r\ncontent-length: 0\r\n\r\n",
    b"200 OK\r\ncontent-type: application/problem+json\r\ncontent-length: 2\r\n\r\n{}",
    b"503 Away\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    b"999 Odd\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    b"200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n[]",
)


@contextmanager
def stranger(answer: bytes) -> Iterator[str]:
    """The address of a server that always answers the same."""

    def reply(taken: socket.socket) -> None:
        with taken:
            if taken.recv(65536):
                taken.sendall(answer)

    def accept(listener: socket.socket) -> None:
        while True:
            try:
                taken, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=reply, args=(taken,), daemon=True).start()

    with listen("127.0.0.1", 0) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_worker_is_not_believed(setting: Setting, odd: bytes) -> None:
    with stranger(b"HTTP/1.1 " + odd.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)) as address:
        with serving_front([[address], setting.addresses[1:]]) as front:
            refused = ask(front, ids=list(range(NODES)))
            assert refused.status_code == httpx.codes.SERVICE_UNAVAILABLE
            assert refused.json()["type"] == "/problems/worker-unavailable"
            assert refused.headers["retry-after"] == "1"
        if odd is not ODD[-1]:  # which is the answer to one worker's ids, for all that the front end knows
            with serving_front([[address, setting.addresses[0]], setting.addresses[1:]]) as front:
                for _ in range(3):
                    assert ask(front, ids=list(range(NODES))).status_code == httpx.codes.OK


def test_replicas_have_the_time_of_a_request_together(setting: Setting) -> None:
    """One that keeps silent leaves half of it to the other one."""
    told: list[dict[str, object]] = []

    class Behind(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(503)
            self.send_header("content-type", "application/problem+json")
            self.send_header("retry-after", "7")
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with ExitStack() as opened:
        addresses = []
        for _ in range(2):
            server = opened.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Behind))
            threading.Thread(target=server.serve_forever).start()
            opened.callback(server.shutdown)
            addresses.append(f"http://127.0.0.1:{server.server_port}")
        with serving_front([addresses, setting.addresses[1:]]) as front:
            id = int(np.flatnonzero(PLAN.serving_worker_of(np.arange(NODES)) == 0)[0])
            answer = ask(front, ids=[id], min_seq=5, timeout=200.0)
            assert (answer.status_code, answer.content) == (503, b"{}"), "passed on as it is"
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["retry-after"] == "7"
            first, second = (float(str(one["timeout"])) for one in told)
            assert 0 < first <= 100
            assert first < second <= 200
            told.clear()
            assert ask(front, ids=[id] * 20).status_code == 503
            assert [one.keys() for one in told] == [{"ids"}] * 2  # nothing to wait for


def test_samples_come_with_what_is_predicted_on_them(setting: Setting, front: str) -> None:
    ids = [*range(NODES), 3, 3]
    for address, asked in ((front, ids), (front, ids[:1])):
        samples = ask(address, "/v1/samples", ids=asked).json()
        assert samples["predictions"] == ask(address, ids=asked).json()["predictions"]
        assert len(samples["samples"]) == len(asked)


def test_a_worker_that_is_not_whole_keeps_answering(tmp_path: Path, setting: Setting) -> None:
    SqliteLog(tmp_path / "events.db").close()
    worker = ServingWorker(SqlitePlace(tmp_path / "events.db"), PLAN, 0, make_model().with_query(QUERY))
    worker.start()  # no sampling worker will ever tell it anything
    id = int(np.flatnonzero(PLAN.serving_worker_of(np.arange(NODES)) == 0)[0])
    try:
        app = create_serving_app(worker)
        with served(app) as address, ThreadPoolExecutor(4) as pool:
            both = [[address, setting.addresses[0]], [setting.addresses[1]]]
            with serving_front(both) as front:  # it asks the other replica, and that one first from then on
                for _ in range(4):
                    answer = ask(front, ids=[id], timeout=4.0)
                    assert (answer.status_code, answer.json()["seq"]) == (httpx.codes.OK, setting.seq)
            wanted = {"ids": [id], "timeout": REQUEST_SECONDS}
            waiting = [pool.submit(ask, address, path, **wanted) for path in PATHS for _ in "12"]
            wait_until(lambda: len(app.state.waiters) == len(waiting))
            health = loopback.get(address + "/v1/health")
            assert (health.status_code, health.json()["seq"]) == (503, 0)
            assert list(health.json()["reasons"]) == ["samples"]
            assert not any(one.done() for one in waiting)
            worker.stop()
            stopped = [(one.result().status_code, one.result().json()["type"]) for one in waiting]
            assert stopped == [(503, "/problems/process-stops")] * 4
    finally:
        worker.stop()
    with pytest.raises(TimeoutExpired, match="was stopped"):
        worker.wait(0)


def has_answer(connection: socket.socket) -> bool:
    asked = select.poll()
    asked.register(connection, select.POLLIN)
    return bool(asked.poll(0))


def test_requests_that_wait_leave_room_for_others(setting: Setting) -> None:
    """As many of them as an address may have at a time: more than a process has threads."""
    most, slow = 60, {"ids": list(range(NODES)), "min_seq": setting.seq + 1000, "timeout": REQUEST_SECONDS}
    with ExitStack() as opened:
        apps = [create_serving_app(worker, Access()) for worker in setting.workers]
        addresses = [opened.enter_context(served(app)) for app in apps]
        front = opened.enter_context(
            served(create_front(PLAN, [[one] for one in addresses], Access(requests_per_address=most)))
        )
        port = httpx.URL(front).port
        body = json.dumps(slow).encode()
        head = b"POST /v1/predictions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"

        def send() -> socket.socket:
            held = opened.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            held.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
            return held

        requests = [send() for _ in range(most)]

        def all_wait() -> bool:
            # One that a busy machine did not connect to one worker in time is sent again, and waits at the
            # other worker twice: a worker sees late, or never, that nobody wants an answer any more.
            for at, one in enumerate(requests):
                if has_answer(one):
                    one.close()
                    requests[at] = send()
            return all(len(app.state.waiters) >= most for app in apps)

        wait_until(all_wait)
        refused = ask(front, ids=[0])
        assert (refused.status_code, refused.json()["type"]) == (429, "/problems/address-busy")
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(transport=transport, timeout=PATIENCE) as other:
            for more in ({}, {"min_seq": setting.seq}):
                asked = {"ids": list(range(NODES)), **more}
                assert other.post(f"{front}/v1/predictions", json=asked).status_code == httpx.codes.OK
        assert all(len(app.state.waiters) >= most for app in apps)


def test_a_front_end_says_which_workers_answer_before_it_needs_them(setting: Setting) -> None:
    def health(front: str) -> httpx.Response:
        return loopback.get(front + "/v1/health")

    with ExitStack() as opened:
        going = opened.enter_context(ExitStack())
        first = going.enter_context(served(create_serving_app(setting.workers[0])))
        front = opened.enter_context(serving_front([[first], setting.addresses[1:]]))
        assert health(front).json() == {"workers": [[first], setting.addresses[1:]]}
        going.close()  # no request follows
        wait_until(lambda: health(front).status_code == httpx.codes.SERVICE_UNAVAILABLE)
        assert health(front).json() == {
            "workers": [[], setting.addresses[1:]],
            "reasons": {"worker 0": f"{first} does not answer"},
        }
        assert ask(front, ids=list(range(NODES))).status_code == httpx.codes.SERVICE_UNAVAILABLE


def test_a_front_end_says_why_a_worker_that_answers_is_not_ready(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = {"sampling": "worker 0 records no step", "log": "it cannot be read"}
    monkeypatch.setattr(setting.workers[0], "readiness", lambda: Readiness(why))
    told = f"{setting.addresses[0]} is not ready: sampling: worker 0 records no step, log: it cannot be read"
    with serving_front([[address] for address in setting.addresses]) as front:
        wait_until(lambda: loopback.get(front + "/readyz").status_code == httpx.codes.SERVICE_UNAVAILABLE)
        assert ask(front, ids=list(range(NODES))).status_code == httpx.codes.OK
        answer = loopback.get(front + "/readyz")
        assert (answer.status_code, answer.json()["reasons"]) == (503, {"worker 0": told})
        assert scrape(loopback.get(front + "/metrics").text)["livegnn_up"] == 0
        monkeypatch.undo()
        wait_until(lambda: loopback.get(front + "/readyz").status_code == httpx.codes.OK)


def test_workers_in_the_wrong_order_are_not_asked(setting: Setting) -> None:
    first, second = setting.addresses
    with serving_front([[second], [first]]) as front:
        wait_until(lambda: len(loopback.get(front + "/readyz").json().get("reasons", ())) == 2)
        found = loopback.get(front + "/readyz")
        assert found.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert found.json() == {
            "workers": [[], []],
            "reasons": {
                "worker 0": f"{second} is serving worker 1",
                "worker 1": f"{first} is serving worker 0",
            },
        }
        for path in PATHS:
            refused = ask(front, path, ids=list(range(NODES)))
            assert (refused.status_code, refused.json()["type"]) == (503, "/problems/worker-unavailable")
            assert "is serving worker" in refused.json()["detail"]
    with serving_front([[second, first], [second]]) as front:
        wait_until(lambda: loopback.get(front + "/readyz").json()["workers"] == [[first], [second]])
        assert loopback.get(front + "/readyz").status_code == httpx.codes.OK
        for _ in range(3):
            assert ask(front, ids=list(range(NODES))).status_code == httpx.codes.OK


@pytest.mark.parametrize("path", ["/v1/predictions", "/v2/models/engine/infer"])
def test_a_request_that_waits_in_vain_says_nothing_of_its_worker(setting: Setting, path: str) -> None:
    with serving_front([[address] for address in setting.addresses]) as front:
        if path.startswith("/v2"):
            content = {"inputs": [tensor_of([0, 1])], "parameters": {"min_seq": 10**9, "timeout": 1000}}
        else:
            content = {"ids": [0, 1], "min_seq": 10**9, "timeout": 0.001}
        refused = ask(front, path, **content)
        assert refused.status_code == httpx.codes.SERVICE_UNAVAILABLE, refused.text
        answer = loopback.get(front + "/readyz")
        assert (answer.status_code, answer.json()) == (200, {"workers": [[it] for it in setting.addresses]})


def test_errors_name_what_is_wrong(setting: Setting, front: str) -> None:
    for content, status, message in (
        ({"ids": [NODES + 5]}, 404, f"got {NODES + 5}, which is not there at event {setting.seq}"),
        ({"ids": ["a"]}, 400, "ids must be integers"),
        ({"ids": [1], "model": "other"}, 400, "has one model, got a request for 'other'"),
        ({"ids": [1], "output": "other"}, 400, "other"),
        ({"ids": [1], "more": 2}, 400, "more"),
        ({"ids": [1], "min_seq": setting.seq + 1, "timeout": 0.01}, 503, f"expected event {setting.seq + 1}"),
    ):
        answer = ask(front, **content)
        assert (answer.status_code, message in answer.json()["detail"]) == (status, True), answer.text
    waited = ask(front, ids=[1, 2, 3], min_seq=setting.seq + 1, timeout=1 / 300)
    assert re.search(r"within 0\.00\d seconds", waited.json()["detail"])  # of the rest of the time
    stranger = int(np.flatnonzero(PLAN.serving_worker_of(np.arange(NODES)) == 1)[0])
    answer = ask(setting.addresses[0], ids=[stranger])
    assert (answer.status_code, "seeds of serving worker 0" in answer.text) == (400, True)
    health = loopback.get(setting.addresses[0] + "/v1/health").json()
    assert (health["seq"], health["memory_bytes"] > 0) == (setting.seq, True)
    with pytest.raises(InputError, match="addresses for each of 2 serving workers"):
        create_front(PLAN, [[front]])


INFER = "/v2/models/engine/infer"


def tensor_of(ids: list[int]) -> dict[str, object]:
    return {"name": "ids", "shape": [len(ids)], "datatype": "INT64", "data": ids}


def infer(address: str, ids: list[int], **more: object) -> dict[str, np.ndarray]:
    """The outputs of an answer in JSON."""
    answer = loopback.post(address + INFER, json={"inputs": [tensor_of(ids)], **more})
    assert answer.status_code == httpx.codes.OK, answer.text
    outputs = answer.json()["outputs"]
    return {one["name"]: np.float32(one["data"]).reshape(one["shape"]) for one in outputs}


def test_all_outputs_of_the_model_are_sent_over_the_protocol(setting: Setting, front: str) -> None:
    mine = np.flatnonzero(PLAN.serving_worker_of(np.arange(NODES)) == 0).tolist()
    for address, ids in (
        (setting.addresses[0], [*mine, mine[0]]),
        (front, [*range(NODES), 3]),
        (front, mine[:1]),
        (front, []),
    ):
        found = infer(address, ids)
        assert list(found) == ["output", "hidden"]
        for name, rows in found.items():
            expected = setting.engine.predict(np.array(ids, np.int64), output=name)
            np.testing.assert_array_equal(rows, expected)
        (hidden,) = infer(address, ids, outputs=[{"name": "hidden"}]).items()
        assert hidden[0] == "hidden"
        np.testing.assert_array_equal(hidden[1], found["hidden"])


def test_an_answer_over_the_protocol_is_bounded(setting: Setting, front: str) -> None:
    mine = int(np.flatnonzero(PLAN.serving_worker_of(np.arange(NODES)) == 0)[0])
    for count, said in ((46_000, "at most, got 46,000 ids with 11 each"), (100_001, "100,000 ids at most")):
        asked = write_request(np.full(count, mine), None, 0, 10.0)
        for address in (setting.addresses[0], front):
            answer = loopback.post(address + INFER, content=asked.body, headers=asked.headers())
            assert answer.status_code == (413 if count == 46_000 else 400)
            assert said in answer.json()["error"]


def test_the_protocol_says_whether_a_process_is_ready(setting: Setting, front: str) -> None:
    for address in (setting.addresses[0], front):
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/engine/ready"):
            assert loopback.get(address + path).status_code == httpx.codes.OK
    with serving_front([[closed_address()], setting.addresses[1:]]) as half:
        assert loopback.get(half + "/v2/models/engine/ready").status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert loopback.get(half + "/v2/health/live").status_code == httpx.codes.OK
        assert loopback.get(half + "/v2/health/ready").status_code == httpx.codes.SERVICE_UNAVAILABLE
        refused = loopback.post(half + INFER, json={"inputs": [tensor_of(list(range(NODES)))]})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "expected serving worker 0" in refused.json()["error"]


def test_a_worker_without_a_model_has_none_to_describe(tmp_path: Path) -> None:
    SqliteLog(tmp_path / "events.db").close()
    worker = ServingWorker(SqlitePlace(tmp_path / "events.db"), PLAN, 0)
    with served(create_serving_app(worker)) as address:
        for path in ("/v2/models/engine", "/v2/models/engine/ready"):
            assert loopback.get(address + path).status_code == httpx.codes.NOT_FOUND
        refused = loopback.post(address + INFER, json={"inputs": [tensor_of([])]})
        assert (refused.status_code, refused.json()) == (
            404,
            {"error": "there is no model 'engine': this serving worker has no model"},
        )
        assert loopback.get(address + "/v2/health/ready").status_code == httpx.codes.SERVICE_UNAVAILABLE
    worker.stop()


def answer_with(version: str, rows: int) -> bytes:
    """The answer of a worker whose model has this version."""
    values = {"output": np.zeros((rows, 3), np.float32)}
    answer = write_infer(AnswerForm(binary=True), "engine", version, 7, values)
    head = {**answer.headers(), "connection": "close", "content-length": str(len(answer.body))}
    lines = ["HTTP/1.1 200 OK", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    return "\r\n".join(lines).encode() + answer.body


def test_answers_that_do_not_belong_together_are_not_joined(setting: Setting) -> None:
    ids = list(range(NODES))
    counts = np.bincount(PLAN.serving_worker_of(np.array(ids))).tolist()
    for first, second, said in (
        (answer_with("a", counts[0]), answer_with("b", counts[1]), "one model, got those of versions a, b"),
        (answer_with("a", 1), answer_with("a", counts[1]), "an answer of something else"),
        (answer_with("a", counts[0]), answer_with("a", counts[1]), None),
    ):
        with (
            stranger(first) as one,
            stranger(second) as other,
            serving_front([[one], [other]]) as front,
        ):
            answer = loopback.post(front + INFER, json={"inputs": [tensor_of(ids)]})
            assert answer.status_code == (200 if said is None else 503), answer.text
            assert said is None or said in answer.json()["error"]


def test_no_replica_answers(setting: Setting) -> None:
    with serving_front([[closed_address()], [closed_address()]]) as front:
        answer = ask(front, ids=[1])
        assert (answer.status_code, "expected serving worker" in answer.text) == (503, True)


def test_the_front_end_follows_where_workers_are(setting: Setting) -> None:
    """Both workers are where nobody answers, or nowhere, until a request waits for them; then they move."""
    known: list[list[list[str]]] = [[[closed_address()], []], [setting.addresses[:1], setting.addresses[1:]]]
    asked = threading.Event()

    def find() -> list[list[str]]:
        if len(known) > 1 and asked.is_set():
            known.pop(0)
        asked.set()
        return known[0]

    expected = setting.engine.predict(np.arange(NODES))
    with serving_front(find) as front:
        answer = ask(front, ids=list(range(NODES))).json()
        np.testing.assert_array_equal(np.float32(answer["predictions"]), expected)
        known.append([[closed_address()], [closed_address()]])
        known.append([setting.addresses[:1], setting.addresses[1:]])
        answer = ask(front, ids=list(range(NODES))).json()
        np.testing.assert_array_equal(np.float32(answer["predictions"]), expected)


def test_a_worker_that_says_nothing_is_left_when_it_is_replaced(setting: Setting) -> None:
    """As behind a cut network: it takes the request and never answers."""
    with listen("127.0.0.1", 0) as silent:
        known = [[f"http://127.0.0.1:{silent.getsockname()[1]}"], setting.addresses[1:]]
        replaced = [setting.addresses[:1], setting.addresses[1:]]
        silent.settimeout(PATIENCE)

        def find() -> list[list[str]]:
            return known

        with serving_front(find) as front:

            def replace() -> None:
                taken, _ = silent.accept()
                with taken:
                    assert taken.recv(1)
                    known[:] = replaced
                    asked.join()

            replacing = threading.Thread(target=replace)
            answers = []
            asked = threading.Thread(
                target=lambda: answers.append(ask(front, ids=list(range(NODES)), timeout=REQUEST_SECONDS))
            )
            asked.start()
            replacing.start()
            replacing.join()
        expected = setting.engine.predict(np.arange(NODES))
        np.testing.assert_array_equal(np.float32(answers[0].json()["predictions"]), expected)


def test_who_waits_for_a_worker_waits_no_longer_than_asked(setting: Setting) -> None:
    def find() -> list[list[str]]:
        raise OSError("nobody knows")

    with serving_front(find) as front:
        answer = ask(front, ids=[1], timeout=0.3)
        assert (answer.status_code, "expected serving worker" in answer.text) == (503, True)
    with serving_front(lambda: [[setting.addresses[0]]]) as front:
        assert ask(front, ids=[1], timeout=0.3).status_code == 503


def test_two_threads_that_stop_a_worker_return_when_it_has_ended(tmp_path: Path) -> None:
    """A process that ends while the other thread still closes its store would be aborted."""
    SqliteLog(tmp_path / "events.db").close()
    worker = ServingWorker(SqlitePlace(tmp_path / "events.db"), PLAN, 0)
    begun, may_end, order = threading.Event(), threading.Event(), list[str]()

    def close_slowly() -> None:
        begun.set()
        may_end.wait(PATIENCE)
        order.append("closed")

    worker._opened.callback(close_slowly)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(worker.stop)
        assert begun.wait(PATIENCE)
        second = pool.submit(lambda: (worker.stop(), order.append("returned")))
        with suppress(TimeoutError):
            second.result(0.2)
        may_end.set()
        first.result(PATIENCE)
        second.result(PATIENCE)
    assert order == ["closed", "returned"]
