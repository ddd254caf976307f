"""The last applied event of a log in Kafka, for a process that reads no events.

It reads the control topic, from its beginning when it is opened, as messages arrive. Thread safety: one
thread reads, and any may close.
"""

import threading
import time
from typing import Final

from livegnn.errors import LogError
from livegnn.log.arguments import check_text
from livegnn.log.kafka.connection import Connection, Settings, read_topics
from livegnn.log.kafka.follower import Follower
from livegnn.log.kafka.history import History

_SECONDS: Final = 0.05  # that a call reads, so that who calls it does not stand still


class KafkaEnd:
    """That of the log in `topic` at `servers`. settings: further ones of librdkafka. Raises LogError."""

    def __init__(self, servers: str, topic: str, *, settings: Settings | None = None) -> None:
        self._connection = Connection(
            check_text(servers, "servers"), check_text(topic, "topic"), settings or {}
        )
        read_topics(self._connection)
        self._reading = threading.Lock()
        self._history = History()
        self._follower: Follower | None = Follower(self._connection, self._history, {})

    def read(self) -> int:
        """The last event of the last batch among the messages that have arrived. Raises LogError."""
        ends = time.monotonic() + _SECONDS
        with self._reading:
            if self._follower is None:
                raise LogError(f"cannot read {self._connection.name} any more: it was closed")
            before = -1
            while self._history.next > before and time.monotonic() < ends:
                before = self._history.next
                self._follower.skim(0.0)
                self._history.release(self._history.seq)
            return self._history.batch_ends[-1]

    def close(self) -> None:
        """Again does nothing."""
        with self._reading:
            follower, self._follower = self._follower, None
            if follower is not None:
                follower.close()
