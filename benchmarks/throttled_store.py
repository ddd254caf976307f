"""A store as if it were further away: so many bytes a second, so long until each request answers.

For benchmarks, whose ratios then do not depend on the machine's own disk. Thread safety: any thread may call;
all of them share the bandwidth.
"""

import threading
import time
from collections.abc import Sequence

from livegnn.snapshots.stores import Buffer, Fetched, ObjectInfo, Store, Upload


class ThrottledStore:
    """bandwidth: bytes a second, of all requests together. latency: seconds until a request answers."""

    def __init__(self, store: Store, *, bandwidth: float, latency: float) -> None:
        self._store = store
        self._bandwidth = bandwidth
        self._latency = latency
        self._free_at = 0.0
        self._turn = threading.Lock()

    @property
    def url(self) -> str:
        return self._store.url

    def get(self, path: str) -> Buffer:
        began = time.monotonic()
        data = self._store.get(path)
        self._wait(began, len(data))
        return data

    def get_ranges(self, path: str, starts: Sequence[int], into: Sequence[memoryview]) -> list[Fetched]:
        began = time.monotonic()
        found = self._store.get_ranges(path, starts, into)
        self._wait(began, sum(one for one in found if isinstance(one, int)))
        return found

    def put(self, path: str, data: Buffer, *, create: bool) -> None:
        began = time.monotonic()
        self._store.put(path, data, create=create)
        self._wait(began, len(data))

    def upload(self, path: str) -> Upload:
        return self._store.upload(path)

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        began = time.monotonic()
        found = self._store.list(prefix, after)
        self._wait(began, 0)
        return found

    def size(self, path: str) -> int:
        began = time.monotonic()
        size = self._store.size(path)
        self._wait(began, 0)
        return size

    def delete(self, path: str) -> None:
        self._store.delete(path)

    def _wait(self, began: float, size: int) -> None:
        """Until when the answer would have come, had the request begun then."""
        with self._turn:
            self._free_at = max(self._free_at, began) + size / self._bandwidth
            until = max(self._free_at, began) + self._latency
        left = until - time.monotonic()
        if left > 0:
            time.sleep(left)
