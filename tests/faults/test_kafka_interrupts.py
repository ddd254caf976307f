"""The log in Kafka, and a tail of it, when an exception from outside comes at any opcode of a call.

Afterwards no lock is kept, what was called is whole or absent, the next call works, and who opens the log
anew reads the same. The topics have one partition, so what was sent before is taken before.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kafka_broker import Broker, needs_broker
from livegnn import Engine, Events
from livegnn.errors import LogError
from livegnn.log import Batch
from livegnn.log.kafka import KafkaLog, create_topics
from livegnn.log.kafka.tail import KafkaTail
from livegnn.runtime import Runtime
from opcodes import count_opcodes, interrupt, is_free, places, watched
from streams import WIDTH, make_graph, make_model

pytestmark = [pytest.mark.xdist_group("kafka"), needs_broker]
TOPICS = map("interrupted{}".format, itertools.count())
SECONDS = 30.0  # what was lost shows as an answer that never comes


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    with watched():
        yield


@pytest.fixture
def topic(broker: Broker) -> str:
    name = next(TOPICS)
    create_topics(broker.servers, name)
    return name


def edge(number: int) -> Events:
    """One event, which only the append of this number has."""
    return Events().add_edges([number], [number + 1])


def feature(number: int) -> Events:
    return Events().set_features([number % 40], np.full((1, WIDTH), number % 7))


def open_log(broker: Broker, topic: str) -> KafkaLog:
    return KafkaLog(broker.servers, topic, timeout=SECONDS)


def contents(log: KafkaLog) -> list[tuple[int, bytes]]:
    return [(entry.seq, entry.events.to_bytes()) for entry in log.entries(0)]


def assert_free(log: KafkaLog, where: str) -> None:
    for name in ("_state", "_writing", "_reading", "_closed"):
        assert is_free(getattr(log, name), SECONDS), (name, where)
    assert not log._basing.active, where


def elsewhere(call: Callable[[], object]) -> None:
    """Calls in another thread, which waits for what this one has kept."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


@pytest.mark.parametrize("keyed", [True, False])
def test_an_append_is_stored_once_or_not_and_its_repeat_is_the_same_entry(
    rng: np.random.Generator, broker: Broker, topic: str, keyed: bool
) -> None:
    log = open_log(broker, topic)

    def append(number: int) -> int:
        return log.append(edge(2 * number), key=f"key {number}" if keyed else None)

    told = {0: append(0)}
    opcodes = count_opcodes(lambda: append(1))
    assert opcodes > 200
    some = places(rng, opcodes, 40)
    for number, at in enumerate(some, 2):
        kept = interrupt(partial(append, number), at)
        where = f"append {number}, interrupted {kept!r}"
        assert_free(log, where)
        elsewhere(partial(log.append, edge(2 * number + 1)))
        if keyed:
            told[number] = append(number)
        log.sync()
    found = contents(log)
    events = [one for _, one in found]
    assert len(set(events)) == len(events)
    for number in range(2, len(some) + 2):
        assert edge(2 * number + 1).to_bytes() in events
        assert not keyed or (told[number], edge(2 * number).to_bytes()) in found
    assert [seq for seq, _ in found] == list(range(1, len(found) + 1))
    log.close()
    log = open_log(broker, topic)
    assert contents(log) == found
    log.close()


def test_boundaries_are_recorded_once_or_not_and_what_comes_after_knows(
    rng: np.random.Generator, broker: Broker, topic: str
) -> None:
    log = open_log(broker, topic)
    log.append_all([edge(number) for number in range(2)])
    log.record_batch(Batch(0, 1))
    some = places(rng, count_opcodes(lambda: log.record_batch(Batch(1, 2))), 40)
    log.append_all([edge(number) for number in range(2 * len(some))])
    expected, end = [Batch(0, 1), Batch(1, 2)], 2
    for at in some:
        first, second = Batch(end, end + 1), Batch(end, end + 2)
        kept = interrupt(partial(log.record_batch, first), at)
        where = f"{first}, interrupted {kept!r}"
        assert_free(log, where)
        try:
            log.record_batch(second)
        except LogError:
            expected.append(first)
        else:
            assert kept is not None, where
            expected.append(second)
        assert log.batches(0) == expected, where
        end = expected[-1].seq
    log.sync()
    log.close()
    log = open_log(broker, topic)
    assert log.batches(0) == expected
    log.close()


READS: dict[str, Callable[[KafkaLog], object]] = {
    "entries": contents,
    "a part": lambda log: [one.ends.tolist() for one in log.writes(7, max_events=9)],
    "digest": lambda log: log.digest(25),
}


@pytest.mark.parametrize("read", list(READS))
def test_a_read_that_was_interrupted_takes_nothing_from_the_next(
    rng: np.random.Generator, broker: Broker, topic: str, read: str
) -> None:
    """What is in memory no more is read from the brokers."""
    log = open_log(broker, topic)
    for number in range(30):
        log.append(edge(number))
    expected = {name: READS[name](log) for name in READS}
    log.close()
    log = open_log(broker, topic)
    ask = partial(READS[read], log)
    assert ask() == expected[read]
    for at in places(rng, count_opcodes(ask), 12):
        kept = interrupt(ask, at)
        where = f"{read}, interrupted {kept!r}"
        assert_free(log, where)
        assert ask() == expected[read], where
        assert contents(log) == expected["entries"], where
    log.close()


def test_what_follows_a_trim_that_was_interrupted_is_there(
    rng: np.random.Generator, broker: Broker, topic: str
) -> None:
    log = open_log(broker, topic)

    def add() -> None:
        seq = log.append(edge(log.last_seq()))
        log.record_batch(Batch(seq - 1, seq))

    def trim() -> int:
        return log.trim(log.last_seq() - 3)

    for _ in range(5):
        add()
        trim()
    for at in places(rng, count_opcodes(trim), 25):
        kept = interrupt(trim, at)
        where = f"interrupted {kept!r}"
        assert_free(log, where)
        elsewhere(add)
        begin = trim()
        assert begin > 0, where
        assert [entry.seq for entry in log.entries(begin)] == list(range(begin + 1, log.last_seq() + 1))
        assert log.batches(begin)[-1].seq == log.last_seq(), where
    begin, last = log.trim(log.last_seq()), log.last_seq()
    log.close()
    log = open_log(broker, topic)
    assert (log.last_seq(), [entry.seq for entry in log.entries(begin)]) == (
        last,
        list(range(begin + 1, last + 1)),
    )
    log.close()


def test_a_close_that_was_interrupted_ends_when_it_is_called_again(
    rng: np.random.Generator, broker: Broker, topic: str
) -> None:
    log = open_log(broker, topic)
    log.append(edge(0))
    opcodes = count_opcodes(log.close)
    for at in places(rng, opcodes, 8):
        log = open_log(broker, topic)
        kept = interrupt(log.close, at)
        log.close()
        assert not [thread.name for thread in log._threads if thread.is_alive()], repr(kept)
    log = open_log(broker, topic)
    assert len(contents(log)) == 1
    log.close()


FOLLOWS: dict[str, Callable[[KafkaTail], object]] = {
    "entries": lambda tail: [entry.seq for entry in tail.entries(5)],
    "batches": lambda tail: [one.batch for one in tail.batches(5)],
    "wait": lambda tail: tail.wait(SECONDS, batches=True),
    "commit": lambda tail: tail.commit(tail.position + 1),
}


@pytest.mark.parametrize("call", list(FOLLOWS))
def test_a_tail_goes_on_after_an_interrupt_where_it_was(
    rng: np.random.Generator, broker: Broker, topic: str, tmp_path: Path, call: str
) -> None:
    log = open_log(broker, topic)

    def add() -> None:
        seq = log.append(edge(log.last_seq()))
        log.record_batch(Batch(seq - 1, seq))
        log.sync()

    tail = KafkaTail(broker.servers, topic, "one", tmp_path, timeout=SECONDS)
    for _ in range(7):
        add()
    FOLLOWS[call](tail)
    add()
    for at in places(rng, count_opcodes(lambda: FOLLOWS[call](tail)), 15):
        add()
        before = tail.position
        kept = interrupt(lambda: FOLLOWS[call](tail), at)
        where = f"{call}, interrupted {kept!r}"
        assert is_free(tail._reading), where
        begin = tail.position
        assert begin in ((before, before + 1) if call == "commit" else (before,)), where
        there = list(range(begin + 1, log.last_seq() + 1))
        assert tail.wait(SECONDS, batches=True), where
        assert [entry.seq for entry in tail.entries()] == there, where
        assert [one.batch.seq for one in tail.batches()] == there, where
        if len(there) > 3:
            tail.commit(begin + 1)
    begin = tail.position
    tail.close()
    tail = KafkaTail(broker.servers, topic, "one", tmp_path, timeout=SECONDS)
    assert tail.position == begin
    tail.close()
    log.close()


def test_a_step_on_kafka_is_whole_or_absent(rng: np.random.Generator, broker: Broker, topic: str) -> None:
    log, graph, numbers = open_log(broker, topic), make_graph(), itertools.count()
    engine = Engine(graph, make_model(), threads=1)
    runtime = Runtime(log, graph, engine)
    told: list[int] = []
    runtime.subscribe(lambda change: told.append(change.seq))

    def drain() -> None:
        while runtime.step() or runtime.waiting:
            pass

    runtime.append(feature(next(numbers)))
    drain()
    runtime.append(feature(next(numbers)))
    for at in places(rng, count_opcodes(runtime.step), 25):
        drain()
        runtime.append(feature(next(numbers)))
        kept = interrupt(runtime.step, at)
        where = f"interrupted {kept!r}"
        assert_free(log, where)
        assert told == [batch.seq for batch in log.batches(0)], where
        assert runtime.seq == graph.seq == (told[-1] if told else 0), where
        drain()
        assert runtime.seq == log.last_seq() == told[-1], where
    runtime.stop()
    shown = engine.predict(graph.ids()).tobytes()
    log.close()
    log, again = open_log(broker, topic), make_graph()
    replayed = Engine(again, make_model(), threads=1)
    Runtime(log, again, replayed).stop()
    assert replayed.predict(again.ids()).tobytes() == shown
    log.close()
