"""Whether the log takes events: what the last write to it said, or a probe where nobody has written.

A dead disk is found by whoever writes, and a server without appends writes nothing. So whoever asks has a
probe written if the last write is some seconds old, or has failed. A write that hangs must not hold up those
who ask: a probe has a thread of its own.

Thread safety: every method may be called from any thread.
"""

import logging
import math
import threading
import time
from typing import Final

from livegnn.errors import LogError
from livegnn.log import Log

FRESH_SECONDS: Final = 5.0
"""For so long a write that succeeded says that the log takes events."""

_WAIT_SECONDS: Final = 1.0  # that whoever asks gives to a probe
_HANGS_SECONDS: Final = 10.0  # after which a probe that has not ended says that writes hang

_logger = logging.getLogger(__name__)


class LogWatch:
    """Watches writes to `log`."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._failure: LogError | None = None
        self._written = -math.inf
        self._probed: tuple[float, threading.Event] | None = None  # since when, and what says that it ended

    def note(self, failure: LogError | None) -> None:
        """Says what became of a write: why it failed, None if it did not."""
        with self._lock:
            before, self._failure = self._failure, failure
            self._written = time.monotonic() if failure is None else self._written
        if failure is not None and before is None:
            _logger.error("events are refused: %s", failure)
        elif failure is None and before is not None:
            _logger.warning("events are taken again: the log can be written to")

    def find_reason(self) -> str | None:
        """Why the log takes no events, None if it does. Takes a second at most."""
        ended = self._probe_if_due()
        if ended is not None:
            ended.wait(_WAIT_SECONDS)
        with self._lock:
            if self._failure is not None:
                return str(self._failure)
            if self._probed is None:
                return None
            since = time.monotonic() - self._probed[0]
            if since >= _HANGS_SECONDS or self._written == -math.inf:
                return f"a write to the log must end, got one that has not for {since:.0f} s"
        return None

    def _probe_if_due(self) -> threading.Event | None:
        """What says that the probe has ended which is under way, or was due; None if none is needed."""
        with self._lock:
            now = time.monotonic()
            if self._probed is None:
                if self._failure is None and now - self._written < FRESH_SECONDS:
                    return None
                self._probed = now, threading.Event()
                threading.Thread(target=self._probe, name="livegnn-log-probe", daemon=True).start()
            return self._probed[1]

    def _probe(self) -> None:
        try:
            self._log.probe()
        except LogError as error:
            self.note(error)
        else:
            self.note(None)
        finally:
            with self._lock:
                assert self._probed is not None
                (_, ended), self._probed = self._probed, None
            ended.set()
