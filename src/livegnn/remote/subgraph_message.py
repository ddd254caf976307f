"""A subgraph as bytes, from the worker that samples to the worker that computes.

Magic (8 bytes), CRC-32 of the rest (u32), length of the header (u32), the header in JSON, then the arrays
that it names one after another, little-endian. A message lives as long as a request, so there is one version:
workers of different versions refuse each other's.
"""

import json
import math
import zlib
from dataclasses import fields
from typing import Any, cast

import numpy as np

from livegnn.errors import FileFormatError
from livegnn.inference.degrees import Degrees
from livegnn.remote.subgraph import Known, Neighborhood
from livegnn.sampling.subgraph import HeteroSubgraph
from livegnn.types import JSON

_MAGIC = b"LGNNSUB3"


def encode(found: Neighborhood) -> bytes:
    """The bytes of a subgraph. Requires: nothing is pending."""
    assert not found.pending
    sample = {each.name: getattr(found.sample, each.name) for each in fields(found.sample)}
    columns = {lists: each.columns for lists, each in (found.degrees or {}).items()}
    degrees = None if found.degrees is None else columns
    arrays: list[bytes] = []
    content = (found.snapshot, sample, degrees, dict(found.degree), found.layout, dict(found.index))
    text = json.dumps(_pack(content, arrays)).encode()
    body = b"".join([len(text).to_bytes(4, "little"), text, *arrays])
    return _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body


def _pack(value: object, arrays: list[bytes]) -> JSON:
    """A value as JSON has it; its arrays are appended to `arrays`."""
    if isinstance(value, np.ndarray):
        arrays.append(value.tobytes())
        dtype = value.dtype.str if value.dtype.names is None else value.dtype.descr
        return {"array": [cast("JSON", dtype), list(value.shape)]}
    if isinstance(value, dict):
        return {"dict": [[_pack(key, arrays), _pack(each, arrays)] for key, each in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_pack(each, arrays) for each in value]}
    return cast("JSON", value)


def decode(data: bytes | memoryview) -> Neighborhood:
    """The subgraph in bytes that `encode` wrote. Raises `FileFormatError` for any others."""
    if data[:8] != _MAGIC:
        raise FileFormatError(
            f"a subgraph must begin with {_MAGIC!r}, got {bytes(data[:8])!r}: let workers of one version talk"
        )
    if len(data) < 16 or zlib.crc32(data[12:]) != int.from_bytes(data[8:12], "little"):
        raise FileFormatError("the checksum of a subgraph does not fit its bytes: they are damaged or cut")
    end = 16 + int.from_bytes(data[12:16], "little")

    def unpack(value: Any) -> Any:
        """The inverse of `_pack`."""
        nonlocal end
        if not isinstance(value, dict):
            return value
        ((kind, parts),) = value.items()
        if kind == "dict":
            return {unpack(key): unpack(each) for key, each in parts}
        if kind == "tuple":
            return tuple(map(unpack, parts))
        form, shape = parts
        dtype = np.dtype(form if isinstance(form, str) else list(map(tuple, form)))
        array = np.frombuffer(data, dtype, math.prod(shape), end).reshape(shape)
        end += array.nbytes
        return array

    snapshot, sample, degrees, degree, layout, index = unpack(json.loads(bytes(data[16:end])))
    return Neighborhood(
        snapshot,
        HeteroSubgraph(**sample),
        None if degrees is None else {lists: Degrees(*columns) for lists, columns in degrees.items()},
        degree,
        layout,
        {lists: Known(*records) for lists, records in index.items()},
    )
