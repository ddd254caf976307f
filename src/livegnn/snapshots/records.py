"""The records of a snapshot, byte by byte: features, ids and lists of neighbours with their index.

Each record ends with a seal, the CRC-32 of the bytes before it, joined with the record's position and its
layer's salt: the seal shows that a record is whole, and that it is the requested one. Functions of their
arguments. docs/snapshot_format.md is the page that describes them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

import livegnn._core as _core
from livegnn.inference.degrees import Degrees
from livegnn.schema import EdgeSchema
from livegnn.types import DoubleArray, FloatArray, IntArray, Keys

if TYPE_CHECKING:
    from typing import TypeAlias

    from jaxtyping import Bool, Float32, Float64, Int64, Shaped, UInt8, UInt32
    from numpy.typing import NDArray

    Octets: TypeAlias = NDArray[np.uint8]

SEAL = 4
"""Bytes of a seal, at the end of each record."""

BLOCK = 256
"""Entries of the order of ids between two fences."""

_SPREAD = 0x9E3779B1

INTEGER_ID = np.dtype([("id", "<i8"), ("seal", "<u4")])
TEXT_ID = np.dtype([("begin", "<u8"), ("length", "<u4"), ("crc32", "<u4"), ("seal", "<u4")])
ORDER = np.dtype([("key", "<i8"), ("row", "<u4")])
FENCE = np.dtype([("key", "<i8"), ("crc32", "<u4")])
NO_NODE = -1
NO_TEXT = 0xFFFFFFFF


class Lists(NamedTuple):
    """The neighbours of some rows, one row after the other; `offsets[i]` is where those of row i begin."""

    offsets: "Int64[IntArray, 'rows+1']"
    neighbors: "UInt32[NDArray[np.uint32], 'entries']"
    weight: "Float32[FloatArray, 'entries'] | None" = None
    time: "Float64[DoubleArray, 'entries'] | None" = None
    key: "UInt32[Keys, 'entries'] | None" = None
    edge_attr: "Float32[FloatArray, 'entries channels'] | None" = None


def columns_of(edges: EdgeSchema) -> dict[str, np.dtype[np.generic]]:
    """The columns of an edge type's lists, in their order, and the type of one entry of each."""
    columns: dict[str, np.dtype[np.generic]] = {"neighbors": np.dtype("<u4")}
    if edges.weighted:
        columns["weight"] = np.dtype("<f4")
    if edges.timed:
        columns["time"] = np.dtype("<f8")
    if edges.duplicates == "keep":
        columns["key"] = np.dtype("<u4")
    if edges.edge_dim:
        columns["edge_attr"] = np.dtype(("<f4", (edges.edge_dim,)))
    return columns


def index_type(edges: EdgeSchema) -> np.dtype[np.void]:
    """The record that says where a row's list is, and sums it up."""
    sums = [("weight_sum", "<f8"), ("loop_weight", "<f8")] if edges.weighted else []
    checks = [(f"crc32_{name}", "<u4") for name in columns_of(edges)]
    return np.dtype([("begin", "<u8"), ("count", "<u4"), ("loops", "<u4"), *sums, *checks, ("seal", "<u4")])


def degrees_of(index: "Shaped[NDArray[np.void], 'rows']") -> Degrees:
    """The degrees that records of the index say."""
    count, loops = index["count"].astype(np.int64), index["loops"].astype(np.int64)
    if "weight_sum" not in (index.dtype.names or ()):
        return Degrees(count, None, loops, None)
    return Degrees(count, index["weight_sum"], loops, index["loop_weight"])


def features_type(width: int) -> np.dtype[np.void]:
    """The record of a node's features."""
    return np.dtype([("x", "<f4", (width,)), ("seal", "<u4")])


def octets(array: "Shaped[NDArray[np.generic], '...']") -> "UInt8[Octets, '_']":
    """The bytes of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def checksums(array: "UInt8[Octets, '_']", size: int, covered: int) -> "UInt32[NDArray[np.uint32], '_']":
    """The CRC-32 of the first `covered` bytes of each `size` bytes."""
    starts = np.arange(0, len(array), size, dtype=np.int64)
    return _core.checksum_ranges(array, starts, np.full(len(starts), covered, dtype=np.int64))


def seals(
    records: "UInt8[Octets, '_']", size: int, positions: "Int64[IntArray, 'records']", salt: int
) -> "UInt32[NDArray[np.uint32], 'records']":
    """The last four bytes that each record must have."""
    places = (positions.astype(np.uint64) * np.uint64(_SPREAD)).astype(np.uint32)
    return checksums(records, size, size - SEAL) ^ places ^ np.uint32(salt)


def seal(records: "NDArray[np.void]", first: int, salt: int) -> "UInt8[Octets, '_']":
    """The bytes of records that stand at the positions from `first` on, sealed."""
    size = records.dtype.itemsize
    positions = np.arange(first, first + len(records), dtype=np.int64)
    records["seal"] = seals(octets(records), size, positions, salt)
    return octets(records)


def are_sealed(
    records: "UInt8[Octets, '_']", size: int, positions: "Int64[IntArray, 'records']", salt: int
) -> "Bool[NDArray[np.bool_], 'records']":
    """Whether each record is whole and stood at its position."""
    given = np.ascontiguousarray(records.reshape(-1, size)[:, -SEAL:]).view("<u4").reshape(-1)
    return cast("NDArray[np.bool_]", seals(records, size, positions, salt) == given)


def encode_features(x: "Float32[FloatArray, 'rows channels']", first: int, salt: int) -> "UInt8[Octets, '_']":
    """The records of these rows, which stand at the positions from `first` on."""
    records = np.zeros(len(x), dtype=features_type(x.shape[1]))
    records["x"] = x
    return seal(records, first, salt)


def encode_lists(
    lists: Lists,
    rows: "UInt32[NDArray[np.uint32], 'rows'] | None",
    edges: EdgeSchema,
    *,
    begin: int,
    first: int,
    salt: int,
) -> "dict[str, Octets]":
    """The bytes of the columns of these lists, and of their records of the index, "index".

    rows: whose lists they are, where an edge may be a loop; None where its ends are of different types.
    begin: the entries before them. first: the position of the first record.
    """
    counts = np.diff(lists.offsets)
    records = np.zeros(len(counts), dtype=index_type(edges))
    records["begin"] = begin + lists.offsets[:-1]
    records["count"] = counts
    loops = None if rows is None else lists.neighbors == np.repeat(rows, counts)
    if loops is not None:
        records["loops"] = _sums(loops, lists.offsets)
    if edges.weighted:
        assert lists.weight is not None
        records["weight_sum"] = _sums(lists.weight, lists.offsets)
        if loops is not None:
            records["loop_weight"] = _sums(np.where(loops, lists.weight, 0), lists.offsets)
    encoded = {}
    for name, type_ in columns_of(edges).items():
        column = getattr(lists, name)
        encoded[name] = octets(column.astype(type_.base, copy=False))
        size = type_.itemsize
        records[f"crc32_{name}"] = _core.checksum_ranges(
            encoded[name], lists.offsets[:-1] * size, counts * size
        )
    return {"index": seal(records, first, salt), **encoded}


def encode_order(
    keys: "Int64[IntArray, 'nodes']", rows: "UInt32[NDArray[np.uint32], 'nodes']"
) -> "tuple[Octets, Octets]":
    """The order of keys, with the row of each, and its fences."""
    order = np.argsort(keys, kind="stable")
    entries = np.zeros(len(keys), dtype=ORDER)
    entries["key"], entries["row"] = keys[order], rows[order]
    data = octets(entries)
    starts = np.arange(0, len(entries), BLOCK, dtype=np.int64)
    lengths = np.minimum(len(entries) - starts, BLOCK) * ORDER.itemsize
    fences = np.zeros(len(starts), dtype=FENCE)
    fences["key"] = entries["key"][starts]
    fences["crc32"] = _core.checksum_ranges(data, starts * ORDER.itemsize, lengths)
    return data, octets(fences)


def encode_texts(texts: Sequence[str]) -> "tuple[Octets, IntArray]":
    """The bytes of texts, one after the other, and how many each has."""
    encoded = [text.encode() for text in texts]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), lengths


def _sums(values: "NDArray[np.generic]", offsets: IntArray) -> "NDArray[np.float64]":
    """The sum of each list's values, in their order."""
    sums = np.zeros(len(offsets) - 1)
    filled = np.flatnonzero(offsets[1:] > offsets[:-1])
    if len(filled):
        sums[filled] = np.add.reduceat(values.astype(np.float64), offsets[filled])
    return sums
