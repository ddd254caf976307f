"""A store that fails on order, for tests: objects that are missing, truncated or altered, and no answers.

Thread safety: any thread may call.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from livegnn.errors import ObjectMissingError, StoreUnavailableError
from livegnn.snapshots.stores import Buffer, Fetched, ObjectInfo, Store, Upload

Fault: TypeAlias = Literal["missing", "truncated", "altered", "error", "silent"]
FAULTS: tuple[Fault, ...] = ("missing", "truncated", "altered", "error", "silent")
"""What can go wrong: an object that is not there; an answer that ends early, or has one other bit; an answer
that says that something went wrong; none at all, until the client gives up.
"""

Operation: TypeAlias = Literal["get", "put", "put unheard", "upload", "list", "size", "delete"]


class FaultyStore:
    """fault: says what goes wrong with an operation on a path, if anything. It is asked before "put", and
    again as "put unheard" after the object was written: an error then means that the answer was lost.
    """

    def __init__(self, store: Store, fault: Callable[[Operation, str], Fault | None]) -> None:
        self.store = store
        self.fault = fault
        self.struck = 0
        """How often something went wrong."""
        self._counting = threading.Lock()

    @property
    def url(self) -> str:
        return self.store.url

    def get(self, path: str) -> Buffer:
        fault = self._strike("get", path)
        return _spoiled(self.store.get(path), fault)

    def get_ranges(self, path: str, starts: Sequence[int], into: Sequence[memoryview]) -> list[Fetched]:
        fault = self._strike("get", path)
        found = self.store.get_ranges(path, starts, into)
        one = len(found) // 2  # of many, and not always the first
        if isinstance(size := found[one], int):
            spoiled = _spoiled(bytes(into[one][:size]), fault)
            into[one][: len(spoiled)] = spoiled
            found[one] = len(spoiled)
        return found

    def put(self, path: str, data: Buffer, *, create: bool) -> None:
        self._strike("put", path)
        self.store.put(path, data, create=create)
        self._strike("put unheard", path)

    def upload(self, path: str) -> Upload:
        self._strike("upload", path)
        return self.store.upload(path)

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        self._strike("list", prefix)
        return self.store.list(prefix, after)

    def size(self, path: str) -> int:
        self._strike("size", path)
        return self.store.size(path)

    def delete(self, path: str) -> None:
        self._strike("delete", path)
        self.store.delete(path)

    def _strike(self, operation: Operation, path: str) -> Fault | None:
        fault = self.fault(operation, path)
        if fault is not None:
            with self._counting:
                self.struck += 1
        if fault == "missing":
            raise ObjectMissingError(f"expected the object {path} in {self.url}, found none (on order)")
        if fault in ("error", "silent"):
            said = "an internal error" if fault == "error" else "nothing until the time was over"
            raise StoreUnavailableError(
                f"the store does not answer for {path} in {self.url}: {said} (on order)"
            )
        return fault


def _spoiled(data: Buffer, fault: Fault | None) -> Buffer:
    if fault is None or not len(data):
        return data
    spoiled = bytearray(data)
    if fault == "truncated":
        return spoiled[: len(spoiled) // 2]
    spoiled[len(spoiled) // 2] ^= 0x10
    return spoiled
