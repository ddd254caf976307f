"""Follows a log in Kafka from another process: the messages that its owner has ordered, as soon as the
brokers have them.

A tail reads the control topic with one consumer, and the messages that it orders with another, which it has
while it reads; a third reads the end of the topic. It writes to no topic and joins no group, so neither the
owner nor the brokers know of it. An order counts for every reader or for none (see `history`), and is read
when all replicas have it: entries that a tail has seen stay, under any later owner.

The position is a file, as that of a `SqliteTail`, and not an offset that a group commits: brokers forget the
offsets of a group that is away for a week, and the name would count as a new one.

Locks: `_reading`, for the consumers and what was read; one thread reads, and any may close. An interrupt may
lose what a consumer had fetched, so a read that raises drops the consumers, and the next begins with new
ones.
"""

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from confluent_kafka import Consumer

import livegnn._core as _core
from livegnn.arguments import as_path, check_int, check_not_negative
from livegnn.errors import LogError
from livegnn.log import AppliedBatch, Entry, Write
from livegnn.log.arguments import LARGEST_SEQ, check_text, deadline, new_properties
from livegnn.log.consumers import ConsumerTail, Position, check_most, check_name, select_fitting
from livegnn.log.kafka.connection import Connection, Settings, Topics, read_bounds, read_topics
from livegnn.log.kafka.follower import Follower, Reader
from livegnn.log.kafka.history import History
from livegnn.log.kafka.ordering import Taken, digest_within, select_writes

_POLL_SECONDS: Final = 0.1
_STEP: Final = 10_000  # records, after which what is not needed is forgotten

_Read = TypeVar("_Read")
_Given = ParamSpec("_Given")


def _reads(
    method: "Callable[Concatenate[KafkaTail, _Given], _Read]",
) -> "Callable[Concatenate[KafkaTail, _Given], _Read]":
    """A method that uses the consumers alone, and releases them at any exception from outside."""

    @wraps(method)
    def read(self: "KafkaTail", /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Read:
        if self._closed:
            raise LogError(f"cannot follow {self._connection.name} any more: the tail was closed")
        return method(self, *args, **kwargs)

    @wraps(method)
    def call(self: "KafkaTail", /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Read:
        return _core.holding(self._reading, read, self, *args, **kwargs)

    return call


class KafkaTail(ConsumerTail):
    """Follows the log in `topic` at `servers` as the consumer `name`, from where it last was: see `commit`.

    folder: keeps the position, in `TOPIC-consumers/NAME`. after: begin after this event instead. A new name
    begins with the first entry that the log has. timeout: seconds for which a read may get nothing. settings:
    further ones of librdkafka, as for encryption. Raises LogError if a topic is missing or unfit, if another
    consumer has the name, or if the next events have been trimmed; InputError for an invalid name.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        name: str,
        folder: Path | str,
        *,
        after: int | None = None,
        timeout: float = 60.0,
        settings: Settings | None = None,
    ) -> None:
        after = None if after is None else check_int(after, "after", 0, LARGEST_SEQ)
        self._timeout = check_not_negative(timeout, "timeout, in seconds,")
        self._connection = Connection(
            check_text(servers, "servers"), check_text(topic, "topic"), settings or {}
        )
        place, name = as_path(folder, "folder"), check_name(name)
        self._closed = False
        self._reading = threading.Lock()
        self._taken: Sequence[Taken] = []
        self._reader = Reader(self._connection, self._timeout)
        self._control: Follower | None = None
        self._asking: Consumer | None = None
        topics = read_topics(self._connection)  # there is such a topic, so its name is one of a file
        with ExitStack() as opened:
            opened.callback(self._disconnect)
            try:
                self._position = opened.enter_context(closing(Position(place / topic, name)))
                begin = self._open(topics, self._position.seq if after is None else after)
                if begin != self._position.seq:
                    self._position.register(begin)
            except OSError as error:
                raise LogError(f"cannot follow {self._connection.name} from {place}: {error}") from error
            opened.pop_all()

    @property
    def name(self) -> str:
        return self._connection.name

    @_reads
    def entries(self, max_events: int | None = None) -> Sequence[Entry]:
        most = check_most(max_events)
        self._catch_up(self.position + most, batches=False)
        writes = self._writes(self._history.seq, most)
        return [entry for write in writes for entry in write.entries()]

    @_reads
    def batches(self, max_events: int | None = None) -> Sequence[AppliedBatch]:
        most = check_most(max_events)
        self._catch_up(self.position + most, batches=True)
        history = self._history
        if history.batch_ends[-1] <= self.position:
            return []
        recorded = history.batches(self.position, most)  # each has an event or more
        if recorded is None:
            raise LogError(
                f"{self._connection.name} must have a batch that ends at event {self.position}, got one "
                f"that ends at event {history.batch_ends[0]}: begin after the end of a batch"
            )
        found = select_fitting(recorded, most)
        writes = self._writes(found[-1].seq)
        ends = [write.seq for write in writes]
        applied = []
        for batch in found:
            within = writes[bisect_right(ends, batch.after) : bisect_left(ends, batch.seq) + 1]
            parts = [part for write in within if (part := write.part(*batch)) is not None]
            applied.append(AppliedBatch.from_writes(batch, parts, history.rejected(batch)))
        return applied

    def wait(self, timeout: float | None = None, *, batches: bool = False) -> bool:
        """Implements `Tail.wait`.

        It looks at arrived messages, and sends no request: while no broker answers, it waits.
        """
        ends = deadline(timeout)
        while not self._closed:
            left = max(0.0, ends - time.monotonic())
            if _core.holding(self._reading, self._look, batches, min(_POLL_SECONDS, left)):
                return True
            if not left:
                break
        return False

    def _look(self, batches: bool, timeout: float) -> bool:
        """Whether there is something, within `timeout` seconds. Needs `_reading`."""
        if self._closed:
            return False
        if self._control is None or self._reached(batches) <= self.position:
            self._or_anew(partial(self._follow, timeout))
        return self._reached(batches) > self.position

    @_reads
    def commit(self, seq: int) -> None:
        super().commit(seq)
        self._history.release(self.position)

    def _is_end(self, seq: int) -> bool:
        self._catch_up(seq, batches=False)
        writes = self._writes(seq) if seq <= self._history.seq else []
        return bool(writes) and writes[-1].seq == seq

    @_reads
    def digest(self, seq: int) -> str | None:
        """Implements `Tail.digest`, for the events that were read last."""
        found = (one for one in self._taken if one.order.after < seq <= one.order.seq)
        return "" if seq == 0 else next((digest_within(one, seq) for one in found), None)

    @_reads
    def check_bound(self, properties: Mapping[str, str]) -> None:
        self._catch_up(self.position + 1, batches=True)  # all that was bound before the next events
        new_properties(self._connection.name, self._history.properties, properties, replace=False)

    @_reads
    def bound(self) -> Mapping[str, str]:
        self._catch_up(self.position + 1, batches=True)
        return dict(self._history.properties)

    def close(self) -> None:
        self._closed = True
        _core.holding(self._reading, _core.settled, self._close, self._close)

    def _close(self) -> None:
        """Can be done again."""
        self._disconnect()
        self._position.close()

    def _disconnect(self) -> None:
        """Drops the consumers, and what they have fetched; again does nothing."""
        control, self._control = self._control, None
        asking, self._asking = self._asking, None
        for one in (control, asking, self._reader):
            if one is not None:
                one.close()

    def _open(self, topics: Topics, begin: int | None) -> int:
        """Reads the control topic from its beginning; returns after which event reading begins.

        begin: that event, if it is known. Raises LogError if the log does not have the events after it.
        """
        self._disconnect()
        history = History()
        control = Follower(self._connection, history, {})
        try:
            while history.next < topics.control_end:
                control.skim_to(min(history.next + _STEP, topics.control_end), self._timeout)
                history.release(begin or 0)
            history.check_begin(topics, self._connection.name)
            first = history.points[0].seq if history.points else history.seq
            begin = first if begin is None else begin
            self._check(begin, first, history.seq)
        except BaseException:
            control.close()
            raise
        self._lows, self._history, self._control = topics.lows, history, control
        return begin

    def _check(self, begin: int, first: int, last: int) -> None:
        if begin < first:
            raise LogError(
                f"{self._connection.name} begins after event {first}, because earlier events were "
                f"trimmed, so reading cannot continue from event {begin}: take a checkpoint of event {first} "
                "or later, and begin after its event"
            )
        if begin > last:
            raise LogError(
                f"{self._connection.name} must reach event {begin}, got a log that ends at event {last}: it "
                "is another topic of the same name, or has lost messages. Begin after an event that it has"
            )

    def _reached(self, batches: bool) -> int:
        return self._history.batch_ends[-1] if batches else self._history.seq

    def _follow(self, timeout: float) -> None:
        """Takes arrived messages into account; waits for new ones for at most `timeout` seconds."""
        assert self._control is not None
        self._control.skim(timeout)
        self._history.release(self.position)

    def _catch_up(self, enough: int, *, batches: bool) -> None:
        """Reads what the owner has written until now, unless event `enough` was reached already."""

        def read() -> None:
            assert self._control is not None
            self._control.skim_to(self._end(), self._timeout)
            self._history.release(self.position)

        if self._control is None or self._reached(batches) < enough:
            self._or_anew(read)

    def _end(self) -> int:
        """The offset after the last record of the control topic, as the broker says.

        A client of its own reads it: a request of a following client would wait behind its earlier ones.
        """
        with self._connection.errors("read"):
            self._asking = self._asking or self._connection.consumer()
            return self._connection.ask(partial(read_bounds, self._asking, self._connection.control, 0))[1]

    def _writes(self, up_to: int, most: int = LARGEST_SEQ) -> Sequence[Write]:
        """The entries from `position` to `up_to`, as they were stored: as many as fit into `most` events."""
        if up_to <= self.position:
            return []

        def read() -> Sequence[Taken]:
            point = self._history.point_before(self.position)
            assert point is not None
            lows = {**dict.fromkeys(self._history.positions, 0), **self._lows}
            return self._reader.read(point, lows, self.position, min(up_to, self.position + most))

        self._taken = self._or_anew(read)
        writes = select_writes(self._taken, self.position, up_to, most)
        if writes and writes[0].after != self.position:
            raise LogError(
                f"{self._connection.name} must have an entry that ends at event {self.position}, got one "
                f"from event {writes[0].after + 1} to {writes[0].ends[0]}: begin after the end of an entry"
            )
        return writes

    def _or_anew(self, read: Callable[[], _Read]) -> _Read:
        """The result of `read`; once more if it fails, with the present contents of the brokers: some may be
        trimmed."""
        if self._control is not None:
            with suppress(LogError):
                return _core.settled(read, self._disconnect)
        self._open(read_topics(self._connection), self.position)
        return _core.settled(read, self._disconnect)
