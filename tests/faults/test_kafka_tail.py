"""Other processes follow a log in Kafka, on a real broker: they see what its owner sees, whatever happens."""

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_broker import Broker, needs_broker
from kafka_reading import add_partitions, deliver
from kafka_writer import edge
from livegnn import Events
from livegnn.errors import InputError, LiveGNNError, LogError
from livegnn.log import AppliedBatch, Batch, Entry, Rejection
from livegnn.log.consumers import forget, read_positions
from livegnn.log.kafka import KafkaLog, create_topics, encode_message
from livegnn.log.kafka.history import encode
from livegnn.log.kafka.tail import KafkaTail
from livegnn.runtime import Runtime
from streams import make_graph, make_stream
from waiting import PATIENCE

pytestmark = [pytest.mark.xdist_group("kafka"), needs_broker]
TOPICS = map("tailed{}".format, itertools.count())
FOLLOWER = """
import sys
from livegnn.log.kafka.tail import KafkaTail

servers, topic, folder = sys.argv[1:]
tail = KafkaTail(servers, topic, "follower", folder)
print("from", tail.position, flush=True)
while tail.wait():
    for entry in tail.entries(max_events=7):
        print(entry.seq, len(entry.events), flush=True)
        tail.commit(entry.seq)
"""
BEHIND = {"queued.min.messages": 1, "max.partition.fetch.bytes": 1, "fetch.queue.backoff.ms": 10}
"""Settings of a consumer that fetches one message, and the next when it was read."""


@pytest.fixture
def topic(broker: Broker) -> str:
    """Topics with two partitions."""
    name = next(TOPICS)
    create_topics(broker.servers, name, 2)
    return name


@pytest.fixture
def log(broker: Broker, topic: str) -> Iterator[KafkaLog]:
    log = KafkaLog(broker.servers, topic)
    yield log
    log.close()


def plain_entries(entries: "list[Entry]") -> list[tuple[int, bytes]]:
    return [(entry.seq, entry.events.to_bytes()) for entry in entries]


def plain_batches(batches: "list[AppliedBatch]") -> list[tuple[Batch, bytes]]:
    return [(one.batch, Events.concatenate([one.events]).to_bytes()) for one in batches]


def entries_of(log: KafkaLog, after: int = 0) -> list[tuple[int, bytes]]:
    return plain_entries(list(log.entries(after)))


def batches_of(log: KafkaLog) -> list[tuple[Batch, bytes]]:
    """What the owner has made visible, one entry after the other."""
    entries = log.entries(0)
    rejected = {one.seq for one in log.rejections()}
    return [
        (
            batch,
            Events.concatenate(
                one.events
                for one in entries
                if batch.after < one.seq <= batch.seq and one.seq not in rejected
            ).to_bytes(),
        )
        for batch in log.batches(0)
    ]


class Mirror:
    """A tail that reads entries, or batches into a graph, some at a time, and is started anew at times."""

    def __init__(self, broker: Broker, topic: str, folder: Path, *, batches: bool) -> None:
        self.name = "batches" if batches else "entries"
        self.graph = make_graph()
        self.seen: list[Any] = []
        self._batches = batches
        self._open = lambda: KafkaTail(broker.servers, topic, self.name, folder)
        self.tail = self._open()

    def restart(self) -> None:
        before = self.tail.position
        self.tail.close()
        self.tail = self._open()
        assert self.tail.position == before

    def read(self, rng: np.random.Generator, most: int | None = None) -> int:
        """Reads once, and goes on after a part of it; returns how much was read."""
        if self._batches:
            applied = list(self.tail.batches(max_events=most))
            for one in applied[: rng.integers(len(applied) + 1) if most else None]:
                self.graph.apply(one.events, seq=one.batch.seq)
                self.tail.commit(one.batch.seq)
                self.seen += plain_batches([one])
            return len(applied)
        entries = list(self.tail.entries(max_events=most))
        if most is not None and len(entries) > 1:
            assert entries[-1].seq <= self.tail.position + most
        kept = entries[: rng.integers(len(entries) + 1) if most else None]
        self.seen += plain_entries(kept)
        if kept:
            self.tail.commit(kept[-1].seq)
        return len(entries)


def test_a_tail_sees_what_the_owner_does_and_makes_the_same_graph_of_it(
    broker: Broker, topic: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Owners and tails start anew, entries are rejected, and partitions are added, all in between."""
    log = KafkaLog(broker.servers, topic)
    runtime = Runtime(log, make_graph(), max_batch_events=16)
    mirrors = [Mirror(broker, topic, tmp_path, batches=batches) for batches in (False, True)]
    stream = make_stream(160, seed=int(rng.integers(1000)))
    bad = 0
    for number, events in enumerate(stream):
        runtime.append(events)
        if rng.random() < 0.15:
            runtime.append(Events().remove_edges(10**6 + number, 3))
            bad += 1
        if rng.random() < 0.2:
            while runtime.step():
                pass
        for mirror in mirrors:
            if rng.random() < 0.3:
                mirror.read(rng, int(rng.integers(1, 60)))
            if rng.random() < 0.03:
                mirror.restart()
        if number % 40 == 39:
            add_partitions(broker, topic, 3 + number // 40)
            runtime.stop()
            log.close()
            log = KafkaLog(broker.servers, topic)
            runtime = Runtime(log, make_graph(), max_batch_events=16)
    while runtime.step():
        pass
    runtime.stop()
    log.sync()
    for mirror in mirrors:
        while mirror.read(rng):
            pass
    entries, batches = mirrors
    assert len(log.rejections()) == bad > 0
    assert entries.seen == entries_of(log)
    assert batches.seen == batches_of(log)
    assert batches.graph.seq == runtime.seq == log.last_seq()
    for name, array in runtime.graph.state().arrays.items():
        assert np.array_equal(batches.graph.state().arrays[name], array), name
    # From the middle, under another name.
    for seq, _ in [entries.seen[at] for at in rng.integers(0, len(entries.seen), 3)]:
        tail = KafkaTail(broker.servers, topic, "middle", tmp_path, after=seq)
        assert plain_entries(list(tail.entries())) == entries_of(log, seq)
        tail.close()
    for at in rng.integers(0, len(batches.seen), 3).tolist():
        tail = KafkaTail(broker.servers, topic, "middle", tmp_path, after=batches.seen[at][0].seq)
        assert plain_batches(list(tail.batches())) == batches.seen[at + 1 :]
        tail.close()
    for mirror in mirrors:
        mirror.tail.close()
    log.close()


def test_batches_are_as_many_as_fit_and_at_least_one(broker: Broker, log: KafkaLog, tmp_path: Path) -> None:
    log.append_all([edge(2), edge(0), edge(1)])  # 3, 1 and 2 events, in one message
    log.record_batch(Batch(0, 3))
    log.record_batch(Batch(3, 4), Rejection(4, "InputError", "no"))
    log.record_batch(Batch(4, 6))
    log.sync()
    tail = KafkaTail(broker.servers, log._connection.topic, "one", tmp_path)
    for most, wanted in ((0, 1), (1, 1), (3, 1), (4, 2), (5, 2), (6, 3)):
        assert len(tail.batches(max_events=most)) == wanted
        assert len(tail.entries(max_events=most)) == wanted
    assert [(one.batch, len(one.events)) for one in tail.batches()] == [
        (Batch(0, 3), 3),
        (Batch(3, 4), 0),
        (Batch(4, 6), 2),
    ]
    digests = [tail.digest(seq) for seq in (0, 3, 4, 6)]
    assert digests == [log.digest(seq) for seq in (0, 3, 4, 6)]
    assert len(set(digests)) == 4
    assert tail.digest(7) is None
    tail.close()


def test_a_tail_reads_on_from_what_it_committed(broker: Broker, log: KafkaLog, tmp_path: Path) -> None:
    follow = {"servers": broker.servers, "topic": log._connection.topic, "folder": tmp_path}
    tail = KafkaTail(name="mirror", **follow)
    assert (tail.position, list(tail.entries()), list(tail.batches()), tail.wait(0)) == (0, [], [], False)
    log.append_all([edge(2), edge(0), edge(1)])
    entries = entries_of(log)
    assert plain_entries(list(tail.entries())) == plain_entries(list(tail.entries())) == entries
    assert tail.wait(0)
    assert not tail.batches()
    assert not tail.wait(0, batches=True)
    tail.commit(4)
    assert plain_entries(list(tail.entries())) == entries[2:]
    for wrong in (3, 5, 7):
        with pytest.raises(InputError, match=f"an acknowledged entry after 4, the present .* got {wrong}"):
            tail.commit(wrong)
    tail.commit(4)
    assert read_positions(tmp_path / log._connection.topic) == {"mirror": 4}
    with pytest.raises(LogError, match="must have its name for itself, got 'mirror', under which one runs"):
        KafkaTail(name="mirror", **follow)
    tail.close()
    tail.close()
    for call in (tail.entries, tail.batches, lambda: tail.commit(6)):
        with pytest.raises(LogError, match="the tail was closed"):
            call()
    assert not tail.wait()
    tail = KafkaTail(name="mirror", **follow)
    assert (tail.position, plain_entries(list(tail.entries()))) == (4, entries[2:])
    log.record_batch(Batch(0, 6))
    log.sync()
    with pytest.raises(LogError, match=r"must have a batch that ends at event 4, got .* the end of a batch"):
        tail.batches()
    tail.commit(6)
    assert not tail.entries()
    assert not tail.batches()
    tail.close()
    tail = KafkaTail(name="mirror", after=3, **follow)
    assert (tail.position, plain_entries(list(tail.entries()))) == (3, entries[1:])
    tail.close()
    tail = KafkaTail(name="within", after=5, **follow)
    with pytest.raises(LogError, match="an entry that ends at event 5, got one from event 5 to 6"):
        tail.entries()
    tail.close()
    with pytest.raises(LogError, match="must reach event 7, got a log that ends at event 6"):
        KafkaTail(name="mirror", after=7, **follow)
    assert read_positions(tmp_path / log._connection.topic) == {"mirror": 3, "within": 5}


def test_a_tail_sees_all_that_was_acknowledged_before_it_was_asked(
    broker: Broker, log: KafkaLog, tmp_path: Path
) -> None:
    """However little has arrived by itself."""
    tail = KafkaTail(broker.servers, log._connection.topic, "one", tmp_path, settings=BEHIND)
    for number in range(30):
        log.append(edge(number))
    assert plain_entries(list(tail.entries())) == entries_of(log)
    ends = [entry.seq for entry in log.entries(0)]
    for batch in itertools.starmap(Batch, itertools.pairwise([0, *ends])):
        log.record_batch(batch)
    log.sync()
    assert plain_batches(list(tail.batches())) == batches_of(log)
    tail.close()


def test_what_an_owner_that_was_replaced_writes_is_not_seen(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    log = KafkaLog(broker.servers, topic)
    first = log.append(edge(1))
    tail = KafkaTail(broker.servers, topic, "one", tmp_path)
    stale = log._control.epoch
    log.close()
    log = KafkaLog(broker.servers, topic)
    producer = Producer({"bootstrap.servers": broker.servers})
    batch = {"type": "batch", "after": 0, "seq": first, "rejection": [first, "InputError", "stale"]}
    producer.produce(f"{topic}.control", encode(batch, stale))
    producer.flush()
    assert not tail.batches()
    second = log.append(edge(2))
    assert [entry.seq for entry in tail.entries()] == [first, second]
    log.record_batch(Batch(0, second))
    log.sync()
    assert plain_batches(list(tail.batches())) == batches_of(log)
    tail.close()
    log.close()


def test_a_partition_that_is_added_is_followed(broker: Broker, log: KafkaLog, tmp_path: Path) -> None:
    topic = log._connection.topic
    tail = KafkaTail(broker.servers, topic, "one", tmp_path)
    log.append(edge(0))
    assert plain_entries(list(tail.entries())) == entries_of(log)  # its consumer knows two partitions
    add_partitions(broker, topic, 4)
    deliver(broker, topic, [(number % 4, encode_message([edge(number)])) for number in range(40)])
    wanted = len(edge(0)) + sum(len(edge(number)) for number in range(40))
    while tail.position < wanted:
        assert tail.wait(PATIENCE)
        tail.commit(tail.entries()[-1].seq)
    tail.close()
    tail = KafkaTail(broker.servers, topic, "two", tmp_path)
    assert plain_entries(list(tail.entries())) == entries_of(log)
    assert log.last_seq() == wanted
    tail.close()


def follow(broker: Broker, topic: str, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", FOLLOWER, broker.servers, topic, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_process_that_is_killed_again_and_again_misses_nothing(
    broker: Broker, topic: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    """The owner appends all the while, and is started anew in between."""
    owner = KafkaLog(broker.servers, topic)
    seen: list[tuple[int, int]] = []
    for lives in range(4):
        process = follow(broker, topic, tmp_path)
        assert process.stdout is not None
        begin = int(process.stdout.readline().split()[1])
        if seen:  # what was printed was committed, but perhaps the last
            assert begin in {seq for seq, _ in seen[-2:]}
            seen = [one for one in seen if one[0] <= begin]
        else:
            assert begin == 0
        wanted = len(seen) + 30
        for number in range(40):
            owner.append(Events().add_nodes(np.arange(rng.integers(1, 5))))
            if lives == 2 and number == 20:
                owner.close()
                owner = KafkaLog(broker.servers, topic)
        while len(seen) < wanted:
            seq, size = process.stdout.readline().split()
            seen.append((int(seq), int(size)))
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().splitlines()
        seen += [(int(line.split()[0]), int(line.split()[1])) for line in rest if len(line.split()) == 2]
        process.wait()
        process.stdout.close()
    assert len(seen) >= 120
    assert seen == [(entry.seq, len(entry.events)) for entry in owner.entries(0)][: len(seen)]
    owner.close()


def test_a_tail_that_is_behind_what_was_trimmed_says_so(
    broker: Broker, log: KafkaLog, tmp_path: Path
) -> None:
    """It runs all the while, or starts after; one that needs nothing of what was trimmed goes on."""
    topic = log._connection.topic
    for number in range(20):
        log.append(edge(number))
    middle = log.last_seq()
    log.record_batch(Batch(0, middle))
    log.sync()
    behind = KafkaTail(broker.servers, topic, "behind", tmp_path, settings=BEHIND)
    behind.commit(behind.entries(max_events=9)[-1].seq)
    at_it = KafkaTail(broker.servers, topic, "at-it", tmp_path, settings=BEHIND)
    at_it.commit(middle)
    assert log.trim(middle) == 0  # there is a base now
    for number in range(20, 40):
        log.append(edge(number))
    log.record_batch(Batch(middle, log.last_seq()))
    assert log.trim(middle) == middle
    rest = entries_of(log, middle)
    advice = rf"begins after event {middle}, .* trimmed, .* from event {behind.position}: take a checkpoint"
    for _ in range(2):
        with pytest.raises(LogError, match=advice):
            behind.entries()
    with pytest.raises(LogError, match=advice):
        behind.commit(log.last_seq())
    assert plain_entries(list(at_it.entries())) == rest
    assert plain_batches(list(at_it.batches())) == [
        (
            Batch(middle, log.last_seq()),
            Events.concatenate(one.events for one in log.entries(middle)).to_bytes(),
        )
    ]
    position = behind.position
    behind.close()
    with pytest.raises(LogError, match=advice):
        KafkaTail(broker.servers, topic, "behind", tmp_path)
    with pytest.raises(LogError, match=r"from event 0: take a checkpoint"):
        KafkaTail(broker.servers, topic, "behind", tmp_path, after=0)
    assert read_positions(tmp_path / topic) == {"behind": position, "at-it": middle}
    behind = KafkaTail(broker.servers, topic, "behind", tmp_path, after=middle)
    new = KafkaTail(broker.servers, topic, "new", tmp_path)
    assert new.position == middle
    for tail in (behind, new):
        assert plain_entries(list(tail.entries())) == rest
        tail.close()
    at_it.close()


def test_what_the_log_is_bound_to_is_checked(broker: Broker, log: KafkaLog, tmp_path: Path) -> None:
    tail = KafkaTail(broker.servers, log._connection.topic, "one", tmp_path)
    tail.check_bound({"colour": "red"})  # bound to nothing yet
    log.bind({"colour": "blue"})
    log.append_all([edge(1)])
    log.record_batch(Batch(0, 1))
    log.sync()
    tail.check_bound({"colour": "blue", "size": "1"})
    with pytest.raises(LogError, match="colour must be blue, got red"):
        tail.check_bound({"colour": "red"})
    tail.close()


def test_wait_ends_with_an_entry_a_batch_or_a_close(broker: Broker, log: KafkaLog, tmp_path: Path) -> None:
    tail = KafkaTail(broker.servers, log._connection.topic, "one", tmp_path)
    answers: list[bool] = []

    def wait(batches: bool) -> threading.Thread:
        waiter = threading.Thread(target=lambda: answers.append(tail.wait(batches=batches)))
        waiter.start()
        return waiter

    waiter = wait(batches=False)
    log.append(edge(1))
    waiter.join()
    waiter = wait(batches=True)
    log.record_batch(Batch(0, 2))
    waiter.join()
    tail.commit(2)
    waiter = wait(batches=True)
    tail.close()
    waiter.join()
    assert answers == [True, True, False]


def test_a_wait_outlasts_a_broker_that_is_killed(tmp_path: Path) -> None:
    broker = Broker()
    create_topics(broker.servers, "events")
    log = KafkaLog(broker.servers, "events")
    first = log.append(edge(1))
    tail = KafkaTail(broker.servers, "events", "one", tmp_path, after=first)
    found: list[int] = []

    def read() -> None:
        while len(found) < 10 and tail.wait():
            found.extend(entry.seq for entry in tail.entries())
            tail.commit(found[-1])

    reader = threading.Thread(target=read)
    reader.start()
    broker.kill()
    assert not found
    broker.start()
    numbers = [log.append(edge(number)) for number in range(10)]
    reader.join()
    assert found == numbers
    tail.close()
    log.close()
    broker.close()


def test_a_tail_leaves_nothing_at_the_broker(broker: Broker, log: KafkaLog, tmp_path: Path) -> None:
    topic = log._connection.topic
    log.append(edge(1))
    log.record_batch(Batch(0, 2))
    log.sync()
    admin = AdminClient({"bootstrap.servers": broker.servers})
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "unused"})
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition(f"{topic}.control", 0)]

    def state() -> object:
        groups = sorted(group.group_id for group in admin.list_consumer_groups().result().valid)
        return [consumer.get_watermark_offsets(place) for place in places], groups

    before = state()
    tail = KafkaTail(broker.servers, topic, "one", tmp_path)
    assert tail.wait(PATIENCE)
    assert len(tail.batches()) == 1
    tail.commit(tail.entries()[-1].seq)
    assert state() == before
    tail.close()
    assert state() == before
    consumer.close()
    assert log.append(edge(2)) == 5  # it is the owner still


NONSENSE: list[Any] = [
    None, "x", "\ud800", "a\0b", "", b"x", 3, -1, 1.5, float("nan"), True, 2**63, [], [1], {}, object(),
    ".", "a/b",
]  # fmt: skip


def test_arguments_work_or_are_told_to_be_wrong(broker: Broker, log: KafkaLog, tmp_path: Path) -> None:
    topic = log._connection.topic
    log.append(edge(1))
    tail = KafkaTail(broker.servers, topic, "one", tmp_path)
    calls = [
        lambda it: tail.entries(it),
        lambda it: tail.batches(it),
        lambda it: tail.commit(it),
        lambda it: tail.wait(it) if it is not None else None,
        lambda it: KafkaTail(broker.servers, topic, it, tmp_path).close(),
        lambda it: KafkaTail(
            broker.servers, topic, "two", tmp_path / it if isinstance(it, str) else it
        ).close(),
        lambda it: KafkaTail(broker.servers, topic, "two", tmp_path, after=it).close(),
        lambda it: KafkaTail(broker.servers, topic, "two", tmp_path, timeout=it).close(),
        lambda it: KafkaTail(broker.servers, it, "two", tmp_path).close(),
        lambda it: KafkaTail(it, topic, "two", tmp_path).close() if not isinstance(it, str) else None,
    ]
    worked = 0
    for call, it in itertools.product(calls, NONSENSE):
        try:
            call(it)
            worked += 1
        except LiveGNNError:
            continue
    assert worked > 10
    assert [path.name for path in tmp_path.iterdir()] == [f"{topic}-consumers"]
    tail.close()


def test_a_position_that_is_damaged_is_told(broker: Broker, log: KafkaLog, tmp_path: Path) -> None:
    topic = log._connection.topic
    KafkaTail(broker.servers, topic, "one", tmp_path).close()
    (tmp_path / f"{topic}-consumers" / "one").write_bytes(b"%020d 00000000\n" % 99)
    with pytest.raises(LogError, match=r"must hold a sequence number .* in Kafka, remove the file"):
        KafkaTail(broker.servers, topic, "one", tmp_path)
    with pytest.raises(LogError, match=r"cannot follow the event log .* from .*missing"):
        KafkaTail(broker.servers, topic, "one", tmp_path / "missing")
    forget(tmp_path / topic, "one")
    KafkaTail(broker.servers, topic, "one", tmp_path).close()
