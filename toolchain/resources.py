"""Memory and room on the disk: how much there is, and how much the environments and the builds take.

Python 3.6 must understand this file, as requirements.py, which reads it, says.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

COMPILER_BYTES = 1_100 * 10**6
"""What the largest compiler takes: 1.09 GB for tests under the sanitizers, 24 files compiled as one."""

ENVIRONMENT_BYTES = {"demo": 170 * 10**6, "test": 1900 * 10**6}
"""What `.venv` takes at least once it is installed: with the PyTorch for processors, the smallest one."""

BUILD_BYTES = {"demo": 20 * 10**6, "test": 430 * 10**6}
TEMPORARY_BYTES = {"demo": 60 * 10**6, "test": 500 * 10**6}
"""The packages that pip downloads, before it unpacks them into `.venv`."""


class Memory(NamedTuple):
    available: int
    swap: int = 0
    limited: bool = False  # by a cgroup, rather than by the machine


def read_memory(proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> Optional[Memory]:
    """Bytes that new processes can have; None where the system does not say, as on macOS."""
    try:
        lines = Path(proc, "meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = {line.partition(":")[0]: int(line.split()[1]) for line in lines if line}
    if "MemAvailable" not in kilobytes:
        return None
    available = kilobytes["MemAvailable"] * 1024
    limit = min(_left_by_cgroups(proc, cgroups), default=None)
    if limit is not None and limit < available:
        return Memory(max(limit, 0), limited=True)
    return Memory(available, kilobytes.get("SwapFree", 0) * 1024)


def missing_memory(memory: Optional[Memory]) -> Optional[str]:
    """One line if there is not enough for one compiler."""
    if memory is None or memory.available + memory.swap >= COMPILER_BYTES:
        return None
    found = f"found {shown(memory.available + memory.swap)}"
    remedy = "end other programs, or add swap"
    if memory.limited:
        found, remedy = f"{found} under the limit of the cgroup", "raise the limit"
    return f"livegnn needs {shown(COMPILER_BYTES)} of memory to be compiled, {found}: {remedy}"


def compilers_at_once(memory: Optional[Memory], cores: int, builds: int = 1) -> int:
    """How many compilers each of `builds` has memory for, at most one for each core."""
    if memory is None:
        return cores
    return max(1, min(cores, memory.available // builds // COMPILER_BYTES))


def count_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def missing_room(aim: str, root: Path) -> List[str]:
    """One line for each file system without the room for `make demo` or `make test` (`aim`)."""
    try:
        needs = list_needs(aim, root, Path(tempfile.gettempdir()))
    except FileNotFoundError as error:
        return [f"livegnn needs a folder for temporary files, {error.strerror}: name one with TMPDIR=..."]
    systems: Dict[int, List[Tuple[Path, int]]] = {}
    for folder, size in needs:
        systems.setdefault(folder.stat().st_dev, []).append((folder, size))
    lines = [short_of_room(one, shutil.disk_usage(str(one[0][0])).free) for one in systems.values()]
    return [line for line in lines if line]


def list_needs(aim: str, root: Path, temporary: Path) -> List[Tuple[Path, int]]:
    """Folders, and the bytes that will be written there."""
    # What is installed takes its room already; the environment of the tests is more than the demo's.
    stamps = ["installed-test"] if aim == "test" else ["installed-demo", "installed-test"]
    if any((root / ".venv" / stamp).exists() for stamp in stamps):
        return [(root, BUILD_BYTES[aim])]
    return [(root, ENVIRONMENT_BYTES[aim] + BUILD_BYTES[aim]), (temporary, TEMPORARY_BYTES[aim])]


def short_of_room(folders: List[Tuple[Path, int]], free: int) -> Optional[str]:
    """One line if folders of one file system need more bytes than are free there."""
    needed = sum(size for _, size in folders)
    if free >= needed:
        return None
    where = " and ".join(str(folder) for folder, _ in folders)
    return (
        f"livegnn needs {shown(needed)} of room on the disk in {where}, found {shown(free)}: free some, "
        "or use another disk (TMPDIR=... names another folder for temporary files)"
    )


def shown(size: int) -> str:
    for unit, bytes_ in (("GB", 10**9), ("MB", 10**6)):
        if size >= bytes_:
            return f"{size / bytes_:.1f} {unit}"
    return f"{size / 1000:.1f} kB"


def _left_by_cgroups(proc: str, cgroups: str) -> Iterator[int]:
    """What each limit above this process leaves, of either version. What caches files is free."""
    try:
        lines = Path(proc, "self", "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts, files, prefix = ["", "unified"], ("memory.max", "memory.current"), ""
        elif "memory" in controllers.split(","):
            mounts, files, prefix = ["memory"], ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_"
        else:
            continue
        for mount in mounts:
            # Inside a container the path may be the host's, and the folder of the mount the process' own.
            own = Path(cgroups, mount, path.lstrip("/"))
            for folder in [own, *own.parents]:
                if folder == Path(cgroups).parent:
                    break
                try:
                    limit, used = (int((folder / name).read_text()) for name in files)
                    stat = dict(row.split() for row in (folder / "memory.stat").read_text().splitlines())
                except (OSError, ValueError):  # no such group, or `max`: no limit
                    continue
                files_ = sum(int(stat.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))
                yield limit - used + files_
