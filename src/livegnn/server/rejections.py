"""A page of the entries that were refused, with as many of their events as have room in an answer."""

from typing import Final

import numpy as np

from livegnn.events import Events
from livegnn.events.json_lines import to_records
from livegnn.log import Log
from livegnn.texts import Texts

ROOM: Final = 8 * 2**20
"""Bytes of a page's events, about, as objects of Python."""
_EVENT: Final = 400  # bytes of one, without its texts and features
_NUMBER: Final = 40


def list_page(log: Log, after: int, most: int, room: int = ROOM) -> list[dict[str, object]]:
    """Refused entries after event `after`, in order: at most `most`, and fewer where their events take more
    than `room` bytes.

    If the first one takes more by itself, it is there with its first events.
    """
    page: list[dict[str, object]] = []
    refused = log.listed(after, most=most)
    for one, entry in zip(refused, log.find_entries([one.seq for one in refused]), strict=True):
        events = Events() if entry is None else entry.events
        fitting, taken = count_fitting(events, room)
        if fitting < len(events) and page:
            break
        shown = to_records(events.between(0, fitting).chunks)
        page.append(one._asdict() | {"events": shown, "num_events": len(events)})
        room -= taken
    return page


def count_fitting(events: Events, room: int) -> tuple[int, int]:
    """The number of the first events that take at most `room` bytes together, as objects of Python, and their
    bytes."""
    fitting = taken = 0
    for chunk in events.chunks:
        width = 0 if chunk.x is None else chunk.x.shape[1]
        sizes = np.full(len(chunk.ids), _EVENT + _NUMBER * width, dtype=np.int64)
        for ids in (chunk.ids, chunk.dst):
            if isinstance(ids, Texts):
                sizes += np.diff(ids.places)
            elif ids is not None and ids.dtype.kind == "U":
                sizes += ids.dtype.itemsize
        ends = np.cumsum(sizes)
        fits = int(np.searchsorted(ends, room - taken, side="right"))
        fitting += fits
        taken += int(ends[fits - 1]) if fits else 0
        if fits < len(sizes):
            break
    return fitting, taken
