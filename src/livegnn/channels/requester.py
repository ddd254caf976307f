"""`Requester`: requests to a worker at its socket of `Requests`, from an event loop. Needs pyzmq."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from livegnn.channels.admission import Keys, require_keys
from livegnn.channels.errors import DeadLinkError
from livegnn.channels.plan import Peer, check_address, is_tcp, require_key
from livegnn.channels.requests import NUMBER_BYTES
from livegnn.channels.sockets import set_options

Context: TypeAlias = "zmq.asyncio.Context"

_CONNECT_SECONDS: Final = 2.0


class Requester:
    """The requests of this process to one worker.

    worker: its number, for errors. peer: where it listens, and its key. keys: of this process, needed over
    TCP. context: of all sockets of this process. Requests wait some seconds for the first connection.
    Raises `InputError`. Thread safety: belongs to the event loop in which it was made.
    """

    def __init__(self, worker: int, peer: Peer, keys: Keys | None, context: Context) -> None:
        check_address(worker, peer.address)
        assert peer.address is not None
        server_key = require_key(worker, peer, peer.address) if is_tcp(peer.address) else None
        own = require_keys(keys, f"worker {worker} is reached at {peer.address}") if server_key else None
        self._worker, self._address = worker, peer.address
        self._numbers = itertools.count()
        self._waiting: dict[bytes, asyncio.Future[Sequence[memoryview]]] = {}
        self._lost = ""
        self._socket: Final = context.socket(zmq.DEALER)
        set_options(self._socket)
        self._socket.set(zmq.MAXMSGSIZE, -1)  # the worker is trusted, and an answer has any size
        self._socket.ipv6 = "[" in self._address
        if own is not None and server_key is not None:
            self._socket.curve_publickey, self._socket.curve_secretkey = map(str.encode, own)
            self._socket.curve_serverkey = server_key.encode()
        self._monitor: Final = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        )
        self._found: Final = asyncio.Event()  # that there is a connection, or none in time
        self._socket.connect(self._address)
        loop = asyncio.get_running_loop()
        self._giving_up: Final = loop.call_later(_CONNECT_SECONDS, self._give_up)
        self._tasks: Final = [asyncio.create_task(self._receive()), asyncio.create_task(self._watch())]

    @property
    def lost(self) -> bool:
        """Whether the worker has ended the connection, or does not answer any more."""
        return bool(self._lost)

    async def ask(self, frames: "Sequence[bytes | memoryview]", seconds: float) -> Sequence[memoryview]:
        """The frames of the answer. Raises `DeadLinkError` if there is none within this time, or at once if
        the worker is lost."""
        await self._found.wait()
        if self._lost:
            raise self._dead()
        number = next(self._numbers).to_bytes(NUMBER_BYTES, "little")
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._socket.send_multipart([number, *frames])
                found: Sequence[memoryview] = await waiting
                return found
        except TimeoutError as error:
            raise DeadLinkError(
                f"worker {self._worker} at {self._address} must answer within {seconds:g} seconds, "
                "got nothing"
            ) from error
        finally:
            del self._waiting[number]

    async def _receive(self) -> None:
        while True:
            number, *frames = await self._socket.recv_multipart(copy=False)
            waiting = self._waiting.get(number.bytes)
            if waiting is not None and not waiting.done():
                waiting.set_result([frame.buffer for frame in frames])

    async def _watch(self) -> None:
        """ZeroMQ connects again, so a worker may be found again."""
        while True:
            event: Any = await recv_monitor_message(self._monitor)
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._lost = ""
                self._found.set()
            else:
                self._lose("the end of the connection")

    def _give_up(self) -> None:
        if not self._found.is_set():
            self._lose("no connection")

    def _lose(self, got: str) -> None:
        self._lost = got
        self._found.set()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self._dead())

    def _dead(self) -> DeadLinkError:
        return DeadLinkError(f"worker {self._worker} at {self._address} must answer, got {self._lost}")

    def close(self) -> None:
        """Ends the connection, and all requests that wait, with `DeadLinkError`."""
        self._lose("the end of its requester")
        self._giving_up.cancel()
        for task in self._tasks:
            task.cancel()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)
