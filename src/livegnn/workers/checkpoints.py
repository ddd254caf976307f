"""The checkpoints of a sampling worker: the newest, and the previous one in case a disk damages the newest.

Invariants: both are whole files; no reader sees a partial one; the directory belongs to the log that the
worker follows, as far as that has an identity. Thread safety: none.
"""

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import livegnn.checkpoint as checkpoint
from livegnn.errors import FileFormatError
from livegnn.log import Tail
from livegnn.log.directories import identity_of, share
from livegnn.types import State
from livegnn.workers.messages import ANEW

_NAME = "sampling"
_logger = logging.getLogger(__name__)


class Saved(NamedTuple):
    """The contents of a checkpoint: steps and events up to these, and records of other sampling workers."""

    step: int
    seq: int
    received: Mapping[int, int]


class Checkpoints:
    """Those at `path`, the older one with ``.before`` after its name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.before = path.with_name(f"{path.name}.before")
        self._identity: str | None = None

    def hold(self, log: Tail) -> None:
        """Makes the directory, in which each worker has files of its own, one of `log`. Raises InputError if
        it belongs to another log, OSError.
        """
        self._identity = self._identity or identity_of(log)
        share(self.path.parent, "workers", log.name, self._identity)

    def write(self, state: State, seq: int) -> None:
        """Makes `state`, of event `seq`, the newest. Raises OSError; then the newest is as it was."""
        if self.path.exists():
            linked = self.path.with_name(f"{self.path.name}.linked")
            linked.unlink(missing_ok=True)
            os.link(self.path, linked)
            linked.replace(self.before)
        began = time.monotonic()
        checkpoint.write(self.path, {_NAME: state}, seq)
        seconds, size = time.monotonic() - began, self.path.stat().st_size
        told = {"event": seq, "seconds": seconds, "bytes": size}
        _logger.info("a checkpoint at event %d: %d bytes in %.2f s", seq, size, seconds, extra=told)

    def read(self) -> tuple[int, State] | None:
        """The event and the state of the newest checkpoint, or of the previous one if that is damaged; None
        without both. Raises FileFormatError if both are damaged."""
        failure: FileFormatError | None = None
        for path in (self.path, self.before):
            if path.exists():
                try:
                    found = checkpoint.read(path)
                    state = found.states.get(_NAME)
                    if state is None:
                        raise FileFormatError(f"{path} must be of a sampling worker, got one of a runtime")
                except FileFormatError as error:
                    _logger.warning("a checkpoint cannot be used: %s", error)
                    failure = failure or error
                else:
                    return found.seq, state
        if failure is not None:
            raise FileFormatError(f"{failure}. {ANEW}") from failure
        return None
