"""The work between two batches, when graph and views are at the same event: tasks that become due, and calls
that other threads request. The module also has the clock by which tasks become due.

Thread safety: `call` and the clock may be called from any thread; the loop calls the rest.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import livegnn._core as _core
from livegnn.errors import InputError, LiveGNNError

_Answer = TypeVar("_Answer")
_OWN_THREAD: Final = (
    "expected a call from another thread than the loop's, got one from a subscriber or a view: start a "
    "thread for it"
)
_ENDED: Final = "expected a runtime whose loop runs, got one that has ended: nothing was changed"


class SteadyClock:
    """A clock that follows `clock` but never decreases: if that is set back, the time continues from there.

    So setting a clock back cannot delay a task that is due in some seconds by a year.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = self._now = clock()

    def __call__(self) -> float:
        return _core.holding(self._lock, self._read)

    def _read(self) -> float:
        last, self._last = self._last, self._clock()
        self._now += max(0.0, self._last - last)
        return self._now


class Task(Protocol):
    """A task that the loop runs between batches, from time to time."""

    def until(self) -> float | None:
        """Returns the seconds until the task is due, 0 if it is, None if only an event can make it due."""

    def run(self) -> None:
        """Runs one round."""


class _Call(Generic[_Answer]):
    """A function that is called once, and its answer or the exception that it raised."""

    def __init__(self, function: Callable[[], _Answer]) -> None:
        self._function = function
        self._answers: list[_Answer] = []
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        return bool(self._answers) or self.error is not None

    def run(self) -> None:
        """Calls it. Raises only errors that are not an `Exception`; the waiting caller then gets `_ENDED`."""
        try:
            self._answers.append(self._function())
        except Exception as error:
            self.error = error
        except BaseException:
            self.error = LiveGNNError(_ENDED)
            raise

    def answer(self) -> _Answer:
        """Returns the answer of the function, or raises its exception."""
        if self.error is not None:
            raise self.error
        return self._answers[0]


class BetweenBatches:
    """A task of the loop that calls waiting functions, each once."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """wake: makes the loop check whether a task is due."""
        self._wake = wake
        self._changed = threading.Condition()
        self._waiting: deque[_Call[object]] = deque()
        self._thread: int | None = None
        self._ended = False

    def call(self, function: Callable[[], _Answer]) -> _Answer:
        """Calls `function` between two batches; returns its answer, or raises its exception.

        Without a loop that runs in its own thread, the caller's thread calls it. Raises `LiveGNNError` if the
        loop has ended, and `InputError` within the loop's thread, which cannot wait for itself.
        """
        self.refuse_own_thread()
        asked = _Call(function)
        if _core.holding(self._changed, self._wait_in_line, asked):
            self._wake()
            _core.holding(self._changed, self._changed.wait_for, lambda: asked.done)
        else:
            asked.run()
        return asked.answer()

    def _wait_in_line(self, asked: "_Call[_Answer]") -> bool:
        """Adds a call to the queue of a running loop; returns whether there is one."""
        if self._ended:
            raise LiveGNNError(_ENDED)
        if self._thread is not None:
            self._waiting.append(asked)  # type: ignore[arg-type]  # only its caller reads its answer
        return self._thread is not None

    def refuse_own_thread(self) -> None:
        """Raises `InputError` within the loop's thread, which cannot wait for itself."""
        if self._thread == threading.get_ident():
            raise InputError(_OWN_THREAD)

    def begin(self) -> None:
        """Notes that from now on this thread calls `run`."""
        _core.holding(self._changed, setattr, self, "_thread", threading.get_ident())

    def until(self) -> float | None:
        """Returns 0 if a call waits, else None."""
        return 0.0 if self._waiting else None

    def run(self) -> None:
        """Makes the waiting calls."""
        while self._waiting:
            call = self._waiting.popleft()  # by one thread alone
            try:
                call.run()
            finally:
                _core.holding(self._changed, self._changed.notify_all)

    def end(self) -> None:
        """Refuses the waiting calls, and all later ones."""
        _core.holding(self._changed, self._end)

    def _end(self) -> None:
        self._ended = True
        while self._waiting:
            self._waiting.popleft().error = LiveGNNError(_ENDED)
        self._changed.notify_all()
