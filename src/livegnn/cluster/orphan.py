"""Ends the process of a worker that the cluster no longer has.

The workers of a machine that is cut off are replaced by others, and Ray ends the old processes when it
reaches that machine again. If it never does, or if its own process there stands still, they would run for
ever: they would read the log, keep their memory, and answer seeds at an unused address. So each worker that
the coordinator has not called for some time finds out by itself whether the cluster still has it.
"""

import logging
import os
import threading
import time
from collections.abc import Callable

_logger = logging.getLogger(__name__)


class OrphanCheck:
    """Calls `end` when `is_registered` returns False and `note_asked` was not called for `seconds`.

    If `is_registered` raises, nothing is known: the check is made again after `seconds`. Thread safety:
    `note_asked` may be called from any thread; the other two are called in a thread of this object's own.
    """

    def __init__(
        self, is_registered: Callable[[], bool], seconds: float, end: Callable[[], object] | None = None
    ) -> None:
        self._is_registered, self._seconds = is_registered, seconds
        self._end = end or _exit
        self._asked = time.monotonic()
        threading.Thread(target=self._run, name="orphan-check", daemon=True).start()

    def note_asked(self) -> None:
        """Notes that the coordinator has asked now."""
        self._asked = time.monotonic()

    def _run(self) -> None:
        looked = self._asked
        while True:
            left = max(looked, self._asked) + self._seconds - time.monotonic()
            if left > 0:
                time.sleep(left)
                continue
            looked = time.monotonic()
            try:
                if self._is_registered():
                    continue
            except Exception as error:
                _logger.info("the cluster did not answer whether it has this worker: %s", error)
                continue
            _logger.warning("this worker ends: the cluster no longer has it")
            self._end()
            return


def _exit() -> None:
    os._exit(1)  # threads of Ray may never end; a worker continues from its last checkpoint anyway
