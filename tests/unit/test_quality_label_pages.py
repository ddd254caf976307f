"""The labels of a topic as pages: the state after a crash, joined pages, and messages that are labels."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import InputError
from livegnn.connectors.row_messages import parse_change, parse_row
from livegnn.errors import FileFormatError, LiveGNNError
from livegnn.log import Origin
from livegnn.quality import label_pages
from livegnn.quality.label_mapping import LabelMapping
from livegnn.quality.label_pages import LabelPages, read_label_pages
from livegnn.quality.label_topic import read_messages
from livegnn.quality.labels import LabelReader, Labels, join_latest


def labels_of(rows: dict[tuple[int, float], float]) -> Labels:
    ids, times = zip(*rows, strict=True) if rows else ((), ())
    return Labels(pa.array(ids, pa.int64()), np.array(list(rows.values()), float), np.array(times, float))


def rows_in(directory: Path) -> dict[tuple[int, float], float]:
    found = join_latest(read_label_pages(directory)[0])
    return dict(
        zip(zip(found.ids.to_pylist(), found.times.tolist(), strict=True), found.values.tolist(), strict=True)
    )


KEY = st.tuples(st.integers(0, 2), st.sampled_from([1.0, np.inf]))
ROWS = st.dictionaries(KEY, st.sampled_from([0.0, 1.0, np.nan]), max_size=3)
STEPS = st.lists(st.tuples(ROWS, st.sampled_from(["add", "flush", "restart"])), max_size=12)


@given(STEPS)
@settings(max_examples=draws(30, 2000), deadline=None)
def test_the_disk_has_a_beginning_of_what_was_added(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[dict[tuple[int, float], float], str]]
) -> None:
    """After a restart, the reader goes on after the last page: the labels since then are added again."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_pages, "_MOST_PAGES", 3)
        pages = LabelPages(folder, text_ids=False)
        added: list[dict[tuple[int, float], float]] = []
        written = 0
        for rows, then in steps:
            added.append(rows)
            pages.add(labels_of(rows), 0, len(added) - 1, bad=1)
            if then == "flush":
                pages.flush()
                written = len(added)
            elif then == "restart":
                pages = LabelPages(folder, text_ids=False)
                assert pages.position("any", 0) == (written - 1 if written else None)
                assert pages.bad == written
                del added[written:]
            expected: dict[tuple[int, float], float] = {}
            for one in added[:written]:
                expected |= one
            assert rows_in(folder) == {key: value for key, value in expected.items() if not np.isnan(value)}
            assert len(list(folder.iterdir())) <= 3


def test_pages_that_were_joined_and_not_removed_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_pages, "_MOST_PAGES", 2)
    pages = LabelPages(tmp_path / "pages", text_ids=False)
    for offset, rows in enumerate([{(1, 1.0): 1.0, (2, 1.0): 1.0}, {(1, 1.0): np.nan}]):
        pages.add(labels_of(rows), 0, offset)
        pages.flush()
    shutil.copytree(tmp_path / "pages", tmp_path / "before")
    pages.add(labels_of({(3, 1.0): 0.0}), 0, 2)
    pages.flush()
    (joined,) = (tmp_path / "pages").iterdir()
    shutil.copy(joined, tmp_path / "before")  # a crash before the removal
    for folder in ("pages", "before"):
        assert rows_in(tmp_path / folder) == {(2, 1.0): 1.0, (3, 1.0): 0.0}
        assert LabelPages(tmp_path / folder, text_ids=False).position("", 0) == 2


def test_pages_keep_which_topic_they_have(tmp_path: Path) -> None:
    pages = LabelPages(tmp_path, text_ids=True)
    assert (pages.bound(), pages.position("", 3)) == ({}, None)
    pages.append_all([], None, [Origin("x", 3, 7)])
    pages.bind({"topic id/x": "a"})
    again = LabelPages(tmp_path, text_ids=True)
    assert (again.bound(), again.position("", 3)) == ({"topic id/x": "a"}, 7)
    with pytest.raises(LiveGNNError, match="labels of another topic another name"):
        again.bind({"topic id/x": "b"})
    with pytest.raises(FileFormatError, match="ids of int64, as the graph has them"):
        LabelPages(tmp_path, text_ids=False)
    (page,) = tmp_path.iterdir()
    page.write_bytes(b"PAR1")
    with pytest.raises(FileFormatError, match="labels of a topic"):
        LabelPages(tmp_path, text_ids=True)


READER = LabelReader(LabelMapping("id", "fraud", "at", "s", where={"kind": "card"}), "labels", text_ids=False)


def row(id: int, fraud: object, at: int = 1, kind: str = "card") -> dict[str, object]:
    return {"id": id, "fraud": fraud, "at": at, "kind": kind, "note": "not read"}


def test_messages_are_rows_and_wrong_ones_are_alone() -> None:
    good = [json.dumps(row(at, at % 2)).encode() for at in range(5)]
    wrong = [b"?", b'{"id": 1}', json.dumps(row(1, 0.5)).encode(), json.dumps(row("a", 1)).encode()]
    mixed: list[bytes | None] = [good[0], wrong[0], good[1], wrong[1], None, good[2], *wrong[2:], *good[3:]]
    found = read_messages(READER, parse_row, mixed)
    assert [str(one)[:30] for one in found if isinstance(one, InputError)] == [
        "expected a JSON object, got b'",
        "labels: expected a column 'fra",
        "labels, row 0, column 'fraud':",
        "labels, column 'id': expected ",
    ]
    labels = join_latest([one for one in found if isinstance(one, Labels)])
    assert (labels.ids.to_pylist(), labels.values.tolist()) == ([0, 1, 2, 3, 4], [0, 1, 0, 1, 0])


def test_changes_of_rows_take_the_old_label_back() -> None:
    changes = [
        {"op": "c", "after": row(1, 1)},
        {"op": "c", "after": row(2, 1)},
        {"op": "c", "after": row(3, 1)},
        {"op": "c", "after": row(4, 1)},
        {"op": "u", "before": row(1, 1), "after": row(1, 0)},
        {"op": "u", "before": row(2, 1), "after": row(2, 1, at=9)},  # about another time
        {"op": "u", "before": row(4, 1), "after": row(4, 1, kind="cash")},  # where fails
        {"op": "d", "before": row(3, 1), "after": None},
        {"op": "d", "before": row(1, 0, kind="cash"), "after": None},  # gave no label
    ]
    found = read_messages(READER, parse_change, [json.dumps(one).encode() for one in changes])
    labels = join_latest([one for one in found if isinstance(one, Labels)])
    assert len(found) == 1
    assert labels.ids.to_pylist() == [1, 2]
    assert (labels.times.tolist(), labels.values.tolist()) == ([1, 9], [0, 1])
