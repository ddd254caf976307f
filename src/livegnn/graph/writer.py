"""Whose turn it is to change a graph, and figures that only whoever has the turn may take."""

import _thread
import weakref
from collections.abc import Callable

from livegnn import _core
from livegnn.errors import InputError

_acquire = _thread.RLock.acquire


# Derived from, not held: a batch of one event takes microseconds. The C type allows it; its stub is stricter.
class Writer(_thread.RLock):  # type: ignore[misc]
    """The turn to change a graph and its views, taken again by whoever has it already.

    A function of a model must not ask for it, which raises RuntimeError: the batch that runs the function
    waits for it to end.
    """

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        _core.refuse_in_function()
        return _acquire(self, blocking, timeout)

    def __enter__(self, blocking: bool = True, timeout: float = -1) -> bool:
        _core.refuse_in_function()
        return _acquire(self, blocking, timeout)


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

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._last: dict[str, int] = {}
        self.wanted = True

    def read(self, measure: Callable[[], dict[str, int]]) -> dict[str, int]:
        """To be asked by anyone."""
        if self._writer.acquire(blocking=False):
            try:
                self.take(measure)
            finally:
                self._writer.release()
        else:
            self.wanted = True
        return dict(self._last)

    def take(self, measure: Callable[[], dict[str, int]]) -> None:
        """To be called by whoever has the turn."""
        self.wanted = False
        self._last = measure()
