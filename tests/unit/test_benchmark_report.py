"""Rows of a benchmark's report: what they compute, and what is written."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from report import Report, Row, figure, machine, render
from stopwatch import median_ms, time_each


def test_a_ratio_says_how_many_times_better_whichever_way_is_better() -> None:
    report = Report("test")
    report.add("time", 2.0, "ms", aim=3.0, peer="other", peer_value=10.0)
    report.add("rate", 50.0, "1/s", higher_is_better=True, aim=60.0, peer="other", peer_value=10.0)
    report.add("alone", 1.0, "ms")
    assert [row.ratio for row in report.rows] == [5.0, 5.0, None]
    assert [row.met for row in report.rows] == [True, False, None]


def test_a_section_has_a_table_of_its_own_and_its_rows_are_rows_like_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report("all")
    report.add("first", 1.0, "ms")
    report.section("nothing in it")
    report.section("the rest")
    report.add("second", 2.0, "ms")
    report.finish(None)
    printed = capsys.readouterr().out
    places = [printed.index(text) for text in ("all", "first", "the rest", "second")]
    assert places == sorted(places)
    assert "nothing in it" not in printed
    assert [row.name for row in report.rows] == ["first", "second"]


def test_json_names_the_machine_and_has_null_where_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report("first")
    report.add("time", 2.0, "ms")
    report.could_not_run("reddit", "too large")
    path = tmp_path / "results" / "first.json"
    report.finish(path)
    rows = [
        {
            "name": "time",
            "value": 2.0,
            "unit": "ms",
            "higher_is_better": False,
            "aim": None,
            "peer": None,
            "peer_value": None,
            "ratio": None,
            "floor": None,
        }
    ]
    assert json.loads(path.read_text(encoding="utf-8")) == {"machine": machine(), "rows": rows}
    assert "could not run reddit: too large" in capsys.readouterr().out
    text = render(path.parent)
    assert "## first" in text
    assert "| time | 2 | ms |" in text
    assert machine()[0] in text


def test_each_result_names_its_own_machine_and_an_older_file_none(tmp_path: Path) -> None:
    row = asdict(Row("time", 2.0, "ms", False, None, None, None, None, None))
    (tmp_path / "a.json").write_text(json.dumps({"machine": ["CPU: first"], "rows": [row]}), encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps([row]), encoding="utf-8")
    first, second = render(tmp_path).split("## ")[1:]
    assert "CPU: first" in first
    assert "CPU: not recorded" in second


def test_numpy_scalars_are_written_as_numbers(tmp_path: Path) -> None:
    report = Report("numpy")
    report.add("time", np.float32(0.5), "ms", higher_is_better=np.bool_(True), aim=np.float64(1.0))  # type: ignore[arg-type]
    report.finish(tmp_path / "numpy.json")
    (row,) = json.loads((tmp_path / "numpy.json").read_text(encoding="utf-8"))["rows"]
    assert (row["value"], row["higher_is_better"], row["aim"]) == (0.5, True, 1.0)


def test_figures_have_three_digits() -> None:
    assert [figure(v) for v in (None, 0.0, 0.01234, 12.345, 350_000.4)] == [
        "",
        "0",
        "0.0123",
        "12.3",
        "350,000",
    ]


def test_the_stopwatch_leaves_out_the_warm_up_and_stops_when_the_budget_is_spent() -> None:
    calls: list[int] = []
    seconds, results = time_each(lambda i: calls.append(i) or i, range(10), warm_up=2)
    assert calls == list(range(10))
    assert results == list(range(2, 10))
    assert len(seconds) == 8
    assert median_ms(np.array([1.0, 2.0, 9.0])) == 2000.0
    seconds, results = time_each(lambda i: i, range(1000), warm_up=1, at_least=3, budget_s=0.0)
    assert results == [1, 2, 3]
    _, results = time_each(lambda i: i, range(5), keep_last=True)
    assert results == [4]
