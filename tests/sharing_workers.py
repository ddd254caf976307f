"""Processes that share a cache of features, read what others wrote, and are killed."""

import ctypes
import json
import mmap
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

from livegnn.remote.feature_cache import FeatureCache
from livegnn.remote.shared_memory import HEAD, MemoryFile, SharedMemory

WIDTHS, NOTES = {"user": 16, "item": 5}, {"user": 2}
ROWS, ROOM = 3000, 60_000


def features_of(rows: np.ndarray, width: int, version: int) -> np.ndarray:
    return (rows[:, None] * 10 + np.arange(width) + 100_000 * version).astype(np.float32)


def notes_of(rows: np.ndarray, noted: int, version: int) -> np.ndarray:
    return (rows[:, None] + np.arange(noted) + 100 * version).astype(np.uint8)


def open_cache(fd: int) -> tuple[SharedMemory, FeatureCache]:
    memory = SharedMemory(fd)
    return memory, FeatureCache(WIDTHS, NOTES, memory, "tests")


class Sharer:
    """A worker that inserts, evicts and reads at random, and notes what it has read that is wrong."""

    def __init__(self, fd: int, seed: int, version: int = 0) -> None:
        self.memory, self.cache = open_cache(fd)
        self.random = np.random.default_rng(seed)
        self.version = version
        self.cache.show(f"snapshot/{version}")
        self.hits = 0
        self.wrong: list[str] = []

    def step(self) -> None:
        name = "user" if self.random.random() < 0.6 else "item"
        rows = self.random.permutation(ROWS)[: self.random.integers(1, 400)]
        out = np.full((len(rows), WIDTHS[name]), np.nan, np.float32)
        found = self.cache.read(name, rows, out)
        expected = features_of(rows, WIDTHS[name], self.version)
        if not (out[found] == expected[found]).all():
            self.wrong.append(f"features of {name}")
        there, notes = self.cache.read_notes(name, rows)
        if not (notes[there] == notes_of(rows, NOTES.get(name, 0), self.version)[there]).all():
            self.wrong.append(f"notes of {name}")
        self.hits += int(found.sum())
        room = int(self.random.integers(0, ROOM))
        if self.random.random() < 0.3:
            self.cache.evict(room, {name: rows})
        self.cache.insert(
            name,
            rows,
            expected,
            np.arange(len(rows)),
            rows % 7,
            notes_of(rows, NOTES.get(name, 0), self.version),
            room=room,
        )


def die_while_rows_move(memory: SharedMemory, cache: FeatureCache) -> None:
    """The index says already where rows will be, and they are not there yet: the features of the first type
    cannot be written any more."""
    rows = np.arange(ROWS)
    for name, width in WIDTHS.items():
        given = features_of(rows, width, 0), rows, rows % 7, notes_of(rows, NOTES.get(name, 0), 0)
        cache.insert(name, rows, *given, room=10**9)
    begin = memory.map.find(features_of(rows[:9], WIDTHS["user"], 0).tobytes(), HEAD)
    assert begin > 0
    assert begin % mmap.PAGESIZE == 0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory.map, begin))
    size = ROWS * WIDTHS["user"] * 4 // mmap.PAGESIZE * mmap.PAGESIZE
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.PROT_READ) == 0
    cache.evict(cache.bytes - ROOM, {})


class Process:
    """A `Sharer` in a process of its own: `steps` makes it go on, and says what it has found."""

    def __init__(self, file: MemoryFile, seed: int, version: int = 0) -> None:
        command = [sys.executable, __file__, str(file.fd), str(seed), str(version)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[file.fd]
        )
        self._read()

    def begin(self, steps: int) -> None:
        """It goes on by itself; read what it says with `end`."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, object]:
        return self._read()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _read(self) -> dict[str, object]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "a process has ended"
        found: dict[str, object] = json.loads(line)
        return found


def _main(fd: int, seed: int, version: int) -> None:
    sharer = Sharer(fd, seed, version)
    print("{}", flush=True)
    for line in sys.stdin:
        if int(line) < 0:
            die_while_rows_move(sharer.memory, sharer.cache)
        for _ in range(int(line)):
            sharer.step()
        print(json.dumps({"hits": sharer.hits, "wrong": sharer.wrong}), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    _main(*map(int, sys.argv[1:]))
