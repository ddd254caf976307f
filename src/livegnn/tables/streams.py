"""Tables of any library, a part at a time: pyarrow, Polars, DuckDB and pandas hand out a stream of Arrow."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from livegnn.errors import InputError
from livegnn.wording import kind_of

ROWS_AT_ONCE: Final = 65_536


def open_stream(source: object, name: str) -> pa.RecordBatchReader:
    """The rows of `source`, which has the Arrow C stream: a table or reader of pyarrow, a frame of Polars or
    of pandas from 2.2 on, a relation of DuckDB. name: for errors. Raises InputError for another object."""
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.RecordBatchReader):
        return source
    if not hasattr(source, "__arrow_c_stream__"):
        raise InputError(
            f"{name}: expected a table with the Arrow C stream (pyarrow, Polars, DuckDB, or pandas "
            f"from 2.2 on), got {kind_of(source)}"
        )
    try:
        return pa.RecordBatchReader.from_stream(source)
    except pa.ArrowException as error:
        raise InputError(f"{name}: expected a table that Arrow can hold, got: {error}") from error


def read_parts(stream: pa.RecordBatchReader, columns: Sequence[str], rows: int) -> Iterator[pa.Table]:
    """The rows of a stream, `rows` at a time and the rest at the end, however it divides them itself.

    Raises the errors of Arrow, and OSError.
    """
    waiting: list[pa.RecordBatch] = []
    count = 0
    while True:
        try:
            batch = stream.read_next_batch()
        except StopIteration:
            break
        batch = batch.select(list(columns))
        while count + batch.num_rows >= rows:
            taken = rows - count
            yield pa.Table.from_batches([*waiting, batch.slice(0, taken)])
            batch, waiting, count = batch.slice(taken), [], 0
        if batch.num_rows:
            waiting.append(batch)
            count += batch.num_rows
    if waiting:
        yield pa.Table.from_batches(waiting)
