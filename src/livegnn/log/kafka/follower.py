"""Follows the control topic, and fetches the messages that it orders, as writes.

The log itself follows the end of both topics; a reader of older events follows from an earlier point. Both
see the same. Thread safety: none, but another thread may `watch`.
"""

import hashlib
import itertools
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

import livegnn._core as _core
from livegnn.errors import FileFormatError, LogError
from livegnn.interrupts import Flag
from livegnn.log.idempotency import Unread
from livegnn.log.kafka.connection import Connection, fetch, is_at_end
from livegnn.log.kafka.history import ANEW, History, Order, Point
from livegnn.log.kafka.message import Message, decode
from livegnn.log.kafka.ordering import Received, Taken, take
from livegnn.log.kafka.producers import HEADER

_MOST_WAITING: Final = 4096  # messages of a partition that were fetched and not taken
_LOOK_EVERY_SECONDS: Final = 3.0
_SECONDS: Final = 60.0  # that the broker may take to send more
_LOOK_SECONDS: Final = 2.0  # that the broker may take to say which partitions there are


class Follower:
    """Reads from where `history` is. `history` is kept at what was returned last.

    Raises LogError where a topic has lost what is needed.
    """

    def __init__(self, connection: Connection, history: History, partitions: Mapping[int, int]) -> None:
        """partitions: the first offset that each has; `lows` has those too that are added later."""
        self.history = history
        self.lows = dict(partitions)
        self._added: list[int] = []
        self._connection = connection
        self._waiting: dict[int, deque[Received]] = {partition: deque() for partition in partitions}
        self._fetched = {p: history.positions.get(p, low) for p, low in partitions.items()}
        self._paused: set[int] = set()
        self._orders: deque[tuple[Order, str]] = deque()
        self._consumer: Consumer = connection.consumer()
        self._assign(self._fetched)

    def close(self) -> None:
        """Ends the connection."""
        self._consumer.close()

    def waiting(self) -> Iterator[Received]:
        """Messages that were fetched, and not taken by an order."""
        for messages in self._waiting.values():
            yield from messages

    def watch(self, ended: Flag) -> None:
        """Looks for new partitions, until `ended`; `poll` reads them from their beginning."""
        admin = self._connection.admin()  # a client of its own: the consumer's waits for who polls it
        while not ended.wait(_LOOK_EVERY_SECONDS):
            with suppress(KafkaException):  # the next round tries again
                topics = admin.list_topics(self._connection.topic, timeout=_LOOK_SECONDS).topics
                found = topics[self._connection.topic].partitions
                self._added = [partition for partition in found if partition not in self.lows]

    def _add(self, partitions: Sequence[int]) -> None:
        """Continues reading, with more partitions."""
        self.lows = {**self.lows, **dict.fromkeys(partitions, 0)}
        self._assign({**self._fetched, **dict.fromkeys(partitions, OFFSET_BEGINNING)})
        for partition in partitions:
            self._waiting[partition] = deque()
            self._fetched[partition] = 0
        self._paused.clear()  # by assigning; `_pause` does it again

    def _assign(self, offsets: Mapping[int, int]) -> None:
        places = [TopicPartition(self._connection.control, 0, self.history.next or OFFSET_BEGINNING)]
        places += [TopicPartition(self._connection.topic, p, at) for p, at in offsets.items()]
        self._consumer.assign(places)

    def poll(self, timeout: float, lock: AbstractContextManager[object] | None = None) -> list[Taken]:
        """The writes that were taken since; waits for new messages for at most `timeout` seconds.

        lock: held while `history` changes.
        """
        with self._connection.errors("read"):
            if added := [p for p in self._added if p not in self.lows]:
                self._add(added)
            messages = fetch(self._consumer, timeout)
            with nullcontext() if lock is None else lock:
                for message in messages:
                    self._receive(message)
            taken = []
            while self._orders and self._complete(self._orders[0][0]):
                order, chain_before = self._orders.popleft()
                taken.append(take(order, self._waiting, chain_before))
            self._pause()
        return taken

    def skim(self, timeout: float) -> None:
        """Takes control records into account, without the messages that they order."""
        with self._connection.errors("read"):
            for message in fetch(self._consumer, timeout):
                self._receive(message)
        self._orders.clear()

    def skim_to(self, end: int, timeout: float) -> None:
        """Skims up to offset `end`. Raises LogError if no message arrives for `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.history.next < end:
            before = self.history.next
            self.skim(0.1)
            if self.history.next > before:
                deadline = time.monotonic() + timeout
            elif time.monotonic() > deadline:
                raise LogError(
                    f"{self._connection.name} must answer within {timeout:g} seconds, got nothing: is the "
                    "broker there?"
                )

    def _receive(self, message: KafkaMessage) -> None:
        offset, partition, value = message.offset(), message.partition(), message.value()
        is_control = message.topic() == self._connection.control
        if message.error() is not None:
            ended = is_at_end(message, lambda: self._lost(message))
            if ended and not is_control and partition is not None and offset is not None:
                self._fetched[partition] = max(self._fetched[partition], offset)
            return
        assert offset is not None
        assert partition is not None
        if is_control:
            before = self.history.chain
            order = self.history.apply(b"" if value is None else bytes(value), offset)
            if order is not None:
                self._orders.append((order, before))
            return
        self._fetched[partition] = offset + 1
        self._waiting[partition].append(_received(message, partition, offset))

    def _lost(self, message: KafkaMessage) -> LogError:
        return LogError(
            f"{self._connection.name} must hold message {self._fetched.get(message.partition() or 0)} of "
            f"partition {message.partition()} of {message.topic()!r}, got none: it was trimmed, or is "
            f"another topic of the same name. Restore it, or begin with a newer checkpoint; or {ANEW}"
        )

    def _complete(self, order: Order) -> bool:
        return all(self._fetched.get(part.partition, -1) >= part.end for part in order.slices)

    def _pause(self) -> None:
        """Stops fetching a partition of which too much waits, and continues when that was taken."""
        for partition, messages in self._waiting.items():
            place = [TopicPartition(self._connection.topic, partition)]
            if partition not in self._paused and len(messages) > _MOST_WAITING:
                self._consumer.pause(place)
                self._paused.add(partition)
            elif partition in self._paused and len(messages) < _MOST_WAITING // 2:
                self._consumer.resume(place)
                self._paused.remove(partition)


def _received(message: KafkaMessage, partition: int, offset: int) -> Received:
    value = message.value()
    raw = b"" if value is None else bytes(value)
    number = dict(message.headers() or ()).get(HEADER)
    try:
        content: Message | Unread = decode(raw)
    except FileFormatError as error:
        content = Unread.make(error, raw)
    return Received(
        partition,
        offset,
        content,
        hashlib.blake2b(raw, digest_size=16).digest(),
        number if isinstance(number, bytes) else None,
    )


class Reader:
    """Reads events that are not in memory any more: a follower that begins at an earlier point.

    It keeps its position between calls, so that a replay, which reads one part after the other, reads each
    message once. timeout: seconds without a message after which a read fails.
    """

    def __init__(self, connection: Connection, timeout: float) -> None:
        self._connection, self._timeout = connection, timeout
        self._follower: Follower | None = None
        self._taken: deque[Taken] = deque()
        self._end = 0

    @property
    def reads(self) -> bool:
        """Whether it has a connection."""
        return self._follower is not None

    def read(self, point: Point, lows: Mapping[int, int], after: int, up_to: int) -> Sequence[Taken]:
        """The writes from event `after` to `up_to` at least. point: an earlier one, to begin at.

        If it raises it forgets all that was read: an interrupt may have lost a part of that.
        """
        return _core.settled(self._read, self.close, point, lows, after, up_to)

    def _read(self, point: Point, lows: Mapping[int, int], after: int, up_to: int) -> Sequence[Taken]:
        known = self._follower is not None and self._follower.lows.keys() >= lows.keys()
        if self._follower is None or not known or not self._covers(after) or self._end < point.seq:
            self.close()
            self._follower = Follower(self._connection, History.at(point), lows)
            self._end = point.seq
        while self._taken and self._taken[0].order.seq <= after:
            self._taken.popleft()
        deadline = time.monotonic() + self._timeout
        while self._end < up_to:
            for taken in self._follower.poll(0.1):
                self._end = taken.order.seq
                if self._end > after:
                    self._taken.append(taken)
                deadline = time.monotonic() + self._timeout
            if time.monotonic() > deadline:
                raise LogError(
                    f"{self._connection.name} must hold events {after + 1} to {up_to}, got those up to "
                    f"{self._end} within {self._timeout:g} seconds: is the broker there?"
                )
        return list(itertools.takewhile(lambda taken: taken.order.after < up_to, self._taken))

    def _covers(self, after: int) -> bool:
        begin = self._taken[0].order.after if self._taken else self._end
        return begin <= after

    def close(self) -> None:
        """Ends the connection, and forgets what was read; again does nothing."""
        follower, self._follower = self._follower, None
        self._taken.clear()
        self._end = 0
        if follower is not None:
            follower.close()


def skim(connection: Connection, history: History, end: int) -> None:
    """Takes into account what the control topic says from where `history` is up to offset `end`."""
    if history.next >= end:
        return
    follower = Follower(connection, history, {})
    try:
        follower.skim_to(end, _SECONDS)
    finally:
        follower.close()
