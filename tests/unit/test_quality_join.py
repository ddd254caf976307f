"""Labels beside the predictions of their time: held against a search of all pages for each label."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn.connectors.parquet_sink import ParquetFolder
from livegnn.connectors.sink import PredictionRows
from livegnn.errors import FileFormatError
from livegnn.quality.join import NO_PREDICTION, NOT_FINITE, REMOVED, join_predictions
from livegnn.quality.record import Page, has_text_ids, list_pages, read_pages

NODES = 4
ROW = st.tuples(st.integers(0, NODES - 1), st.sampled_from([None, 0.25, 0.5, float("nan"), float("inf")]))
PAGES = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["old", "new"]), st.lists(ROW, max_size=4)), max_size=6
)
LABELS = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.sampled_from([*map(float, range(-1, 7)), np.inf])), max_size=12
)


def pages_of(drawn: list[tuple[int, str, list[tuple[int, float | None]]]]) -> list[Page]:
    pages = []
    for seq, (time, model, rows) in enumerate(sorted(drawn, key=lambda one: one[0])):
        unique = dict(rows)
        width = 1 if model == "old" else 2
        values = [[np.nan if value is None else value] * width for value in unique.values()]
        pages.append(
            Page(
                float(time),
                model,
                np.array(list(unique), np.int64),
                np.full(len(unique), seq),
                np.array(values, np.float32).reshape(len(unique), width),
                np.array([value is None for value in unique.values()], np.bool_),
            )
        )
    return pages


def search(pages: list[Page], node: int, time: float) -> tuple[object, ...] | str:
    """The model, the row and the time of the newest prediction of a node, or why there is none."""
    newest: tuple[Page, int] | None = None
    for page in pages:
        for at, one in enumerate(page.nodes.tolist()):
            if one == node and page.time <= time:
                newest = page, at
    if newest is None:
        return NO_PREDICTION
    page, at = newest
    if page.removed[at]:
        return REMOVED
    row = page.predictions[at].tolist()
    return (page.model, row, page.time) if np.isfinite(row).all() else NOT_FINITE


@given(PAGES, LABELS)
@settings(max_examples=draws(150, 10_000), deadline=None)
def test_each_label_has_the_newest_prediction_at_its_time(
    drawn: list[tuple[int, str, list[tuple[int, float | None]]]], labels: list[tuple[int, float]]
) -> None:
    pages = pages_of(drawn)
    nodes = np.array([node for node, _ in labels], np.int64)
    times = np.array([time for _, time in labels], np.float64)
    joined = join_predictions(iter(pages), nodes, times, NODES)
    found: dict[int, object] = {}
    for match in joined.matches:
        for at, row, time in zip(match.labels, match.predictions.tolist(), match.times, strict=True):
            assert at not in found
            found[int(at)] = (match.model, row, time)
    for reason, missing in joined.missing.items():
        for at in missing.tolist():
            assert at not in found
            found[at] = reason
    assert found == {at: search(pages, node, time) for at, (node, time) in enumerate(labels)}


def test_a_clock_that_was_set_back_does_not_bring_an_old_row_back() -> None:
    def page(time: float, seq: int, value: float) -> Page:
        rows = np.array([[value]], np.float32)
        return Page(time, "m", np.array([0]), np.array([seq]), rows, np.array([False]))

    pages = [page(10.0, 8, 0.75), page(20.0, 7, 0.25)]  # the row of event 7 was written first
    (match,) = join_predictions(pages, np.array([0]), np.array([30.0]), 1).matches
    assert match.predictions.tolist() == [[0.75]]


def test_pages_after_the_last_label_are_not_read() -> None:
    def pages() -> Iterator[Page]:
        yield Page(1.0, "m", np.array([0]), np.array([1]), np.ones((1, 1), np.float32), np.array([False]))
        yield Page(3.0, "m", np.array([0]), np.array([2]), np.zeros((1, 1), np.float32), np.array([False]))
        raise AssertionError("a page was read that holds for no label")

    (match,) = join_predictions(pages(), np.array([0, 0]), np.array([1.0, 2.0]), 1).matches
    assert match.predictions.tolist() == [[1], [1]]


def write(folder: Path, time: float, *rows: tuple[object, int, float | None]) -> None:
    ids, seqs, values = map(list, zip(*rows, strict=True))
    predictions = np.array([[np.nan if one is None else one] for one in values], np.float32)
    removed = np.array([one is None for one in values])
    given = PredictionRows("engine", "node", ids, np.array(seqs), predictions, removed)
    ParquetFolder(folder, clock=lambda: time).write(given)


def test_the_record_is_the_folder_of_a_sink(tmp_path: Path) -> None:
    midnight = datetime(2026, 3, 2, tzinfo=UTC).timestamp()
    assert has_text_ids(tmp_path) is None
    write(tmp_path, midnight + 0.75, (5, 8, 0.5))
    write(tmp_path, midnight + 0.25, (5, 9, 0.75), (6, 9, None), (9, 9, 0.125))
    write(tmp_path, midnight - 1, (7, 7, 0.25))
    assert has_text_ids(tmp_path) is False
    pages = list(read_pages(tmp_path, pa.array([6, 5, 7])))
    assert [page.time for page in pages] == [midnight - 1, midnight + 0.25, midnight + 0.75]
    assert [page.nodes.tolist() for page in pages] == [[2], [1, 0], [1]]
    assert pages[1].removed.tolist() == [False, True]
    assert pages[1].predictions[0].tolist() == [0.75]
    assert np.isnan(pages[1].predictions[1]).all()
    assert (pages[1].model, pages[1].seqs.tolist()) == ("engine", [9, 9])
    assert list(read_pages(tmp_path, pa.array([8]))) == []


def test_ids_of_text(tmp_path: Path) -> None:
    write(tmp_path, 1e9, ("ä", 1, 0.5), ("b", 1, 0.25))
    assert has_text_ids(tmp_path) is True
    (page,) = read_pages(tmp_path, pa.array(["b"], pa.large_string()))
    assert page.predictions.tolist() == [[0.25]]


def test_rows_of_an_older_release_were_there_at_the_end_of_their_second(tmp_path: Path) -> None:
    write(tmp_path, 1e9 + 0.25, (5, 8, 0.5))
    (path,) = list_pages(tmp_path)
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns("time"), path)
    assert [page.time for page in read_pages(tmp_path, pa.array([5]))] == [1e9 + 1]


@pytest.mark.parametrize("content", [b"", b"PAR1", None])
def test_a_file_that_is_none_of_a_sink_is_named(tmp_path: Path, content: bytes | None) -> None:
    folder = tmp_path / "date=2026-03-01"
    folder.mkdir()
    path = folder / "120000-00000000000000000001-abcd.parquet"
    if content is None:
        pq.write_table(pa.table({"id": [1]}), path)
    else:
        path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"120000-.*Parquet sink"):
        list(read_pages(tmp_path, pa.array([1])))
    path.rename(folder / "1.parquet")
    with pytest.raises(FileFormatError, match="expected date=YYYY-MM-DD"):
        list(read_pages(tmp_path, pa.array([1])))
