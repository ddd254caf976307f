"""A socket at which any number of processes ask, beside others that vanish or send any bytes."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

import zmq
import zmq.asyncio

from livegnn.channels import requester
from livegnn.channels.admission import Keys
from livegnn.channels.errors import DeadLinkError
from livegnn.channels.plan import Peer
from livegnn.channels.requester import Requester
from livegnn.channels.requests import Request, Requests
from livegnn.errors import InputError
from waiting import PATIENCE

KEYS = Keys.create()


@contextmanager
def answering(requests: Requests) -> Iterator[None]:
    """Answers each request with its frames: of b"held" three at once, the last one first; b"never" never."""
    ended = threading.Event()

    def serve() -> None:
        held: list[Request] = []
        while not ended.is_set():
            for one in requests.receive(0.01, 10):
                kind = bytes(one.frames[0]) if one.frames else b""
                if kind == b"held":
                    held.append(one)
                    ready = held[::-1] if len(held) == 3 else []
                else:
                    ready = [] if kind == b"never" else [one]
                for each in ready:
                    requests.answer(each, [bytes(frame) for frame in each.frames])
        requests.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def ask(peer: Peer, keys: Keys | None, call: Callable[[Requester], Awaitable[object]]) -> None:
    async def run() -> None:
        with zmq.asyncio.Context() as context:
            one = Requester(3, peer, keys, context)
            try:
                await call(one)
            finally:
                one.close()

    asyncio.run(run())


async def echo(one: Requester, *frames: bytes) -> list[bytes]:
    return [bytes(frame) for frame in await one.ask(frames, PATIENCE)]


@pytest.mark.parametrize("interface", [None, "127.0.0.1", "::1"])
def test_answers_have_any_order_and_size(interface: str | None) -> None:
    requests = Requests(interface, KEYS.public)

    async def call(one: Requester) -> None:
        held = [asyncio.create_task(echo(one, b"held", b"%d" % number)) for number in range(3)]
        large = bytes(range(256)) * 4096
        assert await echo(one, b"", large, b"") == [b"", large, b""]
        assert [await task for task in held] == [[b"held", b"%d" % number] for number in range(3)]
        with pytest.raises(
            DeadLinkError, match=r"worker 3 at .* must answer within 0.05 seconds, got nothing"
        ):
            await one.ask([b"never"], 0.05)

    with answering(requests):
        ask(Peer(address=requests.address, key=requests.key), KEYS, call)


def test_a_process_that_vanishes_costs_its_answers_alone() -> None:
    requests = Requests()
    with answering(requests):
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 1000
            socket.connect(requests.address)
            for frames in (
                [b""],
                [b"", b""],
                [b"12345678"] * 3,
                [b"1234567", b"x"],
                [b"\0" * 8, b"x" * 1000],
            ):
                socket.send_multipart(frames)

        async def call(one: Requester) -> None:
            assert await echo(one, b"a") == [b"a"]

        ask(Peer(address=requests.address), None, call)


def test_a_worker_that_ends_fails_what_waits() -> None:
    requests = Requests()

    async def call(one: Requester) -> None:
        with answering(requests):
            assert await echo(one, b"a") == [b"a"]
            waiting = asyncio.create_task(echo(one, b"never"))
            assert await echo(one, b"b") == [b"b"]
        with pytest.raises(DeadLinkError, match="must answer, got the end of the connection"):
            await waiting
        assert one.lost
        with pytest.raises(DeadLinkError, match="must answer, got the end of the connection"):
            await echo(one, b"c")

    ask(Peer(address=requests.address), None, call)


@pytest.mark.parametrize("wrong", ["nobody", "key", "server key"])
def test_a_worker_that_does_not_admit_this_process(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setattr(requester, "_CONNECT_SECONDS", 0.2)
    requests = Requests("127.0.0.1", KEYS.public)
    key = Keys.create().public if wrong == "server key" else requests.key

    async def call(one: Requester) -> None:
        with pytest.raises(
            DeadLinkError, match=r"worker 3 at .* must answer, got (no|the end of the) connection"
        ):
            await echo(one, b"a")

    if wrong == "nobody":
        requests.close()
        ask(Peer(address=requests.address, key=key), KEYS, call)
    else:
        with answering(requests):
            ask(
                Peer(address=requests.address, key=key),
                KEYS if wrong == "server key" else Keys.create(),
                call,
            )


def test_addresses_that_cannot_be() -> None:
    with pytest.raises(InputError, match="a worker must listen at an address of this machine, got tcp://203"):
        Requests("203.0.113.7", KEYS.public)
    with pytest.raises(InputError, match="an interface must be an IP address of this machine"):
        Requests("localhost", KEYS.public)
    for peer, message in (
        (Peer(), "worker 3 must have an address of the form"),
        (Peer(address="tcp://127.0.0.1:1"), "worker 3 at tcp://127.0.0.1:1 must have a public key, got None"),
    ):
        with pytest.raises(InputError, match=message):
            ask(peer, KEYS, lambda one: echo(one, b""))
