"""Messages that are delivered again, in another order, by several producers: each takes effect once."""

import random
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from faulty_world import FIRST_SEED, History, check_bits, plain, replay, seed_shown
from livegnn import Engine, Events
from livegnn.log import Appended, Origin
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from streams import make_graph, make_model, make_stream
from waiting import PATIENCE

PARTITIONS = 3
MESSAGES = 60  # of a partition


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        yield log


def start(log: SqliteLog) -> Runtime:
    graph = make_graph()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1), max_batch_events=32)
    runtime.start()
    return runtime


def run_all(producers: list[threading.Thread], failures: list[BaseException]) -> None:
    for thread in producers:
        thread.start()
    for thread in producers:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert failures == []


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 4))
def test_keys_in_any_order_from_several_producers(log: SqliteLog, seed: int) -> None:
    """Each producer has all entries, in an order of its own, and sends some twice, alone or with others."""
    history, failures = History(), list[BaseException]()
    entries = {str(number): events for number, events in enumerate(make_stream(150, seed=seed))}
    runtime = start(log)

    def produce(number: int) -> None:
        draw = random.Random(f"{seed} {number}")
        try:
            order = draw.sample(sorted(entries), len(entries))
            order += draw.choices(order, k=30)
            while order:
                keys = [order.pop() for _ in range(min(len(order), draw.choice([1, 1, 7])))]
                for key in keys:
                    history.send(key, entries[key])
                runtime.admit(PATIENCE)  # producers together are faster than the loop on a busy machine
                if len(keys) == 1:
                    seq = runtime.append(entries[keys[0]], key=keys[0], room_timeout=PATIENCE)
                    history.tell(keys[0], seq)
                    continue
                given = [entries[key] for key in keys]
                for key, outcome in zip(keys, runtime.append_all(given, keys, admitted=True), strict=True):
                    assert isinstance(outcome, Appended)
                    history.tell(key, outcome.seq)
        except BaseException as error:
            failures.append(error)

    with seed_shown(seed):
        run_all([threading.Thread(target=produce, args=(n,)) for n in range(4)], failures)
        assert len(history.told) == len(entries) == len(log.entries(0))
        history.check(log)
        runtime.wait(log.last_seq(), PATIENCE)
        check_bits(runtime.engine, replay(log))
        runtime.stop()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 4))
def test_messages_of_a_broker_that_are_delivered_again(log: SqliteLog, seed: int) -> None:
    """Several consumers of the same partitions: each begins again somewhere before what it had."""
    streams = [make_stream(MESSAGES, seed=seed + n) for n in range(PARTITIONS)]
    failures = list[BaseException]()
    turns = [threading.Lock() for _ in range(PARTITIONS)]  # a partition has one consumer at a time
    runtime = start(log)

    def consume(number: int) -> None:
        draw = random.Random(f"{seed} {number}")
        try:
            while True:
                left = [n for n in range(PARTITIONS) if (log.position("topic", n) or 0) < MESSAGES - 1]
                if not left:
                    return
                partition = draw.choice(left)
                with turns[partition]:
                    reached = log.position("topic", partition)
                    begin = 0 if reached is None else max(0, reached + 1 - draw.choice([0, 0, 3, 20]))
                    offsets = [*range(begin, min(MESSAGES, begin + draw.randint(1, 25)))]
                    given: list[Events] = [streams[partition][offset] for offset in offsets]
                    origins = [Origin("topic", partition, offset) for offset in offsets]
                    outcomes = runtime.append_all(given, origins=origins)
                    for offset, outcome in zip(offsets, outcomes, strict=True):
                        assert isinstance(outcome, Appended)
                        assert outcome.again == (reached is not None and offset <= reached)
        except BaseException as error:
            failures.append(error)

    with seed_shown(seed):
        run_all([threading.Thread(target=consume, args=(n,)) for n in range(4)], failures)
        stored = [plain(entry.events) for entry in log.entries(0)]
        sent = [[plain(events) for events in stream] for stream in streams]
        assert sorted(stored) == sorted(message for stream in sent for message in stream)
        for stream in sent:
            rest = iter(stored)
            assert all(message in rest for message in stream), "the order of a partition was changed"
        runtime.wait(log.last_seq(), PATIENCE)
        check_bits(runtime.engine, replay(log))
        runtime.stop()
