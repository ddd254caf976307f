"""Directories for temporary files that no process leaves for ever.

A process that is killed cannot remove its directories. Each is locked while its process lives, so the next
process that makes one finds those without a lock, and removes them.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "livegnn-held-"


class TemporaryDirectory:
    """A directory that only this user can enter, until `close` or the end of `with`. folder: to make it in;
    by default that of the system (`TMPDIR`). Raises OSError.

    Making one removes those of killed processes in the same folder. A child process that is forked meanwhile
    keeps the lock too.
    """

    def __init__(self, folder: str | None = None) -> None:
        _remove_left(tempfile.gettempdir() if folder is None else folder)
        self._lock: int | None = None
        while self._lock is None:  # another process may remove one that is not locked yet
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
            self._lock = _lock(self.path)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes it. Again does nothing."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def _remove_left(folder: str) -> None:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                lock = _lock(Path(entry.path))
                if lock is not None:
                    shutil.rmtree(entry.path, ignore_errors=True)
                    os.close(lock)


def _lock(path: Path) -> int | None:
    """The lock of a directory of this user; None if another process has it, or if it is not there."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        found = os.fstat(file)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if found.st_uid == os.getuid() and os.path.samestat(found, path.stat()):
            return file
    except OSError:
        pass
    os.close(file)
    return None
