"""Watches whether the log accepts events: by the last write to it, or by a probe if there was no write.

A dead disk is noticed only by a write, and a server without appends does not write. So `find_reason` writes a
probe if the last write is some seconds old, or has failed. A write that hangs must not delay the caller: a
probe has a thread of its own.

Thread safety: every method may be called from any thread.
"""

import logging
import math
import threading
import time
from functools import partial
from typing import Final

import livegnn._core as _core
from livegnn.errors import LogError
from livegnn.interrupts import Background, Flag
from livegnn.log import Log

FRESH_SECONDS: Final = 5.0
"""The time for which a successful write shows that the log accepts events."""

_WAIT_SECONDS: Final = 1.0  # that a caller waits for a probe
_HANGS_SECONDS: Final = 10.0  # after which a probe that has not ended shows that writes hang

_logger = logging.getLogger(__name__)


class LogWatch:
    """A watch of the writes to `log`."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._failure: LogError | None = None
        self._written = -math.inf
        self._probe: _Probe | None = None  # the running one

    def note(self, failure: LogError | None) -> None:
        """Notes the result of a write: why it failed, None if it did not."""
        if failure is None and self._failure is None:
            self._written = time.monotonic()  # nearly always, at each append
            return
        before = _core.holding(self._lock, self._note, failure)
        if failure is not None and before is None:
            _logger.error("events are refused: %s", failure)
        elif failure is None and before is not None:
            _logger.warning("events are taken again: the log can be written to")

    def _note(self, failure: LogError | None) -> LogError | None:
        before, self._failure = self._failure, failure
        self._written = time.monotonic() if failure is None else self._written
        return before

    def find_reason(self) -> str | None:
        """Returns why the log accepts no events, None if it does. Takes a second at most."""
        try:
            self._log.check_place()
        except LogError as error:
            self.note(error)
            return str(error)
        probe = _core.holding(self._lock, self._probe_if_due)
        if probe is not None:
            probe.ended.wait(_WAIT_SECONDS)
        return _core.holding(self._lock, self._explain)

    def _explain(self) -> str | None:
        if self._failure is not None:
            return str(self._failure)
        if self._probe is None:
            return None
        since = time.monotonic() - self._probe.began
        if since >= _HANGS_SECONDS or self._written == -math.inf:
            return f"a write to the log must end, got one that has not for {since:.0f} s"
        return None

    def _probe_if_due(self) -> "_Probe | None":
        """Returns the running probe, after starting one if it was due; None if none is needed."""
        now = time.monotonic()
        if self._probe is None:
            if self._failure is None and now - self._written < FRESH_SECONDS:
                return None
            # A probe that was interrupted before it began is not waited for.
            _core.settled(self._begin, partial(setattr, self, "_probe", None), _Probe(now))
        return self._probe

    def _begin(self, probe: "_Probe") -> None:
        self._probe = probe
        Background(partial(self._run, probe), "livegnn-log-probe").start()

    def _run(self, probe: "_Probe") -> None:
        try:
            self._log.probe()
        except LogError as error:
            self.note(error)
        else:
            self.note(None)
        finally:
            _core.holding(self._lock, self._end, probe)
            probe.ended.set()

    def _end(self, probe: "_Probe") -> None:
        if self._probe is probe:
            self._probe = None


class _Probe:
    """A write that has begun; ended: whether it has ended."""

    def __init__(self, began: float) -> None:
        self.began, self.ended = began, Flag()
