"""One process owns a log, or a directory: a lock on a file, which the system releases when it ends."""

import fcntl
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from livegnn.errors import LogError
from livegnn.interrupts import at_once
from livegnn.log.location import is_at


class Owner:
    """Holds the lock on `path`, which is made when it is missing, until `release`.

    Raises LogError if another process, or another log of this process, holds it; OSError.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._file = -1
        while not self.is_at(path):  # who removes the file between the two calls makes another one of it
            self.release()
            self._lock(path, what)

    def _lock(self, path: Path, what: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._say_who()
        except BlockingIOError:
            holder = os.pread(self._file, 20, 0).decode(errors="replace").strip()
            os.close(self._file)
            raise LogError(
                f"{what} must have one owner, got a second one: process {holder or 'unknown'} runs on it. "
                "Stop that process first"
            ) from None
        except BaseException:
            os.close(self._file)
            raise

    def _say_who(self) -> None:
        """Writes the number of the process, for the error of a second one; a disk may not take it."""
        with suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def is_at(self, path: Path) -> bool:
        """Whether the file that is held is the one at `path`."""
        return self._file >= 0 and is_at(self._file, path)

    def release(self) -> None:
        """Lets another process own the log; again does nothing."""
        if self._file >= 0:
            at_once(partial(os.close, self._file), partial(setattr, self, "_file", -1))
