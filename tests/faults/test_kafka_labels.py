"""Labels out of a Kafka topic, on a real broker: none is lost or skipped silently, over restarts."""

import json
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from kafka_broker import Broker, needs_broker
from kafka_reading import TOPICS, add_partitions, deliver, make_topic, wait_for
from livegnn.cli import app
from livegnn.connectors.row_messages import parse_row
from livegnn.deployment import Deployment
from livegnn.deployment.quality_monitor import start_quality
from livegnn.deployment.sinks import start_sinks
from livegnn.quality.label_mapping import LabelMapping
from livegnn.quality.label_pages import BAD, LabelPages, read_label_pages
from livegnn.quality.label_topic import LabelTopic
from livegnn.quality.labels import LabelReader, join_latest
from serving import write_deployment
from streams import make_graph

pytestmark = [pytest.mark.xdist_group("kafka"), needs_broker]


def topic_into(folder: Path, broker: Broker, topic: str) -> LabelTopic:
    mapping = LabelMapping("id", "fraud")
    reader = LabelReader(mapping, "[labels.fraud]", text_ids=False)
    pages = LabelPages(folder, text_ids=False)
    return LabelTopic(pages, reader, parse_row, broker.servers, topic, every_seconds=0.0)


def labels_in(folder: Path) -> dict[int, float]:
    found = join_latest(read_label_pages(folder)[0])
    return dict(zip(found.ids.to_pylist(), found.values.tolist(), strict=True))


def label(id: int, fraud: object) -> bytes:
    return json.dumps({"id": id, "fraud": fraud}).encode()


def wait_until_read(reading: LabelTopic, folder: Path, labels: dict[int, float], bad: int) -> None:
    wait_for(lambda: labels_in(folder) == labels)
    wait_for(lambda: read_label_pages(folder)[1].bad == bad)
    wait_for(lambda: reading.lag and not sum(reading.lag.values()))


def fail(reading: LabelTopic) -> str:
    """Reads until that fails; returns the reason."""
    reading.start()
    wait_for(lambda: reading.failure)
    reading.stop()
    assert reading.reason == str(reading.failure)
    return reading.reason


def test_labels_are_read_once_over_restarts(broker: Broker, tmp_path: Path) -> None:
    topic, expected, bad = make_topic(broker, 2), {}, 0
    for round in range(3):
        if round == 2:
            add_partitions(broker, topic, 3)
        count = 3 if round == 2 else 2
        ids = range(50 * round if round < 2 else 200, 100 * (1 + round))
        messages = [(id % count, label(id, (id + round) % 2)) for id in ids]
        expected |= {json.loads(value)["id"]: json.loads(value)["fraud"] for _, value in messages}
        deliver(broker, topic, [*messages, (0, b"?"), (1, label(1, "x"))])
        bad += 2
        reading = topic_into(tmp_path, broker, topic)
        reading.start()
        wait_until_read(reading, tmp_path, expected, bad)
        assert (reading.failure, reading.waits, reading.reason) == (None, None, None)
        reading.stop()
        reading.stop()
    progress = read_label_pages(tmp_path)[1]
    assert sum(at + 1 for at in progress.positions.values()) == 100 + 150 + 100 + bad


def test_labels_that_no_page_has_are_read_again(broker: Broker, tmp_path: Path) -> None:
    topic = make_topic(broker)
    deliver(broker, topic, [(0, label(1, 0))])
    reading = topic_into(tmp_path, broker, topic)
    reading._pages.flush = lambda: None  # a process that is killed before it writes a page
    reading.start()
    wait_for(lambda: reading._pages.waiting)
    reading.stop()
    assert labels_in(tmp_path) == {}
    reading = topic_into(tmp_path, broker, topic)
    reading.start()
    wait_for(lambda: labels_in(tmp_path) == {1: 0})
    reading.stop()


def test_another_topic_and_a_missing_one_are_refused(broker: Broker, tmp_path: Path) -> None:
    topic = make_topic(broker)
    reading = topic_into(tmp_path, broker, topic)
    reading.start()
    wait_for(lambda: read_label_pages(tmp_path)[1].bound)
    reading.stop()
    for other in (make_topic(broker), next(TOPICS)):
        assert f"must read the topic {topic!r}" in fail(topic_into(tmp_path, broker, other))
    assert "got no such topic" in fail(topic_into(tmp_path / "new", broker, next(TOPICS)))


def test_messages_that_were_deleted_are_named(broker: Broker, tmp_path: Path) -> None:
    topic = make_topic(broker)
    reading = topic_into(tmp_path, broker, topic)
    reading.start()
    wait_for(lambda: read_label_pages(tmp_path)[1].bound)
    reading.stop()
    deliver(broker, topic, [(0, label(at, 0)) for at in range(5)])
    admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 2})
    admin.delete_records([TopicPartition(topic, 0, 3)])[TopicPartition(topic, 0, 3)].result()
    reason = fail(topic_into(tmp_path, broker, topic))
    assert "give [labels.fraud] another name, and its labels are read again from offset 3 on" in reason


def test_a_deployment_reads_its_topic(broker: Broker, tmp_path: Path) -> None:
    topic, path = make_topic(broker), write_deployment(tmp_path)
    id = int(make_graph().ids()[0])
    deliver(broker, topic, [(0, label(id, 1)), (0, b"?")])
    with path.open("a") as file:
        file.write(
            '[sinks.history]\nkind = "parquet"\ndirectory = "record"\nevery_seconds = 0.1\n'
            f'[labels.fraud]\nkafka = "{broker.servers}"\ntopic = "{topic}"\nid = "id"\nlabel = "fraud"\n'
            'scores = "ranks"\n[quality]\ndirectory = "out"\n'
        )
    settings = Deployment.read(path)
    runtime = settings.open()
    runtime.start()
    start_sinks(runtime)
    monitor = start_quality(settings, runtime)
    assert monitor is not None
    wait_for(lambda: not runtime.sinks["history"].lag)
    (reading,) = monitor._topics
    wait_for(lambda: reading.lag and not sum(reading.lag.values()))
    assert monitor.failure is None
    monitor.stop()
    runtime.stop()
    runtime.log.close()
    done = CliRunner().invoke(app, ["quality", str(path)])
    assert done.exit_code == 0, done.output
    _, head, row, without = [line.split() for line in done.stdout.splitlines()[:4]]
    assert dict(zip(head[1:3], row[1:3], strict=True)) == {"model": "engine", "labels": "1"}
    assert without == ["1", "labels", "without:", *BAD.split()]
