"""Messages on their way to the topic of events, and what became of their entries.

Thread safety: fields change under the lock of the log, which is notified when they do.
"""

import itertools
import os
import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as KafkaMessage

import livegnn._core as _core
from livegnn.errors import InputError
from livegnn.log import Appended

HEADER: Final = "livegnn"
"""The header of a message with a number that its producer gave it."""


class Sent:
    """A message that was sent: the positions of its entries in a call, and what became of them."""

    __slots__ = ("error", "outcomes", "positions")

    def __init__(self, positions: Sequence[int]) -> None:
        self.positions = positions
        self.outcomes: Sequence[Appended | InputError] | None = None
        self.error: str | None = None


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

        _core.settled(produce, partial(self._sent.pop, number, None))  # nobody waits for it then
        return one

    def answer(self, number: bytes, became: Sequence[Appended | InputError]) -> None:
        """Says what became of the entries of a message, if it was sent from here. Needs the lock."""
        sent = self._sent.pop(number, None)
        if sent is not None:
            sent.outcomes = became
