"""The order in which messages are taken, and its results: writes, a digest of the history, entries' outcomes.

The owner proposes an order of the messages that arrived since the last one. Every reader takes the messages
of valid orders from the waiting ones, and the owner keeps the newest in memory. Thread safety: none.
"""

import hashlib
import itertools
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from livegnn.errors import InputError, LogError
from livegnn.events import Events
from livegnn.log import Appended, Write
from livegnn.log.idempotency import Known, Partition, Reached, Unread, checksum
from livegnn.log.kafka.history import Again, Bad, History, Order, Slice
from livegnn.log.kafka.message import Message

_MOST: Final = 1000
"""Messages in one order, so that its record stays small."""

_NOTE_BYTES: Final = 160
"""The size of a key, or of an entry that was already there, in the record, besides the text."""

_KEPT_EVENTS: Final = 1 << 19
"""At least this number of the newest events is kept in memory, and at most twice as many."""


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
    """An order that counts, its writes, its messages, and the digest of all earlier ones."""

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


class RecentEvents:
    """The last writes that were taken, without a gap."""

    def __init__(self) -> None:
        self._taken: list[Taken] = []
        self._ends: list[int] = []  # the last event of each

    def add(self, taken: Taken) -> None:
        """Adds what was taken after all others."""
        self._taken.append(taken)
        self._ends.append(taken.order.seq)
        if self._ends[-1] - self._ends[0] > 2 * _KEPT_EVENTS:
            first = bisect_right(self._ends, self._ends[-1] - _KEPT_EVENTS)
            del self._taken[:first], self._ends[:first]

    def find(self, after: int, up_to: int) -> Sequence[Taken] | None:
        """The writes with the events after `after`, up to `up_to` at least; None if not all of them are
        there."""
        if not self._taken or self._taken[0].order.after > after:
            return None
        first = bisect_right(self._ends, after)
        return self._taken[first : bisect_left(self._ends, up_to) + 1]


def propose(history: History, waiting: Iterable[Received], time: int, largest: int = 1 << 20) -> Order | None:
    """The order that takes `waiting`, or the first of them, after all that `history` has.

    None if there is nothing to take. waiting: by partition, in the order of their offsets. time: in seconds
    since 1970, for keys. largest: how many bytes a record may have; one message always fits that fits into
    half of it.
    """
    taker = _Taker(history, time)
    chain = history.chain
    slices: list[Slice] = []
    for one in itertools.islice(waiting, _MOST):
        if taker.noted > largest // 4:
            break
        before = taker.seq
        if isinstance(one.message, Unread):
            taker.take_bad(None, one.partition, one.offset, one.message)
        else:
            taker.take(one, one.message)
        chain = extend(chain, one)
        count = taker.seq - before
        last = slices[-1] if slices else None
        if last is not None and last.partition == one.partition:
            slices[-1] = Slice(one.partition, last.first, one.offset + 1, last.events + count)
        else:
            slices.append(Slice(one.partition, one.offset, one.offset + 1, count))
    if not slices:
        return None
    keys = list(taker.known.values())
    return Order(history.seq, taker.seq, slices, taker.again, taker.bad, keys, taker.reached, chain)


class _Taker:
    """Counts the events that are taken, and notes which entries were there before, by key or origin."""

    def __init__(self, history: History, time: int) -> None:
        self.seq = history.seq
        self.again: list[Again] = []
        self.bad: list[Bad] = []
        self.known: dict[str, Known] = {}
        self.reached: dict[Partition, Reached] = {}
        self.noted = 0  # bytes, at most
        self._history, self._time = history, time

    def take(self, received: Received, message: Message) -> None:
        """One message that can be read."""
        if not message.keys and not message.origins:
            self.seq += len(message.events)
            return
        for number, (events, key, origin) in enumerate(message.entries()):
            self.noted += _NOTE_BYTES + 4 * len(key or "") + (4 * len(origin.source) if origin else 0)
            place = None if origin is None else (origin.source, origin.partition)
            reached = None if place is None else self.reached.get(place) or self._history.origins.get(place)
            if origin is not None and reached is not None and origin.offset <= reached.offset:
                self.again.append(Again(received.partition, received.offset, number, reached.seq, None))
                continue
            unread = message.bad[number] if message.bad else None
            if unread is not None and origin is not None and place is not None:
                self.take_bad(origin.source, origin.partition, origin.offset, unread)
                self.reached[place] = Reached(origin.offset, self.seq)
                continue
            before = None if key is None else self.known.get(key) or self._history.keys.get(key)
            if before is None:
                self.seq += len(events)
                if key is not None and len(events):
                    self.known[key] = Known(key, self.seq, checksum(events), self._time)
            else:
                error = _difference(before, events)
                self.again.append(Again(received.partition, received.offset, number, before.seq, error))
                if error is not None:
                    continue
            if origin is not None and place is not None:
                self.reached[place] = Reached(origin.offset, self.seq if before is None else before.seq)

    def take_bad(self, source: str | None, partition: int, offset: int, unread: Unread) -> None:
        """Takes a message that could not be read. source: None for a message of the log's own topic."""
        self.noted += _NOTE_BYTES + 4 * len(unread.reason) + 2 * len(unread.payload)
        self.bad.append(Bad(source, partition, offset, unread))


def _difference(known: Known, events: Events) -> str | None:
    """Why `events` may not have a key; None if they had it before."""
    try:
        known.check(events)
    except InputError as error:
        return str(error)
    return None


def outcomes(taken: Taken) -> Iterator[tuple[bytes, Sequence[Appended | InputError]]]:
    """The result of each entry of each message that has a number, by the number."""
    again = {(one.partition, one.offset, one.entry): one for one in taken.order.again}
    seq = taken.order.after
    for received in taken.received:
        message = received.message
        if isinstance(message, Unread):
            continue
        became: list[Appended | InputError] = []
        for entry, size in enumerate(message.counts.tolist()):
            repeated = again.get((received.partition, received.offset, entry)) if again else None
            unread = message.bad[entry] if message.bad else None
            if repeated is None and unread is not None:
                became.append(InputError(unread.reason))
            elif repeated is None:
                seq += size
                became.append(Appended(seq, size))
            elif repeated.error is None:
                became.append(Appended(repeated.seq, size, again=True))
            else:
                became.append(InputError(repeated.error))
        if received.number is not None:
            yield received.number, became
