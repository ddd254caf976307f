"""A server whose graph is in parts answers as one whose graph is in one piece, to the byte; it survives kills
of any of its processes; and it refuses what parts cannot do.
"""

import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

import loopback
from divided_deployment import write
from divided_streams import Stream
from faulty_world import History
from gate import draws
from livegnn import Events
from livegnn.deployment import Deployment
from livegnn.graph import EdgeSchema
from livegnn.log.sqlite import SqliteLog
from livegnn.placement import Owners
from processes import children, runs
from scraped import scrape
from serving import Server
from streams import WIDTH, make_model, make_stream
from waiting import PATIENCE, REQUEST_SECONDS, wait_until

APPEND = f"/v1/events?wait=true&timeout={REQUEST_SECONDS}"
LINES = {"content-type": "application/x-ndjson"}
KILLS = int(os.environ.get("LIVEGNN_KILLS", "2"))


def append(client: httpx.Client, events: Events) -> httpx.Response:
    return client.post(APPEND, content=events.to_json_lines(), headers=LINES)


def fill(client: httpx.Client) -> np.ndarray:
    """Twenty nodes and some edges; returns their ids."""
    ids, rng = np.arange(20), np.random.default_rng(0)
    events = Events().add_nodes(ids, rng.normal(size=(20, WIDTH)))
    events.add_edges(rng.choice(ids, 60), rng.choice(ids, 60), weight=rng.uniform(0.5, 2, 60))
    append(client, events).raise_for_status()
    return ids


def infer(ids: list[int]) -> dict[str, object]:
    return {"inputs": [{"name": "ids", "shape": [len(ids)], "datatype": "INT64", "data": ids}]}


def in_any_order(answer: httpx.Response) -> object:
    """The content of an answer; of a what-if, with the changed nodes sorted."""
    if b'"changed":' not in answer.content:
        return answer.content
    content = answer.json()
    return content | {"changed": sorted(content["changed"])}


def listed(events: Events) -> list[object]:
    return [json.loads(line) for line in events.to_json_lines().splitlines()]


def read_changes(lines: Iterator[str], up_to: int) -> list[tuple[object, ...]]:
    """The changes of a feed, up to the one of event `up_to`, each with its nodes sorted."""
    told: list[tuple[object, ...]] = []
    for line in lines:
        if not line.startswith("data: "):
            continue
        change = json.loads(line.removeprefix("data: "))
        if "affected" in change:
            nodes = sorted(zip(change["ids"], change["predictions"], strict=True))
            told.append((change["seq"], change["affected"], nodes, sorted(change["removed"])))
        if change["seq"] >= up_to:
            break
    return told


@pytest.mark.parametrize(
    ("partitions", "owners"),
    [
        (2, "fennel"),
        pytest.param(3, "jump", marks=pytest.mark.explored),
        pytest.param(1, "modulo", marks=pytest.mark.explored),
    ],
)
def test_answers_are_those_of_a_graph_in_one_piece(tmp_path: Path, partitions: int, owners: str) -> None:
    """Of events of all kinds, some of which name unknown nodes, or overflow and are refused."""
    files = write(tmp_path, "whole", log="whole.db"), write(tmp_path, "parts", partitions, owners=owners)
    stream = Stream(np.random.default_rng(partitions), EdgeSchema(weighted=True), False, False, 3e38)
    with ExitStack() as opened:
        servers = [opened.enter_context(Server(file)) for file in files]
        clients = [opened.enter_context(loopback.Client(base_url=one.address)) for one in servers]
        feeds = [opened.enter_context(one.stream("GET", "/v1/changes")).iter_lines() for one in clients]

        def ask_all(method: str, path: str, **sent: object) -> httpx.Response:
            """Sends a request to both servers, whose answers must be equal, and returns one."""
            one, other = (client.request(method, path, **sent) for client in clients)  # type: ignore[arg-type]
            assert (one.status_code, in_any_order(one)) == (other.status_code, in_any_order(other))
            return other

        ask_all("GET", "/v1/predictions/all")
        statuses = []
        for size in [30, *[4] * draws(40, 150)]:
            events, after = stream.next(size)
            said = ask_all("POST", APPEND, content=events.to_json_lines(), headers=LINES)
            statuses.append(said.status_code)
            if said.status_code == 200:
                stream.present = after
            ids = [int(one) for one in stream.present]
            if not len(statuses) % 8:
                supposed, _ = stream.next(4)
                asked = {"events": listed(supposed), "ids": ids[:9]}
                ask_all("POST", "/v1/what-if", json=asked)
            ask_all("POST", "/v1/predictions", json={"ids": ids})
            ask_all("POST", "/v2/models/engine/infer", json=infer(ids))
        assert {200, 409} <= set(statuses) <= {200, 400, 404, 409}
        seq = ask_all("GET", "/readyz").json()["seq"]
        path = f"/v1/predictions?ids=1&min_seq={seq + 1}"
        refused = ask_all("GET", f"{path}&timeout=0.05").json()
        assert refused["type"] == "/problems/timeout"
        ask_all("POST", APPEND, json={"events": [{"event": "add_edge", "src": 900, "dst": 901}]})
        assert ask_all("GET", f"/v1/predictions?ids=900,901&min_seq={seq + 1}").status_code == 200
        for path in (
            "/v1/predictions/all",
            "/v1/predictions/all?since=0",
            f"/v1/predictions/all?since={seq}",
            "/v1/predictions?ids=1,2,12345",
            "/v1/predictions?ids=1&output=other",
            "/v1/rejections",
            "/v1/models",
            "/v2/models/engine",
            "/readyz",
        ):
            ask_all("GET", path)
        whole, parts = (read_changes(feed, seq + 1) for feed in feeds)
        assert whole == parts
        assert len(parts) > 10
        alone, metrics = (scrape(client.get("/metrics").text) for client in clients)
        assert metrics["livegnn_up"] == 1
        edges = 'livegnn_edges{edge_type="node,to,node"}'
        assert metrics[edges] == alone[edges] > 0
        cut = metrics['livegnn_cut_edges{edge_type="node,to,node"}']
        assert (0 < cut < metrics[edges]) if partitions > 1 else cut == 0
        assert 1 <= metrics['livegnn_part_balance{node_type="node"}'] <= partitions
        assert (metrics['livegnn_exchanged_bytes_total{part="0"}'] > 0) is (partitions > 1)
        assert not [name for name in alone if re.match("livegnn_(cut|part|exchanged)", name)]
        assert metrics['livegnn_memory_bytes{part="part 0: ids of node"}'] > 0
        for server in servers:
            assert server.stop() == 0


def test_what_parts_cannot_do_is_a_problem(tmp_path: Path) -> None:
    headers = {"content-type": "application/octet-stream"}
    with (
        Server(write(tmp_path, "parts", 2)) as server,
        loopback.Client(base_url=server.address) as client,
    ):
        fill(client)
        for answer in (
            client.get("/v1/explain?id=1&since=0"),
            client.get("/v1/neighbors?id=1"),
            client.put("/v1/models/other", content=(tmp_path / "model.lgnn").read_bytes(), headers=headers),
            client.get("/v1/models/engine/comparison"),
        ):
            assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-input")
            assert "in one piece" in answer.json()["detail"]
        samples = client.post("/v1/samples", json={"ids": [1]})
        assert (samples.status_code, "answers from samples" in samples.text) == (400, True)
        assert client.get("/readyz").status_code == 200
        assert server.stop() == 0
    verified = subprocess.run(
        [sys.executable, "-m", "livegnn", "verify", str(tmp_path / "parts.toml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 1
    assert "in one piece" in verified.stderr
    assert "Traceback" not in verified.stderr


def kill_a_part(server: Server) -> int:
    """Kills the process of a part as `kill -9` does; returns its number, when the server has noticed."""
    workers = sorted(children(server.process.pid))
    os.kill(workers[-1], signal.SIGKILL)
    lost: list[str] = []

    def noticed() -> bool:
        answer = loopback.get(f"{server.address}/readyz")
        lost.append(answer.json().get("reasons", {}).get("predictor", ""))
        return answer.status_code == 503

    wait_until(noticed, "that the server is not ready")
    (number,) = re.findall(r"^part (\d) must answer, got the end of its process, with -9$", lost[-1])
    return int(number)


def predictions_of_one_engine(directory: Path) -> tuple[int, np.ndarray, bytes]:
    """The event, all ids and their predictions, from the batches of the log on a graph in one piece."""
    runtime = Deployment.read(write(directory, "whole")).open()
    try:
        ids = runtime.graph.ids()
        return runtime.seq, ids, runtime.engine.predict(ids).tobytes()
    finally:
        runtime.stop()
        runtime.log.close()


def check_restart(directory: Path, deployment: Path, acknowledged: int) -> None:
    """The next server has everything that was acknowledged, with the bits of one engine."""
    with Server(deployment) as server, loopback.Client(base_url=server.address) as client:
        request = {"ids": [], "min_seq": acknowledged, "timeout": REQUEST_SECONDS}
        client.post("/v1/predictions", json=request).raise_for_status()
        assert client.get("/readyz").status_code == 200
        ids = np.unique(np.concatenate([np.arange(20), read_ids(client)]))
        there = [int(one) for one in ids if client.get(f"/v1/predictions?ids={one}").status_code == 200]
        answer = client.post("/v1/predictions", json={"ids": there}).json()
        assert server.stop() == 0
    seq, ids, expected = predictions_of_one_engine(directory)
    assert (answer["seq"], sorted(answer["ids"])) == (seq, sorted(ids.tolist()))
    order = {one: at for at, one in enumerate(answer["ids"])}
    rows = np.array(answer["predictions"], np.float32)[[order[one] for one in ids.tolist()]]
    assert rows.tobytes() == expected


def read_ids(client: httpx.Client) -> np.ndarray:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.ipc.open_stream(client.get("/v1/predictions/all").content).read_all()
    return np.array(table["id"])


def test_a_lost_part_is_no_wrong_answer(tmp_path: Path) -> None:
    """Reads of other parts go on; those of the lost one, and batches, fail until the next start."""
    deployment = write(tmp_path, "parts", 2, when_failed="wait")
    owners = Owners("jump", 2)
    with Server(deployment) as server, loopback.Client(base_url=server.address) as client:
        ids = fill(client)
        before = client.post("/v1/predictions", json={"ids": ids.tolist()}).json()
        gone = ids[owners.of_id(ids) == kill_a_part(server)].tolist()
        held = sorted({*ids.tolist()} - {*gone})
        assert gone
        assert held

        def check_reads() -> None:
            answer = client.post("/v1/predictions", json={"ids": held})
            assert answer.json()["predictions"] == [before["predictions"][one] for one in held]
            for asked in ({"ids": gone}, {"ids": ids.tolist()}):
                answer = client.post("/v1/predictions", json=asked)
                assert (answer.status_code, answer.json()["type"]) == (503, "/problems/worker-unavailable")
                assert re.search("part [01] must answer", answer.json()["detail"])
            answer = client.post("/v2/models/engine/infer", json=infer(gone))
            assert answer.status_code == 503
            assert client.get("/metrics").status_code == 200

        check_reads()
        event = {"event": "set_features", "id": held[0], "x": [1.0] * WIDTH}
        answer = client.post(APPEND, json={"events": [event]})
        assert answer.status_code == 202
        wait_until(lambda: "loop" in client.get("/readyz").json()["reasons"])
        assert "part" in client.get("/readyz").json()["reasons"]["loop"]
        check_reads()
        assert client.post("/v1/events", json={"events": [event]}).status_code == 503
        server.stop()
    check_restart(tmp_path, deployment, before["seq"] + 1)


def test_a_server_that_lost_a_part_ends_with_the_next_batch(tmp_path: Path) -> None:
    with Server(write(tmp_path, "parts", 2), stderr=subprocess.PIPE) as server:
        with loopback.Client(base_url=server.address) as client:
            fill(client)
            workers = children(server.process.pid)
            number = kill_a_part(server)
            client.post("/v1/events", json={"events": [{"event": "add_node", "id": 77}]})
        _, said = server.process.communicate(timeout=PATIENCE)
        assert server.process.returncode == 1
        assert re.search(
            rf"error: the runtime ended at event 80: .*part {number} must answer", said.splitlines()[-1]
        )
    wait_until(lambda: not any(map(runs, workers)), "that all processes of parts end")


class Writer:
    """A thread that appends until `stop`, each entry with a key, again until it is answered."""

    def __init__(self, history: History, seed: int) -> None:
        self._history, self._seed, self._address, self._stopping = history, seed, "", False
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def move(self, address: str, *, stopping: bool = False) -> None:
        """The server is there now."""
        with self._moved:
            self._address, self._stopping = address, stopping
            self._moved.notify_all()

    def stop(self) -> None:
        self.move("", stopping=True)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        assert not self._history.failures

    def _run(self) -> None:
        try:
            with loopback.Client() as client:
                for seed in itertools.count(self._seed):
                    for at, events in enumerate(make_stream(300, seed=seed)):
                        if not self._send_until_told(client, f"{seed}/{at}", events):
                            return
        except BaseException as error:
            self._history.fail(error)

    def _send_until_told(self, client: httpx.Client, key: str, events: Events) -> bool:
        """Whether it was told before `stop`."""
        self._history.send(key, events)
        while True:
            with self._moved:
                self._moved.wait_for(lambda: self._address or self._stopping, PATIENCE)
                address = self._address
            if self._stopping:
                return False
            if self._send(client, address, key, events):
                return True
            with self._moved:  # the next one begins at another port
                self._moved.wait_for(lambda address=address: self._address != address, 1)

    def _send(self, client: httpx.Client, address: str, key: str, events: Events) -> bool:
        headers = {**LINES, "idempotency-key": key}
        try:
            answer = client.post(f"{address}/v1/events", content=events.to_json_lines(), headers=headers)
        except httpx.TransportError:
            return False
        if answer.status_code == 503:  # the loop has ended, and the process does now
            return False
        self._history.tell(key, answer.raise_for_status().json()["seq"])
        return True


def test_no_kill_loses_what_was_acknowledged(tmp_path: Path) -> None:
    """Of the server, or of a part. Every start has another number of parts. With checkpoints, a lost part is
    replaced; without them, the server ends."""
    draw, history = random.Random(0), History()
    writer = Writer(history, seed=3)
    more = '[checkpoint]\ndirectory = "checkpoints"\nevery_events = 60\n'
    deployment = write(tmp_path, "parts", 2)
    try:
        for life in range(1 + KILLS):
            owners, given = [("fennel", ""), ("jump", more), ("modulo", more)][life % 3]
            deployment = write(tmp_path, "parts", 1 + life % 3, owners=owners, more=given)
            with Server(deployment) as server:
                writer.move(server.address)
                history.wait_for(len(history.told) + draw.randrange(20, 150))
                workers = sorted(children(server.process.pid))
                victim = draw.choice(workers) if life % 2 else server.process.pid
                os.kill(victim, signal.SIGKILL)
                if victim in workers and given:  # it is replaced
                    history.wait_for(len(history.told) + draw.randrange(20, 150))
                    wait_until(
                        lambda server=server: loopback.get(f"{server.address}/readyz").status_code == 200
                    )
                    wait_until(lambda workers=workers: not any(map(runs, workers)), "that old parts end")
                    os.kill(server.process.pid, signal.SIGKILL)
                server.process.wait(PATIENCE)
                server.kill()
            wait_until(lambda workers=workers: not any(map(runs, workers)), "that all parts end")
    finally:
        writer.stop()
    log = SqliteLog(tmp_path / "events.db")
    history.check(log)
    log.close()
    check_restart(tmp_path, deployment, history.last())


def test_signals_to_all_processes_end_a_server_cleanly(tmp_path: Path) -> None:
    """As a terminal or systemd sends them."""
    with Server(write(tmp_path, "parts", 2), stderr=subprocess.PIPE) as server:
        with loopback.Client(base_url=server.address) as client:
            fill(client)
        workers = children(server.process.pid)
        assert len(workers) == 2
        for process in workers:
            os.kill(process, signal.SIGINT)
            os.kill(process, signal.SIGTERM)
        assert loopback.get(f"{server.address}/v1/predictions?ids=1").status_code == 200
        assert server.stop() == 0
        assert server.process.stderr is not None
        assert "Traceback" not in server.process.stderr.read()
        server.process.stderr.close()
    assert not any(map(runs, workers))


def test_the_model_of_the_tests_reads_neighbors() -> None:
    """Otherwise equal predictions would say little about rows that parts exchange."""
    assert sum(step.op == "propagate" for step in make_model().steps) > 1


def test_a_part_that_stands_still_is_lost(tmp_path: Path) -> None:
    """As `kill -STOP` leaves it: nobody asks it, and the server notices."""
    with Server(write(tmp_path, "parts", 2, when_failed="wait", silent_seconds=3)) as server:
        with loopback.Client(base_url=server.address) as client:
            fill(client)
            frozen = max(children(server.process.pid))
            os.kill(frozen, signal.SIGSTOP)
            wait_until(lambda: client.get("/readyz").status_code == 503, "that the server is not ready")
            assert "got nothing for" in client.get("/readyz").json()["reasons"]["predictor"]
            statuses = [client.get(f"/v1/predictions?ids={one}").status_code for one in range(20)]
            assert {*statuses} == {200, 503}
        server.stop()
    wait_until(lambda: not runs(frozen))


def test_a_read_sees_all_parts_at_one_event(tmp_path: Path) -> None:
    """Each batch gives all nodes the same features, and so the same predictions."""
    ids = np.arange(30)
    with Server(write(tmp_path, "parts", 3)) as server:
        with loopback.Client(base_url=server.address) as client:
            append(client, Events().add_nodes(ids, np.zeros((30, WIDTH)))).raise_for_status()
            stopping = threading.Event()
            writing = threading.Thread(target=overwrite, args=(server.address, ids, stopping))
            writing.start()
            try:
                seen = set()
                while len(seen) < draws(30, 300):
                    answer = client.post("/v1/predictions", json={"ids": ids.tolist()}).json()
                    seen.add(answer["seq"])
                    assert answer["seq"] % 30 == 0
                    assert answer["predictions"] == [answer["predictions"][0]] * 30
            finally:
                stopping.set()
                writing.join(PATIENCE)
        assert server.stop() == 0


def overwrite(address: str, ids: np.ndarray, stopping: threading.Event) -> None:
    with loopback.Client(base_url=address) as client:
        for value in itertools.count(1):
            if stopping.is_set():
                return
            append(client, Events().set_features(ids, np.full((len(ids), WIDTH), value / 7)))


def test_the_parts_of_a_killed_server_end_at_once(tmp_path: Path) -> None:
    """Not only when they have found it silent."""
    with Server(write(tmp_path, "parts", 2, silent_seconds=10.0 * PATIENCE)) as server:
        workers = children(server.process.pid)
        server.kill()
    wait_until(lambda: not any(map(runs, workers)), "that all parts end")
