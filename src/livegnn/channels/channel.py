"""`Channel`, by which a worker exchanges rows with all others, round by round; and channels between threads.

A batch is a *turn*: the leader numbers its turns, and a batch that is repeated has a new one. Each turn has
rounds, which all workers make in the same order. In each, a worker sends sections to each other worker,
perhaps none, and receives those that the others have sent to it in the same round. So no worker is more than
one round ahead of another. A worker that cannot continue ends the turn for all with `abort`.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from livegnn.arguments import check_int, check_positive
from livegnn.channels.errors import BatchAborted, ChannelError, DeadLinkError, SlowWorkerError
from livegnn.channels.frames import Section
from livegnn.errors import InputError


class Round(NamedTuple):
    """One round. It is later than another if it is greater.

    turn: from 1. attempt: 1 where the rounds of a turn are repeated. number: in its attempt, from 0. seq: of
    the batch, the same in all rounds of a turn.
    """

    turn: int
    attempt: int
    number: int
    seq: int = 0

    def __str__(self) -> str:
        again = ", again" if self.attempt else ""
        return f"round {self.number} of turn {self.turn} (seq {self.seq}{again})"


_MOST_64: Final = 2**64 - 1


class Channel(Protocol):
    """The channel of one worker to all others of its plan.

    Thread safety: one thread calls `swap`; `abort` and `close` may be called from any thread meanwhile.
    """

    @property
    def number(self) -> int:
        """The number of this worker."""

    @property
    def peers(self) -> Sequence[int]:
        """The numbers of the others, in order."""

    def swap(self, round: Round, sections: Mapping[int, Sequence[Section]]) -> dict[int, list[Section]]:
        """Sends sections to each peer, none to those left out, and returns the sections of each peer.

        Large sections may arrive in several, of which each has the next rows. The arrays that were given must
        not be changed until all workers have ended the turn, as they may be sent again; those that are
        returned must never be changed.
        Raises `BatchAborted` if a worker has ended the turn; then no other round of it is exchanged.
        `SlowWorkerError`, `SlowLinkError` and `DeadLinkError` if a peer's sections do not arrive in time;
        `ChannelError` for a peer that makes another round, and in a channel that is closed meanwhile;
        `InputError` for a round that is not later than the last one, and for an unknown peer.
        """

    def abort(self, turn: int, reason: str) -> None:
        """Ends a turn for all workers: each `swap` of it raises `BatchAborted`, here and elsewhere."""

    def close(self) -> None:
        """Ends the channel, when everything that was sent has arrived, or after a second. A peer that waits
        for this worker raises `DeadLinkError`.
        """


class Arrived(NamedTuple):
    """A part of a peer's round, in order. last: whether no other part follows."""

    round: Round
    sections: Sequence[Section]
    last: bool = True


class Ended:
    """The last turn that a worker has ended, and why. Thread safety: none."""

    def __init__(self, worker: int) -> None:
        self.turn = 0
        self._worker, self._reason = worker, ""

    def end(self, turn: int, reason: str) -> bool:
        """Notes that the worker ends a turn. Whether it has not done so before."""
        if turn <= self.turn:
            return False
        self.turn, self._reason = turn, reason
        return True

    def check(self, round: Round) -> None:
        """Raises `BatchAborted` if the turn of this round has ended, or a later one."""
        if round.turn <= self.turn:
            raise BatchAborted(f"worker {self._worker} has ended turn {self.turn}: {self._reason}")


class Inbox:
    """The rounds that have arrived from one peer and are not taken yet. Thread safety: none."""

    def __init__(self, peer: int) -> None:
        self.ended = Ended(peer)
        self._peer = peer
        self._arrived: deque[Arrived] = deque()
        self._round: Round | None = None
        self._parts: list[Section] = []

    def put(self, part: Arrived) -> None:
        """Adds the next part in order."""
        self._arrived.append(part)

    def check(self, round: Round) -> None:
        """Raises `BatchAborted` if the peer has ended the turn of this round, whether it is taken or not."""
        if self.ended.turn == round.turn:
            self.ended.check(round)

    def take(self, round: Round) -> list[Section] | None:
        """The sections of this round when all of its parts have arrived. Parts of earlier turns, which some
        worker has ended, are dropped.

        Raises `BatchAborted` and `ChannelError` as `Channel.swap` does.
        """
        if self._round != round:
            self._round, self._parts = round, []
        while self._arrived:
            part = self._arrived[0]
            if part.round.turn > round.turn:
                raise BatchAborted(f"worker {self._peer} has begun turn {part.round.turn}: {round} has ended")
            self._arrived.popleft()
            if part.round.turn < round.turn:
                continue
            if part.round != round:
                raise ChannelError(
                    f"worker {self._peer} must make {round}, got {part.round}: all workers must make the "
                    "same rounds, so their programs or their graphs differ"
                )
            self._parts += part.sections
            if part.last:
                self._round = None
                return self._parts
        self.ended.check(round)
        return None


class Turns:
    """The order of one worker's rounds. Thread safety: none."""

    def __init__(self, number: int, peers: Iterable[int]) -> None:
        self.ended = Ended(number)
        self.last = Round(0, 0, 0)
        self._peers = frozenset(peers)

    def begin(self, round: Round, sections: Mapping[int, Sequence[Section]]) -> None:
        """Notes that a round begins. Raises `InputError` as `Channel.swap` does."""
        turn, attempt, number, seq = round
        if not (0 < turn <= _MOST_64 and 0 <= seq <= _MOST_64 and 0 <= attempt <= 255 and 0 <= number <= 255):
            raise InputError(
                f"the numbers of a round must fit into a message (docs/channels.md), got {round!r}"
            )
        unknown = sections.keys() - self._peers
        if unknown:
            raise InputError(
                f"sections must be for the workers {sorted(self._peers)}, got some for {sorted(unknown)}"
            )
        if round <= self.last or (round.turn == self.last.turn and round.seq != self.last.seq):
            raise InputError(f"a round must be later than {self.last}, got {round}")
        self.last = round


class LocalChannels:
    """The channels of `workers` threads of this process. Arrays are passed as they are, without a copy.

    round_seconds: for which a thread waits for the others in one round.
    Locks: `_changed`, for everything.
    """

    def __init__(self, workers: int, *, round_seconds: float = 60.0) -> None:
        self._round_seconds = check_positive(round_seconds, "round_seconds")
        self._changed = threading.Condition()
        numbers = range(check_int(workers, "workers", 1))
        self.channels: list[Channel] = [_LocalChannel(self, number) for number in numbers]
        self._turns = [Turns(number, set(numbers) - {number}) for number in numbers]
        self._inboxes = [[Inbox(sender) for sender in numbers] for _ in numbers]  # by receiver, then sender
        self._closed: set[int] = set()

    def _swap(
        self, number: int, round: Round, sections: Mapping[int, Sequence[Section]]
    ) -> dict[int, list[Section]]:
        peers = self.channels[number].peers
        with self._changed:
            self._turns[number].begin(round, sections)
            for peer in peers:
                self._inboxes[peer][number].put(Arrived(round, sections.get(peer, ())))
            self._changed.notify_all()
            found: dict[int, list[Section]] = {}
            while True:
                self._turns[number].ended.check(round)
                for peer in peers:
                    self._take(number, peer, round, found)
                if len(found) == len(peers):
                    return {peer: found[peer] for peer in peers}
                if not self._changed.wait(self._round_seconds):
                    raise SlowWorkerError(
                        f"the workers {sorted({*peers} - found.keys())} must make {round} within "
                        f"{self._round_seconds} seconds, got nothing of them"
                    )

    def _take(self, number: int, peer: int, round: Round, found: dict[int, list[Section]]) -> None:
        inbox = self._inboxes[number][peer]
        inbox.check(round)
        if peer in found:
            return
        taken = inbox.take(round)
        if taken is not None:
            found[peer] = taken
        elif {number, peer} & self._closed:
            closed = number if number in self._closed else peer
            raise DeadLinkError(f"worker {closed} has closed its channel before {round}")

    def _abort(self, number: int, turn: int, reason: str) -> None:
        with self._changed:
            self._turns[number].ended.end(turn, reason)
            for inboxes in self._inboxes:
                inboxes[number].ended.end(turn, reason)
            self._changed.notify_all()

    def _close(self, number: int) -> None:
        with self._changed:
            self._closed.add(number)
            self._changed.notify_all()


class _LocalChannel:
    """One thread's end of `LocalChannels`."""

    def __init__(self, shared: LocalChannels, number: int) -> None:
        self._shared, self._number = shared, number

    @property
    def number(self) -> int:
        return self._number

    @property
    def peers(self) -> Sequence[int]:
        return [one for one in range(len(self._shared.channels)) if one != self._number]

    def swap(self, round: Round, sections: Mapping[int, Sequence[Section]]) -> dict[int, list[Section]]:
        return self._shared._swap(self._number, round, sections)

    def abort(self, turn: int, reason: str) -> None:
        self._shared._abort(self._number, turn, reason)

    def close(self) -> None:
        self._shared._close(self._number)
