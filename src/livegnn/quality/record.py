"""The record of predictions: the folder of a Parquet sink, read in the order of its times.

A page has the predictions that a write of the sink stored. At its time they were the service's answers; each
holds until a later page has another row of its node.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from livegnn.errors import FileFormatError
from livegnn.types import FloatArray, IntArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PAGES: Final = "date=*/[0-9]*.parquet"
_COLUMNS: Final = ("id", "seq", "model", "prediction")
_ALL: Final = ["id", "seq", "time", "model", "prediction"]
_TIME: Final = pa.timestamp("us", "UTC")


class Page(NamedTuple):
    """Rows of some nodes. time: in seconds since 1970. nodes [rows]: their positions among the ids that are
    read. seqs [rows]: the event that each reflects. predictions [rows, channels]: NaN if removed."""

    time: float
    model: str
    nodes: IntArray
    seqs: IntArray
    predictions: FloatArray
    removed: "NDArray[np.bool_]"


def list_pages(directory: Path) -> list[Path]:
    """The files of a record by their seconds; those of one second in any order."""
    return sorted(directory.glob(_PAGES))


def has_text_ids(directory: Path) -> bool | None:
    """Whether ids are text; None of a record without pages. Raises FileFormatError."""
    for path in directory.glob(_PAGES):
        kind = _open(path).schema_arrow.field("id").type
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
    return None


def read_pages(directory: Path, ids: pa.Array) -> Iterator[Page]:
    """The rows of `ids`, in the order of time. Raises FileFormatError."""
    for _, group in groupby(list_pages(directory), _second_of):
        pages = [page for path in group if (page := _read(path, ids)) is not None]
        yield from sorted(pages, key=_time_of)


def _time_of(page: Page) -> float:
    return page.time


def _second_of(path: Path) -> datetime:
    """The second in which a page was written, by its name."""
    try:
        given = f"{path.parent.name.removeprefix('date=')} {path.name[:6]}"
        return datetime.strptime(given, "%Y-%m-%d %H%M%S").replace(tzinfo=UTC)
    except ValueError as error:
        raise FileFormatError(
            f"{path}: expected date=YYYY-MM-DD/HHMMSS-SEQ-RANDOM.parquet, as a sink names its files"
        ) from error


def _open(path: Path) -> pq.ParquetFile:
    try:
        opened = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(f"{path}: expected a file of a Parquet sink, got: {error}") from error
    if missing := [name for name in _COLUMNS if name not in opened.schema_arrow.names]:
        raise FileFormatError(f"{path}: expected the columns of a Parquet sink, got none named {missing[0]}")
    return opened


def read_page(path: Path) -> pa.Table:
    """All rows of a page, with the columns `id`, `seq`, `time`, `model` and `prediction`. Raises
    FileFormatError."""
    with _open(path) as opened:
        timed = "time" in opened.schema_arrow.names
        try:
            table = opened.read([*_COLUMNS, *(["time"] if timed else [])], use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise FileFormatError(f"{path}: expected a file of a Parquet sink, got: {error}") from error
    if not timed:  # a file of an older release: its rows were there at the end of the second
        time = pa.scalar(_second_of(path) + timedelta(seconds=1), _TIME)
        table = table.append_column("time", pa.repeat(time, table.num_rows))
    return table.select(_ALL).set_column(2, "time", table["time"].cast(_TIME))


def _read(path: Path, ids: pa.Array) -> Page | None:
    """The rows of `ids`; None if there are none."""
    table = read_page(path)
    found = pc.index_in(table["id"].combine_chunks().cast(ids.type), ids)
    chosen = np.flatnonzero(np.asarray(found.is_valid()))
    if not len(chosen):
        return None
    table = table.take(pa.array(chosen))
    predictions, removed = _predictions(table["prediction"].combine_chunks())
    return Page(
        float(table["time"][0].value / 1e6),
        str(table["model"][0].as_py()),
        cast("IntArray", np.asarray(found.take(pa.array(chosen)), np.int64)),
        cast("IntArray", np.asarray(table["seq"], np.int64)),
        predictions,
        removed,
    )


def _predictions(column: pa.Array) -> "tuple[FloatArray, NDArray[np.bool_]]":
    removed = np.asarray(column.is_null(), np.bool_)
    width = column.type.list_size
    predictions = np.full((len(column), width), np.nan, np.float32)
    predictions[~removed] = np.asarray(column.drop_null().flatten(), np.float32).reshape(-1, width)
    return predictions, removed
