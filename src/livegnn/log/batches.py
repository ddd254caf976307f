"""What a recorded batch applied: the events of its entries, without those that were rejected."""

from collections.abc import Collection, Sequence

from livegnn.errors import LogError
from livegnn.events import Events
from livegnn.log import Batch, Write


def events_of(batch: Batch, writes: Sequence[Write], rejected: Collection[int]) -> Events:
    """The events that `batch` applied, in order. writes: all of its entries; rejected: numbers of some.

    Raises LogError if entries are missing.
    """
    if not writes or writes[0].after != batch.after or writes[-1].seq != batch.seq:
        raise LogError(f"the log must hold the entries of its batch {batch}, got {len(writes)} writes")
    return Events.concatenate(
        [entry.events for write in writes for entry in write.entries() if entry.seq not in rejected]
        if rejected
        else [write.events for write in writes]
    )
