"""Reads checkpoints: those that stand alone, and those whose blocks lie in several files."""

import mmap
import os
import stat
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from livegnn.arguments import as_path
from livegnn.atomic_file import name_kind
from livegnn.checkpoint.blocks import (
    BLOCK,
    Directory,
    block_lengths,
    find_runs,
    hash_blocks,
    hash_directory,
    packed_size,
    place_own,
    unpack,
)
from livegnn.checkpoint.header import ALIGNMENT, PREFIX, SHARED, Contents, Section, Source, align, read_header
from livegnn.errors import FileFormatError
from livegnn.types import Array, State


class Checkpoint(NamedTuple):
    """The states of the parts of the system, by name, as they were after event `seq`."""

    seq: int
    states: dict[str, State]


class _File(NamedTuple):
    """A file that holds blocks; they begin at byte `start`."""

    path: Path
    content: memoryview
    start: int


def read(path: Path | str, *, states: Collection[str] | None = None) -> Checkpoint:
    """Returns the checkpoint at `path`, its arrays in memory, private to this process and writable.

    states: the parts that are read, all by default; of other parts only the header is read. Raises
    FileFormatError if a single bit of the parts that are read has changed, also in blocks that lie in other
    files of the directory; OSError if there is no such file.
    """
    path = as_path(path, "path")
    content = _map(path, mmap.ACCESS_COPY)
    contents, end = read_header(path, content)
    arrays: dict[str, dict[str, Array]] = {
        name: {} for name in contents.meta if states is None or name in states
    }
    blocks = _Blocks(path, content, contents, end) if contents.version == SHARED else None
    for section in contents.sections:
        if blocks is None:
            _check_zeros(path, content[end : section.offset])
            end = section.offset + section.length
        if section.state not in arrays:
            continue
        held = content[section.offset : end] if blocks is None else blocks.gather(section)
        checksum = zlib.crc32(held)
        if checksum != section.crc32:
            where = f"{section.state}/{section.name}"
            raise FileFormatError(
                f"{path} must have the checksum {section.crc32:08x} for {where}, got {checksum:08x}: "
                f"{'it' if blocks is None else blocks.blame(section, held)} is corrupt"
            )
        count = section.length // section.dtype.itemsize if section.dtype.itemsize else 0
        flat = np.frombuffer(held, dtype=section.dtype, count=count)
        arrays[section.state][section.name] = flat.reshape(section.shape)
    return Checkpoint(
        contents.seq, {name: State(contents.meta[name], mapped) for name, mapped in arrays.items()}
    )


def read_contents(path: Path | str) -> Contents:
    """Returns the contents of the checkpoint at `path`, quickly: only its header is read.

    Raises FileFormatError if the header has changed, OSError if there is no such file.
    """
    path = as_path(path, "path")
    return read_header(path, _map(path))[0]


def read_directory(path: Path) -> tuple[Contents, Directory]:
    """Returns the header and the directory of blocks at `path`; only they are read.

    Raises FileFormatError if they have changed, or if there is no directory, OSError if there is no such
    file.
    """
    content = _map(path)
    contents, end = read_header(path, content)
    if contents.version != SHARED:
        raise FileFormatError(f"{path} must be of version {SHARED}, got {contents.version}")
    return contents, _unpack(path, content, contents, end)


def _map(path: Path, access: int = mmap.ACCESS_READ) -> memoryview:
    """The file in memory; what may be written to there counts as memory of the process at once."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):  # opening a pipe would wait for a process that writes to it
        raise FileFormatError(f"a checkpoint must be a regular file, got {name_kind(mode)} at {path}")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < PREFIX.size:
            raise FileFormatError(
                f"{path} must be a checkpoint of at least {PREFIX.size} bytes, got {size}: it is truncated"
            )
        return memoryview(mmap.mmap(file.fileno(), size, access=access))


def _make_room(length: int) -> memoryview:
    """Memory of this process alone, also after a fork, that begins where vectors are aligned."""
    room = np.empty(length + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + length].data


def _check_zeros(path: Path, gap: memoryview) -> None:
    if any(gap):
        raise FileFormatError(f"{path} must have zeros between sections, got others: it is corrupt")


def _unpack(path: Path, content: memoryview, contents: Contents, start: int) -> Directory:
    """The directory of blocks, which begins at `start`. Raises FileFormatError if it is not as it was."""
    size = packed_size(contents.blocks, contents.runs)
    if contents.runs < 0 or start + size > len(content):
        raise FileFormatError(
            f"{path} must hold a directory of {size} bytes, got {len(content) - start}: it is corrupt"
        )
    packed = content[start : start + size]
    actual = hash_directory(packed)
    if actual != contents.sha256:
        raise FileFormatError(
            f"{path} must have the SHA-256 {contents.sha256} for its directory, got {actual}: it is corrupt"
        )
    try:
        return unpack(packed, contents.blocks, contents.runs, len(contents.files))
    except ValueError as error:
        raise FileFormatError(f"{path} must have a directory of blocks that fits: {error}") from error


class _Blocks:
    """The blocks of a checkpoint, in its own file and in others, which are opened when a block is there."""

    def __init__(self, path: Path, content: memoryview, contents: Contents, end: int) -> None:
        self._path, self._sources = path, contents.files
        self._directory = _unpack(path, content, contents, end)
        end += packed_size(contents.blocks, contents.runs)
        start = align(end)
        self._files = {0: _File(path, content, start)}
        sizes = block_lengths([section.length for section in contents.sections])
        own = self._directory.files == 0
        offsets, total = place_own(sizes[own], ALIGNMENT)
        if not np.array_equal(self._directory.offsets[own], offsets) or len(content) != (
            start + total if own.any() else end
        ):
            raise FileFormatError(f"{path} must have its blocks one after the other up to its end")
        _check_zeros(path, content[end:start])
        short = np.flatnonzero(sizes[own] % ALIGNMENT)
        for gap in (offsets[short] + sizes[own][short]).tolist():
            _check_zeros(path, content[start + gap : start + align(gap)])

    def gather(self, section: Section) -> memoryview:
        """The bytes of a section: those of the own file as they are mapped, or blocks of several, copied."""
        files, offsets, runs = self._runs_of(section)
        if len(runs) == 2 and files[0] == 0:
            return self._bytes_at(0, int(offsets[0]), section.length)
        held = _make_room(section.length)
        edges = [*(runs[:-1] * BLOCK).tolist(), section.length]
        wanted = zip(files[runs[:-1]].tolist(), offsets[runs[:-1]].tolist(), strict=True)
        for (number, offset), begin, stop in zip(wanted, edges[:-1], edges[1:], strict=True):
            held[begin:stop] = self._bytes_at(number, offset, stop - begin)
        return held

    def blame(self, section: Section, held: memoryview) -> str:
        """Names the file with a block of a section that differs from its hash."""
        files, offsets, _ = self._runs_of(section)
        first = section.offset // BLOCK
        hashes = np.frombuffer(hash_blocks(held), np.uint8).reshape(len(files), -1)
        differ = (hashes != self._directory.hashes[first : first + len(files)]).any(axis=1)
        if not differ.any():
            return "it"
        named = []
        for number in np.unique(files[differ]).tolist():
            at = np.flatnonzero(differ & (files == number))
            file = self._files[number]
            named.append(f"{file.path}, block at byte {file.start + int(offsets[at[0]])} of {len(at)},")
        return " and ".join(named)

    def _runs_of(self, section: Section) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """File and offset of each block of a section, and where its runs begin."""
        first = section.offset // BLOCK
        these = slice(first, first + -(-section.length // BLOCK))
        files, offsets = self._directory.files[these], self._directory.offsets[these]
        return files, offsets, find_runs(files, offsets)

    def _bytes_at(self, number: int, offset: int, length: int) -> memoryview:
        if number not in self._files:
            self._files[number] = self._open(self._sources[number - 1])
        file = self._files[number]
        start = file.start + offset
        if start + length > len(file.content):
            raise FileFormatError(
                f"{self._path} must have blocks within {file.path}, got one up to byte {start + length}"
            )
        return file.content[start : start + length]

    def _open(self, source: Source) -> _File:
        """Another file that has blocks of this one. Raises FileFormatError unless it is the one meant."""
        path = Path(os.path.realpath(self._path)).parent / source.name
        try:
            content = _map(path)
            contents, end = read_header(path, content)
        except OSError as error:
            raise FileFormatError(
                f"{self._path} has {source.length} bytes of its content in {path}, got "
                f"'{error.strerror}': put the file there, or use an earlier checkpoint"
            ) from error
        except FileFormatError as error:
            raise FileFormatError(f"{self._path} has blocks in another file: {error}") from error
        if contents.sha256 != source.sha256:
            raise FileFormatError(
                f"{self._path} has blocks in {path} with the SHA-256 {source.sha256} for its directory, got "
                f"{contents.sha256}: it is another file of that name"
            )
        return _File(path, content, align(end + packed_size(contents.blocks, contents.runs)))
