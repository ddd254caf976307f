"""Checkpoints: the state of every part of the system at one sequence number, in one file.

A file is written beside its place and renamed into it, so a reader finds a whole checkpoint or none. It is
mapped into memory when it is read, copy on write: the process owns the arrays, so that a part may take one as
its own. The format is described byte by byte in docs/checkpoint.md.
"""

import json
import mmap
import os
import re
import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np

from livegnn.arguments import as_array, as_path, whole
from livegnn.atomic_file import replace_file
from livegnn.errors import FileFormatError, InputError
from livegnn.types import JSON, Array, State

MAGIC: Final = b"LGNNCKPT"
VERSION: Final = 1
ALIGNMENT: Final = 64

_PART: Final = 8 << 20  # bytes
_PREFIX = struct.Struct("<8sIIQQ")
_CHECKED_FROM = 16  # the checksum of the header covers all that follows it: both lengths and the JSON
_DTYPE = re.compile(r"[<|][biufU][0-9]{1,6}")


class Checkpoint(NamedTuple):
    """The states of the parts of the system, by name, as they were after event `seq`."""

    seq: int
    states: dict[str, State]


class Section(NamedTuple):
    """Where one array lies in the file, of which part of the system it is, and its name there."""

    state: str
    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    offset: int
    length: int
    crc32: int


class Contents(NamedTuple):
    """What the header of a checkpoint says: size in bytes, metadata of each part, and all arrays."""

    version: int
    seq: int
    size: int
    meta: dict[str, Mapping[str, JSON]]
    sections: list[Section]


def write(path: Path | str, states: Mapping[str, State], seq: int) -> int:
    """Writes `states` at `seq` to `path`, durably and all at once; returns the size of the file in bytes.

    Raises InputError for an array or metadata that the format cannot hold, or if something other than a
    regular file is at `path`, OSError if the disk refuses; what was there before is then untouched.
    """
    path, seq = as_path(path, "path"), whole(seq, "seq", 0)
    with replace_file(path) as file:
        return write_to(file, states, seq)


def write_to(
    file: BinaryIO, states: Mapping[str, State], seq: int, *, on_part: Callable[[], None] | None = None
) -> int:
    """Writes what `write` does into an open file; returns how many bytes.

    on_part: called after every few megabytes that were read or written.
    """
    arrays: list[Array] = []
    header: dict[str, JSON] = {}
    listed: list[dict[str, JSON]] = []
    for state_name, state in states.items():
        table: list[JSON] = []
        for name in (state_name, *state.arrays):
            _check_name(name)
        for name, value in state.arrays.items():
            array = _storable(value, f"{state_name}/{name}")
            checksum = 0
            for part in _parts(array, on_part):
                checksum = zlib.crc32(part, checksum)
            entry: dict[str, JSON] = {
                "name": name,
                "dtype": array.dtype.str,
                "shape": list(array.shape),
                "offset": 0,
                "length": array.nbytes,
                "crc32": checksum,
            }
            arrays.append(array)
            listed.append(entry)
            table.append(entry)
        header[state_name] = {"meta": dict(state.meta), "arrays": table}
    content, size = _lay_out({"seq": seq, "states": header}, listed)
    file.write(content)
    for entry, array in zip(listed, arrays, strict=True):
        offset = entry["offset"]
        assert isinstance(offset, int)
        file.write(bytes(offset - file.tell()))
        for part in _parts(array, on_part):
            file.write(part)
    return size


def _parts(array: Array, after_each: Callable[[], None] | None) -> Iterator[memoryview]:
    """The bytes of an array, some megabytes at a time."""
    content = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(content), _PART):
        yield content[start : start + _PART]
        if after_each is not None:
            after_each()


def _check_name(name: object) -> None:
    """Raises InputError for what a reader would not take for a name."""
    if type(name) is str:
        try:
            name.encode()
        except UnicodeEncodeError:
            pass
        else:
            return
    raise InputError(f"expected names of states and arrays to be valid Unicode text, got {name!r}")


def read(path: Path | str, *, states: Collection[str] | None = None) -> Checkpoint:
    """The checkpoint at `path`, its arrays mapped into memory, private to this process and writable.

    states: the parts that are read, all by default; of others only the header is. Raises FileFormatError if a
    single bit of what is read is not as it was written, OSError if there is no such file.
    """
    path = as_path(path, "path")
    content = _map(path)
    contents, end = _read_contents(path, content)
    arrays: dict[str, dict[str, Array]] = {
        name: {} for name in contents.meta if states is None or name in states
    }
    for section in contents.sections:
        if any(content[end : section.offset]):
            raise FileFormatError(f"{path} must have zeros between sections, got others: it is corrupt")
        end = section.offset + section.length
        if section.state not in arrays:
            continue
        checksum = zlib.crc32(content[section.offset : end])
        if checksum != section.crc32:
            raise FileFormatError(
                f"{path} must have the checksum {section.crc32:08x} for {section.state}/{section.name}, "
                f"got {checksum:08x}: it is corrupt"
            )
        count = section.length // section.dtype.itemsize if section.dtype.itemsize else 0
        flat = np.frombuffer(content, dtype=section.dtype, count=count, offset=section.offset)
        arrays[section.state][section.name] = flat.reshape(section.shape)
    return Checkpoint(
        contents.seq, {name: State(contents.meta[name], mapped) for name, mapped in arrays.items()}
    )


def read_contents(path: Path | str) -> Contents:
    """What the checkpoint at `path` holds, quickly: only its header is read.

    Raises FileFormatError if the header is not as it was written, OSError if there is no such file.
    """
    path = as_path(path, "path")
    return _read_contents(path, _map(path))[0]


def _map(path: Path) -> memoryview:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < _PREFIX.size:
            raise FileFormatError(
                f"{path} must be a checkpoint of at least {_PREFIX.size} bytes, got {size}: it is truncated"
            )
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY))


def _read_contents(path: Path, content: memoryview) -> tuple[Contents, int]:
    """What the header says, and where it ends."""
    header = _read_header(path, content)
    end = _PREFIX.size + len(header)
    try:
        seq, meta, sections = _parse_header(header)
        _check_sections(sections, end, len(content))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FileFormatError(
            f"{path} must have a header of version {VERSION}, got one that is malformed: {error}"
        ) from error
    return Contents(VERSION, seq, len(content), meta, sections), end


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
        try:
            text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise InputError(f"the metadata of a state must be JSON, got {error}") from error
        end = _PREFIX.size + len(text)
        if end <= start:
            break
        start = _align(end)
        position = start
        for entry in sections:
            length = entry["length"]
            assert isinstance(length, int)
            entry["offset"] = position
            position = _align(position + length)
    text = text.ljust(start - _PREFIX.size)  # JSON may end in spaces
    last = sections[-1] if sections else {"offset": start, "length": 0}
    size = int(str(last["offset"])) + int(str(last["length"]))
    lengths = struct.pack("<QQ", len(text), size)
    return _PREFIX.pack(MAGIC, VERSION, zlib.crc32(lengths + text), len(text), size) + text, size


def _align(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _read_header(path: Path, content: memoryview) -> bytes:
    """The JSON of the header, after all that can be wrong with the file as a whole was ruled out."""
    magic, version, checksum, length, size = _PREFIX.unpack_from(content)
    if magic != MAGIC:
        raise FileFormatError(f"{path} must begin with {MAGIC!r}, got {magic!r}: this is no checkpoint")
    if version != VERSION:
        raise FileFormatError(
            f"{path} must be of version {VERSION}, got {version}: update livegnn to read it"
        )
    if size != len(content):
        raise FileFormatError(
            f"{path} must be {size} bytes long, got {len(content)}: it is truncated or corrupt"
        )
    actual = zlib.crc32(content[_CHECKED_FROM : _PREFIX.size + length])
    if actual != checksum:
        raise FileFormatError(
            f"{path} must have the checksum {checksum:08x} for its header, got {actual:08x}: it is corrupt"
        )
    return bytes(content[_PREFIX.size : _PREFIX.size + length])


def _parse_header(header: bytes) -> tuple[int, dict[str, Mapping[str, JSON]], list[Section]]:
    """Sequence number, metadata and sections. Raises KeyError, TypeError or ValueError if it is malformed."""
    parsed = json.loads(header)
    seq = _integer(parsed["seq"])
    states: dict[str, Mapping[str, JSON]] = {}
    sections = []
    for state_name, state in parsed["states"].items():
        states[state_name] = dict(state["meta"])
        for entry in state["arrays"]:
            if not _DTYPE.fullmatch(entry["dtype"]):
                raise ValueError(
                    f"dtype must be little-endian numbers, booleans or text, got {entry['dtype']}"
                )
            sections.append(
                Section(
                    state_name,
                    _text(entry["name"]),
                    np.dtype(entry["dtype"]),
                    tuple(map(_integer, entry["shape"])),
                    _integer(entry["offset"]),
                    _integer(entry["length"]),
                    _integer(entry["crc32"]),
                )
            )
    return seq, states, sections


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"expected an integer, got {value!r}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {value!r}")
    return value


def _check_sections(sections: list[Section], start: int, size: int) -> None:
    """Raises ValueError unless the sections follow each other, aligned, up to the end of the file."""
    for section in sections:
        count = 1
        for extent in section.shape:
            if extent < 0:
                raise ValueError(f"an extent must be at least 0, got {extent}")
            count *= extent
        if section.length != count * section.dtype.itemsize:
            raise ValueError(f"shape {section.shape} does not make {section.length} bytes")
        if section.offset % ALIGNMENT:
            raise ValueError(f"an offset must be a multiple of {ALIGNMENT}, got {section.offset}")
    ends = [start, *(section.offset + section.length for section in sections)]
    starts = [*(section.offset for section in sections), size]
    if any(end > start for end, start in zip(ends, starts, strict=True)) or ends[-1] != size:
        raise ValueError(
            f"sections must follow each other up to byte {size}, got some from {starts} to {ends}"
        )
