"""Limits of keys and of addresses: what is above them is refused, and others are served."""

import asyncio
import json
import selectors
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send
from typer.testing import CliRunner

from livegnn import FileFormatError, InputError
from livegnn.cli import app
from livegnn.http.guard import Access, Guard
from livegnn.http.keys import KeyFile, KeyLimits, create_key, read_keys
from livegnn.http.limits import AddressUses, Bucket, client_of
from livegnn.http.refusals import AddressBusy
from served import place_of, served
from waiting import PATIENCE


@given(st.integers(1, 50), st.lists(st.tuples(st.floats(0, 5), st.integers(1, 100)), max_size=200))
def test_a_bucket_lets_no_more_through_than_its_rate(rate: int, steps: list[tuple[float, int]]) -> None:
    bucket, now, taken, last = Bucket(rate, 0.0), 0.0, 0, 0
    for pause, count in steps:
        now += pause
        wait = bucket.missing(now)
        assert (wait == 0.0) == (bucket.missing(now + wait) == 0.0) or bucket.missing(now + wait) < 1e-6
        if wait == 0.0:
            bucket.take(count)
            taken, last = taken + count, count
    assert taken - last <= rate * (now + 1.0) + 1e-6


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Asked:
    """A guard with one key; the application behind it reads the body, and a feed waits for `ended`."""

    def __init__(self, folder: Path, limits: KeyLimits) -> None:
        self.path = folder / "keys.json"
        self.text = create_key(self.path, "partner", ["read"], limits)
        self.clock, self.ended = Clock(), asyncio.Event()
        self.guard = Guard(self.answer, Access(KeyFile(self.path)), self.clock)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/v1/changes":
            await self.ended.wait()
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(
        self, path: str = "/v1/predictions", *parts: bytes
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        sent: list[Message] = []
        waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        waiting.append({"type": "http.request", "body": b""})

        async def receive() -> Message:
            return waiting.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {self.text}".encode())]
        scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "http_version": "1.1"}
        await self.guard(scope, receive, send)
        return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def test_requests_a_second_are_limited(tmp_path: Path) -> None:
    async def run() -> None:
        asked = Asked(tmp_path, KeyLimits(requests=3))
        assert [(await asked.ask())[0] for _ in range(4)] == [200, 200, 200, 429]
        status, headers, body = await asked.ask()
        assert (status, headers[b"retry-after"]) == (429, b"1")
        assert json.loads(body)["type"] == "/problems/key-exhausted"
        assert "the key 'partner' may send 3 requests a second" in json.loads(body)["detail"]
        assert (await asked.ask("/livez"))[0] == 200
        asked.clock.now += 0.4
        assert [(await asked.ask())[0] for _ in range(2)] == [200, 429]
        asked.clock.now += 100.0
        assert [(await asked.ask())[0] for _ in range(4)] == [200, 200, 200, 429]

    asyncio.run(run())


def test_bytes_a_second_are_limited_as_they_arrive(tmp_path: Path) -> None:
    async def run() -> None:
        asked = Asked(tmp_path, KeyLimits(bytes=10))
        assert (await asked.ask("/v1/predictions", b"x" * 9))[0] == 200
        assert (await asked.ask("/v1/predictions", b"x" * 30, b"x" * 11))[0] == 200  # above what is left
        status, headers, _ = await asked.ask()
        assert (status, headers[b"retry-after"]) == (429, b"5")
        asked.clock.now += 5.0
        assert (await asked.ask())[0] == 200

    asyncio.run(run())


def test_open_feeds_are_limited(tmp_path: Path) -> None:
    async def run() -> None:
        asked = Asked(tmp_path, KeyLimits(feeds=2))
        feeds = [asyncio.create_task(asked.ask("/v1/changes")) for _ in range(2)]
        await asyncio.sleep(0)  # they have begun
        assert (await asked.ask("/v1/changes"))[0] == 429
        assert (await asked.ask())[0] == 200
        asked.ended.set()
        assert [status for status, *_ in await asyncio.gather(*feeds)] == [200, 200]
        assert (await asked.ask("/v1/changes"))[0] == 200

    asyncio.run(run())


def test_another_key_and_other_limits_begin_anew(tmp_path: Path) -> None:
    async def run() -> None:
        asked = Asked(tmp_path, KeyLimits(requests=1))
        assert [(await asked.ask())[0] for _ in range(2)] == [200, 429]
        first, asked.text = asked.text, create_key(asked.path, "other", ["read"])
        assert asked.guard._access.keys is not None
        asked.guard._access.keys.refresh()
        assert [(await asked.ask())[0] for _ in range(9)] == [200] * 9
        held = json.loads(asked.path.read_bytes())
        held["keys"][0]["limits"] = {"requests": 2}
        asked.path.write_text(json.dumps(held), encoding="utf-8")
        asked.guard._access.keys.refresh()
        asked.text = first
        assert [(await asked.ask())[0] for _ in range(3)] == [200, 200, 429]

    asyncio.run(run())


def test_a_file_has_version_2_only_with_limits(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    create_key(path, "free", ["read"])
    first = path.read_bytes()
    assert first.startswith(
        b'{\n "format": "livegnn-keys",\n "version": 1,\n "keys": [\n  {\n   "name": "free",'
    )
    assert b"limits" not in first
    run = CliRunner().invoke(app, ["key", "create", str(path), "some", "--requests", "5", "--feeds", "2"])
    assert run.exit_code == 0
    second = path.read_bytes()
    assert b'"version": 2' in second
    assert second.endswith(b'   "limits": {\n    "requests": 5,\n    "feeds": 2\n   }\n  }\n ]\n}\n')
    assert [key.limits for key in read_keys(path)] == [KeyLimits(), KeyLimits(5, None, 2)]
    listed = CliRunner().invoke(app, ["key", "list", str(path)]).output.splitlines()
    assert listed[1].endswith(", 5 requests a second, 2 feeds")
    shown = json.loads(CliRunner().invoke(app, ["key", "list", str(path), "--json"]).output)
    assert [one.get("limits") for one in shown] == [None, {"requests": 5, "feeds": 2}]
    assert CliRunner().invoke(app, ["key", "revoke", str(path), "some"]).exit_code == 0
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    "limits",
    [{"requests": 0}, {"bytes": -1}, {"feeds": 1.5}, {"feeds": True}, {"calls": 1}, [], {"feeds": 10**16}],
)
def test_limits_that_are_none_are_refused(tmp_path: Path, limits: object) -> None:
    path = tmp_path / "keys.json"
    create_key(path, "some", ["read"], KeyLimits(5))
    held = json.loads(path.read_bytes())
    path.write_text(json.dumps({**held, "version": 1}), encoding="utf-8")
    with pytest.raises(FileFormatError, match="need version 2"):
        read_keys(path)
    held["keys"][0]["limits"] = limits
    path.write_text(json.dumps(held), encoding="utf-8")
    with pytest.raises(FileFormatError, match="does not hold keys"):
        read_keys(path)
    with pytest.raises(InputError, match="requests must be an integer from 1"):
        KeyLimits(requests=0)


@pytest.mark.parametrize(
    ("address", "client"),
    [
        (("10.0.0.7", 80), "10.0.0.7"),
        (("::ffff:10.0.0.7", 80), "10.0.0.7"),
        (("2001:db8:1:2:3::4", 80), "2001:db8:1:2::/64"),
        (("2001:db8:1:2:ffff::9", 80), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 80), "fe80::/64"),
        (None, ""),
        (("a:b", 1), "a:b"),
    ],
)
def test_a_client_of_ipv6_is_its_network(address: object, client: str) -> None:
    assert client_of(address) == client


def test_addresses_that_have_ended_are_forgotten() -> None:
    uses = AddressUses(1)
    uses.begin("a")
    with pytest.raises(AddressBusy):
        uses.begin("a")
    uses.begin("b")
    uses.end("a")
    uses.end("b")
    assert not uses._open


def test_clients_of_one_address_that_hold_requests_open_leave_room_for_others() -> None:
    begun, release = [], asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def hold(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        begun.append(scope["path"])
        loops.append(asyncio.get_running_loop())
        if scope["path"] == "/held":
            await release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"served"})

    with ExitStack() as opened:
        app = Guard(hold, Access(requests_per_address=256))
        _, port = place_of(opened.enter_context(served(app, host="0.0.0.0")))
        waiting = opened.enter_context(selectors.DefaultSelector())
        for _ in range(300):
            held = opened.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            held.sendall(b"GET /held HTTP/1.1\r\nhost: localhost\r\n\r\n")
            waiting.register(held, selectors.EVENT_READ)
        refused = 0
        while refused < 300 - 256:
            for key, _ in waiting.select(PATIENCE):
                found = key.fileobj.recv(1000)  # type: ignore[union-attr]
                assert found.startswith(b"HTTP/1.1 429"), found
                assert b"address-busy" in found
                waiting.unregister(key.fileobj)
                refused += 1
        assert begun.count("/held") == 256
        with socket.create_connection(("127.0.0.1", port), PATIENCE, ("127.0.0.2", 0)) as other:
            other.sendall(b"GET /v1/graph HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert other.recv(1000).startswith(b"HTTP/1.1 200")
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as probe:
            probe.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert probe.recv(1000).startswith(b"HTTP/1.1 200")
        loops[0].call_soon_threadsafe(release.set)
