"""Writes checkpoints: whole ones, and those that take from an earlier file what has not changed since."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from livegnn.arguments import as_array, as_path, check_int
from livegnn.atomic_file import replace_file
from livegnn.checkpoint.blocks import (
    BLOCK,
    HASH,
    Directory,
    block_lengths,
    hash_blocks,
    hash_directory,
    place_own,
)
from livegnn.checkpoint.header import (
    ALIGNMENT,
    PREFIX,
    SHARED,
    WHOLE,
    Source,
    align,
    dump_header,
    pack_header,
    pad_header,
)
from livegnn.checkpoint.reading import read_directory
from livegnn.errors import FileFormatError, InputError
from livegnn.types import JSON, Array, State

WORTH_SHARING: Final = 0.5
"""A file with more than this share of its bytes new has them all, and no other file is needed to read it."""

_PART: Final = 8 << 20  # bytes, a multiple of BLOCK


@dataclass
class _Section:
    """An array that is to be written, its entry in the header, and the hashes of its blocks."""

    state: str
    content: memoryview
    entry: dict[str, JSON]
    hashes: bytes = b""

    @property
    def key(self) -> tuple[str, str]:
        return self.state, str(self.entry["name"])


def write(path: Path | str, states: Mapping[str, State], seq: int) -> int:
    """Writes `states` at `seq` to `path`, durably and all at once; returns the size of the file in bytes.

    The file stands alone; a new one is for its owner alone, as a log is. Raises InputError for an array or
    metadata that the format cannot hold, or if something other than a regular file is at `path`, OSError if
    the disk refuses; what was there before is then untouched.
    """
    path, seq = as_path(path, "path"), check_int(seq, "seq", 0)
    with replace_file(path, private=True) as file:
        return write_to(file, states, seq)


def write_to(
    file: BinaryIO, states: Mapping[str, State], seq: int, *, on_part: Callable[[], None] | None = None
) -> int:
    """Writes what `write` does into an open file; returns how many bytes.

    on_part: called after every few megabytes that were read or written.
    """
    sections, header = _describe(states, on_part, hashing=False)
    content, size = _lay_out({"seq": seq, "states": header}, [section.entry for section in sections])
    file.write(content)
    for section in sections:
        offset = section.entry["offset"]
        assert isinstance(offset, int)
        file.write(bytes(offset - file.tell()))
        file.writelines(_parts(section.content, on_part))
    return size


def write_shared_to(
    file: BinaryIO,
    states: Mapping[str, State],
    seq: int,
    *,
    after: Path | None,
    on_part: Callable[[], None] | None = None,
) -> int:
    """Writes into an open file a checkpoint that later ones can take blocks from; returns the bytes written.

    after: an earlier such file, in the directory where this one will be. Blocks that are unchanged since stay
    there, or in the files that it takes blocks from itself, and must stay there as long as this one. With
    None, or if it cannot be read, or if too little is the same (`WORTH_SHARING`), the file stands alone.
    on_part: as in `write_to`. Raises as `write`.
    """
    sections, header = _describe(states, on_part, hashing=True)
    sizes = block_lengths([len(section.content) for section in sections])
    hashes = np.frombuffer(b"".join(section.hashes for section in sections), np.uint8).reshape(-1, HASH)
    shared = _share(sections, hashes, sizes, after)
    directory, total = _place(shared, hashes, sizes)
    packed, runs = directory.pack()
    used = np.bincount(directory.files, weights=sizes, minlength=len(shared.sources) + 1)
    files: list[JSON] = [
        {"name": source.name, "sha256": source.sha256, "length": int(length)}
        for source, length in zip(shared.sources, used[1:].tolist(), strict=True)
    ]
    described: dict[str, JSON] = {"sha256": hash_directory(packed), "runs": runs}
    text = pad_header(
        dump_header({"seq": seq, "files": files, "directory": described, "states": dict(header)})
    )
    start = PREFIX.size + len(text) + len(packed)
    size = align(start) + total if total else start
    file.write(pack_header(SHARED, text, size))
    file.write(packed)
    if total:
        file.write(bytes(align(start) - start))
        _write_own(file, sections, directory.files == 0, on_part)
    return size


def _describe(
    states: Mapping[str, State], on_part: Callable[[], None] | None, *, hashing: bool
) -> tuple[list[_Section], dict[str, JSON]]:
    """The sections of a file in their order, and the parts as the header has them."""
    sections: list[_Section] = []
    header: dict[str, JSON] = {}
    for state_name, state in states.items():
        table: list[JSON] = []
        for name in (state_name, *state.arrays):
            _check_name(name)
        for name, value in state.arrays.items():
            array = _storable(value, f"{state_name}/{name}")
            content = array.reshape(-1).view(np.uint8).data
            checksum, hashes = 0, []
            for part in _parts(content, on_part):
                checksum = zlib.crc32(part, checksum)
                if hashing:
                    hashes.append(hash_blocks(part))
            entry: dict[str, JSON] = {
                "name": name,
                "dtype": array.dtype.str,
                "shape": list(array.shape),
                **({} if hashing else {"offset": 0}),
                "length": array.nbytes,
                "crc32": checksum,
            }
            sections.append(_Section(state_name, content, entry, b"".join(hashes)))
            table.append(entry)
        header[state_name] = {"meta": dict(state.meta), "arrays": table}
    return sections, header


def _parts(content: memoryview, after_each: Callable[[], None] | None) -> Iterator[memoryview]:
    """Some megabytes at a time."""
    for start in range(0, len(content), _PART):
        yield content[start : start + _PART]
        if after_each is not None:
            after_each()


def _check_name(name: object) -> None:
    """Raises InputError for a value that a reader would not accept as a name."""
    if type(name) is str:
        try:
            name.encode()
        except UnicodeEncodeError:
            pass
        else:
            return
    raise InputError(f"expected names of states and arrays to be valid Unicode text, got {name!r}")


def _storable(value: Array, name: str) -> Array:
    """`value` as a C-contiguous array of little-endian numbers, booleans or text."""
    array = np.asarray(as_array(value, name), order="C")
    if array.dtype.kind not in "biufU" or not array.dtype.itemsize:
        raise InputError(f"{name} must be an array of numbers, booleans or text, got dtype {array.dtype}")
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _lay_out(header: dict[str, JSON], sections: list[dict[str, JSON]]) -> tuple[bytes, int]:
    """Gives every section its offset; returns prefix and header as bytes, and the size of the whole file.

    The offsets stand in the header whose length decides them, so they are settled in rounds: a longer header
    only moves them up, and a round either adds digits or is the last.
    """
    start = 0
    while True:
        text = dump_header(header)
        end = PREFIX.size + len(text)
        if end <= start:
            break
        start = align(end)
        position = start
        for entry in sections:
            length = entry["length"]
            assert isinstance(length, int)
            entry["offset"] = position
            position = align(position + length)
    text = text.ljust(start - PREFIX.size)
    last = sections[-1] if sections else {"offset": start, "length": 0}
    size = int(str(last["offset"])) + int(str(last["length"]))
    return pack_header(WHOLE, text, size), size


class _Shared(NamedTuple):
    """The file of each block, 0 for the new one; its offset there; the other files, numbered from 1 on."""

    files: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sources: tuple[Source, ...]


def _share(
    sections: list[_Section], hashes: NDArray[np.uint8], sizes: NDArray[np.int64], after: Path | None
) -> _Shared:
    """Finds the places of the blocks that an earlier file has; of no block if that is not worth it."""
    alone = _Shared(np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64), ())
    if after is None:
        return alone
    try:
        contents, known = read_directory(after)
    except (FileFormatError, OSError):
        return alone
    assert contents.sha256 is not None
    sources = (*contents.files, Source(after.name, contents.sha256, 0))
    there = {(old.state, old.name): (old.offset // BLOCK, old.length) for old in contents.sections}
    files, offsets, first = alone.files.copy(), alone.offsets.copy(), 0
    for section in sections:
        count = -(-len(section.content) // BLOCK)
        old_first, old_length = there.get(section.key, (0, 0))
        both = min(count, -(-old_length // BLOCK))
        ours, theirs = slice(first, first + both), slice(old_first, old_first + both)
        same = (hashes[ours] == known.hashes[theirs]).all(axis=1)
        numbers = known.files[theirs]
        files[ours] = np.where(same, np.where(numbers == 0, len(sources), numbers), 0)
        offsets[ours] = np.where(same, known.offsets[theirs], 0)
        first += count
    if sizes[files == 0].sum() > WORTH_SHARING * sizes.sum():
        return alone
    return _Shared(files, offsets, sources)


def _place(shared: _Shared, hashes: NDArray[np.uint8], sizes: NDArray[np.int64]) -> tuple[Directory, int]:
    """The directory of a file that holds all unshared blocks itself, and the number of their bytes."""
    own = shared.files == 0
    offsets = shared.offsets.copy()
    offsets[own], total = place_own(sizes[own], ALIGNMENT)
    return Directory(hashes, shared.files, offsets), total


def _write_own(
    file: BinaryIO, sections: list[_Section], own: NDArray[np.bool_], on_part: Callable[[], None] | None
) -> None:
    """Writes the blocks that the file itself has, one after the other."""
    first = gap = written = 0
    for section in sections:
        count = -(-len(section.content) // BLOCK)
        edges = np.flatnonzero(np.diff(own[first : first + count], prepend=False, append=False))
        for begin, stop in (edges.reshape(-1, 2) * BLOCK).tolist():
            if gap:
                file.write(bytes(gap))
            for at in range(begin, stop, _PART):
                part = section.content[at : min(at + _PART, stop)]
                file.write(part)
                written += len(part)
                if on_part is not None and written >= _PART:
                    on_part()
                    written = 0
            gap = -len(part) % ALIGNMENT
        first += count
