"""A source of Kafka messages on a log of either kind, and what was produced for it.

What was produced is kept, by partition and offset.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from kafka_broker import Broker
from livegnn import Graph
from livegnn.connectors.kafka import KafkaTopic
from livegnn.log.kafka import KafkaLog
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from waiting import PATIENCE

LARGEST = 20_000  # bytes of an entry of a log in Kafka here


TOPICS = map("stream{}".format, itertools.count())


AnyLog = SqliteLog | KafkaLog


def wait_for(ready: Callable[[], object], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def make_topic(broker: Broker, count: int = 1, **settings: str) -> str:
    name = next(TOPICS)
    admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 2})
    admin.create_topics([NewTopic(name, count, 1, config=settings)])[name].result()
    return name


def end_of(broker: Broker, topic: str, count: int) -> None:
    """Returns when the broker shows `count` partitions."""
    admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 2})
    wait_for(lambda: len(admin.list_topics(topic).topics[topic].partitions) == count)


def add_partitions(broker: Broker, topic: str, count: int) -> None:
    """Returns when the broker shows `count` partitions, so that new clients can write to each."""
    admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 2})
    admin.create_partitions([NewPartitions(topic, count)])[topic].result()
    end_of(broker, topic, count)


def _check_delivered(error: object, _message: object) -> None:
    assert error is None, error


def deliver(broker: Broker, topic: str, messages: Iterable[tuple[int, bytes]]) -> None:
    """Writes messages, each to its partition, by a new client; returns when all were stored."""
    producer = Producer({"bootstrap.servers": broker.servers, "log_level": 2})
    for partition, value in messages:
        producer.produce(topic, value, partition=partition, on_delivery=_check_delivered)
    assert producer.flush(PATIENCE) == 0


@dataclass
class Produced:
    """What was written to a topic, by partition: good ones as their edges, bad ones by their offset."""

    servers: str
    topic: str
    good: dict[int, list[list[int]]] = field(default_factory=dict)
    bad: dict[tuple[int, int], bytes] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        # Without idempotence, what a broker took just before it was killed is sent again, and is there twice.
        self.producer = Producer(
            {"bootstrap.servers": self.servers, "log_level": 2, "enable.idempotence": True}
        )

    def send(self, partition: int, lines: int = 1) -> None:
        """A good message of so many events."""
        numbers = [next(self.numbers) for _ in range(lines)]
        self.good.setdefault(partition, []).append(numbers)
        text = [json.dumps({"event": "add_edge", "src": number, "dst": number + 1}) for number in numbers]
        self.producer.produce(self.topic, "\n".join(text).encode(), partition=partition)

    def send_bad(self, partition: int, value: bytes | None) -> None:
        def note(error: object, message: object) -> None:
            assert error is None
            self.bad[partition, message.offset()] = value or b""

        self.producer.produce(self.topic, value, partition=partition, on_delivery=note)

    def flush(self) -> None:
        assert self.producer.flush(60) == 0

    @property
    def events(self) -> int:
        return sum(len(numbers) for messages in self.good.values() for numbers in messages)

    def check(self, log: AnyLog, source: str | None = None) -> None:
        """The log has this and nothing else."""
        entries = [
            list(itertools.chain.from_iterable(chunk.ids.tolist() for chunk in entry.events.chunks))
            for entry in log.entries(0)
        ]
        partition_of = {
            numbers[0]: partition for partition, messages in self.good.items() for numbers in messages
        }
        by_partition: dict[int, list[list[int]]] = {}
        for numbers in entries:
            by_partition.setdefault(partition_of[numbers[0]], []).append(numbers)
        assert by_partition == self.good
        listed = [
            (one.source, one.partition, one.offset, one.payload, one.size) for one in log.bad_messages()
        ]
        assert sorted(listed) == [
            (source or self.topic, *place, value[:1024], len(value))
            for place, value in sorted(self.bad.items())
        ]
        assert [one.number for one in log.bad_messages()] == list(range(1, len(self.bad) + 1))


@dataclass
class Reading:
    """A log with a runtime and a source on it, which can be ended and begun again."""

    open_log: Callable[[], AnyLog]
    broker: Broker
    topic: str
    settings: dict[str, object] = field(default_factory=dict)
    log: AnyLog = field(init=False)
    runtime: Runtime = field(init=False)
    source: KafkaTopic = field(init=False)

    def begin(self, *, start: bool = True, **runtime: object) -> None:
        self.log = self.open_log()
        self.runtime = Runtime(self.log, Graph(), auto_add=["node"], **runtime)
        if start:
            self.runtime.start()
        self.source = KafkaTopic(self.runtime, self.broker.servers, self.topic, **self.settings)

    def end(self) -> None:
        self.source.stop()
        self.runtime.stop()
        self.log.close()


def alter(admin: AdminClient, topic: str, name: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()


def with_source(deployment: Path, broker: Broker, topic: str, log: Sequence[str] = ()) -> None:
    text = deployment.read_text(encoding="utf-8")
    if log:
        text = text.replace('[log]\npath = "events.db"', "\n".join(["[log]", *log]))
    source = f'[sources.orders]\nkafka = "{broker.servers}"\ntopic = "{topic}"\n'
    deployment.write_text(text + source, encoding="utf-8")
