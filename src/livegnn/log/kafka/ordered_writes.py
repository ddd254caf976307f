"""What an order takes of the messages that wait: their entries, as writes, and a digest of the history."""

import hashlib
import itertools
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from livegnn.errors import LogError
from livegnn.events import Events
from livegnn.log import Write
from livegnn.log.kafka.history import Order
from livegnn.log.kafka.message import Message
from livegnn.log.origins import Unread


class Received(NamedTuple):
    """A message of the topic of events, or why it could not be read.

    digest: of its value. number: what its producer called it, if it is one of ours.
    """

    partition: int
    offset: int
    message: Message | Unread
    digest: bytes
    number: bytes | None


class Taken(NamedTuple):
    """An order that counts, the writes that came of it, its messages, and the digest of all before it."""

    order: Order
    writes: list[Write]
    received: list[Received]
    chain_before: str


def take(order: Order, waiting: Mapping[int, deque[Received]], chain_before: str) -> Taken:
    """Takes the messages of an order from those that wait, by partition, which must have them all.

    Raises LogError if some of them are not there.
    """
    again = {(one.partition, one.offset, one.entry) for one in order.again}
    writes: list[Write] = []
    received: list[Received] = []
    seq = order.after
    for part in order.slices:
        begin, messages = seq, waiting[part.partition]
        while messages and messages[0].offset < part.end:
            one = messages.popleft()
            received.append(one)
            write = _write(one, seq, again)
            if write is not None:
                writes.append(write)
                seq = write.seq
        if seq - begin != part.events:
            raise LogError(
                f"messages {part.first} to {part.end - 1} of partition {part.partition} must hold "
                f"{part.events} events, got {seq - begin}: some were deleted, or the topic is another one"
            )
    return Taken(order, writes, received, chain_before)


def _write(received: Received, after: int, again: set[tuple[int, int, int]]) -> Write | None:
    """The entries of a message that count, None if there are none."""
    message = received.message
    if isinstance(message, Unread):
        return None
    counts, events = message.counts, message.events
    if again or not counts.all():
        place = (received.partition, received.offset)
        kept = [at for at, count in enumerate(counts.tolist()) if count and (*place, at) not in again]
        if not kept:
            return None
        if len(kept) < len(counts):
            entries = message.entries()
            events = Events.concatenate(entries[at][0] for at in kept)
            counts = counts[kept]
    return Write(after, after + np.cumsum(counts), events)


def select_writes(taken: Iterable[Taken], after: int, up_to: int, max_events: int | None) -> list[Write]:
    """The entries with `after` < `seq` <= `up_to`: as many as fit into `max_events`, at least one."""
    writes: list[Write] = []
    begin = after
    for write in itertools.chain.from_iterable(one.writes for one in taken):
        part = write.part(begin, up_to)
        if part is None:
            if write.seq <= begin:
                continue
            break
        if max_events is not None and part.seq > after + max_events:
            first = begin if writes else int(part.ends[0])  # at least one
            whole = part.part(begin, max(after + max_events, first))
            writes += [] if whole is None else [whole]
            break
        writes.append(part)
        begin = part.seq
    return writes


def extend(chain: str, received: Received) -> str:
    """The digest of a history, hexadecimal, with one more message."""
    return hashlib.blake2b(chain.encode() + received.digest, digest_size=16).hexdigest()


def digest_within(taken: Taken, seq: int) -> str:
    """The digest of the history up to `seq`, the end of an entry of `taken`."""
    if seq == taken.order.seq:
        return taken.order.chain
    parts = [write.part(taken.order.after, seq) for write in taken.writes]
    events = Events.concatenate(part.events for part in parts if part is not None)
    digest = hashlib.blake2b(taken.chain_before.encode(), digest_size=16)
    digest.update(b"%d " % seq + events.to_bytes())
    return digest.hexdigest()
