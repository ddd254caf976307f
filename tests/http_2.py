"""A client of HTTP/2 that sends frames as a test writes them, also those that no client should send."""

import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from waiting import PATIENCE

DATA, HEADERS, RESET, SETTINGS, GOAWAY, CONTINUATION = 0, 1, 3, 4, 7, 9
END_STREAM, END_HEADERS = 1, 4
WINDOW = 4  # the setting
CANCEL = (8).to_bytes(4, "big")
BEGIN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REFUSED = 7


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def field(name: bytes, value: bytes) -> bytes:
    """Of a head, without compression."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def head(path: bytes) -> bytes:
    fields = {b":method": b"GET", b":scheme": b"https", b":path": path, b":authority": b"localhost"}
    return b"".join(field(name, value) for name, value in fields.items())


def requests(path: bytes, streams: Iterable[int]) -> bytes:
    """A request in each of the streams."""
    return b"".join(frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, head(path)) for n in streams)


def setting(name: int, value: int) -> bytes:
    return frame(SETTINGS, 0, 0, name.to_bytes(2, "big") + value.to_bytes(4, "big"))


@contextmanager
def connected(place: tuple[str, int], context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(place, PATIENCE) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as connection,
    ):
        yield connection


class Frames:
    """The frames that arrive on a connection, one by one, until it ends."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection, self._read = connection, b""

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        """The kind, the stream and the content of each."""
        while self._has(9):
            length = int.from_bytes(self._read[:3], "big")
            if not self._has(9 + length):
                return
            kind, stream = self._read[3], int.from_bytes(self._read[5:9], "big")
            content, self._read = self._read[9 : 9 + length], self._read[9 + length :]
            yield kind, stream, content

    def _has(self, size: int) -> bool:
        while len(self._read) < size:
            try:
                part = self._connection.recv(1 << 16)
            except (ConnectionError, ssl.SSLError):
                return False
            if not part:
                return False
            self._read += part
        return True
