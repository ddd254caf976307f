"""Views whose state a forked process saves only when a test lets it, and logs that tell of checkpoints."""

import faulthandler
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from livegnn.graph import Graph, View
from livegnn.log.sqlite import SqliteLog
from livegnn.types import State
from waiting import PATIENCE, wait_until


class TellingLog(SqliteLog):
    """`ended` is released whenever a checkpoint that was written beside the loop has ended, or at `stop`."""

    def __init__(self, path: Path, *, vfs: str | None = None) -> None:
        super().__init__(path, vfs=vfs)
        self.ended = threading.Semaphore(0)

    def wake(self) -> None:
        super().wake()
        self.ended.release()


class Held(View):
    """In a forked process `state` waits at a named pipe in `directory`, until `hold` ends.

    In the process that made the view it does nothing. open: whether nobody waits.
    """

    name = "held"

    def __init__(self, graph: Graph, state: State | None = None, *, directory: Path = Path()) -> None:
        super().__init__(graph)
        self.pipe, self.process, self.open = directory / "held", os.getpid(), False
        if not self.pipe.exists():
            os.mkfifo(self.pipe)
        graph.attach(self)

    def state(self) -> State | None:
        self.wait()
        return State({}, {"held": np.zeros(1)})

    def wait(self) -> None:
        """Once in each forked process, while `open` is false."""
        if os.getpid() != self.process and not self.open:
            self.open = True
            (self.pipe.parent / "pid").write_text(str(os.getpid()), encoding="utf-8")
            self.pipe.read_bytes()  # waits for who writes, and until that ends
            faulthandler.dump_traceback_later(PATIENCE / 2, file=sys.__stderr__)  # where it hangs, if it does

    @contextmanager
    def hold(self) -> Iterator[int]:
        """The number of the process that waits, which goes on when the block ends."""
        pipe = self._enter()
        try:
            yield int((self.pipe.parent / "pid").read_text(encoding="utf-8"))
        finally:
            os.close(pipe)

    def _enter(self) -> int:
        opened: list[int] = []

        def waits() -> list[int]:
            with suppress(OSError):  # nobody waits yet
                opened.append(os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK))
            return opened

        wait_until(waits, "the process that writes a checkpoint")
        return opened[0]
