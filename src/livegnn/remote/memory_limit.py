"""The memory that a process may have, the free part of it, and a limit that the system enforces.

    RLIMIT_DATA  =  what is mapped for data now  +  room
    room         =  limit - resident now - margin

RLIMIT_DATA counts memory that a process could write, used or not: so threads get small stacks, and the
allocator one arena, before anything is measured. It does not count memory that processes share. The margin is
for memory that was mapped earlier and is used later: stacks, buffers of libraries, pages of code.

Nothing here loads NumPy: `prepare` sets variables that libraries read once, when they are loaded. Thread
safety: functions of the process; call `prepare` and `limit_memory` before there are threads of your own.
"""

import contextlib
import ctypes
import os
import sys
import threading
from pathlib import Path
from typing import Final

from livegnn.errors import InputError

MARGIN: Final = 12 << 20
"""Bytes of a limit that no request may take."""

LEAST_ROOM: Final = 24 << 20
"""Bytes beyond that, with which requests for few nodes of few features are answered."""

VARIABLES: Final = {
    "MALLOC_ARENA_MAX": "1",  # another one reserves 64 MiB
    "OPENBLAS_NUM_THREADS": "1",  # each has a buffer of 32 MiB, and many workers share the cores
    "RUST_MIN_STACK": str(512 << 10),  # of the store's threads, one for each name that is looked up
}
"""Settings that libraries read when they are loaded, for those that are not set yet."""

_STACK = 512 << 10  # bytes; a thread that reads ranges uses a tenth
_MIB = 1 << 20
_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1  # of glibc's mallopt


def prepare() -> None:
    """Lets this process live with little memory: small stacks of threads, one arena of the allocator, which
    returns freed memory to the system."""
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)
    threading.stack_size(_STACK)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        for threshold in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            mallopt(threshold, _MIB)


def limit_memory(most: int, needed: int = LEAST_ROOM) -> int:
    """Lets this process have at most this number of bytes resident; returns how many of them are left for
    requests. Asking the system for more is a MemoryError. needed: how many must be left. Raises InputError
    where too few are, or where the system cannot do it."""
    room = check_memory(most, needed)
    import resource

    data = _status("VmData") + room
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard not in (-1, resource.RLIM_INFINITY):
        data = min(data, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (data, hard))
    return room


def memory_left(most: int) -> int:
    """The number of bytes that this process may still take for requests, if it may have `most` resident;
    below 0 if it has more. Raises InputError where the system cannot say."""
    if not sys.platform.startswith("linux"):
        raise InputError(f"memory of workers can be limited on Linux alone, this is {sys.platform}")
    return most - _status("VmRSS") - MARGIN


def check_memory(most: int, needed: int) -> int:
    """`memory_left`, if it is enough. Raises InputError, which names the least limit that is, if not."""
    room = memory_left(most)
    if room < needed:
        resident = most - room - MARGIN
        least = -(-(resident + MARGIN + needed) // _MIB) + 2  # another start may take a little more
        raise InputError(
            f"memory must be at least {least} MiB ({least * _MIB:,} bytes) for this model and snapshot, of "
            f"which a worker has {resident / _MIB:.0f} MiB before its first request, got {most:,} bytes"
        )
    return room


def memory_of_machine() -> int | None:
    """The bytes that this process may have: its cgroup's limit, or the machine's memory; None where neither
    is known."""
    found = [_limit_of_cgroup()]
    with contextlib.suppress(ValueError, OSError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min((each for each in found if each is not None and each > 0), default=None)


def _limit_of_cgroup(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> int | None:
    """The least limit of the groups that this process is in, of version 1 or 2."""
    limits = []
    for line in _read(own).splitlines():
        _, _, named = line.partition(":")
        kinds, _, path = named.partition(":")
        if kinds and "memory" not in kinds.split(","):
            continue
        folder, name = (root / "memory", "memory.limit_in_bytes") if kinds else (root, "memory.max")
        inside = folder / path.lstrip("/")
        for each in (inside, *inside.parents):
            if (text := _read(each / name).strip()).isdigit():
                limits.append(int(text))
            if each == folder:
                break
    return min(limits, default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _status(name: str) -> int:
    """A figure of this process, in bytes."""
    for line in _read(Path("/proc/self/status")).splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise InputError(f"memory of workers needs {name} in /proc/self/status, this system has none")
