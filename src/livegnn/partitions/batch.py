"""One batch on all parts of a divided graph."""

from functools import partial
from typing import TYPE_CHECKING, Final

from livegnn.graph import GraphDelta
from livegnn.interrupts import at_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from livegnn.partitions.crew import Poll
    from livegnn.partitions.part import Outcome


class Batch:
    """The batch of `change`, which the names prepare. `settle` must follow `prepare`, also if that raises.

    poll: the same batch on all parts.
    """

    def __init__(self, poll: "Poll", change: GraphDelta) -> None:
        self.change: Final = change
        self._poll = poll
        self._given: Final[list[bool]] = []  # not empty once the parts have it
        self.broken: BaseException | None = None
        """The error of a part that does not show it though the names do."""

    @property
    def outcomes(self) -> "Mapping[int, Outcome]":
        """By part, of those that have committed."""
        return self._poll.outcomes

    def prepare(self) -> None:
        """Returns when all parts have prepared it.

        Raises the errors of `Graph.apply`, then no part can commit it.
        """
        at_once(*self._poll.steps(), partial(self._given.append, True))
        if (error := self._poll.wait()) is not None:
            raise error

    def settle(self, *, committed: bool) -> None:
        """Returns when all parts have committed it, as the names have, or abandoned it; twice as once."""
        if not self._given:
            return
        self._poll.decide(committed)
        self._poll.wait_for_all()
        if committed:
            self.broken = self._poll.cause()
