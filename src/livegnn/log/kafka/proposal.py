"""In which order messages are taken that came since the last order, and what that means for each entry."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from livegnn.errors import InputError
from livegnn.log import Appended
from livegnn.log.kafka.history import Again, Bad, History, Order, Slice
from livegnn.log.kafka.taking import Received, Taken, extend
from livegnn.log.keys import Known, checksum

_MOST: Final = 1000
"""Messages in one order, so that its record stays small."""


def propose(history: History, waiting: Iterable[Received], time: int) -> Order | None:
    """The order that takes `waiting` after all that `history` has; None if there is nothing to take.

    waiting: by partition, in the order of their offsets. time: in seconds since 1970, for keys.
    """
    seq, chain = history.seq, history.chain
    slices: list[Slice] = []
    again: list[Again] = []
    bad: list[Bad] = []
    known: dict[str, Known] = {}
    for one in itertools.islice(waiting, _MOST):
        count = 0
        if isinstance(one.message, str):
            bad.append(Bad(one.partition, one.offset, one.message))
        else:
            repeated, count = _take(history, one, seq, known, time)
            again += repeated
        seq += count
        chain = extend(chain, one)
        last = slices[-1] if slices else None
        if last is not None and last.partition == one.partition:
            slices[-1] = Slice(one.partition, last.first, one.offset + 1, last.events + count)
        else:
            slices.append(Slice(one.partition, one.offset, one.offset + 1, count))
    if not slices:
        return None
    return Order(history.seq, seq, slices, again, bad, list(known.values()), chain)


def _take(
    history: History, received: Received, seq: int, known: dict[str, Known], time: int
) -> tuple[list[Again], int]:
    """Entries that were there before, and the number of events of the others; notes their keys in `known`."""
    message = received.message
    assert not isinstance(message, str)
    if not message.keys:
        return [], len(message.events)
    repeated: list[Again] = []
    count = 0
    for entry, (events, key) in enumerate(message.entries()):
        if key is not None:
            before = known.get(key) or history.keys.get(key)
            if before is not None:
                error = None
                try:
                    before.check(events)
                except InputError as refused:
                    error = str(refused)
                repeated.append(Again(received.partition, received.offset, entry, before.seq, error))
                continue
            known[key] = Known(key, seq + count + len(events), checksum(events), time)
        count += len(events)
    return repeated, count


def outcomes(taken: Taken) -> Iterator[tuple[bytes, Sequence[Appended | InputError]]]:
    """What became of each entry of each message that has a number, by the number."""
    again = {(one.partition, one.offset, one.entry): one for one in taken.order.again}
    seq = taken.order.after
    for received in taken.received:
        if isinstance(received.message, str):
            continue
        became: list[Appended | InputError] = []
        for entry, size in enumerate(received.message.counts.tolist()):
            repeated = again.get((received.partition, received.offset, entry)) if again else None
            if repeated is None:
                seq += size
                became.append(Appended(seq, size))
            elif repeated.error is None:
                became.append(Appended(repeated.seq, size, again=True))
            else:
                became.append(InputError(repeated.error))
        if received.number is not None:
            yield received.number, became
