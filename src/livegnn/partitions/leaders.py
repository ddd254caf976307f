"""The leader of all parts, as the process of one part sees it: over memory that both share, or over channels.

A batch is a turn of four messages, in both cases:

    0  leader ─► part   the events
       (rounds between all parts)
    1  part ─► leader   its vote: it can commit, or an error
    2  leader ─► part   the decision
    3  part ─► leader   the outcome, if it was to commit
"""

import json
import math
import os
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

from pydantic import BaseModel

import livegnn._core as _core
from livegnn.channels.channel import Channel, Round
from livegnn.channels.errors import ChannelError
from livegnn.partitions.ballot import GivenUpError
from livegnn.partitions.letters import Letter, open_letter, seal
from livegnn.partitions.packed import Order, pack_outcome, unpack_order
from livegnn.partitions.part import Outcome
from livegnn.partitions.rounds import ChannelRounds

if TYPE_CHECKING:
    from livegnn.channels.health import Patience
    from livegnn.inference.native_engine import NativeEngine

LEADER: Final = 0
"""The number of the leader in its channels to a worker, whose own number there is 1."""
WORKER: Final = 1


class Message(IntEnum):
    """The number of a message of a batch."""

    ORDER = 0
    VOTE = 1
    DECISION = 2
    OUTCOME = 3


class LeaderLostError(Exception):
    """The leader has closed its end, or is lost."""


class Leader(Protocol):
    """Thread safety: none. All functions raise `LeaderLostError`."""

    def join(self, engine: "NativeEngine") -> None:
        """Has an engine prepare its batches together with those of the other parts."""

    def wait_for_order(self) -> Order:
        """The next batch."""

    def vote(self) -> None:
        """Agrees, and returns once the batch is to be committed. Raises GivenUpError if it is not."""

    def refuse(self, error: Exception) -> None:
        """Votes against the batch, and ends its rounds for the others."""

    def report(self, outcome: Outcome) -> None:
        """The outcome of a batch that was committed."""


def explain(error: Exception) -> dict[str, str | bool]:
    """An error as a vote. follows: another part has failed before."""
    follows = isinstance(error, (ChannelError, _core.ExchangeEndedError))
    return {"error": type(error).__name__, "text": str(error), "follows": follows}


class SharedMemory(BaseModel):
    """The memory of a leader and its parts. file: a descriptor. pids: of parts, then of the leader."""

    file: int
    pids: list[int]


def open_lanes(memory: SharedMemory, seat: int, patience: "Patience") -> _core.Lanes:
    """The lanes of one of the processes. Raises OSError if another one has ended, or the memory cannot be
    mapped.
    """
    ends = [-1 if number == seat else os.pidfd_open(pid) for number, pid in enumerate(memory.pids)]
    leads = seat == len(ends) - 1
    return _core.Lanes(
        memory.file,
        seat,
        ends,
        beat=0.0 if leads else patience.beat_seconds,
        silent=patience.silent_seconds,
        message=patience.round_seconds,
    )


class SharedLeader:
    """Over memory that all parts share."""

    def __init__(self, lanes: _core.Lanes, seat: int) -> None:
        self._lanes, self._seat = lanes, seat
        self._turn = 0

    def join(self, engine: "NativeEngine") -> None:
        self._lanes.join(engine.native, engine.graph.native)

    def wait_for_order(self) -> Order:
        self._turn, found = self._lanes.wait_for(self._seat, Message.ORDER)
        if isinstance(found, str):
            raise LeaderLostError(found)
        self._lanes.begin(self._turn)
        return unpack_order(found)

    def vote(self) -> None:
        self._post(Message.VOTE, b"")
        decided: list[bytes | str] = []
        self._lanes.collect(self._turn, Message.DECISION, [self._seat], math.inf, decided)
        # A leader that is lost has decided nothing, and the next order finds it lost.
        if isinstance(decided[0], str) or not decided[0][0]:
            raise GivenUpError

    def refuse(self, error: Exception) -> None:
        self._lanes.end(self._turn)
        self._post(Message.VOTE, json.dumps(explain(error)).encode())

    def report(self, outcome: Outcome) -> None:
        self._post(Message.OUTCOME, pack_outcome(outcome))

    def _post(self, message: Message, content: bytes) -> None:
        self._lanes.post(self._turn, message, [None] * self._seat + [content])


class ChannelLeader:
    """Over channels. batches: to the leader; others: to the other parts."""

    def __init__(self, batches: Channel, others: Channel) -> None:
        self._batches, self._rounds = batches, ChannelRounds(others)
        self._exchange = _core.CalledExchange(len(others.peers) + 1, self._rounds)
        self._turn = 0

    def join(self, engine: "NativeEngine") -> None:
        self._exchange.join(engine.native, engine.graph.native)

    def wait_for_order(self) -> Order:
        self._turn += 1
        order = unpack_order(self._swap(Message.ORDER).payload)
        self._rounds.begin(self._turn, order.seq)
        return order

    def vote(self) -> None:
        self._swap(Message.VOTE, Letter({}))
        if not self._swap(Message.DECISION).content["commit"]:
            raise GivenUpError

    def refuse(self, error: Exception) -> None:
        self._rounds.give_up(f"{type(error).__name__}: {error}")
        self._swap(Message.VOTE, Letter(explain(error)))
        self._swap(Message.DECISION)

    def report(self, outcome: Outcome) -> None:
        self._swap(Message.OUTCOME, Letter({}, pack_outcome(outcome)))

    def _swap(self, message: Message, letter: Letter | None = None) -> Letter:
        sections = {} if letter is None else {LEADER: seal(letter)}
        try:
            received = self._batches.swap(Round(self._turn, 0, message), sections)[LEADER]
        except ChannelError as error:
            raise LeaderLostError from error
        return open_letter(received) if received else Letter({})
