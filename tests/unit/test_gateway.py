"""How a gateway spreads requests: the order of nodes, and real nodes that refuse, stop and die."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

import loopback
from functions import ENVIRONMENT, FAIL, HANG, asked, body, expected
from livegnn.errors import InputError, OverloadedError, StoreUnavailableError
from livegnn.functions import gateway
from livegnn.functions.bodies import Answer, answer_error
from livegnn.functions.gateway import Gateway, Spread
from waiting import PATIENCE, until


def test_round_robin_takes_turns() -> None:
    spread = Spread(3, "round-robin")
    assert [spread.order(0.0) for _ in range(4)] == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]


def test_the_least_loaded_comes_first_and_equals_take_turns() -> None:
    spread = Spread(3, "least-loaded")
    spread.load[:] = [2, 0, 0]
    assert spread.order(0.0) == [1, 2, 0]
    assert spread.order(0.0) == [1, 2, 0]
    assert spread.order(0.0) == [2, 1, 0]


def test_a_node_that_cannot_be_reached_is_left_out_for_a_while() -> None:
    spread = Spread(2, "round-robin")
    spread.failed(0, 10.0)
    spread.failed(0, 10.5)  # of a request that was on its way
    assert [spread.order(10.9) for _ in range(2)] == [[1], [1]]
    assert spread.order(11.0) == [0, 1]
    spread.failed(0, 11.0)
    assert spread.order(12.9) == [1]
    assert sorted(spread.order(13.0)) == [0, 1]
    for hundreds in range(1, 11):
        spread.failed(0, 100.0 * hundreds)
    assert spread.order(1029.9) == [1]
    assert len(spread.order(1030.0)) == 2, "half a minute at most"
    spread.failed(0, 2000.0)
    spread.failed(1, 2000.0)
    assert sorted(spread.order(2000.1)) == [0, 1], "if all are left out, all are asked"
    spread.reached(1)
    assert spread.order(2000.1) == [1]


def test_a_node_may_be_away_for_days() -> None:
    spread, now = Spread(2, "round-robin"), 0.0
    for _ in range(3000):
        spread.failed(0, now)
        assert spread.order(now + 0.5) == [1]
        now += 30.0
        assert sorted(spread.order(now)) == [0, 1]


@pytest.mark.parametrize("policy", ["round-robin", "least-loaded"])
def test_every_order_begins_with_each_node_in_turn(policy) -> None:
    spread = Spread(5, policy)
    firsts = [spread.order(0.0)[0] for _ in range(50)]
    assert np.bincount(firsts).tolist() == [10] * 5


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InputError, match="at least one address"):
        Gateway([])
    for address in ("localhost:80", "nonsense", "http://", ""):
        with pytest.raises(InputError, match="a node must be an address such as"):
            Gateway(["http://127.0.0.1:1", address])
    with pytest.raises(InputError, match="round-robin"):
        Gateway(["http://127.0.0.1:1"], "random")  # type: ignore[arg-type]


class Process:
    """`livegnn function` as a process that says where it listens."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "livegnn.cli", "function", *words, "--port", "0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **ENVIRONMENT}
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "listens at http://" in line, line
        self.address = line.split()[-1]

    def stop(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()


class NodeProcess(Process):
    def __init__(self, folder: Path, *words: str) -> None:
        folder.mkdir()
        self.folder = folder
        super().__init__(
            *("serve", "--snapshot", str(folder), "--model", "none", "--opener", "functions:open_snapshot"),
            *words,
        )


@pytest.fixture
def started() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.stop()


def post(address: str, content: bytes) -> httpx.Response:
    headers = {"content-type": "application/json"}
    return loopback.post(f"{address}/v1/predictions", content=content, headers=headers)


def test_real_nodes(tmp_path, started) -> None:
    nodes = [NodeProcess(tmp_path / f"node{n}", "--workers", "1", "--waiting", "0") for n in range(3)]
    started += nodes
    front = Process("gateway", *(node.address for node in nodes))
    started.append(front)

    def counts(id: int) -> list[int]:
        return [len(asked(node.folder, id)) for node in nodes]

    for _ in range(3):  # each node gets one
        answer = post(front.address, body(3, 9))
        assert answer.status_code == 200
        assert np.allclose(answer.json()["predictions"], expected(3, 9), atol=1e-5)
    assert counts(3) == [1, 1, 1]

    async def refuse() -> None:
        """Nodes that take one request each: a fourth one is refused by all, after it was passed on."""
        async with httpx.AsyncClient(timeout=PATIENCE) as client:

            def ask(content: bytes) -> asyncio.Task[httpx.Response]:
                headers = {"content-type": "application/json"}
                url = f"{front.address}/v1/predictions"
                return asyncio.create_task(client.post(url, content=content, headers=headers))

            first = ask(body(HANG))
            await until(lambda: sum(counts(HANG)) == 1)
            busy = counts(HANG).index(1)
            for _ in range(3):  # one of them comes to the busy node first, and goes on
                assert (await ask(body(5))).status_code == 200
            assert counts(5)[busy] == 0
            others = [ask(body(HANG)) for _ in range(2)]
            await until(lambda: sum(counts(HANG)) == 3)
            refused = await ask(body(6))
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert refused.json()["error"]["type"] == "OverloadedError"
            for node in nodes:
                (node.folder / "go on").touch()
            for one in (first, *others):
                assert (await one).status_code == 200

    asyncio.run(refuse())

    # What is wrong with a request is no reason to ask another node.
    assert post(front.address, b"{").status_code == 400
    assert post(front.address, body(1000)).status_code == 404
    assert sum(counts(1000)) == 1
    assert post(front.address, body(FAIL)).status_code == 500
    assert sum(counts(FAIL)) == 1

    nodes[1].stop()
    before = counts(7)
    for _ in range(6):
        assert post(front.address, body(7)).status_code == 200
    assert counts(7)[1] == before[1]
    health = loopback.get(f"{front.address}/v1/health")
    assert health.status_code == 200
    states = list(health.json()["nodes"].values())
    assert [state == "ok" for state in states] == [True, False, True]
    text = loopback.get(f"{front.address}/metrics").text
    unreached = [line for line in text.splitlines() if line.startswith("livegnn_gateway_unreached_total")]
    assert [int(line.split()[-1]) > 0 for line in unreached] == [False, True, False]

    for node in (nodes[0], nodes[2]):
        node.stop()
    lost = post(front.address, body(7))
    assert (lost.status_code, lost.json()["error"]["type"]) == (503, "NoNode")
    assert loopback.get(f"{front.address}/v1/health").status_code == 503


def test_a_node_that_does_not_answer_in_time_is_no_reason_to_ask_another(monkeypatch) -> None:
    """The time of the request is over."""
    monkeypatch.setattr(gateway, "_BEYOND", 0.05)

    async def work() -> None:
        silent = asyncio.Event()

        async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await silent.wait()
            writer.close()

        server = await asyncio.start_server(wait, "127.0.0.1", 0, family=socket.AF_INET)
        port = server.sockets[0].getsockname()[1]
        through = Gateway([f"http://127.0.0.1:{port}", f"http://localhost:{port}"])
        answer = await through.predict(body(1, timeout=0.05))
        assert (answer.status, json.loads(answer.body)["error"]["type"]) == (503, "TimeoutExpired")
        text = (await through.report_metrics()).body.decode()
        assert [int(line[-1]) for line in text.splitlines() if "sent_total{" in line] == [1, 0]
        silent.set()
        await through.close()
        server.close()
        await server.wait_closed()

    asyncio.run(work())


def test_nodes_have_the_time_of_a_request_together() -> None:
    """One answers for ever; another one breaks the connection when time is over, and no third is asked."""
    now = [0.0]

    async def go_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(b"1\r\n[\r\n")
                await writer.drain()
                await asyncio.sleep(0)

    async def break_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        now[0] += 10.0
        writer.close()

    async def work(serve: Callable[..., Awaitable[None]], timeout: float) -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, family=socket.AF_INET)
        port = server.sockets[0].getsockname()[1]
        through = Gateway([f"http://127.0.0.1:{port}", f"http://localhost:{port}"], clock=lambda: now[0])
        async with asyncio.timeout(PATIENCE):
            answer = await through.predict(body(1, timeout=timeout))
        error = json.loads(answer.body)["error"]
        assert (answer.status, error["type"]) == (503, "TimeoutExpired")
        assert f"answered within {timeout:g} seconds" in error["message"]
        text = (await through.report_metrics()).body.decode()
        assert [int(line[-1]) for line in text.splitlines() if "sent_total{" in line] == [1, 0]
        await through.close()
        server.close()

    asyncio.run(work(go_on, 0.05))
    asyncio.run(work(break_late, 10.0))


def test_a_store_that_is_away_is_no_reason_to_ask_another_node() -> None:
    """It answers 503 with `retry-after`, as a node that has too much to do, which is passed over."""

    def answering(found: Answer) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            headers = {**found.headers(), "connection": "close", "content-length": len(found.body)}
            lines = [f"HTTP/1.1 {found.status} No", *(f"{name}: {value}" for name, value in headers.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode() + found.body)
            writer.close()

        return answer

    async def work() -> None:
        refusals = [answer_error(error) for error in (OverloadedError("full"), StoreUnavailableError("away"))]
        servers = [
            await asyncio.start_server(answering(one), "127.0.0.1", 0, family=socket.AF_INET)
            for one in (*refusals, refusals[1])
        ]
        addresses = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
        through = Gateway(addresses)
        assert await through.predict(body(1)) == refusals[1]
        text = (await through.report_metrics()).body.decode()
        assert [int(line[-1]) for line in text.splitlines() if "sent_total{" in line] == [1, 1, 0]
        assert [int(line[-1]) for line in text.splitlines() if "refused_total{" in line] == [1, 0, 0]
        await through.close()
        for server in servers:
            server.close()

    asyncio.run(work())


def test_a_node_that_breaks_the_connection_is_passed_over() -> None:
    """A server that takes a request and closes, beside one that answers."""

    async def work() -> None:
        async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.close()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            content = json.dumps({"seq": 1, "ids": [], "predictions": []}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(content))
            writer.write(content)
            writer.close()

        servers = [
            await asyncio.start_server(one, "127.0.0.1", 0, family=socket.AF_INET) for one in (close, answer)
        ]
        addresses = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
        through = Gateway(addresses, clock=lambda: 0.0)
        for _ in range(4):
            assert (await through.predict(body())).status == 200
        text = (await through.report_metrics()).body.decode()
        assert f'sent_total{{node="{addresses[0]}"}} 1\n' in text
        assert f'unreached_total{{node="{addresses[0]}"}} 1\n' in text
        await through.close()
        assert (await through.predict(body())).status == 503
        for server in servers:
            server.close()
            await server.wait_closed()

    asyncio.run(work())
