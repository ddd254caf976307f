"""In which order messages are taken that came since the last order, and what that means for each entry."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.log import Appended
from livegnn.log.kafka.history import Again, Bad, History, Order, Slice
from livegnn.log.kafka.message import Message
from livegnn.log.kafka.ordered_writes import Received, Taken, extend
from livegnn.log.keys import Known, checksum
from livegnn.log.origins import Partition, Reached, Unread

_MOST: Final = 1000
"""Messages in one order, so that its record stays small."""

_NOTE_BYTES: Final = 160
"""What a key, or an entry that was there before, takes in the record, besides the text."""


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
