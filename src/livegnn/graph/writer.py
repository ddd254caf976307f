"""Whose turn it is to change a graph, and figures that only whoever has the turn may take."""

import weakref
from collections.abc import Callable
from threading import RLock

from livegnn import _core
from livegnn.errors import InputError


class Claim:
    """Of one who alone applies batches to a graph, such as a runtime, whose batches are in its log.

    A batch of anybody else, of a view that is told of one too, would be in the graph and not in the log.
    The claim ends with the claimant. Thread safety: whoever calls holds the turn.
    """

    def __init__(self, claimant: object) -> None:
        self._claimant = weakref.ref(claimant)
        self._turn = False

    def give_turn(self) -> None:
        """To be called by the claimant, before each batch."""
        self._turn = True

    def take_turn(self) -> None:
        """Raises `InputError` for a batch that is not the claimant's."""
        turn, self._turn = self._turn, False
        if not turn and self._claimant() is not None:
            raise InputError(
                "expected events through the runtime that runs this graph, whose log would lack these: call "
                "append of the runtime, or stop it first"
            )


class Measurement:
    """The bytes of parts that a batch is at work on, for anyone who asks at any time.

    They are taken between batches: at once if there is none, else when the one at hand ends, and whoever has
    asked meanwhile is told what was taken last. So a question never waits. wanted: whether somebody has asked
    meanwhile.
    """

    def __init__(self, writer: RLock) -> None:
        self._writer = writer
        self._last: dict[str, int] = {}
        self.wanted = True

    def read(self, measure: Callable[[], dict[str, int]]) -> dict[str, int]:
        """To be asked by anyone but functions of a model, which may compute from their arguments alone."""
        _core.refuse_in_function()
        with _core.TryLock(self._writer) as taken:
            if taken:
                self.take(measure)
            else:
                self.wanted = True
        return dict(self._last)

    def take(self, measure: Callable[[], dict[str, int]]) -> None:
        """To be called by whoever has the turn."""
        self.wanted = False
        self._last = measure()
