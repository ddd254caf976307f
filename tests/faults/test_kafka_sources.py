"""Events out of Kafka topics that others write, on a real broker: each once, in order, and none unseen.

What was produced is kept, by partition and offset. At the end the log has the events of every good message
once, those of one partition in their order, and lists every bad one once.
"""

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

import loopback
from faulty_disk import FaultyDisk
from gate import in_gate
from kafka_broker import Broker, needs_broker
from kafka_reading import (
    TOPICS,
    Produced,
    Reading,
    add_partitions,
    make_topic,
    wait_for,
    with_source,
)
from livegnn import Engine, Events
from livegnn.cli import app
from livegnn.connectors import kafka as connector
from livegnn.connectors import kafka_partitions
from livegnn.connectors.kafka import KafkaTopic
from livegnn.connectors.kafka_partitions import Arrived
from livegnn.deployment import Deployment
from livegnn.errors import DiskFullError, InputError, LiveGNNError
from livegnn.log import Entry
from livegnn.log.kafka import KafkaLog, create_topics
from livegnn.log.sqlite import SqliteLog
from ports import free_port
from registry import Registry, message, served
from scraped import scrape
from serving import Server, write_deployment
from streams import make_graph, make_model, make_stream
from waiting import PATIENCE

pytestmark = [pytest.mark.xdist_group("kafka"), needs_broker]
GOOD, BAD = "good", "bad"


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
        other = KafkaTopic(one.runtime, broker.servers, produced.topic)
        with pytest.raises(InputError, match=f"different names, got {produced.topic!r} again"):
            other.start()
        assert list(one.runtime.sources) == [produced.topic]
        one.end()
        assert not one.runtime.sources


def test_changes_of_rows_are_applied_by_the_mapping_of_a_table(broker: Broker, tmp_path: Path) -> None:
    topic, deployment = make_topic(broker), write_deployment(tmp_path)
    with_source(deployment, broker, topic)
    mapping = (
        'format = "debezium"\ntable = "pays"\n[[tables.pays.edges]]\nsrc = "a"\ndst = "b"\nweight = "w"\n'
    )
    deployment.write_text(deployment.read_text(encoding="utf-8") + mapping, encoding="utf-8")
    graph = make_graph()
    free = sorted(set(graph.ids().tolist()) - set(graph.neighbors(0, direction="out").ids.tolist()))
    rows = [{"a": 0, "b": at, "w": at + 0.5} for at in free[:6]]
    values: list[object] = [{"op": "c", "after": row} for row in rows]
    values += [{"op": "u", "before": rows[0], "after": {**rows[0], "w": 9}}, {"op": "t", "after": None}]
    values += [{"op": "d", "before": row} for row in rows[1:3]]
    producer = Producer({"bootstrap.servers": broker.servers, "log_level": 2})
    for value in values:
        producer.produce(topic, json.dumps(value).encode(), partition=0)
    producer.flush()
    runtime = Deployment.read(deployment).open()
    before = runtime.graph.num_edges()
    runtime.start()
    (source,) = Deployment.read(deployment).connect(runtime)
    source.start()
    try:
        wait_for(lambda: source.stored == len(values))
        runtime.wait(runtime.log.last_seq(), PATIENCE)
        assert runtime.graph.num_edges() == before + 4
        near = runtime.graph.neighbors(0, direction="out")
        weights = dict(zip(near.ids.tolist(), near.weight.tolist(), strict=True))
        assert [weights.get(row["b"]) for row in rows] == [9, None, None, *(row["w"] for row in rows[3:])]
        (bad,) = runtime.log.bad_messages()
        assert bad.offset == 7
        assert "emptied at once" in bad.reason
    finally:
        source.stop()
        runtime.stop()
        runtime.log.close()


def with_rows(deployment: Path) -> None:
    """The source that was added last reads rows, each of which is an edge."""
    mapping = 'format = "rows"\ntable = "pays"\n[[tables.pays.edges]]\nsrc = "a"\ndst = "b"\nweight = "w"\n'
    deployment.write_text(deployment.read_text(encoding="utf-8") + mapping, encoding="utf-8")


def weights_of(entries: Iterable[Entry]) -> list[float]:
    """The weight of the first edge of each entry."""
    found: list[float] = []
    for one in entries:
        weight = one.events.chunks[0].weight
        assert weight is not None
        found.append(float(weight[0]))
    return found


def test_messages_of_mixed_partitions_are_one_append(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of each partition keep their order; one that is bad keeps its own partition alone apart."""
    topic, deployment = make_topic(broker, 3), write_deployment(tmp_path)
    with_source(deployment, broker, topic)
    with_rows(deployment)
    producer = Producer({"bootstrap.servers": broker.servers, "log_level": 2})
    for at in range(300):
        value = b"{" if at == 150 else json.dumps({"a": at % 50, "b": 50 + at % 40, "w": at + 0.5}).encode()
        producer.produce(topic, value, partition=at % 3)
    producer.flush()
    runtime = Deployment.read(deployment).open()
    appends: list[int] = []
    append_all = runtime.append_all
    monkeypatch.setattr(runtime, "append_all", lambda *a: appends.append(len(a[0])) or append_all(*a))
    poll, polled = connector.Partitions.poll, list[connector.Arrived]()

    def poll_all(partitions: connector.Partitions, timeout: float) -> list[connector.Arrived]:
        """Nothing until all messages have arrived; these then mixed, as busy brokers send them."""
        polled.extend(poll(partitions, timeout))
        if sum(not one.is_end for one in polled) < 300:
            return []
        arrived = sorted(polled, key=lambda one: (one.offset, one.partition))
        polled.clear()
        return arrived

    monkeypatch.setattr(connector.Partitions, "poll", poll_all)
    runtime.start()
    (source,) = Deployment.read(deployment).connect(runtime)
    source.start()
    try:
        wait_for(lambda: source.stored >= 300)
        assert appends == [2, 100]
        weights = weights_of(runtime.log.entries(0))
        for partition in range(3):
            own = [one for one in weights if (one - 0.5) % 3 == partition]
            assert own == sorted(own)
        assert len(weights) == 299
    finally:
        source.stop()
        runtime.stop()
        runtime.log.close()


def test_rows_are_logged_together_as_each_alone(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is an entry of its own, once, also where the source ends and starts within a run."""
    topic, deployment = make_topic(broker, 2), write_deployment(tmp_path)
    with_source(deployment, broker, topic)
    with_rows(deployment)
    producer = Producer({"bootstrap.servers": broker.servers, "log_level": 2})
    sent: dict[int, list[bytes]] = {0: [], 1: []}
    for at in range(900):
        row = {"a": at % 50, "b": 50 + at % 40, "w": at + 0.5}
        value = b"{" if at in (300, 700) else None if at == 500 else json.dumps(row).encode()
        producer.produce(topic, value, partition=at % 2)
        sent[at % 2].append(value or b"")
    producer.flush()
    joined: list[int] = []
    appended = KafkaTopic._append_joined

    def append_joined(source: KafkaTopic, runs: Any) -> bool:
        joined.extend(one.messages for one in runs)
        return appended(source, runs)

    monkeypatch.setattr(KafkaTopic, "_append_joined", append_joined)

    def read(messages: int, most_bytes: int) -> int:
        monkeypatch.setattr(connector, "_MOST_BYTES", most_bytes)
        runtime = Deployment.read(deployment).open()
        runtime.start()
        (source,) = Deployment.read(deployment).connect(runtime)
        source.start()
        wait_for(lambda: source.stored >= messages)
        source.stop()
        runtime.stop()
        runtime.log.close()
        return source.stored

    read(900 - read(150, 8000), 1 << 19)
    _deliver_again(deployment, [json.loads(one) for one in sent[1][-10:]])
    log = SqliteLog(deployment.parent / "events.db")
    try:
        *entries, new = log.entries(0)
        assert new.events.chunks[0].weight.tolist() == [-1]  # type: ignore[union-attr]
        assert [len(one.events) for one in entries] == [1] * 897
        weights = weights_of(entries)
        for partition, values in sent.items():
            own = [json.loads(one)["w"] for one in values if len(one) > 1]
            assert [one for one in weights if (one - 0.5) % 2 == partition] == own
        assert [(one.partition, one.offset) for one in log.bad_messages()] == [(0, 150), (0, 350)]
        assert sum(joined) >= 450, "those of the partition without bad messages"
    finally:
        log.close()


def _deliver_again(deployment: Path, rows: list[dict[str, float]]) -> None:
    """The last ten messages of partition 1, and a new one behind them."""
    values = [json.dumps(one).encode() for one in [*rows, {**rows[0], "w": -1}]]
    runtime = Deployment.read(deployment).open()
    (source,) = Deployment.read(deployment).connect(runtime)
    try:
        source._partitions.note = lambda _: None  # type: ignore[method-assign]  # it is not open
        assert source._store([Arrived(1, 440 + at, value) for at, value in enumerate(values)])
    finally:
        source.stop()
        runtime.log.close()


def test_rows_in_avro_wait_for_their_registry(broker: Broker, tmp_path: Path) -> None:
    """No message is lost or called bad because the registry does not answer."""
    topic, deployment = make_topic(broker), write_deployment(tmp_path)
    with_source(deployment, broker, topic)
    where = free_port()
    mapping = (
        f'format = "rows"\ntable = "pays"\nregistry = {{ url = "http://127.0.0.1:{where}" }}\n'
        '[[tables.pays.edges]]\nsrc = "a"\ndst = "b"\nweight = "w"\n'
    )
    deployment.write_text(deployment.read_text(encoding="utf-8") + mapping, encoding="utf-8")
    graph = make_graph()
    free = sorted(set(graph.ids().tolist()) - set(graph.neighbors(0, direction="out").ids.tolist()))
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "long"}, {"name": "w", "type": "float"}]
    schema = {"type": "record", "name": "Row", "fields": fields}
    producer = Producer({"bootstrap.servers": broker.servers, "log_level": 2})
    for at in free[:6]:
        producer.produce(topic, message(7, schema, {"a": 0, "b": at, "w": at + 0.5}), partition=0)
    producer.produce(topic, message(8, schema, {"a": 0, "b": 1, "w": 1}), partition=0)
    producer.flush()
    runtime = Deployment.read(deployment).open()
    before = runtime.graph.num_edges()
    runtime.start()
    (source,) = Deployment.read(deployment).connect(runtime)
    source.start()
    try:
        wait_for(lambda: source.waits is not None)
        assert f"the schema registry at http://127.0.0.1:{where} does not answer" in str(source.waits)
        assert (source.stored, source.bad, source.failure) == (0, 0, None)
        registry = Registry(where)
        registry.add(schema)
        with served(registry):
            wait_for(lambda: source.stored == 7)
        runtime.wait(runtime.log.last_seq(), PATIENCE)
        assert runtime.graph.num_edges() == before + 6
        (bad,) = runtime.log.bad_messages()
        assert (bad.offset, source.waits) == (6, None)
        assert "got number 8, which it does not have" in bad.reason
    finally:
        source.stop()
        runtime.stop()
        runtime.log.close()


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
    assert "must be appended no faster than they are applied" in one.source.waits
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
    add_partitions(broker, produced.topic, 4)
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
    mortal: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start, and in the middle of a stream."""
    caplog.set_level("INFO", "livegnn.connectors")
    monkeypatch.setattr(connector, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(kafka_partitions, "_SECONDS", 1.0)
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
    wait_for(lambda: not sum(one.source.lag.values()))  # at the next look
    for at in range(100):
        produced.send(at % 2)
    produced.producer.poll(0.1)
    broker.kill()
    wait_for(lambda: one.source.waits is not None)
    assert one.source.failure is None
    broker.start()
    produced.flush()
    wait_for(lambda: one.log.last_seq() >= produced.events and one.source.waits is None)
    produced.check(one.log)
    said = [record.getMessage() for record in caplog.records if record.name == connector.__name__]
    stages = [line.removeprefix(f"the source {one.source.name} ").split(":")[0] for line in said]
    assert stages[:5] == ["waits", "has started", "is back", "waits", "is back"]
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


def predictions(engine: Engine) -> bytes:
    ids = engine.graph.ids()
    return ids.tobytes() + engine.predict(ids).tobytes()


@pytest.mark.parametrize("in_kafka", in_gate([True, False]))
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
        metrics = scrape(loopback.get(f"{server.address}/metrics").text)
        assert metrics['livegnn_source_up{source="orders"}'] == 1
        assert metrics['livegnn_source_waits{source="orders"}'] == 0
        assert 'livegnn_source_lag_messages{partition="0",source="orders"}' in metrics
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
