"""The event log: durable appends from one thread and many, over HTTP, and from the log through the runtime.

    python benchmarks/log.py [--quick] [--json FILE]

Estimate: a flush of the disk takes a few hundred microseconds, so a log that flushes each append stores a
few thousand a second, whatever the processor does. Appends that share a flush are bounded by Python: 2 us to
add an event to a row. JSON of the usual form takes 0.2 us an event, other JSON 10 us. A request costs the
HTTP server 40 us; its floor is a bare ASGI application on the same server that answers the same bytes and
does nothing. A batch of 100 events goes through log and runtime with some 300 us for SQLite, boundaries and
the native commit: 300,000 events a second.

A process that follows the log looks 500 times a second at most, 200 us each, and reads each entry once, with
locks that no writer waits for: one should cost the writer at most 5 % where it has a core to itself.

The peer is the same log with a flush for each append, as it was before group commit. Over HTTP the client is
wrk with 64 connections, on the same two cores as the server.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from http_load import listening, load
from livegnn import Events, Graph, Model
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Step
from livegnn.runtime import Runtime
from report import Report, arguments

if TYPE_CHECKING:
    from livegnn.log.kafka import KafkaLog

POSTS_AIM, EVENTS_AIM = 10_000, 200_000
TAIL_AIM = 5  # percent
CONNECTIONS = 64
NODES = 1000

DEPLOYMENT = """
[model]
path = "model.lgnn"
[graph]
path = "graph.npz"
[log]
path = "events.db"
[engine]
threads = 1
[server]
port = 0
"""
POST = """
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.body = '{"events":[{"event":"add_edge","src":1,"dst":2}]}'
"""
BARE = """
import socket, sys
from livegnn.http.listening import address_of, listen
from livegnn.http.serving import HttpServer

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"27")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"seq":1,"status":"logged"}'})

listener = listen("127.0.0.1", 0)
print(f"listening at {address_of(listener)}", flush=True)
HttpServer(app, listener).run()
"""


FOLLOW = """
import sys
from livegnn.log.sqlite.tail import SqliteTail

tail = SqliteTail(sys.argv[1], "follower", after=int(sys.argv[2]))
print("ready", flush=True)
while tail.wait():
    for entry in tail.entries(max_events=1000):
        last = entry.seq
    tail.commit(last)
"""


def model() -> Model:
    return Model({"x": Input("node", 2)}, (Step("relu", ("x",), "y"),), {}, "y", ("x", "y"))


def posts_a_second(address: str, folder: Path, seconds: int) -> float:
    return load(f"{address}/v1/events", POST, CONNECTIONS, seconds, folder).rate


def measure_http(report: Report, folder: Path, rounds: int, seconds: int) -> None:
    if shutil.which("wrk") is None:
        report.could_not_run("posts over HTTP", "wrk is not installed")
        return
    (folder / "bare.py").write_text(BARE, encoding="utf-8")
    model().save(folder / "model.lgnn")
    edges = np.random.default_rng(0).integers(0, NODES, (2, 10 * NODES))
    src, dst = np.unique(edges, axis=1)
    np.savez(folder / "graph.npz", src=src, dst=dst, x=np.ones((NODES, 2), np.float32))
    (folder / "deployment.toml").write_text(DEPLOYMENT, encoding="utf-8")
    ours, bare = [], []
    for _ in range(rounds):
        with listening([sys.executable, "-m", "livegnn", "serve", str(folder / "deployment.toml")]) as server:
            ours.append(posts_a_second(server.address, folder, seconds))
        with listening([sys.executable, str(folder / "bare.py")]) as server:
            bare.append(posts_a_second(server.address, folder, seconds))
    report.add(
        f"posts of one event, durable, {CONNECTIONS} connections",
        statistics.median(ours),
        "a second",
        higher_is_better=True,
        aim=None if rounds == 1 else POSTS_AIM,
        peer="a bare ASGI application",
        peer_value=statistics.median(bare),
    )


def per_second(count: int, work: Callable[[], object]) -> float:
    before = time.perf_counter()
    work()
    return count / (time.perf_counter() - before)


def measure_appends(report: Report, folder: Path, rounds: int, count: int) -> None:
    """Threads that append one event each, beside one thread that flushes each append."""
    shared, alone = [], []
    for number in range(rounds):
        log = SqliteLog(folder / f"appends {number}.db")

        def append(times: int, log: SqliteLog = log) -> None:
            for at in range(times):
                log.append(Events().add_edges(at, at + 1))

        def append_in_threads(append: Callable[[int], None] = append) -> None:
            threads = [threading.Thread(target=append, args=[count // 16]) for _ in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        append(64)
        alone.append(per_second(count // 4, lambda append=append: append(count // 4)))
        shared.append(per_second(count // 16 * 16, append_in_threads))
        log.close()
    report.add(
        "appends of one event, 16 threads",
        statistics.median(shared),
        "a second",
        higher_is_better=True,
        peer="a flush for each",
        peer_value=statistics.median(alone),
    )


def measure_tail(report: Report, folder: Path, rounds: int, count: int) -> None:
    """One thread that appends, beside a process that follows the log, and without it, in turns."""
    (folder / "follow.py").write_text(FOLLOW, encoding="utf-8")
    path = folder / "followed.db"
    log = SqliteLog(path)

    def append() -> None:
        for at in range(count):
            log.append(Events().add_edges(at, at + 1))

    append()
    costs = []
    for _ in range(rounds):
        alone = per_second(count, append)
        with listening([sys.executable, str(folder / "follow.py"), str(path), str(log.last_seq())]):
            followed = per_second(count, append)
        costs.append(100 * (alone / followed - 1))
    log.close()
    report.add(
        "what one tailing process costs who appends",
        statistics.median(costs),
        "%",
        higher_is_better=False,
        aim=None if rounds == 1 else TAIL_AIM,
    )


def measure_runtime(report: Report, folder: Path, rounds: int, count: int, batch: int) -> None:
    """Entries of 100 events, written 64 at a time, through log and runtime, with no view of the graph."""
    rates = [
        events_a_second(SqliteLog(folder / f"runtime {batch} {number}.db"), count, batch)
        for number in range(rounds)
    ]
    report.add(
        f"events through log and runtime, entries of 100, batches of up to {batch:,}",
        statistics.median(rates),
        "a second",
        higher_is_better=True,
        aim=None if rounds == 1 or batch > 100 else EVENTS_AIM,
    )


def measure_kafka(report: Report, rounds: int, count: int, batch: int) -> None:
    """The same with the log in Kafka, on a real broker that runs on the same cores."""
    name = f"the same with the log in Kafka, 3 partitions, batches of up to {batch:,}"
    if not os.environ.get("LIVEGNN_KAFKA_HOME"):
        report.could_not_run(name, "LIVEGNN_KAFKA_HOME is not set: tests/README.md")
        return
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from kafka_broker import Broker
    from livegnn.log.kafka import KafkaLog, create_topics

    broker = Broker()
    rates = []
    for number in range(rounds):
        create_topics(broker.servers, f"events{number}", 3)
        rates.append(events_a_second(KafkaLog(broker.servers, f"events{number}"), count, batch))
    broker.close()
    report.add(
        name,
        statistics.median(rates),
        "a second",
        higher_is_better=True,
        aim=None if rounds == 1 or batch > 100 else EVENTS_AIM,
    )


def events_a_second(log: SqliteLog | KafkaLog, count: int, batch: int) -> float:
    draw = np.random.default_rng(1)
    entries = [
        Events().add_edges(draw.integers(0, NODES, 100), draw.integers(0, NODES, 100))
        for _ in range(count // 100)
    ]
    graph = Graph()
    graph.apply(Events().add_nodes(np.arange(NODES)))
    graph.seq = 0
    runtime = Runtime(log, graph, max_batch_events=batch, max_waiting_ms=float("inf"))
    runtime.start()

    def send() -> None:
        for first in range(0, len(entries), 64):
            runtime.append_all(entries[first : first + 64])
        runtime.wait(runtime.log.last_seq())

    rate = per_second(100 * len(entries), send)
    runtime.stop()
    runtime.log.close()
    return rate


def main() -> None:
    options = arguments(__doc__).parse_args()
    rounds, seconds, count = (1, 2, 4_000) if options.quick else (5, 5, 20_000)
    report = Report("log")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure_appends(report, folder, rounds, count)
        measure_tail(report, folder, rounds, count // 4)
        measure_runtime(report, folder, rounds, 25 * count, 100)
        measure_runtime(report, folder, rounds, 50 * count, 4096)
        measure_kafka(report, rounds, 25 * count, 100)
        measure_kafka(report, rounds, 50 * count, 4096)
        measure_http(report, folder, rounds, seconds)
    report.finish(options.json)


if __name__ == "__main__":
    main()
