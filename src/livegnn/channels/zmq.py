"""`ZmqChannel`: a channel between processes over ZeroMQ. Needs `pyzmq`: `pip install 'livegnn[cluster]'`.

Two workers have one link, of two DEALER sockets: the worker with the lower number listens, at a socket for
each peer, and the other connects. On one machine links are `ipc://` in a directory of this user's own;
between machines they are `tcp://`, encrypted, and only the processes of the plan are admitted.

ZeroMQ connects again when a connection is lost, and may lose messages then; `Link` has its own numbers and
repeats them. ZeroMQ's own heartbeats end a connection whose other end is lost.

Threads: the thread that calls `swap` reads and writes the sockets while it waits. Between rounds a thread of
the channel does so, 20 times a second, for beats and requests for lost messages. Locks: `_lock`, for the
sockets and the rounds; ZeroMQ lets sockets change their thread if a lock lies between.
"""

import ipaddress
import os
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import zmq

from livegnn.arguments import check_int
from livegnn.channels.admission import Admission, Handshakes, Keys, require_keys
from livegnn.channels.channel import Round
from livegnn.channels.errors import ChannelError, DeadLinkError
from livegnn.channels.exchange import Exchange
from livegnn.channels.frames import MOST_PART_BYTES, Buffer, Section
from livegnn.channels.health import Patience, Report
from livegnn.channels.link import Counts, End, Limits, Link
from livegnn.errors import InputError
from livegnn.interrupts import Background, Flag

_Socket: TypeAlias = "zmq.Socket[bytes]"

_TICK_MS: Final = 50
_READABLE: Final = int(zmq.POLLIN)
_WRITABLE: Final = int(zmq.POLLOUT)
_PARTING_SECONDS: Final = 1.0  # for which peers that do not answer may receive the last messages
_HEARTBEAT_MS: Final = 500
_HEARTBEAT_TIMEOUT_MS: Final = 2000
_RECONNECT_MS: Final = 50
_MOST_RECONNECT_MS: Final = 1000
_MOST_QUEUED: Final = 64
_MOST_NUMBER: Final = 0xFFFF
_MOST_INCARNATION: Final = 0xFFFF_FFFF
_LONGEST_PATH: Final = 107  # of a socket of the system


class Peer(NamedTuple):
    """Another worker of the plan. address: where it listens for this one, if its number is lower. key: its
    public key, needed over TCP.
    """

    incarnation: int = 1
    address: str | None = None
    key: str | None = None


class Listener:
    """The sockets at which one process listens, before it knows its peers.

    number: of this worker. interfaces: for each peer with a greater number, the IP address of this machine
    at which that one connects, or None if it is on this machine. incarnation: how many processes the worker
    has had, this one included.
    """

    def __init__(self, number: int, interfaces: Mapping[int, str | None], *, incarnation: int = 1) -> None:
        self.here = End(
            check_int(number, "number", 0, _MOST_NUMBER),
            check_int(incarnation, "incarnation", 1, _MOST_INCARNATION),
        )
        for peer in interfaces:
            check_int(peer, "a peer in interfaces", number + 1, _MOST_NUMBER)
        self._keys = Keys.create() if zmq.has("curve") else None
        self._sockets = _Sockets()
        self.addresses: dict[int, str] = {}
        try:
            for peer, interface in interfaces.items():
                self._listen(peer, interface)
        except BaseException:
            self.close()
            raise

    @property
    def key(self) -> str | None:
        """The public key of this process, for `Peer.key` of the others; None if there is no encryption."""
        return None if self._keys is None else self._keys.public

    def _listen(self, peer: int, interface: str | None) -> None:
        socket = self._sockets.add(peer)
        if interface is None:
            endpoint = f"ipc://{self._sockets.path_for(f'{self.here.number}-{peer}')}"
        else:
            endpoint = _tcp_endpoint(interface)
            socket.ipv6 = "[" in endpoint
            keys = require_keys(self._keys, f"worker {peer} connects to {interface}")
            socket.curve_server = True
            socket.curve_publickey, socket.curve_secretkey = keys.public.encode(), keys.secret.encode()
            socket.zap_domain = str(peer).encode()
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise InputError(
                f"worker {self.here.number} must listen at an address of this machine, got {endpoint}: "
                f"{error}"
            ) from error
        self.addresses[peer] = socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def connect(
        self,
        peers: Mapping[int, Peer],
        terms: Mapping[str, str],
        *,
        epoch: int = 1,
        patience: Patience | None = None,
    ) -> "ZmqChannel":
        """The channel to all other workers of a plan, when each of them has said hello. The listener ends.

        terms: properties that must be the same at all workers, by name (`terms.ADVICE` lists some). epoch: of
        the leader that made the plan.
        Raises `ChannelRefusedError` for a peer with other terms, versions or keys, and if this process was
        replaced; `DeadLinkError` if one does not answer; `InputError` for a plan that does not fit.
        """
        patience = patience or Patience()
        try:
            check_int(epoch, "epoch", 1, _MOST_INCARNATION)
            self._check(peers)
            for peer, its in peers.items():
                if peer < self.here.number:
                    self._connect(peer, its)
            self._sockets.admission.admit({peer: its.key or "" for peer, its in peers.items()})
            exchange = Exchange(
                self.here,
                {peer: its.incarnation for peer, its in peers.items()},
                epoch,
                terms,
                patience=patience,
                limits=Limits(),
                now=time.monotonic(),
            )
            channel = ZmqChannel(exchange, self._sockets)
        except BaseException:
            self.close()
            raise
        try:
            channel.greet(patience.hello_seconds)
        except BaseException:
            channel.close()
            raise
        return channel

    def _check(self, peers: Mapping[int, Peer]) -> None:
        greater = {peer for peer in peers if peer > self.here.number}
        if greater != self._sockets.of.keys() or self.here.number in peers:
            raise InputError(
                f"peers must be the other workers, those after {self.here.number} being "
                f"{sorted(self._sockets.of)}, which it listens for, got {sorted(peers)}"
            )
        for peer, its in peers.items():
            check_int(peer, "a peer", 0, _MOST_NUMBER)
            check_int(its.incarnation, "incarnation", 1, _MOST_INCARNATION)
            address = self.addresses.get(peer, its.address)
            if address is None or not address.startswith(("ipc://", "tcp://")):
                raise InputError(
                    f"worker {peer} must have an address that begins with ipc:// or tcp://, got {address!r}"
                )
            if address.startswith("tcp://") and (its.key is None or len(its.key) != len(self.key or "")):
                raise InputError(f"worker {peer} at {address} must have a public key, got {its.key!r}")

    def _connect(self, peer: int, its: Peer) -> None:
        assert its.address is not None
        socket = self._sockets.add(peer)
        socket.ipv6 = "[" in its.address
        if its.key is not None and its.address.startswith("tcp://"):
            keys = require_keys(self._keys, f"worker {peer} listens at {its.address}")
            socket.curve_publickey, socket.curve_secretkey = keys.public.encode(), keys.secret.encode()
            socket.curve_serverkey = its.key.encode()
        self._sockets.handshakes.append(Handshakes(socket, peer, its.address))
        socket.connect(its.address)

    def close(self) -> None:
        """Ends a listener that has not become a channel."""
        self._sockets.close()


class ZmqChannel:
    """A `Channel` between processes; `Listener.connect` makes it."""

    def __init__(self, exchange: Exchange, sockets: "_Sockets") -> None:
        self._exchange, self._sockets = exchange, sockets
        self._lock = threading.Lock()
        self._poller = zmq.Poller()
        self._polled: dict[int, int] = {}
        self._peers = {sockets.of[peer]: peer for peer in exchange.links}
        for peer in exchange.links:
            self._poll_for(peer, _READABLE)
        self._poller.register(sockets.admission.socket, zmq.POLLIN)
        self._aborts: deque[tuple[int, str]] = deque()
        self._closing, self._is_closed = Flag(), False
        self._reported = time.monotonic()
        self._report = exchange.report(self._reported)
        self._service = Background(self._serve, "livegnn-channel")

    @property
    def number(self) -> int:
        return self._exchange.here.number

    @property
    def peers(self) -> Sequence[int]:
        return list(self._exchange.links)

    def greet(self, seconds: float) -> None:
        """Waits until all peers have said hello. Called once, by `Listener.connect`."""
        ends = time.monotonic() + seconds
        for one in self._sockets.handshakes:
            self._poller.register(one.monitor, zmq.POLLIN)
        with self._lock:
            try:
                self._pump(0)
                while not self._exchange.is_greeted():
                    for one in self._sockets.handshakes:
                        one.check()
                    if time.monotonic() > ends:
                        raise self._not_greeted(seconds)
                    self._pump(_TICK_MS)
            finally:
                for one in self._sockets.handshakes:
                    self._poller.unregister(one.monitor)
                    one.close()
        self._service.start()

    def _not_greeted(self, seconds: float) -> DeadLinkError:
        missing = [peer for peer, link in self._exchange.links.items() if not link.is_greeted]
        keys = ", ".join(self._sockets.admission.refused)
        refused = f"; these keys were refused, which are not in the plan: {keys}" if keys else ""
        return DeadLinkError(
            f"worker {self.number} must be answered by all workers of the plan within {seconds} seconds, got "
            f"nothing of {missing}: start them, or check the addresses in the plan and the network{refused}"
        )

    def swap(self, round: Round, sections: Mapping[int, Sequence[Section]]) -> dict[int, list[Section]]:
        with self._lock:
            self._check_open()
            self._take_aborts()
            self._exchange.begin(round, sections, time.monotonic())
            self._send()
            while (found := self._exchange.finish(time.monotonic())) is None:
                self._pump(_TICK_MS)
                self._check_open()
            return found

    def abort(self, turn: int, reason: str) -> None:
        self._aborts.append((turn, reason))
        if self._lock.acquire(blocking=False):  # else the thread that has it sends this within a tick
            try:
                if not self._closing.is_set():
                    self._pump(0)
            finally:
                self._lock.release()

    def report(self) -> Report:
        """The work of this worker and its end of each link, as it was some 0.1 seconds ago."""
        return self._report

    def counts(self) -> dict[int, Counts]:
        """The messages of each link."""
        return self._exchange.counts()

    def close(self) -> None:
        self._closing.set()
        self._service.join()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._exchange.say_bye()
            ends = time.monotonic() + _PARTING_SECONDS
            self._send()
            while not self._exchange.has_parted(now := time.monotonic()) and now < ends:
                self._pump(_TICK_MS)
            self._sockets.close(ends - now)

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise ChannelError(f"the channel of worker {self.number} was closed: make another one")

    # -- sockets; the caller holds the lock

    def _pump(self, timeout_ms: int) -> bool:
        """Waits until a socket is ready, or for `timeout_ms`; receives a message of each link, and sends all
        that can be sent. Whether a socket was ready.
        """
        ready = self._poller.poll(timeout_ms)
        now = time.monotonic()
        self._take_aborts()
        for socket, _ in ready:
            if (peer := self._peers.get(socket)) is not None:
                self._receive(peer, socket, now)
            elif socket is self._sockets.admission.socket:
                self._sockets.admission.answer()
        self._exchange.tick(now)
        self._send()
        if now >= self._reported + _TICK_MS / 1000:
            self._report, self._reported = self._exchange.report(now), now
        return bool(ready)

    def _take_aborts(self) -> None:
        while self._aborts:
            self._exchange.abort(*self._aborts.popleft())

    def _receive(self, peer: int, socket: _Socket, now: float) -> None:
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:  # it has room for messages again
            return
        buffers: list[Buffer] = [frame.buffer for frame in frames]
        self._exchange.receive(peer, buffers, now)

    def _send(self) -> None:
        for peer, link in self._exchange.links.items():
            events = _READABLE if _send(link, self._sockets.of[peer]) else _READABLE | _WRITABLE
            if self._polled[peer] != events:
                self._poll_for(peer, events)

    def _poll_for(self, peer: int, events: int) -> None:
        self._polled[peer] = events
        self._poller.register(self._sockets.of[peer], events)

    def _serve(self) -> None:
        """Sends and receives between rounds, in a thread of its own."""
        while not self._closing.wait(_TICK_MS / 1000):
            if self._lock.acquire(blocking=False):
                try:
                    while self._pump(0):
                        pass
                finally:
                    self._lock.release()


class _Sockets:
    """The sockets of one process, and the files that they need. of: by peer."""

    def __init__(self) -> None:
        self._context: zmq.Context[_Socket] = zmq.Context()
        self.admission = Admission(self._context)
        self.of: dict[int, _Socket] = {}
        self.handshakes: list[Handshakes] = []
        self._folder: str | None = None

    def add(self, peer: int) -> _Socket:
        """The socket of another peer."""
        socket = self.of[peer] = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.IMMEDIATE, 1),
            (zmq.SNDHWM, _MOST_QUEUED),
            (zmq.RCVHWM, _MOST_QUEUED),
            (zmq.MAXMSGSIZE, 2 * MOST_PART_BYTES),
            (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS),
            (zmq.RECONNECT_IVL, _RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, _MOST_RECONNECT_MS),
        ):
            socket.set(option, value)
        return socket

    def path_for(self, name: str) -> str:
        """A path in a folder that no other user can enter. Raises `InputError` if it is too long."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="livegnn-", dir=os.environ.get("XDG_RUNTIME_DIR"))
        path = str(Path(self._folder, name))
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise InputError(
                f"the path of a socket must have at most {_LONGEST_PATH} bytes, got {path!r}: set "
                "XDG_RUNTIME_DIR to a shorter one"
            )
        return path

    def close(self, seconds: float = 0.0) -> None:
        """Ends all, after `seconds` at most: within them messages that are on their way may leave."""
        for one in self.handshakes:
            one.close()
        for socket in self.of.values():
            socket.close(max(0, round(1000 * seconds)))
        self.admission.socket.close()
        self._context.term()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _send(link: Link, socket: _Socket) -> bool:
    """Sends what the link has to send; whether all of it, because the socket has room."""
    while (frames := link.outgoing()) is not None:
        try:
            socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        link.note_sent()
    return True


def _tcp_endpoint(interface: str) -> str:
    try:
        address = ipaddress.ip_address(interface)
    except ValueError:
        address = None
    if address is None or address.is_unspecified:
        raise InputError(
            f"an interface must be an IP address of this machine that the peer can reach, got {interface!r}"
        )
    return f"tcp://[{address}]:*" if address.version == 6 else f"tcp://{address}:*"
