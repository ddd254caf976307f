"""A socket that accepts connections."""

import errno
import socket

from livegnn.arguments import whole


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
