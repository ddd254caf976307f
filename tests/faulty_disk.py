"""A file system for SQLite, between it and the real one, that notes what SQLite flushes, and can fail."""

import threading
from collections import Counter
from pathlib import Path

import apsw


class FaultyDisk(apsw.VFS):
    """Registered with apsw under `name` while it lives; `SqliteLog(path, vfs=name)` runs on it.

    syncs: how often each file was flushed, by its name without folder. full: whether writes fail, as on a
    full disk. failing: whether flushes fail. refused: released at each write that was refused.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.syncs: Counter[str] = Counter()
        self.full = self.failing = False
        self.refused = threading.Semaphore(0)
        super().__init__(name, "")

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
        if self._disk.full:
            self._disk.refused.release()
            raise apsw.FullError("no space is left")
        super().xWrite(data, offset)
