"""Sockets that accept connections, and servers that end in order."""

import errno
import signal
import socket
import sys
from contextlib import ExitStack
from typing import Final

import uvicorn

from livegnn.arguments import check_int
from livegnn.errors import InputError

_AT_ONCE: Final = 16


class Server(uvicorn.Server):
    """Ends its application in order at a second Ctrl-C too, which only ends the wait for open requests."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn, which leaves the application as it is if `force_exit` is set."""
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()


def exit_at_sigterm() -> None:
    """From now on, SIGTERM raises SystemExit."""
    signal.signal(signal.SIGTERM, lambda sig, frame: sys.exit(0))


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections at `host`:`port`; port 0 is any free one.

    Raises OSError that names the address and what to do; InputError for a port that cannot be.
    """
    check_int(port, "port", 0, 65535)
    # Named by its protocol, or asyncio would not switch off Nagle's algorithm: 40 ms for every answer.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as unless_it_listens:
        try:
            listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            unless_it_listens.callback(listener.close)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(2048)
        except TypeError as error:  # a name with letters that no name has
            raise InputError(f"host must be a name or an address, got {host!r}: {error}") from error
        except OSError as error:
            raise _refusal(error, host, port) from error
        unless_it_listens.pop_all()
    return listener


def _refusal(error: OSError, host: str, port: int) -> OSError:
    if error.errno == errno.EADDRINUSE:
        advice = (
            "another program listens there, perhaps this server runs already. Stop it, or choose another "
            "host or port; port 0 is any free one"
        )
    elif error.errno == errno.EACCES:
        advice = (
            "the system keeps that port for the superuser. Choose one from 1024 on; port 0 is any free one"
        )
    else:
        advice = (
            "choose another host, an address of this machine: 127.0.0.1 answers programs here alone, "
            "0.0.0.0 other machines too"
        )
    return OSError(error.errno, f"cannot listen at {host} port {port}, {error.strerror}: {advice}")


def address_of(listener: socket.socket) -> str:
    """The URL at which a listener is."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def accepting(listener: socket.socket) -> list[socket.socket]:
    """`listener` and copies of it, for a server to accept from all of them; it closes them, as uvicorn does.

    uvloop accepts one connection of a socket in each round of its loop. A round answers each connection once,
    and takes ten milliseconds under load: the last of two hundred clients that connect at once would wait for
    a second.
    """
    return [listener, *(listener.dup() for _ in range(_AT_ONCE - 1))]
