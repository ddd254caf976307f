"""Events out of Kafka topics that others write, on a real broker: each once, in order, and none unseen.

What was produced is kept, by partition and offset. At the end the log has the events of every good message
once, those of one partition in their order, and lists every bad one once.
"""

import ast
import contextlib
import itertools
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from typer.testing import CliRunner

import loopback
from faulty_disk import FaultyDisk
from kafka_broker import Broker, needs_broker
from livegnn import Engine, Events, Graph
from livegnn.cli import app
from livegnn.connectors import kafka as connector
from livegnn.connectors import partitions
from livegnn.connectors.kafka import JsonLinesTopic
from livegnn.deployment import Deployment
from livegnn.errors import DiskFullError, InputError, LiveGNNError, SourceError
from livegnn.log.kafka import KafkaLog, create_topics
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from ports import closed_port
from serving import Server, write_deployment
from streams import make_graph, make_model, make_stream
from waiting import PATIENCE

pytestmark = [pytest.mark.xdist_group("kafka"), needs_broker]
TOPICS = map("stream{}".format, itertools.count())
LARGEST = 20_000  # bytes of an entry of a log in Kafka here
GOOD, BAD = "good", "bad"
AnyLog = SqliteLog | KafkaLog


def wait_for(ready: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
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
    source: JsonLinesTopic = field(init=False)

    def begin(self, *, start: bool = True, **runtime: object) -> None:
        self.log = self.open_log()
        self.runtime = Runtime(self.log, Graph(), auto_add=["node"], **runtime)
        if start:
            self.runtime.start()
        self.source = JsonLinesTopic(self.runtime, self.broker.servers, self.topic, **self.settings)

    def end(self) -> None:
        self.source.stop()
        self.runtime.stop()
        self.log.close()


@pytest.fixture(params=["SQLite", "Kafka"])
def reading(
    request: pytest.FixtureRequest, broker: Broker, tmp_path: Path
) -> Iterator[Callable[..., Reading]]:
    """Makes one, on a log of each kind."""
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


def alter(admin: AdminClient, topic: str, name: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()


BAD_VALUES = [
    b"nonsense",
    b"\xff\xfe",
    b'{"event": "add_edge", "src": 1}',
    b'{"event": "add_edge", "src": "text", "dst": "ids"}',
    b'{"event": "add_edge", "src": 1, "dst": 2, "weight": 0.5}',
    b'{"event": "add_edge", "src": 1, "dst": 2}\n{"event": "explode"}',
    b'{"event": "add_node", "id": 1, "node_type": "unknown"}',
    b'{"event": "add_edge", "src": 1, "dst": 2' + b" " * 3000,
]


def test_every_message_is_one_entry_or_one_bad_message(
    broker: Broker, reading: Callable[..., Reading], rng: np.random.Generator
) -> None:
    produced = Produced(broker.servers, make_topic(broker, 3))
    one = reading(produced.topic)
    for _ in range(3):
        for _ in range(400):
            partition = int(rng.integers(3))
            if rng.random() < 0.1:
                produced.send_bad(partition, BAD_VALUES[rng.integers(len(BAD_VALUES))])
            else:
                produced.send(partition, int(rng.integers(1, 4)))
        produced.producer.produce(produced.topic, b"", partition=0)  # no events, and nothing is wrong with it
        produced.producer.produce(produced.topic, None, partition=1)  # as in a compacted topic
        produced.flush()
        one.begin()
        one.source.start()
        with pytest.raises(LiveGNNError, match="can be started once"):
            one.source.start()
        wait_for(lambda: one.log.last_seq() == produced.events and not sum(one.source.lag.values()))
        wait_for(lambda: set(one.source.lag) == {0, 1, 2})
        one.runtime.wait(produced.events, PATIENCE)
        assert one.runtime.graph.num_edges() == produced.events
        assert (one.source.stored, one.source.failure, one.source.waits) == (402, None, None)
        assert one.source.tombstones == 1
        produced.check(one.log)
        other = JsonLinesTopic(one.runtime, broker.servers, produced.topic)
        with pytest.raises(InputError, match=f"different names, got {produced.topic!r} again"):
            other.start()
        assert list(one.runtime.sources) == [produced.topic]
        one.end()
        assert not one.runtime.sources


def test_a_message_that_is_too_large_for_the_log_is_a_bad_one(
    broker: Broker, reading: Callable[..., Reading]
) -> None:
    produced = Produced(broker.servers, make_topic(broker, 1))
    for _ in range(3):
        produced.send(0)
    one = reading(produced.topic)
    one.begin()
    in_kafka = isinstance(one.log, KafkaLog)
    if in_kafka:
        large = "\n".join(json.dumps({"event": "add_edge", "src": 0, "dst": at}) for at in range(2000))
        produced.send_bad(0, large.encode())
    else:
        produced.send(0, 2000)
    for _ in range(3):
        produced.send(0)
    produced.flush()
    one.source.start()
    wait_for(lambda: one.log.last_seq() == produced.events and one.source.stored == 7)
    produced.check(one.log)
    if in_kafka:
        assert "must fit into one message of" in one.log.bad_messages()[0].reason


def test_a_log_in_several_partitions_keeps_the_order_of_a_source(
    broker: Broker, reading: Callable[..., Reading]
) -> None:
    """One append makes several messages of a log in Kafka, which must not overtake each other."""
    produced = Produced(broker.servers, make_topic(broker, 1))
    for _ in range(1500):
        produced.send(0, 5)
    produced.flush()
    one = reading(produced.topic)
    one.begin()
    one.source.start()
    wait_for(lambda: one.log.last_seq() == produced.events)
    produced.check(one.log)


def test_what_is_delivered_again_is_stored_once(
    broker: Broker, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    produced = Produced(broker.servers, make_topic(broker, 2))
    one = reading(produced.topic)
    one.begin()
    one.source.start()
    for at in range(100):
        produced.send(at % 2)
        if at % 10 == 0:
            produced.send_bad(at % 2, b"{")
    produced.flush()
    wait_for(lambda: one.source.stored == 110)
    one.end()
    one.begin()
    monkeypatch.setattr(one.log, "position", lambda source, partition: None)  # reads from the beginning
    one.source.start()
    produced.send(1, 3)
    produced.flush()
    wait_for(lambda: one.log.last_seq() == produced.events and one.source.stored > 0)
    assert (one.source.stored, one.source.bad) == (1, 0)
    produced.check(one.log)


def test_an_end_between_a_commit_and_the_next_poll(
    broker: Broker, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has the messages, and whoever read them never hears of it."""
    produced = Produced(broker.servers, make_topic(broker, 2))
    one = reading(produced.topic)
    for _ in range(3):
        for at in range(50):
            produced.send(at % 2)
        produced.flush()
        one.begin()
        append_all = one.runtime.append_all

        def append_and_end(*given: object, append_all: Callable[..., object] = append_all) -> object:
            append_all(*given)
            raise RuntimeError("ended")

        monkeypatch.setattr(one.runtime, "append_all", append_and_end)
        one.source.start()
        wait_for(lambda: one.source.failure is not None)
        assert "ended" in str(one.source.failure)
        one.end()
    one.begin()
    one.source.start()
    wait_for(lambda: one.log.last_seq() == produced.events)
    produced.check(one.log)


def test_a_source_that_is_pushed_back_waits_and_skips_nothing(
    broker: Broker, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told to stop while it waits, with messages that it has and the log has not."""
    monkeypatch.setattr(connector, "_MOST_BYTES", 500)
    produced = Produced(broker.servers, make_topic(broker, 1))
    for _ in range(200):
        produced.send(0)
    produced.flush()
    one = reading(produced.topic)
    one.begin(start=False, max_waiting_events=30)
    one.source.start()
    wait_for(lambda: one.source.waits is not None)
    assert "must come no faster than they are applied" in one.source.waits
    assert 30 < one.log.last_seq() < 200
    assert one.source.failure is None
    # There is room again in the moment in which it is told to stop.
    stopping = threading.Thread(target=one.source.stop)
    stopping.start()
    wait_for(one.source._stopping.is_set)
    monkeypatch.setattr(one.runtime, "admit", lambda *given: None)
    stopping.join()
    produced.good[0], rest = produced.good[0][: one.log.last_seq()], produced.good[0]
    produced.check(one.log)
    produced.good[0] = rest
    one.end()
    one.begin(max_waiting_events=30)
    one.source.start()
    wait_for(lambda: one.log.last_seq() == 200)
    produced.check(one.log)


def test_a_full_disk_is_waited_for(broker: Broker, tmp_path: Path) -> None:
    disk = FaultyDisk("a source on a full disk")
    produced = Produced(broker.servers, make_topic(broker, 1))
    one = Reading(lambda: SqliteLog(tmp_path / "events.db", vfs=disk.name), broker, produced.topic)
    one.begin(start=False)
    one.source.start()
    produced.send(0)
    produced.flush()
    wait_for(lambda: one.log.last_seq() == 1)
    disk.full = True
    with pytest.raises(DiskFullError):
        one.log.append(Events().add_nodes(1))
    produced.send(0)
    produced.send_bad(0, b"{")
    produced.flush()
    wait_for(lambda: one.source.waits is not None)
    assert one.log.last_seq() == 1
    disk.full = False
    wait_for(lambda: one.log.last_seq() == 2 and one.source.bad == 1)
    assert one.source.waits is None
    produced.check(one.log)
    one.end()


@pytest.mark.parametrize("begin", ["first", "last"])
def test_where_a_topic_begins_that_was_never_read(
    broker: Broker, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch, begin: str
) -> None:
    """What comes while nobody reads is read, also in partitions that were empty at first, or came later."""
    monkeypatch.setattr(connector, "_LOOK_SECONDS", 0.0)
    produced = Produced(broker.servers, make_topic(broker, 2))
    before = Produced(broker.servers, produced.topic) if begin == "last" else produced
    for _ in range(5):
        before.send(0)
    before.flush()
    one = reading(produced.topic, begin=begin)
    one.begin()
    one.source.start()
    one.source.stop()
    one.end()
    for partition in (0, 1, 1):
        produced.send(partition)
    produced.flush()
    one.begin()
    one.source.start()
    wait_for(lambda: one.log.last_seq() == produced.events)
    admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 2})
    admin.create_partitions([NewPartitions(produced.topic, 4)])[produced.topic].result()
    end_of(broker, produced.topic, 4)
    produced = Produced(broker.servers, produced.topic, produced.good)
    produced.numbers = itertools.count(1000)
    produced.send(2)
    produced.flush()
    wait_for(lambda: one.log.last_seq() == produced.events)
    one.end()
    produced.send(3)
    produced.flush()
    one.begin()
    one.source.start()
    wait_for(lambda: one.log.last_seq() == produced.events)
    produced.check(one.log)


@pytest.fixture
def mortal() -> Iterator[Broker]:
    """A broker of one test, which may kill it."""
    with contextlib.closing(Broker()) as one:
        yield one


def test_a_broker_that_is_away_is_waited_for(
    mortal: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start, and in the middle of a stream."""
    monkeypatch.setattr(connector, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(partitions, "_SECONDS", 1.0)
    broker = mortal
    produced = Produced(broker.servers, make_topic(broker, 2))
    for at in range(100):
        produced.send(at % 2)
    produced.flush()
    broker.kill()
    one = Reading(lambda: SqliteLog(tmp_path / "events.db"), broker, produced.topic)
    one.begin()
    one.source.start()
    assert one.source.waits is not None
    assert "cannot reach the topic" in one.source.waits
    broker.start()
    for at in range(100):
        produced.send(at % 2)
    produced.flush()
    wait_for(lambda: one.log.last_seq() >= produced.events and one.source.waits is None)
    assert not sum(one.source.lag.values())
    for at in range(100):
        produced.send(at % 2)
    produced.producer.poll(0.1)
    broker.kill()
    wait_for(lambda: one.source.waits is not None)
    assert one.source.failure is None
    broker.start()
    produced.flush()
    wait_for(lambda: one.log.last_seq() >= produced.events)
    produced.check(one.log)
    one.end()


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
    start_fails(one, "must be the topic with the id .*: it was deleted and made anew")
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
    start_fails(one, r"it was deleted and made anew\..* a source of another name; .*'topic id/mine': ''")
    one.begin()
    assert (one.log.last_seq(), one.log.position("mine", 0)) == (3, 2)
    one.log.bind({"topic id/mine": ""}, replace=True)  # as a log has it that was written before this
    one.source.start()
    wait_for(lambda: one.log.last_seq() == 5)
    one.end()
    remake(broker, old.topic, 1)
    start_fails(one, "it was deleted and made anew")  # the log has taken the id


def test_a_topic_that_is_made_anew_while_it_is_read(
    broker: Broker, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "_LOOK_SECONDS", 0.0)
    one = reading(make_topic(broker), name="mine")
    one.begin()
    one.source.start()
    remake(broker, one.topic, 1)
    wait_for(lambda: one.source.failure is not None)
    assert "it was deleted and made anew" in str(one.source.failure)
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
    with pytest.raises(SourceError, match="it was deleted and made anew") as refused:
        wait_for(lambda: one.source._read_on() or one.log.last_seq() > before)
    one.source.stop()
    has = f"the former up to offset {before - 1} of partition 0" if before else "nothing of the former"
    assert f"The log has {has}, and nothing of the latter" in str(refused.value)
    old.good.setdefault(0, [])
    if before:
        old.check(one.log)
    other = JsonLinesTopic(one.runtime, broker.servers, old.topic, name="other")  # as the refusal advises
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
    monkeypatch.setattr(partitions, "ASK_EVERY_SECONDS", 0.5)
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
        later - earlier >= partitions.ASK_EVERY_SECONDS for earlier, later in itertools.pairwise(asked)
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
    again = JsonLinesTopic(one.runtime, broker.servers, produced.topic, name="again")
    with pytest.raises(InputError, match="must be read by one source, got 'again' beside 'mine'"):
        again.start()
    one.end()
    one.begin()  # and when that one does not run, and by another address of the same brokers
    address = broker.servers.replace("127.0.0.1", "localhost")
    for servers in (broker.servers, address):
        again = JsonLinesTopic(one.runtime, servers, produced.topic, name="again")
        with pytest.raises(
            SourceError, match="what the source 'mine' of this log reads, got 'again'"
        ) as refused:
            again.start()
    produced.check(one.log, "mine")
    # What the refusal says: the log forgets the other one, and reads the topic once more.
    forgotten = re.search(r"log\.bind\((\{.*?\}), replace=True\)", str(refused.value))
    assert forgotten is not None
    one.log.bind(ast.literal_eval(forgotten[1]), replace=True)
    again = JsonLinesTopic(one.runtime, broker.servers, produced.topic, name="again")
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
    monkeypatch.setattr(partitions, "_MISSING_SECONDS", 0.5)
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
    assert f"{produced.topic!r} at {broker.servers} must be there, got no such topic" in str(
        one.source.failure
    )
    assert produced.topic not in admin.list_topics().topics
    one.end()


def test_a_source_ends_with_its_runtime(broker: Broker, tmp_path: Path) -> None:
    produced = Produced(broker.servers, make_topic(broker, 1))
    one = Reading(lambda: SqliteLog(tmp_path / "events.db"), broker, produced.topic)
    one.begin()

    def fail(*given: object) -> None:
        raise RuntimeError("the log failed")

    one.log.record_batch = fail
    one.source.start()
    produced.send(0)
    produced.flush()
    wait_for(lambda: one.runtime.failure is not None)
    produced.send(0)
    produced.flush()
    wait_for(lambda: one.source.failure is not None)
    assert "ends with the runtime: the log failed" in str(one.source.failure)
    assert one.log.last_seq() == 1
    one.end()


def with_source(deployment: Path, broker: Broker, topic: str, log: Sequence[str] = ()) -> None:
    text = deployment.read_text(encoding="utf-8")
    if log:
        text = text.replace('[log]\npath = "events.db"', "\n".join(["[log]", *log]))
    source = f'[sources.orders]\nkafka = "{broker.servers}"\ntopic = "{topic}"\n'
    deployment.write_text(text + source, encoding="utf-8")


def predictions(engine: Engine) -> bytes:
    ids = engine.graph.ids()
    return ids.tobytes() + engine.predict(ids).tobytes()


@pytest.mark.parametrize("in_kafka", [False, True])
def test_a_server_that_is_killed_while_it_reads(
    broker: Broker, tmp_path: Path, rng: np.random.Generator, in_kafka: bool
) -> None:
    """Predictions are those of a graph to which each message was applied once, in order."""
    deployment, topic, name = write_deployment(tmp_path, every_events=100), make_topic(broker), next(TOPICS)
    log = [f'kafka = "{broker.servers}"', f'topic = "{name}"'] if in_kafka else []
    with_source(deployment, broker, topic, log)
    if in_kafka:
        create_topics(broker.servers, name, 2)
    producer = Producer({"bootstrap.servers": broker.servers})
    stream = make_stream(300, seed=4)
    events = sum(map(len, stream))
    for kill in range(4):
        for one in stream[75 * kill : 75 * (kill + 1)]:
            producer.produce(topic, one.to_json_lines().encode(), partition=0)
        producer.produce(topic, b"bad %d" % kill, partition=0)
        producer.flush()
        with Server(deployment) as server:
            enough = int(rng.integers(1, 75 * (kill + 1)))
            while loopback.get(f"{server.address}/healthz").json()["log_seq"] < enough:
                pass
            server.kill()
    with Server(deployment) as server:
        wait_for(lambda: loopback.get(f"{server.address}/healthz").json()["log_seq"] == events)
        health = loopback.get(f"{server.address}/healthz").json()
        assert health["sources"]["orders"]["status"] == "ok"
        metrics = loopback.get(f"{server.address}/metrics").text.splitlines()
        assert 'livegnn_source_up{source="orders"} 1' in metrics
        assert 'livegnn_source_waits{source="orders"} 0' in metrics
        assert any(
            line.startswith('livegnn_source_lag_messages{source="orders",partition="0"}') for line in metrics
        )
        wait_for(
            lambda: (
                len(loopback.get(f"{server.address}/v1/rejections").json()["bad_messages"]) == 4
                and loopback.get(f"{server.address}/healthz").json()["sources"]["orders"]["lag"] == 0
            )
        )
        listed = loopback.get(f"{server.address}/v1/rejections?bad_after=1&limit=2").json()["bad_messages"]
        assert [(one["number"], one["offset"], one["payload"]) for one in listed] == [
            (2, 151, "bad 1"),
            (3, 227, "bad 2"),
        ]
        assert "expected a JSON object" in listed[0]["reason"]
    runtime = Deployment.read(deployment).open()
    graph = make_graph()
    engine = Engine(graph, make_model())
    for batch in runtime.log.batches(0):
        engine.apply(
            Events.concatenate(one.events for one in runtime.log.writes(batch.after, up_to=batch.seq))
        )
    assert predictions(runtime.engine) == predictions(engine)
    stored = [entry.events for entry in runtime.log.entries(0)]
    assert [one.to_json_lines() for one in stored] == [one.to_json_lines() for one in stream]
    runtime.stop()
    runtime.log.close()
    if not in_kafka:
        said = CliRunner().invoke(app, ["log", "rejections", str(deployment)]).output
        assert [json.loads(line)["payload"] for line in said.splitlines()] == [f"bad {at}" for at in range(4)]
        assert "4 bad messages" in CliRunner().invoke(app, ["log", "verify", str(deployment)]).output


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
    assert said.output == "orders goes on at 4 in partition 0, without 4 messages\n"
    read_up_to(6)
    log = settings.log.open()
    assert log.position("orders", 0) == 9
    assert [one[1:5] for one in log.bad_messages()] == [
        ("orders", 0, 3, "messages 0 to 3 were skipped on request")
    ]
    log.close()
    for given, message in (
        (["orders", "0", "9"], "must be after 10, where the source 'orders' goes on in partition 0, got 9"),
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
    assert said.output.endswith("orders goes on at 11 in partition 0, without 1 messages\n")
