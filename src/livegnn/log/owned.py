"""A log in the process that owns it, in any store: groups appends, and wakes threads that wait."""

import threading
from abc import abstractmethod
from collections.abc import Sequence

import livegnn._core as _core
from livegnn.errors import InputError, LogError
from livegnn.events import Events
from livegnn.log import Given, Log, Origin, Outcomes, seq_of
from livegnn.log.arguments import check_entries, check_events
from livegnn.log.directories import Directories
from livegnn.log.group_commit import GroupCommit


class OwnedLog(Log):
    """name: as messages call the log. `_state` is notified when `_last`, the last event, has changed. `group`
    stores the entries of all threads."""

    def __init__(self, name: str) -> None:
        self.directories = Directories(self, name)
        self._state = threading.Condition()
        self._last = 0
        self._woken = False
        self.group = GroupCommit(self._append_group)

    def append(self, events: Events, *, key: str | None = None) -> int:
        check_events(events)
        if not len(events) and key is None:
            return self._last
        return seq_of(self.group.append([(events, key, None)]))

    def append_all(
        self,
        entries: Sequence[Events | InputError],
        keys: Sequence[str | None] | None = None,
        origins: Sequence[Origin | None] | None = None,
    ) -> Outcomes:
        return self.group.append(list(zip(entries, *check_entries(entries, keys, origins), strict=True)))

    @abstractmethod
    def _append_group(self, given: Sequence[Given]) -> Outcomes:
        """Stores entries with one flush for all: as of `Log.append_all`."""

    def last_seq(self) -> int:
        return self._last

    def wait(self, after: int, timeout: float | None) -> bool:
        return _core.holding(self._state, self._wait, after, timeout)

    def _wait(self, after: int, timeout: float | None) -> bool:
        self._state.wait_for(lambda: self._last > after or self._woken or self._failed() is not None, timeout)
        self._woken = False
        self._refuse_failed()
        return self._last > after

    def wake(self) -> None:
        self._woken = True
        self._notify()

    def _notify(self) -> None:
        _core.holding(self._state, self._state.notify_all)

    def _failed(self) -> LogError | None:
        """Why nothing can be read or stored any more, None if that is not so."""
        return None

    def _refuse_failed(self) -> None:
        if (failure := self._failed()) is not None:
            raise failure
