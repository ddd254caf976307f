"""Messages on their way to both topics: what became of their entries, and which records the broker has.

Thread safety: fields change under the lock of the log, which is notified when they do.
"""

import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as KafkaMessage

import livegnn._core as _core
from livegnn.errors import InputError, LogError
from livegnn.interrupts import at_once
from livegnn.log import Appended
from livegnn.log.kafka.connection import Connection
from livegnn.log.kafka.history import encode
from livegnn.types import JSON

HEADER: Final = "livegnn"
"""The header of a message with a number that its producer gave it."""
_MOST_ON_THEIR_WAY: Final = 4096  # records that no thread waits for


class ControlProducer:
    """Writes records to the control topic, in order.

    epoch: of the owner that writes. end: the offset after the last record that the broker acknowledged.

    unanswered: the numbers of the records that were sent to the broker and are not answered yet. failed: the
    error of a refused record that no thread waits for. lock: of the log.
    """

    def __init__(self, connection: Connection, producer: Producer, lock: threading.Condition) -> None:
        self.epoch = self.end = 0
        self.unanswered: set[int] = set()
        self.failed: LogError | None = None
        self._numbers = itertools.count()
        self._connection, self._producer, self._lock = connection, producer, lock

    def write(self, record: Mapping[str, JSON], timeout: float) -> int:
        """Writes a record; returns its offset when the broker has it, within `timeout` seconds.

        Raises LogError.
        """
        answer: list[KafkaError | int] = []

        def note(error: KafkaError | None, offset: int) -> None:
            answer.append(offset if error is None else error)

        self.send(record, note)
        if not _core.holding(self._lock, self._lock.wait_for, lambda: answer, timeout):
            raise LogError(f"{self._connection.name} must answer within {timeout:g} seconds, got nothing")
        if not isinstance(answer[0], int):
            raise LogError(f"cannot write to {self._connection.name}: {answer[0].str()}")
        return answer[0]

    def write_later(self, record: Mapping[str, JSON], timeout: float) -> None:
        """Writes a record that no thread waits for, as long as not too many of them are under way."""

        def note(error: KafkaError | None, offset: int) -> None:
            if error is not None:
                self.failed = LogError(f"cannot write to {self._connection.name}: {error.str()}")

        def has_room() -> bool:
            return len(self.unanswered) < _MOST_ON_THEIR_WAY or self.failed is not None

        _core.holding(self._lock, self._lock.wait_for, has_room, timeout)
        if self.failed is not None:
            raise self.failed
        self.send(record, note)

    def send(self, record: Mapping[str, JSON], note: Callable[[KafkaError | None, int], None]) -> None:
        """Writes a record; `note` is called with the lock held, with its error, if any, and its offset.

        The thread that serves the producer calls it: no interrupt of another thread takes an answer away.
        """
        number = next(self._numbers)

        def delivered(error: KafkaError | None, message: KafkaMessage) -> None:
            offset = message.offset() or 0
            with self._lock:
                self.unanswered.discard(number)
                if error is None:
                    self.end = max(self.end, offset + 1)
                note(error, offset)
                self._lock.notify_all()

        value = encode(record, self.epoch)
        produce = partial(
            self._producer.produce, self._connection.control, value, partition=0, on_delivery=delivered
        )
        with self._connection.errors("write to"):
            # No interrupt falls between the sending and the note of it.
            _core.holding(self._lock, at_once, produce, partial(self.unanswered.add, number))


@dataclass(slots=True, eq=False)
class Sent:
    """A message that was sent: the positions of its entries in a call, and what became of them."""

    positions: Sequence[int]
    outcomes: Sequence[Appended | InputError] | None = None
    error: str | None = None


class EventProducer:
    """lock: of the log. partitions: of the topic."""

    def __init__(self, topic: str, partitions: int, producer: Producer, lock: threading.Condition) -> None:
        self._topic, self._partitions, self._producer, self._lock = topic, partitions, producer, lock
        self._sent: dict[bytes, Sent] = {}
        self._numbers = itertools.count()
        self._process = os.urandom(8)

    def send(self, value: bytes, positions: Sequence[int]) -> Sent:
        """Sends one message, with the entries at `positions`. Raises KafkaException or BufferError."""
        one = Sent(positions)
        at = next(self._numbers)
        number = self._process + at.to_bytes(8, "little")

        def note(error: KafkaError | None, message: KafkaMessage) -> None:
            if error is not None:
                with self._lock:
                    self._sent.pop(number, None)
                    one.error = error.str()
                    self._lock.notify_all()

        def produce() -> None:
            self._sent[number] = one
            self._producer.produce(
                self._topic,
                value,
                partition=at % self._partitions,
                headers=[(HEADER, number)],
                on_delivery=note,
            )

        _core.settled(produce, partial(self._sent.pop, number, None))  # then no thread waits for it
        return one

    def answer(self, number: bytes, became: Sequence[Appended | InputError]) -> None:
        """Says what became of the entries of a message, if it was sent from here. Needs the lock."""
        sent = self._sent.pop(number, None)
        if sent is not None:
            sent.outcomes = became
