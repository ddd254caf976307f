"""A Kafka topic as a sink, on a real broker: it ends with the predictions of the service, whatever dies."""

import json
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_broker import Broker, needs_broker
from kafka_reading import TOPICS, make_topic
from livegnn.connectors.kafka_sink import KafkaTopicSink
from livegnn.connectors.sink import PredictionRows
from streams import make_stream
from waiting import wait_until
from with_sink import Running, assert_equal

pytestmark = [pytest.mark.xdist_group("kafka"), needs_broker]

COMPACT = {"cleanup.policy": "compact"}


class Contents:
    """What a reader of committed messages finds in a topic."""

    def __init__(self, broker: Broker, topic: str) -> None:
        settings = {
            "bootstrap.servers": broker.servers,
            "group.id": "test",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        consumer = Consumer(settings)
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        self.newest: dict[int | str, dict[str, object] | None] = {}
        ended: set[int] = set()
        partition_of: dict[int | str, int] = {}
        while len(ended) < len(partitions):
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                ended.add(message.partition())
                continue
            id, value = json.loads(message.key()), message.value()
            assert partition_of.setdefault(id, message.partition()) == message.partition()
            record = None if value is None else json.loads(value)
            before = self.newest.get(id)
            assert record is None or record["id"] == id
            assert record is None or before is None or before["seq"] <= record["seq"], "in order for a node"
            self.newest[id] = record
        consumer.close()

    @property
    def predictions(self) -> dict[int | str, np.ndarray]:
        there = {id: record for id, record in self.newest.items() if record is not None}
        return {id: np.array(record["prediction"], np.float32) for id, record in there.items()}


@pytest.mark.parametrize("text", [False, True])
def test_the_topic_is_as_the_service_answers(broker: Broker, tmp_path: Path, text: bool) -> None:
    topic = make_topic(broker, 3, **COMPACT)
    running = Running(tmp_path, KafkaTopicSink(broker.servers, topic, name="a"), text=text, most_rows=11)
    for events in make_stream(60, text=text):
        running.append(events)
    running.wait_until_sent()
    contents = Contents(broker, topic)
    assert_equal(contents.predictions, running)
    assert None in contents.newest.values(), "removed nodes"
    running.stop()


def test_the_broker_may_die_and_return(broker: Broker, tmp_path: Path) -> None:
    topic = make_topic(broker, 2, **COMPACT)
    running = Running(tmp_path, KafkaTopicSink(broker.servers, topic, name="a"), most_rows=5)
    stream = make_stream(40)
    running.append(*stream[:20])
    broker.kill()
    running.append(*stream[20:])
    broker.start()
    running.wait_until_sent()
    assert_equal(Contents(broker, topic).predictions, running)
    running.stop()


def test_a_process_that_was_replaced_writes_nothing(broker: Broker) -> None:
    topic = make_topic(broker, 1, **COMPACT)

    def row(seq: int) -> PredictionRows:
        return PredictionRows(
            "engine", "node", [5], np.array([seq]), np.full((1, 1), seq, np.float32), np.array([False])
        )

    old, new = (KafkaTopicSink(broker.servers, topic, name="a") for _ in range(2))
    old.write(row(1))
    new.write(row(2))
    with pytest.raises(Exception, match="cannot write to the topic"):
        old.write(row(1))
    assert Contents(broker, topic).newest[5]["seq"] == 2
    new.write(row(3))
    assert Contents(broker, topic).newest[5]["seq"] == 3


def test_a_topic_that_is_missing_or_not_compacted_is_said(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = next(TOPICS)
    running = Running(tmp_path, KafkaTopicSink(broker.servers, topic, name="a"))
    wait_until(lambda: running.view.waits)
    assert "must exist, got none: make it, with cleanup.policy=compact" in str(running.view.waits)
    admin = AdminClient({"bootstrap.servers": broker.servers})
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    running.wait_until_sent()
    assert "cleanup.policy=delete: it loses rows with time" in caplog.text
    assert_equal(Contents(broker, topic).predictions, running)
    running.stop()
