"""Group commit: appends that wait for the disk at the same time share one flush.

A thread that finds the disk idle writes for all waiting threads. Threads that arrive meanwhile wait for the
next write. So a single thread waits for no other, and n threads need one flush for each n appends. Threads
wake at the end of a write, not in turn, so a thread whose entries were written does not queue behind others.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

import livegnn._core as _core
from livegnn.errors import LogError

_Entry = tuple[object, object, object]  # what is stored, its key, its origin or None
_Given = TypeVar("_Given", bound=_Entry)
_Outcome = TypeVar("_Outcome")
_Answer = TypeVar("_Answer")

_MOST = 1024  # appends in one write
_SECONDS = 0.1  # then who waits looks by itself: a thread may be interrupted before it wakes others


class _Waiting(Generic[_Given, _Outcome]):
    __slots__ = ("given", "outcome")

    def __init__(self, given: Sequence[_Given]) -> None:
        self.given = given
        self.outcome: Sequence[_Outcome] | BaseException | None = None

    def withdraw(self) -> None:
        """Withdraws an entry that no thread waits for any more: if it was not written yet, it never is."""
        if self.outcome is None:
            self.outcome = LogError("the append was interrupted before it was written")


class GroupCommit(Generic[_Given, _Outcome]):
    """Appends of many threads through one `commit`, which stores entries. Thread-safe."""

    def __init__(self, commit: Callable[[Sequence[_Given]], Sequence[_Outcome]]) -> None:
        self._commit = commit
        self._turn = threading.RLock()
        self._alone = _core.Section()
        self._written = threading.Condition()
        self._waiting: list[
            _Waiting[_Given, _Outcome]
        ] = []  # list operations are atomic: threads only append, one takes

    def append(self, given: Sequence[_Given]) -> Sequence[_Outcome]:
        """Returns when the entries are stored. Raises what `commit` raises.

        Entries with origins share no write with others: a log may store some of them and then fail.
        """
        if any(origin is not None for _, _, origin in given):
            return self.alone(partial(self._commit, given))
        mine = _Waiting[_Given, _Outcome](given)
        return _core.settled(self._append, mine.withdraw, mine)

    def alone(self, function: Callable[[], _Answer]) -> _Answer:
        """Calls `function`, while no other thread appends. Entries that it appends are stored at once."""
        try:
            return _core.holding(self._turn, _core.within, self._alone, function)
        finally:
            _core.holding(self._written, self._written.notify_all)

    def _append(self, mine: _Waiting[_Given, _Outcome]) -> Sequence[_Outcome]:
        self._waiting.append(mine)
        while mine.outcome is None:
            led = _core.if_free(self._turn, self._lead, mine)
            _core.holding(self._written, self._wake_or_wait, mine, led)
        if isinstance(mine.outcome, BaseException):
            raise mine.outcome
        return mine.outcome

    def _lead(self, mine: _Waiting[_Given, _Outcome]) -> None:
        if mine.outcome is not None:
            return
        if mine not in self._waiting:
            raise LogError(
                "the append was interrupted while another thread wrote for both: whether it was stored is "
                "not known"
            )
        group = [mine] if self._alone.active else self._waiting[:_MOST]
        for one in group:
            self._waiting.remove(one)
        self._write([one for one in group if one.outcome is None])

    def _wake_or_wait(self, mine: _Waiting[_Given, _Outcome], led: bool) -> None:
        if led:
            self._written.notify_all()
        elif mine.outcome is None and not _core.if_free(self._turn, _do_nothing):
            self._written.wait(_SECONDS)

    def _write(self, group: Sequence[_Waiting[_Given, _Outcome]]) -> None:
        try:
            outcomes = iter(self._commit([given for one in group for given in one.given]))
        except Exception as error:
            for one in group:
                one.outcome = error
        else:
            for one in group:
                one.outcome = [next(outcomes) for _ in one.given]


def _do_nothing() -> None:
    """The action of a turn that is only read."""
