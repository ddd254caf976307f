"""Where a log is: one file, whatever link leads to it.

SQLite follows symbolic links, and its -wal stands beside the file that they lead to. So do the lock, the mark
and the consumers.
"""

import os
import stat
from pathlib import Path

from livegnn.arguments import as_path
from livegnn.atomic_file import name_kind
from livegnn.errors import InputError, LogError


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
