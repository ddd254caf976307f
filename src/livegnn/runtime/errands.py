"""What other threads want the loop to do between two batches, when graph and views stand at one event.

Thread safety: `ask` may be called from any thread; the loop calls the rest.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar, cast

from livegnn.errors import InputError, LiveGNNError

_Answer = TypeVar("_Answer")
_OWN_THREAD: Final = (
    "expected a call from another thread than the loop's, got one from a subscriber or a view: start a "
    "thread for it"
)
_ENDED: Final = "expected a runtime whose loop runs, got one that has ended: nothing was changed"


class Errands:
    """A chore of the loop: functions that wait to be called, each once."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """wake: makes the loop look whether a chore is due."""
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], object], Future[object]]] = deque()
        self._thread: int | None = None
        self._ended = False

    def ask(self, errand: Callable[[], _Answer]) -> _Answer:
        """Has `errand` called between two batches; returns its answer, or raises what it raises.

        Without a loop that runs in a thread of its own, it is called here. Raises `LiveGNNError` if the loop
        has ended, and `InputError` within the loop's thread, which cannot wait for itself.
        """
        self.refuse_own_thread()
        with self._lock:
            if self._ended:
                raise LiveGNNError(_ENDED)
            here = self._thread is None
            asked: Future[object] = Future()
            if not here:
                self._waiting.append((errand, asked))
        if here:
            return errand()
        self._wake()
        return cast("_Answer", asked.result())

    def refuse_own_thread(self) -> None:
        """Raises `InputError` within the loop's thread, which cannot wait for itself."""
        with self._lock:
            own = self._thread == threading.get_ident()
        if own:
            raise InputError(_OWN_THREAD)

    def begin(self) -> None:
        """Says that from now on this thread calls `run`."""
        with self._lock:
            self._thread = threading.get_ident()

    def until(self) -> float | None:
        """0 if an errand waits, else None."""
        return 0.0 if self._waiting else None

    def run(self) -> None:
        """Calls those that wait."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                errand, asked = self._waiting.popleft()
            try:
                asked.set_result(errand())
            except Exception as error:
                asked.set_exception(error)
            except BaseException:
                asked.set_exception(LiveGNNError(_ENDED))
                raise

    def end(self) -> None:
        """Refuses those that wait, and all that come."""
        with self._lock:
            self._ended = True
            waiting, self._waiting = list(self._waiting), deque()
        for _, asked in waiting:
            asked.set_exception(LiveGNNError(_ENDED))
