"""A log in the process that owns it, whatever stores it: groups appends, and wakes threads that wait."""

import threading

import livegnn._core as _core
from livegnn.errors import LogError
from livegnn.events import Events
from livegnn.log import Log
from livegnn.log.arguments import check_events
from livegnn.log.directories import Directories
from livegnn.log.group_commit import GroupCommit


class OwnedLog(Log):
    """name: as messages call the log. `_state` is notified when `_last`, the last event, has changed."""

    def __init__(self, name: str) -> None:
        self.directories = Directories(self, name)
        self._state = threading.Condition()
        self._last = 0
        self._woken = False
        self._group = GroupCommit(self.append_all)

    def append(self, events: Events, *, key: str | None = None) -> int:
        check_events(events)
        return self._group.append(events, key).seq if len(events) or key is not None else self._last

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
