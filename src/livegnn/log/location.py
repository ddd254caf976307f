"""The file of a log, also through symbolic links; and the lock of the process that owns it.

SQLite follows symbolic links, and its -wal stands beside the file that they lead to. So do the lock, the mark
and the consumers.
"""

import fcntl
import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path

from livegnn.arguments import as_path
from livegnn.atomic_file import name_kind
from livegnn.errors import InputError, LogError
from livegnn.interrupts import at_once


def locate(path: Path | str, *, new: bool = False) -> Path:
    """The file of the log at `path`, absolute and without links. new: it need not exist.

    Raises InputError for a value that is not the path of a file; LogError if it does not exist, or is not a
    file; OSError.
    """
    given = as_path(path, "path")
    if not given.name:
        raise InputError(f"path must name the file of an event log, got {str(path)!r}")
    found = Path(os.path.realpath(given))
    try:
        mode = given.stat().st_mode
    except FileNotFoundError:
        if given.is_symlink():
            raise LogError(
                f"there must be an event log at {given}, got a link to {found}, where nothing is"
            ) from None
        if not new:
            raise LogError(f"there must be an event log at {given}, got no such file") from None
        return found
    if not stat.S_ISREG(mode):
        raise LogError(f"an event log must be a regular file, got {name_kind(mode)} at {given}")
    return found


def beside(log: Path, ending: str) -> Path:
    """The file beside a log whose name has this ending."""
    return log.with_name(log.name + ending)


def is_at(file: int, path: Path) -> bool:
    """Whether an open file is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False


class OwnedElsewhere(LogError):
    """Another process, or another log of this one, holds the lock of a log or directory."""


class Owner:
    """Holds the lock on `path`, which is made when it is missing, until `release` or the end of the process.

    Raises OwnedElsewhere if another process, or another log of this process, holds it; OSError.
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
            raise OwnedElsewhere(
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
