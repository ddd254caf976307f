"""All predictions, or all scores of an edge output, as a Parquet file: from the Arrow stream of a server, or
of a runtime of this process."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from livegnn.atomic_file import replace_file
from livegnn.errors import LiveGNNError, SourceError
from livegnn.runtime import Runtime
from livegnn.server.arrow_stream import encode_all

_GROUP_ROWS: Final = 1 << 17  # of a group of rows, which is in memory


class Written(NamedTuple):
    """The content of a file. seq: the event at which the reading began. of_edges: whether it has scores of
    edges."""

    rows: int
    seq: int
    of_edges: bool


def write_parquet(stream: "BinaryIO | io.RawIOBase", path: Path) -> Written:
    """Writes an Arrow IPC stream of `encode_all`, without the rows of nodes that were removed meanwhile.

    The file is replaced when the stream was read to its end. Raises SourceError if it ends before,
    and LiveGNNError if the file cannot be written.
    """
    written = 0
    with _open(stream) as reader:
        about = {name.decode(): value.decode() for name, value in (reader.schema.metadata or {}).items()}
        rows = _Rows(reader, about.get("rows"))
        try:
            with replace_file(path) as file, pq.ParquetWriter(file, reader.schema) as writer:
                for group in _groups(rows.read()):
                    present = group.filter(group[reader.schema.names[-1]].is_valid())
                    written += present.num_rows
                    writer.write_table(present)
                rows.check()
        except OSError as error:  # those of the stream are SourceError
            raise LiveGNNError(f"{path} cannot be written: {error.strerror or error}") from error
    return Written(written, int(about["seq"]), "edge_type" in about)


def _open(stream: "BinaryIO | io.RawIOBase") -> pa.RecordBatchStreamReader:
    try:
        return pa.ipc.open_stream(stream)
    except (pa.ArrowInvalid, OSError) as error:  # OSError is pyarrow's, for the end of a stream
        raise _cut(str(error)) from error


class _Rows:
    """Reads a stream, and counts its rows. expected: their number; None if the last part has it."""

    def __init__(self, reader: pa.RecordBatchStreamReader, expected: str | None) -> None:
        self._reader, self._expected, self._count = reader, expected, 0

    def read(self) -> Iterator[pa.RecordBatch]:
        """The parts. Raises SourceError."""
        while True:
            try:
                batch, told = self._reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            except (pa.ArrowInvalid, OSError) as error:
                raise _cut(str(error)) from error
            self._count += batch.num_rows
            if told is not None and b"rows" in told:
                self._expected = told[b"rows"].decode()
            yield batch

    def check(self) -> None:
        """Raises SourceError if rows are missing."""
        if self._expected is None:
            raise _cut(f"{self._count:,} rows and no end")
        if self._count != int(self._expected):
            raise _cut(f"{self._count:,} rows of {int(self._expected):,}")


def open_all(runtime: Runtime, output: str | None, model: str | None) -> io.RawIOBase:
    """The stream of all predictions of a runtime, or of all scores if `output` is an edge output. Raises the
    errors of `encode_all`.
    """
    return _Joined(encode_all(runtime, output, model))


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Neighbouring batches as one group of rows."""
    group: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        if rows >= _GROUP_ROWS:
            yield pa.Table.from_batches(group)
            group, rows = [], 0
    if group:
        yield pa.Table.from_batches(group)


def _cut(found: str) -> SourceError:
    return SourceError(
        f"the answer must have all predictions, got {found}: the connection was cut, or the "
        "server ended. Run it again"
    )


class _Joined(io.RawIOBase):
    """The parts of a stream, one after the other."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._rest = parts, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # of any buffer
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = memoryview(part)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
