"""Bodies that arrive too slowly: which are given up, and that a server answers the others."""

import asyncio

import pytest
from starlette.types import Message
from test_http_server import Application, ask, connect, get, serving, status_of

from livegnn.http import slow_bodies
from livegnn.http.slow_bodies import LEAST_RATE, SECONDS, Bodies, Body


class Sender:
    """A client that sends a part when it is told to."""

    def __init__(self) -> None:
        self.parts: asyncio.Queue[Message] = asyncio.Queue()

    def send(self, size: int, more: bool = True) -> None:
        self.parts.put_nowait({"type": "http.request", "body": b"x" * size, "more_body": more})


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("sizes", "now", "late"),
    [
        ([], SECONDS - 1, False),
        ([], SECONDS + 1, True),
        ([int(LEAST_RATE)] * 10, SECONDS + 9, False),
        ([int(LEAST_RATE)] * 10, SECONDS + 11, True),
        ([1] * 10, SECONDS + 1, True),
    ],
)
def test_a_body_is_late_when_less_than_the_least_has_arrived(
    sizes: list[int], now: float, late: bool
) -> None:
    async def run() -> bool:
        sender, bodies = Sender(), Bodies()

        async def receive_all() -> None:
            while not body.ended:
                await bodies.receive(body)

        task = asyncio.create_task(receive_all())
        body = Body(sender.parts.get, task)
        await settle()
        bodies.end_late(0.0)
        for size in sizes:
            sender.send(size)
            await settle()
        bodies.end_late(now)
        await asyncio.wait([task], timeout=0)
        await settle()
        assert task.cancelled() == body.late
        task.cancel()
        return body.late

    assert asyncio.run(run()) == late


def test_time_that_the_application_takes_does_not_count() -> None:
    async def run() -> None:
        sender, bodies = Sender(), Bodies()
        work = asyncio.Event()

        async def receive_first() -> None:
            await bodies.receive(body)
            await work.wait()

        task = asyncio.create_task(receive_first())
        body = Body(sender.parts.get, task)
        sender.send(1)
        await settle()
        for now in (0.0, 10 * SECONDS):
            bodies.end_late(now)
        work.set()
        await task
        assert not body.late

    asyncio.run(run())


def test_a_server_gives_a_slow_body_up_and_answers_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_bodies, "SECONDS", 0.0)
    with serving(Application()) as address:
        slow = [
            connect(address, b"POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nx")
            for _ in range(50)
        ]
        assert status_of(ask(address, get(b"/"))) == 200
        for connection in slow:
            with connection:
                assert status_of(connection.recv(1 << 16)) == 408
        assert status_of(ask(address, get(b"/"))) == 200
