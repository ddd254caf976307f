"""The beginning of a checkpoint: the prefix, and a header of JSON with a checksum.

Version 1 is whole in one file, version 2 has a directory of blocks (`blocks.py`) behind the header.
"""

import json
import re
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from livegnn.checkpoint.blocks import BLOCK
from livegnn.errors import FileFormatError, InputError
from livegnn.types import JSON

MAGIC: Final = b"LGNNCKPT"
WHOLE, SHARED = 1, 2
"""The versions: files that stand alone, and those that may have blocks in other files."""
ALIGNMENT: Final = 64

PREFIX = struct.Struct("<8sIIQQ")
_CHECKED_FROM = 16  # the checksum of the header covers all that follows it: both lengths and the JSON
_DTYPE = re.compile(r"[<|][biufU][0-9]{1,6}")
_NAME = re.compile(r"(?!\.\.?$)[^/\0]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Section(NamedTuple):
    """The place of one array, the part of the system that it belongs to, and its name there.

    offset: in the file; in version 2, in the content that the blocks make, where each section begins a block.
    """

    state: str
    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    offset: int
    length: int
    crc32: int


class Source(NamedTuple):
    """An earlier file of the same directory: its name, SHA-256 of its directory, and bytes taken from it."""

    name: str
    sha256: str
    length: int


class Contents(NamedTuple):
    """The contents of a checkpoint's header: size of the file in bytes, metadata of each part, all arrays.

    files: the other files that may hold its blocks; the first of them has all its blocks in itself. sha256:
    of the directory of blocks, None in version 1. blocks, runs: their numbers in that directory.
    """

    version: int
    seq: int
    size: int
    meta: dict[str, Mapping[str, JSON]]
    sections: list[Section]
    files: tuple[Source, ...] = ()
    sha256: str | None = None
    blocks: int = 0
    runs: int = 0


def pack_header(version: int, text: bytes, size: int) -> bytes:
    """Prefix and header. text: JSON that ends where `PREFIX` and it are a multiple of `ALIGNMENT`."""
    lengths = struct.pack("<QQ", len(text), size)
    return PREFIX.pack(MAGIC, version, zlib.crc32(lengths + text), len(text), size) + text


def dump_header(header: Mapping[str, JSON]) -> bytes:
    """The header as JSON. Raises InputError for metadata that is none."""
    try:
        return json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"the metadata of a state must be JSON, got {error}") from error


def pad_header(text: bytes) -> bytes:
    return text.ljust(align(PREFIX.size + len(text)) - PREFIX.size)  # JSON may end in spaces


def align(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def read_header(path: Path, content: memoryview) -> tuple[Contents, int]:
    """Returns the header and the offset of its end. Raises FileFormatError if it was changed."""
    version, header = _check_prefix(path, content)
    end = PREFIX.size + len(header)
    try:
        contents = _parse(version, header, len(content))
        if version == WHOLE:
            _check_sections(contents.sections, end, len(content))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise FileFormatError(
            f"{path} must have a header of version {version}, got one that is malformed: {error}"
        ) from error
    return contents, end


def _check_prefix(path: Path, content: memoryview) -> tuple[int, bytes]:
    """Version and JSON of the header, after all that can be wrong with the file as a whole was ruled out."""
    magic, version, checksum, length, size = PREFIX.unpack_from(content)
    if magic != MAGIC:
        raise FileFormatError(f"{path} must begin with {MAGIC!r}, got {magic!r}: this is not a checkpoint")
    if version not in (WHOLE, SHARED):
        raise FileFormatError(
            f"{path} must be of version {WHOLE} or {SHARED}, got {version}: update livegnn to read it"
        )
    if size != len(content):
        raise FileFormatError(
            f"{path} must be {size} bytes long, got {len(content)}: it is truncated or corrupt"
        )
    actual = zlib.crc32(content[_CHECKED_FROM : PREFIX.size + length])
    if actual != checksum:
        raise FileFormatError(
            f"{path} must have the checksum {checksum:08x} for its header, got {actual:08x}: it is corrupt"
        )
    return version, bytes(content[PREFIX.size : PREFIX.size + length])


def _parse(version: int, header: bytes, size: int) -> Contents:
    """Reads the JSON of the header. Raises KeyError, TypeError or ValueError if it is malformed."""
    parsed = json.loads(header)
    states: dict[str, Mapping[str, JSON]] = {}
    sections: list[Section] = []
    blocks = 0
    for state_name, state in parsed["states"].items():
        states[state_name] = dict(state["meta"])
        for entry in state["arrays"]:
            offset = _integer(entry["offset"]) if version == WHOLE else blocks * BLOCK
            section = _parse_section(state_name, entry, offset)
            sections.append(section)
            blocks += -(-section.length // BLOCK)
    contents = Contents(version, _integer(parsed["seq"]), size, states, sections)
    if version == WHOLE:
        return contents
    directory = parsed["directory"]
    files = tuple(
        Source(_match(_NAME, one["name"]), _match(_SHA256, one["sha256"]), _integer(one["length"]))
        for one in parsed["files"]
    )
    return contents._replace(
        files=files,
        sha256=_match(_SHA256, directory["sha256"]),
        blocks=blocks,
        runs=_integer(directory["runs"]),
    )


def _parse_section(state: str, entry: Mapping[str, JSON], offset: int) -> Section:
    shape, length = entry["shape"], _integer(entry["length"])
    if not isinstance(shape, list):
        raise TypeError(f"expected a list of extents, got {shape!r}")
    dtype = np.dtype(_match(_DTYPE, entry["dtype"]))
    count = 1
    for extent in map(_integer, shape):
        if extent < 0:
            raise ValueError(f"an extent must be at least 0, got {extent}")
        count *= extent
    if length != count * dtype.itemsize:
        raise ValueError(f"shape {shape} does not make {length} bytes")
    name, crc32 = _text(entry["name"]), _integer(entry["crc32"])
    return Section(state, name, dtype, tuple(map(_integer, shape)), offset, length, crc32)


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"expected an integer, got {value!r}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {value!r}")
    return value


def _match(pattern: re.Pattern[str], value: object) -> str:
    text = _text(value)
    if not pattern.fullmatch(text):
        raise ValueError(f"expected text like {pattern.pattern}, got {text!r}")
    text.encode()  # raises ValueError for half a character
    return text


def _check_sections(sections: list[Section], start: int, size: int) -> None:
    """Raises ValueError unless the sections follow each other, aligned, up to the end of the file."""
    for section in sections:
        if section.offset % ALIGNMENT:
            raise ValueError(f"an offset must be a multiple of {ALIGNMENT}, got {section.offset}")
    ends = [start, *(section.offset + section.length for section in sections)]
    starts = [*(section.offset for section in sections), size]
    if any(end > start for end, start in zip(ends, starts, strict=True)) or ends[-1] != size:
        raise ValueError(
            f"sections must follow each other up to byte {size}, got some from {starts} to {ends}"
        )
