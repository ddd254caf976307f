"""Sockets that accept connections."""

import errno
import signal
import socket
import sys
from contextlib import ExitStack
from typing import Final

from livegnn.arguments import check_int
from livegnn.errors import InputError

BACKLOG: Final = 2048
"""Connections that wait to be accepted."""


def exit_at_sigterm() -> None:
    """From now on, SIGTERM raises SystemExit."""
    signal.signal(signal.SIGTERM, lambda sig, frame: sys.exit(0))


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections at `host`:`port`; port 0 is any free one.

    Raises OSError that names the address and what to do; InputError for a port that cannot be.
    """
    check_int(port, "port", 0, 65535)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as unless_it_listens:
        try:
            listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            unless_it_listens.callback(listener.close)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Connections inherit it: Nagle's algorithm would hold the end of an answer back for 40 ms.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listener.bind((host, port))
            listener.listen(BACKLOG)
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


def address_of(listener: socket.socket, scheme: str = "http") -> str:
    """The URL at which a listener is."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
