"""Figures beside a running runtime: rounds, failures, `/metrics`, `/healthz`, and `livegnn serve`."""

import asyncio
import json
import urllib.request
from datetime import UTC, date, datetime
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest

from livegnn import Engine, InputError
from livegnn.connectors.parquet_sink import ParquetFolder
from livegnn.connectors.sink_view import SinkView
from livegnn.log.sqlite import SqliteLog
from livegnn.quality.label_mapping import LabelMapping
from livegnn.quality.monitor import QualityMonitor, summarize
from livegnn.quality.report import LabelSource, Report, Row, read_rows
from livegnn.quality.samples import DRIFT
from livegnn.runtime import Runtime
from livegnn.server import create_app
from scraped import scrape
from serving import Server, write_deployment
from streams import make_graph, make_model
from waiting import wait_until

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
DAY = 86_400


class Example:
    """A runtime, and a monitor whose clock the test sets."""

    def __init__(self, folder: Path) -> None:
        graph = make_graph()
        self.log = SqliteLog(folder / "events.db")
        sink = ParquetFolder(folder / "record", clock=lambda: NOON)
        self.view = SinkView(graph, sink, every_seconds=0.0)
        self.runtime = Runtime(self.log, graph, Engine(graph, make_model(), threads=1), self.view)
        self.runtime.start()
        self.view.start(self.runtime)
        wait_until(lambda: not self.view.lag, "all predictions are recorded")
        self.now = NOON
        self.labels = folder / "labels.csv"
        mapping = LabelMapping("id", "label", "at", scores="ranks")
        source = LabelSource("fraud", mapping, [self.labels], [folder / "record"])
        self.folder = folder / "out"
        self.monitor = QualityMonitor(
            self.runtime, [source], self.folder, every_seconds=1e6, clock=lambda: self.now, keep_days=2
        )

    def write_labels(self, *days: int) -> None:
        """For each day, a label of the first node; and one from before the record."""
        id = self.runtime.graph.ids()[0]
        rows = [f"{id},1,{datetime.fromtimestamp(NOON + DAY * day, UTC):%Y-%m-%dT%H:%M:%S}" for day in days]
        self.labels.write_text("\n".join(["id,label,at", *rows, f"{id},1,2026-02-01"]) + "\n")

    def read(self, path: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=create_app(self.runtime))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.get(path)

        return asyncio.run(ask())

    def stop(self) -> None:
        self.monitor.stop()
        self.runtime.stop()
        self.log.close()


def test_rounds_are_shown_and_a_failure_is_named(tmp_path: Path) -> None:
    example = Example(tmp_path)
    monitor = example.monitor
    example.write_labels(0, 1)
    assert not [name for name in scrape(example.read("/metrics").text) if "quality" in name]
    assert "quality" not in example.read("/healthz").json()
    monitor.start()
    wait_until(lambda: monitor.age is not None, "the first round is computed")
    assert monitor.failure is None
    assert monitor.figures.labels == {}  # the day is not over
    assert set(monitor.figures.drift.values()) == {0}
    example.now += DAY
    monitor.compute()
    found = scrape(example.read("/metrics").text)
    assert found['livegnn_quality{labels="fraud",metric="labels",model="engine"}'] == 1
    assert found['livegnn_quality{labels="fraud",metric="average_precision",model="engine"}'] == 1
    assert found['livegnn_quality_day_seconds{labels="fraud"}'] == NOON - DAY / 2
    missing = 'livegnn_quality_missing_labels{labels="fraud",reason="no prediction at that time"}'
    assert found[missing] == 1
    drift = 'livegnn_drift{column="node feature 0",metric="feature_stability_index",model=""}'
    assert found[drift] == 0  # the small graph is its own sample
    assert (found["livegnn_quality_fails"], found["livegnn_quality_age_seconds"]) == (0, 0)
    assert example.read("/healthz").json()["quality"] == {"status": "ok"}
    days = [f"2026-03-0{day}" for day in (1, 2)]
    assert sorted({str(row.day) for row in read_rows(example.folder)}) == days
    assert sorted({str(row.day) for row in read_rows(example.folder, DRIFT)}) == days

    before = monitor.figures
    example.labels.write_text("id,label,at\n1,x,2026-03-01\n")
    example.now += 60
    monitor.compute()
    answer = example.read("/healthz")
    assert answer.status_code == 200  # predictions are as good as before
    assert answer.json()["quality"]["status"] == "failed"
    assert "labels.csv, column 'label'" in answer.json()["quality"]["reason"]
    found = scrape(example.read("/metrics").text)
    assert (found["livegnn_quality_fails"], found["livegnn_quality_age_seconds"]) == (1, 60)
    assert monitor.figures is before
    example.write_labels(0)
    monitor.compute()
    assert (monitor.failure, monitor.age) == (None, 0)
    with pytest.raises(InputError, match="one monitor of quality"):
        monitor.start()
    example.stop()
    assert example.runtime.quality is None


def test_old_pages_of_the_record_are_folded_once_a_day(tmp_path: Path) -> None:
    example = Example(tmp_path)
    record = tmp_path / "record"
    example.write_labels(0, 9)
    example.monitor.compute()
    assert [path.name for path in record.iterdir()] == ["date=2026-03-01"]
    assert {str(row.day) for row in read_rows(example.folder)} == {"2026-03-01", "2026-03-10"}
    example.now += 9 * DAY
    example.monitor.compute()
    assert example.monitor.failure is None
    assert [path.name for path in record.iterdir()] == ["date=2026-03-08"]
    assert {str(row.day) for row in read_rows(example.folder)} == {"2026-03-01", "2026-03-10"}  # figures stay
    missing = example.monitor.figures.missing
    assert missing == {("fraud", "no prediction at that time"): 2}
    example.stop()


def test_a_day_is_complete_when_its_labels_have_arrived() -> None:
    def row(labels: str, day: int) -> Row:
        return Row(date(2026, 3, day), labels, "m", "labels", "", float(day))

    report = Report([row(name, day) for name in ("late", "soon", "never") for day in (1, 3, 9)], {})
    days = {"late": 7, "soon": 1, "never": 30}
    found = summarize(report, [], date(2026, 3, 10), days)
    assert found.labels == {("late", "m", "labels"): 3, ("soon", "m", "labels"): 9}
    assert set(found.days) == {"late", "soon"}


def test_a_server_computes_the_figures_of_its_deployment(tmp_path: Path) -> None:
    path = write_deployment(tmp_path)
    id = int(make_graph().ids()[0])
    (tmp_path / "labels.csv").write_text(f"id,label\n{id},0\n")
    with path.open("a") as file:
        file.write(
            '[sinks.history]\nkind = "parquet"\ndirectory = "record"\nevery_seconds = 0.1\n'
            '[labels.fraud]\nfiles = "labels.csv"\nid = "id"\nlabel = "label"\nscores = "ranks"\n'
            '[quality]\ndirectory = "out"\nevery_seconds = 0.05\nsample = 7\n'
        )
    with Server(path) as server:

        def computed() -> bool:
            with urllib.request.urlopen(f"{server.address}/healthz") as answer:
                assert json.load(answer)["quality"] == {"status": "ok"}
            return bool(read_rows(tmp_path / "out"))

        wait_until(computed, "the label is joined with its prediction")
    (labels,) = [row for row in read_rows(tmp_path / "out") if row.metric == "labels"]
    assert (labels.labels, labels.model, labels.value) == ("fraud", "engine", 1)
    (sample,) = (tmp_path / "out").rglob("sample.parquet")
    assert pq.read_table(sample, partitioning=None).num_rows == 14  # features and scores
