"""`append` and `append_all` of every log: entries are checked, then stored with those of other threads."""

from collections.abc import Sequence

from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.log import Origin
from livegnn.log.arguments import check_entries, check_events
from livegnn.log.group_commit import GroupCommit, Outcomes, seq_of


class GroupedAppends:
    """A log of which `group` stores entries."""

    group: GroupCommit
    _last: int

    def append(self, events: Events, *, key: str | None = None) -> int:
        """Stores events durably, as one entry; returns the sequence number of the last one.

        No events are no entry. key: an idempotency key. If an entry with it was appended before, nothing is
        stored, and the number is that of the earlier entry. Raises InputError for text that cannot be stored,
        or if the earlier entry had other events; LogError if the disk fails, or the broker does not answer:
        then it is not known whether they were stored.
        """
        check_events(events)
        if not len(events) and key is None:
            return self._last
        return seq_of(self.group.append([(events, key, None)]))

    def append_all(
        self,
        entries: Sequence[Events | InputError],
        keys: Sequence[str | None] | None = None,
        origins: Sequence[Origin | None] | None = None,
    ) -> Outcomes:
        """Stores each of `entries` as `append` does, with one flush for all; see `Log.append_all`."""
        return self.group.append(list(zip(entries, *check_entries(entries, keys, origins), strict=True)))
