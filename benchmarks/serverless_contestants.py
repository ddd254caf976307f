"""What each contestant of `serverless.py` runs in a worker: the same predictor, over the same throttled
store.

A worker process opens it by name (`livegnn function serve --opener serverless_contestants:open_whole`), so
nothing here imports torch.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from livegnn.functions.bodies import Asked
from livegnn.functions.function import Function
from livegnn.functions.messages import pack
from livegnn.functions.worker import FRAME, pack_request, unpack_answer
from livegnn.network.model import Model
from livegnn.remote.memory_model import MemoryModel
from livegnn.remote.predictor import SnapshotPredictor, open_predictor
from livegnn.remote.shared_memory import MemoryFile
from livegnn.snapshots.objects import Objects, Ranges, open_objects
from livegnn.snapshots.snapshot_source import SnapshotSource
from livegnn.snapshots.stores import Buffer, Fetched, ObjectInfo, Upload, open_store
from throttled_store import ThrottledStore

BANDWIDTH, LATENCY = 500e6, 0.002
"""Of the store: bytes a second, of all its readers on a node together, and seconds until a request
answers."""


def open_throttled(url: str) -> Objects:
    return Objects(ThrottledStore(open_store(url), bandwidth=BANDWIDTH, latency=LATENCY))


def open_ours(snapshot_url: str, model_path: str, cache: bool = True) -> SnapshotPredictor:
    """On demand, with features kept in what the limit leaves."""
    memory = MemoryModel.load(f"{model_path}.memory")
    return SnapshotPredictor(
        SnapshotSource(open_throttled(snapshot_url)),
        Model.load(model_path),
        memory_model=memory,
        memory_limit=memory.limit,
        cache=cache,
        refresh_seconds=None,
    )


def open_plain(snapshot_url: str, model_path: str) -> SnapshotPredictor:
    """On demand, without cache."""
    return open_ours(snapshot_url, model_path, cache=False)


def open_whole(snapshot_url: str, model_path: str) -> SnapshotPredictor:
    """All objects are fetched first; requests then read them from memory, and need no cache."""
    return hold(open_throttled(snapshot_url), model_path)


def hold(objects: Objects, model_path: str) -> SnapshotPredictor:
    held = SnapshotSource(Objects(fetch_all(objects)))
    return SnapshotPredictor(held, Model.load(model_path), cache=False, refresh_seconds=None)


def open_uncached(snapshot_url: str, model_path: str) -> SnapshotPredictor:
    """As `open_plain`, over a store that nothing slows down."""
    return open_predictor(snapshot_url, model_path, cache=False)


def open_held(snapshot_url: str, model_path: str) -> SnapshotPredictor:
    """As `open_whole`, over a store that nothing slows down."""
    return hold(open_objects(snapshot_url), model_path)


class HeldStore:
    """Objects in memory, without copies."""

    def __init__(self, held: dict[str, NDArray[np.uint8]], infos: list[ObjectInfo]) -> None:
        self._held, self._infos = {path: memoryview(data) for path, data in held.items()}, infos

    @property
    def url(self) -> str:
        return "memory"

    @property
    def bytes(self) -> int:
        return sum(map(len, self._held.values()))

    def get(self, path: str) -> Buffer:
        return self._held[path]

    def get_ranges(self, path: str, starts: Sequence[int], into: Sequence[memoryview]) -> list[Fetched]:
        data = self._held[path]
        for start, one in zip(starts, into, strict=True):
            one[:] = data[start : start + len(one)]
        return [len(one) for one in into]

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        return [one for one in self._infos if one.path.startswith(prefix) and one.path > after]

    def size(self, path: str) -> int:
        return len(self._held[path])

    def put(self, path: str, data: Buffer, *, create: bool) -> None:
        raise NotImplementedError("a benchmark's workers write nothing")

    def upload(self, path: str) -> Upload:
        raise NotImplementedError("a benchmark's workers write nothing")

    def delete(self, path: str) -> None:
        raise NotImplementedError("a benchmark's workers write nothing")


def fetch_all(objects: Objects) -> HeldStore:
    """All objects of a store, in parallel."""
    infos = objects.list("")
    whole = [Ranges(one.path, np.array([0]), np.array([one.size])) for one in infos]
    found = objects.read(whole)
    return HeldStore({one.path: data for one, data in zip(infos, found, strict=True)}, infos)


@dataclass(frozen=True)
class Start:
    """Of a worker process: seconds until it is ready, and until its first answer after that; bytes resident
    when it is ready, and at the peak of that first request."""

    ready: float
    first: float
    resident: int
    peak: int


def start_worker(opener: str, snapshot: Path, model: Path, node: int) -> Start:
    """Starts a real worker and asks it once. Ours joins the memory of its node, in which nothing is yet."""
    given = {"snapshot_url": str(snapshot), "model_path": str(model)}
    function = Function(f"serverless_contestants:{opener}", given)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    joined = [MemoryFile()] if opener == "open_ours" else []
    began = time.perf_counter()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "livegnn.functions.worker",
            function.to_json(),
            *(str(file.fd) for file in joined),
        ],
        pass_fds=[file.fd for file in joined],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        _read(process)
        ready = time.perf_counter() - began
        resident = _status(process.pid, "VmRSS")
        body = pack(Asked([node]))
        process.stdin.write(pack_request(len(body)) + body)
        process.stdin.flush()
        began = time.perf_counter()
        _read(process)
        first = time.perf_counter() - began
        return Start(ready, first, resident, _status(process.pid, "VmHWM"))
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
        for file in joined:
            file.close()


def own_peak() -> int:
    """Bytes that this process had resident at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _read(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    answer, length = unpack_answer(process.stdout.read(FRAME.size))
    body = process.stdout.read(length)
    if answer.status != 200:
        raise RuntimeError(f"expected a worker to answer with 200, got {answer.status}: {body[:300]!r}")


def _status(pid: int, name: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith(name)))
