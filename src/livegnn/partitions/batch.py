"""One batch on all parts of a divided graph, each in a thread of its own.

The parts commit if the names do, so an interrupt at any moment leaves a batch that all show, or none.
"""

from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from livegnn.errors import LiveGNNError
from livegnn.graph import Graph, GraphDelta
from livegnn.interrupts import Background, at_once
from livegnn.partitions.ballot import Ballot
from livegnn.partitions.part import Outcome, Part, Placed

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from livegnn.events import Events


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
    """`run` applies it once, `settle` follows if that raises. Both require the writer of `names`.

    begin: called before the parts have it. visible: held while the names show the batch and not all parts do.
    """

    def __init__(
        self,
        names: Graph,
        threads: "tuple[PartThread, ...]",
        begin: "Callable[[], None]",
        visible: "threading.Lock",
        events: "Events",
        on_staged: "Callable[[GraphDelta], None] | None",
        *,
        trusted: bool,
    ) -> None:
        self._names, self._threads, self._begin, self._visible = names, threads, begin, visible
        self._events, self._on_staged, self._trusted = events, on_staged, trusted
        self.ballot: Final = Ballot(len(threads))
        self._seq = -1
        self._placed: Placed = {}
        self._given: Final[list[bool]] = []  # not empty once the threads have it
        self._committed: Final[list[GraphDelta]] = []  # not empty once the names show it
        self._showing: Final[list[bool]] = []  # not empty while it holds `visible`
        self.outcomes: Final[dict[int, Outcome]] = {}
        """By part, of those that have committed."""
        self.broken: BaseException | None = None
        """The error of a part that does not show it though the names do."""

    def run(self, seq: int | None) -> GraphDelta:
        """Raises the errors of `Graph.apply`, with nothing changed, or LiveGNNError with `broken`."""
        change = self._names.apply(
            self._events,
            seq=seq,
            on_staged=self._prepare,
            on_committed=self._committed.append,
            trusted=self._trusted,
        )
        self.settle()
        if (broken := self.broken) is not None:
            raise LiveGNNError(f"a part of the graph failed as it committed a batch: {broken!r}") from broken
        return change

    def settle(self) -> None:
        """Waits for the parts, which commit if the names have; again does nothing."""
        if not self._given:
            return
        committed = bool(self._committed)
        self.ballot.decide(committed)
        self.ballot.wait_for_all()
        if committed:
            self.broken = self.ballot.cause()
        if self._showing:
            at_once(self._showing.clear, self._visible.release)

    def apply_to(self, number: int, part: Part) -> None:
        """Applies it to a part, in its thread."""
        self.outcomes[number] = part.apply(
            self._events, self._seq, self.ballot.vote, self._placed, trusted=self._trusted
        )

    def _prepare(self, change: GraphDelta) -> None:
        """Brings all parts to the batch that the names are about to commit."""
        self._seq = change.seq
        placed = map(change.native.placed, range(len(self._names.schema.node_types)))
        self._placed = {number: owners for number, owners in enumerate(placed) if len(owners)}
        self._begin()
        at_once(*(partial(thread.give, self) for thread in self._threads), partial(self._given.append, True))
        if (error := self.ballot.wait()) is not None:
            raise error
        if self._on_staged is not None:
            self._on_staged(change)
        at_once(self._visible.acquire, partial(self._showing.append, True))
