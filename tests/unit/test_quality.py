"""How well predictions do: from labels and a record to figures by day, Parquet and the command."""

from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from livegnn import InputError
from livegnn.cli import app
from livegnn.cli.files import check_apart_from_deployment
from livegnn.connectors.parquet_sink import ParquetFolder
from livegnn.connectors.sink import PredictionRows
from livegnn.deployment import Deployment
from livegnn.errors import FileFormatError
from livegnn.quality.label_mapping import LabelMapping
from livegnn.quality.report import (
    FIGURES,
    LabelSource,
    Row,
    compute_report,
    read_rows,
    write_report,
    write_rows,
)
from livegnn.quality.samples import DRIFT

LEAST = {"graph": {"path": "g.npz"}, "log": {"path": "l.db"}}
SINK = {"kind": "parquet", "directory": "record"}
TOPIC = {"kafka": "k", "topic": "t", "id": "id", "label": "fraud"}
LABELS = {"files": "labels.csv", "id": "id", "label": "fraud"}


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def record(folder: Path, time: str, rows: dict[int, float | None], model: str = "engine") -> None:
    predictions = np.array([[np.nan if one is None else one] for one in rows.values()], np.float32)
    removed = np.array([one is None for one in rows.values()])
    given = PredictionRows(model, "node", list(rows), np.full(len(rows), int(at(time))), predictions, removed)
    ParquetFolder(folder, clock=lambda: at(time)).write(given)


def make_example(folder: Path) -> LabelSource:
    """Two days: node 1 changes in between, node 3 is removed, and another model serves in the end."""
    record(folder / "record", "2026-03-01 08:00:00", {1: 0.125, 2: 0.875, 3: 0.25})
    record(folder / "record", "2026-03-02 08:00:00", {1: 0.75, 3: None})
    record(folder / "record", "2026-03-03 08:00:00", {1: 0.5, 2: 0.25}, "better")
    (folder / "labels.csv").write_text(
        "id,fraud,at\n"
        "1,0,2026-03-01T12:00:00\n"
        "2,1,2026-03-01T12:00:00\n"
        "3,1,2026-03-01T12:00:00\n"
        "3,0,2026-03-01T12:00:00\n"  # corrected
        "1,1,2026-03-02T08:00:00\n"  # at the very time of its new prediction
        "1,0,2026-03-02T07:59:59\n"
        "3,1,2026-03-02T12:00:00\n"
        "9,1,2026-03-02T12:00:00\n"
        "2,1,2026-03-01T07:00:00\n"
        "2,0,2026-03-04T00:00:00\n"
    )
    return LabelSource(
        "fraud", LabelMapping("id", "fraud", "at"), [folder / "labels.csv"], [folder / "record"]
    )


def test_figures_by_day_and_model(tmp_path: Path) -> None:
    report = compute_report([make_example(tmp_path)])
    found = {(str(row.day), row.model, row.metric): row.value for row in report.rows if not row.part}
    assert found["2026-03-01", "engine", "labels"] == 3
    assert found["2026-03-01", "engine", "average_precision"] == 1
    assert found["2026-03-01", "engine", "brier"] == pytest.approx((0.125**2 * 2 + 0.25**2) / 3)
    assert found["2026-03-02", "engine", "labels"] == 2
    assert found["2026-03-02", "engine", "mean_score"] == pytest.approx((0.125 + 0.75) / 2)
    assert found["2026-03-04", "better", "labels"] == 1
    assert {(day, model) for day, model, _ in found} == {
        ("2026-03-01", "engine"),
        ("2026-03-02", "engine"),
        ("2026-03-04", "better"),
    }
    assert report.missing == {"fraud": {"no prediction at that time": 2, "the node was removed": 1}}


def test_labels_without_a_time_are_about_the_newest_prediction(tmp_path: Path) -> None:
    source = make_example(tmp_path)
    report = compute_report([source._replace(mapping=LabelMapping("id", "fraud", where={"id": [1, 2]}))])
    assert {(row.day, row.model) for row in report.rows} == {(date(2026, 3, 3), "better")}
    assert next(row.value for row in report.rows if row.metric == "labels") == 2


@pytest.mark.parametrize("ids", [[1, 2], ["n1", "ü"]])
def test_there_may_be_no_label_yet(tmp_path: Path, ids: list[int] | list[str]) -> None:
    predictions, removed = np.ones((2, 1), np.float32), np.zeros(2, np.bool_)
    rows = PredictionRows("engine", "node", ids, np.ones(2, np.int64), predictions, removed)
    ParquetFolder(tmp_path / "record", clock=lambda: at("2026-03-01")).write(rows)
    (tmp_path / "labels").mkdir()
    mapping, records = LabelMapping("id", "fraud"), [tmp_path / "record"]
    source = LabelSource("fraud", mapping, [tmp_path / "labels"], records)
    assert compute_report([source]).rows == []
    pages = LabelSource("fraud", mapping, [], records, pages=tmp_path / "labels")
    assert compute_report([pages]).rows == []


def test_of_a_model_in_two_records_the_first_counts(tmp_path: Path) -> None:
    source = make_example(tmp_path)
    record(tmp_path / "other", "2026-03-01 08:00:00", {1: 0.5}, "engine")
    record(tmp_path / "other", "2026-03-01 08:00:00", {2: 0.5}, "candidate")
    both = compute_report([source._replace(records=[*source.records, tmp_path / "other", tmp_path / "none"])])
    alone = compute_report([source])
    assert [row for row in both.rows if row.model != "candidate"] == alone.rows
    assert {row.day.day for row in both.rows if row.model == "candidate"} == {1, 4}
    assert both.missing == alone.missing


def test_figures_are_kept_as_parquet(tmp_path: Path) -> None:
    rows = compute_report([make_example(tmp_path)]).rows
    write_report(rows, tmp_path / "out")
    assert read_rows(tmp_path / "out") == rows
    (first, *_) = files = sorted((tmp_path / "out").rglob("*.*"))
    assert [str(path.relative_to(tmp_path / "out")) for path in files] == [
        f"date=2026-03-0{day}/{FIGURES}" for day in (1, 2, 4)
    ]
    before = first.stat().st_mtime_ns, first.stat().st_ino
    write_report([row for row in rows if row.day.day < 4], tmp_path / "out")
    assert (first.stat().st_mtime_ns, first.stat().st_ino) == before  # its figures are the same
    assert {row.day.day for row in read_rows(tmp_path / "out")} == {1, 2}
    first.write_bytes(b"?")
    with pytest.raises(FileFormatError, match="figures of a day"):
        read_rows(tmp_path / "out")


def test_the_command_prints_the_last_days(tmp_path: Path) -> None:
    make_example(tmp_path)
    deployment = tmp_path / "deployment.toml"
    deployment.write_text(
        '[graph]\npath = "g.npz"\n[log]\npath = "l.db"\n'
        '[sinks.scores]\nkind = "parquet"\ndirectory = "record"\n'
        '[labels.fraud]\nfiles = "labels.csv"\nid = "id"\nlabel = "fraud"\ntime = "at"\n'
        '[quality]\ndirectory = "out"\n'
    )
    drift = {f"x {at}": at / 100 for at in range(8)}
    day = date(2026, 3, 4)
    rows = [Row(day, "", "", "feature_stability_index", part, value) for part, value in drift.items()]
    write_rows(rows, tmp_path / "out" / "date=2026-03-04" / DRIFT)
    done = CliRunner().invoke(app, ["quality", str(deployment), "--days", "2"])
    assert done.exit_code == 0, done.output
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["fraud"],
        ["day", "model", "labels", "share", "precision", "ROC", "AUC", "Brier", "calibration"],
        ["2026-03-02", "engine", "2", "0.5", "1", "1", "0.03906", "0.1875"],
        ["2026-03-04", "better", "1", "0", "0.0625", "0.25"],
        ["2", "labels", "without:", "no", "prediction", "at", "that", "time"],
        ["1", "labels", "without:", "the", "node", "was", "removed"],
        ["drift", "on", "2026-03-04", "(stability", "index)"],
        *([f"{at / 100:.3f}", "features,", "x", str(at)] for at in (7, 6, 5, 4, 3)),
    ]
    assert len(read_rows(tmp_path / "out")) > 20
    (tmp_path / "labels.csv").write_text("id,fraud,at\n1,2.5,2026-03-01\n")
    done = CliRunner().invoke(app, ["quality", str(deployment)])
    assert isinstance(done.exception, InputError)
    assert "labels.csv, row 0, column 'fraud'" in str(done.exception)


def test_no_output_replaces_labels_or_figures(tmp_path: Path) -> None:
    """Of other commands, such as `livegnn predict`."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "out").mkdir()
    for name in ("labels.csv", "folder/1.csv", "out/x.parquet"):
        (tmp_path / name).touch()
    both = {"a": LABELS, "b": {**LABELS, "files": "folder"}}
    settings = Deployment.parse(
        {**LEAST, "sinks": {"a": SINK}, "labels": both, "quality": {"directory": "out"}}, tmp_path
    )
    for name in ("labels.csv", "folder/1.csv", "out/x.parquet"):
        with pytest.raises(InputError, match="it would be lost"):
            check_apart_from_deployment(tmp_path / name, tmp_path / "deployment.toml", settings)


def parse(**sections: object) -> Deployment:
    return Deployment.parse({**LEAST, **sections}, Path("/here"))


def test_sections_say_where_labels_and_predictions_are() -> None:
    deployment = parse(
        sinks={"a": SINK, "b": {**SINK, "directory": "other"}},
        labels={"fraud": {**LABELS, "csv": {"delimiter": ";"}, "sinks": ["b"], "where": {"id": 5}}},
        quality={"directory": "out"},
    )
    section = deployment.labels["fraud"]
    assert section.files == Path("/here/labels.csv")
    assert section.mapping().csv is not None
    assert deployment.quality is not None
    assert deployment.quality.directory == Path("/here/out")


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"labels": {"a": LABELS}}, r"sinks of \[labels.a\] must be sections.*got none; there are: none"),
        ({"labels": {"a": {**LABELS, "sinks": ["x"]}}, "sinks": {"b": SINK}}, "got 'x'; there are: b"),
        ({"labels": {"a": {**LABELS, "kind": "x"}}, "sinks": {"b": SINK}}, r"\[labels.a\]: kind must be"),
        ({"labels": {"a": {**LABELS, "csv": {"x": 1}}}, "sinks": {"b": SINK}}, "csv must have the keys"),
        ({"labels": {"a": {**LABELS, "csv": {"skip": -1}}}, "sinks": {"b": SINK}}, "skip must be"),
        ({"quality": {"directory": "x", "every_seconds": 0}}, "every_seconds must be a number above 0"),
        ({"quality": {"directory": "x", "reference": "May 1"}}, "reference must be a day, as in 2026-03-01"),
        ({"quality": {"directory": "x", "sample": 0}}, "sample must be"),
        ({"quality": {"directory": "x", "keep_days": 0}}, "keep_days must be"),
        ({"labels": {"a": {**TOPIC, "files": "x"}}, "sinks": {"b": SINK}}, "files, or else kafka and topic"),
        ({"labels": {"a": {**TOPIC, "topic": ""}}, "sinks": {"b": SINK}}, "files, or else kafka and topic"),
        ({"labels": {"a": {**TOPIC, "format": "x"}}, "sinks": {"b": SINK}}, "format must be one of rows"),
        ({"labels": {"a": TOPIC}, "sinks": {"b": SINK}}, r"directory of \[quality\], got no such section"),
        ({"labels": {"..": TOPIC}, "sinks": {"b": SINK}}, "must be that of a folder"),
        (
            {"labels": {"a": {**LABELS, "complete_after_days": 0}}, "sinks": {"b": SINK}},
            "complete_after_days",
        ),
        ({"labels": {"../a": TOPIC}, "sinks": {"b": SINK}}, "must be that of a folder"),
    ],
)
def test_sections_that_do_not_fit_are_refused(sections: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse(**sections)
