"""The guard behind a real server: what clients may write on a connection, and what the guard sees of it."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trustme
from starlette.types import Receive, Scope, Send

from http_2 import BEGIN, END_HEADERS, END_STREAM, HEADERS, SETTINGS, connected, field, frame
from livegnn.http.guard import Access, Guard
from livegnn.http.tls import Tls
from served import place_of, served
from waiting import PATIENCE


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "lifespan":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"admitted"})


@contextmanager
def guarded(tls: Tls | None = None) -> Iterator[int]:
    with served(Guard(answer, Access()), tls=tls) as address:
        yield place_of(address)[1]


def read_until(connection: socket.socket, *ends: bytes) -> bytes:
    found = b""
    while not any(end in found for end in ends):
        part = connection.recv(10_000)
        assert part, found
        found += part
    return found


@pytest.fixture(scope="module")
def plain() -> Iterator[int]:
    with guarded() as port:
        yield port


def ask(port: int, head: bytes) -> int:
    """The status of the answer to a head."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.sendall(head + b"\r\n\r\n")
        return int(read_until(connection, b"\r\n").split()[1])


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /livez HTTP/1.1\r\nhost: localhost", 200),
        (b"GET /livez HTTP/1.1\r\nhost: evil.example", 421),
        (b"GET /livez HTTP/1.1", 421),
        (b"GET /livez HTTP/1.1\r\nhost: localhost\r\nhost: localhost", 400),
        (b"GET http://localhost/livez HTTP/1.1", 200),
        (b"GET http://evil.example/livez HTTP/1.1", 421),
        (b"GET http://evil.example/livez HTTP/1.1\r\nhost: evil.example", 421),
        (b"GET http://localhost/livez HTTP/1.1\r\nhost: evil.example", 421),
        (b"GET http://evil.example/livez HTTP/1.0", 421),
        (b"GET /livez HTTP/1.0", 200),  # a probe
        (b"GET /livez HTTP/1.0\r\nhost: evil.example", 421),
        (b"GET /livez HTTP/1.0\r\norigin: https://evil.example", 421),
    ],
)
def test_a_request_line_may_name_the_host(plain: int, head: bytes, status: int) -> None:
    assert ask(plain, head) == status


def test_two_hosts_are_one_for_the_application(plain: int) -> None:
    """granian hands on the header alone, as docs/security.md says; no page can send both."""
    assert ask(plain, b"GET http://evil.example/livez HTTP/1.1\r\nhost: localhost") == 200


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, ssl.SSLContext]]:
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    signed = authority.issue_cert("127.0.0.1")
    signed.cert_chain_pems[0].write_to_path(folder / "c.pem")
    signed.private_key_pem.write_to_path(folder / "k.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with guarded(Tls(folder / "c.pem", folder / "k.pem", http2=True)) as port:
        yield port, context


@pytest.mark.parametrize(
    ("fields", "admitted"),
    [
        ([(b":authority", b"localhost")], True),
        ([(b":authority", b"evil.example")], False),
        ([(b":authority", b"localhost"), (b"host", b"evil.example")], False),
        ([(b"host", b"evil.example")], False),
        ([], False),
    ],
)
def test_an_authority_of_http_2_is_a_host(
    secure: tuple[int, ssl.SSLContext], fields: list[tuple[bytes, bytes]], admitted: bool
) -> None:
    port, context = secure
    head = [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/livez"), *fields]
    with connected(("127.0.0.1", port), context) as connection:
        block = b"".join(field(*one) for one in head)
        connection.sendall(
            BEGIN + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS | END_STREAM, 1, block)
        )
        found = read_until(connection, b"admitted", b"/problems/")
    assert (b"admitted" in found) == admitted
    assert (b"/problems/unknown-host" in found) == (not admitted)
