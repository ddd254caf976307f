"""Threads of our own, flags and steps, that no exception from outside leaves half done."""

import threading
from collections import deque
from collections.abc import Callable
from operator import call

import livegnn._core as _core


def at_once(*steps: Callable[[], object]) -> None:
    """Calls native functions, one after the other: no bytecode, and so no interrupt, runs in between."""
    deque(map(call, steps), 0)


class Flag:
    """A replacement of `threading.Event`: an interrupt in `wait` or `set` does not keep its lock."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        _core.holding(self._changed, self._changed.notify_all)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Returns when it is set, or after `timeout` seconds: whether it is."""
        return self._is_set or _core.holding(self._changed, self._changed.wait_for, self.is_set, timeout)


class Background(threading.Thread):
    """A daemon thread that calls `work`.

    An interrupt in `join` or `is_alive` of Python's own threads can make one count as ended while it runs
    (CPython 3.11 and 3.12). This one says itself that it has ended.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self._has_ended = Flag()

    def run(self) -> None:
        """Called in the new thread, which receives no signal."""
        try:
            self._work()
        finally:
            self._has_ended.set()

    def join(self, timeout: float | None = None) -> None:
        """Returns when it has ended, or after `timeout` seconds; at once if it was not started.

        Raises RuntimeError in the thread itself.
        """
        if threading.current_thread() is self:
            raise RuntimeError("expected another thread to wait for this one, got itself")
        if self.ident is not None:
            self._has_ended.wait(timeout)

    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self.ident is not None and not self._has_ended.is_set()
