"""The keys of links over TCP: which processes may connect, and why a connection was refused.

Links over TCP are encrypted by CURVE (libsodium, in libzmq). A worker that connects knows the key of the
worker that listens. At the listening end libzmq sends each other key to `Admission`, by the protocol ZAP
(ZeroMQ RFC 27). There is no answer until the keys of the plan are there, so a worker that connects early
waits: libzmq does not try again after a refusal.
"""

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from livegnn.channels.errors import ChannelRefusedError
from livegnn.errors import InputError

_logger = logging.getLogger(__name__)
_KEY_FRAME: Final = 6
_MOST_NAMED: Final = 3  # keys that were refused
_FAILED_HANDSHAKES: Final = 3  # in a row, until the key of the peer counts as another one


def is_readable(socket: "zmq.Socket[bytes]") -> bool:
    """Whether a message is there."""
    return bool(int(socket.get(zmq.EVENTS)) & zmq.POLLIN)


class Keys(NamedTuple):
    """The keys of a process, as 40 letters of Z85 each."""

    public: str
    secret: str

    @staticmethod
    def create() -> "Keys":
        public, secret = zmq.curve_keypair()
        return Keys(public.decode(), secret.decode())


def require_keys(keys: Keys | None, why: str) -> Keys:
    """The keys. Raises `InputError` if there are none, because this libzmq has no CURVE."""
    if keys is None:
        raise InputError(
            f"{why}: links over TCP are encrypted, which this libzmq cannot do: install pyzmq from its wheels"
        )
    return keys


class Admission:
    """Admits at each socket the key of one peer. refused: the first keys that were not.

    Thread safety: none.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self.refused: list[str] = []
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind("inproc://zeromq.zap.01")
        self._admitted: Mapping[str, str] | None = None

    def admit(self, keys: Mapping[int, str]) -> None:
        """Answers from here on. keys: by peer."""
        self._admitted = {str(peer): key for peer, key in keys.items()}

    def answer(self) -> None:
        """Answers the requests that are there."""
        while self._admitted is not None and is_readable(self.socket):
            version, request, domain, address, *rest = self.socket.recv_multipart()
            key = z85.encode(rest[-1]).decode() if len(rest) == _KEY_FRAME - 3 else "none"
            is_known = self._admitted.get(domain.decode()) == key
            if not is_known and len(self.refused) < _MOST_NAMED:
                self.refused.append(key)
                _logger.warning(
                    "the key %s was refused, from %s for worker %s",
                    key,
                    address.decode(errors="replace"),
                    domain.decode(errors="replace"),
                )
            status = (b"200", b"OK") if is_known else (b"400", b"unknown key")
            self.socket.send_multipart([version, request, *status, domain, b""])


class Handshakes:
    """The handshakes of a socket over TCP, until its peer has said hello. Thread safety: none.

    address: to which it connects; None if it listens. refused: at a socket that listens, which connections
    were refused because they do not know its key, as a text, or none.
    """

    def __init__(self, socket: "zmq.Socket[bytes]", peer: int, address: str | None) -> None:
        self._peer, self._address = peer, address
        self._failed = 0
        self.refused = ""
        self._socket = socket
        self.monitor = socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_FAILED_AUTH
            | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
            | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
            | zmq.EVENT_HANDSHAKE_SUCCEEDED
        )

    def check(self) -> None:
        """Raises `ChannelRefusedError` if the peer refuses this worker's key, or has another one itself."""
        while is_readable(self.monitor):
            event = recv_monitor_message(self.monitor)["event"]
            if self._address is None:
                if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                    self.refused = (
                        f"a process at the address for worker {self._peer} without the key of this one"
                    )
                continue
            if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                raise ChannelRefusedError(
                    f"worker {self._peer} at {self._address} does not admit the key of this process: give "
                    "it the public key of this process in its plan"
                )
            self._failed = 0 if event == zmq.EVENT_HANDSHAKE_SUCCEEDED else self._failed + 1
            if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL or self._failed == _FAILED_HANDSHAKES:
                raise ChannelRefusedError(
                    f"the process at {self._address} does not have the key of worker {self._peer} in the "
                    "plan: its process was replaced, or another program listens there. Make a new listener, "
                    "and connect it by the plan of now"
                )

    def close(self) -> None:
        """Ends the observation; the socket stays."""
        if not self.monitor.closed:
            self._socket.disable_monitor()
            self.monitor.close(0)
