"""One batch on all parts of a divided graph, each in a thread of its own.

The parts commit if the names do, so an interrupt at any moment leaves a batch that all show, or none.
"""

from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

import livegnn._core as _core
from livegnn.errors import LiveGNNError
from livegnn.graph import Graph, GraphDelta
from livegnn.interrupts import Background, at_once
from livegnn.partitions.ballot import Ballot

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from livegnn.events import Events


class PartThread:
    """The thread of one part, which applies batches as a leader hands them over."""

    def __init__(self, part: int, graph: Graph, exchange: _core.LocalExchange) -> None:
        self._given: Final[SimpleQueue[Batch | None]] = SimpleQueue()
        self._thread = Background(partial(_serve, self._given, part, graph, exchange), f"livegnn-part-{part}")
        self._thread.start()
        self.give: Final = self._given.put
        """Hands a batch over, or None to end the thread. A native function."""

    def join(self) -> None:
        """Waits until the thread has ended."""
        self._thread.join()


def _serve(
    given: "SimpleQueue[Batch | None]", part: int, graph: Graph, exchange: _core.LocalExchange
) -> None:
    while (batch := given.get()) is not None:
        try:
            batch.apply_to(graph)
        except BaseException as error:
            exchange.end()
            batch.ballot.fail(part, error)
        batch.ballot.leave()
        del batch


class Batch:
    """`run` applies it once, `settle` follows if that raises. Both require the writer of `names`.

    visible: held while the names show the batch and not all parts do.
    """

    def __init__(
        self,
        names: Graph,
        threads: "tuple[PartThread, ...]",
        exchange: _core.LocalExchange,
        visible: "threading.Lock",
        events: "Events",
        on_staged: "Callable[[GraphDelta], None] | None",
        *,
        trusted: bool,
    ) -> None:
        self._names, self._threads, self._exchange, self._visible = names, threads, exchange, visible
        self._events, self._on_staged, self._trusted = events, on_staged, trusted
        self.ballot: Final = Ballot(len(threads))
        self._seq = -1
        self._given: Final[list[bool]] = []  # not empty once the threads have it
        self._committed: Final[list[GraphDelta]] = []  # not empty once the names show it
        self._showing: Final[list[bool]] = []  # not empty while it holds `visible`
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
        if not committed:
            self._exchange.end()
        self.ballot.decide(committed)
        self.ballot.wait_for_all()
        if committed:
            self.broken = self.ballot.cause()
        if self._showing:
            at_once(self._showing.clear, self._visible.release)

    def apply_to(self, graph: Graph) -> None:
        """Applies it to a part, in its thread."""
        graph.apply(
            self._events, seq=self._seq, on_staged=lambda _: self.ballot.vote(), trusted=self._trusted
        )

    def _prepare(self, change: GraphDelta) -> None:
        """Brings all parts to the batch that the names are about to commit."""
        self._seq = change.seq
        self._exchange.begin()
        at_once(*(partial(thread.give, self) for thread in self._threads), partial(self._given.append, True))
        if (error := self.ballot.wait()) is not None:
            raise error
        if self._on_staged is not None:
            self._on_staged(change)
        at_once(self._visible.acquire, partial(self._showing.append, True))
