"""A Kafka topic as a sink: for each row a message whose key is the node's id.

A write is a transaction, and a sink has an id for its transactions. So a process that was replaced, or a
request that was delayed by the network, writes nothing after a newer one: rows of a node keep their order.
"""

import json
import logging
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]  # as connection.py

from livegnn.connectors.sink import PredictionRows, SinkError
from livegnn.log.idempotency import check_origin
from livegnn.log.kafka.connection import Connection, Settings

_logger = logging.getLogger(__name__)

_SECONDS: Final = 10.0
_LARGEST: Final = 1 << 20  # bytes of a message
_LINGER: Final = 100  # milliseconds: a write is a few large requests, of which the last is flushed
_WAITING: Final = 10_000  # messages between two looks at what was delivered


class KafkaTopicSink:
    """Writes to `topic` at the brokers `servers`, in transactions named after `name`, the sink's.

    The key of a message is the id of its node as JSON, its value the row as JSON. The message of a removed
    node has no value. The topic must exist; compacted, it keeps the newest row of each node. settings: of
    librdkafka, as for encryption. Raises `InputError` for a wrong name.
    """

    def __init__(self, servers: str, topic: str, *, name: str, settings: Settings | None = None) -> None:
        check_origin((name, 0, 0))
        self._connection = Connection(servers, topic, settings or {}, "the topic", SinkError)
        self._transactions = f"livegnn-sink-{topic}-{name}"
        self._producer: Producer | None = None
        self._checked = False

    def write(self, rows: PredictionRows) -> None:
        """Writes a transaction. Raises `SinkError`."""
        try:
            producer = self._open()
            with self._connection.errors("write to"):
                self._send(producer, rows)
        except BaseException:
            self._producer = None  # the next one ends its transaction
            raise

    def close(self) -> None:
        self._producer = None

    def _open(self) -> Producer:
        if self._producer is not None:
            return self._producer
        if not self._checked:
            self._check_topic()
        producer = self._connection.producer(_LARGEST, self._transactions, linger=_LINGER)
        with self._connection.errors("reach"):
            producer.init_transactions(_SECONDS)
        self._producer = producer
        return producer

    def _send(self, producer: Producer, rows: PredictionRows) -> None:
        errors: list[KafkaError] = []
        note: Callable[[KafkaError | None, object], None] = lambda error, _: (  # noqa: E731
            None if error is None else errors.append(error)
        )
        producer.begin_transaction()
        removed = rows.removed.tolist()
        for at, (id, line) in enumerate(zip(rows.ids, rows.lines(), strict=True)):
            value = None if removed[at] else line[:-1]
            key = json.dumps(id, ensure_ascii=False).encode()
            producer.produce(self._connection.topic, value, key=key, on_delivery=note)
            if at % _WAITING == 0:
                producer.poll(0)
        if producer.flush(_SECONDS):
            raise TimeoutError
        if errors:
            raise KafkaException(errors[0])
        producer.commit_transaction(_SECONDS)

    def _check_topic(self) -> None:
        """Raises `SinkError` if the topic is missing; warns if it is not compacted."""
        topic = self._connection.topic
        admin = self._connection.admin()
        with self._connection.errors("reach"):
            found = admin.list_topics(timeout=_SECONDS).topics.get(topic)
            if found is None or found.error is not None:
                raise SinkError(
                    f"{self._connection.name} must exist, got none: make it, with cleanup.policy=compact to "
                    "keep the newest row of each node"
                )
            resource = ConfigResource(ResourceType.TOPIC, topic)
            (future,) = admin.describe_configs([resource], request_timeout=_SECONDS).values()
            policy = str(self._connection.result(future)["cleanup.policy"].value)
        if "compact" not in policy:
            _logger.warning(
                "%s has cleanup.policy=%s: it loses rows with time; with compact it keeps the newest of each "
                "node",
                self._connection.name,
                policy,
            )
        self._checked = True
