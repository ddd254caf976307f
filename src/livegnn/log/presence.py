"""Whether the files of an open log are still those at its path.

A file that was removed, renamed or replaced stays open, and SQLite goes on writing to it: what is appended
then is on the disk, in a log that nobody can open again. SQLite does not look, so this module does, before
and after each append. Thread safety: everything may be called from any thread.
"""

import os
from pathlib import Path
from typing import Final

from livegnn.errors import LogMissingError
from livegnn.log.location import beside

_ENDINGS: Final = ("", "-wal", "-shm", "-lock")


class Presence:
    """The files of the log at `path`, which is open."""

    def __init__(self, path: Path) -> None:
        files = [beside(path, ending) for ending in _ENDINGS]
        self._opened = [(file, file.stat()) for file in files if file.exists()]

    def check(self) -> None:
        """Raises LogMissingError if a file is not at its place, or another one is; OSError."""
        for path, opened in self._opened:
            try:
                found = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                raise _missing(path, "nothing there") from None
            if not os.path.samestat(found, opened):
                raise _missing(path, "another file")


def _missing(path: Path, found: str) -> LogMissingError:
    return LogMissingError(
        f"{path} must be the file that this process opened, got {found}: it was removed, renamed or "
        "replaced, and nobody could read what is written to it. Put it back; or stop this process, restore "
        "the log from a copy, and start again"
    )
