"""Orders and outcomes of batches as bytes, for memory that a leader and its parts share."""

import struct
from typing import Final, NamedTuple

import numpy as np

from livegnn.partitions.part import Asked, Outcome, Placed

_ORDER: Final = struct.Struct("<q??2xI")  # seq, trusted, whether it asks, how many node types have owners
_OWNERS: Final = struct.Struct("<II")  # of a node type, so many: two bytes each follow
_ASKED: Final = struct.Struct("<iI")  # bytes of the name of an output, -1 without; how many ids
_OUTCOME: Final = struct.Struct("<qIiQ")  # affected, node types with ends, width of rows or -1, changed ids
_ROW_VALUE: Final = np.dtype("<f4")


class Order(NamedTuple):
    """A batch for a part. seq: of its last event; payload: its events; placed: of `Part.apply`; asked: of
    `Part.suppose`."""

    seq: int
    trusted: bool
    placed: Placed
    payload: bytes
    asked: Asked | None = None


def pack_order(order: Order) -> bytes:
    asked = order.asked
    pieces = [_ORDER.pack(order.seq, order.trusted, asked is not None, len(order.placed))]
    for number, owners in order.placed.items():
        pieces += [_OWNERS.pack(number, len(owners)), np.asarray(owners, np.uint16).tobytes()]
    if asked is not None:
        name = b"" if asked.output is None else asked.output.encode()
        pieces.append(_ASKED.pack(-1 if asked.output is None else len(name), len(asked.numbers)))
        pieces += [name, np.asarray(asked.numbers, np.int64).tobytes()]
    return b"".join([*pieces, order.payload])


def unpack_order(data: bytes) -> Order:
    seq, trusted, asks, types = _ORDER.unpack_from(data)
    placed, at = {}, _ORDER.size
    for _ in range(types):
        number, count = _OWNERS.unpack_from(data, at)
        at += _OWNERS.size
        placed[number] = np.frombuffer(data, np.uint16, count, at)
        at += placed[number].nbytes
    asked = None
    if asks:
        named, count = _ASKED.unpack_from(data, at)
        at += _ASKED.size
        output = None if named < 0 else data[at : at + named].decode()
        at += max(named, 0)
        asked = Asked(output, np.frombuffer(data, np.int64, count, at))
        at += asked.numbers.nbytes
    return Order(seq, trusted, placed, data[at:], asked)


def pack_outcome(outcome: Outcome) -> bytes:
    rows = outcome.rows
    width = -1 if rows is None else rows.shape[1]
    pieces = [_OUTCOME.pack(outcome.affected, len(outcome.ends), width, len(outcome.changed))]
    pieces += [np.asarray(each, np.int64).tobytes() for each in (outcome.ends, outcome.changed)]
    if rows is not None:
        pieces.append(np.asarray(rows, _ROW_VALUE).tobytes())
    return b"".join(pieces)


def unpack_outcome(data: bytes) -> Outcome:
    affected, types, width, changed = _OUTCOME.unpack_from(data)
    numbers = np.frombuffer(data, np.int64, types + changed, _OUTCOME.size)
    rows = None
    if width >= 0:
        values = np.frombuffer(data, _ROW_VALUE, offset=_OUTCOME.size + numbers.nbytes)
        rows = values.reshape(-1, width)
    return Outcome(numbers[types:], affected, numbers[:types], rows)
