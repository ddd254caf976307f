"""The sockets of one process: one for each link, and the files that they need."""

import ipaddress
import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import zmq

from livegnn.channels.admission import Admission, Handshakes, Keys, require_keys
from livegnn.channels.frames import MOST_PART_BYTES
from livegnn.channels.link import Link
from livegnn.channels.plan import LONGEST_PATH
from livegnn.errors import InputError
from livegnn.temporary_directory import TemporaryDirectory
from livegnn.wording import quoted

Socket: TypeAlias = "zmq.Socket[bytes]"

_HEARTBEAT_MS: Final = 500
_HEARTBEAT_TIMEOUT_MS: Final = 2000
_RECONNECT_MS: Final = 50
_MOST_RECONNECT_MS: Final = 1000
_MOST_QUEUED: Final = 64


def set_options(socket: "zmq.Socket[Any]") -> None:
    """The options of all sockets of channels."""
    for option, value in (
        (zmq.LINGER, 0),
        (zmq.IMMEDIATE, 1),
        (zmq.SNDHWM, _MOST_QUEUED),
        # No limit, which would stop input (see `close`). The sender keeps its own: docs/channels.md.
        (zmq.RCVHWM, 0),
        (zmq.MAXMSGSIZE, 2 * MOST_PART_BYTES),
        (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
        (zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS),
        (zmq.RECONNECT_IVL, _RECONNECT_MS),
        (zmq.RECONNECT_IVL_MAX, _MOST_RECONNECT_MS),
    ):
        socket.set(option, value)


class Sockets:
    """The sockets of one process. of: by peer. handshakes: of links over TCP.

    A socket that listens is a ROUTER, which knows by which connection a message has arrived, and sends by
    that one. A second process that connects receives no message of the first.
    They are closed when this object is collected, if not before: ZeroMQ would wait for them for ever.
    Thread safety: none, and ZeroMQ's own sockets have none either: two threads that read one of them end the
    process.
    """

    def __init__(self) -> None:
        self._context: zmq.Context[Socket] = zmq.Context()
        self.admission = Admission(self._context)
        self.of: dict[int, Socket] = {}
        self.handshakes: list[Handshakes] = []
        self._folders: list[TemporaryDirectory] = []  # one, when there is a path in it
        parts = self._context, self.admission, self.of, self.handshakes, self._folders
        self._ends = weakref.finalize(self, _close, *parts)
        self._ends.atexit = False  # a thread may read them then

    def add(self, peer: int, *, listens: bool) -> Socket:
        """The socket of another peer."""
        socket = self.of[peer] = self._context.socket(zmq.ROUTER if listens else zmq.DEALER)
        set_options(socket)
        if listens:
            socket.set(zmq.ROUTER_MANDATORY, 1)
        return socket

    def listen(self, peer: int, name: str, interface: str | None, keys: Keys | None, whose: str) -> str:
        """Adds a socket that listens for another peer, and returns its address.

        name: of the file of its socket, on one machine. interface: the IP address of this machine to which
        the peer connects, with encryption by `keys`; None on one machine. whose: the socket, for errors.
        Raises `InputError`.
        """
        socket = self.add(peer, listens=True)
        if interface is None:
            endpoint = f"ipc://{self.path_for(name)}"
        else:
            endpoint = _tcp_endpoint(interface)
            socket.ipv6 = "[" in endpoint
            keys = require_keys(keys, f"worker {peer} connects to {interface}")
            socket.curve_server = True
            socket.curve_publickey, socket.curve_secretkey = keys.public.encode(), keys.secret.encode()
            socket.zap_domain = str(peer).encode()
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise InputError(
                f"{whose} must listen at an address of this machine, got {endpoint}: {error}"
            ) from error
        return socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def path_for(self, name: str) -> str:
        """A path in a folder that no other user can enter. Raises `InputError` if it is too long."""
        if not self._folders:
            self._folders.append(TemporaryDirectory(os.environ.get("XDG_RUNTIME_DIR")))
        path = str(self._folders[0].path / name)
        if len(os.fsencode(path)) > LONGEST_PATH:
            raise InputError(
                f"the path of a socket must have at most {LONGEST_PATH} bytes, got {path!r}: set "
                "XDG_RUNTIME_DIR to a shorter one"
            )
        return path

    def close(self) -> None:
        """Ends all. Messages that have not left are lost.

        No socket lingers: libzmq 4.3.5 aborts the process if the other end hangs up while a socket that is
        closed still has messages to send and has received one (libzmq's issue 4841).
        """
        if self._ends.detach() is not None:
            _close(self._context, self.admission, self.of, self.handshakes, self._folders)


def _close(
    context: "zmq.Context[Socket]",
    admission: Admission,
    of: Mapping[int, Socket],
    handshakes: Sequence[Handshakes],
    folders: Sequence[TemporaryDirectory],
) -> None:
    for one in handshakes:
        one.close()
    for socket in of.values():
        socket.close(0)
    admission.socket.close()
    context.term()
    for folder in folders:
        folder.close()


def _tcp_endpoint(interface: str) -> str:
    try:
        address = ipaddress.ip_address(interface) if isinstance(interface, str) else None
    except ValueError:
        address = None
    if address is None or address.is_unspecified:
        raise InputError(
            "an interface must be an IP address of this machine that the peer can reach, got "
            f"{quoted(interface)}"
        )
    return f"tcp://[{address}]:*" if address.version == 6 else f"tcp://{address}:*"


def receive(socket: Socket) -> tuple[bytes, list[memoryview]]:
    """The route of the next message, empty at a socket that connects, and its frames. Raises `zmq.Again`."""
    buffers = [frame.buffer for frame in socket.recv_multipart(zmq.NOBLOCK, copy=False)]
    if socket.type != zmq.ROUTER:
        return b"", buffers
    return bytes(buffers[0]), buffers[1:]


def send(link: Link, socket: Socket) -> bool:
    """Sends the messages of a link, as many as can be sent now; whether the socket has had room for all."""
    routed = socket.type == zmq.ROUTER
    while (frames := link.outgoing()) is not None:
        if routed and not link.route:
            link.note_cut()
            continue
        try:
            socket.send_multipart([link.route, *frames] if routed else frames, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            if not link.is_answering:  # an answer is not worth a wait: the other end asks again
                return False
            link.note_cut()
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            link.note_cut()
        else:
            link.note_sent()
    return True
