"""Small requests that a front end passes on, against one whose framework does it; workers that answer
wrongly, late or not at all."""

import asyncio
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx
import numpy as np
import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

import loopback
from http_connections import JSON, MINE, answers, body, cut, cut_at, sized, some_requests
from livegnn.workers import relay as relay_module
from livegnn.workers.app import server_config, serving_config
from livegnn.workers.front import create_front, front_config
from livegnn.workers.relay import Relay
from serving_workers import NODES, PLAN, Setting, served

SMALL = sized(body(MINE[:1]), JSON)
WAITING = sized(body(MINE[:1], min_seq=1), JSON)  # which is for the application, and right


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with ExitStack() as opened:
        yield Setting(tmp_path_factory.mktemp("workers"), opened)


def plain_config(addresses: list[list[str]]) -> uvicorn.Config:
    """A front end that parses all."""
    config = server_config(create_front(PLAN, addresses))
    config.http = HttpToolsProtocol
    config.load()
    return config


def relaying_config(addresses: list[list[str]]) -> uvicorn.Config:
    config = front_config(create_front(PLAN, addresses))
    config.load()
    return config


def relay_of(config: uvicorn.Config) -> Relay:
    return config.app.state.relay  # type: ignore[no-any-return, union-attr]


def relayed(config: uvicorn.Config, pieces: list[bytes], addresses: list[str], **more: object) -> bytes:
    """What a front end writes that has links to these addresses."""

    async def linked() -> None:
        while not set(addresses) <= set(relay_of(config).linked):  # noqa: ASYNC110
            await asyncio.sleep(0)

    return answers(config, pieces, ready=linked, **more)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(some_requests(), min_size=1, max_size=4),
    st.lists(st.integers(0, 30), max_size=4),
    st.lists(st.integers(0, 2**20), max_size=2),
)
def test_a_front_end_that_passes_on_answers_as_one_that_parses_all(
    setting: Setting, requests: list[bytes], near: list[int], anywhere: list[int]
) -> None:
    pieces = cut(b"".join(requests), near, anywhere)
    addresses = [[one] for one in setting.addresses]
    found = relayed(relaying_config(addresses), pieces, setting.addresses)
    plain = plain_config(addresses)
    ends = list(itertools.accumulate(map(len, requests)))
    assert found in (answers(plain, cut_at(pieces, ends[:alone])) for alone in range(len(ends)))


def test_requests_are_answered_in_their_turn(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = [[one] for one in setting.addresses]
    pieces = [WAITING, SMALL, SMALL, WAITING + SMALL, sized(body(MINE[:2]), JSON)]
    expected = answers(plain_config(addresses), pieces)
    assert relayed(relaying_config(addresses), pieces, setting.addresses, waits=False) == expected
    assert expected.count(b"200 OK") == len(pieces) + 1
    # The framework sees none of the small ones.
    config = relaying_config(addresses)
    monkeypatch.setattr(config, "loaded_app", None)
    assert relayed(config, [SMALL, SMALL + SMALL], setting.addresses).count(b"200 OK") == 3


def test_a_front_end_that_ends_answers_what_is_under_way(setting: Setting) -> None:
    """If a worker is slow, the framework answers instead, and says that the connection ends."""
    addresses = [[one] for one in setting.addresses]
    passed_on = answers(plain_config(addresses), [SMALL])
    parsed = answers(plain_config(addresses), [SMALL, SMALL], ends_at=1, waits=False)
    found = relayed(relaying_config(addresses), [SMALL, SMALL], setting.addresses, ends_at=1, waits=False)
    assert found in (passed_on, parsed)
    assert found.count(b"200 OK") == 1


@contextmanager
def odd_worker(said: bytes | None) -> Iterator[str]:
    """Answers every request with these bytes; None: closes the connection. b"": never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as opened:

        def answer(connection: socket.socket) -> None:
            while connection.recv(1 << 16):
                if said is None:
                    return
                if said:
                    connection.sendall(said)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                opened.enter_context(connection)

                def run(connection: socket.socket = connection) -> None:
                    try:
                        answer(connection)
                    except OSError:
                        pass
                    finally:
                        connection.close()

                threading.Thread(target=run, daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield "http://127.0.0.1:%d" % listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join()


def http_answer(status: str, kind: str, content: bytes, *more: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(content)}", *more, "", ""]
    return "\r\n".join(lines).encode() + content


@pytest.mark.parametrize(
    "said",
    [
        None,
        b"",
        b"nonsense\r\n\r\n",
        http_answer("503 Service Unavailable", "application/problem+json", b'{"type": "/problems/timeout"}'),
        http_answer("200 OK", "text/html", b"<html>"),
        http_answer("101 Switching Protocols", "application/json", b"", "upgrade: websocket"),
        http_answer("200 OK", "text/plain", b"twice") * 2,
    ],
)
def test_a_worker_that_answers_wrongly_is_passed_over(
    setting: Setting, said: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "PATIENCE", 0.05)
    monkeypatch.setattr(relay_module, "_LOOK_SECONDS", 0.01)
    with odd_worker(said) as odd:
        addresses = [[odd, setting.addresses[0]], [setting.addresses[1]]]
        if said == b"":  # the framework would wait for seconds
            addresses[0].reverse()
        expected = answers(plain_config([[one] for one in setting.addresses]), [SMALL])
        found = relayed(relaying_config(addresses), [SMALL, SMALL], [odd, *setting.addresses])
        assert found == 2 * expected


def test_many_clients_while_a_replica_ends(setting: Setting) -> None:
    """Each answer is right, whoever gave it."""
    expected = setting.engine.predict(np.arange(NODES))

    def ask(number: int) -> None:
        with loopback.Client() as client:
            for turn in range(40):
                if (number, turn) == (0, 20):
                    replica.close()
                id = (7 * number + turn) % NODES
                answer = client.post(f"{front}/v1/predictions", json={"ids": [id]})
                assert answer.status_code == httpx.codes.OK, answer.text
                told = answer.json()
                assert (told["seq"], told["ids"]) == (setting.seq, [id])
                np.testing.assert_array_equal(np.float32(told["predictions"]), expected[[id]])

    with ExitStack() as opened, ExitStack() as replica:
        other = replica.enter_context(served(serving_config(setting.workers[0])))
        addresses = [[other, setting.addresses[0]], [setting.addresses[1]]]
        front = opened.enter_context(served(front_config(create_front(PLAN, addresses))))
        with ThreadPoolExecutor(8) as clients:
            list(clients.map(ask, range(8)))


def test_a_client_that_goes_leaves_nothing(setting: Setting) -> None:
    """Its answer is thrown away, and those behind it on the same link are the right ones."""
    with served(front_config(create_front(PLAN, [[one] for one in setting.addresses]))) as front:
        host, port = front.removeprefix("http://").split(":")
        for _ in range(50):
            with socket.create_connection((host, int(port))) as gone:
                gone.sendall(SMALL)
        for id in range(NODES):
            answer = loopback.post(f"{front}/v1/predictions", content=json.dumps({"ids": [id]}))
            assert answer.json()["ids"] == [id]
