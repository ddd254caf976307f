"""The event log in two Kafka topics: one of events, one of their order (see docs/kafka.md).

Any process may send messages to the events topic; they lie in several partitions. The owner of the log reads
them all, and writes the order in which it took them to the control topic. Only that order counts: an append
is acknowledged when the order that has it was written *and read back*, so that a process that has lost the
log cannot acknowledge anything. A replay reads the same orders, and so the same entries.

Threads: one follows the topics, proposes orders and wakes waiting threads; one serves callbacks of the
producer; one looks for new partitions. Locks: `_closed` for closing; `_writing` for control records other
than orders, then `_state` for all fields; `_reading` for the reader of older events. Clients take them by
calls that no interrupt cuts.
"""

import itertools
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, TopicPartition

import livegnn._core as _core
from livegnn.arguments import check_int, check_not_negative
from livegnn.errors import InputError, LogError
from livegnn.interrupts import Background, Flag
from livegnn.log import Appended, BadMessage, Batch, Entry, Given, Outcomes, Rejection, Write
from livegnn.log.arguments import LARGEST_SEQ, check_range, check_rejections, new_properties
from livegnn.log.idempotency import KeyClock, check_origin
from livegnn.log.kafka.connection import Connection, Settings, create_topics, read_topics
from livegnn.log.kafka.follower import Follower, Reader, skim
from livegnn.log.kafka.history import History, Order, Point
from livegnn.log.kafka.message import encode as encode_message
from livegnn.log.kafka.message import pack
from livegnn.log.kafka.ordering import RecentEvents, Taken, digest_within, outcomes, propose, select_writes
from livegnn.log.kafka.owner import TopicOwner
from livegnn.log.kafka.producers import ControlProducer, EventProducer, Sent
from livegnn.log.owned import OwnedLog
from livegnn.types import JSON

__all__ = ["KafkaLog", "create_topics", "encode_message"]

_DAY: Final = 86_400
_POLL_SECONDS: Final = 0.1


class KafkaLog(OwnedLog):
    """A log in the topics `topic` and `topic` + ".control" of the brokers at `servers`. Thread-safe.

    keep_keys_seconds: for how long at least an idempotency key is known. timeout: seconds that an append, or
    a batch, may wait for the broker. settings: further ones of librdkafka, as for encryption.
    Raises LogError if a topic is missing or unfit, or has lost messages, or another process owns the log.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        keep_keys_seconds: float = _DAY,
        timeout: float = 60.0,
        settings: Settings | None = None,
    ) -> None:
        self._connection = Connection(servers, topic, settings or {})
        super().__init__(self._connection.name)
        self._keep_keys = check_not_negative(keep_keys_seconds, "keep_keys_seconds")
        self._timeout = check_not_negative(timeout, "timeout, in seconds,")
        topics = read_topics(self._connection)
        self._lows, self._largest, self._largest_control = topics.lows, topics.largest, topics.largest_control
        self._history = History()
        skim(self._connection, self._history, topics.control_end)
        self._owner = TopicOwner(self._connection, self._history.owner)
        self._writing, self._reading, self._closed = threading.Lock(), threading.Lock(), threading.Lock()
        self._failure: LogError | None = None
        self._ended, self._recent = Flag(), RecentEvents()
        self._basing = _core.Section()  # in which nothing is proposed
        self._proposed: Order | None = None
        self._reader = Reader(self._connection, self._timeout)
        self._follower: Follower | None = None
        self._threads: list[Background] = []
        self._producer = self._connection.producer(max(topics.largest, topics.largest_control))
        self._control = ControlProducer(self._connection, self._producer, self._state)
        self._sending = EventProducer(topic, topics.partitions, self._producer, self._state)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Writes that this process owns the log now, and follows the topics from there."""
        topics = read_topics(self._connection)
        skim(self._connection, self._history, topics.control_end)  # what another owner wrote until it ended
        self._history.check(topics, self._connection.name)
        self._control.epoch = self._history.epoch + 1
        self._last = self._history.seq
        self._batch_end: int | None = self._history.batch_ends[-1]  # None if an interrupt made it unknown
        self._key_clock = KeyClock(max((known.time for known in self._history.keys.values()), default=0))
        self._start(self._serve, "livegnn-kafka-producer")
        me = f"process {os.getpid()} on {socket.gethostname()}"
        place = self._control.write({"type": "owner", "owner": me}, self._timeout)
        skim(self._connection, self._history, place + 1)
        if self._history.epoch != self._control.epoch or self._history.owner != me:
            raise LogError(
                f"{self._connection.name} must have one owner, got two that started at once: "
                f"{self._history.owner} is the first. Stop that process first"
            )
        self._follower = Follower(self._connection, self._history, self._lows)
        self._start(self._follow, "livegnn-kafka")
        self._start(partial(self._follower.watch, self._ended), "livegnn-kafka-partitions")

    def _start(self, run: Callable[[], None], name: str) -> None:
        self._threads.append(Background(run, name))
        self._threads[-1].start()

    # -- appending

    def _append_group(self, given: Sequence[Given]) -> Outcomes:
        """All messages are on their way before any is waited for; but with origins one after the other: they
        lie in several partitions, and what another message has overtaken would count as delivered again.
        """
        outcomes: list[Appended | InputError] = [Appended(self._last, 0)] * len(given)
        some = [at for at, one in enumerate(given) if one[2] or isinstance(one[0], InputError) or one[0]]
        one_by_one = any(origin is not None for _, _, origin in given)
        sent: list[Sent] = []
        with self._connection.errors("append to"):
            packed = pack(
                [given[at][0] for at in some],
                [given[at][1] for at in some],
                [given[at][2] for at in some],
                self._largest,
            )
            for value, places in packed:
                positions = [some[place] for place in places]
                if isinstance(value, InputError):
                    outcomes[positions[0]] = value
                else:
                    sent.append(self._sending.send(value, positions))
                    if one_by_one:
                        self._wait_for(sent[-1:])
        self._wait_for(sent)
        for one in sent:
            for position, outcome in zip(one.positions, one.outcomes or (), strict=True):
                outcomes[position] = outcome
        return outcomes

    def _wait_for(self, sent: Sequence[Sent]) -> None:
        """Returns when all were taken. Raises LogError."""
        self._wait_until(lambda: all(one.outcomes is not None or one.error is not None for one in sent))
        for one in sent:
            if one.outcomes is None:
                raise LogError(f"cannot append to {self._connection.name}: {one.error}")

    def position(self, source: str, partition: int) -> int | None:
        reached = _core.holding(self._state, self._history.origins.get, (source, partition))
        return None if reached is None else reached.offset

    def _wait_until(self, done: Callable[[], bool]) -> None:
        """Raises LogError if the condition does not hold in time, or the log has failed."""
        _core.holding(self._state, self._await, done)

    def _await(self, done: Callable[[], bool]) -> None:
        came = self._state.wait_for(
            lambda: self._failed() is not None or self._ended.is_set() or done(), self._timeout
        )
        if done():
            return
        self._refuse_failed()
        raise LogError(
            f"{self._connection.name} must answer within {self._timeout:g} seconds, got nothing: whether the "
            "broker has stored what it was sent is not known"
            if not came
            else f"{self._connection.name} was closed"
        )

    # -- reading

    def writes(
        self, after: int, *, up_to: int | None = None, max_events: int | None = None
    ) -> Sequence[Write]:
        after, end = check_range(after, up_to, max_events)
        enough = end if max_events is None else min(end, after + max_events)
        kept, last = _core.holding(self._state, self._find_recent, after, enough)
        if after >= min(last, end):
            return []
        if kept is not None and self._reader.reads:
            _core.holding(self._reading, self._reader.close)  # a replay has reached the kept events
        taken = kept if kept is not None else self._read(after, min(end, last), max_events)
        return select_writes(taken, after, end, max_events)

    def _find_recent(self, after: int, up_to: int) -> tuple[Sequence[Taken] | None, int]:
        """The writes in memory, and the last event of the log. Needs `_state`."""
        self._refuse_failed()
        return self._recent.find(after, up_to), self._last

    def _find(self, seq: int) -> Sequence[Taken]:
        """The write of event `seq`; nothing if it was trimmed, or forgotten."""
        kept = _core.holding(self._state, self._recent.find, seq - 1, seq)
        if kept is not None:
            return kept
        known = _core.holding(self._state, self._history.point_before, seq - 1)
        return [] if known is None else self._read(seq - 1, seq, None)

    def _read(self, after: int, up_to: int, max_events: int | None) -> Sequence[Taken]:
        """The writes that memory no longer has, from the broker."""
        point = _core.holding(self._state, self._history.point_before, after)
        if point is None or after < point.seq:
            raise LogError(
                f"{self._connection.name} must hold the events after {after}, got those after "
                f"{'none' if point is None else point.seq}: it was trimmed. Begin with a newer checkpoint"
            )
        enough = up_to if max_events is None else min(up_to, after + max_events)
        assert self._follower is not None
        lows = {**self._follower.lows, **self._lows}
        return _core.holding(self._reading, self._reader.read, point, lows, after, enough)

    def entry(self, seq: int) -> Entry | None:
        if not 0 < seq <= self._last:
            return None
        for write in itertools.chain.from_iterable(one.writes for one in self._find(seq)):
            if write.after < seq <= write.seq:
                return write.entry(seq)
        return None

    # -- boundaries and metadata

    def record_batch(self, batch: Batch, *rejections: Rejection) -> None:
        """Implements `Log.record_batch`.

        It does not wait for the broker; `sync` does. Events whose batch the broker lacks are batched again.
        """
        check_rejections(self._connection.name, batch, rejections)
        self._refuse_failed()
        end, self._batch_end = self._batch_end, None
        if batch.after != end:
            self.sync()  # the last record may have been interrupted before it was noted
            end = self._history.batch_ends[-1]
        if batch.after != end:
            raise LogError(
                f"{self._connection.name} must be continued after event {end}, got a batch after "
                f"event {batch.after}"
            )
        said: JSON = [list(one) for one in rejections]
        record: dict[str, JSON] = {"type": "batch", **batch._asdict(), "rejections": said}
        _core.holding(self._writing, self._control.write_later, record, self._timeout)
        self._batch_end = batch.seq

    def bind(self, properties: Mapping[str, str], *, replace: bool = False) -> None:
        """Implements `Log.bind`. replace: take the new values, even if the log has other ones."""
        for name, value in new_properties(self._connection.name, self.bound(), properties, replace).items():
            record: dict[str, JSON] = {"type": "property", "name": name, "value": value}
            _core.holding(self._writing, self._control.write, record, self._timeout)
        self.sync()

    def check_bound(self, properties: Mapping[str, str]) -> None:
        new_properties(self._connection.name, self.bound(), properties, replace=False)

    def bound(self) -> Mapping[str, str]:
        return _core.holding(self._state, dict, self._history.properties)

    def batches(self, after: int) -> Sequence[Batch]:
        self.sync()
        batches, end = _core.holding(
            self._state, lambda: (self._history.batches(after), self._history.batch_ends[-1])
        )
        if batches is None:
            raise LogError(
                f"{self._connection.name} must have a batch that ends at event {after}, got none of those up "
                f"to event {end}: it is not the log of this graph, or was trimmed"
            )
        return batches

    def rejections(
        self, after: int = 0, *, up_to: int | None = None, most: int | None = None
    ) -> Sequence[Rejection]:
        after, end = check_range(after, up_to)
        self.sync()
        rejections = _core.holding(self._state, self._history.rejections.copy)
        return [one for one in rejections if after < one.seq <= end][:most]

    def listed(self, after: int = 0, *, most: int | None = None) -> Sequence[Rejection]:
        after, _ = check_range(after, None)
        self.sync()
        return _core.holding(self._state, self._history.listed, after)[:most]

    def bad_messages(self, after: int = 0, *, most: int | None = None) -> Sequence[BadMessage]:
        """As of `Log.bad_messages`, and of the log's own topic, whose name is the source then.

        The newest 1,000 are kept.
        """
        after, most = check_range(after, most)
        find = self._history.bad_messages
        return _core.holding(self._state, find, self._connection.topic, after)[:most]

    def forget_rejections(self, up_to: int) -> int:
        up_to = check_int(up_to, "up_to", 0, LARGEST_SEQ)
        return self._forget(
            {"type": "forget entries", "seq": up_to}, lambda: len(self._history.listed(0, up_to))
        )

    def forget_bad_messages(self, source: str, partition: int, up_to: int) -> int:
        """As of `Log.forget_bad_messages`; those of the log's own topic have its name as their source."""
        check_origin((source, partition, up_to))
        sources: list[JSON] = [source, None] if source == self._connection.topic else [source]
        record: dict[str, JSON] = {"type": "forget messages", "sources": sources}
        return self._forget(
            {**record, "partition": partition, "offset": up_to}, lambda: len(self._history.bad)
        )

    def _forget(self, record: Mapping[str, JSON], count: Callable[[], int]) -> int:
        """Writes a record that forgets something; returns by how much that lowers `count`."""
        return _core.holding(self._writing, self._write_and_count, record, count)

    def _write_and_count(self, record: Mapping[str, JSON], count: Callable[[], int]) -> int:
        self.sync()
        before = _core.holding(self._state, count)
        self._control.write(record, self._timeout)
        self.sync()
        return before - _core.holding(self._state, count)

    def sync(self) -> None:
        """As of `Log.sync`: what this process has written to the control topic was read back then."""
        sent = _core.holding(self._state, self._control.unanswered.copy)
        self._wait_until(lambda: sent.isdisjoint(self._control.unanswered))
        end = self._control.end
        self._wait_until(lambda: self._history.next >= end)

    def probe(self) -> None:
        self.sync()
        read_topics(self._connection)

    def check_place(self) -> None:
        self._refuse_failed()

    def digest(self, seq: int) -> str | None:
        if seq == 0:
            return ""
        found = (one for one in self._find(seq) if one.order.after < seq <= one.order.seq)
        return next((digest_within(one, seq) for one in found), None)

    def trim(self, up_to: int) -> int:
        """Deletes events up to the last base at or before event `up_to`; returns the last that is deleted.

        A base is written by each call, for a later one to trim to.
        """
        bases = [base for base in _core.holding(self._state, self._history.bases.copy) if base.seq <= up_to]
        _core.holding(self._writing, _core.within, self._basing, self._write_base)
        if not bases:
            return 0
        base = bases[-1]
        places = [TopicPartition(self._connection.control, 0, base.offset)]
        places += [TopicPartition(self._connection.topic, p, end) for p, end in base.positions.items()]
        self._connection.delete_before(places)
        forget = partial(self._forget_before, base)
        _core.holding(self._state, _core.settled, forget, forget)
        return base.seq

    def _forget_before(self, base: Point) -> None:
        self._history.forget(base)
        self._lows = {**self._lows, **base.positions}

    def _write_base(self) -> None:
        """Writes a base with all that was written before it: nothing else is written meanwhile."""
        self._wait_until(lambda: self._proposed is None)
        self.sync()
        self._control.write(_core.holding(self._state, self._make_base), self._timeout)

    def _make_base(self) -> dict[str, JSON]:
        self._history.forget_keys(self._key_clock() - self._keep_keys)
        return self._history.base()

    def close(self) -> None:
        _core.holding(self._closed, _core.settled, self._close, self._close)

    def _close(self) -> None:
        """Each step can be done again."""
        self._ended.set()
        self._notify()
        for thread in self._threads:
            thread.join()
        if self._follower is not None:
            self._follower.close()
        _core.holding(self._reading, self._reader.close)
        self.directories.release()
        self._owner.release()

    # -- threads

    def _serve(self) -> None:
        """Serves callbacks of the producer, and reports to the broker that the owner lives."""
        try:
            while not self._ended.is_set():
                self._producer.poll(_POLL_SECONDS)
                self._owner.poll(0)
            self._producer.flush(5.0)
        except LogError as error:
            self._fail(error)

    def _follow(self) -> None:
        assert self._follower is not None
        try:
            while not self._ended.is_set():
                taken = self._follower.poll(_POLL_SECONDS, self._state)
                with self._state:
                    for one in taken:
                        self._publish(one)
                    self._state.notify_all()
                if self._history.epoch != self._control.epoch:
                    raise LogError(
                        f"{self._connection.name} must have one owner, got another one: "
                        f"{self._history.owner} has taken over, because this one sent the broker no heartbeat"
                    )
                self._propose()
        except LogError as error:
            self._fail(error)
        except Exception as error:
            self._fail(LogError(f"cannot follow {self._connection.name}: {error!r}"))

    def _failed(self) -> LogError | None:
        return self._failure or self._control.failed

    def _fail(self, error: LogError) -> None:
        with self._state:
            self._failure = self._failure or error
            self._state.notify_all()

    def _publish(self, taken: Taken) -> None:
        """Makes taken entries readable, and answers the entries that this process sent. Needs `_state`."""
        self._recent.add(taken)
        self._last = taken.order.seq
        self._proposed = None  # its delivery may be reported later than it is read
        for number, became in outcomes(taken):
            self._sending.answer(number, became)

    def _propose(self) -> None:
        """Writes an order of the arrived messages, if none is being written."""
        assert self._follower is not None
        with self._state:
            if self._basing.active or self._proposed is not None:
                return
            now = self._key_clock()
            self._history.forget_keys(now - self._keep_keys)
            order = propose(self._history, self._follower.waiting(), int(now), self._largest_control)
            if order is None:
                return
            self._proposed = order

        def note(error: KafkaError | None, offset: int) -> None:
            if self._proposed is order:
                self._proposed = None

        self._control.send(order.to_json(), note)
