"""The event log: what happened, in order, and the batches in which it was made visible."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from livegnn.events import Events

__all__ = ["Batch", "Entry", "Log", "Rejection"]


class Entry(NamedTuple):
    """Events that were appended together; `seq` is the sequence number of the last one."""

    seq: int
    events: Events


class Batch(NamedTuple):
    """The entries with `after` < `entry.seq` <= `seq` became visible together, without the rejected ones."""

    after: int
    seq: int


class Rejection(NamedTuple):
    """Entry `seq` could not be applied and changed nothing; `error` is the type of the error."""

    seq: int
    error: str
    message: str


class Log(Protocol):
    """What the runtime asks of a log. Every method may be called from any thread and raises LogError."""

    def append(self, events: Events) -> int:
        """Stores events durably, as one entry; returns the sequence number of the last one."""
        ...

    def last_seq(self) -> int:
        """The sequence number of the last event that was appended, 0 for an empty log."""
        ...

    def entries(
        self, after: int, *, up_to: int | None = None, max_events: int | None = None
    ) -> Sequence[Entry]:
        """The entries with `after` < `seq` <= `up_to`: as many as fit into `max_events`, at least one."""
        ...

    def wait(self, after: int, timeout: float | None) -> bool:
        """Blocks until there is an event after `after`; False after `timeout` seconds or a `wake`."""
        ...

    def wake(self) -> None:
        """Makes the `wait` that is going on, or else the next one, return."""
        ...

    def record_batch(self, batch: Batch, rejection: Rejection | None = None) -> None:
        """Stores the boundaries of a batch that is about to become visible, with what was rejected in it."""
        ...

    def sync(self) -> None:
        """Returns when all recorded batches are durable too."""
        ...

    def batches(self, after: int) -> Sequence[Batch]:
        """The recorded batches that end after sequence number `after`, in order."""
        ...

    def rejections(self, after: int = 0, *, up_to: int | None = None) -> Sequence[Rejection]:
        """The rejected entries with `after` < `seq` <= `up_to`, in order."""
        ...

    def digest(self, seq: int) -> int:
        """A number for the history up to event `seq`, which another history hardly has."""
        ...

    def close(self) -> None:
        """Lets go of files and connections."""
        ...
