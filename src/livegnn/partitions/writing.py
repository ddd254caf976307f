"""A process writes the file of its part in a thread, while it answers reads, and its leader waits for it.

No batch may be applied meanwhile.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

from livegnn.errors import LiveGNNError
from livegnn.interrupts import Background
from livegnn.types import JSON

_FIRST, _LONGEST = 0.002, 0.05  # seconds between two questions


class Writing:
    """A file that is being written by `write`, in a thread of its own."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write: Final = write
        self._report: dict[str, JSON] = {"done": False}
        Background(self._run, "livegnn-part-writing").start()

    def _run(self) -> None:
        failed: str | None = None
        try:
            self._write()
        except (LiveGNNError, OSError, MemoryError) as error:
            failed = str(error) or repr(error)
        except BaseException as error:
            failed = repr(error)
        self._report = {"done": True, "failed": failed}

    def report(self) -> dict[str, JSON]:
        """Whether it is done, and then the reason if it failed."""
        return self._report


def wait_until_written(ask: Callable[[], Mapping[str, JSON]]) -> str | None:
    """Returns when the file is written: the reason if that failed. ask: returns the report of the process."""
    wait = _FIRST
    while not (report := ask())["done"]:
        time.sleep(wait)
        wait = min(2 * wait, _LONGEST)
    failed = report["failed"]
    return None if failed is None else str(failed)
