"""Growths of the schema in the log: each is a batch of its own, between the batches before and after it."""

from collections.abc import Sequence

from livegnn.events.growing import find_growth
from livegnn.log import ReadableLog, Write


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
