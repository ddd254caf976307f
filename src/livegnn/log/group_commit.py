"""Group commit: appends that wait for the disk at the same time share one flush.

Whoever finds the disk idle writes for all who wait, and those who come meanwhile wait for the next write. So
one thread alone waits for no other, and n threads need one flush for each n appends. Who waits is woken by
the end of a write, not by the turn, so threads whose entry was written do not queue for it before the others.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import livegnn._core as _core
from livegnn.errors import InputError, LogError
from livegnn.events import Events
from livegnn.log import Appended

_MOST = 1024  # appends in one write
_SECONDS = 0.1  # then who waits looks by itself: a thread may be interrupted before it wakes others

Commit = Callable[[Sequence[Events], Sequence[str | None]], Sequence[Appended | InputError]]
"""Stores entries with their keys; what `Log.append_all` returns."""


@dataclass(slots=True, eq=False)
class _Waiting:
    events: Events
    key: str | None
    outcome: Appended | BaseException | None = None

    def withdraw(self) -> None:
        """Says that nobody waits any more: if it was not written yet, it never is."""
        if self.outcome is None:
            self.outcome = LogError("the append was interrupted before it was written")


class GroupCommit:
    """Appends of many threads through one `commit`. Thread-safe."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._turn = threading.RLock()
        self._written = threading.Condition()
        self._waiting: list[_Waiting] = []  # list operations are atomic: threads only append, one takes

    def append(self, events: Events, key: str | None) -> Appended:
        """Returns when the entry is stored. Raises what `commit` raises, or returns for this entry."""
        mine = _Waiting(events, key)
        return _core.settled(self._append, mine.withdraw, mine)

    def _append(self, mine: _Waiting) -> Appended:
        self._waiting.append(mine)
        while mine.outcome is None:
            led = _core.if_free(self._turn, self._lead, mine)
            _core.holding(self._written, self._wake_or_wait, mine, led)
        if isinstance(mine.outcome, BaseException):
            raise mine.outcome
        return mine.outcome

    def _lead(self, mine: _Waiting) -> None:
        if mine.outcome is not None:
            return
        if mine not in self._waiting:
            raise LogError(
                "the append was interrupted while another thread wrote for both: whether it was stored is "
                "not known"
            )
        self._write_for_all()

    def _wake_or_wait(self, mine: _Waiting, led: bool) -> None:
        if led:
            self._written.notify_all()
        elif mine.outcome is None and not _core.if_free(self._turn, _do_nothing):
            self._written.wait(_SECONDS)

    def _write_for_all(self) -> None:
        group = self._waiting[:_MOST]
        del self._waiting[: len(group)]
        group = [one for one in group if one.outcome is None]
        try:
            outcomes = self._commit([one.events for one in group], [one.key for one in group])
        except Exception as error:
            for one in group:
                one.outcome = error
        else:
            for one, outcome in zip(group, outcomes, strict=True):
                one.outcome = outcome


def _do_nothing() -> None:
    """Of a turn that is only looked at."""
