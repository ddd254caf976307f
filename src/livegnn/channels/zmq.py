"""`ZmqChannel`: a channel between processes over ZeroMQ. Needs `pyzmq`: `pip install 'livegnn[cluster]'`.

Two workers have one link: the worker with the lower number listens, at a socket for each peer, and the other
connects. On one machine links are `ipc://` in a directory of this user's own; between machines they are
`tcp://`, encrypted, and only the processes of the plan are admitted.

ZeroMQ connects again when a connection is lost, and may lose messages then; `Link` has its own numbers and
repeats them. ZeroMQ's own heartbeats end a connection whose other end is lost.

Threads: the thread that calls `swap` reads and writes the sockets while it waits. Between rounds a thread of
the channel does so, 20 times a second, for beats and requests for lost messages. Locks: `_lock`, for the
sockets and the rounds; ZeroMQ lets sockets change their thread if a lock lies between.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from livegnn.errors import InputError
from livegnn.wording import needs, quoted

try:
    import zmq
except ImportError as error:
    raise ImportError(needs("livegnn.channels.zmq", "pyzmq", error, "cluster"), name="zmq") from error

from livegnn.arguments import check_int
from livegnn.channels.admission import Handshakes, Keys, require_keys
from livegnn.channels.channel import Round
from livegnn.channels.errors import ChannelError, DeadLinkError
from livegnn.channels.exchange import Exchange
from livegnn.channels.frames import Section
from livegnn.channels.greeting import End
from livegnn.channels.health import Patience, Report
from livegnn.channels.link import Counts, Limits
from livegnn.channels.plan import MOST_INCARNATION, MOST_NUMBER, Peer, check_plan, is_tcp, require_key
from livegnn.channels.sockets import Socket, Sockets, receive, send
from livegnn.channels.terms import check_terms
from livegnn.interrupts import Background, Flag

_TICK_MS: Final = 50
_READABLE: Final = int(zmq.POLLIN)
_WRITABLE: Final = int(zmq.POLLOUT)
_PARTING_SECONDS: Final = 1.0  # for which peers that do not answer may receive the last messages


class Listener:
    """The sockets at which one process listens, before it knows its peers.

    number: of this worker. interfaces: for each peer with a greater number, the IP address of this machine
    at which that one connects, or None if it is on this machine. incarnation: how many processes the worker
    has had, this one included. Locks: `_lock`, for `_gone`.
    """

    def __init__(self, number: int, interfaces: Mapping[int, str | None], *, incarnation: int = 1) -> None:
        self.here = End(
            check_int(number, "number", 0, MOST_NUMBER),
            check_int(incarnation, "incarnation", 1, MOST_INCARNATION),
        )
        if not isinstance(interfaces, Mapping):
            raise InputError(f"interfaces must be a mapping of peers to addresses, got {quoted(interfaces)}")
        for peer in interfaces:
            check_int(peer, "a peer in interfaces", number + 1, MOST_NUMBER)
        self._keys = Keys.create() if zmq.has("curve") else None
        self._sockets = Sockets()
        self._lock = threading.Lock()
        self._gone = ""  # why the sockets are not this listener's any more
        self.addresses: dict[int, str] = {}
        try:
            for peer, interface in interfaces.items():
                name, whose = f"{number}-{peer}", f"worker {number}"
                self.addresses[peer] = self._sockets.listen(peer, name, interface, self._keys, whose)
        except BaseException:
            self.close()
            raise

    @property
    def key(self) -> str | None:
        """The public key of this process, for `Peer.key` of the others; None if there is no encryption."""
        return None if self._keys is None else self._keys.public

    def connect(
        self,
        peers: Mapping[int, Peer],
        terms: Mapping[str, str],
        *,
        epoch: int = 1,
        patience: Patience | None = None,
    ) -> "ZmqChannel":
        """The channel to all other workers of a plan, when each of them has accepted this process.

        A listener connects once: whether this succeeds or not, it cannot connect again. A replacement of it
        has the next incarnation, other addresses and another key, so all workers need another plan.
        terms: properties that must be the same at all workers, by name (`terms.ADVICE` lists some). epoch: of
        the leader that made the plan.
        Raises `ChannelRefusedError` for a peer with other terms, versions or keys, and if this process was
        replaced or is another one than the peer has accepted; `DeadLinkError` if one does not answer. Raises
        `InputError` for arguments that do not fit, then the listener stays as it was, and for a listener that
        has connected before or is closed.
        """
        check_int(epoch, "epoch", 1, MOST_INCARNATION)
        check_plan(self.here.number, peers, self.addresses)
        self._check_keys(peers)
        check_terms(terms)
        if not isinstance(patience, (Patience, type(None))):
            raise InputError(f"patience must be a Patience or None, got {quoted(patience)}")
        patience = patience or Patience()
        sockets = self._take("has connected before")
        try:
            for peer, its in peers.items():
                if peer < self.here.number:
                    self._connect(sockets, peer, its)
                elif is_tcp(self.addresses[peer]):
                    sockets.handshakes.append(Handshakes(sockets.of[peer], peer, None))
            sockets.admission.admit({peer: its.key or "" for peer, its in peers.items()})
            exchange = Exchange(
                self.here,
                {peer: its.incarnation for peer, its in peers.items()},
                epoch,
                terms,
                patience=patience,
                limits=Limits(),
                now=time.monotonic(),
            )
            channel = ZmqChannel(exchange, sockets)
        except BaseException:
            sockets.close()
            raise
        try:
            channel.greet(patience.hello_seconds)
        except BaseException:
            channel.close()
            raise
        return channel

    def _check_keys(self, peers: Mapping[int, Peer]) -> None:
        """Raises `InputError` if a key is missing, of a peer over TCP or of this process."""
        for peer, its in peers.items():
            address = self.addresses.get(peer) or its.address
            if address is not None and is_tcp(address):
                require_key(peer, its, address)
                require_keys(self._keys, f"worker {peer} is reached at {address}")

    def _connect(self, sockets: Sockets, peer: int, its: Peer) -> None:
        assert its.address is not None
        socket = sockets.add(peer, listens=False)
        socket.ipv6 = "[" in its.address
        if self._keys is not None and its.key is not None and is_tcp(its.address):
            socket.curve_publickey = self._keys.public.encode()
            socket.curve_secretkey = self._keys.secret.encode()
            socket.curve_serverkey = its.key.encode()
        sockets.handshakes.append(Handshakes(socket, peer, its.address))
        try:
            socket.connect(its.address)
        except zmq.ZMQError as error:
            raise InputError(
                f"worker {peer} must have an address that this machine can connect to, got {its.address}: "
                f"{error}"
            ) from error

    def _take(self, why: str) -> Sockets:
        """The sockets, once. why: for the error of the next call, an `InputError`."""
        with self._lock:
            if self._gone:
                raise InputError(
                    f"worker {self.here.number} must connect with a new listener: this one {self._gone}. "
                    "Close it and what it has connected to, make one with the next incarnation at each "
                    "worker, and give all workers the plan of these"
                )
            self._gone = why
            return self._sockets

    def close(self) -> None:
        """Ends a listener that has not connected. Does nothing to its channel."""
        with suppress(InputError):
            self._take("was closed").close()


class ZmqChannel:
    """A `Channel` between processes; `Listener.connect` makes it."""

    def __init__(self, exchange: Exchange, sockets: Sockets) -> None:
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
        links = self._exchange.links
        missing = [peer for peer, link in links.items() if not link.is_greeted]
        refused = [
            *(f"the key {key}, which is not in the plan" for key in self._sockets.admission.refused),
            *(text for one in self._sockets.handshakes if (text := one.refused)),
            *(text for link in links.values() for text in link.refused),
        ]
        if refused:
            got = (
                f"got none of {missing}, and refused {'; '.join(refused)}: connect all workers by one plan, "
                "with the keys and incarnations of their processes of now"
            )
        else:
            got = f"got nothing of {missing}: start them, or check the addresses in the plan and the network"
        return DeadLinkError(
            f"worker {self.number} must be answered by all workers of the plan within {seconds} seconds, "
            f"{got}"
        )

    def swap(
        self,
        round: Round,
        sections: Mapping[int, Sequence[Section]],
        look: Callable[[], None] = lambda: None,
    ) -> dict[int, list[Section]]:
        """As `Channel.swap`. look: called often while it waits; its errors end the round here, and the peers
        learn it with the next turn."""
        with self._lock:
            self._check_open()
            self._take_aborts()
            self._exchange.begin(round, sections, time.monotonic())
            self._send()
            while (found := self._exchange.finish(time.monotonic())) is None:
                self._pump(_TICK_MS)
                self._check_open()
                look()
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
            self._pump_until(now + _TICK_MS / 1000)  # the last receipts leave
            self._sockets.close()

    def _pump_until(self, ends: float) -> None:
        while (left := ends - time.monotonic()) > 0:
            self._pump(math.ceil(1000 * left))

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

    def _receive(self, peer: int, socket: Socket, now: float) -> None:
        try:
            route, frames = receive(socket)
        except zmq.Again:  # it has room for messages again
            return
        self._exchange.receive(peer, [*frames], now, route)

    def _send(self) -> None:
        for peer, link in self._exchange.links.items():
            events = _READABLE if send(link, self._sockets.of[peer]) else _READABLE | _WRITABLE
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
