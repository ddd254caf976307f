"""One process owns a log: it is the one member of a consumer group, which the broker watches.

The broker notices the death of a process after `SESSION_SECONDS`, so a start after a crash waits that long;
one after `release` does not. Not this but the epoch decides which records count (see `history`).
"""

import time
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConsumerGroupDescription  # type: ignore[attr-defined]

from livegnn.errors import LogError
from livegnn.log.kafka.connection import Connection, passes

SESSION_SECONDS: Final = 6  # the least that a broker allows by default
_PATIENCE: Final = 4.0  # seconds more, for the broker to notice


class TopicOwner:
    """Makes this process the owner, until `release`. Raises LogError while another one is.

    Thread safety: none.
    """

    def __init__(self, connection: Connection, other: str) -> None:
        """other: what is known of the present owner."""
        self._group = f"livegnn-{connection.topic}-owner"
        self._connection = connection
        self._assigned = False
        self._wait_for_end(time.monotonic() + SESSION_SECONDS + _PATIENCE, other)
        self._consumer = Consumer(
            {
                **connection._common(),
                "group.id": self._group,
                "client.id": "livegnn-owner",
                "enable.auto.commit": False,
                "session.timeout.ms": 1000 * SESSION_SECONDS,
                "heartbeat.interval.ms": 1000,
                # The present owner keeps the partition when another process joins.
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        try:
            self._consumer.subscribe([connection.control], on_assign=self._assign)
            deadline = time.monotonic() + SESSION_SECONDS + _PATIENCE
            while not self._assigned:
                self.poll(0.05)
                if time.monotonic() > deadline:
                    raise _refused(connection, other)
        except BaseException:
            self.release()
            raise

    def poll(self, timeout: float) -> None:
        """Reports to the broker that this process lives; to be called at least every few minutes."""
        with self._connection.errors("own"):
            self._consumer.poll(timeout)

    def release(self) -> None:
        """Lets another process own the log at once."""
        self._consumer.close()

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._assigned = True
            consumer.incremental_assign(partitions)
            consumer.pause(partitions)

    def _wait_for_end(self, deadline: float, other: str) -> None:
        """Waits until the group has no member. Raises LogError if it still has one."""
        admin = self._connection.admin()
        while True:
            with self._connection.errors("own"):
                try:
                    future = admin.describe_consumer_groups([self._group])[self._group]
                    described: ConsumerGroupDescription = self._connection.result(future)
                    members = len(described.members)
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                        return
                    if not passes(error.args[0]) or time.monotonic() > deadline:
                        raise
                    members = -1
            if not members:
                return
            if time.monotonic() > deadline:
                raise _refused(self._connection, other)
            time.sleep(0.2)


def _refused(connection: Connection, other: str) -> LogError:
    return LogError(
        f"{connection.name} must have one owner, got a second one: {other or 'another process'} runs on it. "
        "Stop that process first"
    )
