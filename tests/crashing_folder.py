"""Files that Python writes through `livegnn.atomic_file`, in a folder on a machine that may lose power."""

import errno
import io
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import livegnn.atomic_file
from crashing_disk import Content, CrashingDisk, PowerLoss

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class CrashingFolder:
    """A folder of a machine, whose writes, flushes and names `disk` counts as its own.

    Bytes are there for certain when their file was flushed, names when the folder was: until then a rename
    may be there without what was written before it. Of changes of names the first ones are there after a
    loss, and the others are not.
    """

    def __init__(self, disk: CrashingDisk, path: Path) -> None:
        self._disk, self.path = disk, path
        path.mkdir(exist_ok=True)
        self._names = {
            file.name: Content(bytearray(file.read_bytes()), exists=True) for file in path.iterdir()
        }
        self._states = [self._names]  # of names: the one that was flushed, and after each change since then
        self._open: dict[int, Content | None] = {}  # by descriptor; None: the folder itself

    @contextmanager
    def in_use(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """What `livegnn.atomic_file` and `Path.unlink` do in this folder comes by here, and happens too."""
        opened, fsync, replace, unlink = os.open, os.fsync, os.replace, Path.unlink

        def open_(path: Any, flags: int, *given: Any, **named: Any) -> int:
            new = self._has(path) and bool(flags & os.O_CREAT)
            if new:
                self._spend()
            descriptor = opened(path, flags, *given, **named)
            self._open.pop(descriptor, None)
            if new:
                self._open[descriptor] = self._name(Path(path).name, Content(exists=True))
            elif Path(path) == self.path:
                self._open[descriptor] = None
            return descriptor

        def fsync_(descriptor: int) -> None:
            if descriptor not in self._open:
                fsync(descriptor)
                return
            self._spend()
            content = self._open[descriptor]
            if content is None:
                self._states = self._states[-1:]
            else:
                content.flush()

        def replace_(source: Any, target: Any) -> None:
            if self._has(target):
                self._spend()
                self._name(Path(target).name, self._names[Path(source).name], gone=Path(source).name)
            replace(source, target)

        def unlink_(path: Path, missing_ok: bool = False) -> None:
            if self._has(path) and path.name in self._names:
                self._spend()
                self._name(None, None, gone=path.name)
            unlink(path, missing_ok)

        def stream(descriptor: int, mode: str, closefd: bool) -> io.BufferedWriter:
            content = self._open[descriptor]
            assert content is not None
            return io.BufferedWriter(_Stream(self, content, descriptor, mode, closefd))

        with patch.context() as patched:
            for where, name, function in (
                (os, "open", open_),
                (os, "fsync", fsync_),
                (os, "replace", replace_),
                (Path, "unlink", unlink_),
                (livegnn.atomic_file, "open", stream),
            ):
                patched.setattr(where, name, function, raising=False)
            yield

    def write(self, content: Content, at: int, data: bytes) -> None:
        """Counts a write, which waits to be flushed."""
        self._spend()
        content.waiting.append((at, data))

    def lose_power(self, to: Path, draw: random.Random) -> None:
        """Writes what a machine finds in this folder after the loss to a new one."""
        to.mkdir()
        for name, content in draw.choice(self._states).items():
            (to / name).write_bytes(content.after_loss(draw) or b"")

    def _has(self, path: Any) -> bool:
        return isinstance(path, (str, Path)) and Path(path).parent == self.path

    def _spend(self) -> None:
        try:
            self._disk.spend()
        except PowerLoss as error:
            raise OSError(errno.EIO, str(error)) from None

    def _name(self, name: str | None, content: Content | None, gone: str | None = None) -> Content | None:
        names = {other: old for other, old in self._names.items() if other != gone}
        if name is not None and content is not None:
            names[name] = content
        self._names = names
        self._states = [*self._states, names]
        return content


class _Stream(io.FileIO):
    def __init__(
        self, folder: CrashingFolder, content: Content, descriptor: int, mode: str, closefd: bool
    ) -> None:
        super().__init__(descriptor, mode, closefd)
        self._folder, self._content = folder, content

    def write(self, data: "ReadableBuffer") -> int:
        self._folder.write(self._content, self.tell(), bytes(data))
        return super().write(data)
