"""Streams of records in Kafka, on a real broker that is killed, under writers that are replaced."""

import itertools
import random
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Producer

from kafka_broker import Broker, needs_broker
from livegnn.errors import InputError, LogError
from livegnn.log import Origin
from livegnn.log.streams import Record, RecordStream, StoredRecord
from livegnn.log.streams.kafka import KafkaStream, KafkaStreamReader, create_stream
from livegnn.workers import KafkaPlace, PlanState, WorkerPlan
from livegnn.workers.plan_record import PlanWriter, begin_states
from waiting import PATIENCE
from worker_cluster import LATEST, SCHEMA

pytestmark = [pytest.mark.xdist_group("kafka"), needs_broker]
TOPICS = map("streams{}".format, itertools.count())


@pytest.fixture
def topic(broker: Broker) -> str:
    """A log with a stream of two partitions."""
    name = next(TOPICS)
    create_stream(broker.servers, name, "s", 2)
    create_stream(broker.servers, name, "s", 2)  # one that exists stays
    return name


def number(one: int) -> Record:
    return Record("number", b"%d" % one, Origin("numbers", 0, one))


def read_all(reader: KafkaStreamReader, after: int = 0, most: int | None = None) -> Sequence[StoredRecord]:
    """All records after `after`, a part at a time."""
    found: list[StoredRecord] = []
    while part := reader.records(after, max_bytes=most):
        found += part
        after = found[-1].position
    return found


def plain(records: Sequence[StoredRecord]) -> list[Record]:
    return [Record(kind, payload, origin) for _, kind, payload, origin in records]


def test_a_stream_is_a_list(broker: Broker, topic: str, rng: np.random.Generator) -> None:
    """Random calls, new writers, records that come again; read whole, in parts, and from anywhere."""
    draw = random.Random(int(rng.integers(2**32)))
    expected: list[Record] = []
    ends = {0: 0}  # positions, and how many records are at or before them
    offsets: dict[int, int] = {}
    stream: RecordStream = KafkaStream(broker.servers, topic, "s", 1)
    for _ in range(25):
        before = dict(offsets)
        records = []
        for _ in range(draw.choice([0, 1, 3, 50])):
            record = Record(draw.choice(["a", "b.c"]), draw.randbytes(draw.choice([0, 5, 2000])))
            if draw.random() < 0.5:
                part, offset = draw.randrange(2), draw.randrange(40)
                record = record._replace(origin=Origin("é b", part, offset))
                if offset <= before.get(part, -1):
                    records.append(record)
                    continue
                offsets[part] = max(offset, offsets.get(part, -1))
            records.append(record)
            expected.append(record)
        end = stream.append_all(records)
        assert ends.setdefault(end, len(expected)) == len(expected)
        if draw.random() < 0.2:
            stream.close()
            stream = KafkaStream(broker.servers, topic, "s", 1)
        assert {p: stream.reached("é b", p) for p in range(2)} == {p: offsets.get(p) for p in range(2)}
    stream.close()
    with closing(KafkaStreamReader(broker.servers, topic, "s", 1)) as reader:
        for most in (None, 0, 3000):
            found = read_all(reader, 0, most)
            assert plain(found) == expected
            assert [one.position for one in found] == sorted({one.position for one in found})
        for after, count in ends.items():
            some = plain(reader.records(after, max_bytes=1))
            assert some == expected[count : count + len(some)]
            assert bool(some) == (count < len(expected))
        assert reader.last_position() >= max(ends)
        assert not reader.wait(reader.last_position(), 0)
        with pytest.raises(LogError, match="must reach position"):
            reader.records(10**9)


def test_a_newer_writer_takes_over(broker: Broker, topic: str) -> None:
    with (
        closing(KafkaStream(broker.servers, topic, "s")) as old,
        closing(KafkaStreamReader(broker.servers, topic, "s")) as reader,
    ):
        old.append_all([number(0), number(1)])
        with closing(KafkaStream(broker.servers, topic, "s")) as new:
            assert new.reached("numbers", 0) == 1
            for _ in range(2):
                with pytest.raises(
                    LogError, match=r"cannot append to the stream.*\. A newer writer has taken over"
                ):
                    old.append_all([number(2)])
            new.append_all([number(1), number(2)])
            assert reader.wait(0, PATIENCE)
            assert plain(read_all(reader)) == [number(0), number(1), number(2)]
        with pytest.raises(LogError, match="it is closed"):
            new.append_all([number(3)])


def test_who_waits_is_woken(broker: Broker, topic: str) -> None:
    with closing(KafkaStreamReader(broker.servers, topic, "s")) as reader:
        assert not reader.wait(0, 0.01)
        woken = threading.Event()
        thread = threading.Thread(target=lambda: reader.wait(0) and woken.set())
        thread.start()
        with closing(KafkaStream(broker.servers, topic, "s")) as stream:
            end = stream.append_all([number(0)])
        thread.join()
        assert woken.is_set()
        ends = threading.Thread(target=reader.wait, args=(reader.last_position(),))
        ends.start()
        reader.close()
        ends.join()
        assert end == 1


def test_trimming(broker: Broker, topic: str) -> None:
    with (
        closing(KafkaStream(broker.servers, topic, "s")) as stream,
        closing(KafkaStreamReader(broker.servers, topic, "s")) as reader,
    ):
        assert stream.trim(10) == 0
        end = stream.append_all([number(one) for one in range(10)])
        assert stream.trim(4) == 4
        assert plain(read_all(reader, 4)) == [number(one) for one in range(4, 10)]
        with pytest.raises(LogError, match="must hold record 1, got a stream that begins at 5"):
            reader.records(0)
        assert stream.trim(10**9) == end - 1
    with closing(KafkaStream(broker.servers, topic, "s")) as again:
        assert again.reached("numbers", 0) == 9
        again.append_all([number(one) for one in range(5, 12)])
        assert plain(read_all(again, end)) == [number(10), number(11)]


def test_a_broker_that_is_killed_under_a_writer(topic: str, broker: Broker) -> None:
    """Who was told nothing appends again, with a new writer; at the end each record is there once."""
    acknowledged = 0
    stream = KafkaStream(broker.servers, topic, "s", timeout=30)
    for round_ in range(25):
        if round_ == 10:
            broker.kill()
            starts = threading.Thread(target=broker.start)
            starts.start()
        records = [number(one) for one in range(7 * round_, 7 * round_ + 7)]
        try:
            stream.append_all(records)
        except LogError:
            stream.close()
            starts.join()
            stream = KafkaStream(broker.servers, topic, "s", timeout=30)
            assert (stream.reached("numbers", 0) or -1) >= acknowledged - 1
            stream.append_all(records)
        acknowledged = 7 * round_ + 7
    stream.close()
    starts.join()
    with closing(KafkaStreamReader(broker.servers, topic, "s")) as reader:
        assert plain(read_all(reader)) == [number(one) for one in range(acknowledged)]


def test_what_is_refused(broker: Broker, topic: str) -> None:
    with pytest.raises(LogError, match="must have a partition 2, got 2 partitions"):
        KafkaStream(broker.servers, topic, "s", 2)
    with pytest.raises(LogError, match="must have a partition 0, got 0 partitions: make them"):
        KafkaStreamReader(broker.servers, topic, "other")
    with pytest.raises(InputError):
        create_stream(broker.servers, topic, "events")
    with closing(KafkaStream(broker.servers, topic, "s")) as stream:
        with pytest.raises(InputError, match="at most 16,777,216 bytes, got 16,777,217"):
            stream.append_all([Record("t", bytes((16 << 20) + 1))])
        with pytest.raises(InputError, match="a record must be a Record"):
            stream.append_all([b""])  # type: ignore[list-item]
        largest = Record("t", bytes(16 << 20))
        stream.append_all([largest])
        assert plain(read_all(stream)) == [largest]
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(f"{topic}.s", b"not a record", partition=0)
    producer.flush()
    with closing(KafkaStreamReader(broker.servers, topic, "s")) as reader:
        after = reader.records(0)[-1].position
        with pytest.raises(LogError, match="is damaged, or is not a record"):
            reader.records(after)


def test_one_process_writes_the_record_of_the_plan(broker: Broker, topic: str, tmp_path: Path) -> None:
    """The newer of two coordinators. Each finds at once what it has written. A record of an older version is
    taken over, unless its positions are not those that steps of workers would mean now."""
    plan = WorkerPlan(SCHEMA, LATEST, seed=1)
    states = [PlanState(number, 0, plan) for number in range(3)]
    place = KafkaPlace(broker.servers, topic, tmp_path)
    place.create({"worker-changes": 1, "worker-plan": 1})
    with closing(place.write("worker-changes", 0)) as older:
        older.append_all([Record("change", states[0].to_bytes(), Origin("plan", 0, 0))])
    with closing(PlanWriter.open(place)) as first:
        assert first.states(plan) == states[:1]
        first.append_state(states[1])
        first.set_drained("10.0.0.1", True)
        assert (first.states(plan), first.drained) == (states[:2], {"10.0.0.1"})
        with closing(PlanWriter.open(place)) as second:
            assert (second.states(plan), second.drained) == (states[:2], {"10.0.0.1"})
            with pytest.raises(LogError):
                first.append_state(states[2])
            second.append_state(states[2])
    assert begin_states(place, plan) == states
    changed = KafkaPlace(broker.servers, next(TOPICS), tmp_path)
    changed.create({"worker-changes": 1})
    with closing(changed.write("worker-changes", 0)) as older:
        for state in states:
            older.append_all([Record("change", state.to_bytes())])
    with pytest.raises(LogError, match="must have state 1 at position 2, got it at 3"):
        PlanWriter.open(changed)
