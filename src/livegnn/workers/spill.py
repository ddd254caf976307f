"""A serving worker's cache that spills to disk past a budget (Helios, section 6: its cache is RocksDB's).

Samples and features that were not looked up lately move from the memory to a RocksDB database, and are
restored when a request needs them. The database is a part of the cache: it is lost with the process, without
a log of its own, and the worker requests all of it again (`SamplingShard.publish_all`).

Needs `rocksdict`: `pip install 'livegnn[rocksdb]'`.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch, WriteOptions

import livegnn._core as _core
from livegnn.errors import DiskFullError, InputError, LogError
from livegnn.types import IntArray

if TYPE_CHECKING:
    import os

    from jaxtyping import Bool, Int64
    from numpy.typing import NDArray

_AT_ONCE = 4 << 20  # bytes that leave the memory in one step, so that readers do not wait long
_FEWEST_BYTES = 1 << 20
_MOST_GONE = 10_000  # keys that are to be deleted in the database, and are not yet
_KEYS_END = b"\xff"  # behind all keys, which begin with a small number

_Record = bytes  # `SpilledCache.bytes` is something else

Sample = tuple[list["_core.NodesOfType"], list["_core.EdgesOfType"], list[IntArray]]


class SpilledCache:
    """A `_core.SampleCache` in about `budget_bytes` of memory; what does not fit is in `directory`.

    Its answers are those of a cache that keeps everything, from one moment each. A request that needs what
    has left the memory fetches it, at most once for each hop and once for the features.

    cache: belongs to this object from now on. directory: is made, or emptied if it is of such a cache.
    budget_bytes: of `bytes`; RocksDB takes an eighth of it besides. A budget that does not hold what one
    request needs is passed during the request.

    Thread safety: any thread may call it. Readers share the native cache; what moves between memory and disk
    moves under one lock.

    Raises `InputError`, and `LogError` if the directory cannot be used. A call that cannot write raises
    `LogError`, or `DiskFullError`; what should have left stays in memory, and answers are as before.
    """

    def __init__(
        self, cache: _core.SampleCache, directory: "str | os.PathLike[str]", budget_bytes: int
    ) -> None:
        if budget_bytes < _FEWEST_BYTES:
            raise InputError(f"budget_bytes must be at least {_FEWEST_BYTES:,}, got {budget_bytes!r}")
        self.budget_bytes = budget_bytes
        self.directory = Path(directory)
        self.native = cache
        self._lock = threading.Lock()
        self._gone: set[_Record] = set()  # in the database, and no longer of the cache
        self._database = _open(self.directory, budget_bytes)
        self._without_log = WriteOptions()
        self._without_log.disable_wal = True  # type: ignore[method-assign,assignment]  # it is a property
        cache.spill(budget_bytes // 32)

    def apply(self, blocks: _Record) -> None:
        """As `_core.SampleCache.apply`. If the disk fails, it says so once all blocks are applied."""
        at = 0
        failure: LogError | None = None
        while at < len(blocks):
            with self._lock:
                at, gone = self.native.apply_block(blocks, at)
                self._gone.update(gone)
                try:
                    self._shrink()
                except LogError as error:  # half a change would be a graph that never was
                    failure = error
        if failure is not None:
            raise failure

    def sample(self, ids: "Int64[IntArray, 'seeds']", attributes: bool) -> Sample:
        """As `_core.SampleCache.sample`."""
        sample, missing, version = self.native.sample_noting(ids, attributes)
        if not missing:
            return sample
        for _ in range(len(sample[0][0][2])):  # hops, and one
            with self._lock:
                # Rows in neither place do not exist, if nothing has moved between the two looks.
                if not self._take_back(missing) and self.native.version() == version:
                    return sample
            sample, missing, version = self.native.sample_noting(ids, attributes)
            if not missing:
                break
        else:
            # Other threads move things all the time: now none does.
            with self._lock:
                while self._take_back(missing):
                    sample, missing, _ = self.native.sample_noting(ids, attributes)
        with self._lock, suppress(LogError):  # the answer is whole; `apply` reports the error
            self._shrink()
        return sample

    def has_features(
        self, node_type: int, ids: "Int64[IntArray, 'nodes']"
    ) -> "Bool[NDArray[np.bool_], 'nodes']":
        """As `_core.SampleCache.has_features`."""
        found, _, missing = self.native.has_features_noting(node_type, ids)
        if not missing:
            return found
        with self._lock:
            found, places, missing = self.native.has_features_noting(node_type, ids)
            found[places] = [record is not None for record in self._read(missing)]
            return found

    def restart(self, sender: int) -> None:
        """As `_core.SampleCache.restart`."""
        self.native.restart(sender)

    def restart_all(self, sampling_workers: int) -> None:
        """As `_core.SampleCache.restart_all`."""
        self.native.restart_all(sampling_workers)

    def clear(self) -> None:
        """As `_core.SampleCache.clear`; the database is emptied too."""
        with self._lock:
            try:
                self._database.delete_range(b"", _KEYS_END, write_opt=self._without_log)
            except Exception as error:
                raise _explanation(self.directory, error) from error
            self._gone.clear()
            self.native.clear()

    def bytes(self) -> int:
        """Bytes in memory, without RocksDB's."""
        return self.native.bytes()

    def close(self) -> None:
        """Closes the database. Nothing else may be called afterwards."""
        with self._lock:
            self._database.close()

    # -- with the lock

    def _shrink(self) -> None:
        """Evicts entries over the budget, and a few more. Raises `LogError`."""
        over = self.native.bytes() - self.budget_bytes
        left = over + self.budget_bytes // 16 if over > 0 else 0
        while left > 0:
            self._write(*self.native.evict(min(left, _AT_ONCE)))
            left -= _AT_ONCE
        if len(self._gone) > _MOST_GONE:
            self._write([], [])

    def _write(self, keys: "Sequence[_Record]", records: "Sequence[_Record]") -> None:
        batch = WriteBatch(raw_mode=True)
        for key, record in zip(keys, records, strict=True):
            batch.put(key, record)
        for key in self._gone.difference(keys):
            batch.delete(key)
        try:
            self._database.write(batch, self._without_log)
        except Exception as error:
            self.native.restore(list(keys), list(records), False)
            raise _explanation(self.directory, error) from error
        self._gone.clear()

    def _read(self, keys: "Sequence[_Record]") -> "list[_Record | None]":
        """The records of these keys. Raises `LogError`."""
        try:
            records = cast("list[_Record | None]", self._database.get(list(keys)))
        except Exception as error:
            raise _explanation(self.directory, error) from error
        return [None if key in self._gone else record for key, record in zip(keys, records, strict=True)]

    def _take_back(self, keys: "Sequence[_Record]") -> int:
        """Puts what the database has of these into memory, and returns how many that were."""
        pairs = [
            (key, record) for key, record in zip(keys, self._read(keys), strict=True) if record is not None
        ]
        self.native.restore([key for key, _ in pairs], [record for _, record in pairs], True)
        return len(pairs)


def _open(directory: Path, budget_bytes: int) -> Rdict:
    """An empty database. Raises `InputError` if the directory holds something else, and `LogError`."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(max(budget_bytes // 32, 1 << 20))
    options.set_max_write_buffer_number(2)
    tables = BlockBasedOptions()
    tables.set_bloom_filter(10, False)
    tables.set_block_cache(Cache(max(budget_bytes // 16, 1 << 20)))
    options.set_block_based_table_factory(tables)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(directory.iterdir()):
            if not (directory / "CURRENT").exists():
                raise InputError(
                    f"{directory} must be empty or of a cache's before, to spill to: it holds other files"
                )
            Rdict.destroy(str(directory), options)
        return Rdict(str(directory), options)
    except InputError:
        raise
    except Exception as error:
        raise _explanation(directory, error) from error


def _explanation(directory: Path, error: Exception) -> LogError:
    """A message for an error of RocksDB, whose class says nothing."""
    full = "No space left" in str(error) or "File too large" in str(error)
    cause = DiskFullError if full else LogError
    return cause(
        f"the directory of evicted samples, {directory}, cannot be used: {error}. "
        "Make room there or name another"
    )
