"""All parts of a divided graph, as batches reach them; and a crew of threads, one for each part."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Final, Protocol

from livegnn.interrupts import Background
from livegnn.partitions.ballot import Ballot
from livegnn.partitions.part import Given, Outcome, Part, Placed


class Poll(Protocol):
    """One batch on all parts: `steps`, `wait`, `decide`, `wait_for_all`, in this order. An exception from
    outside may end any of them; the last two are then called again, and do the rest.
    """

    @property
    def outcomes(self) -> Mapping[int, Outcome]:
        """By part, of those that have committed."""

    def steps(self) -> Sequence[Callable[[], object]]:
        """Native functions that give the batch to all parts. Raises if a part is lost."""

    def wait(self) -> BaseException | None:
        """Waits until each part agrees or fails. Returns the error to show, None if all agree."""

    def decide(self, commit: bool) -> None:
        """Has all parts that agreed commit or abandon the batch. The first decision stays."""

    def wait_for_all(self) -> None:
        """Waits until no part changes anything anymore."""

    def cause(self) -> BaseException | None:
        """The error to show, None if no part has failed."""


class Crew(Protocol):
    """The parts. Its owner begins one poll at a time."""

    @property
    def ending(self) -> Sequence[Callable[[], object]]:
        """Native functions that end it. No poll may be under way."""

    def poll(self, given: Given, placed: Placed) -> Poll:
        """A batch that no part has yet. placed: the owners of added nodes that the names have chosen."""

    def join(self) -> None:
        """Waits until it has ended."""


class ThreadCrew:
    """Each part in a thread of its own. begin: called before the parts have a batch."""

    def __init__(self, parts: Sequence[Part], begin: Callable[[], None]) -> None:
        self._begin = begin
        self._threads = tuple(PartThread(number, part) for number, part in enumerate(parts))
        self.ending: Final = tuple(partial(thread.give, None) for thread in self._threads)

    def poll(self, given: Given, placed: Placed) -> "ThreadPoll":
        return ThreadPoll(self._threads, self._begin, given, placed)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


class PartThread:
    """The thread of one part, which applies batches as a leader hands them over."""

    def __init__(self, number: int, part: Part) -> None:
        self._given: Final[SimpleQueue[ThreadPoll | None]] = SimpleQueue()
        self._thread = Background(partial(_serve, self._given, number, part), f"livegnn-part-{number}")
        self._thread.start()
        self.give: Final = self._given.put
        """Hands a batch over, or None to end the thread. A native function."""

    def join(self) -> None:
        """Waits until the thread has ended."""
        self._thread.join()


def _serve(given: "SimpleQueue[ThreadPoll | None]", number: int, part: Part) -> None:
    while (batch := given.get()) is not None:
        try:
            batch.apply_to(number, part)
        except BaseException as error:
            part.give_up()
            batch.fail(number, error)
        batch.leave()
        del batch


class ThreadPoll(Ballot):
    """A batch that the threads of all parts apply."""

    def __init__(
        self,
        threads: tuple[PartThread, ...],
        begin: Callable[[], None],
        given: Given,
        placed: Placed,
    ) -> None:
        super().__init__(len(threads))
        self._threads, self._begin, self._given, self._placed = threads, begin, given, placed
        self.outcomes: Final[dict[int, Outcome]] = {}

    def steps(self) -> list[Callable[[], object]]:
        self._begin()
        return [partial(thread.give, self) for thread in self._threads]

    def apply_to(self, number: int, part: Part) -> None:
        """Applies it to a part, in its thread."""
        batch, placed = self._given, self._placed
        self.outcomes[number] = (
            part.apply(batch.events, batch.seq, self.vote, placed, trusted=batch.trusted)
            if batch.asked is None
            else part.suppose(batch.events, batch.seq, self.vote, placed, batch.asked[number])
        )
