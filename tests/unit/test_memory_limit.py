"""What memory a process may have, how much is left, and that no cache takes more than half of it."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from livegnn import Graph
from livegnn.errors import InputError
from livegnn.functions.function import Function, confine, limit
from livegnn.functions.settings import MachineSettings
from livegnn.functions.threads import ThreadHost
from livegnn.remote import memory_limit
from livegnn.remote.memory_limit import (
    LEAST_ROOM,
    MARGIN,
    _limit_of_cgroup,
    check_memory,
    memory_left,
    memory_of_machine,
)
from livegnn.remote.predictor import SnapshotPredictor
from livegnn.remote.shared_memory import MemoryFile, SharedMemory
from livegnn.snapshots.snapshot_source import SnapshotSource
from livegnn.snapshots.writer import write_snapshot
from streams import WIDTH, make_model

MIB = 1 << 20


def test_what_is_left_is_told_or_refused() -> None:
    room = memory_left(1 << 40)
    with pytest.raises(InputError, match="memory must be at least") as refused:
        check_memory(MIB, LEAST_ROOM)
    least = int(str(refused.value).split("at least ")[1].split()[0])
    assert check_memory(least * MIB, LEAST_ROOM) >= LEAST_ROOM
    resident = (1 << 40) - room - MARGIN
    assert 0 <= least * MIB - (resident + MARGIN + LEAST_ROOM) < 4 * MIB
    assert check_memory(least * MIB + 3 * LEAST_ROOM, 4 * LEAST_ROOM) >= 4 * LEAST_ROOM
    with pytest.raises(InputError, match=f"at least {(least * MIB + 3 * LEAST_ROOM) // MIB} MiB"):
        check_memory(least * MIB, 4 * LEAST_ROOM)


def test_a_limited_process_gets_a_memory_error_and_lives_on() -> None:
    code = """
import json
from livegnn.remote.memory_limit import limit_memory, prepare
prepare()
import numpy as np
np.ones((64, 64)) @ np.ones((64, 64))
room = limit_memory(200 << 20)
refused = 0
for size in (room + (8 << 20), room // 2, room + (8 << 20), room // 2):
    try:
        np.ones(size, np.uint8)
    except MemoryError:
        refused += 1
status = open("/proc/self/status").read()
print(json.dumps([room, refused, 1024 * int(status.partition("VmHWM:")[2].split()[0])]))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    room, refused, peak = json.loads(found.stdout)
    assert 100 * MIB < room < 200 * MIB
    assert refused == 2
    assert room // 2 < peak <= 200 * MIB


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="memory of workers can be limited on Linux alone"
)
def test_many_threads_take_little_memory() -> None:
    """They have small stacks, share one arena of the allocator, and it gives back what is freed."""
    code = """
import ctypes, json, sys, threading
from livegnn.remote.memory_limit import prepare
prepare()
MIB = 1 << 20
def status(name):
    return 1024 * int(open("/proc/self/status").read().partition(name + ":")[2].split()[0])
before = status("VmData")
wait, pins = threading.Barrier(33), []
def run():
    freed = bytearray(b"x") * 2_100_000  # an allocator that is not told raises its threshold above this
    del freed
    held = bytearray(b"x") * 2_000_000  # written, so resident
    pins.append(bytearray(b"x") * 100_000)  # above it on the heap, if it lies there
    wait.wait()
    wait.wait()
threads = [threading.Thread(target=run) for _ in range(32)]
for thread in threads:
    thread.start()
wait.wait()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
full, data = status("VmRSS"), status("VmData") - before
wait.wait()
for thread in threads:
    thread.join()
print(json.dumps([open(sys.argv[1]).read().count("<heap nr"), full - status("VmRSS"), data]))
"""
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    with tempfile.NamedTemporaryFile() as file:
        command = [sys.executable, "-c", code, file.name]
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    arenas, returned, data = json.loads(found.stdout)
    assert arenas == 1
    assert returned > 50 * MIB
    assert data < (64 + 32) * MIB


@pytest.mark.parametrize(
    ("files", "own", "limit"),
    [
        ({"memory.max": "max"}, "0::/", None),
        ({"a/memory.max": "1000", "memory.max": "max"}, "0::/a/b", 1000),
        ({"a/b/memory.max": "3000", "a/memory.max": "2000"}, "0::/a/b", 2000),
        ({"a/b/memory.max": "3000"}, "0::/a/b", 3000),
        ({"memory/memory.limit_in_bytes": "7000"}, "4:memory:/docker/x\n0::/", 7000),
        ({"memory/x/memory.limit_in_bytes": "5000"}, "9:cpu,memory:/x", 5000),
        ({"memory/x/memory.limit_in_bytes": "5000"}, "9:cpu:/x", None),
        ({}, "", None),
    ],
)
def test_the_limit_of_a_cgroup_is_found(
    tmp_path: Path, files: dict[str, str], own: str, limit: int | None
) -> None:
    """Of version 2 and of version 1: that of the group or of one around it, whichever is less."""
    root = tmp_path / "cgroup"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n", encoding="ascii")
    (tmp_path / "own").write_text(f"{own}\n", encoding="ascii")
    assert _limit_of_cgroup(root, tmp_path / "own") == limit


@pytest.mark.parametrize("limit", [None, 1 << 20, 1 << 60])
def test_a_process_may_have_what_its_cgroup_and_its_machine_let_it(
    monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setattr(memory_limit, "_limit_of_cgroup", lambda: limit)
    assert memory_of_machine() == min(machine, limit or machine)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("room", [None, 40_000])
def test_a_cache_takes_no_more_than_it_may(tmp_path: Path, room: int | None, shared: bool) -> None:
    """Half of the machine without a limit, divided among workers; three quarters of the room within one."""
    random = np.random.default_rng(0)
    graph = Graph.from_edges(
        *random.integers(0, 500, (2, 2000)),
        x=random.standard_normal((500, WIDTH), dtype=np.float32),
        weight=np.ones(2000, np.float32),
        parallel="last",
    )
    write_snapshot(graph, str(tmp_path))
    predictor = SnapshotPredictor(SnapshotSource(str(tmp_path)), make_model())
    file = MemoryFile(1 << 24)
    if shared:
        predictor.share(SharedMemory(file.fd))
    machine = memory_of_machine()
    assert machine is not None
    assert predictor._room_of_cache(None) == machine // 2
    confine(predictor, Function("a:b", workers=4), room)
    most = machine // 2 // 4 if room is None else 30_000
    assert predictor._room_of_cache(None) == most
    predictor._cache_limit = min(most, 30_000)
    held = []
    for id in range(60):
        predictor.predict([id], memory_limit=None)
        held.append(predictor.describe()["cache_bytes"])
    assert 15_000 < max(held) <= 30_000
    file.close()


@pytest.mark.parametrize("way", ["processes", "threads", "lambda"])
def test_caches_of_all_workers_take_half_of_the_machine(tmp_path: Path, way: str) -> None:
    """As each kind of worker opens its predictor where there is no limit."""
    graph = Graph.from_edges([0, 1, 2], [1, 2, 0], x=np.eye(3, WIDTH, dtype=np.float32))
    write_snapshot(graph, str(tmp_path / "snapshot"))
    model = tmp_path / "model.lgnn"
    make_model().save(model)
    settings = MachineSettings(str(tmp_path / "snapshot"), str(model), workers=3, sampling_workers=2)
    function = settings._function("infer")
    if way == "lambda":
        code = "from livegnn.functions.lambda_handler import _predictor as p; print(p._room_of_cache(None))"
        variables = {"LIVEGNN_SNAPSHOT": settings.snapshot, "LIVEGNN_MODEL": settings.model}
        command, environment = [sys.executable, "-c", code], {**os.environ, **variables}
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        most = int(found.stdout)
    else:
        if way == "threads":
            predictor, _, room = ThreadHost(function)._open()
        else:
            predictor = function.open()
            room = limit(predictor, function)
        assert room is None
        assert isinstance(predictor, SnapshotPredictor)
        most = predictor._room_of_cache(None)
    machine = memory_of_machine()
    assert machine is not None
    assert most == machine // 2 // (1 if way == "lambda" else 5)
