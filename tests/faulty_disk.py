"""A file system for SQLite, between it and the real one, that notes what SQLite flushes, and can fail."""

import errno
import io
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

import livegnn.atomic_file

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class FaultyDisk(apsw.VFS):
    """Registered with apsw under `name` while it lives; `SqliteLog(path, vfs=name)` runs on it.

    syncs: how often each file was flushed, by its name without folder. full: whether writes fail, as on a
    full disk. room: how many writes fit until it is full, None for any number. full_for_files: whether
    it is full for files beside the log alone. failing: whether flushes fail.
    refused: released at each write that was refused.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.syncs: Counter[str] = Counter()
        self.full = self.full_for_files = self.failing = False
        self.room: int | None = None
        self.refused = threading.Semaphore(0)
        super().__init__(name, "")

    def take_room(self) -> bool:
        """Whether one more write fits."""
        if self.room is not None:
            self.room -= 1
            self.full = self.full or self.room < 0
        if self.full:
            self.refused.release()
        return not self.full

    def empty(self) -> None:
        """There is space again."""
        self.full, self.full_for_files, self.room = False, False, None

    @contextmanager
    def has_files(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Files that `livegnn.atomic_file` writes are on this disk too, and what is written in place."""
        pwrite = os.pwrite

        def stream(descriptor: int, mode: str, closefd: bool) -> io.BufferedWriter:
            return io.BufferedWriter(_Stream(self, descriptor, mode, closefd))

        def write_at(descriptor: int, data: "ReadableBuffer", offset: int) -> int:
            if self.full or self.full_for_files:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return pwrite(descriptor, data, offset)

        with patch.context() as patched:
            patched.setattr(livegnn.atomic_file, "open", stream, raising=False)
            patched.setattr(os, "pwrite", write_at)
            yield

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = Path(path or "").name
        super().__init__("", name, flags)  # type: ignore[arg-type]

    def xSync(self, flags: int) -> None:
        if self._disk.failing:
            raise apsw.IOError("the disk failed")
        self._disk.syncs[self._name] += 1
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if not self._disk.take_room():
            raise apsw.FullError("no space is left")
        super().xWrite(data, offset)


class _Stream(io.FileIO):
    def __init__(self, disk: FaultyDisk, descriptor: int, mode: str, closefd: bool) -> None:
        super().__init__(descriptor, mode, closefd)
        self._disk = disk

    def write(self, data: "ReadableBuffer") -> int:
        if self._disk.full_for_files or not self._disk.take_room():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)
