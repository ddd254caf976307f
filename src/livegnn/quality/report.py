"""The figures of all labels by day and model: computed from files alone, and stored as Parquet.

Labels and the record of predictions are joined by time, and divided by model and by day:

    labels ──────► join_latest ─┐
                                ├─► join_predictions ─► by model and day ─► figures ─► date=YYYY-MM-DD
    record, by time ────────────┘
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from livegnn.atomic_file import replace_file
from livegnn.errors import FileFormatError, InputError
from livegnn.quality.figures import compute_figures
from livegnn.quality.join import Joined, Match, join_predictions
from livegnn.quality.label_mapping import LabelMapping
from livegnn.quality.label_pages import BAD, read_label_pages
from livegnn.quality.labels import LabelReader, Labels, join_latest
from livegnn.quality.record import has_text_ids, read_pages
from livegnn.tables.files import list_files, read_columns
from livegnn.types import IntArray

FIGURES: Final = "figures.parquet"
_DAY: Final = 86_400
_EPOCH: Final = date(1970, 1, 1)
_FIELDS: Final = pa.schema(
    [
        ("labels", pa.string()),
        ("model", pa.string()),
        ("metric", pa.string()),
        ("part", pa.string()),
        ("value", pa.float64()),
    ]
)


class LabelSource(NamedTuple):
    """Labels in files. name: of its section. files: files and folders of the table. records: the folders of
    the Parquet sinks with the predictions; of a model that several have, the first counts. pages: in place of
    files, the folder of the labels that were read from a topic. complete_after_days: how old a day is when
    nearly all of its labels have arrived."""

    name: str
    mapping: LabelMapping
    files: Sequence[Path]
    records: Sequence[Path]
    pages: Path | None = None
    complete_after_days: int = 1


class Row(NamedTuple):
    """A figure. day: of the times that labels are about; without times, of the predictions; both in UTC.
    part: as of `Figure`."""

    day: date
    labels: str
    model: str
    metric: str
    part: str
    value: float


class Report(NamedTuple):
    """rows: all figures, by day. missing: for each section of labels, the number of labels without a
    prediction, by reason."""

    rows: list[Row]
    missing: Mapping[str, Mapping[str, int]]


def compute_report(sources: Sequence[LabelSource]) -> Report:
    """The figures of all labels. Raises InputError and FileFormatError for files that do not fit, with the
    file, the row and the column."""
    rows: list[Row] = []
    missing: dict[str, Mapping[str, int]] = {}
    for source in sources:
        found, lacking = _compute(source)
        rows += found
        missing[source.name] = lacking
    return Report(sorted(rows), missing)


def _compute(source: LabelSource) -> tuple[list[Row], dict[str, int]]:
    rows: list[Row] = []
    lacking: dict[str, int] = {}
    models: set[str] = set()
    for record in source.records:
        text = has_text_ids(record)
        if text is None:
            continue
        labels = read_labels(source, text_ids=text)
        if not len(labels.ids):  # none has arrived; of what kind the ids are, nothing says
            continue
        joined = _join(record, labels)
        for match in joined.matches:
            if match.model not in models:
                rows += _rows_of(source, labels, match)
        models |= {match.model for match in joined.matches}
        if not lacking:
            lacking = {reason: len(labels) for reason, labels in joined.missing.items()}
    if source.pages is not None and (bad := read_label_pages(source.pages)[1].bad):
        lacking[BAD] = bad
    return rows, lacking


def read_labels(source: LabelSource, *, text_ids: bool) -> Labels:
    """The labels of files. Raises InputError and FileFormatError."""
    if source.pages is not None:
        return join_latest(read_label_pages(source.pages)[0])
    parts = []
    files = [path for path in source.files if not (path.is_dir() and not any(path.iterdir()))]
    for path in list_files(files):  # an empty folder has no labels yet
        reader = LabelReader(source.mapping, str(path), text_ids=text_ids)
        first = 0
        for table in read_columns(path, reader.form, reader.check):
            parts.append(reader.read(table, first))
            first += table.num_rows
    return join_latest(parts)


def _join(record: Path, labels: Labels) -> Joined:
    known = labels.ids.dictionary_encode()
    nodes: IntArray = np.asarray(known.indices, np.int64)
    pages = read_pages(record, known.dictionary)
    return join_predictions(pages, nodes, labels.times, len(known.dictionary))


def _rows_of(source: LabelSource, labels: Labels, match: Match) -> Iterator[Row]:
    """The figures of one model, by day."""
    mapping, at = source.mapping, match.labels
    times = np.where(np.isfinite(labels.times[at]), labels.times[at], match.times)
    days = np.floor(times / _DAY).astype(np.int64)
    for day in np.unique(days).tolist():
        chosen = days == day
        try:
            figures = compute_figures(
                match.predictions[chosen], labels.values[at[chosen]], mapping.kind, mapping.scores
            )
        except InputError as error:
            raise InputError(f"[labels.{source.name}], model {match.model!r}: {error}") from error
        for one in figures:
            yield Row(_EPOCH + timedelta(days=day), source.name, match.model, one.metric, one.part, one.value)


def write_report(rows: Sequence[Row], directory: Path, first_day: date | None = None) -> None:
    """Replaces the figures in `directory`: a file `date=YYYY-MM-DD/figures.parquet` for each day, and none of
    other days. first_day: of those that are replaced; the figures of days before it stay, because the record
    does not have their predictions any more. Raises OSError."""
    by_day: dict[date, list[Row]] = {}
    for row in rows:
        if first_day is None or row.day >= first_day:
            by_day.setdefault(row.day, []).append(row)
    for day, some in by_day.items():
        write_rows(some, directory / f"date={day}" / FIGURES)
    for path in directory.glob(f"date=*/{FIGURES}"):
        kept = first_day is not None and path.parent.name < f"date={first_day}"
        if not kept and path.parent.name not in {f"date={day}" for day in by_day}:
            path.unlink()


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Replaces a file with rows of one day. Raises OSError."""
    columns = {name: [getattr(row, name) for row in rows] for name in _FIELDS.names}
    table = pa.table(columns, schema=_FIELDS)
    if path.exists() and pq.read_table(path, partitioning=None).equals(table):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        pq.write_table(table, file)


def read_rows(directory: Path, name: str = FIGURES) -> list[Row]:
    """The rows of all days in `directory`. Raises FileFormatError."""
    rows = []
    for path in sorted(directory.glob(f"date=*/{name}")):
        try:
            day = date.fromisoformat(path.parent.name.removeprefix("date="))
            table = pq.read_table(path, schema=_FIELDS, partitioning=None)
        except (ValueError, pa.ArrowException, OSError) as error:
            raise FileFormatError(f"{path}: expected figures of a day, got: {error}") from error
        rows += [Row(day=day, **row) for row in table.to_pylist()]
    return rows
