"""The log in Kafka, on a real broker that is killed, slowed, cut off, and owned twice.

Every client keeps what it sent and what it was told. At the end the log has each acknowledged append once,
under the number that was told, and every reader sees the same.
"""

import asyncio
import itertools
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from fastapi import FastAPI
from typer.testing import CliRunner

import loopback
from kafka_broker import Broker, Proxy, needs_broker, needs_proxy, proxied_broker
from kafka_reading import add_partitions, deliver
from kafka_writer import edge
from livegnn import Engine, Events
from livegnn.cli import app
from livegnn.deployment import Deployment
from livegnn.errors import InputError, LogError
from livegnn.log import Appended, Batch, Origin, Rejection
from livegnn.log.kafka import KafkaLog, create_topics, encode_message
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from serving import Server, write_deployment
from streams import make_graph, make_model, make_stream
from waiting import PATIENCE

pytestmark = [pytest.mark.xdist_group("kafka"), needs_broker]
TOPICS = map("topic{}".format, itertools.count())


@pytest.fixture
def topic(broker: Broker) -> str:
    """Topics with three partitions."""
    name = next(TOPICS)
    create_topics(broker.servers, name, 3)
    return name


def contents(log: KafkaLog) -> list[tuple[int, bytes]]:
    return [(entry.seq, entry.events.to_bytes()) for entry in log.entries(0)]


def predictions(engine: Engine) -> bytes:
    """Of all nodes, and which these are."""
    ids = engine.graph.ids()
    return ids.tobytes() + engine.predict(ids).tobytes()


def plain(events: Events) -> bytes:
    return Events.concatenate([events]).to_bytes()


def test_the_log_is_what_a_list_of_entries_would_be(
    broker: Broker, topic: str, rng: np.random.Generator
) -> None:
    """Appends with and without keys, batches, refusals, new starts; read from memory and from the broker."""
    log = KafkaLog(broker.servers, topic)
    entries: list[tuple[int, bytes]] = []
    keys: dict[str, int] = {}
    batches: list[Batch] = []
    rejections: list[Rejection] = []
    digests: dict[int, str | None] = {}
    seq = ended = 0
    for number in range(40):
        given = [edge(int(one)) for one in rng.integers(0, 1000, rng.integers(1, 5))]
        given_keys = [str(rng.integers(0, 60)) if rng.random() < 0.5 else None for _ in given]
        outcomes = log.append_all(given, given_keys)
        for events, key, outcome in zip(given, given_keys, outcomes, strict=True):
            if key is None or key not in keys:
                seq += len(events)
                entries.append((seq, plain(events)))
                assert outcome == Appended(seq, len(events))
                if key is not None:
                    keys[key] = seq
            elif dict(entries)[keys[key]] == plain(events):
                assert outcome == Appended(keys[key], len(events), again=True)
            else:
                assert isinstance(outcome, InputError)
        ends = [end for end, _ in entries if end > ended]
        if ends and rng.random() < 0.5:
            batches.append(Batch(ended, int(rng.choice(ends))))
            refused = []
            if rng.random() < 0.3:
                refused = [Rejection(batches[-1].seq, "InputError", f"number {number}")]
                rejections += refused
            log.record_batch(batches[-1], *refused)
            ended = batches[-1].seq
            digests[ended] = log.digest(ended)
        if number % 13 == 12:
            log.close()
            log = KafkaLog(broker.servers, topic)
        assert contents(log) == entries
        after, up_to = sorted(rng.choice([0, *dict(entries)], 2).tolist())
        most = int(rng.integers(1, 30))
        expected = [entry for entry in entries if after < entry[0] <= up_to]
        fits = [entry for entry in expected if entry[0] <= after + most] or expected[:1]
        read = log.entries(after, up_to=up_to, max_events=most)
        assert [(entry.seq, entry.events.to_bytes()) for entry in read] == fits
    assert log.batches(0) == batches
    assert log.rejections() == rejections
    assert {end: log.digest(end) for end in digests} == digests
    assert len(set(digests.values())) == len(digests)
    one = entries[len(entries) // 2]
    found = log.entry(one[0])
    assert found is not None
    assert found.events.to_bytes() == one[1]
    assert log.entry(seq + 1) is None
    log.close()


def test_a_replay_from_kafka_has_the_bits_of_one_from_sqlite(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    log = KafkaLog(broker.servers, topic)
    graph = make_graph()
    engine = Engine(graph, make_model())
    runtime = Runtime(log, graph, engine, max_batch_events=50)
    runtime.start()
    stream = make_stream(400, seed=5)
    for first in range(0, len(stream), 10):
        runtime.append_all(stream[first : first + 10])
    runtime.append(Events().remove_nodes(10**9))  # is refused when its turn comes
    seq = runtime.wait(log.last_seq())
    live = predictions(engine)
    runtime.stop()

    sqlite = SqliteLog(tmp_path / "events.db")
    for entry in log.entries(0):
        sqlite.append(entry.events)
    for batch in log.batches(0):
        refused = list(log.rejections(batch.after, up_to=batch.seq))
        sqlite.record_batch(batch, *refused)
    assert len(log.rejections()) == 1
    log.close()
    log = KafkaLog(broker.servers, topic)
    for source in (log, sqlite):
        graph = make_graph()
        engine = Engine(graph, make_model())
        replayed = Runtime(source, graph, engine)
        assert replayed.seq == seq
        assert predictions(engine) == live
        replayed.stop()
        source.close()


def test_messages_of_other_processes_are_entries_and_others_are_listed(broker: Broker, topic: str) -> None:
    log = KafkaLog(broker.servers, topic)
    producer = Producer({"bootstrap.servers": broker.servers})
    for number in range(30):
        producer.produce(topic, encode_message([edge(number), edge(number + 1)]), partition=number % 3)
        producer.produce(topic, b"garbage %d" % number, partition=number % 3)
    producer.produce(topic, None, key=b"a tombstone", partition=0)
    producer.flush()
    total = sum(len(edge(number)) + len(edge(number + 1)) for number in range(30))
    while log.last_seq() < total:
        assert log.wait(log.last_seq(), PATIENCE)
    read = sorted(events for _, events in contents(log))
    assert read == sorted(plain(edge(number + more)) for number in range(30) for more in (0, 1))
    log.append(edge(1))  # what came before it was taken
    assert len(log.bad_messages()) == 31
    assert all("message of events must" in bad.reason for bad in log.bad_messages())
    assert {(bad.source, bad.payload[:7]) for bad in log.bad_messages()} == {
        (topic, b"garbage"),
        (topic, b""),
    }
    before = contents(log)
    log.close()
    log = KafkaLog(broker.servers, topic)
    assert contents(log) == before
    assert len(log.bad_messages()) == 31
    log.close()


def test_a_log_has_one_owner(broker: Broker, topic: str) -> None:
    log = KafkaLog(broker.servers, topic)
    seq = log.append(edge(1))
    with pytest.raises(LogError, match=r"one owner, got a second one: process \d+ on .* runs on it"):
        KafkaLog(broker.servers, topic)
    assert log.append(edge(2)) == seq + len(edge(2))
    log.close()
    log.close()
    log = KafkaLog(broker.servers, topic)
    assert log.last_seq() == seq + len(edge(2))
    log.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retention.ms": "1000"}, r"must have retention.ms=-1, got 1000"),
        ({"retention.ms": "-1", "cleanup.policy": "compact"}, "must have cleanup.policy=delete"),
        (None, "got no 'lacking"),
    ],
)
def test_topics_that_do_not_fit_are_named(
    broker: Broker, settings: dict[str, str] | None, message: str
) -> None:
    name = "lacking" + next(TOPICS)
    if settings is not None:
        create_topics(broker.servers, next(TOPICS))
        admin = AdminClient({"bootstrap.servers": broker.servers})
        for one in (name, f"{name}.control"):
            admin.create_topics([NewTopic(one, 1, 1, config=settings)])[one].result()
        while not {name, f"{name}.control"} <= set(admin.list_topics(timeout=PATIENCE).topics):
            pass  # it is acknowledged before all clients see it
    with pytest.raises(LogError, match=message):
        KafkaLog(broker.servers, name)


def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(LogError, match="cannot reach the event log 'nowhere'"):
        KafkaLog("127.0.0.1:1", "nowhere", settings={"socket.timeout.ms": 1000})


def test_trimming_keeps_what_comes_after(broker: Broker, topic: str) -> None:
    log = KafkaLog(broker.servers, topic)
    for number in range(20):
        log.append(edge(number), key=str(number))
    middle = log.last_seq()
    log.record_batch(Batch(0, middle), Rejection(middle, "InputError", "why"))
    assert log.trim(middle) == 0  # there is no earlier base yet
    for number in range(20, 40):
        log.append(edge(number), key=str(number))
    log.record_batch(Batch(middle, log.last_seq()))
    assert log.trim(middle) == middle
    rest = [(entry.seq, entry.events.to_bytes()) for entry in log.entries(middle)]
    digest = log.digest(log.last_seq())
    log.close()
    log = KafkaLog(broker.servers, topic)
    assert [(entry.seq, entry.events.to_bytes()) for entry in log.entries(middle)] == rest
    assert log.digest(log.last_seq()) == digest
    assert log.batches(middle) == [Batch(middle, log.last_seq())]
    assert log.rejections() == [Rejection(middle, "InputError", "why")]
    with pytest.raises(LogError, match="it was trimmed"):
        log.entries(0)
    with pytest.raises(LogError, match="was trimmed"):
        log.batches(0)
    last = log.last_seq()
    assert log.append(edge(3), key="3") <= middle  # keys outlive their entries
    assert log.append(edge(39), key="39") == last
    assert log.append(edge(40)) == last + len(edge(40))
    log.close()


def test_what_was_refused_is_forgotten(broker: Broker, topic: str) -> None:
    """Up to an event, or an offset; a replay, numbers and where a source goes on are as before."""
    log = KafkaLog(broker.servers, topic)
    for number in range(1, 11):
        assert log.append(Events().add_nodes(number)) == number
        refused = [Rejection(number, "InputError", "no")] if number in (2, 4, 8) else []
        log.record_batch(Batch(number - 1, number), *refused)
    for at in range(1, 7):
        log.append_all([InputError(f"bad {at}")], None, [Origin("s", at % 2, at, b"{")])
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(topic, b"garbage", partition=2)
    producer.flush()
    while len(log.bad_messages()) < 7:
        log.append(Events().add_nodes(11))
    (own,) = log.bad_messages(6)
    assert (own.number, own.source, own.partition) == (7, topic, 2)
    assert log.forget_rejections(4) == 2
    assert log.forget_rejections(4) == 0
    assert log.forget_bad_messages("s", 1, 3) == 2
    assert log.forget_bad_messages("s", 0, 6) == 3
    assert log.forget_bad_messages("other", 0, 100) == 0
    assert log.forget_bad_messages(topic, 2, own.offset) == 1

    def check() -> None:
        assert [one.seq for one in log.listed()] == [8]
        assert [one.seq for one in log.listed(8)] == []
        assert [(one.number, one.offset) for one in log.bad_messages()] == [(5, 5)]
        assert (log.position("s", 0), log.position("s", 1)) == (6, 5)

    check()
    assert [one.seq for one in log.rejections()] == [2, 4, 8], "a replay needs them"
    log.close()
    log = KafkaLog(broker.servers, topic)
    check()
    assert [one.seq for one in log.rejections()] == [2, 4, 8]
    assert log.trim(9) == 0  # there is no base yet
    log.append(Events().add_nodes(12))
    base = log.last_seq()
    log.record_batch(Batch(10, base))
    log.append_all([InputError("bad 8")], None, [Origin("s", 0, 8, b"{")])
    log.trim(base)
    assert [one.seq for one in log.rejections()] == [8]
    assert list(log.find_entries([2, 8])) == [None, None], "their events went with the trim"
    log.close()
    log = KafkaLog(broker.servers, topic)
    assert [one.seq for one in log.rejections()] == [one.seq for one in log.listed()] == [8]
    assert [(one.number, one.offset) for one in log.bad_messages()] == [(5, 5), (8, 8)]
    assert log.forget_rejections(8) == 1
    assert log.listed() == []
    log.close()


def asked(web: FastAPI, method: str, path: str) -> dict[str, Any]:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://test") as client:
            return await client.request(method, path)

    found: dict[str, Any] = asyncio.run(ask()).json()
    return found


def test_a_server_and_a_command_forget_what_was_refused(broker: Broker, tmp_path: Path) -> None:
    path, topic = write_deployment(tmp_path), next(TOPICS)
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace('path = "events.db"', f'kafka = "{broker.servers}"\ntopic = "{topic}"'), encoding="utf-8"
    )
    assert CliRunner().invoke(app, ["log", "create", str(path)]).exit_code == 0
    runtime = Deployment.read(path).open()
    for node in (90_001, 90_002):
        runtime.append(Events().add_edges(1, node))
        runtime.step()
    with closing(runtime.log):
        runtime.log.append_all([InputError("bad")], None, [Origin("s", 0, 3, b"{")])
        web = create_app(runtime)
        first, second = asked(web, "GET", "/v1/rejections")["rejections"]
        assert first["events"] == [{"event": "add_edge", "src": 1, "dst": 90_001}]
        said = {"seq": second["seq"], "forgotten": 1}
        assert asked(web, "DELETE", f"/v1/rejections?up_to={first['seq']}") == said
        assert asked(web, "DELETE", "/v1/bad-messages?source=s&partition=0&up_to=3") == said
        listed = asked(web, "GET", "/v1/rejections")
        assert [one["seq"] for one in listed["rejections"]] == [second["seq"]]
        assert listed["bad_messages"] == []
    result = CliRunner().invoke(app, ["log", "forget", str(path), str(second["seq"])])
    assert (result.exit_code, result.output) == (0, "forgot 1 refused entries\n")


def test_properties_are_kept_and_others_refused(broker: Broker, topic: str) -> None:
    log = KafkaLog(broker.servers, topic)
    log.bind({"schema": "a", "graph": "b"})
    log.close()
    log = KafkaLog(broker.servers, topic)
    log.bind({"schema": "a"})
    with pytest.raises(LogError, match="graph must be b, got c"):
        log.bind({"schema": "a", "graph": "c"})
    log.close()


def test_a_change_that_is_meant_is_accepted_by_the_command(broker: Broker, tmp_path: Path) -> None:
    path = write_deployment(tmp_path)
    text = path.read_text(encoding="utf-8")
    topic = next(TOPICS)
    path.write_text(
        text.replace('path = "events.db"', f'kafka = "{broker.servers}"\ntopic = "{topic}"'), encoding="utf-8"
    )
    for given in ("-3", "0"):
        refused = CliRunner().invoke(app, ["log", "create", str(path), "--partitions", given])
        assert isinstance(refused.exception, InputError)
    assert CliRunner().invoke(app, ["log", "create", str(path)]).exit_code == 0
    runtime = Deployment.read(path).open()
    runtime.log.close()
    path.write_text(
        path.read_text(encoding="utf-8").replace("[graph]", '[graph]\nparallel = "last"'), encoding="utf-8"
    )
    with pytest.raises(LogError, match="livegnn log bind"):
        Deployment.read(path).open()
    result = CliRunner().invoke(app, ["log", "bind", str(path)])
    assert result.exit_code == 0, result.output
    assert 'graph/parallel: "refuse" -> "last"' in result.output
    assert f"the topic '{topic}' of Kafka is bound to {path}" in result.output
    Deployment.read(path).open().log.close()


def test_partitions_that_are_added_are_read_from_their_beginning(broker: Broker, topic: str) -> None:
    """By the owner that runs, while others write to all of them, and by one that reads what is old."""
    log = KafkaLog(broker.servers, topic)
    first = log.append(edge(0))
    expected = [plain(edge(0))]
    for partitions in (4, 7):
        add_partitions(broker, topic, partitions)
        before = log.last_seq()
        sent = [(number, partition) for number in range(20) for partition in range(partitions)]
        deliver(broker, topic, [(partition, encode_message([edge(number)])) for number, partition in sent])
        count = sum(len(edge(number)) for number, _ in sent)
        deadline = time.monotonic() + PATIENCE
        while log.last_seq() < before + count:
            assert time.monotonic() < deadline, "the new partitions are not read"
            log.wait(log.last_seq(), 1.0)
        assert log.last_seq() == before + count
        expected += [plain(edge(number)) for number, _ in sent]
    log.append(edge(5))
    expected.append(plain(edge(5)))
    all_of_it = contents(log)
    assert sorted(events for _, events in all_of_it) == sorted(expected)
    log.close()
    log = KafkaLog(broker.servers, topic)
    assert contents(log) == all_of_it
    assert log.entry(first) is not None
    log.close()


def test_what_an_operator_can_do_is_said(broker: Broker, topic: str) -> None:
    """Messages that were deleted before they were taken; a record of somebody else in the control topic."""
    log = KafkaLog(broker.servers, topic)
    log.append(edge(0))
    log.close()
    producer = Producer({"bootstrap.servers": broker.servers})
    for partition in range(3):
        for number in range(4):
            producer.produce(topic, encode_message([edge(number)]), partition=partition)
    producer.flush()
    admin = AdminClient({"bootstrap.servers": broker.servers})
    places = [TopicPartition(topic, partition, 3) for partition in range(3)]
    for future in admin.delete_records(places).values():
        future.result()
    advice = "begin another log, with the newest checkpoint as path of"
    with pytest.raises(LogError, match=f"were deleted before they were taken.*{advice}"):
        KafkaLog(broker.servers, topic)
    producer.produce(f"{topic}.control", b"hello")
    producer.flush()
    with pytest.raises(LogError, match=f"must be one of LiveGNN.*No other program may write there.*{advice}"):
        KafkaLog(broker.servers, topic)


# -- faults


class Clients:
    """Threads that append, each append with a key, again until it is answered; what they were told."""

    def __init__(self, log: KafkaLog, count: int) -> None:
        self.log, self.told, self.failed = log, {}, []
        self._numbers = iter(range(count))
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._write) for _ in range(4)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        while True:
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                return
            while number not in self.told:
                try:
                    self.told[number] = self.log.append(edge(number), key=str(number))
                except LogError as error:
                    self.failed.append(str(error))

    def wait_for(self, count: int) -> None:
        while len(self.told) < count and any(thread.is_alive() for thread in self._threads):
            time.sleep(0.01)

    def stop(self) -> None:
        """Lets none of them begin another append."""
        with self._lock:
            self._numbers = iter(())
        self.join()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def check(log: KafkaLog, told: dict[int, int]) -> None:
    """Each acknowledged append is there once, under its number, and no append is there twice."""
    entries = dict(contents(log))
    assert {number: entries.get(seq) for number, seq in told.items()} == {
        number: plain(edge(number)) for number in told
    }
    assert len(set(entries.values())) == len(entries), "an append is there twice"
    log.close()


@pytest.mark.parametrize("kills", [2])
def test_a_broker_that_is_killed_and_comes_back(kills: int) -> None:
    broker = Broker()
    create_topics(broker.servers, "events", 3)
    log = KafkaLog(broker.servers, "events")
    clients = Clients(log, 400)
    for kill in range(kills):
        clients.wait_for(100 * (kill + 1))
        broker.kill()
        broker.start()
    clients.join()
    assert len(clients.told) == 400
    expected = contents(log)
    log.close()
    log = KafkaLog(broker.servers, "events")
    assert contents(log) == expected
    check(log, clients.told)
    broker.close()


@needs_proxy
def test_a_network_that_is_slow_cut_and_reset() -> None:
    with proxied_broker() as (broker, proxy):
        create_topics(broker.servers, "events", 2)
        log = KafkaLog(broker.servers, "events", timeout=20)
        clients = Clients(log, 300)
        for number, spoil in enumerate((slow, reset, cut)):
            clients.wait_for(50 * (number + 1))
            spoil(proxy)
            proxy.heal()
        clients.join()
        assert len(clients.told) == 300
        check(log, clients.told)


@needs_proxy
def test_what_was_recorded_is_read_however_slow_the_broker_is_and_others_append() -> None:
    with proxied_broker() as (broker, proxy):
        create_topics(broker.servers, "events", 1)
        log = KafkaLog(broker.servers, "events", timeout=5)
        first = log.append(edge(0))
        clients = Clients(log, 100_000)  # so many that there is always an order on its way
        clients.wait_for(10)
        proxy.toxic("latency", latency=100)
        log.record_batch(Batch(0, first), Rejection(first, "InputError", "no"))
        assert log.batches(0) == [Batch(0, first)]
        log.sync()
        assert len(log.rejections()) == 1
        clients.stop()
        log.close()


def slow(proxy: Proxy) -> None:
    proxy.toxic("latency", latency=300, jitter=100)
    proxy.toxic("bandwidth", "upstream", rate=20)
    time.sleep(2)


def reset(proxy: Proxy) -> None:
    proxy.toxic("reset_peer", timeout=0)
    time.sleep(1)


def cut(proxy: Proxy) -> None:
    proxy.cut(off=True)
    time.sleep(2)
    proxy.cut(off=False)


class Writer:
    """`kafka_writer.py` as a process."""

    def __init__(self, broker: Broker, topic: str, first: int, answers: Path) -> None:
        self.answers = answers
        script = Path(__file__).parents[1] / "kafka_writer.py"
        self.process = subprocess.Popen(
            [sys.executable, str(script), broker.servers, topic, str(first), str(answers)]
        )

    def lines(self) -> list[str]:
        return self.answers.read_text(encoding="utf-8").splitlines() if self.answers.exists() else []

    def wait_for(self, count: int) -> None:
        while len(self.lines()) < count:
            assert self.process.poll() is None
            time.sleep(0.01)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def told(self) -> dict[int, int]:
        numbers = [line.split() for line in self.lines() if line[:1].isdigit()]
        return {int(number): int(seq) for number, seq in numbers}


def test_an_owner_that_is_killed_under_load(
    broker: Broker, topic: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Appends of the killed process that were not answered are sent again with their keys."""
    told: dict[int, int] = {}
    for number in range(3):
        first = max(0, max(told, default=0) - 10)  # some of these were answered
        writer = Writer(broker, topic, first, tmp_path / str(number))
        writer.wait_for(int(rng.integers(2, 120)))
        writer.kill()
        for at, seq in writer.told().items():
            assert told.setdefault(at, seq) == seq, "the same key must get the same answer"
    log = KafkaLog(broker.servers, topic)
    assert log.batches(0)
    check(log, told)


def test_a_server_on_kafka_that_is_killed(broker: Broker, tmp_path: Path) -> None:
    """What it acknowledged is there, and predictions are what a replay of the log makes of it."""
    deployment = write_deployment(tmp_path, every_events=100)
    name = next(TOPICS)
    text = deployment.read_text(encoding="utf-8")
    in_kafka = f'kafka = "{broker.servers}"\ntopic = "{name}"'
    deployment.write_text(text.replace('[log]\npath = "events.db"', f"[log]\n{in_kafka}"), encoding="utf-8")
    with pytest.raises(LogError, match=f"got no '{name}'"):
        Deployment.read(deployment).open()
    made = CliRunner().invoke(app, ["log", "create", str(deployment), "--partitions", "2"])
    assert (made.exit_code, made.output) == (0, f"{name} and {name}.control are at {broker.servers}\n")
    stream = make_stream(120, seed=3)
    for part in (stream[:60], stream[60:]):
        with Server(deployment) as server:
            for events in part:
                answer = loopback.post(
                    f"{server.address}/v1/events",
                    content=events.to_json_lines(),
                    headers={"content-type": "application/x-ndjson"},
                )
                assert answer.status_code == 200, answer.text
            server.kill()
    runtime = Deployment.read(deployment).open()
    while runtime.step():
        pass
    assert runtime.seq == sum(map(len, stream))
    live = predictions(runtime.engine)
    graph = make_graph()
    engine = Engine(graph, make_model())
    for batch in runtime.log.batches(0):
        writes = runtime.log.writes(batch.after, up_to=batch.seq)
        engine.apply(Events.concatenate(write.events for write in writes))
    assert predictions(engine) == live
    runtime.stop()
    runtime.log.close()


def test_an_owner_that_slept_acknowledges_nothing_more(broker: Broker, topic: str, tmp_path: Path) -> None:
    """It believes to be the owner when it wakes, but another one has taken over."""
    sleeper = Writer(broker, topic, 0, tmp_path / "sleeper")
    sleeper.wait_for(20)
    sleeper.process.send_signal(signal.SIGSTOP)
    log = KafkaLog(broker.servers, topic)
    seq = log.append(edge(10_000))
    sleeper.process.send_signal(signal.SIGCONT)
    while not any(line.startswith("ended") for line in sleeper.lines()):
        assert sleeper.process.poll() in (None, 0)
        time.sleep(0.05)
    assert any("has taken over" in line for line in sleeper.lines())
    sleeper.kill()
    assert log.append(edge(10_001)) > seq
    told = sleeper.told()
    check(log, {**told, 10_000: seq})
