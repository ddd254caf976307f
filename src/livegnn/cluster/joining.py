"""A process becomes a member of a Ray cluster. Needs `ray`: `pip install 'livegnn[cluster]'`."""

import os
import signal
import socket
import threading
from typing import Final

from livegnn.errors import InputError

_SECONDS: Final = 10.0
_OWN: Final = {"object_store_memory": 80 << 20, "include_dashboard": False}
"""Of a Ray of this process's own: rows and events do not go through it, so it needs little memory."""

_WHERE: Final = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray listens at all addresses of its machine; with 0, at loopback alone. Ray reads it as it is imported."""
_LOOPBACK: Final = "127.0.0.1"


def join_ray(address: str, *, starts: bool = False) -> None:
    """Joins the cluster whose head node is at an address, or "auto" for the one of this machine. An empty one
    is for a Ray that listens at loopback alone: this starts it if it `starts`, and it ends with this process.
    A member already stays one.

    Call it before Ray is imported. Raises `InputError` if no Ray answers there, or if it refuses the token of
    this process.
    """
    if not address:
        os.environ[_WHERE] = "0"
    import ray

    if ray.is_initialized():
        return
    if address not in ("", "auto"):
        _check_answers(address)
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if in_main else None
    try:
        own = _OWN if starts and not address else {}
        ray.init(address or ("local" if starts else "auto"), log_to_driver=False, **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _refusal(address, error) from error
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before)  # Ray has set one of its own
    if not address and (found := ray.util.get_node_ip_address()) != _LOOPBACK:
        ray.shutdown()
        raise InputError(
            f"a Ray of one machine must listen at {_LOOPBACK}, got {found}: Ray was imported before"
        )


def _check_answers(address: str) -> None:
    """Raises `InputError` if no process listens there: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS).close()
    except (OSError, ValueError) as error:
        raise _refusal(address, error) from error


def _refusal(address: str, error: Exception) -> InputError:
    return InputError(
        f"ray in [cluster] must be the address of a head node of Ray, as in '10.0.0.1:6379', got {address!r}"
        f": {error}"
    )
