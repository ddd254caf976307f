"""What the tests on Kafka share: one broker, and sources on logs of either kind."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kafka_broker import Broker
from kafka_reading import LARGEST, TOPICS, AnyLog, Reading, alter
from livegnn.errors import LiveGNNError
from livegnn.log.kafka import KafkaLog, create_topics
from livegnn.log.sqlite import SqliteLog


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    one = Broker()
    yield one
    one.close()


@pytest.fixture(params=["SQLite", "Kafka"])
def reading(
    request: pytest.FixtureRequest, broker: Broker, tmp_path: Path
) -> Iterator[Callable[..., Reading]]:
    """Makes a source, on a log of each kind."""
    name = next(TOPICS)
    if request.param == "Kafka":
        create_topics(broker.servers, name, 3)
        admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 2})
        alter(admin, name, "max.message.bytes", str(LARGEST))
    made: list[Reading] = []

    def open_log() -> AnyLog:
        return (
            KafkaLog(broker.servers, name) if request.param == "Kafka" else SqliteLog(tmp_path / "events.db")
        )

    def make(topic: str, **settings: object) -> Reading:
        made.append(Reading(open_log, broker, topic, settings))
        return made[-1]

    yield make
    for one in made:
        with contextlib.suppress(AttributeError, LiveGNNError):
            one.end()
