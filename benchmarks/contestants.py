"""The native half of store.py: LiveGNN's store and three peers behind one face, built when it is missing.

`load()` builds what lies in native/ with the CMake project of the checkout (about half a minute, once) and
returns the module. Needed: CMake, Ninja and nanobind, all in the package's extra `bench`, and a compiler.

What the peers are and how they work is said at the top of their headers. All of them hold directed edges,
update an edge that is there already, and can be sampled, by weight too, after every batch.

- `LiveStore`: LiveGNN's `GraphStore`, out-lists alone, unless `in_lists`. Its threads share a batch.
- `CsrPeer`: rows of a CSR with cumulative weights, rebuilt by every batch.
- `HashMapPeer`: a hash map from node to two vectors, ids and cumulative weights.
- `BlockStorePeer`: the store that the paper calls PlatoGL: keys to blocks of up to 256 neighbours with
  CSTables, and an index of blocks.

A peer's threads have a part of the sources each, in a structure of their own.
"""

from __future__ import annotations

import fcntl
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "store-bench"

UInt32 = NDArray[np.uint32]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


class Contestant(Protocol):
    """One graph of directed edges. `weights` None: all are 1; `removed` (uint8) None: none is."""

    @property
    def num_edges(self) -> int: ...

    def bytes(self) -> int:
        """All memory, that of its batches included."""

    def bytes_at_rest(self) -> int:
        """Without what only the next batch needs."""

    def check(self) -> None: ...

    def apply(
        self,
        sources: UInt32,
        targets: UInt32,
        weights: Float32 | None,
        removed: NDArray[np.uint8] | None,
        batch_size: int,
        threads: int = ...,
    ) -> Float64:
        """Seconds of each batch. No edge occurs twice in a batch.

        `threads`: by default those that it was made with.
        """

    def neighbors(self, node: int) -> tuple[UInt32, Float32]:
        """Ids and weights, in no particular order."""

    def draw(self, seeds: UInt32, k: int, by_weight: bool, seed: int) -> UInt32:
        """[seeds * k] neighbours with replacement; 2^32 - 1 where a seed has none."""

    def draw_beside_batches(
        self,
        seeds: UInt32,
        call: int,
        k: int,
        by_weight: bool,
        seed: int,
        sources: UInt32,
        targets: UInt32,
        weights: Float32 | None,
        removed: NDArray[np.uint8] | None,
        batch_size: int,
        interval: float,
        duration: float,
    ) -> tuple[float, int, int, Float64]:
        """One thread draws for `call` seeds at a time, another applies a batch every `interval` seconds.

        Returns the seconds that passed, draws, changes applied, and the seconds of each call.
        """

    def subgraph(self, seeds: UInt32, fan_outs: UInt32, seed: int) -> tuple[UInt32, UInt32, UInt32, float]:
        """By weight, without replacement: node, row, col as PyG has them, and the seconds that it took."""


class SumTable(Protocol):
    """Weights to draw from: `RunTable` (FSTable as LiveGNN has it), `PaperTable`, `CumulativeTable`."""

    def assign(self, weights: Float32) -> None: ...
    def append(self, weight: float) -> None: ...
    def update(self, i: int, weight: float) -> None: ...
    def remove(self, i: int) -> None:
        """The last takes the place of i."""

    def total(self) -> float: ...
    def find(self, at: float) -> int:
        """Where the running sum first exceeds `at`, which lies in [0, total)."""

    @staticmethod
    def nanoseconds(n: int, rounds: int, seed: int) -> tuple[float, float, float, float]:
        """Of one append, update, removal and draw in a table of n."""


class MakePeer(Protocol):
    def __call__(self, nodes: int, weighted: bool, threads: int) -> Contestant: ...


class MakeLiveStore(Protocol):
    def __call__(
        self,
        nodes: int,
        weighted: bool,
        threads: int,
        capacity: int = ...,
        slack: int = ...,
        compress: bool = ...,
        in_lists: bool = ...,
    ) -> Contestant: ...


class StoreBench(Protocol):
    """The module `_store_bench`."""

    LiveStore: MakeLiveStore
    CsrPeer: MakePeer
    HashMapPeer: MakePeer
    BlockStorePeer: MakePeer
    RunTable: type[SumTable]
    PaperTable: type[SumTable]
    CumulativeTable: type[SumTable]

    def trim(self) -> None:
        """Give free memory back to the system."""

    def memory_rates(self, megabytes: int) -> tuple[float, float]:
        """Cache lines read at random places, and bytes copied, per second by one core."""

    def presampling_rates(
        self,
        nodes: int,
        degree: int,
        fan_outs: list[int],
        keep_edges: bool,
        into_cache: bool,
        batch: int,
        seed: int,
    ) -> tuple[int, int, int, float, float, int, int]:
        """Edges, records and bytes of messages; seconds of sampling worker and cache; their bytes."""


def build(directory: Path = BUILD) -> Path:
    """Bring the module up to date; returns its file."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two tests may want it at once
        if not (directory / "build.ninja").exists():
            _run(
                *(_tool("cmake"), "-S", str(ROOT), "-B", str(directory), "-G", "Ninja"),
                *("-DLIVEGNN_BENCHMARKS=ON", "-DCMAKE_BUILD_TYPE=Release"),
                *(f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}"),
            )
        _run(_tool("ninja"), "-C", str(directory), "_store_bench")
    (module,) = directory.glob("_store_bench*.so")
    return module


def load() -> StoreBench:
    """The module, built first if it is missing or older than its sources."""
    if "_store_bench" not in sys.modules:
        spec = importlib.util.spec_from_file_location("_store_bench", build())
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules["_store_bench"] = module
    return cast(StoreBench, sys.modules["_store_bench"])


def _tool(name: str) -> str:
    """Beside this Python, or on the path."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise SystemExit(f"the peers of this benchmark are built with {name}: pip install '.[bench]'")
    return found


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    print(build())
