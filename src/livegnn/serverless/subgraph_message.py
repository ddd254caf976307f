"""A subgraph as bytes, from the worker that samples to the worker that computes.

Magic (8 bytes), CRC-32 of what follows (u32), length of the header (u32), the header in JSON, then the arrays
that it lists one after another, little-endian. A message lives as long as a request, so there is one version:
workers of different versions refuse each other's.
"""

import json
import zlib
from typing import cast

import numpy as np

from livegnn.errors import FileFormatError
from livegnn.inference.degrees import Degrees
from livegnn.query import Direction
from livegnn.sampling.subgraph import HeteroSubgraph
from livegnn.serverless.subgraph import Lists, Neighborhood
from livegnn.types import Array, EdgeType

_MAGIC = b"LGNNSUB1"
_COLUMNS = ("node", "inverse", "row", "col", "edge_weight", "edge_attr")
_EDGES = _COLUMNS[2:]
_TYPES = ("<i8", "<f4", "<f8")


def encode(found: Neighborhood) -> bytes:
    """The bytes of a subgraph."""
    listed: list[tuple[list[object], Array]] = [
        ([column, name], array)
        for column in _COLUMNS
        for name, array in getattr(found.sample, column).items()
    ]
    listed += [(["degree", name], array) for name, array in found.degree.items()]
    for (edge_type, direction), each in (found.degrees or {}).items():
        listed += [
            (["degrees", edge_type, direction, number], array)
            for number, array in enumerate(each.columns)
            if array is not None
        ]
    header = {
        "snapshot": found.snapshot,
        "seed": found.sample.seed,
        "true_degrees": found.degrees is not None,
        "nodes": found.sample.num_sampled_nodes,
        "edges": [[name, counts] for name, counts in found.sample.num_sampled_edges.items()],
        "arrays": [[key, array.dtype.str, array.shape] for key, array in listed],
    }
    text = json.dumps(header).encode()
    body = b"".join([len(text).to_bytes(4, "little"), text, *(array.tobytes() for _, array in listed)])
    return _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body


def decode(data: bytes) -> Neighborhood:
    """The subgraph in bytes that `encode` wrote. Raises `FileFormatError` for any others."""
    if data[:8] != _MAGIC:
        raise FileFormatError(
            f"a subgraph must begin with {_MAGIC!r}, got {bytes(data[:8])!r}: let workers of one version talk"
        )
    if len(data) < 16 or zlib.crc32(data[12:]) != int.from_bytes(data[8:12], "little"):
        raise FileFormatError("the checksum of a subgraph does not fit its bytes: they are damaged or cut")
    end = 16 + int.from_bytes(data[12:16], "little")
    header = json.loads(data[16:end])
    columns: dict[str, dict[str | EdgeType, Array]] = {name: {} for name in (*_COLUMNS, "degree")}
    parts: dict[Lists, dict[int, Array]] = {}
    for key, dtype, shape in header["arrays"]:
        assert dtype in _TYPES
        size = int(np.prod(shape, dtype=np.int64)) * int(dtype[2])
        array = np.frombuffer(data[end : end + size], dtype).reshape(shape)
        end += size
        if key[0] == "degrees":
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
    return Neighborhood(header["snapshot"], sample, degrees if header["true_degrees"] else None, known)


def _edge_type(name: list[str]) -> EdgeType:
    source, relation, target = name
    return source, relation, target
