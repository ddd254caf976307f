"""One batch on all parts of a divided graph, each in a thread of its own."""

from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from livegnn.graph import GraphDelta
from livegnn.interrupts import Background, at_once
from livegnn.partitions.ballot import Ballot
from livegnn.partitions.part import Outcome, Part, Placed

if TYPE_CHECKING:
    from collections.abc import Callable


class PartThread:
    """The thread of one part, which applies batches as a leader hands them over."""

    def __init__(self, number: int, part: Part) -> None:
        self._given: Final[SimpleQueue[Batch | None]] = SimpleQueue()
        self._thread = Background(partial(_serve, self._given, number, part), f"livegnn-part-{number}")
        self._thread.start()
        self.give: Final = self._given.put
        """Hands a batch over, or None to end the thread. A native function."""

    def join(self) -> None:
        """Waits until the thread has ended."""
        self._thread.join()


def _serve(given: "SimpleQueue[Batch | None]", number: int, part: Part) -> None:
    while (batch := given.get()) is not None:
        try:
            batch.apply_to(number, part)
        except BaseException as error:
            part.give_up()
            batch.ballot.fail(number, error)
        batch.ballot.leave()
        del batch


class Batch:
    """The batch of `change`, which the names prepare. `settle` must follow `prepare`, also if that raises.

    placed: the owners of added nodes that the names have chosen.
    """

    def __init__(self, threads: "tuple[PartThread, ...]", change: GraphDelta, placed: Placed) -> None:
        self.change: Final = change
        self.ballot: Final = Ballot(len(threads))
        self._threads = threads
        self._placed = placed
        self._given: Final[list[bool]] = []  # not empty once the threads have it
        self.outcomes: Final[dict[int, Outcome]] = {}
        """By part, of those that have committed."""
        self.broken: BaseException | None = None
        """The error of a part that does not show it though the names do."""

    def prepare(self, begin: "Callable[[], None]") -> None:
        """Returns when all parts have prepared it. begin: called before the parts have it.

        Raises the errors of `Graph.apply`, then no part can commit it.
        """
        begin()
        at_once(*(partial(thread.give, self) for thread in self._threads), partial(self._given.append, True))
        if (error := self.ballot.wait()) is not None:
            raise error

    def settle(self, *, committed: bool) -> None:
        """Returns when all parts have committed it, as the names have, or abandoned it; twice as once."""
        if not self._given:
            return
        self.ballot.decide(committed)
        self.ballot.wait_for_all()
        if committed:
            self.broken = self.ballot.cause()

    def apply_to(self, number: int, part: Part) -> None:
        """Applies it to a part, in its thread."""
        change = self.change
        self.outcomes[number] = part.apply(
            change.events, change.seq, self.ballot.vote, self._placed, trusted=change.trusted
        )
