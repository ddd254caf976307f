"""Sinks while predictions change: the processor's time of a batch with and without them, and their lag.

    python benchmarks/sinks.py [--quick] [--postgresql CONNECTION] [--kafka SERVERS] [--json FILE]

A random graph of 100,000 nodes, each with edges to four others, under a GCN of two layers, 64 wide, with 16
classes. Every 0.1 s a batch gives 48 nodes new features, which changes some 1,000 predictions: 10,000 a
second. Two such runtimes receive the same batches in turns, one of them with a sink, so that both have the
same other load. The time of a batch is the processor time of the loop's thread, the mean of the middle eight
tenths; the thread of the sink has its own, with the writing. Lag is the age of the oldest change that was not
sent, looked at every 20 ms.

--postgresql, --kafka: where a server is; the table and the topic `livegnn_benchmark` are made there.

Estimate: a batch adds one object to a list and sets a flag, some 10 us of 3 ms. The sink's thread takes the
graph's lock four times for a part, for a microsecond each, and reads 1,000 rows of 64 bytes in 0.1 ms. The
interpreter's lock is held while JSON is written, a few microseconds for a row: some percent of a processor,
which the loop may wait for, but does not pay. Lag is a round, 0.1 s, plus a write.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from livegnn import Engine, Events, Graph, Model
from livegnn.connectors.json_lines_sink import JsonLinesFolder
from livegnn.connectors.parquet_sink import ParquetFolder
from livegnn.connectors.row_filter import RowFilter
from livegnn.connectors.sink import PredictionRows, Sink
from livegnn.connectors.sink_view import SinkView
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from recovery import make_model
from report import Report, arguments

AIM_SHARE, AIM_LAG = 5.0, 1.0  # percent, seconds
NODES, DEGREE, FEATURES, CLASSES = 100_000, 4, 64, 16
CHANGED, EVERY = 48, 0.1  # nodes of a batch, seconds
LOOK = 0.02
NAME = "livegnn_benchmark"


class Dead:
    """A sink of which every write fails."""

    def write(self, rows: PredictionRows) -> None:
        raise ConnectionError("no server")

    def close(self) -> None:
        pass


class Hanging:
    """A sink whose first write does not return before it is closed."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def write(self, rows: PredictionRows) -> None:
        self.free.wait()

    def close(self) -> None:
        pass


class Variant(NamedTuple):
    """A sink, made in a folder, and settings of its view. answers: whether it has a lag."""

    name: str
    make: Callable[[Path], Sink]
    settings: dict[str, object]
    answers: bool = True


class Figures(NamedTuple):
    """Milliseconds of processor time of each batch without a sink and with it, and of the sink's thread for a
    batch; changed predictions a second; lags in seconds."""

    without: list[float]
    with_sink: list[float]
    thread: float
    changed: float
    lags: list[float]


class Side:
    """A runtime, with a sink or without."""

    def __init__(self, folder: Path, model: Model, variant: Variant | None) -> None:
        folder.mkdir()
        graph = make_graph()
        engine = Engine(graph, model, threads=1)
        self.sink = None if variant is None else variant.make(folder / "sink")
        self.view = None if self.sink is None else SinkView(graph, self.sink, **variant.settings)
        self.log = SqliteLog(folder / "events.db")
        views = [engine] if self.view is None else [engine, self.view]
        self.runtime = Runtime(self.log, graph, *views)
        self.times: list[float] = []
        self.runtime.subscribe(self._note, wanted=lambda: False)
        self.runtime.start()
        if self.view is not None:
            self.view.start(self.runtime)
            while variant.answers and self.view.lag:
                time.sleep(LOOK)

    def _note(self, change: object) -> None:
        self.times.append(time.thread_time())

    def thread_ms(self) -> float:
        """The processor time of the sink's thread until now."""
        clock = time.pthread_getcpuclockid(self.view._thread.ident)
        return 1e3 * time.clock_gettime(clock)

    def stop(self) -> None:
        if isinstance(self.sink, Hanging):
            self.sink.free.set()
        self.runtime.stop()
        self.log.close()


def variants(postgresql: str | None, kafka: str | None) -> list[Variant]:
    found = [
        Variant("JSON lines", JsonLinesFolder, {}),
        Variant("JSON lines, moved by 10 %", JsonLinesFolder, {"filter": RowFilter(moved_by=0.1)}),
        Variant("Parquet, a page a second", ParquetFolder, {"every_seconds": 1.0, "most_rows": 1 << 17}),
        Variant("dead", lambda folder: Dead(), {}, answers=False),
        Variant("hanging", lambda folder: Hanging(), {}, answers=False),
    ]
    if postgresql is not None:
        from livegnn.connectors.postgresql_sink import PostgresqlTable

        found.append(Variant("PostgreSQL", lambda folder: PostgresqlTable(postgresql, NAME), {}))
    if kafka is not None:
        from livegnn.connectors.kafka_sink import KafkaTopicSink

        make_topic(kafka)
        found.append(Variant("Kafka", lambda folder: KafkaTopicSink(kafka, NAME, name=NAME), {}))
    return found


def make_topic(servers: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = NewTopic(NAME, 1, config={"cleanup.policy": "compact"})
    admin = AdminClient({"bootstrap.servers": servers})  # the answer needs it
    try:
        admin.create_topics([topic])[NAME].result()
    except KafkaException as error:
        if "ALREADY_EXISTS" not in str(error):
            raise


def make_graph() -> Graph:
    draw = np.random.default_rng(0)
    src = np.repeat(np.arange(NODES), DEGREE)
    dst = (src + draw.integers(1, NODES, len(src))) % NODES
    x = draw.standard_normal((NODES, FEATURES)).astype(np.float32)
    return Graph.from_edges(src, dst, x=x, parallel="last")


def run(variant: Variant, model: Model, batches: int) -> Figures:
    """Both sides, of which the first tenth of the batches does not count."""
    draw, lags = np.random.default_rng(1), list[float]()
    with tempfile.TemporaryDirectory() as name:
        sides = [Side(Path(name, "without"), model, None), Side(Path(name, "with"), model, variant)]
        view = sides[1].view
        due, skipped, thread, begun, before = time.perf_counter(), batches // 10, 0.0, 0.0, 0.0
        for number in range(batches):
            if number == skipped:
                thread, begun = sides[1].thread_ms(), time.perf_counter()
                before = sides[1].runtime.statistics.changed_nodes.total
            ids = draw.choice(NODES, CHANGED, replace=False)
            events = Events().set_features(ids, draw.standard_normal((CHANGED, FEATURES)))
            for side in sides if number % 2 else reversed(sides):
                side.runtime.append(events)
                due += EVERY / 2
                while (left := due - time.perf_counter()) > 0:
                    lags.append(view.oldest_age)
                    time.sleep(min(LOOK, left))
        thread = (sides[1].thread_ms() - thread) / (batches - skipped)
        changed = sides[1].runtime.statistics.changed_nodes.total - before
        rate = changed / (time.perf_counter() - begun)
        times = [(1e3 * np.diff(side.times))[skipped:].tolist() for side in sides]
        for side in sides:
            side.stop()
    return Figures(*times, thread, rate, lags)


def middle(times: list[float]) -> float:
    """The mean of the middle eight tenths."""
    cut = len(times) // 10
    return statistics.fmean(sorted(times)[cut : len(times) - cut])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--postgresql", metavar="CONNECTION", help="settings of libpq")
    parser.add_argument("--kafka", metavar="SERVERS", help="the brokers")
    options = parser.parse_args()
    batches = 40 if options.quick else 500
    model, report = make_model(FEATURES, CLASSES, 2), Report("sinks")
    for variant in variants(options.postgresql, options.kafka):
        figures = run(variant, model, batches)
        report.section(variant.name)
        without, with_sink = middle(figures.without), middle(figures.with_sink)
        aim = None if options.quick else AIM_SHARE
        of = variant.name
        report.add(f"{of}: changed predictions", figures.changed, "/s", higher_is_better=True)
        report.add(f"{of}: batch without it, processor", without, "ms")
        report.add(f"{of}: batch with it takes more", 100 * (with_sink / without - 1), "%", aim=aim)
        report.add(f"{of}: sink's thread, for a batch", figures.thread, "ms")
        if variant.answers:
            aim = None if options.quick else AIM_LAG + float(variant.settings.get("every_seconds", 0.1))
            report.add(f"{of}: lag, median", statistics.median(figures.lags), "s")
            report.add(f"{of}: lag, longest", max(figures.lags), "s", aim=aim)
    for name, server in (("PostgreSQL", options.postgresql), ("Kafka", options.kafka)):
        if server is None:
            report.could_not_run(name, f"it needs a server: --{name.lower()}")
    report.finish(options.json)


if __name__ == "__main__":
    main()
