"""Requests: a socket at which any number of processes ask a worker. Needs pyzmq.

Beside the channels, whose workers know each other. A request is a message of a few frames, and so is its
answer, which has the number of the request. Requests are answered in any order. A process that vanishes, or
does not read its answers, loses them. On one machine the socket is a file of this user; between machines it
is encrypted, and processes with one key are admitted.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import zmq

from livegnn.channels.admission import Keys
from livegnn.channels.sockets import Sockets, receive

NUMBER_BYTES: Final = 8
_ASKERS: Final = 0  # the peer of the socket, whoever it is


class Request(NamedTuple):
    """A request. route, number: for its answer. frames: its content, any bytes."""

    route: bytes
    number: bytes
    frames: Sequence[memoryview]


class Requests:
    """The socket of one worker.

    interface: the IP address of this machine at which processes of other machines ask; None if all are on
    this one. admitted: the public key of these processes, needed with `interface`. Raises `InputError`.
    Thread safety: none.
    """

    def __init__(self, interface: str | None = None, admitted: str | None = None) -> None:
        keys = Keys.create() if interface is not None and zmq.has("curve") else None
        self.key: Final = None if keys is None else keys.public
        """The public key of this socket."""
        self._sockets = Sockets()
        try:
            self.address: Final = self._sockets.listen(_ASKERS, "requests", interface, keys, "a worker")
        except BaseException:
            self._sockets.close()
            raise
        self._sockets.admission.admit({_ASKERS: admitted or ""})
        self._poller = zmq.Poller()
        for socket in (self._sockets.of[_ASKERS], self._sockets.admission.socket):
            self._poller.register(socket, zmq.POLLIN)

    def receive(self, seconds: float, most: int) -> list[Request]:
        """The requests that are there, `most` at most. Waits this time for the first."""
        self._poller.poll(round(1000 * seconds))
        self._sockets.admission.answer()
        found: list[Request] = []
        for _ in range(most):
            try:
                route, frames = receive(self._sockets.of[_ASKERS])
            except zmq.Again:
                break
            if frames and len(frames[0]) == NUMBER_BYTES:  # else nobody waits for an answer
                found.append(Request(route, bytes(frames[0]), frames[1:]))
        return found

    def answer(self, request: Request, frames: "Sequence[bytes | memoryview]") -> None:
        """Sends the answer to a request, unless the process that asked has ended or does not read."""
        try:
            self._sockets.of[_ASKERS].send_multipart(
                [request.route, request.number, *frames], zmq.NOBLOCK, copy=False
            )
        except zmq.Again:
            return
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise

    def close(self) -> None:
        """Ends the socket."""
        self._sockets.close()
