"""A disk under SQLite whose machine may die: what was not flushed is then lost, kept, or torn."""

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw

SECTOR = 512


class PowerLoss(apsw.IOError):
    """The machine is dead: nothing is written or flushed any more."""


@dataclass
class Content:
    """A file as the disk has it for certain, and what was written since it was flushed."""

    flushed: bytearray = field(default_factory=bytearray)
    waiting: list[tuple[int, bytes | None]] = field(
        default_factory=list
    )  # a place and bytes; None: cut there
    exists: bool = False

    def flush(self) -> None:
        for place, data in self.waiting:
            put(self.flushed, place, data)
        self.waiting.clear()
        self.exists = True

    def after_loss(self, draw: random.Random) -> bytes | None:
        """What is there when the power is back; None if there is no file."""
        content, exists = bytearray(self.flushed), self.exists
        order = list(self.waiting)
        if draw.random() < 0.3:
            draw.shuffle(order)  # a disk writes in any order
        keep = draw.choice([0.0, 0.3, 0.7, 1.0])
        for place, data in order:
            if draw.random() < keep:
                exists = True
                put(content, place, data if data is None else torn(data, draw))
        return bytes(content) if exists else None


def put(content: bytearray, place: int, data: bytes | None) -> None:
    if data is None:
        del content[place:]
        return
    content.extend(bytes(max(0, place + len(data) - len(content))))
    content[place : place + len(data)] = data


def torn(data: bytes, draw: random.Random) -> bytes:
    """A write of which only the first sectors have reached the disk, now and then."""
    if draw.random() < 0.7:
        return data
    return data[: SECTOR * draw.randint(0, len(data) // SECTOR)]


class CrashingDisk(apsw.VFS):
    """Registered with apsw under `name` while it lives. Thread-safe.

    dies_after: how many writes, flushes and cuts it does before the power is lost; None: as many as come.
    """

    def __init__(self, name: str, dies_after: int | None) -> None:
        self.name, self.left = name, dies_after
        self.dead = False
        self.files: dict[str, Content] = {}
        self.lock = threading.RLock()
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        with self.lock:
            self.spend()
            self.files.pop(Path(filename).name, None)
            super().xDelete(filename, syncdir)

    def spend(self) -> None:
        """Counts an operation; raises PowerLoss at the last and ever after."""
        if self.left is not None:
            self.left -= 1
            self.dead = self.dead or self.left < 0
        if self.dead:
            raise PowerLoss("the power is lost")

    def lose_power(self, to: Path, draw: random.Random) -> None:
        """Writes what a machine finds after the loss to a new directory."""
        to.mkdir()
        with self.lock:
            self.dead = True
            for name, content in self.files.items():
                if (found := content.after_loss(draw)) is not None:
                    (to / name).write_bytes(found)


class _File(apsw.VFSFile):
    def __init__(self, disk: CrashingDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        path = Path((name.filename() if isinstance(name, apsw.URIFilename) else name) or "")
        there = path.read_bytes() if path.is_file() else None
        with disk.lock:
            self._content = disk.files.setdefault(
                path.name, Content(bytearray(there or b""), exists=there is not None)
            )
        super().__init__("", name, flags)  # type: ignore[arg-type]

    def xWrite(self, data: bytes, offset: int) -> None:
        with self._disk.lock:
            self._disk.spend()
            self._content.waiting.append((offset, bytes(data)))
            super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        with self._disk.lock:
            self._disk.spend()
            self._content.waiting.append((size, None))
            super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        with self._disk.lock:
            self._disk.spend()
            self._content.flush()
            super().xSync(flags)


@contextmanager
def losses_ignored() -> Iterator[None]:
    """SQLite has nobody to tell of some losses, as when it closes a file."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda it: None if isinstance(it.exc_value, PowerLoss) else hook(it)
    try:
        yield
    finally:
        sys.unraisablehook = hook
