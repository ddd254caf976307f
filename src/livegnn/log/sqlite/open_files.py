"""Files that a process holds open and writes to: whether a start would find them as they were opened.

A file that is removed, renamed or replaced still takes writes, which are lost with the process; a file that
is cut short has lost entries, and later writes hide that. So a writer checks first: one system call for each
file.
"""

import os
import shlex
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import livegnn._core as _core
from livegnn.errors import LogError, LogMovedError

_OPEN = Path("/proc/self/fd")  # on Linux: links to the files that this process has open
_HEADER = 100  # bytes, of an SQLite database: https://sqlite.org/fileformat2.html


_Identity = tuple[int, int]
"""The device and the number of a file: its identity among all others while it is open, under any name."""


def _identify(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino


class OpenFiles:
    """Files that are open now, as `what`, such as "the event log /data/events.db". Raises OSError.

    files: an SQLite database, and those that belong to it.
    """

    def __init__(self, what: str, files: Sequence[Path]) -> None:
        self._what = what
        self._database = str(files[0])
        self._size = files[0].stat().st_size
        self._sizing = threading.Lock()
        self._lost: int | None = None  # the number of bytes that were cut off
        self._held = {str(path): _identify(path.stat()) for path in files}

    def check(self) -> None:
        """Raises LogMovedError if one is not where it was opened, LogError if the database was cut short."""
        for path, held in self._held.items():
            try:
                found = os.stat(path)  # noqa: PTH116  # of each append: a Path would cost as much again
            except OSError as error:
                raise self._moved() from error
            if (found.st_dev, found.st_ino) != held:
                raise self._moved()
            if path == self._database and (found.st_size != self._size or self._lost):
                _core.holding(self._sizing, self._check_size)

    def _check_size(self) -> None:
        """Looks again, one thread after the other: another may have seen the file longer meanwhile."""
        size = os.stat(self._database).st_size  # noqa: PTH116
        if size < self._size and not _is_whole(self._held[self._database], size):
            self._lost = self._size - size
        if self._lost is not None:  # for good: a later write makes the file as long as it was
            raise LogError(
                f"{self._what} must have what was written to it, but another program cut {self._lost} "
                f"bytes off its end while process {os.getpid()} had it open: entries are lost, so no more "
                "are stored; stop that process, put back a copy of the file, and start from a checkpoint"
            )
        self._size = size

    def release(self) -> None:
        """From now on nothing is held."""
        self._held = {}

    def _moved(self) -> LogMovedError:
        moved = {Path(path): held for path, held in self._held.items() if _found_at(Path(path)) != held}
        names = " and ".join(map(str, moved))
        steps = dict.fromkeys(step for path, held in moved.items() for step in _steps_back(path, held))
        todo = "put it back"
        if steps:
            todo = f"as long as process {os.getpid()} runs, this puts it back: {' && '.join(steps)}"
        if any(step.startswith("cp ") for step in steps):
            todo += "; then restart that process"
        return LogMovedError(
            f"{self._what} must be where process {os.getpid()} has opened it, but {names} was removed, "
            "renamed or replaced, or is out of reach: what is written now would be lost, so nothing is; "
            f"{todo}"
        )


def _is_whole(held: _Identity, size: int) -> bool:
    """Whether an open SQLite database of this size has all its pages, as after another program's VACUUM."""
    number, _ = _find_open(held)
    if number is None:
        return False
    # Not opened once more: to close that would end the locks that SQLite holds for this process.
    header = os.pread(number, _HEADER, 0)
    if len(header) < _HEADER:
        return False
    page = int.from_bytes(header[16:18], "big")
    return size >= (65_536 if page == 1 else page) * int.from_bytes(header[28:32], "big")


def _found_at(path: Path) -> _Identity | None:
    try:
        return _identify(path.stat())
    except OSError:
        return None


def _steps_back(path: Path, held: _Identity) -> Iterator[str]:
    """The commands after which a file that is open here is at `path` again: itself, or, if it has no name any
    more, a copy, which only a new process can have open. None where the system does not say what is open.
    """
    number, name = _find_open(held)
    if number is None:
        return
    away = not path.parent.is_dir()
    if name is not None and away and name.name == path.name:
        yield shlex.join(["mv", str(name.parent), str(path.parent)])
        return
    if away:
        yield shlex.join(["mkdir", "-p", str(path.parent)])
    elif os.path.lexists(path):
        yield shlex.join(["mv", str(path), f"{path}.other"])
    if name is None:
        yield shlex.join(["cp", f"/proc/{os.getpid()}/fd/{number}", str(path)])
    else:
        yield shlex.join(["mv", str(name), str(path)])


def _find_open(held: _Identity) -> tuple[int | None, Path | None]:
    """The number under which a file is open here, and its present path; None for a missing one."""
    with suppress(OSError):
        for link in _OPEN.iterdir():
            with suppress(OSError):
                if _identify(link.stat()) == held:
                    name = link.readlink()
                    return int(link.name), name if _found_at(name) == held else None
    return None, None
