"""A subgraph as bytes, from the worker that samples to the worker that computes.

Magic (8 bytes), CRC-32 of what follows (u32), length of the header (u32), the header in JSON, then the arrays
that it lists one after another, little-endian. A message lives as long as a request, so there is one version:
workers of different versions refuse each other's.
"""

import json
import zlib
from collections.abc import Iterator
from typing import cast

import numpy as np

from livegnn.errors import FileFormatError
from livegnn.inference.degrees import Degrees
from livegnn.query import Direction
from livegnn.remote.subgraph import Known, Lists, Neighborhood
from livegnn.sampling.subgraph import HeteroSubgraph
from livegnn.snapshots.records import octets
from livegnn.types import Array, EdgeType

_MAGIC = b"LGNNSUB2"
_COLUMNS = ("node", "inverse", "row", "col", "edge_weight", "edge_attr")
_EDGES = _COLUMNS[2:]
_TYPES = ("<i8", "<f4", "<f8", "|u1")


def encode(found: Neighborhood) -> bytes:
    """The bytes of a subgraph. Requires: nothing is pending."""
    assert not found.pending
    listed: list[tuple[list[object], Array]] = [
        ([column, name], array)
        for column in _COLUMNS
        for name, array in getattr(found.sample, column).items()
    ]
    listed += [(["degree", name], array) for name, array in found.degree.items()]
    for lists, known in found.index.items():
        listed += [
            (["there", *lists], known.there.view(np.uint8)),
            (["index", *lists], octets(known.records)),
        ]
    for (edge_type, direction), each in (found.degrees or {}).items():
        listed += [
            (["degrees", edge_type, direction, number], array)
            for number, array in enumerate(each.columns)
            if array is not None
        ]
    header = {
        "snapshot": found.snapshot,
        "layout": found.layout,
        "seed": found.sample.seed,
        "true_degrees": found.degrees is not None,
        "nodes": found.sample.num_sampled_nodes,
        "edges": [[name, counts] for name, counts in found.sample.num_sampled_edges.items()],
        "records": [[*lists, known.records.dtype.descr] for lists, known in found.index.items()],
        "arrays": [[key, array.dtype.str, array.shape] for key, array in listed],
    }
    text = json.dumps(header).encode()
    body = b"".join([len(text).to_bytes(4, "little"), text, *(array.tobytes() for _, array in listed)])
    return _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body


def decode(data: bytes | memoryview) -> Neighborhood:
    """The subgraph in bytes that `encode` wrote. Raises `FileFormatError` for any others."""
    if data[:8] != _MAGIC:
        raise FileFormatError(
            f"a subgraph must begin with {_MAGIC!r}, got {bytes(data[:8])!r}: let workers of one version talk"
        )
    if len(data) < 16 or zlib.crc32(data[12:]) != int.from_bytes(data[8:12], "little"):
        raise FileFormatError("the checksum of a subgraph does not fit its bytes: they are damaged or cut")
    end = 16 + int.from_bytes(data[12:16], "little")
    header = json.loads(bytes(data[16:end]))
    columns: dict[str, dict[str | EdgeType, Array]] = {name: {} for name in (*_COLUMNS, "degree")}
    parts: dict[Lists, dict[int, Array]] = {}
    index: dict[str, dict[Lists, Array]] = {"there": {}, "index": {}}
    for key, dtype, shape in header["arrays"]:
        assert dtype in _TYPES
        size = int(np.prod(shape, dtype=np.int64)) * int(dtype[2])
        array = np.frombuffer(data[end : end + size], dtype).reshape(shape)
        end += size
        if key[0] in index:
            index[key[0]][_edge_type(key[1]), cast("Direction", key[2])] = array
        elif key[0] == "degrees":
            lists = (_edge_type(key[1]), cast("Direction", key[2]))
            parts.setdefault(lists, {})[key[3]] = array
        else:
            columns[key[0]][_edge_type(key[1]) if key[0] in _EDGES else key[1]] = array
    sample = HeteroSubgraph(
        **{name: columns[name] for name in _COLUMNS},  # type: ignore[arg-type]
        edge=dict.fromkeys(cast("dict[EdgeType, Array]", columns["row"])),
        batch=None,
        num_sampled_nodes=header["nodes"],
        num_sampled_edges={_edge_type(name): counts for name, counts in header["edges"]},
        seed=header["seed"],
        x={},
        time={},
    )
    degrees = {lists: Degrees(*(given.get(i) for i in range(4))) for lists, given in parts.items()}  # type: ignore[arg-type]
    known = cast("dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]", columns["degree"])
    return Neighborhood(
        header["snapshot"],
        sample,
        degrees if header["true_degrees"] else None,
        known,
        header["layout"],
        {
            (name, direction): Known(there.view(np.bool_), records.view(type_))
            for name, direction, type_, there, records in _index(header["records"], index)
        },
    )


def _index(
    listed: list[list[object]], found: dict[str, dict[Lists, Array]]
) -> "Iterator[tuple[EdgeType, Direction, np.dtype[np.void], Array, Array]]":
    for edge_type, direction, fields in cast("list[tuple[list[str], Direction, list[list[str]]]]", listed):
        lists = _edge_type(edge_type), direction
        type_ = np.dtype([(name, form) for name, form in fields])
        yield *lists, type_, found["there"][lists], found["index"][lists]


def _edge_type(name: list[str]) -> EdgeType:
    source, relation, target = name
    return source, relation, target
