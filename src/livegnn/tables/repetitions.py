"""Keys that repeat in a table whose rows give different nodes or edges, in bounded memory.

A hash of 128 bits is kept for each row, with the number of the row: that two keys of a billion have the same
hash has a probability below 1e-20. Runs of `_RUN` rows are sorted. A table of several runs is written to a
temporary file, 24 bytes a row. Then the hashes of one range after the other are read from all runs, and
compared. So memory does not grow with the number of rows.
"""

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import BinaryIO, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livegnn.errors import InputError
from livegnn.schema import Schema
from livegnn.tables.entries import Entry
from livegnn.tables.given import Given
from livegnn.tables.mapping import EdgeRows

_RUN: Final = 1 << 20
_RANGE_BITS: Final = 10
_RANGES: Final = 1 << _RANGE_BITS  # so that a range of a billion rows is as large as a run
_RECORD: Final = np.dtype([("high", "<u8"), ("low", "<u8"), ("row", "<i8")])


class WholeTable:
    """All keys of a table of whole rows, by the entries of its mapping that must not give one twice.

    A context, at whose end its files are removed. Thread safety: one thread at a time.
    """

    def __init__(self, entries: Sequence[Entry], schema: Schema) -> None:
        self._keys = [
            Repetitions(one, undirected=_is_undirected(one, schema)) if one.rows.is_unique else None
            for one in entries
        ]

    def __enter__(self) -> "WholeTable":
        return self

    def __exit__(self, *_: object) -> None:
        for keys in self._keys:
            if keys is not None:
                keys.close()

    def add(self, given: Sequence[Given], numbers: "npt.NDArray[np.int64]") -> None:
        """Adds what the entries give of some rows. numbers: of the rows. Raises InputError for a key that
        repeats, at once or in `finish`."""
        for keys, one in zip(self._keys, given, strict=True):
            if keys is not None:
                keys.add(one, numbers)

    def finish(self) -> None:
        """Looks for repeated keys among all rows. Raises InputError."""
        for keys in self._keys:
            if keys is not None:
                keys.finish()


class Repetitions:
    """The keys of one entry of a mapping, over all rows of one table.

    Thread safety: one thread at a time.
    """

    def __init__(self, entry: Entry, undirected: bool = False, run: int = _RUN) -> None:
        self._entry, self._undirected, self._run = entry, undirected, run
        self._parts: list[npt.NDArray[np.void]] = []
        self._count = 0
        self._cuts: list[npt.NDArray[np.int64]] = []  # of each run: the rows in the file where ranges begin
        self._file: BinaryIO | None = None
        self._opened = ExitStack()

    def add(self, given: Given, numbers: "npt.NDArray[np.int64]") -> None:
        """Adds the keys of rows. numbers: of the rows in the table. Raises InputError for a repeated key."""
        records = np.empty(len(given.rows), dtype=_RECORD)
        records["row"] = numbers[given.rows]
        hashes = np.frombuffer(b"".join(map(_hash, self._keys(given))), dtype="<u8").reshape(-1, 2)
        records["high"], records["low"] = hashes[:, 0], hashes[:, 1]
        self._parts.append(records)
        self._count += len(records)
        if self._count >= self._run:
            self._write(self._take())

    def finish(self) -> None:
        """Compares the rows of all runs, and removes the file. Raises InputError for a repeated key."""
        with self._opened:
            rest = self._take()
            if self._file is None:
                return
            self._write(rest)
            for begin, end in self._ranges():
                self._sort(np.concatenate([self._read(cuts, begin, end) for cuts in self._cuts]))

    def close(self) -> None:
        """Removes the file, if `finish` was not called."""
        self._opened.close()

    def _keys(self, given: Given) -> Sequence[bytes]:
        """The bytes of each key; different keys have different ones: an id has no NUL."""
        ends = [_texts(given.ids)]
        if given.dst is not None:
            ends.append(_texts(given.dst))
            if self._undirected:
                ends = [list(map(min, *ends)), list(map(max, *ends))]
        if given.key is not None:
            ends.append([b"%d" % key for key in given.key.tolist()])
        return [b"\0".join(parts) for parts in zip(*ends, strict=True)]

    def _take(self) -> "npt.NDArray[np.void]":
        """The rows since the last run, sorted."""
        records = np.concatenate([np.empty(0, _RECORD), *self._parts])
        self._parts, self._count = [], 0
        return self._sort(records)

    def _write(self, records: "npt.NDArray[np.void]") -> None:
        if self._file is None:
            file = tempfile.TemporaryFile(prefix="livegnn-")  # noqa: SIM115 (`_opened` closes it)
            self._file = self._opened.enter_context(file)
        self._file.write(records.tobytes())
        before = int(self._cuts[-1][-1]) if self._cuts else 0
        bounds = np.arange(1, _RANGES, dtype=np.uint64) << np.uint64(64 - _RANGE_BITS)
        inside = np.searchsorted(records["high"], bounds)
        self._cuts.append(before + np.concatenate([[0], inside, [len(records)]]))

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """Ranges of hashes, one after the other, each with about as many rows as a run, or fewer."""
        rows = np.sum([np.diff(cuts) for cuts in self._cuts], axis=0).tolist()
        begin = count = 0
        for at, more in enumerate(rows):
            if count + more > self._run and at > begin:
                yield begin, at
                begin, count = at, 0
            count += more
        yield begin, len(rows)

    def _read(self, cuts: "npt.NDArray[np.int64]", begin: int, end: int) -> "npt.NDArray[np.void]":
        """The rows of a run in a range."""
        assert self._file is not None
        self._file.seek(int(cuts[begin]) * _RECORD.itemsize)
        return np.frombuffer(self._file.read(int(cuts[end] - cuts[begin]) * _RECORD.itemsize), _RECORD)

    def _sort(self, records: "npt.NDArray[np.void]") -> "npt.NDArray[np.void]":
        """The records in the order of hashes, then rows. Raises InputError if two hashes are equal. Requires:
        those of equal hashes are in the order of rows."""
        records = records[np.argsort(records["high"], kind="stable")]
        high, low, rows = records["high"], records["low"], records["row"]
        again = np.flatnonzero((high[1:] == high[:-1]) & (low[1:] == low[:-1]))
        if len(again):
            at = again[np.argmin(rows[again + 1])]
            raise self._repeated(int(rows[at]), int(rows[at + 1]))
        return records

    def _repeated(self, first: int, second: int) -> InputError:
        what = "edge" if isinstance(self._entry.rows, EdgeRows) else "node"
        names = ", ".join(map(repr, self._entry.rows.keys))
        columns = f"columns {names}" if len(self._entry.rows.keys) > 1 else f"column {names}"
        return InputError(
            f"{self._entry.place}row {second}, {columns}: expected another {what} than row {first} gives, "
            "got the same one: remove one of the rows, or write unique = false in the mapping"
        )


def _is_undirected(entry: Entry, schema: Schema) -> bool:
    return isinstance(entry.type, tuple) and schema.edge_types[entry.type].undirected


def _hash(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=16).digest()


def _texts(ids: pa.Array) -> list[bytes]:
    return cast("list[bytes]", ids.cast(pa.large_string()).cast(pa.large_binary()).to_pylist())
