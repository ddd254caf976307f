"""Objects read by ranges, joined and in parallel, with attempts until patience ends; and written once.

Concurrent reads are bounded, in requests and in bytes. Thread safety: any thread may call. `requests` and
`bytes_read` count requests to the store and bytes from it, attempts included; `retries` those that were sent
again.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_int, check_positive
from livegnn.errors import (
    InputError,
    ObjectDamagedError,
    ObjectExistsError,
    StoreUnavailableError,
)
from livegnn.snapshots.attempts import Attempts, StoreHealth
from livegnn.snapshots.joined_ranges import JoinedRanges, join
from livegnn.snapshots.stores import Buffer, Fetched, ObjectInfo, Store, Upload, open_store
from livegnn.wording import quoted, show

if TYPE_CHECKING:
    from jaxtyping import Int64, UInt8
    from numpy.typing import NDArray

    from livegnn.types import IntArray

    _Bytes: TypeAlias = NDArray[np.uint8]

T = TypeVar("T")

GAP = 4 << 10
"""Bytes between two ranges of one request, at most, in a folder or in memory: a request waits for nothing."""

FAR_GAP = 64 << 10
"""The same of a store in a network: its latency, 20 ms, times the bandwidth of each of `AT_ONCE` connections
that share 250 MB/s."""

AT_ONCE = 80
"""Requests under way."""

BYTES_AT_ONCE = 32 << 20
"""Bytes under way, which lie in buffers of the store's client and in those of this library: three times what
a connection of 500 MB/s with a latency of 20 ms has under way."""

PARTS_AT_ONCE = 64
"""The parts that the bytes under way are divided into: a longer range is several requests."""

_THREADS = 8
_CONNECTION = 512 << 10  # bytes that the store's client takes for each, at most
_REREADS = 3  # of an answer that is shorter than its range
_NEAR = ("file://", "memory://")
_LONGEST_TIMEOUT = 86_400.0  # seconds
_LARGEST_GAP = 1 << 40


class Ranges(NamedTuple):
    """Byte ranges of one object, in any order."""

    path: str
    starts: "Int64[IntArray, 'ranges']"
    lengths: "Int64[IntArray, 'ranges']"


def open_objects(
    url: str, *, patience: float = 30.0, timeout: float = 10.0, gap: int | None = None, **options: str
) -> "Objects":
    """The objects of a store: `s3://`, `gs://`, `az://`, `file://`, `memory://` or the path of a folder.

    patience: seconds without any answer of the store until an operation raises `StoreUnavailableError`.
    timeout: seconds for one request, and never more than `patience`: a network that swallows packets would
    make one attempt as long as the other is short. gap: bytes between two ranges that one request reads
    along, also as `?gap=BYTES` after a URL; by default `FAR_GAP`, and `GAP` of a folder or of memory.
    options: as in `open_store`. Raises `InputError` for a wrong URL or option.
    """
    check_positive(patience, "patience")
    timeout = min(check_positive(timeout, "timeout"), patience, _LONGEST_TIMEOUT)
    url, gap_of_url = split_gap(url)
    gap = gap_of_url if gap is None else checked_gap(gap)
    store = open_store(url, timeout=timeout, **options)
    if gap is None:
        gap = GAP if store.url.startswith(_NEAR) else FAR_GAP
    return Objects(store, patience=patience, gap=gap)


def split_gap(url: str) -> tuple[str, int | None]:
    """A URL, and the gap after it, if there is one: `s3://BUCKET/PREFIX?gap=BYTES`. Raises `InputError` for
    other parameters."""
    if not isinstance(url, str) or "://" not in url or "?" not in url:
        return url, None
    url, _, query = url.partition("?")
    name, _, value = query.partition("=")
    if name != "gap" or not (value.isascii() and value.isdigit()):
        raise InputError(
            f"the URL of a store may end with ?gap=BYTES, and with no other parameter, got ?{quoted(query)}"
        )
    return url, checked_gap(int(value))


def with_gap(url: str, gap: int) -> str:
    """The URL of the same store with this gap, of which `open_objects` takes it. Raises `InputError`."""
    url, _ = split_gap(url)
    if "://" not in url:
        url = Path(url).absolute().as_uri()
    return f"{url}?gap={checked_gap(gap)}"


def checked_gap(gap: object) -> int:
    """`gap`, if it is one. Raises `InputError`."""
    return check_int(gap, "gap", 0, _LARGEST_GAP)


def as_objects(where: object) -> "Objects":
    """`where`, if it is `Objects`; those of a store, if it is the URL. Raises `InputError`."""
    if isinstance(where, Objects):
        return where
    if isinstance(where, str):
        return open_objects(where)
    raise InputError(
        "a store must be given by its URL, the path of a folder as text, or what open_objects returned, got "
        f"{show(where)}"
    )


class Objects:
    """store: where they lie. patience, gap: as in `open_objects`. at_once, bytes_at_once: as `AT_ONCE` and
    `BYTES_AT_ONCE`. sleep: how it waits between two attempts.
    """

    def __init__(
        self,
        store: Store,
        *,
        patience: float = 30.0,
        gap: int = GAP,
        at_once: int = AT_ONCE,
        bytes_at_once: int = BYTES_AT_ONCE,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store = store
        self.requests = self.retries = 0
        self.bytes_read = 0
        self._bytes_at_once = bytes_at_once
        self._patience = patience
        self._gap = gap
        self._at_once = at_once
        self._sleep = sleep
        self._health = StoreHealth()
        self._pool: ThreadPoolExecutor | None = None
        self.confined = False
        """Whether memory is limited: a thread cannot reserve memory that others may allocate."""
        self._reserved = 0
        self._counting = threading.Lock()

    @property
    def url(self) -> str:
        """The address of the objects, for messages."""
        return self.store.url

    def confine(self, size: int) -> None:
        """From now on, reading takes at most this number of bytes beside its result; fewer requests are under
        way at once. A lack of memory is a `MemoryError` before a request begins: the store's client would end
        the process."""
        self.confined = True
        self._at_once = max(min(self._at_once, size // (2 * _CONNECTION)), _THREADS)
        self._bytes_at_once = max(min(self._bytes_at_once, size // 2), PARTS_AT_ONCE)

    @contextmanager
    def _allocating(
        self, asked: Sequence[Ranges], joined: Sequence[JoinedRanges]
    ) -> "Iterator[list[_Bytes]]":
        """Arrays for the requested bytes. While this is open, there is memory for the other needs of reading
        and for a copy of the bytes."""
        sizes = [int(ranges.lengths.sum()) for ranges in asked]
        if not self.confined:
            yield [np.empty(size, np.uint8) for size in sizes]
            return
        requests = min(sum(len(ranges.starts) for ranges in joined), self._at_once)
        read = min(sum(int(ranges.lengths.sum()) for ranges in joined), self._bytes_at_once)
        working = _CONNECTION * requests + read
        with self._counting:
            np.empty(self._reserved + working + 2 * sum(sizes), np.uint8)
            buffers = [np.empty(size, np.uint8) for size in sizes]
            self._reserved += working
        try:
            yield buffers
        finally:
            with self._counting:
                self._reserved -= working

    # -- reading

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
        """The bytes of the ranges of each, one after the other, in the given order; all in parallel.

        Raises `MemoryError`, after `confine` before any request is sent; `ObjectMissingError`; and
        `ObjectDamagedError` if an object ends before a range does.
        """
        # Each thread has eight parts: a call has requests of two together, the last of them may be as long,
        # and all of it lies in the store's client, too.
        part = max(self._bytes_at_once // PARTS_AT_ONCE, 1)
        together = max(self._at_once // _THREADS, 1)
        joined = [join(ranges.starts, ranges.lengths, gap=self._gap, part=part) for ranges in asked]
        with self._allocating(asked, joined) as buffers:
            calls: list[Callable[[], None]] = []
            for ranges, requests, out in zip(asked, joined, buffers, strict=True):
                begin = 0
                for end in _ends(requests.lengths, 2 * part):
                    slices = [slice(at, min(at + together, end)) for at in range(begin, end, together)]
                    calls += [partial(self._fetch, ranges.path, requests, here, out) for here in slices]
                    begin = end
            self._run(calls)
        return buffers

    def _fetch(self, path: str, joined: JoinedRanges, here: slice, out: "NDArray[np.uint8]") -> None:
        """Executes some requests, and copies the wanted bytes to their places in `out`."""
        starts, lengths = joined.starts[here].tolist(), joined.lengths[here]
        parts = slice(joined.bounds[here.start], joined.bounds[here.stop])
        places, sizes = joined.places[parts], joined.parts[parts]
        ends = np.cumsum(lengths)
        offsets = joined.offsets[parts] + np.repeat(
            ends - lengths, np.diff(joined.bounds[here.start : here.stop + 1])
        )
        straight = bool((places - offsets == places[0]).all()) and int(sizes.sum()) == int(ends[-1])
        into = out[places[0] : places[0] + ends[-1]] if straight else np.empty(int(ends[-1]), np.uint8)
        bounds = [0, *ends.tolist()]
        self._fill(path, starts, [into.data[a:b] for a, b in pairwise(bounds)])
        if not straight:
            _core.copy_ranges(into, offsets, sizes, out, places)

    def _fill(self, path: str, starts: Sequence[int], into: Sequence[memoryview]) -> None:
        """Fills each of `into` with the bytes from its start on; failed reads are repeated."""
        attempts = Attempts(self._health, self._patience, parts=len(starts), sleep=self._sleep)
        short = 0
        while True:
            answers = self._ask(path, starts, into)
            failed = [i for i, answer in enumerate(answers) if answer != len(into[i])]
            if not failed:
                return
            starts, into = [starts[i] for i in failed], [into[i] for i in failed]
            errors = [answer for i in failed if not isinstance(answer := answers[i], int)]
            if not errors:
                short += 1
                said = (
                    f"expected {len(into[0]):,} bytes of {path} in {self.url} from {starts[0]:,} on, got "
                    f"{answers[failed[0]]:,}: the object was truncated, or its store answers wrongly"
                )
                if short > _REREADS:
                    raise ObjectDamagedError(said)
                errors = [StoreUnavailableError(said)]
            try:
                attempts.wait(errors[0], len(failed))
            except StoreUnavailableError as error:
                self._refuse_truncated(path, starts[-1] + len(into[-1]), error)
                raise
            self._count(0, 0, retries=len(failed))

    def _ask(self, path: str, starts: Sequence[int], into: Sequence[memoryview]) -> list[Fetched]:
        """The answer of the store for each range."""
        try:
            answers = self.store.get_ranges(path, starts, into)
        except StoreUnavailableError as error:
            answers = [error] * len(starts)
        self._count(len(answers), sum(answer for answer in answers if isinstance(answer, int)))
        if any(answer == len(buffer) for answer, buffer in zip(answers, into, strict=True)):
            self._health.note_answer()
        return answers

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
                self._pool = ThreadPoolExecutor(_THREADS, "livegnn-objects")
        under_way = [self._pool.submit(call) for call in calls]
        failures = [future.exception() for future in under_way]
        for failure in failures:
            if failure is not None:
                raise failure

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """The objects below a folder whose paths are after `after`, in the order of their paths."""
        listed = self._repeated(lambda: self.store.list(prefix, after))
        self._count(1, 0)
        return listed

    def size(self, path: str) -> int:
        """The bytes of an object. Raises `ObjectMissingError`."""
        return self._repeated(lambda: self.store.size(path))

    # -- writing

    def put_new(self, path: str, data: Buffer) -> None:
        """Writes a new object. Raises `ObjectExistsError` if it exists: another writer was first, and its
        object stays. After an attempt whose answer was lost, the object may be this one."""
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
        """Begins a large object, which is written in parts. Its name must be unused."""
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

    def _repeated(self, call: Callable[[], T]) -> T:
        """The result of `call`; it is called again, with longer and longer pauses, while the store is
        unavailable."""
        attempts = Attempts(self._health, self._patience, sleep=self._sleep)
        while True:
            try:
                result = call()
            except StoreUnavailableError as error:
                attempts.wait(error)
                self._count(0, 0, retries=1)
            else:
                self._health.note_answer()
                return result

    def _count(self, requests: int, read: int, *, retries: int = 0) -> None:
        with self._counting:
            self.requests += requests
            self.retries += retries
            self.bytes_read += read


def _ends(lengths: "Int64[IntArray, 'requests']", most: int) -> list[int]:
    """The ends of requests of about this number of bytes together."""
    which = np.cumsum(lengths) // most
    ends: list[int] = (np.flatnonzero(np.diff(which, append=-1)) + 1).tolist()
    return ends
