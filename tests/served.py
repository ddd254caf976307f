"""Servers in a thread, over real connections."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from livegnn.http.listening import address_of, listen
from livegnn.http.serving import GRACE_SECONDS, HttpServer
from livegnn.http.tls import Tls
from waiting import PATIENCE


@contextmanager
def running(
    make: Callable[[socket.socket], HttpServer], *, scheme: str = "http", host: str = "127.0.0.1"
) -> Iterator[str]:
    """The address of a server, which has ended afterwards. make: the server of a listener."""
    listener = listen(host, 0)
    address = address_of(listener, scheme)
    server = make(listener)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield address
    finally:
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def served(
    app: ASGIApp,
    *,
    grace: float = GRACE_SECONDS,
    on_stop: Callable[[], None] | None = None,
    tls: Tls | None = None,
    host: str = "127.0.0.1",
) -> AbstractContextManager[str]:
    """The same for a server of an application; the settings are those of `HttpServer`."""
    return running(
        lambda listener: HttpServer(app, listener, grace=grace, on_stop=on_stop, tls=tls),
        scheme="http" if tls is None else "https",
        host=host,
    )


def place_of(address: str) -> tuple[str, int]:
    """The host and the port of an address."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port
