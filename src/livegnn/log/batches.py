"""What a recorded batch applied: the events of its entries, without those that were rejected."""

from livegnn.errors import LogError
from livegnn.events import Events
from livegnn.log import Batch, ReadableLog


def events_of(log: ReadableLog, batch: Batch) -> Events:
    """The events that `batch` applied, in order. Raises LogError if the log does not hold them."""
    rejected = {rejection.seq for rejection in log.rejections(batch.after, up_to=batch.seq)}
    writes = log.writes(batch.after, up_to=batch.seq)
    if not writes or writes[-1].seq != batch.seq:
        raise LogError(f"the log must hold the entries of its batch {batch}, got {len(writes)} writes")
    return Events.concatenate(
        [entry.events for write in writes for entry in write.entries() if entry.seq not in rejected]
        if rejected
        else [write.events for write in writes]
    )
