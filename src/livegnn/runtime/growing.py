"""Growths of the schema in the log: each is a batch of its own, between the batches before and after it."""

from collections.abc import Sequence
from typing import Final

from livegnn.events.growing import find_growth
from livegnn.log import ReadableLog, Write

_AT_ONCE: Final = 100_000  # events


def has_growth(log: ReadableLog, after: int) -> bool:
    """Whether an entry after event `after` is a growth."""
    while writes := log.writes(after, max_events=_AT_ONCE):
        if any(find_growth(write.events.chunks) is not None for write in writes):
            return True
        after = writes[-1].seq
    return False


def read_batch(log: ReadableLog, after: int, max_events: int) -> Sequence[Write]:
    """The entries after event `after` that become a batch: at most `max_events`, up to the first growth; or
    the growth alone."""
    writes = log.writes(after, max_events=max_events)
    for position, write in enumerate(writes):
        place = find_growth(write.events.chunks)
        if place is None:
            continue
        first = not position and not place
        part = write.part(write.after, write.after + (place or int(first)))
        return [*writes[:position], *([] if part is None else [part])]
    return writes
