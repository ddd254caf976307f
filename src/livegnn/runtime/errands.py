"""What other threads want the loop to do between two batches, when graph and views stand at one event.

Thread safety: `ask` may be called from any thread; the loop calls the rest.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import livegnn._core as _core
from livegnn.errors import InputError, LiveGNNError

_Answer = TypeVar("_Answer")
_OWN_THREAD: Final = (
    "expected a call from another thread than the loop's, got one from a subscriber or a view: start a "
    "thread for it"
)
_ENDED: Final = "expected a runtime whose loop runs, got one that has ended: nothing was changed"


class _Errand(Generic[_Answer]):
    """A function that is called once, and its answer or what it raised."""

    def __init__(self, function: Callable[[], _Answer]) -> None:
        self._function = function
        self._answers: list[_Answer] = []
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        return bool(self._answers) or self.error is not None

    def run(self) -> None:
        """Raises what is no `Exception`; who asked is told that the loop has ended."""
        try:
            self._answers.append(self._function())
        except Exception as error:
            self.error = error
        except BaseException:
            self.error = LiveGNNError(_ENDED)
            raise

    def answer(self) -> _Answer:
        """What the function returned. Raises what it raised."""
        if self.error is not None:
            raise self.error
        return self._answers[0]


class Errands:
    """A chore of the loop: functions that wait to be called, each once."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """wake: makes the loop look whether a chore is due."""
        self._wake = wake
        self._changed = threading.Condition()
        self._waiting: deque[_Errand[object]] = deque()
        self._thread: int | None = None
        self._ended = False

    def ask(self, errand: Callable[[], _Answer]) -> _Answer:
        """Has `errand` called between two batches; returns its answer, or raises what it raises.

        Without a loop that runs in a thread of its own, it is called here. Raises `LiveGNNError` if the loop
        has ended, and `InputError` within the loop's thread, which cannot wait for itself.
        """
        self.refuse_own_thread()
        asked = _Errand(errand)
        if _core.holding(self._changed, self._wait_in_line, asked):
            self._wake()
            _core.holding(self._changed, self._changed.wait_for, lambda: asked.done)
        else:
            asked.run()
        return asked.answer()

    def _wait_in_line(self, asked: "_Errand[_Answer]") -> bool:
        """Whether there is a loop that comes to it."""
        if self._ended:
            raise LiveGNNError(_ENDED)
        if self._thread is not None:
            self._waiting.append(asked)  # type: ignore[arg-type]  # nobody reads its answer as another one
        return self._thread is not None

    def refuse_own_thread(self) -> None:
        """Raises `InputError` within the loop's thread, which cannot wait for itself."""
        if self._thread == threading.get_ident():
            raise InputError(_OWN_THREAD)

    def begin(self) -> None:
        """Says that from now on this thread calls `run`."""
        _core.holding(self._changed, setattr, self, "_thread", threading.get_ident())

    def until(self) -> float | None:
        """0 if an errand waits, else None."""
        return 0.0 if self._waiting else None

    def run(self) -> None:
        """Calls those that wait."""
        while self._waiting:
            errand = self._waiting.popleft()  # by one thread alone
            try:
                errand.run()
            finally:
                _core.holding(self._changed, self._changed.notify_all)

    def end(self) -> None:
        """Refuses those that wait, and all that come."""
        _core.holding(self._changed, self._end)

    def _end(self) -> None:
        self._ended = True
        while self._waiting:
            self._waiting.popleft().error = LiveGNNError(_ENDED)
        self._changed.notify_all()
