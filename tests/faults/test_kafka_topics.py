"""Topics that change under the source that reads them, on a real broker: made anew, deleted, trimmed, shared.

Nothing of another topic is stored as this one's, and whoever runs the source is told what is lost.
"""

import ast
import itertools
import math
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from kafka_broker import Broker, needs_broker
from kafka_reading import (
    TOPICS,
    Produced,
    Reading,
    end_of,
    make_topic,
    wait_for,
    with_source,
)
from livegnn.cli import app
from livegnn.connectors import kafka as connector
from livegnn.connectors import kafka_partitions
from livegnn.connectors.kafka import KafkaTopic
from livegnn.deployment import Deployment
from livegnn.errors import InputError, SourceError
from livegnn.log.sqlite import SqliteLog
from ports import closed_port
from serving import write_deployment

pytestmark = [pytest.mark.xdist_group("kafka"), needs_broker]


def start_fails(one: Reading, message: str) -> None:
    one.begin()
    with pytest.raises(SourceError, match=message):
        one.source.start()
    one.end()


def test_topics_that_cannot_be_read_on_are_named_at_the_start(
    broker: Broker, reading: Callable[..., Reading]
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 2})
    one = reading(next(TOPICS), name="mine")
    start_fails(one, f"the topic '{one.topic}' at .* must be there before it is read, got no such topic")
    assert one.topic not in admin.list_topics().topics
    produced = Produced(broker.servers, make_topic(broker, 2))
    one.topic = produced.topic
    for at in range(20):
        produced.send(at % 2)
    produced.flush()
    one.begin()
    one.source.start()
    wait_for(lambda: one.log.last_seq() == 20)
    one.end()
    start_fails(
        Reading(one.open_log, broker, make_topic(broker), one.settings),
        f"the source 'mine' must read the topic '{produced.topic}', of which .* a source of another name",
    )
    for at in range(20):
        produced.send(at % 2)
    produced.flush()
    admin.delete_records([TopicPartition(produced.topic, 1, 15)])[
        TopicPartition(produced.topic, 1, 15)
    ].result()
    start_fails(
        one,
        "must have the messages of partition 1 from 10 on, got those from 15 on: the others were deleted "
        "before they were read.*livegnn log skip DEPLOYMENT.TOML mine 1 15",
    )
    admin.delete_topics([produced.topic])[produced.topic].result()
    wait_for(lambda: produced.topic not in admin.list_topics().topics)
    admin.create_topics([NewTopic(produced.topic, 2, 1)])[produced.topic].result()
    end_of(broker, produced.topic, 2)
    start_fails(one, "must be the topic with the id .*: it was deleted and made again")
    one.log = one.open_log()
    one.log.bind({"topic id/mine": ""}, replace=True)
    one.log.close()
    start_fails(one, "must have 10 messages in partition 0, as many as were read, got 0: it is another topic")


def remake(broker: Broker, topic: str, count: int) -> None:
    """Deletes a topic and makes another one of its name."""
    admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 2})
    admin.delete_topics([topic])[topic].result()
    wait_for(lambda: topic not in admin.list_topics().topics)
    admin.create_topics([NewTopic(topic, count, 1)])[topic].result()
    end_of(broker, topic, count)


def test_a_topic_that_was_made_anew_is_refused_however_long_it_is(
    broker: Broker, reading: Callable[..., Reading]
) -> None:
    old = Produced(broker.servers, make_topic(broker))
    one = reading(old.topic, name="mine")
    for _ in range(3):
        old.send(0)
    old.flush()
    one.begin()
    one.source.start()
    wait_for(lambda: one.log.last_seq() == 3)
    one.end()
    remake(broker, old.topic, 1)
    new = Produced(broker.servers, old.topic)
    for _ in range(5):
        new.send(0)
    new.flush()
    start_fails(one, r"it was deleted and made again\..* a source of another name; .*'topic id/mine': ''")
    one.begin()
    assert (one.log.last_seq(), one.log.position("mine", 0)) == (3, 2)
    one.log.bind({"topic id/mine": ""}, replace=True)  # as a log has it that was written before this
    one.source.start()
    wait_for(lambda: one.log.last_seq() == 5)
    one.end()
    remake(broker, old.topic, 1)
    start_fails(one, "it was deleted and made again")  # the log has taken the id


def test_a_topic_that_is_made_anew_while_it_is_read(
    broker: Broker, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "_LOOK_SECONDS", 0.0)
    one = reading(make_topic(broker), name="mine")
    one.begin()
    one.source.start()
    remake(broker, one.topic, 1)
    wait_for(lambda: "it was deleted and made again" in str(one.source.failure))
    assert isinstance(one.source.failure, SourceError)
    new = Produced(broker.servers, one.topic)
    for count in (3, 5):  # what nobody reads any more is counted, also what comes later
        for _ in range(count):
            new.send(0)
        new.flush()
        wait_for(lambda: sum(one.source.lag.values()) == len(new.good[0]))
    one.end()


@pytest.mark.parametrize(("before", "after"), [(10, 30), (10, 11), (3, 1), (0, 5)])
def test_nothing_of_a_topic_made_anew_is_stored_as_the_old_one_s(
    broker: Broker,
    reading: Callable[..., Reading],
    monkeypatch: pytest.MonkeyPatch,
    before: int,
    after: int,
) -> None:
    """However soon its messages arrive, and whether they stand where the source goes on, or before it."""
    monkeypatch.setattr(connector, "_LOOK_SECONDS", 3600.0)
    old = Produced(broker.servers, make_topic(broker))
    for _ in range(before):
        old.send(0)
    old.flush()
    one = reading(old.topic, name="mine")
    one.begin()
    one.source._partitions.open()
    wait_for(lambda: one.source._read_on() or one.log.last_seq() == before)
    # As if the network were away meanwhile: the client is not told, and asks for the next offset then.
    client, place = one.source._partitions._consumer, [TopicPartition(old.topic, 0, before)]
    client.incremental_unassign(place)
    remake(broker, old.topic, 1)
    new = Produced(broker.servers, old.topic, numbers=itertools.count(1000))
    for _ in range(after):
        new.send(0)
    new.flush()
    client.incremental_assign(place)
    with pytest.raises(SourceError, match="it was deleted and made again") as refused:
        wait_for(lambda: one.source._read_on() or one.log.last_seq() > before)
    one.source.stop()
    has = f"the former up to offset {before - 1} of partition 0" if before else "nothing of the former"
    assert f"The log has {has}, and nothing of the latter" in str(refused.value)
    old.good.setdefault(0, [])
    if before:
        old.check(one.log)
    other = KafkaTopic(one.runtime, broker.servers, old.topic, name="other")  # as the refusal advises
    other.start()
    wait_for(lambda: one.log.last_seq() == before + after)
    other.stop()
    old.good[0] += new.good[0]
    old.check(one.log)
    one.end()


def test_the_id_of_a_topic_is_not_asked_for_with_each_message(
    broker: Broker, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = reading(make_topic(broker), name="mine")
    one.begin()
    one.source._looked = math.inf  # so that it asks because of messages alone
    monkeypatch.setattr(kafka_partitions, "ASK_EVERY_SECONDS", 0.5)
    read = one.source._partitions
    read.open()
    asked, find_id = [], read._find_id

    def note() -> str:
        asked.append(time.monotonic())
        return find_id()

    monkeypatch.setattr(read, "_find_id", note)
    produced = Produced(broker.servers, one.topic)

    def send() -> None:
        for _ in range(200):
            produced.send(0)
            produced.flush()

    sender = threading.Thread(target=send)
    sender.start()
    wait_for(lambda: one.source._read_on() or one.log.last_seq() == 200)
    sender.join()
    assert asked
    assert all(
        later - earlier >= kafka_partitions.ASK_EVERY_SECONDS for earlier, later in itertools.pairwise(asked)
    )
    produced.check(one.log)
    one.source.stop()
    one.end()


def test_one_topic_is_read_by_one_source_of_a_log(
    broker: Broker, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    produced = Produced(broker.servers, make_topic(broker))
    produced.send(0)
    produced.flush()
    one = reading(produced.topic, name="mine")
    one.begin()
    one.source.start()
    wait_for(lambda: one.log.last_seq() == 1)
    again = KafkaTopic(one.runtime, broker.servers, produced.topic, name="again")
    with pytest.raises(InputError, match="must be read by one source, got 'again' beside 'mine'"):
        again.start()
    one.end()
    one.begin()  # and when that one does not run, and by another address of the same brokers
    address = broker.servers.replace("127.0.0.1", "localhost")
    for servers in (broker.servers, address):
        again = KafkaTopic(one.runtime, servers, produced.topic, name="again")
        with pytest.raises(
            SourceError, match="read only by the source 'mine' of this log, got 'again'"
        ) as refused:
            again.start()
    produced.check(one.log, "mine")
    # What the refusal says: the log forgets the other one, and reads the topic once more.
    forgotten = re.search(r"log\.bind\((\{.*?\}), replace=True\)", str(refused.value))
    assert forgotten is not None
    one.log.bind(ast.literal_eval(forgotten[1]), replace=True)
    again = KafkaTopic(one.runtime, broker.servers, produced.topic, name="again")
    again.start()
    wait_for(lambda: one.log.last_seq() == 2)
    again.stop()
    # Under its own name a source that the log has forgotten goes on where it was.
    one.log.bind({"source/again": "", "topic id/again": ""}, replace=True)
    one.source.start()
    produced.send(0)
    produced.flush()
    wait_for(lambda: one.log.last_seq() == 3)
    one.end()


def test_a_partition_that_is_trimmed_while_it_is_read(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source ends and says so; where the place is there after all, it goes on there."""
    monkeypatch.setattr(connector, "_LOOK_SECONDS", 0.0)
    produced = Produced(broker.servers, make_topic(broker, 2))
    for at in range(20):
        produced.send(at % 2)
    produced.flush()
    one = Reading(lambda: SqliteLog(tmp_path / "events.db"), broker, produced.topic)
    one.begin()
    one.source.start()
    wait_for(lambda: one.log.last_seq() == 20)
    reads = one.source._partitions
    places = [TopicPartition(produced.topic, 1, 900)]  # where there is nothing
    reads._consumer.incremental_unassign(places)
    reads._consumer.incremental_assign(places)
    produced.send(0)
    produced.send(1)
    produced.flush()
    wait_for(lambda: one.log.last_seq() == 22)
    produced.check(one.log)
    assert one.source.failure is None
    reads._consumer.incremental_unassign(places)
    produced.send(1)
    produced.send(1)
    produced.flush()
    wait_for(lambda: reads.lag[1] == 2)
    admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 2})
    place = TopicPartition(produced.topic, 1, 12)
    admin.delete_records([place])[place].result()
    reads._consumer.incremental_assign([TopicPartition(produced.topic, 1, 11)])
    wait_for(lambda: one.source.failure is not None)
    assert isinstance(one.source.failure, SourceError)
    assert "messages of partition 1 from 11 on, got those from 12 on" in str(one.source.failure)
    assert one.runtime.failure is None
    one.end()


def test_a_topic_that_is_deleted_while_it_is_read(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(connector, "_RETRY_SECONDS", 0.0)
    produced = Produced(broker.servers, make_topic(broker, 2))
    produced.send(0)
    produced.flush()
    one = Reading(lambda: SqliteLog(tmp_path / "events.db"), broker, produced.topic)
    one.begin()
    one.source.start()
    wait_for(lambda: one.log.last_seq() == 1)
    admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 2})
    admin.delete_topics([produced.topic])[produced.topic].result()
    wait_for(lambda: one.source.failure is not None)
    gone = f"{produced.topic!r} at {broker.servers} must be there, got no such topic"
    assert gone in str(one.source.failure), "health is red before the topic is given up"
    assert gone in one.runtime.readiness().reasons[f"source {one.source.name}"]
    assert one.source._failure is None
    monkeypatch.setattr(kafka_partitions, "_MISSING_SECONDS", 0.5)
    wait_for(lambda: one.source._failure is not None)
    assert gone in str(one.source.failure)
    assert produced.topic not in admin.list_topics().topics
    one.end()


def test_an_operator_lets_a_source_go_on_without_what_was_deleted(broker: Broker, tmp_path: Path) -> None:
    deployment, produced = write_deployment(tmp_path), Produced(broker.servers, make_topic(broker, 1))
    with_source(deployment, broker, produced.topic)
    settings = Deployment.read(deployment)
    admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 2})

    def read_up_to(seq: int) -> None:
        runtime = settings.open()
        runtime.start()
        (source,) = settings.connect(runtime)
        try:
            source.start()
            wait_for(lambda: runtime.log.last_seq() == seq)
        finally:
            source.stop()
            runtime.stop()
            runtime.log.close()

    read_up_to(0)
    value = b'{"event": "remove_node", "id": 3}'
    for _ in range(10):
        produced.producer.produce(produced.topic, value, partition=0)
    produced.flush()
    place = TopicPartition(produced.topic, 0, 4)
    admin.delete_records([place])[place].result()
    with pytest.raises(SourceError, match=r"livegnn log skip DEPLOYMENT\.TOML orders 0 4"):
        read_up_to(6)
    said = CliRunner().invoke(app, ["log", "skip", str(deployment), "orders", "0", "4"])
    assert said.output == "orders continues at 4 in partition 0, without 4 messages\n"
    read_up_to(6)
    log = settings.log.open()
    assert log.position("orders", 0) == 9
    assert [one[1:5] for one in log.bad_messages()] == [
        ("orders", 0, 3, "messages 0 to 3 were skipped on request")
    ]
    log.close()
    for given, message in (
        (["orders", "0", "9"], "must be after 10, where the source 'orders' continues in partition 0, got 9"),
        (["others", "0", "99"], "which are orders, got 'others'"),
        (
            ["orders", "0", "11"],
            "must have the messages that are skipped, got 11: its partition 0 ends at 10",
        ),
        (["orders", "1", "4"], "must have the partition that is named, one of [0], got 1"),
    ):
        failed = CliRunner().invoke(app, ["log", "skip", str(deployment), *given])
        assert message in str(failed.exception)
    read_up_to(6)
    away = deployment.with_name("away.toml")
    away.write_text(
        deployment.read_text(encoding="utf-8").replace(broker.servers, f"127.0.0.1:{closed_port()}"),
        encoding="utf-8",
    )
    said = CliRunner().invoke(app, ["log", "skip", str(away), "orders", "0", "11"])
    assert "was not asked: cannot reach the topic" in said.output
    assert said.output.endswith("orders continues at 11 in partition 0, without 1 messages\n")
