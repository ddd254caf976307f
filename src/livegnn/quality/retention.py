"""The end of a record of predictions: its oldest pages, folded into one that has the newest row of each node.

The folded page has the time at which the kept days begin: its rows were the service's answers then. So labels
about the kept days have the same predictions as before, however long ago a node has changed.
"""

import contextlib
import secrets
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from livegnn.atomic_file import put_in_place, write_partial
from livegnn.quality.record import list_pages, read_page
from livegnn.types import IntArray


def fold_pages(directory: Path, first_day: date) -> None:
    """Folds the pages of the days before `first_day`, which are in memory meanwhile. A process that is killed
    leaves pages whose rows are in others too, which changes nothing. Raises FileFormatError and OSError."""
    old = [path for path in list_pages(directory) if path.parent.name < f"date={first_day}"]
    pages = [read_page(path) for path in old]
    if not pages:
        return
    sizes = [page.num_rows for page in pages]
    newest = _choose_newest(pages)
    ends = np.cumsum(sizes)
    kinds: dict[tuple[str, pa.DataType], list[pa.Table]] = {}
    for page, begin, end in zip(pages, ends - sizes, ends, strict=True):
        chosen = newest[(newest >= begin) & (newest < end)] - begin
        kept = page.take(pa.array(chosen))
        kept = kept.filter(kept["prediction"].is_valid())  # of removed nodes, nothing is kept
        if kept.num_rows:
            kinds.setdefault((str(kept["model"][0]), kept["prediction"].type), []).append(kept)
    midnight = datetime(first_day.year, first_day.month, first_day.day, tzinfo=UTC)
    for parts in kinds.values():
        _write(directory / f"date={first_day}", pa.concat_tables(parts), midnight)
    for path in old:
        path.unlink()
    for folder in {path.parent for path in old}:
        with contextlib.suppress(OSError):  # something of others is in it
            folder.rmdir()


def _choose_newest(pages: list[pa.Table]) -> IntArray:
    """The positions, among all rows, of the newest row of each node, in order."""
    ids = pa.concat_arrays([page["id"].combine_chunks() for page in pages])
    seqs = np.concatenate([np.asarray(page["seq"]) for page in pages])
    times = np.concatenate([np.asarray(page["time"].cast(pa.int64())) for page in pages])
    codes = np.asarray(ids.dictionary_encode().indices)
    order = np.lexsort((times, seqs, codes))
    last = np.append(codes[order][1:] != codes[order][:-1], True)
    return np.sort(order[last])


def _write(folder: Path, table: pa.Table, time: datetime) -> None:
    """Writes a page, as a sink names it."""
    folder.mkdir(parents=True, exist_ok=True)
    at = table.schema.get_field_index("time")
    times = pa.repeat(pa.scalar(time, pa.timestamp("us", "UTC")), table.num_rows)
    seq = int(np.asarray(table["seq"]).max())
    name = f"{time:%H%M%S}-{seq:020d}-{secrets.token_hex(4)}.parquet"
    path, partial = folder / name, folder / f".{name}.partial"
    with write_partial(partial, path) as file:
        pq.write_table(table.set_column(at, "time", times), file)
    put_in_place(partial, path)
