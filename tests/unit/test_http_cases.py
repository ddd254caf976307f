"""Unusual requests have one answer in every process: server, worker, front end, function."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest
from test_failing_answers import function_application

from livegnn import Engine
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.workers.front import create_front
from served import served
from serving_workers import PLAN, Setting
from streams import make_graph, make_model

PROCESSES = ("server", "worker", "front end", "function")


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("processes")
    with ExitStack() as opened:
        setting = Setting(folder, opened)
        log = SqliteLog(folder / "server.db")
        opened.callback(log.close)
        graph = make_graph()
        runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
        node = function_application(folder)
        yield {
            "server": opened.enter_context(served(create_app(runtime))),
            "worker": setting.addresses[0],
            "front end": opened.enter_context(served(create_front(PLAN, [[it] for it in setting.addresses]))),
            "function": opened.enter_context(served(node)),
        }


def say(address: str, data: bytes) -> bytes:
    """All that a process answers to bytes, which end the connection."""
    url = urlsplit(address)
    answer = b""
    with socket.create_connection((url.hostname or "", url.port or 0), timeout=20) as connection:
        connection.sendall(data)
        with suppress(ConnectionResetError):  # a request that was refused before all of it was read
            while part := connection.recv(1 << 16):
                answer += part
    return answer


BODY = b'{"ids": []}'
HOST = b"host: 127.0.0.1\r\n"
CLOSE = b"connection: close\r\n"
POST = b"POST /v1/predictions HTTP/1.1\r\ncontent-type: application/json\r\n" + HOST + CLOSE
LIVE = b"GET /livez HTTP/1.1\r\n" + HOST
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKS = b"3\r\n" + BODY[:3] + b"\r\n8;a=b\r\n" + BODY[3:] + b"\r\n0\r\n\r\n"
SIZED = b"content-length: 11\r\n"


def line(text: bytes) -> bytes:
    """A request without a body, by its first line."""
    return text + b"\r\n" + HOST + CLOSE + b"\r\n"


CASES = {
    "pipelining": (LIVE + b"\r\n" + LIVE + CLOSE + b"\r\n", [200, 200]),
    "chunks": (POST + CHUNKED + b"\r\n" + CHUNKS, [200]),
    "bad chunk": (POST + CHUNKED + b"\r\nx\r\n", [400]),
    "expect": (POST + SIZED + b"expect: 100-continue\r\n\r\n" + BODY, [100, 200]),
    "chunks count beside a length": (POST + SIZED + CHUNKED + b"\r\n" + CHUNKS, [200]),
    "other coding": (POST + b"transfer-encoding: gzip, chunked\r\n\r\n" + CHUNKS, [415]),
    "expect too much": (POST + b"expect: 100-continue\r\ncontent-length: 999999999\r\n\r\n", [413]),
    "two lengths": (POST + SIZED + b"content-length: 12\r\n\r\n" + BODY, [400]),
    "negative length": (POST + b"content-length: -1\r\n\r\n", [400]),
    "signed length": (POST + b"content-length: +11\r\n\r\n" + BODY, [400]),
    "no length": (POST + b"\r\n", [400]),
    "compressed": (POST + SIZED + b"content-encoding: gzip\r\n\r\n" + BODY, [415]),
    "unknown coding": (POST + b"transfer-encoding: xchunked\r\n\r\n", [400]),
    "folded header": (LIVE + b"a: b\r\n c\r\n" + CLOSE + b"\r\n", [400]),
    "blank before a colon": (LIVE + b"a : b\r\n" + CLOSE + b"\r\n", [400]),
    "HEAD": (line(b"HEAD /livez HTTP/1.1"), [200]),
    "GET with a body": (LIVE + CLOSE + SIZED + b"\r\n" + BODY, [200]),
    "absolute address": (line(b"GET http://127.0.0.1/livez HTTP/1.1"), [200]),
    "unknown method": (line(b"BREW /livez HTTP/1.1"), [405]),
    "TRACE": (line(b"TRACE /livez HTTP/1.1"), [405]),
    "CONNECT": (line(b"CONNECT a:1 HTTP/1.1"), [404]),
    "OPTIONS": (line(b"OPTIONS * HTTP/1.1"), [404]),
    "long address": (line(b"GET /" + b"a" * 70_000 + b" HTTP/1.1"), [414]),
    "dots": (line(b"GET /v1/../livez HTTP/1.1"), [404]),
    "two slashes": (line(b"GET //livez HTTP/1.1"), [404]),
    "escaped letter": (line(b"GET /%6Civez HTTP/1.1"), [200]),
    "NUL": (line(b"GET /%00 HTTP/1.1"), [404]),
    "upgrade": (LIVE + b"upgrade: h2c\r\nconnection: upgrade, close\r\n\r\n", [200]),
    "HTTP/2 without TLS": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []),
    "TLS": (b"\x16\x03\x01\x00\x05hello", [400]),
}


def statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("case", CASES)
def test_an_unusual_request_has_one_answer_in_every_process(
    addresses: dict[str, str], case: str, process: str
) -> None:
    data, expected = CASES[case]
    answer = say(addresses[process], data)
    assert statuses(answer) == expected
    head, _, body = answer.partition(b"\r\n\r\n")
    if case == "HEAD":
        assert not body
        assert b"content-length: 15" in head
