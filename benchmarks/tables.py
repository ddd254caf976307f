"""Tables in: files with a hundred features into a graph, and messages of a topic into the durable log.

    python benchmarks/tables.py [--quick] [--json FILE]

Files: a table of nodes with an id and a hundred features, as Parquet and as CSV, into a graph. The peer is
what it takes at least: pyarrow reads the file into columns and the store takes arrays that are there. All on
one thread, in seconds of processor time, medians of three.

Messages: rows of some 285 bytes in JSON, and the same rows in Debezium's envelope of 590 bytes. They are read
by a mapping, and stored in a log of SQLite, in groups of half a megabyte, as a source does it; the broker and
its client are left out. The peer parses the JSON of the messages alone, by orjson, which is the floor of what
Python can do.

Floor of the files: 80 MB of features are copied twice, from the columns into rows and into the store, which
takes 5 ms at 53 GB/s each. Floor of the messages: a message of 285 bytes is parsed in 2 to 4 us.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import livegnn as lg
from livegnn.connectors.row_messages import Parse, RowMessages, parse_change, parse_row
from livegnn.events.builder import CheckedEvents, JoinedEvents
from livegnn.log import Origin
from livegnn.log.sqlite import SqliteLog
from livegnn.tables import TableReader
from livegnn.tables.files import read_file
from report import Report, arguments

NODES, FEATURES, MESSAGES = 200_000, 100, 200_000
GROUP_BYTES = 1 << 19
ROUNDS = 3
PAYS = ("user", "pays", "user")
EDGES = lg.EdgeSchema(weighted=True, timed=True, duplicates="keep")


def main() -> None:
    options = arguments(__doc__).parse_args()
    share = 20 if options.quick else 1
    report = Report("tables")
    with tempfile.TemporaryDirectory() as folder:
        measure_files(report, Path(folder), NODES // share)
        measure_messages(report, Path(folder), MESSAGES // share)
    report.finish(options.json)


def median_cpu(call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(ROUNDS):
        started = time.process_time()
        call()
        seconds.append(time.process_time() - started)
    return float(np.median(seconds))


def measure_files(report: Report, folder: Path, nodes: int) -> None:
    report.section(f"{nodes:,} nodes with {FEATURES} features from a file into a graph")
    x = np.random.default_rng(0).standard_normal((nodes, FEATURES), dtype=np.float32)
    names = [f"x{at}" for at in range(FEATURES)]
    table = pa.table({"id": np.arange(nodes), **{name: x[:, at] for at, name in enumerate(names)}})
    pa.parquet.write_table(table, folder / "nodes.parquet")
    pa.csv.write_csv(table, folder / "nodes.csv")
    schema = lg.Schema({"node": FEATURES})
    mapping = lg.TableMapping([lg.NodeRows("id", x=names)])

    def store() -> None:
        lg.Graph(schema).apply(lg.Events().add_nodes(np.arange(nodes), x))

    def load(path: Path) -> None:
        graph = lg.Graph(schema)
        for _, events in read_file(path, mapping, schema):
            graph.apply(events)

    stored = median_cpu(store)
    for name, read in (
        ("nodes.parquet", lambda: pa.parquet.read_table(folder / "nodes.parquet", use_threads=False)),
        (
            "nodes.csv",
            lambda: pa.csv.read_csv(folder / "nodes.csv", read_options=pa.csv.ReadOptions(use_threads=False)),
        ),
    ):
        least = median_cpu(read)
        seconds = median_cpu(lambda name=name: load(folder / name))
        report.add(
            f"{name.rpartition('.')[2]}, processor time",
            seconds,
            "s",
            aim=2 * least + stored,
            peer="pyarrow, and the store",
            peer_value=least + stored,
        )


def rows(count: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(1)
    ends, amounts = random.integers(0, 1_000_000, (count, 2)).tolist(), random.random(count).tolist()
    return [
        {
            "id": at,
            "sender": src,
            "receiver": dst,
            "amount": round(100 * amount, 2),
            "at": 1_772_323_200_000 + at,
            "status": "paid",
            "country": "DE",
            "memo": "x" * 150,
        }
        for at, ((src, dst), amount) in enumerate(zip(ends, amounts, strict=True))
    ]


def measure_messages(report: Report, folder: Path, count: int) -> None:
    report.section(f"{count:,} messages, which are rows, into the log")
    listed = rows(count)
    source = {
        "version": "3.0.0.Final",
        "connector": "postgresql",
        "name": "shop" * 10,
        "ts_ms": 1,
        "db": "shop",
    }
    place = {"schema": "public", "table": "payments", "txId": 1, "lsn": 123_456_789, "sequence": "[1,2]"}
    envelope = {"before": None, "source": {**source, **place}, "op": "c", "ts_ms": 1, "transaction": None}
    plain = [json.dumps(row).encode() for row in listed]
    changes = [json.dumps({**envelope, "after": row}).encode() for row in listed]
    for name, some, parse, aim in (
        ("rows in JSON", plain, parse_row, 150_000),
        ("Debezium in JSON", changes, parse_change, 100_000),
    ):
        size = sum(map(len, some)) // count
        rate = count / median_cpu(lambda some=some, parse=parse: log_all(folder, some, parse))
        report.add(
            f"{name}, {size} bytes",
            rate,
            "messages/s and core",
            higher_is_better=True,
            aim=aim,
            peer="orjson alone",
            peer_value=count / median_cpu(lambda some=some: [orjson.loads(one) for one in some]),
        )


def log_all(folder: Path, messages: Sequence[bytes], parse: Parse) -> None:
    """Reads and stores all messages, a group at a time."""
    schema = lg.Schema({"user": 0}, {PAYS: EDGES})
    entry = lg.EdgeRows("sender", "receiver", weight="amount", time="at", time_unit="ms", key="id")
    reader = RowMessages(TableReader(lg.TableMapping(edges=[entry]), schema, "payments"), parse)
    size = GROUP_BYTES * len(messages) // sum(map(len, messages))
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        log = SqliteLog(Path(inside) / "events.db")
        for begin in range(0, len(messages), size):
            group = messages[begin : begin + size]
            joined = reader.join(group)
            assert joined is not None
            events = JoinedEvents(CheckedEvents(joined[0], schema), schema, joined[1])
            log.append_all([events], None, [Origin("payments", 0, begin + len(group) - 1)])
        assert log.last_seq() == len(messages)
        log.close()


if __name__ == "__main__":
    main()
