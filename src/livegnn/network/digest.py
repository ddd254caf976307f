"""The digest of a model: SHA-256 of its computation, independent of its file."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType

import numpy as np

from livegnn.network.steps import Function
from livegnn.types import FloatArray


def digest_of(
    description: Mapping[str, object], functions: Mapping[str, Function], tensors: Mapping[str, FloatArray]
) -> str:
    """The digest in hexadecimal. description: everything but functions and tensors, as JSON values.

    A function contributes its code and the numbers and arrays that the code names; the attributes of objects
    do not contribute.
    """
    sha = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name in sorted(functions):
        sha.update(repr((name, *_parts(functions[name], set()))).encode())
    for name in sorted(tensors):
        array = tensors[name]
        sha.update(json.dumps([name, list(array.shape)]).encode())
        sha.update(array.astype("<f4").tobytes())
    return sha.hexdigest()


def _parts(thing: object, seen: set[int]) -> Iterator[object]:
    """The parts of a function that determine its result: its code, and the numbers and arrays that the code
    refers to."""
    if isinstance(thing, np.ndarray):
        yield from (str(thing.dtype), thing.shape, hashlib.sha256(thing.tobytes()).hexdigest())
    elif isinstance(thing, CodeType):
        yield thing.co_code
        yield thing.co_names
        for constant in thing.co_consts:
            yield from _parts(constant, seen)
    elif isinstance(thing, FunctionType):
        if id(thing) in seen:
            return
        seen.add(id(thing))
        yield from _parts(thing.__code__, seen)
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        used = [thing.__globals__.get(name) for name in thing.__code__.co_names]
        given = (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())
        for value in (*given, *cells, *used):
            yield from _parts(value, seen)
    elif hasattr(thing, "__wrapped__"):
        yield from _parts(thing.__wrapped__, seen)
    elif isinstance(thing, tuple | list):
        for value in thing:
            yield from _parts(value, seen)
    elif isinstance(thing, bool | int | float | str | bytes | np.number):
        yield repr(thing)
