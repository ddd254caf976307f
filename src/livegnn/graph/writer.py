"""The exclusive right to apply batches to a graph, and measurements that need the writer lock."""

import weakref
from collections.abc import Callable
from threading import RLock

import livegnn._core as _core
from livegnn.errors import InputError


class Claim:
    """The exclusive right of one object to apply batches to a graph, such as a runtime that logs its batches.

    A batch from any other caller, such as a view that is notified of a batch, would be in the graph but not
    in the log. The claim ends with its owner. Thread safety: the caller must hold `Graph.writer`.

    readers: a lock that is held while a batch becomes visible. Callers that read graph and views together use
    it.
    """

    def __init__(self, claimant: object, readers: RLock) -> None:
        self._claimant = weakref.ref(claimant)
        self.readers = readers

    def refuse_others(self, claim: "Claim | None") -> None:
        """Raises `InputError` unless `claim` is this claim, or the owner of this claim no longer exists."""
        if claim is not self and self._claimant() is not None:
            raise InputError(
                "expected events through the runtime that runs this graph, whose log would lack these: call "
                "append of the runtime, or stop it first"
            )


class Measurement:
    """The bytes of each part, readable at any time, though a batch may be changing the parts.

    They are measured between batches: at once if no batch runs, else when the current batch ends; a read in
    the meantime returns the last measurement. So a read never waits. wanted: whether there was such a read.
    """

    def __init__(self, writer: RLock) -> None:
        self._writer = writer
        self._last: dict[str, int] = {}
        self.wanted = True

    def read(self, measure: Callable[[], dict[str, int]]) -> dict[str, int]:
        """The sizes in bytes. Raises RuntimeError inside a function of a model."""
        _core.refuse_in_function()
        if not _core.if_free(self._writer, self.take, measure):
            self.wanted = True
        return dict(self._last)

    def take(self, measure: Callable[[], dict[str, int]]) -> None:
        """Measures now. The caller must hold the writer lock."""
        self._last = measure()
        self.wanted = False
