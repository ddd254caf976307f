"""A folder of files of JSON lines as a sink: one line for each row, the newest of a node being the last one.

Files are `changes-NUMBER.jsonl`, written one after the other. A line that a crash has cut is removed before
others are written. A file that is full is not written to again, so another program may take it away. If the
folder or the file that is being written is removed, the next write makes it again.
"""

import contextlib
import os
import re
from pathlib import Path
from typing import BinaryIO, Final

from livegnn.arguments import as_path, check_int
from livegnn.atomic_file import sync_directory
from livegnn.connectors.sink import PredictionRows
from livegnn.log.location import is_at

_NAME: Final = re.compile(r"changes-(\d{8,})\.jsonl")
_BLOCK: Final = 65_536
_MOST_BYTES: Final = 1 << 50


class JsonLinesFolder:
    """Writes to files in `directory`, which is made if it is missing. rotate_bytes: of a file, after which
    another one is begun. Raises `InputError` for wrong arguments."""

    def __init__(self, directory: Path | str, *, rotate_bytes: int = 64 << 20) -> None:
        self._directory = as_path(directory, "directory")
        self._rotate = check_int(rotate_bytes, "rotate_bytes", 1, _MOST_BYTES)
        self._file: BinaryIO | None = None
        self._size = 0

    def write(self, rows: PredictionRows) -> None:
        """Appends a line for each row. Raises `OSError`, after which no part of a line stays."""
        try:
            file = self._open()
            file.write(b"".join(rows.lines()))
            file.flush()
            os.fsync(file.fileno())
            self._size = file.tell()
        except BaseException:
            self.close()  # the next write cuts what is there of a line
            raise
        if self._size >= self._rotate:
            self.close()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # what is left of a write that failed
                file.close()

    def _open(self) -> BinaryIO:
        if self._file is not None:
            if is_at(self._file.fileno(), Path(self._file.name)):
                return self._file
            self.close()
        self._directory.mkdir(parents=True, exist_ok=True)
        named = [_NAME.fullmatch(path.name) for path in self._directory.iterdir()]
        newest = max((int(name[1]) for name in named if name is not None), default=1)
        path = self._path_of(newest)
        if path.exists() and _cut(path) >= self._rotate:
            path = self._path_of(newest + 1)
        file = self._file = open(path, "ab")  # noqa: SIM115
        sync_directory(self._directory)
        return file

    def _path_of(self, number: int) -> Path:
        return self._directory / f"changes-{number:08d}.jsonl"


def _cut(path: Path) -> int:
    """Removes a line without an end from the end of a file; returns the size of the rest."""
    with open(path, "r+b") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - _BLOCK)
            file.seek(begin)
            last = file.read(end - begin).rfind(b"\n")
            if last >= 0:
                end = begin + last + 1
                break
            end = begin
        if end < size:
            file.truncate(end)
            os.fsync(file.fileno())
    return end
