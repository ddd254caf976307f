"""A record whose oldest pages are folded: labels about the kept days have the same predictions."""

from datetime import date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn.connectors.parquet_sink import ParquetFolder
from livegnn.connectors.sink import PredictionRows
from livegnn.quality.join import REMOVED, join_predictions
from livegnn.quality.record import list_pages, read_pages
from livegnn.quality.retention import fold_pages

NODES = 4
DAY = 86_400.0
BEGIN = datetime.fromisoformat("2026-03-01T00:00:00+00:00").timestamp()
KEPT = date(2026, 3, 3)
ROWS = st.dictionaries(st.integers(0, NODES - 1), st.sampled_from([None, 0.25, 0.5]), min_size=1, max_size=3)
PAGES = st.lists(st.tuples(st.floats(0, 4, width=16), st.sampled_from(["old", "new"]), ROWS), max_size=7)


def write(folder: Path, pages: list[tuple[float, str, dict[int, float | None]]]) -> None:
    for seq, (at, model, rows) in enumerate(sorted(pages, key=lambda one: one[0])):
        width = 1 if model == "old" else 2
        values = [[np.nan if value is None else value] * width for value in rows.values()]
        removed = np.array([value is None for value in rows.values()])
        seqs = np.full(len(rows), seq)
        given = PredictionRows(model, "node", list(rows), seqs, np.array(values, np.float32), removed)
        ParquetFolder(folder, clock=lambda at=at: BEGIN + DAY * at).write(given)


def predictions_in(folder: Path) -> dict[int, object]:
    """The model and the row of each node at several times of the kept days."""
    times = [BEGIN + DAY * at for at in (2, 2.5, 3, 4, 9)]
    labels = [(node, time) for node in range(NODES) for time in times]
    nodes, at = (np.array(one) for one in zip(*labels, strict=True))
    joined = join_predictions(read_pages(folder, pa.array(range(NODES))), nodes, at, NODES)
    assert set(joined.missing) <= {"no prediction at that time", REMOVED}
    return {
        int(label): (match.model, row)
        for match in joined.matches
        for label, row in zip(match.labels, match.predictions.tolist(), strict=True)
    }


@given(PAGES)
@settings(max_examples=draws(30, 2000), deadline=None)
def test_kept_days_have_the_same_predictions(
    tmp_path_factory: pytest.TempPathFactory, pages: list[tuple[float, str, dict[int, float | None]]]
) -> None:
    folder = tmp_path_factory.mktemp("record")
    write(folder, pages)
    before = predictions_in(folder)
    for _ in range(2):
        fold_pages(folder, KEPT)
        assert predictions_in(folder) == before
        assert all(path.parent.name >= f"date={KEPT}" for path in list_pages(folder))
        assert not list(folder.rglob("*.partial"))
    fold_pages(folder, date(2026, 4, 1))
    assert len(list_pages(folder)) <= 2  # one for each model


def test_pages_that_were_folded_and_not_removed_change_nothing(tmp_path: Path) -> None:
    write(tmp_path, [(0.5, "old", {0: 0.25, 1: 0.5}), (1.5, "old", {0: 0.5}), (2.5, "old", {1: None})])
    before, old = predictions_in(tmp_path), list_pages(tmp_path)[:2]
    contents = [path.read_bytes() for path in old]
    fold_pages(tmp_path, KEPT)
    assert not any(path.parent.exists() for path in old)
    for path, content in zip(old, contents, strict=True):  # a crash before their removal
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    assert predictions_in(tmp_path) == before
    fold_pages(tmp_path, KEPT)
    assert predictions_in(tmp_path) == before
