"""Work in a forked process, which has the memory of the moment of the fork, while this process continues.

The child closes the files and sockets of its parent: a log stays locked, and an address taken, as long as any
process has it open. The child is killed when the thread that forked it ends. Thread safety: one thread forks
and stays alive until the end, one waits, any may call `end`.
"""

import contextlib
import gc
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import livegnn._core as _core
from livegnn.errors import LiveGNNError
from livegnn.graph import Graph

SUPPORTED = sys.platform == "linux"
"""On other systems a process with threads cannot be forked safely, or a child outlives its parent."""

_NICENESS = 10
_STANDARD_ERROR = 2


class ForkedProcess:
    """A process that does `work` and ends. The caller must hold `graph.writer` when it creates one.

    work: receives a function that it must call now and then, as a sign of life. It may use data that the
    locks of graph and views protect, if no other thread holds one; no connection, no file, no other thread.
    Raises OSError if the system cannot fork a process.
    """

    def __init__(self, graph: Graph, work: Callable[[Callable[[], None]], None]) -> None:
        self.stuck = False
        """Whether `wait` has killed the process because it gave no sign of life."""
        self.ended = False
        """Whether `end` was called."""
        self._reaped = False
        self._reaping = threading.Lock()
        self._pipe, reports = os.pipe()
        try:
            self._process = _core.fork(graph.native)
            if not self._process:
                _work_and_exit(reports, work)
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(reports)

    def wait(self, patience: float) -> str | None:
        """Waits until the process has ended; returns None if its work is done, else the reason why it is not.

        patience: the most seconds between two signs of life; after them the process is killed.
        """
        said, asked = b"", select.poll()
        asked.register(self._pipe, select.POLLIN)
        try:
            while not said.endswith(b"\n"):
                if not asked.poll(patience * 1000):
                    self.stuck = True
                    self._kill()
                    break
                received = os.read(self._pipe, 1 << 16)
                if not received:
                    break
                said = (said + received).lstrip(b"\n")  # signs of life
        finally:
            os.close(self._pipe)
            status = self._reap()
        if said.endswith(b"\n"):
            reason: str | None = json.loads(said)
            return reason
        if self.stuck:
            return f"the process that writes it gave no sign of life for {patience:g} seconds, and was killed"
        killed = "" if status is None or status >= 0 else f" by {signal.Signals(-status).name}"
        return f"the process that writes it was ended{killed}"

    def end(self) -> None:
        """Kills the process if it still runs; `wait` then returns."""
        self.ended = True
        self._kill()

    def _kill(self) -> None:
        with self._reaping:
            if not self._reaped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._process, signal.SIGKILL)

    def _reap(self) -> int | None:
        """Returns the status of the ended process, minus the signal that ended it; None if unknown."""
        try:
            # The number stays reserved for `_kill`, which must not kill another process of this number.
            os.waitid(os.P_PID, self._process, os.WEXITED | os.WNOWAIT)
            with self._reaping:
                self._reaped = True
                return os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])
        except ChildProcessError:  # other code in this program has waited for it
            self._reaped = True
            return None


def explain(error: BaseException) -> str:
    """Returns the text of an error in a line, with its type if that is unexpected."""
    ours = isinstance(error, (OSError, LiveGNNError, MemoryError))
    return (str(error) if ours else "") or repr(error)


def _work_and_exit(reports: int, work: Callable[[Callable[[], None]], None]) -> NoReturn:
    """Runs the whole life of the child."""
    reason: str | None = None
    try:
        gc.disable()  # the objects belong to the parent, and a visit copies their memory
        _let_go_of_files(reports)
        _take_second_place()
        work(lambda: _report(reports, b""))
    except BaseException as error:
        reason = explain(error)
    try:
        _report(reports, json.dumps(reason).encode())
    finally:
        os._exit(0)


def _report(pipe: int, line: bytes) -> None:
    os.write(pipe, line + b"\n")


def _let_go_of_files(kept: int) -> None:
    """Redirects each inherited descriptor to the null device, except `kept` and standard error.

    The numbers stay in use: objects of the parent still refer to them, and must not reach files of the child.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in [int(one.name) for one in Path("/proc/self/fd").iterdir()]:
        if descriptor not in (kept, null, _STANDARD_ERROR):
            os.dup2(null, descriptor, inheritable=False)


def _take_second_place() -> None:
    """Lets the system prefer the loop if processors are busy, and end this process if memory is short."""
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
