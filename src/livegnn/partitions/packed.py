"""Orders and outcomes of batches as bytes, for memory that a leader and its parts share."""

import struct
from typing import Final, NamedTuple

import numpy as np

from livegnn.partitions.part import Outcome, Placed

_ORDER: Final = struct.Struct("<q?3xI")  # seq, trusted, how many node types have owners
_OWNERS: Final = struct.Struct("<II")  # of a node type, so many: two bytes each follow
_OUTCOME: Final = struct.Struct("<qI4x")  # affected, how many node types have ends; then ids that changed


class Order(NamedTuple):
    """A batch for a part. seq: of its last event; payload: its events; placed: of `Part.apply`."""

    seq: int
    trusted: bool
    placed: Placed
    payload: bytes


def pack_order(order: Order) -> bytes:
    pieces = [_ORDER.pack(order.seq, order.trusted, len(order.placed))]
    for number, owners in order.placed.items():
        pieces += [_OWNERS.pack(number, len(owners)), np.asarray(owners, np.uint16).tobytes()]
    return b"".join([*pieces, order.payload])


def unpack_order(data: bytes) -> Order:
    seq, trusted, types = _ORDER.unpack_from(data)
    placed, at = {}, _ORDER.size
    for _ in range(types):
        number, count = _OWNERS.unpack_from(data, at)
        at += _OWNERS.size
        placed[number] = np.frombuffer(data, np.uint16, count, at)
        at += placed[number].nbytes
    return Order(seq, trusted, placed, data[at:])


def pack_outcome(outcome: Outcome) -> bytes:
    head = _OUTCOME.pack(outcome.affected, len(outcome.ends))
    return b"".join(
        [head, *(np.asarray(each, np.int64).tobytes() for each in (outcome.ends, outcome.changed))]
    )


def unpack_outcome(data: bytes) -> Outcome:
    affected, types = _OUTCOME.unpack_from(data)
    numbers = np.frombuffer(data, np.int64, offset=_OUTCOME.size)
    return Outcome(numbers[types:], affected, numbers[:types])
