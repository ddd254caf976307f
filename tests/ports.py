"""Ports of 127.0.0.1 that are a test's own until its process ends."""

import random
import socket
from pathlib import Path

_FIRST, _LAST = 15_000, 65_535
_DRAW = random.SystemRandom()
_KEPT: list[socket.socket] = []


def free_port() -> int:
    """A port for a server of another program that must be given one, now or later.

    The system gives it to nobody who binds port 0, and the tests of no other checkout draw it meanwhile: who
    has drawn a port holds a name among the abstract sockets of the machine.
    """
    from_system = _ports_of_the_system()
    candidates = [port for port in range(_FIRST, _LAST) if port not in from_system]
    for port in _DRAW.sample(candidates, len(candidates)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0livegnn-tests-{port}")
            with socket.socket() as trial:
                trial.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
        else:
            _KEPT.append(claim)
            return port
    raise AssertionError("there must be a free port")


def closed_port() -> int:
    """A port where nobody listens: it is bound, so that nobody else gets it, and refuses connections."""
    kept = socket.socket()
    kept.bind(("127.0.0.1", 0))
    _KEPT.append(kept)
    return int(kept.getsockname()[1])


def _ports_of_the_system() -> range:
    """From which the system draws where a program binds port 0."""
    try:
        first, last = map(
            int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8").split()
        )
    except (OSError, ValueError):
        return range(32_768, 61_000)
    drawn = range(first, last + 1)
    return drawn if first > _FIRST + 1000 or last < _LAST - 1000 else range(0)  # else it draws from all
