"""Processes of this machine, as /proc shows them: those that a test has started, and whether they run.

Other tests, other checkouts and other users start and end processes all the time. So a test looks at the
children of one process alone, and a process that has ended already may be ended again.
"""

import os
import signal
from pathlib import Path

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Variables of a process whose memory is measured, so that it does not depend on how many cores there are."""


def children(process: int | None = None) -> set[int]:
    """The processes that one has started, this one if none is given, and that it has not waited for."""
    parent = os.getpid() if process is None else process
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _stat(path)[1:2] == [str(parent)]}


def runs(process: int | str) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    return _stat(Path("/proc") / str(process))[:1] not in ([], ["Z"], ["X"])


def is_stopped(process: int) -> bool:
    """Whether a process stands still, as after SIGSTOP, which takes effect later than it is sent."""
    return _stat(Path("/proc") / str(process))[:1] == ["T"]


def peak_memory(process: int) -> int:
    """The most memory that a process has had at once, in bytes (VmHWM)."""
    status = (Path("/proc") / str(process) / "status").read_text(errors="replace", encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def kill(process: int) -> bool:
    """Ends a child of this process as `kill -9` does; False if it is gone, whoever has its number now."""
    if process not in children() or not runs(process):
        return False
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _stat(path: Path) -> list[str]:
    """State, parent and more of a process; nothing of one that is gone."""
    try:
        return (path / "stat").read_text(errors="replace", encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []
