"""From a commit in PostgreSQL until the score is readable, through Debezium and Kafka.

    python benchmarks/commit_to_score.py --postgresql CONNECTION --kafka SERVERS --connect URL [--quick]
                                  [--json FILE]

The three servers run already: PostgreSQL with `wal_level = logical`, a broker, and Kafka Connect with
Debezium, which sends JSON without schemas; URL is its REST interface. The benchmark makes a table, a topic
and a connector of the name `livegnn_benchmark`, and removes the table and the connector at the end.

The table begins with 100,000 payments among 20,000 accounts (Debezium's snapshot). Then every 10 ms a
transaction inserts 10 payments, 1,000 a second, each to an account that is new, so that its first prediction,
of a GCN of two layers, is the end of the way. All is on one machine, and so has one clock:

    commit     the client's COMMIT has returned
    in Kafka   the time that Debezium's producer gives the message, in whole milliseconds
    received   the source has the message from the client library
    readable   the runtime has published the batch with the prediction

The client of the database is a process of its own, as that of a user is: it would hold the interpreter's
lock half of the time.

The servers should have other cores than this program, or else it waits for them: on two cores, start the
servers with `taskset -c 0`, and this with `taskset -c 1`.

Estimate: ours is from received to readable: reading some thirty messages (2 to 3 ms), a durable append (1.4
ms of a core, and an fsync, 1 to 3 ms here), a batch (1.6 ms), and a wait for the batch that is being applied.
Debezium looks for changes of the log every 500 ms (`poll.interval.ms`) unless it is told otherwise, and sends
what it has found at once: then 500 rows arrive together. Here it looks every --poll ms, 20 unless said.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import re
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np
import psycopg

import livegnn as lg
from livegnn import Engine, Events, Graph
from livegnn.connectors.kafka import KafkaTopic
from livegnn.connectors.row_messages import RowMessages, parse_change
from livegnn.errors import InputError
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.tables import TableReader
from livegnn.types import DEFAULT_EDGE_TYPE
from recovery import make_model
from report import Report, arguments

NAME = "livegnn_benchmark"
AIM_MS = 10.0
ROWS, ACCOUNTS, WIDTH, CLASSES = 100_000, 20_000, 16, 2
EVERY, TOGETHER = 0.01, 10  # seconds, rows of a transaction
ID = re.compile(rb'"after":\{"id":(\d+)')
TABLE = f"""
drop table if exists {NAME};
create table {NAME} (
  id bigint primary key, sender text not null, receiver text not null, amount numeric(12, 2) not null,
  at timestamptz not null default now(), note text);
alter table {NAME} replica identity full;
insert into {NAME} select id, 'a' || (random() * {ACCOUNTS})::int, 'a' || (random() * {ACCOUNTS})::int,
  random() * 1000, now(), 'snapshot' from generate_series(1, {{rows}}) as id;
"""


class Connector:
    """Debezium's connector of the table."""

    def __init__(self, url: str, connection: psycopg.Connection, poll: int) -> None:
        self._url = f"{url.rstrip('/')}/connectors/{NAME}"
        about = connection.info
        settings = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": about.host,
            "database.port": str(about.port),
            "database.user": about.user,
            "database.password": about.password or "none",
            "database.dbname": about.dbname,
            "topic.prefix": NAME,
            "table.include.list": f"public.{NAME}",
            "slot.name": NAME,
            "publication.name": NAME,
            "decimal.handling.mode": "double",
            "poll.interval.ms": str(poll),
            # Connect's producer sends one request at a time: with the usual 16 KiB in each, 20 rows.
            "producer.override.batch.size": str(1 << 20),
            "producer.override.linger.ms": "5",
        }
        self._send("PUT", "/config", json.dumps(settings).encode())

    def remove(self) -> None:
        self._send("DELETE", "", None)

    def _send(self, method: str, path: str, body: bytes | None) -> None:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self._url + path, body, headers, method=method)
        urllib.request.urlopen(request).close()


class Way:
    """The moments of each row, by its id, in seconds since 1970."""

    def __init__(self, messages: RowMessages) -> None:
        self._messages = messages
        self.committed: dict[int, float] = {}
        self.received: dict[int, float] = {}
        self.readable: dict[int, float] = {}

    def decode(self, values: Sequence[bytes | None]) -> list[Events | InputError]:
        self._note(values)
        return self._messages.decode(values)

    def join(self, values: Sequence[bytes | None]) -> tuple[Events, list[int]] | None:
        self._note(values)
        return self._messages.join(values)

    def _note(self, values: Sequence[bytes | None]) -> None:
        now = time.time()
        for value in values:
            if value is not None and (found := ID.search(value)) is not None:
                self.received.setdefault(int(found[1]), now)

    def note_change(self, change: lg.runtime.Change) -> None:
        now = time.time()
        for id in change.ids:
            if id.startswith("r"):
                self.readable.setdefault(int(id[1:]), now)


def times_in_kafka(servers: str, topic: str, first: int) -> dict[int, float]:
    """The times of the messages of all rows from `first` on."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": NAME, "enable.auto.commit": False})
    known = consumer.list_topics(topic).topics[topic].partitions
    partitions = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in known]
    left = sum(consumer.get_watermark_offsets(partition)[1] for partition in partitions)
    consumer.assign(partitions)
    found = dict[int, float]()
    while left > 0:
        messages = consumer.consume(10_000, timeout=1.0)
        left -= len(messages)
        for message in messages:
            if (row := ID.search(message.value() or b"")) is not None and int(row[1]) >= first:
                found[int(row[1])] = message.timestamp()[1] / 1000
    consumer.close()
    return found


def insert(settings: str, first: int, seconds: int, committed: Queue[dict[int, float]]) -> None:
    with psycopg.connect(settings) as connection:
        committed.put(insert_rows(connection, first, seconds))


def insert_rows(connection: psycopg.Connection, first: int, seconds: int) -> dict[int, float]:
    """The time of the commit of each row, by its id."""
    draw, due = np.random.default_rng(1), time.perf_counter()
    committed = dict[int, float]()
    line = f"insert into {NAME} (id, sender, receiver, amount, note) values (%s, %s, %s, %s, %s)"
    for at in itertools.count(first, TOGETHER):
        if at >= first + seconds * TOGETHER / EVERY:
            break
        rows = [
            (id, f"a{draw.integers(ACCOUNTS)}", f"r{id}", round(draw.random() * 1000, 2), "x" * 100)
            for id in range(at, at + TOGETHER)
        ]
        with connection.cursor() as cursor:
            cursor.executemany(line, rows)
        connection.commit()
        committed |= dict.fromkeys(range(at, at + TOGETHER), time.time())
        due += EVERY
        time.sleep(max(0.0, due - time.perf_counter()))
    return committed


def open_runtime(folder: Path) -> tuple[Runtime, Way]:
    edges = lg.EdgeSchema(weighted=True, timed=True, duplicates="keep")
    schema = lg.Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}, text_ids=True, auto_add=["node"])
    graph = Graph(schema)
    runtime = Runtime(
        SqliteLog(folder / "events.db"), graph, Engine(graph, make_model(WIDTH, CLASSES, 2), threads=1)
    )
    mapping = lg.TableMapping(edges=[lg.EdgeRows("sender", "receiver", weight="amount", time="at", key="id")])
    way = Way(RowMessages(TableReader(mapping, schema, NAME), parse_change))
    runtime.subscribe(way.note_change)
    runtime.start()
    return runtime, way


def main() -> None:
    parser = arguments(__doc__)
    for name, what in (("postgresql", "settings of libpq"), ("kafka", "the brokers"), ("connect", "its URL")):
        parser.add_argument(f"--{name}", required=True, help=what)
    parser.add_argument("--poll", type=int, default=20, help="ms between two looks of Debezium")
    options = parser.parse_args()
    rows, seconds = (ROWS // 10, 10) if options.quick else (ROWS, 60)
    topic = f"{NAME}.public.{NAME}"
    report = Report("PostgreSQL")
    with tempfile.TemporaryDirectory() as name, psycopg.connect(options.postgresql) as connection:
        connection.execute(TABLE.format(rows=rows))
        connection.commit()
        connector = Connector(options.connect, connection, options.poll)
        runtime, way = open_runtime(Path(name))
        begun = time.perf_counter()
        source = start_source(runtime, options.kafka, topic, way)
        wait(lambda: len(way.received) == rows)
        snapshot = time.perf_counter() - begun
        context = multiprocessing.get_context("spawn")
        committed: Queue[dict[int, float]] = context.Queue()
        inserting = context.Process(target=insert, args=(options.postgresql, rows + 1, seconds, committed))
        inserting.start()
        way.committed = committed.get()
        inserting.join()
        wait(lambda: way.committed.keys() <= way.readable.keys())
        source.stop()
        runtime.stop()
        runtime.log.close()
        connector.remove()
        connection.execute(f"drop table {NAME}")
    stored = times_in_kafka(options.kafka, topic, rows + 1)
    warm = rows + seconds * TOGETHER / EVERY / 10
    counted = [id for id in way.committed if id > warm]
    report.add("rows of the snapshot", rows / snapshot, "/s", higher_is_better=True)
    for what, since, until, aim in (
        ("committed until readable", way.committed, way.readable, None),
        ("of it, committed until in Kafka (Debezium)", way.committed, stored, None),
        ("of it, in Kafka until received", stored, way.received, None),
        ("of it, received until readable (ours)", way.received, way.readable, AIM_MS),
    ):
        times = 1e3 * np.array([until[id] - since[id] for id in counted])
        report.add(f"{what}, median", float(np.median(times)), "ms")
        report.add(
            f"{what}, 99th percentile",
            float(np.percentile(times, 99)),
            "ms",
            aim=None if options.quick else aim,
        )
    report.finish(options.json)


def start_source(runtime: Runtime, servers: str, topic: str, way: Way) -> KafkaTopic:
    """The source, as soon as Debezium has made the topic."""
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": servers})
    wait(lambda: topic in client.list_topics().topics)
    source = KafkaTopic(runtime, servers, topic, decode=way.decode, join=way.join)
    source.start()
    return source


def wait(done: Callable[[], bool]) -> None:
    ends = time.monotonic() + 600
    while not done():
        if time.monotonic() > ends:
            raise TimeoutError(
                "expected all rows within ten minutes, got some of them: look at the connector"
            )
        time.sleep(0.1)


if __name__ == "__main__":
    main()
