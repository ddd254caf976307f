"""Sockets that accept connections."""

import errno
import socket
from typing import Final

from livegnn.arguments import whole

_AT_ONCE: Final = 16


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections at `host`:`port`; port 0 is any free one.

    Raises OSError that names the address; InputError for a port that cannot be.
    """
    whole(port, "port", 0, 65535)
    # Named by its protocol, or asyncio would not switch off Nagle's algorithm: 40 ms for every answer.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        taken = "another program listens there, perhaps this server runs already. Stop it, or "
        raise OSError(
            error.errno,
            f"cannot listen at {host} port {port}, {error.strerror}: "
            f"{taken if error.errno == errno.EADDRINUSE else ''}choose another host or port",
        ) from error
    except BaseException:
        listener.close()
        raise
    return listener


def accepting(listener: socket.socket) -> list[socket.socket]:
    """`listener` and copies of it, for a server to accept from all of them; it closes them, as uvicorn does.

    uvloop accepts one connection of a socket in each round of its loop. A round answers each connection once,
    and takes ten milliseconds under load: the last of two hundred clients that come at once would wait for a
    second.
    """
    return [listener, *(listener.dup() for _ in range(_AT_ONCE - 1))]
