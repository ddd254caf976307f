"""`livegnn cluster front` answers as the server of the parts does, to the byte; also while the server is
suspended, and after it was killed and started again.
"""

import asyncio
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

import zmq.asyncio
from test_divided_server import APPEND, LINES, append, fill

import loopback
from divided_deployment import write
from front_reading import fronts
from livegnn import Engine, Events, Graph
from livegnn.channels.admission import Keys
from livegnn.channels.errors import DeadLinkError
from livegnn.channels.plan import Peer
from livegnn.channels.requester import Requester
from livegnn.partitions.direct_reads import Question
from livegnn.partitions.places import read_places
from livegnn.partitions.processes import CommandHosts, Place
from livegnn.partitions.remote import RemotePartitions
from livegnn.placement import Owners
from scraped import scrape
from serving import Server
from streams import make_arrays, make_model, make_stream
from waiting import PATIENCE, wait_until
from worker_commands import Process

FRONTS = 'fronts = "fronts.json"\n'
REFUSED = [
    "?ids=1,2,12345",
    "?ids=1&output=other",
    "?ids=1&model=other",
    "?ids=one",
    "?ids=-1",
    "?ids=01",
    "?ids=",
    "?ids=1&min_seq=1000000&timeout=0.05",
    "?ids=1&min_seq=-1",
    "?ids=1&timeout=0",
    "?ids=1&unknown=2",
    "",
]
BODIES = [
    b"{}",
    b"[1]",
    b'{"ids": ["a"]}',
    b'{"ids": [1], "min_seq": 1000000, "timeout": 0.05}',
    b'{"ids": [1], "ids": [2]}',
    b'{"ids": [1.5]}',
    b'{"ids": [99999]}',
    b'{"ids": [9223372036854775808]}',
    b'{"ids": [' + b"1," * 100_000 + b"1]}",
]


@contextmanager
def front_of(deployment: Path) -> Iterator[httpx.Client]:
    """A front, which is stopped in the end."""
    process = Process("front", deployment, "--port", 0, app="cluster")
    try:
        assert "the front listens at http://" in process.line
        with loopback.Client(base_url=process.line.split()[-1]) as client:
            yield client
    finally:
        assert process.stop() == 0


def until_ready(client: httpx.Client) -> None:
    wait_until(lambda: client.get("/readyz").status_code == 200, "that all parts answer the front")


def test_a_front_answers_as_the_server_does(tmp_path: Path) -> None:
    deployment = write(tmp_path, "parts", 2, cluster=FRONTS)
    with (
        Server(deployment) as server,
        front_of(deployment) as front,
        loopback.Client(base_url=server.address) as client,
    ):
        until_ready(front)

        def ask_both(method: str, path: str, **sent: object) -> httpx.Response:
            one, other = (to.request(method, path, **sent) for to in (client, front))  # type: ignore[arg-type]
            assert (one.status_code, one.content) == (other.status_code, other.content), (path, sent)
            for name in ("content-type", "retry-after"):
                assert one.headers.get(name) == other.headers.get(name)
            return other

        ids = fill(client).tolist()
        seq = front.get("/readyz").json()["seq"]
        for events in make_stream(10, num_nodes=20):
            answer = client.post(APPEND, content=events.to_json_lines(), headers=LINES)
            seq = answer.json().get("seq", seq)
            request = {"ids": ids[:7], "min_seq": seq}
            ask_both("POST", "/v1/predictions", json=request)
        ask_both("GET", f"/v1/predictions?ids={','.join(map(str, ids[:5]))}&ids=7&min_seq={seq}")
        ask_both("GET", f"/v1/predictions?ids=3&output=output&model=engine&min_seq={seq}")
        assert ask_both("POST", "/v1/predictions", json={"ids": []}).json()["predictions"] == []
        assert ask_both("HEAD", "/v1/predictions?ids=3").status_code == 200
        for query in REFUSED:
            assert ask_both("GET", f"/v1/predictions{query}").status_code >= 400
        for body in BODIES:
            sent = {"content": body, "headers": {"content-type": "application/json"}}
            assert ask_both("POST", "/v1/predictions", **sent).status_code >= 400
        ask_both("GET", "/livez")
        assert front.get("/readyz").json() == {"status": "ok", "seq": seq, "parts": [True, True]}
        assert front.post("/v1/events", json={"events": []}).status_code == 404
        metrics = scrape(front.get("/metrics").text)
        assert (metrics["livegnn_up"], metrics["livegnn_seq"]) == (1, seq)
        assert metrics['livegnn_answering_parts{part="1"}'] == 1
        assert server.stop() == 0
        assert not (tmp_path / "fronts.json").exists()


def test_a_front_of_a_server_that_is_suspended_and_killed(tmp_path: Path) -> None:
    """It is started before the server, and again finds the parts of the next one."""
    deployment = write(tmp_path, "parts", 2, cluster=FRONTS)
    with front_of(deployment) as front:
        asked = {"ids": list(range(20))}
        answer = front.post("/v1/predictions", json=asked)
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/worker-unavailable")
        assert "parts" in front.get("/readyz").json()["reasons"]
        with Server(deployment) as server, loopback.Client(base_url=server.address) as client:
            fill(client)
            until_ready(front)
            before = front.post("/v1/predictions", json=asked | {"min_seq": 80}).content
            server.process.send_signal(signal.SIGSTOP)
            assert front.post("/v1/predictions", json=asked).content == before
            server.kill()
        wait_until(lambda: front.get("/readyz").status_code == 503, "that the parts end with their server")
        answer = front.post("/v1/predictions", json=asked)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        with Server(deployment) as server, loopback.Client(base_url=server.address) as client:
            until_ready(front)
            assert front.post("/v1/predictions", json=asked | {"min_seq": 80}).content == before
            append(client, Events().remove_nodes([0])).raise_for_status()
            assert front.post("/v1/predictions", json=asked | {"min_seq": 81}).status_code == 404


def test_a_front_of_parts_over_tcp_needs_their_key(tmp_path: Path) -> None:
    """Which the file has. It is for its owner alone."""
    file = tmp_path / "fronts.json"
    hosts = CommandHosts("127.0.0.1", [Place("127.0.0.2"), Place("127.0.0.3")])
    graph = Graph.from_edges(**make_arrays())
    engine, ids = Engine(graph, make_model(), threads=1), np.arange(40)
    parts = RemotePartitions.from_graph(
        graph, make_model(), Owners("jump", 2), threads=1, hosts=hosts, fronts=file
    )
    try:
        assert not file.exists(), "they are not announced"
        parts.announce()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with fronts(file) as (reader,):
            assert reader.predict(ids).values.tobytes() == engine.predict(ids).tobytes()
            parts.apply(Events().set_features([3], np.ones((1, 4))), seq=1)
            graph.apply(Events().set_features([3], np.ones((1, 4))), seq=1)
            assert reader.predict(ids, min_seq=1).values.tobytes() == engine.predict(ids).tobytes()
        found = read_places(file, None)
        assert found is not None
        place = found.places.parts[0]
        asyncio.run(ask_with(Keys.create(), Peer(address=place.address, key=place.key), refused=True))
        assert found.places.keys is not None
        own = Keys(found.places.keys.public, found.places.keys.secret)
        asyncio.run(ask_with(own, Peer(address=place.address, key=Keys.create().public), refused=True))
        asyncio.run(ask_with(own, Peer(address=place.address, key=place.key), refused=False))
    finally:
        parts.close()
    assert not file.exists()


async def ask_with(keys: Keys, peer: Peer, *, refused: bool) -> None:
    with zmq.asyncio.Context() as context:
        requester = Requester(0, peer, keys, context)
        question = Question(None, 0, 0.0, np.arange(3)).pack()
        try:
            if refused:
                with pytest.raises(DeadLinkError):
                    await requester.ask(question, 0.5)
            else:
                await requester.ask(question, PATIENCE)
        finally:
            requester.close()
