"""A folder of Parquet files as a sink: a file for each page of time, in a folder for each day.

A file is whole before it has its name, `date=YYYY-MM-DD/HHMMSS-SEQ-RANDOM.parquet`. The rows of several files
are in order by `seq`; a removed node has a row without a prediction.
"""

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from livegnn.arguments import as_path
from livegnn.atomic_file import put_in_place, sync_directory, write_partial
from livegnn.connectors.sink import PredictionRows


class ParquetFolder:
    """Writes files below `directory`, which is made if it is missing: one for each `write`, so choose the
    seconds and the most rows of a round of the `SinkView`. clock: the seconds since 1970. Raises `InputError`
    for a wrong argument."""

    def __init__(self, directory: Path | str, *, clock: Callable[[], float] = time.time) -> None:
        self._directory = as_path(directory, "directory")
        self._clock = clock
        self._cleaned = False

    def write(self, rows: PredictionRows) -> None:
        """Writes a file with the columns `id`, `seq`, `time`, `model` and `prediction`. `time` is that of the
        write: the rows were read just before. Raises `OSError`, after which nothing of it stays."""
        now = datetime.fromtimestamp(self._clock(), UTC)
        folder = self._directory / f"date={now:%Y-%m-%d}"
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            sync_directory(self._directory)
        if not self._cleaned:
            for left in self._directory.glob("date=*/.*.partial"):  # by a process that was killed
                left.unlink(missing_ok=True)
            self._cleaned = True
        name = f"{now:%H%M%S}-{int(rows.seqs.max()):020d}-{secrets.token_hex(4)}.parquet"
        path, partial = folder / name, folder / f".{name}.partial"  # which readers of the folder pass over
        with write_partial(partial, path) as file:
            pq.write_table(_to_table(rows, now), file)
        put_in_place(partial, path)

    def close(self) -> None:
        """Nothing is open between two writes."""


def _to_table(rows: PredictionRows, now: datetime) -> pa.Table:
    text = isinstance(rows.ids[0], str)
    predictions = pa.FixedSizeListArray.from_arrays(
        pa.array(rows.predictions.reshape(-1)), rows.predictions.shape[1], mask=pa.array(rows.removed)
    )
    columns = {
        "id": pa.array(rows.ids, pa.string() if text else pa.int64()),
        "seq": pa.array(rows.seqs),
        "time": pa.repeat(pa.scalar(now, pa.timestamp("us", "UTC")), len(rows.ids)),
        "model": pa.array([rows.model] * len(rows.ids)).dictionary_encode(),
        "prediction": predictions,
    }
    return pa.table(columns)
