"""Batches of parts in processes of this machine, over memory that the leader and all parts share.

A batch is a turn of four messages between the leader and each part, and of rounds between the parts
(`_core.Lanes`, docs/internals/parts.md). The part's side is `SharedLeader`, in `leaders.py`.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import livegnn._core as _core
from livegnn.errors import WorkerUnavailableError, as_value
from livegnn.interrupts import at_once
from livegnn.partitions.ballot import error_of, first_cause
from livegnn.partitions.leaders import Message, SharedMemory, open_lanes
from livegnn.partitions.losses import part_lost
from livegnn.partitions.packed import Order, pack_order, unpack_outcome
from livegnn.partitions.part import Given, Outcome, Placed

if TYPE_CHECKING:
    from livegnn.channels.health import Patience

_LONGER: Final = 1.1  # so that a part that has waited in vain for another one has answered before


def has_shared_memory() -> bool:
    """Whether this system has files without a name, and descriptors of processes."""
    return hasattr(os, "memfd_create") and hasattr(os, "pidfd_open")


@contextmanager
def shared_file(parts: int) -> Iterator[int]:
    """The descriptor of memory for the lanes between parts and their leader, which lasts as long as one of
    them has mapped it.
    """
    file = os.memfd_create("livegnn-parts")
    try:
        os.ftruncate(file, _core.size_of_lanes(parts + 1))
        yield file
    finally:
        os.close(file)


class SharedCrew:
    """Parts in processes. lose: called with the number of a lost part, and what it gave instead of an answer.

    Raises OSError if the memory cannot be mapped, or a process has ended.
    """

    def __init__(self, memory: SharedMemory, patience: "Patience", lose: Callable[[int, str], None]) -> None:
        self.parts: Final = range(len(memory.pids) - 1)
        self.patience, self._lose = patience, lose
        self.lanes: Final = open_lanes(memory, len(self.parts), patience)
        self.turn = 0
        self.lost: WorkerUnavailableError | None = None
        self.ending: Final = (self.lanes.close,)

    def poll(self, given: Given, placed: Placed) -> "SharedPoll":
        return SharedPoll(self, given, placed)

    def lose(self, part: int, why: str) -> WorkerUnavailableError:
        """Notes that a process is lost, once and for all."""
        got = f"nothing, as {why}"
        error = part_lost(part, got)
        self.lost = self.lost or as_value(error)
        self._lose(part, got)
        return error

    def join(self) -> None:
        """Does nothing: the processes end by themselves."""


class SharedPoll:
    """A batch that the processes of all parts apply."""

    def __init__(self, crew: SharedCrew, given: Given, placed: Placed) -> None:
        self._crew, self._given, self._placed = crew, given, placed
        self._turn = -1
        self._errors: Final[dict[int, BaseException]] = {}
        self._posted: Final[list[bool]] = []  # the decision, once all parts have it
        self._votes: Final[list[bytes | str]] = []
        self._done: Final[list[bytes | str]] = []
        self.outcomes: Final[dict[int, Outcome]] = {}

    def steps(self) -> Sequence[Callable[[], object]]:
        crew = self._crew
        if crew.lost is not None:
            raise crew.lost
        self._turn = crew.turn = crew.turn + 1
        given = self._given
        order = Order(given.seq, given.trusted, self._placed, given.events.to_bytes())
        if given.asked is None:
            return (self._post_all(Message.ORDER, pack_order(order)),)
        asking = (pack_order(order._replace(asked=one)) for one in given.asked)
        return (self._post(Message.ORDER, [*asking]),)

    def wait(self) -> BaseException | None:
        self._collect(Message.VOTE, self._votes)
        for part, vote in enumerate(self._votes):
            if isinstance(vote, str):
                self._errors[part] = self._crew.lose(part, vote)
            elif vote:
                self._errors[part] = error_of(json.loads(vote))
        return self.cause()

    def decide(self, commit: bool) -> None:
        if not self._posted:
            post = self._post_all(Message.DECISION, bytes([commit]))
            at_once(post, partial(self._posted.append, commit))

    def wait_for_all(self) -> None:
        if self._posted != [True]:
            return  # whatever they prepare is abandoned before the next batch
        if not self._done:
            self._collect(Message.OUTCOME, self._done)
        for part, done in enumerate(self._done):
            if isinstance(done, str):
                self._errors[part] = self._crew.lose(part, done)
            else:
                self.outcomes[part] = unpack_outcome(done)

    def cause(self) -> BaseException | None:
        return first_cause(self._errors)

    def _post_all(self, message: Message, content: bytes) -> Callable[[], object]:
        return self._post(message, [content] * len(self._crew.parts))

    def _post(self, message: Message, contents: list[bytes | None]) -> Callable[[], object]:
        return partial(self._crew.lanes.post, self._turn, message, contents)

    def _collect(self, message: Message, into: list[bytes | str]) -> None:
        """Adds the answer of each part, or why there is none, in one native call: no interrupt is raised
        within it.
        """
        crew = self._crew
        seconds = crew.patience.round_seconds * _LONGER
        crew.lanes.collect(self._turn, message, list(crew.parts), seconds, into)
