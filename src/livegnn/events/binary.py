"""The binary format of events, which the log stores. All numbers are little-endian.

header   "LGEV", version u16, number of chunks u32, CRC-32 u32 of everything after the header;
         the version is the oldest that can represent the events: 8 if there is a growth of the schema, else 4
         if features of nodes have times, else 3 if edges have keys, else 2 if edges have features, else 1
chunk    kind u8, columns u8, n u32, width u32 of x, names, then the columns ids, dst, weight, time, x, key
names    names of the type: u16 length and UTF-8, once for a node type, three times for an edge type;
         left out for the default type
ids      int64[n]; or, for text, u32 length and UTF-8 with NUL between the ids
"""

import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from livegnn.errors import FileFormatError, InputError
from livegnn.events.chunk import CODES, EDGE_KINDS, Chunk
from livegnn.texts import Texts
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType, Ids, NodeType
from livegnn.wording import quoted

if TYPE_CHECKING:
    from jaxtyping import Shaped

MAGIC: Final = b"LGEV"
VERSION: Final = 8
"""The newest version; `decode` reads 1 to 4 too."""

_HEADER = struct.Struct("<4sHII")
_CHUNK = struct.Struct("<BBII")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_KINDS = {code: kind for kind, code in CODES.items()}
_WEIGHT, _TIME, _X, _TEXT_IDS, _TEXT_DST, _NAMED, _KEY = 1, 2, 4, 8, 16, 32, 64


def encode(chunks: Sequence[Chunk]) -> bytes:
    """The bytes of `chunks`. Raises InputError for a text that cannot be written."""
    parts: list[bytes] = []
    for kind, type_, ids, dst, weight, time, x, key in chunks:
        columns = 0
        body = [encode_ids(ids)]
        if ids.dtype.kind == "U":
            columns |= _TEXT_IDS
        if dst is not None:
            body.append(encode_ids(dst))
            if dst.dtype.kind == "U":
                columns |= _TEXT_DST
        if weight is not None:
            columns |= _WEIGHT
            body.append(weight.astype("<f4", copy=False).tobytes())
        if time is not None:
            columns |= _TIME
            body.append(time.astype("<f8", copy=False).tobytes())
        width = 0
        if x is not None:
            columns |= _X
            width = x.shape[1]
            body.append(x.astype("<f4", copy=False).tobytes())
        if key is not None:
            columns |= _KEY
            body.append(key.astype("<u4", copy=False).tobytes())
        names: list[bytes] = []
        if type_ != (DEFAULT_EDGE_TYPE if kind in EDGE_KINDS else DEFAULT_NODE_TYPE):
            columns |= _NAMED
            names = [_encode_name(name) for name in ((type_,) if isinstance(type_, str) else type_)]
        parts.append(_CHUNK.pack(CODES[kind], columns, len(ids), width))
        parts.extend(names)
        parts.extend(body)
    payload = b"".join(parts)
    return _HEADER.pack(MAGIC, _version_of(chunks), len(chunks), zlib.crc32(payload)) + payload


def check(chunks: Sequence[Chunk]) -> None:
    """Raises InputError for text that `encode` cannot write."""
    for chunk in chunks:
        for ids in (chunk.ids, chunk.dst):
            if ids is not None and ids.dtype.kind == "U":
                encode_text(ids)
        check_type(chunk.type)


def check_type(type_: NodeType | EdgeType) -> None:
    """Raises InputError for names that `encode` cannot write."""
    if type_ not in (DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE):
        for name in (type_,) if isinstance(type_, str) else type_:
            _encode_name(name)


def _version_of(chunks: Sequence[Chunk]) -> int:
    """The oldest version that can represent `chunks`."""
    if any(chunk.kind == "grow" for chunk in chunks):
        return 8
    if any(chunk.time is not None and chunk.kind not in EDGE_KINDS for chunk in chunks):
        return 4
    if any(chunk.key is not None for chunk in chunks):
        return 3
    return 2 if any(chunk.x is not None and chunk.kind in EDGE_KINDS for chunk in chunks) else 1


def encode_ids(ids: "Shaped[Ids, 'events'] | Texts") -> bytes:
    """Integer ids as int64; text ids as a length and their UTF-8."""
    if not isinstance(ids, Texts) and ids.dtype.kind != "U":
        return ids.astype("<i8", copy=False).tobytes()
    text = encode_text(ids)
    return _U32.pack(len(text)) + text


def encode_text(ids: "Shaped[Ids, 'events'] | Texts") -> bytes:
    """Text ids as UTF-8 with NUL between them. Raises InputError if one holds a NUL or is not Unicode."""
    if isinstance(ids, Texts):
        return ids.encoded()
    text = "\0".join(ids.tolist())
    if text.count("\0") != len(ids) - 1:
        bad = next(id_ for id_ in ids.tolist() if "\0" in id_)
        raise InputError(f"text ids must not contain NUL characters, got {quoted(bad)}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"text ids must be valid Unicode, got {quoted(text[error.start : error.end])}"
        ) from error


def _encode_name(name: str) -> bytes:
    try:
        data = name.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the name of a type must be valid Unicode, got {quoted(name)}") from error
    if len(data) > 0xFFFF:
        raise InputError(f"the name of a type must be at most 65535 bytes long, got {len(data)}")
    return _U16.pack(len(data)) + data


def decode(data: bytes) -> list[Chunk]:
    """The chunks in `data`. Raises FileFormatError if it is truncated, corrupt or of another version."""
    if len(data) < _HEADER.size:
        raise FileFormatError(
            f"events must be at least {_HEADER.size} bytes, got {len(data)}: they are truncated"
        )
    magic, version, count, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FileFormatError(
            f"events must begin with {MAGIC!r}, got {quoted(magic)}: this is something else"
        )
    if version not in (1, 2, 3, 4, VERSION):
        raise FileFormatError(
            f"events must be of a version from 1 to 4, or {VERSION}, got {version}: update livegnn to read "
            "them"
        )
    actual = zlib.crc32(memoryview(data)[_HEADER.size :])
    if actual != checksum:
        raise FileFormatError(
            f"events must have the checksum {checksum:08x}, got {actual:08x}: they are corrupt"
        )
    reader = _Reader(data, _HEADER.size)
    try:
        chunks = [_decode_chunk(reader, version) for _ in range(count)]
    except (KeyError, IndexError, ValueError, struct.error) as error:
        raise FileFormatError(f"events must follow the format of version {version}, got {error}") from error
    if reader.position != len(data):
        raise FileFormatError(
            f"events must end after chunk {count}, got {len(data) - reader.position} bytes more"
        )
    # The checksum does not cover the version, but the writer always chose the one that the chunks need.
    if version != _version_of(chunks):
        raise FileFormatError(
            f"events that hold what these do must be of version {_version_of(chunks)}, got {version}: they "
            "are corrupt"
        )
    return chunks


class _Reader:
    """Reads columns from bytes one after the other; every array is an aligned copy."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position

    def take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise ValueError(f"{len(self.data)} bytes where {end} are needed")
        part = self.data[self.position : end]
        self.position = end
        return part

    def ids(self, n: int, text: bool) -> Ids | Texts:
        if not text:
            return np.frombuffer(self.take(8 * n), dtype="<i8").astype(np.int64)
        (size,) = _U32.unpack(self.take(_U32.size))
        return Texts.read(self.take(size), n)

    def name(self) -> str:
        (size,) = _U16.unpack(self.take(_U16.size))
        return self.take(size).decode()


def _decode_chunk(reader: _Reader, version: int) -> Chunk:
    code, columns, n, width = _CHUNK.unpack(reader.take(_CHUNK.size))
    kind = _KINDS[code]
    edges = kind in EDGE_KINDS
    type_: NodeType | EdgeType = DEFAULT_EDGE_TYPE if edges else DEFAULT_NODE_TYPE
    if columns & _NAMED:
        type_ = (reader.name(), reader.name(), reader.name()) if edges else reader.name()
    ids = reader.ids(n, bool(columns & _TEXT_IDS))
    dst = reader.ids(n, bool(columns & _TEXT_DST)) if edges else None
    weight = np.frombuffer(reader.take(4 * n), dtype="<f4").astype(np.float32) if columns & _WEIGHT else None
    time = np.frombuffer(reader.take(8 * n), dtype="<f8").astype(np.float64) if columns & _TIME else None
    if not edges and version < 4:
        time = None  # whatever wrote it ignored it too
    x = None
    if columns & _X:
        x = np.frombuffer(reader.take(4 * n * width), dtype="<f4").astype(np.float32).reshape(n, width)
    key = np.frombuffer(reader.take(4 * n), dtype="<u4").astype(np.uint32) if columns & _KEY else None
    return Chunk(kind, type_, ids, dst, weight, time, x, key)
