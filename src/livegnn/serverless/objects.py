"""Objects read by ranges, joined and in parallel, with attempts until patience ends; and written once.

Thread safety: any thread may call. `requests` and `bytes_read` count what was asked of the store and came
from it, attempts included.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from livegnn import _core
from livegnn.arguments import above_zero
from livegnn.errors import (
    InputError,
    ObjectDamagedError,
    ObjectExistsError,
    SnapshotError,
    StoreUnavailableError,
)
from livegnn.serverless.stores import PART, Buffer, ObjectInfo, Store, Upload, open_store
from livegnn.wording import shown

if TYPE_CHECKING:
    from jaxtyping import Int64, UInt8
    from numpy.typing import NDArray

    from livegnn.types import IntArray

T = TypeVar("T")

GAP = 4 << 10
"""Ranges of one object that lie closer than this, in bytes, are one request: what lies between costs less."""

_AT_ONCE = 10  # ranges that `obstore` has under way at once
_RANGES_A_CALL = 40  # at most; a call that fails is repeated whole
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_LONGEST_TIMEOUT = 86_400.0  # seconds
_jitter = random.SystemRandom()


class Ranges(NamedTuple):
    """Byte ranges of one object, in any order."""

    path: str
    starts: "Int64[IntArray, 'ranges']"
    lengths: "Int64[IntArray, 'ranges']"


def open_objects(url: str, *, patience: float = 30.0, timeout: float = 10.0, **options: str) -> "Objects":
    """The objects of a store: `s3://`, `gs://`, `az://`, `file://`, `memory://` or the path of a folder.

    patience: seconds until an operation that goes on failing raises `StoreUnavailableError`. timeout: seconds
    for one request, and never more than `patience`: a network that swallows packets would make one attempt as
    long as the other is short. options: as in `open_store`. Raises `InputError` for a wrong URL or option.
    """
    above_zero(patience, "patience")
    timeout = min(above_zero(timeout, "timeout"), patience, _LONGEST_TIMEOUT)
    return Objects(open_store(url, timeout=timeout, **options), patience=patience)


def as_objects(where: object) -> "Objects":
    """`where`, if it is `Objects`; those of a store, if it is the URL. Raises `InputError`."""
    if isinstance(where, Objects):
        return where
    if isinstance(where, str):
        return open_objects(where)
    raise InputError(
        "a store must be given by its URL, the path of a folder as text, or what open_objects returned, got "
        f"{shown(where)}"
    )


class Objects:
    """store: where they lie. patience: as in `open_objects`. gap: as `GAP`. threads: how many calls of the
    store are under way at once, each for several ranges. sleep: how it waits between two attempts.
    """

    def __init__(
        self,
        store: Store,
        *,
        patience: float = 30.0,
        gap: int = GAP,
        threads: int = 32,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store = store
        self.requests = 0
        self.bytes_read = 0
        self._patience = patience
        self._gap = gap
        self._threads = threads
        self._sleep = sleep
        self._pool: ThreadPoolExecutor | None = None
        self._counting = threading.Lock()

    @property
    def url(self) -> str:
        """Where the objects are, for messages."""
        return self.store.url

    # -- reading
    # ------------------------------------------------------------------------------------------------

    def get(self, path: str) -> bytes:
        """A whole small object. Raises `ObjectMissingError` if there is none."""
        data = bytes(self._repeated(lambda: self.store.get(path)))
        self._count(1, len(data))
        return data

    def get_ranges(
        self, path: str, starts: "Int64[IntArray, 'ranges']", lengths: "Int64[IntArray, 'ranges']"
    ) -> "UInt8[NDArray[np.uint8], 'bytes']":
        """The bytes of these ranges, one after the other, in the order asked for."""
        return self.read([Ranges(path, starts, lengths)])[0]

    def read(self, asked: Sequence[Ranges]) -> "list[NDArray[np.uint8]]":
        """The bytes of the ranges of each, one after the other, in the order asked for; all in parallel.

        Raises `ObjectMissingError`, and `ObjectDamagedError` if an object ends before a range does.
        """
        joined = [_join(one.starts, one.lengths, self._gap) for one in asked]
        calls: list[Callable[[], None]] = []
        buffers = []
        for one, (pieces, sizes, _) in zip(asked, joined, strict=True):
            buffer = np.empty(int(sizes.sum()), dtype=np.uint8)
            buffers.append(buffer)
            ends = np.cumsum(sizes)
            together = min(max(len(pieces) // self._threads, _AT_ONCE), _RANGES_A_CALL)
            for at in range(0, len(pieces), together):
                here = slice(at, at + together)
                begin = int(ends[at] - sizes[at])
                into = buffer[begin : int(ends[here][-1])]
                calls.append(self._fill(one.path, pieces[here].tolist(), sizes[here].tolist(), into))
        self._run(calls)
        return [
            buffer
            if places is None
            else _core.gather_ranges(buffer, places, np.ascontiguousarray(one.lengths))
            for one, buffer, (_, _, places) in zip(asked, buffers, joined, strict=True)
        ]

    def _fill(
        self, path: str, starts: list[int], lengths: list[int], into: "NDArray[np.uint8]"
    ) -> Callable[[], None]:
        def fetch() -> None:
            found = self.store.get_ranges(path, starts, lengths, into.data)
            self._count(len(found), sum(found))
            for start, length, one in zip(starts, lengths, found, strict=True):
                if one != length:
                    raise ObjectDamagedError(
                        f"expected {length:,} bytes of {path} in {self.url} from {start:,} on, got "
                        f"{one:,}: the object was truncated, or its store answered with less"
                    )

        def fetch_repeatedly() -> None:
            try:
                self._repeated(fetch)
            except StoreUnavailableError as error:
                self._refuse_truncated(path, starts[-1] + lengths[-1], error)
                raise

        return fetch_repeatedly

    def _refuse_truncated(self, path: str, needed: int, error: StoreUnavailableError) -> None:
        """Many stores answer with an error where a range begins behind the end."""
        try:
            size = self.store.size(path)
        except StoreUnavailableError:
            return
        if size < needed:
            raise ObjectDamagedError(
                f"expected at least {needed:,} bytes in {path} in {self.url}, it has {size:,}: "
                "it was truncated"
            ) from error

    def _run(self, calls: list[Callable[[], None]]) -> None:
        if len(calls) <= 1:
            for call in calls:
                call()
            return
        with self._counting:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, "livegnn-objects")
        under_way = [self._pool.submit(call) for call in calls]
        failures = [one.exception() for one in under_way]
        for failure in failures:
            if failure is not None:
                raise failure

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """The objects below a folder whose paths come after `after`, in the order of their paths."""
        found = self._repeated(lambda: self.store.list(prefix, after))
        self._count(1, 0)
        return found

    def size(self, path: str) -> int:
        """The bytes of an object. Raises `ObjectMissingError`."""
        return self._repeated(lambda: self.store.size(path))

    # -- writing
    # ------------------------------------------------------------------------------------------------

    def put_new(self, path: str, data: Buffer) -> None:
        """Writes an object that nobody has written. Raises `ObjectExistsError` if it exists: another writer
        was first, and its object stays. After an attempt whose answer was lost, the object may be this one.
        """
        attempts = 0

        def put() -> None:
            nonlocal attempts
            attempts += 1
            try:
                self.store.put(path, data, create=True)
            except ObjectExistsError:
                if attempts == 1 or bytes(self.store.get(path)) != bytes(data):
                    raise

        self._repeated(put)
        self._count(1, 0)

    def upload(self, path: str) -> Upload:
        """Begins a large object, which is written in parts. Its name must be one that nobody else uses."""
        return self._repeated(lambda: self.store.upload(path))

    def delete(self, path: str) -> None:
        """Removes an object, if it is there."""
        self._repeated(lambda: self.store.delete(path))

    def close(self) -> None:
        """Ends the threads. Reading starts them again."""
        with self._counting:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    # -- attempts
    # -----------------------------------------------------------------------------------------------

    def _repeated(self, call: Callable[[], T]) -> T:
        """What `call` returns; it is called again, with longer and longer pauses, while the store is
        unavailable or answers with too little.
        """
        deadline = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                return call()
            except ObjectDamagedError:
                if pause > 4 * _FIRST_PAUSE:
                    raise
            except StoreUnavailableError as error:
                if time.monotonic() + pause > deadline:
                    raise StoreUnavailableError(
                        f"{error}; asked again for {self._patience:g} seconds: see whether the store can be "
                        "reached, and try again"
                    ) from error
            self._sleep(pause * (0.5 + 0.5 * _jitter.random()))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _count(self, requests: int, read: int) -> None:
        with self._counting:
            self.requests += requests
            self.bytes_read += read


def _join(starts: "IntArray", lengths: "IntArray", gap: int) -> "tuple[IntArray, IntArray, IntArray | None]":
    """The requests for these ranges, and where each range begins in their bytes; None for the places if the
    bytes are the answer as they are.
    """
    if not len(starts):
        return starts, lengths, None
    order = np.argsort(starts, kind="stable")
    begins = starts[order]
    ends = np.maximum.accumulate(begins + lengths[order])
    fresh = np.ones(len(begins), dtype=np.bool_)
    fresh[1:] = begins[1:] > ends[:-1] + gap
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(begins)) - 1
    froms, sizes = begins[first], ends[last] - begins[first]
    before = np.cumsum(sizes) - sizes
    group = np.cumsum(fresh) - 1
    places = np.empty(len(starts), dtype=np.int64)
    places[order] = before[group] + begins - froms[group]
    parts = np.maximum(-(-sizes // PART), 1)
    if (parts > 1).any():
        which = np.repeat(np.arange(len(parts)), parts)
        number = np.arange(len(which)) - np.repeat(np.cumsum(parts) - parts, parts)
        whole = sizes
        froms = froms[which] + number * PART
        sizes = np.minimum(whole[which] - number * PART, PART)
    kept = sizes > 0
    as_they_are = places[0] == 0 and bool((places[1:] == places[:-1] + lengths[:-1]).all())
    return froms[kept], sizes[kept], None if as_they_are and int(lengths.sum()) == sizes.sum() else places


__all__ = ["GAP", "ObjectInfo", "Objects", "Ranges", "SnapshotError", "Upload", "as_objects", "open_objects"]
