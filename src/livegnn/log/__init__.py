"""The event log: what happened, in order, and the batches in which it was made visible."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np

from livegnn.errors import InputError, LogError
from livegnn.events import Events
from livegnn.events.builder import cut
from livegnn.types import IntArray

if TYPE_CHECKING:
    from jaxtyping import Int64

    from livegnn.log.directories import Directories
    from livegnn.log.group_commit import GroupCommit

__all__ = [
    "Appended",
    "AppliedBatch",
    "BadMessage",
    "Batch",
    "BoundLog",
    "Entry",
    "Log",
    "Origin",
    "ReadableLog",
    "Rejection",
    "Tail",
    "Write",
]


class Entry(NamedTuple):
    """Events that were appended together; `seq` is the sequence number of the last one."""

    seq: int
    events: Events


class Write(NamedTuple):
    """Neighbouring entries that were stored together: `events` of all, `ends` the `seq` of each entry.

    Reading a write costs once what reading an entry costs. after: the last event before the first entry.
    """

    after: int
    ends: "Int64[IntArray, 'entries']"
    events: Events

    @property
    def seq(self) -> int:
        """The sequence number of the last event."""
        return int(self.ends[-1])

    def entries(self) -> list[Entry]:
        """Each entry by itself; columns of its events are views."""
        ends = self.ends.tolist()
        if len(ends) == 1:
            return [Entry(ends[0], self.events)]
        parts = cut(self.events, (end - self.after for end in ends))
        return [Entry(end, part) for end, part in zip(ends, parts, strict=True)]

    def entry(self, seq: int) -> Entry | None:
        """The entry whose last event is `seq`, None if it is none of these."""
        at = int(np.searchsorted(self.ends, seq))
        if at == len(self.ends) or self.ends[at] != seq:
            return None
        begin = self.after if at == 0 else int(self.ends[at - 1])
        return Entry(seq, self.events.between(begin - self.after, seq - self.after))

    def part(self, after: int, up_to: int) -> "Write | None":
        """The entries with `after` < `seq` <= `up_to`, None if there are none."""
        if after <= self.after and self.seq <= up_to:
            return self
        first, last = np.searchsorted(self.ends, [after, up_to], side="right").tolist()
        if first >= last:
            return None
        begin = self.after if first == 0 else int(self.ends[first - 1])
        ends = self.ends[first:last]
        return Write(begin, ends, self.events.between(begin - self.after, int(ends[-1]) - self.after))


class Appended(NamedTuple):
    """The result of an append of one entry: the sequence number of its last event, its size in events.

    again: it was appended before, with the same key or origin; this is its number, and nothing was stored.
    """

    seq: int
    size: int
    again: bool = False


class Origin(NamedTuple):
    """The source of an entry: a numbered place in a stream, such as the topic of a broker.

    Offsets of one partition of a source only grow; a message that is delivered again has the same offset.
    payload: the bytes of the message. If it makes no entry, it is kept as a `BadMessage`, and its offset
    counts.
    """

    source: str
    partition: int
    offset: int
    payload: bytes | None = None


Given: TypeAlias = "tuple[Events | InputError, str | None, Origin | None]"
"""An entry, its key and its origin."""

Outcomes: TypeAlias = "Sequence[Appended | InputError]"
"""The result of each entry of an append."""


def seq_of(outcomes: Outcomes) -> int:
    """The number of the only entry. Raises its error."""
    (outcome,) = outcomes
    if isinstance(outcome, InputError):
        raise outcome
    return outcome.seq


class BadMessage(NamedTuple):
    """A message of an origin that could not be stored as events, and why.

    number: counted from 1, in the order of the log. payload: its first bytes; size: its number of bytes.
    """

    number: int
    source: str
    partition: int
    offset: int
    reason: str
    payload: bytes
    size: int

    @property
    def text(self) -> str:
        """The payload as UTF-8; other bytes are written in hexadecimal, after a backslash."""
        return self.payload.decode(errors="backslashreplace")


class Batch(NamedTuple):
    """The entries with `after` < `entry.seq` <= `seq` became visible together, without the rejected ones."""

    after: int
    seq: int


class AppliedBatch(NamedTuple):
    """A batch that the owner made visible, and the events that it applied, without rejected entries."""

    batch: Batch
    events: Events

    @classmethod
    def from_writes(cls, batch: Batch, writes: Sequence[Write], rejected: AbstractSet[int]) -> "AppliedBatch":
        """`batch` with its events. writes: all of its entries; rejected: numbers of entries.

        Raises LogError if entries are missing.
        """
        if not writes or writes[0].after != batch.after or writes[-1].seq != batch.seq:
            raise LogError(f"the log must hold the entries of its batch {batch}, got {len(writes)} writes")
        if not rejected or all(rejected.isdisjoint(write.ends.tolist()) for write in writes):
            return cls(batch, Events.concatenate([write.events for write in writes]))
        entries = (entry for write in writes for entry in write.entries())
        return cls(batch, Events.concatenate([one.events for one in entries if one.seq not in rejected]))


class Rejection(NamedTuple):
    """Entry `seq` could not be applied and changed nothing; `error` is the type of the error."""

    seq: int
    error: str
    message: str


class BoundLog(Protocol):
    """The history of a log, and the properties that it is bound to: they identify it. Raises LogError."""

    def digest(self, seq: int) -> str | None:
        """A text for the history up to event `seq`, which no other history has.

        None if it is not known; a tail may forget what is before its position, and knows ends of batches.
        """
        ...

    def bound(self) -> Mapping[str, str]:
        """The properties by name; in a tail, those that were bound before the next batch."""
        ...

    def check_bound(self, properties: Mapping[str, str]) -> None:
        """Raises LogError if the log is bound to other values of some of `properties`: see `Log.bind`."""
        ...


class ReadableLog(BoundLog, Protocol):
    """The reading half of a `Log`. Every method may be called from any thread and raises LogError."""

    def last_seq(self) -> int:
        """The sequence number of the last event that was appended, 0 for an empty log."""
        ...

    def writes(
        self, after: int, *, up_to: int | None = None, max_events: int | None = None
    ) -> Sequence[Write]:
        """The entries of `entries`, in their stored form, which is faster to read where entries are small."""
        ...

    def entries(
        self, after: int, *, up_to: int | None = None, max_events: int | None = None
    ) -> Sequence[Entry]:
        """The entries with `after` < `seq` <= `up_to`: as many as fit into `max_events`, at least one.

        Raises LogError for an entry that is missing, or is not as it was written.
        """
        writes = self.writes(after, up_to=up_to, max_events=max_events)
        return [entry for write in writes for entry in write.entries()]

    def entry(self, seq: int) -> Entry | None:
        """The entry whose last event is `seq`, None if there is none."""
        ...

    def find_entries(self, seqs: Sequence[int]) -> Iterator[Entry | None]:
        """The entry of each of `seqs`, which grow, one after the other; entries that were stored together
        are read once."""
        return map(self.entry, seqs)

    def position(self, source: str, partition: int) -> int | None:
        """The last offset that was stored of a partition: go on after it. None if nothing was."""
        ...

    def bad_messages(self, after: int = 0, *, most: int | None = None) -> Sequence[BadMessage]:
        """The messages of origins that could not be stored, with `number` > `after`, in order, at most
        `most`."""
        ...

    def batches(self, after: int) -> Sequence[Batch]:
        """The recorded batches that end after sequence number `after`, in order.

        Raises LogError unless they lead on from `after` without a gap: a checkpoint is at a boundary.
        """
        ...

    def rejections(
        self, after: int = 0, *, up_to: int | None = None, most: int | None = None
    ) -> Sequence[Rejection]:
        """The rejected entries with `after` < `seq` <= `up_to`, in order, the first `most` of them."""
        ...

    def listed(self, after: int = 0, *, most: int | None = None) -> Sequence[Rejection]:
        """The entries of `rejections`, without forgotten ones."""
        ...


class Log(ReadableLog, Protocol):
    """The log as the runtime uses it. Every method may be called from any thread and raises LogError.

    directories: those that belong to it, which `close` releases. group: all appends pass through it.
    takes_joined: whether it takes `JoinedEvents`, several entries that have one outcome, of the last.
    """

    takes_joined: bool = False
    directories: "Directories"
    group: "GroupCommit[Given, Appended | InputError]"

    def append(self, events: Events, *, key: str | None = None) -> int:
        """Stores events durably, as one entry; returns the sequence number of the last one.

        key: an idempotency key. If an entry with it was appended before, nothing is stored, and the number is
        that of the earlier entry. No events make no entry. Raises InputError for events that cannot be
        stored, or if the earlier entry had other events; LogError if the disk fails, or if a broker does not
        answer: it is then not known whether the broker has stored the events.
        """
        ...

    def append_all(
        self,
        entries: Sequence[Events | InputError],
        keys: Sequence[str | None] | None = None,
        origins: Sequence[Origin | None] | None = None,
    ) -> Sequence[Appended | InputError]:
        """Stores each of `entries` as `append` does, with one flush for all.

        entries: an InputError stands for events that could not be read. origins: the source of each. An entry
        whose offset is not after the last stored offset of its partition is not stored again; its number is
        that of the last entry of that partition. One that is refused, and has the payload of its origin, is
        kept as a `BadMessage`. Returns the result of each: an error concerns one entry. Raises LogError if
        none was stored, or, where they have origins, if the last ones were not: append them again.
        """
        ...

    def wait(self, after: int, timeout: float | None) -> bool:
        """Blocks until there is an event after `after`; False after `timeout` seconds or a `wake`."""
        ...

    def wake(self) -> None:
        """Makes the `wait` that is going on, or else the next one, return."""
        ...

    def record_batch(self, batch: Batch, *rejections: Rejection) -> None:
        """Stores the boundaries of a batch that is about to become visible, with the rejection of its events,
        if any."""
        ...

    def sync(self) -> None:
        """Returns when all recorded batches are durable too."""
        ...

    def probe(self) -> None:
        """Finds out, with a write that changes nothing, whether events would be stored. Raises LogError."""
        ...

    def check_place(self) -> None:
        """Raises LogError if no start would find what is appended now. Writes nothing, and is quick."""
        ...

    def forget_rejections(self, up_to: int) -> int:
        """Refused entries up to event `up_to` are not listed any more, and are deleted when no replay needs
        them. Returns how many were listed.
        """
        ...

    def forget_bad_messages(self, source: str, partition: int, up_to: int) -> int:
        """Deletes the bad messages of a partition of a source up to offset `up_to`; returns how many.

        The next offset of the source stays as it is.
        """
        ...

    def bind(self, properties: Mapping[str, str]) -> None:
        """Binds the log to a schema, a graph and settings: stores, durably, each property that it has no
        value of yet.

        Raises LogError, with nothing stored, if it has another value of one.
        """
        ...

    def trim(self, up_to: int) -> int:
        """Deletes whole stored rows at or before event `up_to`, if no reader needs them any more.

        Deletion ends no later than the last batch, and than the slowest consumer. Returns the last event that
        is deleted now, 0 if none is.
        """
        ...

    def close(self) -> None:
        """Closes files and connections."""
        ...


class Tail(BoundLog, Protocol):
    """Follows a log in another process than its owner's, from a position on that `commit` moves.

    One thread reads, and any may close. The same log gives the same results in every storage.
    """

    @property
    def name(self) -> str:
        """The place of the log, for messages."""
        ...

    @property
    def position(self) -> int:
        """The last event that was committed: reading continues after it."""
        ...

    def entries(self, max_events: int | None = None) -> Sequence[Entry]:
        """The acknowledged entries after `position`: as many as fit into `max_events`, at least one.

        Raises LogError for an entry that is damaged, missing, or was trimmed.
        """
        ...

    def batches(self, max_events: int | None = None) -> Sequence[AppliedBatch]:
        """The batches after `position` that the owner has applied, with the events of each: as many as fit
        into `max_events`, at least one.

        The same batches on the same graph give the same bits. Raises LogError as `entries` does, and if
        `position` is not the end of a batch.
        """
        ...

    def wait(self, timeout: float | None = None, *, batches: bool = False) -> bool:
        """Blocks until `entries`, or `batches` if asked, has something; False after `timeout` seconds, or if
        the tail was closed.
        """
        ...

    def commit(self, seq: int) -> None:
        """Notes that everything up to `seq`, the number of an entry, was processed: reading continues after
        it, also after a crash.

        Raises InputError for a number that is not an entry's, or is before `position`; LogError.
        """
        ...

    def close(self) -> None:
        """Ends a `wait` that is going on, and lets another process take the name; again does nothing."""
        ...
