"""Labels as rows of a table: the kinds of columns, wrong rows, and labels that are corrected."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import InputError
from livegnn.quality.label_mapping import LabelMapping
from livegnn.quality.labels import LabelReader, Labels, join_latest
from livegnn.quality.report import LabelSource, read_labels
from livegnn.tables import CsvForm


def read(table: dict[str, object], *, text: bool = False, **mapping: object) -> Labels:
    given = {"id": "id", "label": "label", **mapping}
    reader = LabelReader(LabelMapping(**given), "labels", text_ids=text)  # type: ignore[arg-type]
    return reader.read(pa.table(table), 7)


def test_labels_are_classes_truth_values_texts_or_numbers() -> None:
    assert read({"id": [4, 2], "label": [1, 0]}).values.tolist() == [1, 0]
    assert read({"id": [4, 2], "label": [True, False]}).values.tolist() == [1, 0]
    named = read({"id": [4, 2, 3], "label": ["bad", "good", None]}, classes=["good", "bad"])
    assert named.values.tolist()[:2] == [1, 0]
    assert np.isnan(named.values[2])
    assert read({"id": [4], "label": [-0.5]}, kind="number").values.tolist() == [-0.5]
    assert read({"id": [4], "label": [None]}).ids.to_pylist() == [4]
    encoded = pa.array(["bad", "good"]).dictionary_encode()
    assert read({"id": [1, 2], "label": encoded}, classes=["good", "bad"]).values.tolist() == [1, 0]


def test_times_and_ids_and_conditions() -> None:
    table = {
        "id": [4, 5, 6],
        "label": [1, 0, 1],
        "at": ["2026-03-01T00:00:01Z", "2026-03-01", "2026-03-02"],
        "state": ["won", "lost", "won"],
    }
    found = read(table, text=True, time="at", where={"state": "won"})
    assert found.ids.to_pylist() == ["4", "6"]
    assert found.times.tolist() == [1772323201, 1772409600]
    assert read(table).times.tolist() == [np.inf] * 3
    assert read({**table, "at": [1, 2, 3]}, time="at", time_unit="ms").times.tolist() == [0.001, 0.002, 0.003]


@pytest.mark.parametrize(
    ("table", "mapping", "reason"),
    [
        ({"id": [1]}, {}, "expected one column 'label', got 'id'"),
        ({"id": ["a"], "label": [1]}, {}, "column 'id': expected integers"),
        ({"id": [1], "label": ["x"]}, {}, "text needs classes"),
        ({"id": [1], "label": [1]}, {"classes": ["a", "b"]}, "expected text, one of classes, got int64"),
        ({"id": [1, 2], "label": ["a", "c"]}, {"classes": ["a", "b"]}, "row 8, column 'label'.*got 'c'"),
        ({"id": [1, None], "label": [1, 1]}, {}, "row 8, column 'id'.*which label it is"),
        ({"id": [1, 2], "label": [1, 0.5]}, {}, "row 8, column 'label'.*a class, as 0 or 1"),
        ({"id": [1, 2], "label": [1, -1]}, {}, "row 8, column 'label'.*a class, as 0 or 1"),
        ({"id": [1], "label": [float("inf")]}, {"kind": "number"}, "row 7.*a finite number"),
        ({"id": [1], "label": [1], "at": [1e15]}, {"time": "at"}, "row 7.*years 1 to 9999"),
        ({"id": [1], "label": [1], "at": ["x"]}, {"time": "at"}, "row 7.*a time as in"),
        ({"id": [1], "label": [1], "at": ["x"]}, {"time": "at", "time_unit": "s"}, "has a time_unit"),
        ({"id": [1], "label": [1]}, {"where": {"id": "a"}}, "where of column 'id'"),
    ],
)
def test_a_wrong_table_is_named_with_row_and_column(
    table: dict[str, object], mapping: dict[str, object], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        read(table, **mapping)


@pytest.mark.parametrize(
    ("mapping", "reason"),
    [
        ({"id": ""}, "id must be the name of a column"),
        ({"time": 5}, "time must be the name of a column"),
        ({"kind": "text"}, "kind must be one of 'class', 'number'"),
        ({"scores": "odds"}, "scores must be one of 'probabilities'"),
        ({"time_unit": "ms"}, "of a column of time"),
        ({"time": "at", "time_unit": "year"}, "time_unit must be one of"),
        ({"classes": ["a"]}, "two different texts or more"),
        ({"classes": ["a", "a"]}, "two different texts or more"),
        ({"classes": ["a", "b"], "kind": "number"}, "of kind 'class'"),
        ({"classes": "ab"}, "a list of texts"),
        ({"where": {"a": {"above": 1}}}, "where of 'a'"),
    ],
)
def test_a_wrong_mapping_is_refused(mapping: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        LabelMapping(**{"id": "id", "label": "label", **mapping})  # type: ignore[arg-type]


ROW = st.tuples(st.integers(0, 3), st.sampled_from([1.0, 2.0, np.inf]), st.sampled_from([0.0, 1.0, np.nan]))


@given(st.lists(st.lists(ROW, max_size=5), max_size=4))
@settings(max_examples=draws(100, 5000), deadline=None)
def test_the_last_row_of_a_node_and_a_time_counts(drawn: list[list[tuple[int, float, float]]]) -> None:
    last: dict[tuple[int, float], float] = {}
    for part in drawn:
        for id, time, value in part:
            last[id, time] = value
    parts = [
        Labels(
            pa.array([row[0] for row in part], pa.int64()),
            *(np.array([row[at] for row in part], float) for at in (2, 1)),
        )
        for part in drawn
    ]
    found = join_latest(parts)
    rows = dict(
        zip(zip(found.ids.to_pylist(), found.times.tolist(), strict=True), found.values.tolist(), strict=True)
    )
    assert len(rows) == len(found.values)
    assert rows == {key: value for key, value in last.items() if not np.isnan(value)}


def test_files_are_read_in_order_and_in_their_own_form(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("007;bad;2026-03-01;x\n008;good;2026-03-01;\n")
    (tmp_path / "2.csv").write_text("007;good;2026-03-01;\n")
    form = CsvForm(";", columns=["account", "verdict", "at", "note"])
    mapping = LabelMapping("account", "verdict", "at", classes=["good", "bad"], csv=form)
    (tmp_path / "new").mkdir()
    source = LabelSource("x", mapping, [tmp_path, tmp_path / "new"], [])
    found = read_labels(source, text_ids=True)
    assert (found.ids.to_pylist(), found.values.tolist()) == (["008", "007"], [0, 0])
    (tmp_path / "3.csv").write_text("009;good;2026-03-01;\n009;what;2026-03-01;\n")
    with pytest.raises(InputError, match=r"3.csv, row 1, column 'verdict'.*got 'what'"):
        read_labels(source, text_ids=True)
    assert len(read_labels(source._replace(files=[tmp_path / "new"]), text_ids=True).values) == 0
    with pytest.raises(InputError, match="got no such path"):
        read_labels(source._replace(files=[tmp_path / "missing"]), text_ids=True)
