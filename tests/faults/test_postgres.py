"""A table of PostgreSQL, by Debezium, as a live graph: at the end both have the same rows, whatever died."""

import os
import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from kafka_broker import Broker, needs_proxy, proxied_broker
from kafka_reading import wait_for
from livegnn import Events, checkpoint
from livegnn.deployment import Deployment
from livegnn.deployment.sinks import start_sinks
from livegnn.graph import EdgeSchema, Graph, Schema
from livegnn.runtime import Runtime
from livegnn.types import DEFAULT_EDGE_TYPE
from postgres import GUIDE, Connect, Postgres, block_of, needs_postgres
from serving import Server
from streams import WIDTH, make_model
from waiting import PATIENCE

pytestmark = [pytest.mark.campaign, pytest.mark.xdist_group("kafka"), needs_postgres, needs_proxy]

ROWS = int(os.environ.get("LIVEGNN_POSTGRES_ROWS", "20000"))
ROUNDS = int(os.environ.get("LIVEGNN_POSTGRES_ROUNDS", "40"))
RATE = float(os.environ.get("LIVEGNN_POSTGRES_RATE", "inf"))  # changes a second
OF_ROUND = 250
OF_ALL = PATIENCE + (ROWS + ROUNDS * OF_ROUND) / 2000
"""Seconds that all rows, or all changes, may take through the connector and the source."""
NAMES = ["ann", "bob", "Zoë", "名前", "x'y", "tab\\t", *(f"n{at}" for at in range(max(300, ROWS // 20)))]


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def write(folder: Path, servers: str, port: int) -> Path:
    """The deployment of the guide, with another broker, PostgreSQL at another port, and an empty graph."""
    make_model().save(folder / "model.lgnn")
    edges = EdgeSchema(weighted=True, timed=True, duplicates="keep")
    schema = Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}, text_ids=True, auto_add=["node"])
    checkpoint.write(folder / "graph.lgck", {"graph": Graph(schema).state()}, 0)
    path = folder / "deployment.toml"
    text = "".join(re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL))
    text = text.replace("localhost:9092", servers).replace("8080", "0").replace("port=5432", f"port={port}")
    path.write_text(text, encoding="utf-8")
    return path


class Known:
    """Ids, one of which is added, removed or drawn in the same time however many there are."""

    def __init__(self) -> None:
        self.ids, self._places = list[int](), dict[int, int]()

    def add(self, id: int) -> None:
        self._places[id] = len(self.ids)
        self.ids.append(id)

    def remove(self, id: int) -> None:
        place, last = self._places.pop(id), self.ids.pop()
        if last != id:
            self.ids[place], self._places[last] = last, place


class Changes:
    """Random changes of the table, as SQL. wrong: how many of them no mapping can read."""

    def __init__(self, seed: int, *, may_be_wrong: bool) -> None:
        self._random, self._known, self._next = random.Random(seed), Known(), 0
        self._may_be_wrong, self._are_wrong, self.wrong = may_be_wrong, set[int](), 0

    def insert(self) -> str:
        self._next += 1
        self._known.add(self._next)
        return f"insert into payment values ({self._next}, {self._values()});"

    def any(self) -> str:
        kind = self._random.random()
        if kind < 0.4 or not self._known.ids:
            return self.insert()
        id = self._random.choice(self._known.ids)
        if kind < 0.55:
            self._known.remove(id)
            self._are_wrong.discard(id)
            return f"delete from payment where id = {id};"
        if kind < 0.57 and self._may_be_wrong:
            self._are_wrong.add(id)
            self.wrong += 1
            return f"update payment set amount = 'NaN' where id = {id};"
        if kind < 0.65 and id not in self._are_wrong:  # the key of the row and of the edge
            self._known.remove(id)
            self._next += 1
            self._known.add(self._next)
            return f"update payment set id = {self._next} where id = {id};"
        self._are_wrong.discard(id)
        names = "sender, receiver, amount, at, status, note"
        return f"update payment set ({names}) = ({self._values()}) where id = {id};"

    def correct(self) -> str:
        """Gives each wrong row values that can be read."""
        return "update payment set amount = 1 where amount = 'NaN';"

    def _values(self) -> str:
        draw = self._random.choice
        name, other = (draw(NAMES).replace("'", "''") for _ in range(2))
        receiver = draw([f"'{other}'"] * 9 + ["null"])
        amount = draw(["0.01", "12.50", "1e9", "3", "null", str(self._random.randrange(10**6) / 100)])
        seconds = 1.7e9 + self._random.randrange(10**9) / 1000
        status = draw(["'paid'"] * 4 + ["'größer'", "'open'", "null"])
        note = draw([*["null", "''", "'ü'"] * 9, f"'{'long' * 700}'"])  # large values are stored elsewhere
        return f"'{name}', {receiver}, {amount}, to_timestamp({seconds}), {status}, {note}"


def expected(postgres: Postgres) -> dict[int, tuple[str, str, float, float]]:
    lines = postgres.execute(
        "select id, sender, receiver, amount::float4, extract(epoch from at) from payment "
        "where status in ('paid', 'größer') and amount >= 0.01 and receiver is not null;"
    ).splitlines()
    rows = [line.split("\t") for line in lines]
    return {
        int(id): (sender, receiver, float(np.float32(amount)), float(at))
        for id, sender, receiver, amount, at in rows
    }


def scores_in(postgres: Postgres) -> dict[str, list[float]]:
    """The table of scores."""
    lines = postgres.execute("select id, prediction::float8[] from scores;").splitlines()
    rows = [line.split("\t", 1) for line in lines]
    return {id: [float(number) for number in prediction[1:-1].split(",")] for id, prediction in rows}


def edges_of(runtime: Runtime) -> dict[int, tuple[str, str, float, float]]:
    found = {}
    for id in runtime.graph.ids().tolist():
        near = runtime.graph.neighbors(id, direction="out")
        assert near.key is not None
        assert near.weight is not None
        assert near.time is not None
        columns = (near.key, near.ids, near.weight, near.time)
        for key, other, weight, at in zip(*(one.tolist() for one in columns), strict=True):
            found[key] = (id, other, weight, at)
    return found


@pytest.mark.parametrize("schemas", [False, True])
def test_a_table_and_its_graph_have_the_same_rows(tmp_path: Path, opened: ExitStack, schemas: bool) -> None:
    broker, proxy = opened.enter_context(proxied_broker())
    postgres = Postgres()
    opened.callback(postgres.close)
    changes = Changes(1, may_be_wrong=not schemas)  # a decimal of Connect's schema cannot be NaN
    postgres.execute(
        block_of(GUIDE, "sql") + "begin;" + "".join(changes.insert() for _ in range(ROWS)) + "commit;"
    )
    connect = Connect(tmp_path / "connect", postgres, broker.servers, ["public.payment"], schemas=schemas)
    opened.callback(connect.close)
    deployment = write(tmp_path, broker.servers, postgres.port)
    # A connector that ends within its snapshot takes another one, which says nothing of rows that were
    # deleted since the first (docs/postgres.md). So changes begin after the snapshot.
    wait_for(lambda: messages_in(broker, "shop.public.payment") >= ROWS, OF_ALL)

    def spoil() -> None:
        proxy.toxic("latency", latency=100, jitter=50)
        proxy.toxic("limit_data", bytes=2_000_000)

    def restart(one: Postgres | Connect | Broker) -> None:
        one.kill()
        one.start()

    faults = {
        ROUNDS // 8: spoil,
        ROUNDS // 4 - 2: proxy.heal,
        ROUNDS // 4: lambda: restart(connect),
        3 * ROUNDS // 8: lambda: proxy.cut(off=True),
        3 * ROUNDS // 8 + 1: lambda: proxy.cut(off=False),
        ROUNDS // 2: lambda: restart(broker),
        3 * ROUNDS // 4: lambda: restart(postgres),
    }
    lives = max(1, ROUNDS // 5)  # rounds of a server
    begun = time.monotonic()
    for round in range(ROUNDS):
        if round % lives == 0:
            server = Server(deployment)
        postgres.execute("".join(changes.any() for _ in range(OF_ROUND)))
        faults.get(round, lambda: None)()
        if round % lives == lives - 1 or round == ROUNDS - 1:
            server.kill()
        # The pace of the load; nothing waits for it.
        time.sleep(max(0.0, begun + (round + 1) * OF_ROUND / RATE - time.monotonic()))
    seconds = time.monotonic() - begun
    print(f"{ROWS} rows, then {ROUNDS * OF_ROUND} changes, {ROUNDS * OF_ROUND / seconds:.0f} a second")
    postgres.execute(changes.correct())
    wanted = expected(postgres)
    runtime = Deployment.read(deployment).open()
    opened.callback(runtime.log.close)
    opened.callback(runtime.stop)
    runtime.start()
    (source,) = Deployment.read(deployment).connect(runtime)
    source.start()
    opened.callback(source.stop)
    start_sinks(runtime)

    def same() -> bool:
        runtime.wait(runtime.log.last_seq(), OF_ALL)
        return sum(source.lag.values()) == 0 and edges_of(runtime) == wanted

    try:
        wait_for(same, OF_ALL)
    except AssertionError:
        found = edges_of(runtime)
        differing = {key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)}
        some = {key: (found.get(key), wanted.get(key)) for key in sorted(differing)[:5]}
        pytest.fail(f"{source.lag} messages are not read; {len(differing)} edges differ, such as {some}")
    # A connector that was killed sends some messages again.
    assert changes.wrong <= len(runtime.log.bad_messages()) <= 2 * changes.wrong
    assert all("'amount'" in one.reason for one in runtime.log.bad_messages())
    assert not runtime.log.rejections()
    runtime.append(Events().add_nodes(["last"]))
    runtime.wait(runtime.log.last_seq(), PATIENCE)
    ids = runtime.graph.ids()
    scores = dict(zip(ids.tolist(), runtime.predict(ids).values.tolist(), strict=True))
    wait_for(lambda: scores_in(postgres) == scores, OF_ALL)
    verification = runtime.engine.verify()
    assert verification.predictions_ok
    assert verification.kept_ok
    assert len(wanted) > ROWS / 3


def messages_in(broker: Broker, topic: str) -> int:
    """How many the topic has; 0 while it is being made."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "count", "log_level": 2})
    try:
        partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, one))[1] for one in partitions)
    except KafkaException:
        return 0
    finally:
        consumer.close()
