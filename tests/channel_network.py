"""Workers in threads, and a bad network between workers, which loses, doubles, delays and damages messages.

`Faults` decides about each message by a seed, `Network` carries them between `Exchange`s in virtual time.
`zmq_relay.Relay` carries them between sockets.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from livegnn.channels.channel import Round
from livegnn.channels.errors import BatchAborted, ChannelError
from livegnn.channels.exchange import Exchange
from livegnn.channels.frames import Section, SectionKind

Frames = list[bytes]
MOST_SECONDS = 100_000.0
KINDS = ("lose", "double", "delay", "cut", "flip")


def in_threads(calls: Sequence[Callable[[], object]]) -> list[object]:
    """What each call returns, or the error of a channel that it raises."""

    def attempt(call: Callable[[], object]) -> object:
        try:
            return call()
        except ChannelError as error:
            return error

    with ThreadPoolExecutor(max(1, len(calls))) as threads:
        return list(threads.map(attempt, calls))


class Faults:
    """What happens to each message. share: of messages that have a fault; most: faults in all, None for any
    number; longest_delay: in seconds."""

    def __init__(
        self, seed: int, share: float, *, most: int | None = None, longest_delay: float = 2.0
    ) -> None:
        self._draw = random.Random(seed)
        self._share, self._longest = share, longest_delay
        self.left = most

    def decide(self, frames: Frames) -> list[tuple[float, Frames]]:
        """What arrives of a message, each after a delay."""
        draw = self._draw
        if self.left == 0 or draw.random() >= self._share:
            return [(0.0, frames)]
        if self.left is not None:
            self.left -= 1
        kind, later = draw.choice(KINDS), draw.random() * self._longest
        if kind == "lose":
            return []
        if kind == "double":
            return [(0.0, frames), (later, frames)]
        if kind == "delay":
            return [(later, frames)]
        return [(0.0, self._flip(frames) if kind == "flip" else self._cut(frames))]

    def is_full(self) -> bool:
        """Whether a socket takes no message now."""
        return self._draw.random() < self._share / 2 and self.left != 0

    def _cut(self, frames: Frames) -> Frames:
        """Without the last frames, or without the end of one."""
        at = self._draw.randrange(len(frames))
        kept = frames[at][: self._draw.randrange(len(frames[at]) + 1)]
        return [*frames[:at], kept, *(frames[at + 1 :] if self._draw.random() < 0.5 else [])]

    def _flip(self, frames: Frames) -> Frames:
        at = self._draw.choice([place for place, frame in enumerate(frames) if frame])
        damaged = bytearray(frames[at])
        damaged[self._draw.randrange(len(damaged))] ^= 1 << self._draw.randrange(8)
        return [*frames[:at], bytes(damaged), *frames[at + 1 :]]


class Network:
    """Messages between workers in virtual time. Those without a delay arrive in their order."""

    LATENCY = 0.001

    def __init__(self, faults: Faults) -> None:
        self.now = 0.0
        self.faults = faults
        self._posted: list[tuple[float, int, int, int, Frames]] = []
        self._count = itertools.count()

    def post(self, sender: int, receiver: int, frames: Frames) -> None:
        for delay, arriving in self.faults.decide(frames):
            at = self.now + self.LATENCY + delay
            heapq.heappush(self._posted, (at, next(self._count), sender, receiver, arriving))

    def next(self) -> float:
        """When the next message arrives."""
        return self._posted[0][0] if self._posted else float("inf")

    def arrived(self) -> list[tuple[int, int, Frames]]:
        """The messages that have arrived by now: sender, receiver, frames."""
        found = []
        while self._posted and self._posted[0][0] <= self.now:
            found.append(heapq.heappop(self._posted)[2:])
        return found


class Turn(NamedTuple):
    """A batch. rounds: how many. aborts: the worker that ends it, and before which round, if one does."""

    rounds: int
    aborts: tuple[int, int] | None = None


def sections_for(seed: int, sender: int, receiver: int, round: Round) -> list[Section]:
    """What a worker sends to another in a round: a function of the arguments."""
    rng = np.random.default_rng([seed, sender, receiver, *round])
    found = []
    for value in range(rng.integers(0, 3)):
        count, width = int(rng.integers(0, 12)), int(rng.integers(0, 6))
        nodes = np.sort(rng.choice(1000, count, replace=False)).astype(np.uint32)
        kind = SectionKind(int(rng.integers(0, len(SectionKind))))
        found.append(Section(kind, value, nodes, rng.standard_normal((count, width)).astype(np.float32)))
    return found


def plain(sections: Sequence[Section]) -> dict[tuple[int, int], tuple[bytes, bytes]]:
    """The contents of sections, those of one value joined; values without rows are left out."""
    found: dict[tuple[int, int], tuple[bytes, bytes]] = {}
    for one in sections:
        if len(one.nodes):
            nodes, rows = found.get((one.kind, one.value), (b"", b""))
            found[one.kind, one.value] = nodes + one.nodes.tobytes(), rows + one.rows.tobytes()
    return found


class Simulated:
    """A worker in virtual time: it makes all rounds of all turns, and computes between them."""

    def __init__(self, exchange: Exchange, turns: Sequence[Turn], seed: int) -> None:
        self.exchange = exchange
        self.got: list[tuple[Round, Mapping[int, object]]] = []
        self.ended: list[int] = []  # turns that were aborted
        self.error: Exception | None = None
        self._seed = seed
        self._draw = random.Random(f"{seed} {exchange.here.number}")
        self._turns = list(enumerate(turns, 1))
        self._number, self._waits, self._until = 0, False, 0.0

    @property
    def is_done(self) -> bool:
        return self.error is not None or not self._turns

    def step(self, now: float) -> None:
        """Makes rounds, as far as it can now."""
        if self.is_done or now < self._until:
            return
        try:
            turn, its = self._turns[0]
            here = self.exchange.here.number
            if its.aborts == (here, self._number) and not self._waits:
                self.exchange.abort(turn, "for the test")
            round = Round(turn, 0, self._number, 10 * turn)
            if not self._waits:
                given = {peer: sections_for(self._seed, here, peer, round) for peer in self.exchange.links}
                self.exchange.begin(round, given, now)
                self._waits = True
            found = self.exchange.finish(now)
        except BatchAborted:
            self.ended.append(self._turns[0][0])
            self.exchange.abort(self._turns[0][0], "another has ended it")
            self._next_turn()
        except Exception as error:
            self.error = error
        else:
            if found is not None:
                self.got.append((round, {peer: plain(sections) for peer, sections in found.items()}))
                self._number += 1
                self._waits = False
                self._until = now + self._draw.choice([0.0, 0.0, 0.003, 0.5])
                if self._number == its.rounds:
                    self._next_turn()

    def greet(self) -> bool:
        """Whether it may begin, as far as it is concerned."""
        try:
            return self.error is not None or self.exchange.is_greeted()
        except ChannelError as error:
            self.error = error
            return True

    def _next_turn(self) -> None:
        self._turns.pop(0)
        self._number, self._waits = 0, False
        if not self._turns:
            self.exchange.say_bye()


def simulate(workers: Sequence[Simulated], network: Network) -> None:
    """Until all workers are done. They begin when all have said hello, as they do after a leader's word."""
    begun = False
    while not all(worker.is_done for worker in workers):
        assert network.now < MOST_SECONDS, "the workers must end"
        for sender, receiver, frames in network.arrived():
            workers[receiver].exchange.receive(sender, list(frames), network.now)
        for worker in workers:
            if worker.error is None:
                worker.exchange.tick(network.now)
                begun = begun or all(each.greet() for each in workers)
                for _ in range(2 * begun):
                    worker.step(network.now)
                flush(worker.exchange, network)
        network.now = min(network.next(), network.now + 0.05)


def flush(exchange: Exchange, network: Network) -> None:
    for peer, link in exchange.links.items():
        while (frames := link.outgoing()) is not None and not network.faults.is_full():
            network.post(exchange.here.number, peer, [bytes(frame) for frame in frames])
            link.note_sent()
