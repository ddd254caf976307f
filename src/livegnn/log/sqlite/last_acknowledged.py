"""The last event that was acknowledged, in a small file beside the log: it shows that a log has lost its end.

It is written after each append, in place, and not flushed: it survives the death of the process, and after a
loss of power it may be older. So it is never ahead of what was acknowledged, and a log that does not reach it
has lost events, whatever its own files say. A mark that is missing or cannot be read says nothing. Processes
that follow the log look at it to see that there is more.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from livegnn.interrupts import Flag, at_once
from livegnn.log.consumers import from_line, to_line
from livegnn.log.location import is_at


class LastAcknowledged:
    """The mark at `path`, which is made with the first `write`. Thread safety: none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def read(self) -> int:
        """The last event that was acknowledged, as far as the mark knows; 0 if it knows of none."""
        try:
            return from_line(self.path.read_bytes()) or 0
        except FileNotFoundError:
            return 0

    def write(self, seq: int) -> None:
        """Notes that event `seq` is acknowledged. A failure leaves an older mark, which is true as well.

        A mark that somebody has removed is made again.
        """
        with suppress(OSError):
            if self._file >= 0 and not is_at(self._file, self.path):
                self.close()
            if self._file < 0:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._file, to_line(seq), 0)

    def close(self) -> None:
        """Closes the file; again does nothing."""
        if self._file >= 0:
            at_once(partial(os.close, self._file), partial(setattr, self, "_file", -1))


def wait_for(found: Callable[[], bool], closed: Flag, ends: float, pauses: Iterator[float]) -> bool:
    """Looks again and again, after each of `pauses`, until something is `found`.

    ends: when to give up, on the monotonic clock. False then, or when `closed` is set.
    """
    while not closed.is_set():
        if found():
            return True
        left = min(next(pauses), ends - time.monotonic())
        if left <= 0:
            return False
        closed.wait(left)
    return False
